//! The manifest of a prompt, for previews and for finding the change that broke a vendor's prompt cache.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Prompt;
use super::assembly::TrimmedHistory;
use crate::prompt::{Fragment, Stability, StoredOrigin};

/// The parts of a prompt in order, with their sizes and hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The fragments in order: those of the system prompt, then those of the latest turn.
    pub parts: Vec<ManifestPart>,
    /// Length of the system prompt, in bytes.
    pub system_bytes: usize,
    /// Length of the system prompt's prefix of stability `role` or `agent`, in bytes.
    pub stable_prefix_bytes: usize,
    /// Number of messages sent, including the latest turn.
    pub messages: usize,
    /// Token counts of system prompt, tools and messages.
    pub tokens: PromptTokens,
    /// Name of the token counter.
    pub token_counter: &'static str,
    /// The parts of the history that were dropped to fit the budget.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trimmed: Vec<TrimmedHistory>,
}

/// A fragment's entry in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestPart {
    /// The fragment's identifier.
    pub id: Arc<str>,
    /// Name of the layer that produced it.
    pub source: &'static str,
    /// Lifetime of its text.
    pub stability: Stability,
    /// Placement in the prompt.
    pub placement: Placement,
    /// Number of tokens.
    pub tokens: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// SHA-256 of its text, in lower-case hexadecimal.
    pub sha256: Arc<str>,
    /// Origin of a stored text; absent for a text of the operator or the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<StoredOrigin>>,
}

/// Placement of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// In the system prompt.
    System,
    /// Apart from the system prompt, in a field of the backend's request.
    Detached,
    /// Before the user's text in the latest user message.
    LatestTurn,
}

/// Token counts of a prompt's sections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptTokens {
    /// Tokens of the system prompt.
    pub system: usize,
    /// Tokens of the tools' definitions.
    pub tools: usize,
    /// Tokens of history and latest turn, including the turn's context.
    pub messages: usize,
}

impl PromptTokens {
    /// Returns the sum over all sections.
    pub fn total(self) -> usize {
        self.system + self.tools + self.messages
    }
}

/// Identifier and hash of a part, for comparing two prompts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHash {
    /// The fragment's identifier, or `tool:` and the tool's name.
    pub id: Arc<str>,
    /// SHA-256 of its text or definition, in lower-case hexadecimal.
    pub sha256: Arc<str>,
}

impl Manifest {
    pub(super) fn from_prompt(prompt: &Prompt) -> Self {
        let counter = &*prompt.counter;
        let line = |placement| {
            move |fragment: &Fragment| ManifestPart {
                id: Arc::clone(&fragment.id),
                source: fragment.source,
                stability: fragment.stability,
                placement,
                tokens: fragment.part.tokens(counter),
                bytes: fragment.part.text().len(),
                sha256: Arc::clone(fragment.part.sha256()),
                origin: fragment.origin.clone(),
            }
        };
        let parts = prompt.system_fragments().iter().map(line(Placement::System));
        let parts = parts.chain(prompt.detached_fragments().iter().map(line(Placement::Detached)));
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
}

/// Returns the identifier of the first part that differs from the previous prompt's part at the same index, which is
/// the end of the prefix that a vendor has cached. Both arguments are [`Prompt::prefix_hashes`]; messages are not
/// compared. Returns `None` if nothing differs. A part that was removed is reported by its previous identifier.
pub fn first_changed_part<'a>(previous: &'a [PartHash], now: &'a [PartHash]) -> Option<&'a str> {
    let place = (0..previous.len().max(now.len())).find(|&place| previous.get(place) != now.get(place))?;
    match (previous.get(place), now.get(place)) {
        (Some(before), Some(part)) if previous.contains(part) && !contains_id(now, &before.id) => {
            Some(&before.id)
        }
        (_, Some(part)) => Some(&part.id),
        (before, None) => before.map(|before| &*before.id),
    }
}

fn contains_id(parts: &[PartHash], id: &str) -> bool {
    parts.iter().any(|part| *part.id == *id)
}
