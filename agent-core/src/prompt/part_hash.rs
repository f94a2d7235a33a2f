//! Hashes of a prompt's parts, for finding the change that broke a provider's prompt cache.

use std::sync::Arc;

use serde::Serialize;

/// Identifier and hash of a part, for comparing two prompts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartHash {
    /// The fragment's identifier, or `tool:` and the tool's name.
    pub id: Arc<str>,
    /// SHA-256 of its text or definition, in lower-case hexadecimal.
    pub sha256: Arc<str>,
}

/// Returns the identifier of the first part that differs from the previous prompt's part at the same index, which is
/// the end of the prefix that a vendor has cached. Both arguments are [`prefix_hashes`](super::Prompt::prefix_hashes); messages are not
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
