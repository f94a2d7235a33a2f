//! The first part at which two prompts differ.

use agent_core::prompt::PartHash;

/// Returns the identifier of the first part that differs from the previous prompt's part at the same index, which is
/// the end of the prefix that a vendor has cached. Both arguments are [`prefix_hashes`](agent_core::prompt::Prompt::prefix_hashes); messages are not
/// compared. Returns `None` if nothing differs. A part that was removed is reported by its previous identifier.
pub(super) fn first_changed_part<'a>(previous: &'a [PartHash], now: &'a [PartHash]) -> Option<&'a str> {
    let index = (0..previous.len().max(now.len())).find(|&index| previous.get(index) != now.get(index))?;
    match (previous.get(index), now.get(index)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parts named in a list of `id=hash`.
    fn parts(list: &str) -> Vec<PartHash> {
        let part = |(id, sha256): (&str, &str)| PartHash { id: id.into(), sha256: sha256.into() };
        list.split_whitespace().map(|item| part(item.split_once('=').expect("an id and a hash"))).collect()
    }

    #[test]
    fn the_first_part_that_changed_is_named() {
        for (before, now, expected) in [
            ("tool:a=1 text=1 rules=1", "tool:a=1 text=1 rules=1", None),
            ("tool:a=1 text=1 rules=1", "tool:a=1 text=1 rules=2", Some("rules")),
            ("tool:a=1 text=1 rules=1", "tool:a=2 text=1 rules=2", Some("tool:a")),
            ("tool:a=1 text=1 rules=1", "tool:a=1 doc:2=1 rules=1", Some("doc:2")),
            // A part that is gone is named by its previous identifier.
            ("tool:a=1 text=1 rules=1", "tool:a=1 rules=1", Some("text")),
            ("tool:a=1 text=1 rules=1", "tool:a=1 text=1", Some("rules")),
            ("tool:a=1 text=1", "text=1", Some("tool:a")),
            ("tool:a=1 text=1", "tool:a=1 text=1 rules=1", Some("rules")),
            ("text=1", "tool:a=1 text=1", Some("tool:a")),
            ("a=1 b=1", "b=1 a=1", Some("b")),
            ("", "", None),
        ] {
            assert_eq!(first_changed_part(&parts(before), &parts(now)), expected, "{before} | {now}");
        }
    }
}
