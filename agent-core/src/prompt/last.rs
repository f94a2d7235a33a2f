//! What the latest prompts were made of, so that a later one can be told from them.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::manifest::PartHash;

/// How much is remembered, in bytes: some thousand users' prompts of some dozen parts. The least used give way.
const MAX_BYTES: u64 = 8 << 20;
/// What a part of usual length takes.
const USUAL_PART: u64 = 160;
/// How many parts a usual prompt has.
const USUAL_PARTS: u64 = 24;

/// The parts of each user's latest prompt to each agent, in this process alone. Texts are not kept, only their hashes.
pub(crate) struct LatestPrompts(Cache<Whose, Arc<[PartHash]>, Bytes>);

/// Whose prompt it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Whose {
    pub(crate) company_id: String,
    pub(crate) agent_id: String,
    pub(crate) user_id: String,
}

impl Default for LatestPrompts {
    fn default() -> Self {
        let usual = usize::try_from(MAX_BYTES / (USUAL_PARTS * USUAL_PART)).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(usual, MAX_BYTES, Bytes))
    }
}

impl LatestPrompts {
    /// Remembers a prompt's prefix in place of the one before.
    pub(crate) fn remember(&self, whose: Whose, prefix: Vec<PartHash>) {
        self.0.insert(whose, prefix.into());
    }

    /// The parts of the latest prompt, where it is still remembered.
    pub(crate) fn get(&self, whose: &Whose) -> Option<Arc<[PartHash]>> {
        self.0.get(whose)
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Whose, Arc<[PartHash]>> for Bytes {
    fn weight(&self, whose: &Whose, parts: &Arc<[PartHash]>) -> u64 {
        let names = whose.company_id.len() + whose.agent_id.len() + whose.user_id.len();
        let parts = parts.iter().map(|part| size_of::<PartHash>() + part.id.len() + part.sha256.len());
        (256 + names + parts.sum::<usize>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn whose(user: &str) -> Whose {
        Whose { company_id: "c".into(), agent_id: "a".into(), user_id: user.into() }
    }

    fn prefix(id: &str, sha256: &str) -> Vec<PartHash> {
        vec![PartHash { id: id.into(), sha256: sha256.into() }]
    }

    #[test]
    fn the_latest_prompt_of_each_user_is_remembered() {
        let latest = LatestPrompts::default();
        assert!(latest.get(&whose("ada")).is_none());
        latest.remember(whose("ada"), prefix("rules", "1"));
        latest.remember(whose("ada"), prefix("rules", "2"));
        latest.remember(whose("bob"), prefix("rules", "3"));
        let seen = latest.get(&whose("ada")).expect("it was remembered");
        assert_eq!(*seen, prefix("rules", "2"));
    }

    #[test]
    fn memory_is_bounded() {
        let latest = LatestPrompts::default();
        let long = "x".repeat(1 << 20);
        for user in 0..32 {
            latest.remember(whose(&user.to_string()), prefix(&long, "1"));
        }
        let known = (0..32).filter(|user| latest.get(&whose(&user.to_string())).is_some()).count();
        assert!(known <= 8, "{known} of a mebibyte each");
    }
}
