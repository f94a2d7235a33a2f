//! Contexts that were sent with earlier user messages of a conversation.
//!
//! Clients send the history back without them. Without the context of an earlier message, the prompt would differ from the
//! previous one at that message. The provider's prompt cache would miss the message and its answer in each turn. So a context
//! stays in front of its message if the request has it ([`Message::sent_context`](crate::message::Message::sent_context)), or
//! as long as this process remembers it. A lost entry changes the prompt, and nothing else.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::message::PromptMessage;
use crate::ids::{AgentId, CompanyId, ThreadId, UserId};
use crate::message::Role;
use crate::prompt::{Fragment, PartCache, Prompt, Stability};
use crate::tool::{Caller, ExecutionContext};

/// Maximum size in bytes: some ten thousand messages. Least used entries are evicted.
const MAX_SENT_CONTEXTS_BYTES: u64 = 8 << 20;
/// Expected number of entries.
const TYPICAL_CONTEXTS: usize = 8_000;
/// Limit on the context of a message that is kept, in bytes.
const MAX_KEPT_CONTEXT_BYTES: usize = 32 << 10;
/// Minimum limit on a kept context for any prompt budget, in bytes.
const MIN_KEPT_CONTEXT_BYTES: usize = 4 << 10;

/// In-process cache of the contexts of user messages.
pub(crate) struct SentContexts(Cache<ContextKey, Arc<[Fragment]>, ContextWeighter>);

/// Returns the limit on a kept context in bytes: an eighth of the prompt's budget, so that contexts do not fill it within a few turns.
fn max_kept_bytes(max_prompt_tokens: usize) -> usize {
    (max_prompt_tokens / 2).clamp(MIN_KEPT_CONTEXT_BYTES, MAX_KEPT_CONTEXT_BYTES)
}

/// Owner of a prompt: the company, the agent and the user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PromptOwner(CompanyId, AgentId, UserId);

/// Key of a user message: its owner, its conversation, and the hashes of the user's texts of the conversation up to it.
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
    /// Puts the known contexts in front of the user messages before the latest one; in front of that one only if the
    /// request has it, since an earlier run of the turn has sent it. Returns the keys under which the context of the
    /// latest message must be [recorded](Self::record).
    pub(crate) fn restore(
        &self,
        context: &ExecutionContext,
        history: &mut [Arc<PromptMessage>],
        max_prompt_tokens: usize,
        parts: &PartCache,
    ) -> Vec<ContextKey> {
        let (max_bytes, id) = (max_kept_bytes(max_prompt_tokens), Arc::<str>::from("context"));
        for message in history.iter_mut() {
            let context = message.original().sent_context.as_deref();
            if let Some(text) = context.filter(|text| !text.is_empty() && text.len() <= max_bytes) {
                let fragment = Fragment::new(id.clone(), "history", Stability::Turn, parts.part(text));
                *message = PromptMessage::with_context(Arc::clone(message), vec![fragment]);
            }
        }
        let mut hasher = DefaultHasher::new();
        let mut latest: Option<(&mut Arc<PromptMessage>, u64)> = None;
        for message in history.iter_mut().filter(|message| message.role() == Role::User) {
            if let Some((message, texts_hash)) = latest.take()
                && message.original().sent_context.is_none()
                && let Some(sent) = context_keys(context, texts_hash).iter().find_map(|key| self.0.get(key))
            {
                *message = PromptMessage::with_context(Arc::clone(message), sent.to_vec());
            }
            message.text_hash().hash(&mut hasher);
            latest = Some((message, hasher.finish()));
        }
        latest.map(|(_, texts_hash)| context_keys(context, texts_hash)).unwrap_or_default()
    }

    /// Stores the context of a prompt that was sent, under `keys` and in the request's slot. Without keys nothing is stored.
    pub(crate) fn record(
        &self,
        keys: Vec<ContextKey>,
        slot: &OnceLock<Arc<str>>,
        prompt: &Prompt,
        max_prompt_tokens: usize,
    ) {
        let text = prompt.turn_text();
        if keys.is_empty() || text.is_empty() || text.len() > max_kept_bytes(max_prompt_tokens) {
            return;
        }
        // Each run has a separate slot, which is empty until its one start.
        let _ = slot.set(text.into());
        let context: Arc<[Fragment]> = prompt.turn_fragments().into();
        keys.into_iter().for_each(|key| self.0.insert(key, Arc::clone(&context)));
    }
}

/// Returns the keys of a message, the most specific first.
fn context_keys(context: &ExecutionContext, texts_hash: u64) -> Vec<ContextKey> {
    let owner = PromptOwner(context.company_id.clone(), context.agent_id.clone(), context.user_id.clone());
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
        let PromptOwner(company, agent, user) = &key.owner;
        (256 + company.len() + agent.len() + user.len() + thread + texts.sum::<usize>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Content, ContentPart, Message};
    use crate::prompt::Part;

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

    /// Records the context of a message, in a prompt of this budget. Returns the text for the request.
    fn record_within(
        sent: &SentContexts,
        keys: Vec<ContextKey>,
        text: &str,
        tokens: usize,
    ) -> Option<Arc<str>> {
        let fragment = Fragment::new("time", "caller", Stability::Turn, Part::new(text.to_owned()));
        let message = PromptMessage::with_context(PromptMessage::new(Message::user("")), vec![fragment]);
        let slot = OnceLock::new();
        sent.record(keys, &slot, &Prompt::new(Vec::new(), vec![message]), tokens);
        slot.into_inner()
    }

    fn record(sent: &SentContexts, keys: Vec<ContextKey>, text: &str) {
        record_within(sent, keys, text, usize::MAX);
    }

    fn text_of(message: &Arc<PromptMessage>) -> String {
        let mut text = String::new();
        message.push_text(&mut text);
        text
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
        let keys = sent.restore(context, &mut history, usize::MAX, &PartCache::default());
        (history.iter().map(text_of).collect(), keys)
    }

    #[test]
    fn a_context_stays_with_its_message_for_its_owner_and_conversation() {
        let sent = SentContexts::default();
        let ada = context("ada", "t1", Caller::Session);
        let (texts, keys) = restored(&sent, &ada, &["hi"]);
        assert_eq!(texts, ["hi"]);
        record(&sent, keys, "noon");
        let turn = ["hi", "Hello.", "more"];
        let with = "<context>\nnoon\n</context>\n\nhi";
        assert_eq!(restored(&sent, &ada, &turn).0, [with, "Hello.", "more"]);
        assert_eq!(restored(&sent, &ada, &["hi"]).0, ["hi"], "the latest message has its own context");
        assert_eq!(restored(&sent, &ada, &["ho", "Hello.", "more"]).0[0], "ho", "another conversation");
        assert_eq!(restored(&sent, &context("ada", "t2", Caller::Session), &turn).0[0], with);
        assert_eq!(restored(&sent, &context("bob", "t1", Caller::Session), &turn).0[0], "hi");
    }

    #[test]
    fn a_text_has_one_hash_whatever_is_in_front_of_it() {
        let plain = PromptMessage::new(Message::user("hi"));
        let fragment = Fragment::new("time", "caller", Stability::Turn, Part::new("noon"));
        let with_context = PromptMessage::with_context(Arc::clone(&plain), vec![fragment]);
        let content = Content::Parts(vec![ContentPart::Text { text: "hi".into() }]);
        let in_parts = PromptMessage::new(Message { content, ..Message::user("") });
        assert_eq!([with_context.text_hash(), in_parts.text_hash()], [plain.text_hash(); 2]);
        assert_ne!(PromptMessage::new(Message::user("ho")).text_hash(), plain.text_hash());
    }

    #[test]
    fn visitors_need_the_same_conversation() {
        let sent = SentContexts::default();
        let visitor = |thread| context("widget:1", thread, Caller::Widget);
        let (_, keys) = restored(&sent, &visitor("t1"), &["hi"]);
        record(&sent, keys, "the page of one visitor");
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
            record(&sent, keys, &text.repeat(MAX_KEPT_CONTEXT_BYTES / 4));
            restored(&sent, &ada, &[text, "Hello.", "more"]).0[0] != text
        };
        assert!(kept("four") && !kept("fives"));
        let texts: Vec<String> = (0..2_000).map(|index| format!("{index:04}")).collect();
        texts.iter().for_each(|text| assert!(kept(text)));
        let known =
            texts.iter().filter(|text| restored(&sent, &ada, &[text, "a", "b"]).0[0] != **text).count();
        assert!(known < 200, "{known} of 32 KiB each");
    }

    #[test]
    fn the_context_of_the_request_comes_before_the_remembered_one() {
        let sent = SentContexts::default();
        let ada = context("ada", "t1", Caller::Session);
        let (_, keys) = restored(&sent, &ada, &["hi"]);
        record(&sent, keys, "noon");
        let with = |text: &str, context: Option<&str>| {
            PromptMessage::new(Message { sent_context: context.map(Into::into), ..Message::user(text) })
        };
        let shown = |first: Option<&str>, latest: Option<&str>, tokens: usize| {
            let mut history = vec![with("hi", first), with("more", latest)];
            sent.restore(&ada, &mut history, tokens, &PartCache::default());
            [text_of(&history[0]), text_of(&history[1])]
        };
        let block = |context: &str, text: &str| format!("<context>\n{context}\n</context>\n\n{text}");
        let more = || "more".to_owned();
        assert_eq!(shown(None, None, 8_000), [block("noon", "hi"), more()]);
        assert_eq!(shown(Some("one"), None, 8_000), [block("one", "hi"), more()]);
        assert_eq!(shown(Some(""), Some(""), 8_000), ["hi".to_owned(), more()], "none was sent");
        let continued = shown(None, Some("two\n\nthree"), 8_000);
        assert_eq!(continued, [block("noon", "hi"), block("two\n\nthree", "more")], "the turn goes on");
        let long = "x".repeat(4_097);
        assert_eq!(shown(Some(&long), None, 8_000)[0], "hi", "too long for this budget");
        assert_eq!(shown(Some(&long), None, 8_194)[0], block(&long, "hi"));
    }

    #[test]
    fn a_request_receives_the_context_that_later_prompts_repeat() {
        let sent = SentContexts::default();
        let (_, keys) = restored(&sent, &context("ada", "t1", Caller::Session), &["hi"]);
        assert_eq!(record_within(&sent, keys.clone(), "noon", 8_000).as_deref(), Some("noon"));
        assert_eq!(record_within(&sent, keys.clone(), "", 8_000), None);
        assert_eq!(record_within(&sent, keys, &"x".repeat(4_097), 8_000), None);
        assert_eq!(record_within(&sent, Vec::new(), "noon", 8_000), None, "a workflow's");
    }
}
