//! The manifest of a prompt: its parts with their sizes and hashes.

use std::sync::Arc;

use agent_core::prompt::{Fragment, Prompt, PromptTokens, Stability, StoredOrigin, TrimmedHistory};
use serde::{Deserialize, Serialize};

/// The parts of a prompt in order, with their sizes and hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The fragments in order: the parts of the system prompt, then the parts of the latest turn.
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
    /// PartPlacement in the prompt.
    pub placement: PartPlacement,
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
pub enum PartPlacement {
    /// In the system prompt.
    System,
    /// Apart from the system prompt, in a field of the backend's request.
    Detached,
    /// Before the user's text in the latest user message.
    LatestTurn,
}

impl Manifest {
    /// Builds the manifest of a prompt. Computes the hashes and counts that are not cached yet.
    pub fn new(prompt: &Prompt) -> Self {
        let counter = prompt.counter();
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
        let parts = prompt.system_fragments().iter().map(line(PartPlacement::System));
        let parts = parts.chain(prompt.detached_fragments().iter().map(line(PartPlacement::Detached)));
        let parts =
            parts.chain(prompt.turn_fragments().iter().map(line(PartPlacement::LatestTurn))).collect();
        Self {
            parts,
            system_bytes: prompt.system_text().len(),
            stable_prefix_bytes: prompt.stable_prefix_bytes(),
            messages: prompt.messages().len(),
            tokens: prompt.tokens(),
            token_counter: counter.id(),
            trimmed: prompt.trimmed().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_core::message::Message;
    use agent_core::prompt::{Part, PromptMessage};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_manifest_names_every_part_and_the_stable_prefix() {
        let fragment =
            |id: &str, stability| Fragment::new(id, "role", stability, Part::new(format!("the {id}")));
        let system = vec![fragment("rules", Stability::Role), fragment("zone", Stability::Session)];
        let prompt = Prompt::new(system, vec![PromptMessage::new(Message::user("Hello"))]);
        let manifest = Manifest::new(&prompt);
        assert_eq!(&prompt.system_text()[..manifest.stable_prefix_bytes], "the rules");
        assert_eq!(manifest.system_bytes, prompt.system_text().len());
        let shown = serde_json::to_value(&manifest).expect("JSON");
        let rules = json!({
            "id": "rules", "source": "role", "stability": "role", "placement": "system",
            "tokens": manifest.parts[0].tokens, "bytes": 9, "sha256": &*manifest.parts[0].sha256,
        });
        assert_eq!((&shown["parts"][0], &shown["parts"][1]["stability"]), (&rules, &json!("session")));
        assert_eq!((&shown["messages"], shown.get("trimmed")), (&json!(1), None));
    }
}
