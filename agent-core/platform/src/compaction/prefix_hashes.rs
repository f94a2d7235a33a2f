//! Hashes of the beginnings of histories. A later turn extends the hash of the previous turn instead of hashing all replaced
//! messages again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::AgentId;
use agent_core::prompt::PromptMessage;

use super::store::{PrefixHasher, SummaryOwner};
use crate::company_table::{CompanyTable, CompanyTableLimits};
use crate::conversation::message_bytes;

/// Capacity in bytes. A history of 10,000 short messages has about 11 MB.
const CACHE_LIMITS: CompanyTableLimits = CompanyTableLimits { total: 32 << 20, per_company: 16 << 20 };
/// Approximate size of a message with its forms beyond its texts, in bytes.
const MESSAGE_BYTES: usize = 512;
/// Maximum number of hashes of one history that are kept: of its present summary, the one before and the next one.
const MAX_HASHES: usize = 4;

#[cfg(test)]
thread_local! {
    /// Number of messages that this thread has hashed.
    static HASHED_MESSAGES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Key of a history's hashes: its owner, and all that a hash depends on besides the messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PrefixKey {
    pub(super) owner: SummaryOwner,
    pub(super) agent_id: AgentId,
    pub(super) instructions: String,
    /// Maximum size of the summary, in tokens.
    pub(super) max_tokens: usize,
}

/// Cache of the hashes of the beginnings of histories, the latest history of each key. Each company has a share.
pub(super) struct PrefixHashes(Mutex<CompanyTable<PrefixKey, HashedPrefix>>);

impl Default for PrefixHashes {
    fn default() -> Self {
        Self::with_limits(CACHE_LIMITS)
    }
}

/// Messages that were hashed.
struct HashedPrefix {
    /// The messages are kept alive, so that no other message gets the address of one of them.
    messages: Vec<Arc<PromptMessage>>,
    /// State of the hash after all of them.
    hasher: PrefixHasher,
    /// Hashes after numbers of messages.
    hashes: BTreeMap<usize, String>,
    /// Approximate size in bytes.
    bytes: usize,
}

impl PrefixHashes {
    fn with_limits(limits: CompanyTableLimits) -> Self {
        Self(Mutex::new(CompanyTable::new(limits)))
    }

    /// Returns the hash of the leading messages of a history.
    pub(super) fn sha256(&self, key: &PrefixKey, messages: &[Arc<PromptMessage>]) -> String {
        let company = &key.owner.company_id;
        let known = self.lock().remove(company, key);
        let known = known.filter(|known| known.has_same_start(messages));
        let mut prefix = known.unwrap_or_else(|| HashedPrefix::new(key));
        let sha256 = prefix.sha256(key, messages);
        let bytes = prefix.bytes;
        self.lock().insert_sized(company, key.clone(), prefix, bytes);
        sha256
    }

    /// Locks the table. No code panics while holding the lock.
    fn lock(&self) -> MutexGuard<'_, CompanyTable<PrefixKey, HashedPrefix>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_hasher(key: &PrefixKey) -> PrefixHasher {
    PrefixHasher::new(&key.agent_id, &key.instructions, key.max_tokens)
}

fn add(hasher: &mut PrefixHasher, message: &PromptMessage) {
    #[cfg(test)]
    HASHED_MESSAGES.set(HASHED_MESSAGES.get() + 1);
    hasher.add_message(message.original());
}

impl HashedPrefix {
    fn new(key: &PrefixKey) -> Self {
        let bytes = size_of::<Self>() + size_of::<PrefixKey>() + key.instructions.len() + MESSAGE_BYTES;
        Self { messages: Vec::new(), hasher: new_hasher(key), hashes: BTreeMap::new(), bytes }
    }

    /// Returns true if the shorter one of both lists is the beginning of the other: all its messages are the same objects.
    fn has_same_start(&self, messages: &[Arc<PromptMessage>]) -> bool {
        let mut pairs = self.messages.iter().zip(messages);
        pairs.all(|(own, other)| std::ptr::eq(own.original(), other.original()))
    }

    /// Returns the hash of messages that have the same beginning.
    fn sha256(&mut self, key: &PrefixKey, messages: &[Arc<PromptMessage>]) -> String {
        if let Some(known) = self.hashes.get(&messages.len()) {
            return known.clone();
        }
        if messages.len() < self.messages.len() {
            let mut hasher = new_hasher(key);
            messages.iter().for_each(|message| add(&mut hasher, message));
            return hasher.sha256();
        }
        for message in &messages[self.messages.len()..] {
            add(&mut self.hasher, message);
            self.bytes += cached_bytes(message);
            self.messages.push(Arc::clone(message));
        }
        let sha256 = self.hasher.sha256();
        self.hashes.insert(messages.len(), sha256.clone());
        if self.hashes.len() > MAX_HASHES {
            self.hashes.pop_first();
        }
        sha256
    }
}

/// Returns the approximate size of a message in the cache, with its escaped forms.
fn cached_bytes(message: &PromptMessage) -> usize {
    let context = message.context().iter().map(|fragment| fragment.part.text().len());
    size_of::<Arc<PromptMessage>>()
        + MESSAGE_BYTES
        + 3 * (message_bytes(message.original()) + context.sum::<usize>())
}

#[cfg(test)]
mod tests {
    use agent_core::message::Message;
    use proptest::collection::vec;
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

    use super::*;

    fn key(thread: &str) -> PrefixKey {
        PrefixKey {
            owner: SummaryOwner {
                company_id: "c".into(),
                user_id: "ada".into(),
                thread_id: Some(thread.into()),
            },
            agent_id: "a".into(),
            instructions: "Keep the numbers.".to_owned(),
            max_tokens: 100,
        }
    }

    /// Returns the hash of all messages, without a cache.
    fn whole(key: &PrefixKey, messages: &[Arc<PromptMessage>]) -> String {
        let mut hasher = new_hasher(key);
        messages.iter().for_each(|message| hasher.add_message(message.original()));
        hasher.sha256()
    }

    fn message(text: &str) -> Arc<PromptMessage> {
        PromptMessage::new(Message::user(text))
    }

    /// Returns the number of messages that are hashed for the hash of these.
    fn hashed(hashes: &PrefixHashes, messages: &[Arc<PromptMessage>]) -> usize {
        HASHED_MESSAGES.set(0);
        assert_eq!(hashes.sha256(&key("t"), messages), whole(&key("t"), messages));
        HASHED_MESSAGES.get()
    }

    #[test]
    fn later_hashes_are_computed_from_only_the_new_messages() {
        let hashes = PrefixHashes::default();
        let mut messages: Vec<_> = (0..100).map(|n| message(&n.to_string())).collect();
        assert_eq!(hashed(&hashes, &messages[..80]), 80);
        assert_eq!(hashed(&hashes, &messages[..80]), 0);
        assert_eq!(hashed(&hashes, &messages[..95]), 15);
        assert_eq!(hashed(&hashes, &messages[..80]), 0, "the hash of the current summary is cached");
        assert_eq!(hashed(&hashes, &messages[..81]), 81, "a hash that was not requested is not cached");
        assert_eq!(hashed(&hashes, &messages), 5);
        // An equal message in another object proves nothing.
        messages[3] = message("3");
        assert_eq!(hashed(&hashes, &messages), 100);
        messages[3] = message("three");
        assert_eq!(hashed(&hashes, &messages[..2]), 2, "a shorter one has the beginning in common");
        assert_eq!(hashed(&hashes, &messages), 100);
        let other = PrefixKey { instructions: String::new(), ..key("t") };
        assert_eq!(hashes.sha256(&other, &messages), whole(&other, &messages));
    }

    #[test]
    fn a_history_that_exceeds_the_share_is_not_kept() {
        let hashes = PrefixHashes::with_limits(CompanyTableLimits { total: 100_000, per_company: 10_000 });
        let messages = [message("short"), message(&"x".repeat(10_000))];
        assert_eq!([hashed(&hashes, &messages), hashed(&hashes, &messages)], [2, 2]);
        assert_eq!([hashed(&hashes, &messages[..1]), hashed(&hashes, &messages[..1])], [1, 0]);
    }

    /// A change of a history, and the part of it that is hashed then, in hundredths.
    #[derive(Debug, Clone)]
    enum Change {
        Append(u8),
        /// The history is cut, as by a branch, and continues with another message.
        Branch(usize, u8),
        Replace(usize, u8),
        Remove(usize),
        /// Another object with the same content.
        Renew(usize),
        OtherThread,
    }

    fn change() -> impl Strategy<Value = (Change, usize)> {
        let change = prop_oneof![
            4 => any::<u8>().prop_map(Change::Append),
            1 => (any::<usize>(), any::<u8>()).prop_map(|(at, text)| Change::Branch(at, text)),
            1 => (any::<usize>(), any::<u8>()).prop_map(|(at, text)| Change::Replace(at, text)),
            1 => any::<usize>().prop_map(Change::Remove),
            1 => any::<usize>().prop_map(Change::Renew),
            1 => Just(Change::OtherThread),
        ];
        (change, 0..=100_usize)
    }

    fn apply(change: Change, history: &mut Vec<Arc<PromptMessage>>, thread: &mut usize) {
        let text = |text: u8| message(&(text % 4).to_string());
        let count = history.len().max(1);
        match change {
            Change::Append(new) => history.push(text(new)),
            Change::Branch(at, new) => {
                history.truncate(at % count);
                history.push(text(new));
            }
            Change::Replace(at, new) if !history.is_empty() => history[at % count] = text(new),
            Change::Remove(at) if !history.is_empty() => drop(history.remove(at % count)),
            Change::Renew(at) if !history.is_empty() => {
                let content = history[at % count].original().clone();
                history[at % count] = PromptMessage::new(content);
            }
            Change::OtherThread => *thread = 1 - *thread,
            Change::Replace(..) | Change::Remove(_) | Change::Renew(_) => {}
        }
    }

    proptest! {
        #[test]
        fn a_hash_is_that_of_all_messages(changes in vec(change(), 1..60)) {
            let hashes = PrefixHashes::default();
            let (mut histories, mut thread) = ([Vec::new(), Vec::new()], 0);
            for (change, share) in changes {
                apply(change, &mut histories[thread], &mut thread);
                let history = &histories[thread];
                let (key, messages) = (key(&thread.to_string()), &history[..history.len() * share / 100]);
                assert_eq!(hashes.sha256(&key, messages), whole(&key, messages));
                assert_eq!(hashes.sha256(&key, history), whole(&key, history));
            }
        }
    }
}
