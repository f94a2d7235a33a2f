//! What a prompt is made of, for previews and for finding what broke a provider's prompt cache.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Prompt;
use super::assembly::Trimmed;
use crate::prompt::{Fragment, Stability};

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
    pub sha256: Arc<str>,
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
    /// The fragment's identifier, or `tool:` and a tool's name.
    pub id: Arc<str>,
    /// SHA-256 of its text or definition, in lower-case hexadecimal.
    pub sha256: Arc<str>,
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
                sha256: Arc::clone(fragment.part.sha256()),
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
}

/// The first part that differs from what the previous prompt had in its place, and so the end of what a provider
/// has kept of it. Both are [`Prompt::prefix_hashes`], so what follows the prefix is not looked at. `None` if
/// nothing differs; a part that is gone is named by its old identifier.
pub fn first_changed_part<'a>(previous: &'a [PartHash], now: &'a [PartHash]) -> Option<&'a str> {
    let place = (0..previous.len().max(now.len())).find(|&place| previous.get(place) != now.get(place))?;
    match (previous.get(place), now.get(place)) {
        (Some(before), Some(part)) if previous.contains(part) && !has(now, &before.id) => Some(&before.id),
        (_, Some(part)) => Some(&part.id),
        (before, None) => before.map(|before| &*before.id),
    }
}

fn has(parts: &[PartHash], id: &str) -> bool {
    parts.iter().any(|part| *part.id == *id)
}
