//! The prompt of a turn: fragments, history and tools, assembled under a token budget. Assembly is pure.
//!
//! Stable text comes first and volatile text last, because vendors cache the prefix of a prompt and charge less for it.
//! Fragments of the role and the agent begin the system prompt; the session's fragments follow; retrieved fragments end
//! it, unless they are configured for the latest turn. Fragments of the turn alone (the time, the page) go into the
//! latest user message, between `<context>` and `</context>`. There they stay in later turns, as far as the request or the
//! process has them: removed from a message of the history, they would break the cached prefix there.
//!
//! Escaping, hashing and counting cost far more than copying. Therefore every element of a prompt caches its derived
//! forms ([`Part`], [`PromptMessage`]), a [`PartCache`] returns the same object for the same content, and a request is
//! written as a sequence of copies.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::budget::{EstimateCounter, TokenCounter};
use crate::message::Role;
use crate::payload::PromptSection;

mod assembly;
mod cache;
mod dialect;
mod fragment;
mod message;
mod part;
mod segment;
mod sent;
mod tokens;
mod tools;

pub use assembly::{AssembleError, AssemblyInput, RETRIEVAL_SOURCE, assemble};
pub use cache::PartCache;
#[cfg(any(test, feature = "conformance"))]
pub(crate) use dialect::push_message_json;
pub use dialect::{Dialect, push_messages_json};
pub use fragment::{Fragment, LayerReport, Stability, StoredOrigin};
pub use message::PromptMessage;
pub use part::{Part, PartHash};
pub use tokens::{PromptTokens, TrimReason, TrimmedHistory};
pub use tools::push_tool_json;

pub(crate) use sent::{ContextKey, SentContexts};

use dialect::push_list;
use segment::{SEPARATOR, SEPARATOR_JSON, Segment};
use tools::ToolSet;

/// The highest stability that counts as stable. Fragments up to it are joined once for all users.
pub const STABLE_PREFIX_LIMIT: Stability = Stability::Agent;

/// The assembled prompt of a turn.
pub struct Prompt {
    system: Vec<Fragment>,
    /// Number of trailing fragments of `system` that the backend sends apart from the system prompt.
    detached: usize,
    /// Number of leading fragments of `system` that are joined in `stable`.
    stable_fragments: usize,
    stable: Arc<Segment>,
    tools: Option<Arc<ToolSet>>,
    messages: Vec<Arc<PromptMessage>>,
    counter: Arc<dyn TokenCounter>,
    tokens: PromptTokens,
    trimmed: Vec<TrimmedHistory>,
    history_report: Option<Arc<dyn LayerReport>>,
}

impl Prompt {
    /// Creates a prompt from fragments and messages as they are, without ordering, budget or cache.
    pub fn new(system: Vec<Fragment>, mut messages: Vec<Arc<PromptMessage>>) -> Self {
        // The vector may have spare capacity from `collect`, and it lives as long as the run.
        messages.shrink_to_fit();
        let counter = EstimateCounter;
        let tokens = PromptTokens {
            system: system.iter().map(|fragment| fragment.part.tokens(&counter)).sum(),
            tools: 0,
            messages: messages.iter().map(|message| message.tokens(&counter)).sum(),
        };
        Self {
            system,
            detached: 0,
            stable_fragments: 0,
            stable: Segment::empty(),
            tools: None,
            messages,
            counter: Arc::new(counter),
            tokens,
            trimmed: Vec::new(),
            history_report: None,
        }
    }

    /// Returns the final system prompt.
    pub fn system_text(&self) -> String {
        let mut text = String::with_capacity(self.system_len());
        self.push_system_text(&mut text);
        text
    }

    /// Appends the final system prompt.
    pub fn push_system_text(&self, out: &mut String) {
        for (i, piece) in self.system_pieces().enumerate() {
            if i > 0 {
                out.push_str(SEPARATOR);
            }
            out.push_str(piece.text());
        }
    }

    /// Returns the length of the final system prompt, in bytes.
    pub(crate) fn system_len(&self) -> usize {
        let lens = self.system_pieces().map(|piece| piece.text().len() + SEPARATOR.len());
        lens.sum::<usize>().saturating_sub(SEPARATOR.len())
    }

    /// Returns the length in bytes of system prompt and messages as the model reads them, without separators.
    pub fn text_len(&self) -> usize {
        self.system_len() + self.messages.iter().map(|message| message.text_len()).sum::<usize>()
    }

    /// Returns true if there is no system prompt.
    pub fn system_is_empty(&self) -> bool {
        self.system_fragments().is_empty()
    }

    /// Appends the system prompt as a JSON string, quotes included.
    pub fn push_system_json(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        for (i, piece) in self.system_pieces().enumerate() {
            if i > 0 {
                out.extend_from_slice(SEPARATOR_JSON);
            }
            out.extend_from_slice(piece.json().as_bytes());
        }
        out.push(b'"');
    }

    /// Iterates over the pieces of the system prompt: the stable fragments joined into one, then the others.
    fn system_pieces(&self) -> impl Iterator<Item = &Part> {
        let stable = (self.stable_fragments > 0).then(|| &self.stable.joined);
        let rest = self.system_fragments()[self.stable_fragments..].iter();
        stable.into_iter().chain(rest.map(|fragment| &*fragment.part))
    }

    /// Returns the fragments of the system prompt, in order.
    pub fn system_fragments(&self) -> &[Fragment] {
        &self.system[..self.system.len() - self.detached]
    }

    /// Returns the retrieved fragments that the backend sends apart from the system prompt.
    pub fn detached_fragments(&self) -> &[Fragment] {
        &self.system[self.system.len() - self.detached..]
    }

    /// Iterates over the reports of the layers, and of the step that shortened the history.
    pub fn reports(&self) -> impl Iterator<Item = &dyn LayerReport> {
        let fragments = self.system.iter().chain(self.turn_fragments());
        fragments.filter_map(|fragment| fragment.report.as_deref()).chain(self.history_report.as_deref())
    }

    /// Returns the fragments in the latest user message, in order.
    pub fn turn_fragments(&self) -> &[Fragment] {
        self.latest_user().map_or(&[], |message| message.context())
    }

    /// Returns the turn's context as the model reads it in front of the user's text, without the tags around it.
    pub fn turn_text(&self) -> String {
        let texts: Vec<&str> = self.turn_fragments().iter().map(|fragment| fragment.part.text()).collect();
        texts.join(SEPARATOR)
    }

    /// Returns the hashes of everything in front of the messages, for comparison with a later prompt: the system
    /// prompt's parts and the tools' definitions, in the order of a request's [`sections`](crate::payload::Payload::sections).
    pub fn prefix_hashes(&self, sections: &[PromptSection]) -> Vec<PartHash> {
        let mut hashes = Vec::new();
        for section in sections {
            match section {
                PromptSection::System => hashes.extend(self.system_hashes()),
                PromptSection::Tools => {
                    hashes.extend_from_slice(self.tools.as_ref().map_or(&[], |tools| tools.hashes()));
                }
            }
        }
        if !sections.contains(&PromptSection::System) {
            hashes.extend(self.system_hashes());
        }
        hashes
    }

    fn system_hashes(&self) -> impl Iterator<Item = PartHash> {
        let fragments = self.system_fragments().iter();
        fragments.map(|fragment| PartHash { id: fragment.id.clone(), sha256: fragment.part.sha256().clone() })
    }

    /// Returns history and latest turn, after trimming.
    pub fn messages(&self) -> &[Arc<PromptMessage>] {
        &self.messages
    }

    /// Appends the messages as JSON values separated by commas, without brackets.
    pub fn push_messages_json(&self, dialect: Dialect, out: &mut Vec<u8>) {
        push_list(&self.messages, out, |message, out| message.push_json(dialect, out));
    }

    /// Appends the definitions of the prompt's tools as JSON values separated by commas, without brackets: in MCP's
    /// shape for [`Dialect::AgUi`], as functions for the others.
    pub fn push_tools_json(&self, dialect: Dialect, out: &mut Vec<u8>) {
        if let Some(tools) = &self.tools {
            out.extend_from_slice(tools.json(dialect));
        }
    }

    /// Returns the length of system prompt, messages and tools as JSON, in bytes, as a capacity for a request body.
    pub fn json_len(&self, dialect: Dialect) -> usize {
        let system: usize = self.system_pieces().map(|piece| piece.json().len() + SEPARATOR_JSON.len()).sum();
        let messages: usize = self.messages.iter().map(|message| message.json_len(dialect) + 1).sum();
        let tools = self.tools.as_ref().map_or(0, |tools| tools.json(dialect).len());
        system + messages + tools + 2
    }

    /// Returns true if any message has images, audio, video or documents, which not every model accepts.
    pub fn has_media(&self) -> bool {
        self.messages.iter().any(|message| message.original().content.has_media())
    }

    /// Returns the text of the latest user message as the user wrote it, without the turn's context.
    pub fn latest_user_text(&self) -> Option<Cow<'_, str>> {
        Some(self.latest_user()?.original().content.to_text())
    }

    fn latest_user(&self) -> Option<&PromptMessage> {
        self.messages.iter().rev().find(|message| message.role() == Role::User).map(|message| &**message)
    }

    /// Returns the token counts of system prompt, tools and messages.
    pub fn tokens(&self) -> PromptTokens {
        self.tokens
    }

    /// Returns the length of the system prompt's prefix of stability `role` or `agent`, in bytes.
    pub fn stable_prefix_bytes(&self) -> usize {
        let stable = self.system.iter().take_while(|fragment| fragment.stability <= STABLE_PREFIX_LIMIT);
        let lens = stable.map(|fragment| fragment.part.text().len() + SEPARATOR.len());
        lens.sum::<usize>().saturating_sub(SEPARATOR.len())
    }

    /// Returns the counter of the prompt's tokens.
    pub fn counter(&self) -> &dyn TokenCounter {
        &*self.counter
    }

    /// Returns the parts of the history that were dropped to fit the budget.
    pub fn trimmed(&self) -> &[TrimmedHistory] {
        &self.trimmed
    }

    /// Returns the origins of the stored texts that were shortened to fit the layers' budgets.
    pub(crate) fn omitted(&self) -> Vec<&StoredOrigin> {
        let fragments = self.system.iter().chain(self.turn_fragments());
        let origins = fragments.filter_map(|fragment| fragment.origin.as_deref());
        origins.filter(|origin| origin.omitted_bytes.is_some()).collect()
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt")
            .field("system", &self.system.iter().map(|fragment| &*fragment.id).collect::<Vec<_>>())
            .field("messages", &self.messages.len())
            .field("tokens", &self.tokens)
            .field("trimmed", &self.trimmed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
