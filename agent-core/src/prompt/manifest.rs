//! What a prompt is made of, for previews and for finding what broke a provider's prompt cache.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Prompt;
use super::assembly::Trimmed;
use crate::context::{Fragment, Stability};

/// The parts of a prompt in order, with their sizes and hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The fragments in order: the system prompt's, then those of the latest turn.
    pub parts: Vec<ManifestPart>,
    /// The length of the system prompt, in bytes.
    pub system_bytes: usize,
    /// How much of the system prompt's beginning is of stability `role` or `agent`, in bytes.
    pub stable_prefix_bytes: usize,
    /// The messages that are sent, the latest turn included.
    pub messages: usize,
    /// Where the tokens go.
    pub tokens: PromptTokens,
    /// The name of the counter that counted them.
    pub token_counter: &'static str,
    /// What was left out to fit the budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trimmed: Vec<Trimmed>,
}

/// A fragment's line in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestPart {
    /// The fragment's identifier.
    pub id: Arc<str>,
    /// The layer that gave it.
    pub source: &'static str,
    /// How long its text stays the same.
    pub stability: Stability,
    /// Where it stands.
    pub placement: Placement,
    /// Its tokens.
    pub tokens: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// SHA-256 of its text, in lower-case hexadecimal.
    pub sha256: String,
}

/// Where a fragment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// In the system prompt.
    System,
    /// Before the person's words in the latest user message.
    LatestTurn,
}

/// Where a prompt's tokens go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptTokens {
    /// The system prompt.
    pub system: usize,
    /// The tools' definitions.
    pub tools: usize,
    /// History and latest turn, the turn's context included.
    pub messages: usize,
}

impl PromptTokens {
    /// All of them.
    pub fn total(self) -> usize {
        self.system + self.tools + self.messages
    }
}

/// A part's identity for comparing two prompts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHash {
    /// The fragment's identifier.
    pub id: String,
    /// SHA-256 of its text, in lower-case hexadecimal.
    pub sha256: String,
}

impl Manifest {
    pub(super) fn of(prompt: &Prompt) -> Self {
        let counter = &*prompt.counter;
        let line = |placement| {
            move |fragment: &Fragment| ManifestPart {
                id: Arc::clone(&fragment.id),
                source: fragment.source,
                stability: fragment.stability,
                placement,
                tokens: fragment.part.tokens(counter),
                bytes: fragment.part.text().len(),
                sha256: fragment.part.sha256().to_owned(),
            }
        };
        let system = prompt.system_fragments();
        let parts = system.iter().map(line(Placement::System));
        let parts = parts.chain(prompt.turn_fragments().iter().map(line(Placement::LatestTurn))).collect();
        Self {
            parts,
            system_bytes: prompt.system_len(),
            stable_prefix_bytes: prompt.stable_prefix_bytes(),
            messages: prompt.messages().len(),
            tokens: prompt.tokens(),
            token_counter: counter.id(),
            trimmed: prompt.trimmed().to_vec(),
        }
    }

    /// The identities of the system prompt's parts in order, to compare a later prompt with.
    pub fn hashes(&self) -> Vec<PartHash> {
        let system = self.parts.iter().filter(|part| part.placement == Placement::System);
        system.map(|part| PartHash { id: part.id.to_string(), sha256: part.sha256.clone() }).collect()
    }
}

/// The first part of the system prompt that differs from what the previous prompt had in its place: the
/// provider's cached prefix ends before it. `None` if nothing before the history differs. A part that
/// is gone from the end is named by its old identifier.
pub fn first_changed_part<'a>(previous: &'a [PartHash], manifest: &'a Manifest) -> Option<&'a str> {
    let mut now = manifest.parts.iter().filter(|part| part.placement == Placement::System);
    for before in previous {
        match now.next() {
            Some(part) if *part.id == *before.id && part.sha256 == before.sha256 => {}
            Some(part) => return Some(&part.id),
            None => return Some(&before.id),
        }
    }
    now.next().map(|part| &*part.id)
}
