//! The prompt of a turn: fragments, history and tools under a budget, assembled purely.
//!
//! What is stable stands first and what changes last, for providers keep the beginning of a prompt and
//! charge less for it. Fragments of the role and the agent begin the system prompt; the session's follow;
//! retrieved ones end it, unless they are to stand in the latest turn; what belongs to the turn alone
//! (the time, the page) goes into the latest user message, between `<context>` and `</context>`.
//!
//! Escaping, hashing and counting are far dearer than copying. So everything that a prompt holds keeps
//! its derived forms ([`Part`], [`PromptMessage`]), a [`PartCache`] gives the same object for the
//! same content, and writing a request is a sequence of copies. The [`Manifest`] is made on demand.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::budget::{EstimateCounter, TokenCounter};
use crate::message::Role;
use crate::payload::Section;

mod assembly;
mod cache;
mod dialect;
mod fragment;
mod last;
mod manifest;
mod message;
mod part;
mod segment;
mod tools;

pub use assembly::{AssembleError, AssemblyInput, RETRIEVAL, TrimReason, Trimmed, assemble};
pub use cache::PartCache;
pub use dialect::{Dialect, push_message_json, push_messages_json};
pub use fragment::{Fragment, Stability};
pub use manifest::{Manifest, ManifestPart, PartHash, Placement, PromptTokens, first_changed_part};
pub use message::PromptMessage;
pub use part::Part;
pub use tools::push_tool_json;

pub(crate) use last::{LatestPrompts, Whose};

use dialect::ToolNames;
use segment::Segment;
use tools::ToolSet;

/// What separates the fragments of a system prompt.
const SEPARATOR: &str = "\n\n";
const SEPARATOR_JSON: &[u8] = br"\n\n";

/// The last stability that counts as stable; what is up to it is joined once for all users.
const STABLE: Stability = Stability::Agent;

/// A turn's prompt.
pub struct Prompt {
    system: Vec<Fragment>,
    /// How many of `system` are joined in `stable`.
    stable_fragments: usize,
    stable: Arc<Segment>,
    tools: Option<Arc<ToolSet>>,
    messages: Vec<Arc<PromptMessage>>,
    counter: Arc<dyn TokenCounter>,
    tokens: PromptTokens,
    trimmed: Vec<Trimmed>,
}

impl Prompt {
    /// Puts fragments and messages together as they are, without order, budget or cache.
    pub fn new(system: Vec<Fragment>, mut messages: Vec<Arc<PromptMessage>>) -> Self {
        // Collected from messages, it may have room for as many of those, and it is there as long as the run.
        messages.shrink_to_fit();
        let counter = EstimateCounter;
        let tokens = PromptTokens {
            system: system.iter().map(|fragment| fragment.part.tokens(&counter)).sum(),
            tools: 0,
            messages: messages.iter().map(|message| message.tokens(&counter)).sum(),
        };
        let stable = Segment::empty();
        let counter = Arc::new(counter);
        Self {
            system,
            stable_fragments: 0,
            stable,
            tools: None,
            messages,
            counter,
            tokens,
            trimmed: Vec::new(),
        }
    }

    /// The final system prompt.
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

    /// The length of the final system prompt, in bytes.
    pub fn system_len(&self) -> usize {
        let lens = self.system_pieces().map(|piece| piece.text().len() + SEPARATOR.len());
        lens.sum::<usize>().saturating_sub(SEPARATOR.len())
    }

    /// The length of system prompt and messages together as the model reads them, in bytes: what to size
    /// a text by. Separators between messages are not counted.
    pub fn text_len(&self) -> usize {
        self.system_len() + self.messages.iter().map(|message| message.text_len()).sum::<usize>()
    }

    /// Whether there is no system prompt.
    pub fn system_is_empty(&self) -> bool {
        self.system.is_empty()
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

    /// What the system prompt is written from: the stable fragments as one piece, then the others.
    fn system_pieces(&self) -> impl Iterator<Item = &Part> {
        let stable = (self.stable_fragments > 0).then(|| self.stable.joined());
        let rest = self.system[self.stable_fragments..].iter();
        stable.into_iter().chain(rest.map(|fragment| &*fragment.part))
    }

    /// The system prompt's fragments, in order.
    pub fn system_fragments(&self) -> &[Fragment] {
        &self.system
    }

    /// The fragments that stand in the latest user message, in order.
    pub fn turn_fragments(&self) -> &[Fragment] {
        self.latest_user().map_or(&[], |message| message.context())
    }

    /// What the turn brings along as the model reads it in front of the person's words, without the tags around it.
    pub fn turn_text(&self) -> String {
        let texts: Vec<&str> = self.turn_fragments().iter().map(|fragment| fragment.part.text()).collect();
        texts.join(SEPARATOR)
    }

    /// Appends the same as the inside of a JSON string.
    pub fn push_turn_json(&self, out: &mut Vec<u8>) {
        for (i, fragment) in self.turn_fragments().iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(SEPARATOR_JSON);
            }
            out.extend_from_slice(fragment.part.json().as_bytes());
        }
    }

    /// The identities of what stands before the messages, to compare a later prompt with: the system prompt's parts
    /// and the tools' definitions, as a request has them by its [`sections`](crate::payload::Payload::sections).
    pub fn prefix_hashes(&self, sections: &[Section]) -> Vec<PartHash> {
        let mut hashes = Vec::new();
        for section in sections {
            match section {
                Section::System => hashes.extend(self.system_hashes()),
                Section::Tools => {
                    hashes.extend_from_slice(self.tools.as_ref().map_or(&[], |tools| tools.hashes()));
                }
            }
        }
        if !sections.contains(&Section::System) {
            hashes.extend(self.system_hashes());
        }
        hashes
    }

    fn system_hashes(&self) -> impl Iterator<Item = PartHash> {
        let of = |fragment: &Fragment| PartHash {
            id: Arc::clone(&fragment.id),
            sha256: Arc::clone(fragment.part.sha256()),
        };
        self.system.iter().map(of)
    }

    /// History and latest turn, after trimming.
    pub fn messages(&self) -> &[Arc<PromptMessage>] {
        &self.messages
    }

    /// Appends the messages as JSON values separated by commas, without brackets.
    pub fn push_messages_json(&self, dialect: Dialect, out: &mut Vec<u8>) {
        let mut names = ToolNames::of(dialect);
        for (i, message) in self.messages.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            message.push_json(dialect, out);
            names.follow(message.original(), out);
        }
    }

    /// Appends the definitions of the tools that the prompt was assembled with as JSON values separated by
    /// commas, without brackets: MCP's shape in [`Dialect::AgUi`], functions in the others.
    pub fn push_tools_json(&self, dialect: Dialect, out: &mut Vec<u8>) {
        if let Some(tools) = &self.tools {
            out.extend_from_slice(tools.json(dialect));
        }
    }

    /// The length of system prompt, messages and tools together as JSON, in bytes: what to size a body by.
    /// Names of tools in results, which [`Dialect::Ollama`] has, are not counted.
    pub fn json_len(&self, dialect: Dialect) -> usize {
        let system: usize = self.system_pieces().map(|piece| piece.json().len() + SEPARATOR_JSON.len()).sum();
        let messages: usize = self.messages.iter().map(|message| message.json_len(dialect) + 1).sum();
        let tools = self.tools.as_ref().map_or(0, |tools| tools.json(dialect).len());
        system + messages + tools + 2
    }

    /// Whether any message has pictures or files, which not every model takes.
    pub fn has_media(&self) -> bool {
        self.messages.iter().any(|message| message.original().content.has_media())
    }

    /// What the person has said last, in the person's own words: without the turn's context.
    pub fn latest_user_text(&self) -> Option<Cow<'_, str>> {
        Some(self.latest_user()?.original().content.to_text())
    }

    fn latest_user(&self) -> Option<&PromptMessage> {
        self.messages.iter().rev().find(|message| message.role() == Role::User).map(|message| &**message)
    }

    /// Where the prompt's tokens go.
    pub fn tokens(&self) -> PromptTokens {
        self.tokens
    }

    /// How much of the system prompt's beginning is of stability `role` or `agent`, in bytes.
    pub fn stable_prefix_bytes(&self) -> usize {
        let stable = self.system.iter().take_while(|fragment| fragment.stability <= STABLE);
        let lens = stable.map(|fragment| fragment.part.text().len() + SEPARATOR.len());
        lens.sum::<usize>().saturating_sub(SEPARATOR.len())
    }

    /// What was left out of the history to fit the budget.
    pub fn trimmed(&self) -> &[Trimmed] {
        &self.trimmed
    }

    /// What the prompt is made of. Hashes and counts that no one asked for before are made now.
    pub fn manifest(&self) -> Manifest {
        Manifest::of(self)
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
