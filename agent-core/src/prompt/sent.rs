//! Contexts that were sent with earlier user messages of a conversation.
//!
//! Clients send the history back without them. If an earlier message then lacked its context, the prompt would differ
//! from the previous one at the latest user message of that turn, and the provider's prompt cache would lose this
//! message and the answer in each turn. So a context stays in front of its message as long as this process remembers
//! it. A lost entry changes the prompt, and nothing else.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::last::PromptOwner;
use super::message::{PromptMessage, push_text};
use crate::ids::ThreadId;
use crate::message::Role;
use crate::prompt::Fragment;
use crate::tool::{Caller, ExecutionContext};

/// Capacity in bytes: some ten thousand messages. Least used entries are evicted.
const MAX_SENT_CONTEXTS_BYTES: u64 = 8 << 20;
/// Expected number of entries.
const TYPICAL_CONTEXTS: usize = 8_000;
/// Limit on the context of a message that is kept, in bytes: a longer one would fill the context window in few turns.
const MAX_KEPT_CONTEXT_BYTES: usize = 4 << 10;

/// In-process cache of the contexts of user messages.
pub(crate) struct SentContexts(Cache<ContextKey, Arc<[Fragment]>, ContextWeighter>);

/// Key of a user message: its owner, its conversation, and the user's texts of the conversation up to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContextKey {
    owner: PromptOwner,
    /// `None` for a client that names no conversation. Never `None` for visitors, who share one user.
    thread_id: Option<ThreadId>,
    texts_hash: u64,
}

impl Default for SentContexts {
    fn default() -> Self {
        Self(Cache::with_weighter(TYPICAL_CONTEXTS, MAX_SENT_CONTEXTS_BYTES, ContextWeighter))
    }
}

impl SentContexts {
    /// Puts the known contexts in front of the user messages before the latest one. Returns the keys under which the
    /// context of the latest one is to be [recorded](Self::record).
    pub(crate) fn restore(
        &self,
        context: &ExecutionContext,
        history: &mut [Arc<PromptMessage>],
    ) -> Vec<ContextKey> {
        let mut hasher = DefaultHasher::new();
        let mut latest: Option<(&mut Arc<PromptMessage>, Vec<ContextKey>)> = None;
        for message in history.iter_mut().filter(|message| message.role() == Role::User) {
            if let Some((message, keys)) = latest.take() {
                self.restore_one(message, keys);
            }
            let mut text = String::new();
            push_text(&message.original().content, &mut text);
            text.hash(&mut hasher);
            latest = Some((message, context_keys(context, hasher.finish())));
        }
        latest.map(|(_, keys)| keys).unwrap_or_default()
    }

    fn restore_one(&self, message: &mut Arc<PromptMessage>, keys: Vec<ContextKey>) {
        if let Some(sent) = keys.iter().find_map(|key| self.0.get(key)) {
            *message = PromptMessage::with_context(Arc::clone(message), sent.to_vec());
        }
    }

    /// Stores the context that was sent with a message.
    pub(crate) fn record(&self, keys: Vec<ContextKey>, context: &[Fragment]) {
        let bytes: usize = context.iter().map(|fragment| fragment.part.text().len()).sum();
        if context.is_empty() || bytes > MAX_KEPT_CONTEXT_BYTES {
            return;
        }
        let context: Arc<[Fragment]> = context.into();
        for key in keys {
            self.0.insert(key, Arc::clone(&context));
        }
    }
}

/// Returns the keys of a message, the most specific first.
fn context_keys(context: &ExecutionContext, texts_hash: u64) -> Vec<ContextKey> {
    let owner = PromptOwner::from(context);
    let any_thread = (context.caller != Caller::Widget).then_some(None);
    let threads = [Some(Some(context.thread_id.clone())), any_thread];
    let key = |thread_id| ContextKey { owner: owner.clone(), thread_id, texts_hash };
    threads.into_iter().flatten().map(key).collect()
}

#[derive(Clone)]
struct ContextWeighter;

impl Weighter<ContextKey, Arc<[Fragment]>> for ContextWeighter {
    fn weight(&self, key: &ContextKey, context: &Arc<[Fragment]>) -> u64 {
        let thread = key.thread_id.as_ref().map_or(0, |thread| thread.len());
        let texts = context.iter().map(|fragment| size_of::<Fragment>() + 3 * fragment.part.text().len());
        (256 + key.owner.bytes() + thread + texts.sum::<usize>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::prompt::{Part, Stability};

    fn context(user: &str, thread: &str, caller: Caller) -> ExecutionContext {
        ExecutionContext {
            company_id: "c".into(),
            agent_id: "a".into(),
            user_id: user.into(),
            thread_id: thread.into(),
            caller,
            ..ExecutionContext::default()
        }
    }

    fn fragments(text: &str) -> Vec<Fragment> {
        vec![Fragment::new("time", "caller", Stability::Turn, Part::new(text.to_owned()))]
    }

    /// Returns the texts of a conversation after restoring, with the keys of its latest message.
    fn restored(
        sent: &SentContexts,
        context: &ExecutionContext,
        texts: &[&str],
    ) -> (Vec<String>, Vec<ContextKey>) {
        let message = |(index, text): (usize, &&str)| {
            let text = (*text).to_owned();
            PromptMessage::new(if index.is_multiple_of(2) {
                Message::user(text)
            } else {
                Message::assistant(text)
            })
        };
        let mut history: Vec<_> = texts.iter().enumerate().map(message).collect();
        let keys = sent.restore(context, &mut history);
        let text = |message: &Arc<PromptMessage>| {
            let mut text = String::new();
            message.push_text(&mut text);
            text
        };
        (history.iter().map(text).collect(), keys)
    }

    #[test]
    fn a_context_stays_with_its_message_for_its_owner_and_conversation() {
        let sent = SentContexts::default();
        let ada = context("ada", "t1", Caller::Session);
        let (texts, keys) = restored(&sent, &ada, &["hi"]);
        assert_eq!(texts, ["hi"]);
        sent.record(keys, &fragments("noon"));
        let turn = ["hi", "Hello.", "more"];
        let with = "<context>\nnoon\n</context>\n\nhi";
        assert_eq!(restored(&sent, &ada, &turn).0, [with, "Hello.", "more"]);
        assert_eq!(restored(&sent, &ada, &["hi"]).0, ["hi"], "the latest message has its own context");
        assert_eq!(restored(&sent, &ada, &["ho", "Hello.", "more"]).0[0], "ho", "another conversation");
        assert_eq!(restored(&sent, &context("ada", "t2", Caller::Session), &turn).0[0], with);
        assert_eq!(restored(&sent, &context("bob", "t1", Caller::Session), &turn).0[0], "hi");
    }

    #[test]
    fn visitors_need_the_same_conversation() {
        let sent = SentContexts::default();
        let visitor = |thread| context("widget:1", thread, Caller::Widget);
        let (_, keys) = restored(&sent, &visitor("t1"), &["hi"]);
        sent.record(keys, &fragments("the page of one visitor"));
        let turn = ["hi", "Hello.", "more"];
        assert!(restored(&sent, &visitor("t1"), &turn).0[0].contains("the page"));
        assert_eq!(restored(&sent, &visitor("t2"), &turn).0[0], "hi");
    }

    #[test]
    fn long_contexts_are_not_kept_and_memory_is_bounded() {
        let sent = SentContexts::default();
        let ada = context("ada", "t1", Caller::Session);
        let kept = |text: &str| {
            let (_, keys) = restored(&sent, &ada, &[text]);
            sent.record(keys, &fragments(&text.repeat(MAX_KEPT_CONTEXT_BYTES / 4)));
            restored(&sent, &ada, &[text, "Hello.", "more"]).0[0] != text
        };
        assert!(kept("four") && !kept("fives"));
        let texts: Vec<String> = (0..10_000).map(|index| format!("{index:04}")).collect();
        texts.iter().for_each(|text| assert!(kept(text)));
        let known =
            texts.iter().filter(|text| restored(&sent, &ada, &[text, "a", "b"]).0[0] != **text).count();
        assert!(known < 1_000, "{known} of 4 KiB each");
    }
}
