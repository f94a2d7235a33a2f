//! Part hashes of the latest prompts, for finding the part at which a later prompt differs.

use crate::ids::{AgentId, CompanyId, UserId};
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::manifest::PartHash;

/// Capacity in bytes: the prompts of about a thousand users with a few dozen parts each. Least used entries are
/// evicted.
const MAX_LATEST_PROMPTS_BYTES: u64 = 8 << 20;
/// Assumed size of a part, in bytes.
const TYPICAL_PART_BYTES: u64 = 160;
/// Assumed number of parts in a prompt.
const TYPICAL_PARTS_PER_PROMPT: u64 = 24;

/// In-process cache of the part hashes of each user's latest prompt to each agent. It holds hashes, never texts.
pub(crate) struct LatestPrompts(Cache<PromptOwner, Arc<[PartHash]>, PrefixWeighter>);

/// Key of a prompt's owner: the company, the agent and the user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PromptOwner {
    pub(crate) company_id: CompanyId,
    pub(crate) agent_id: AgentId,
    pub(crate) user_id: UserId,
}

impl Default for LatestPrompts {
    fn default() -> Self {
        let usual =
            usize::try_from(MAX_LATEST_PROMPTS_BYTES / (TYPICAL_PARTS_PER_PROMPT * TYPICAL_PART_BYTES))
                .unwrap_or(usize::MAX);
        Self(Cache::with_weighter(usual, MAX_LATEST_PROMPTS_BYTES, PrefixWeighter))
    }
}

impl LatestPrompts {
    /// Stores a prompt's prefix in place of the previous one.
    pub(crate) fn insert(&self, whose: PromptOwner, prefix: Vec<PartHash>) {
        self.0.insert(whose, prefix.into());
    }

    /// Returns the part hashes of the latest prompt, if they are still cached.
    pub(crate) fn get(&self, whose: &PromptOwner) -> Option<Arc<[PartHash]>> {
        self.0.get(whose)
    }
}

#[derive(Clone)]
struct PrefixWeighter;

impl Weighter<PromptOwner, Arc<[PartHash]>> for PrefixWeighter {
    fn weight(&self, whose: &PromptOwner, parts: &Arc<[PartHash]>) -> u64 {
        let names = whose.company_id.len() + whose.agent_id.len() + whose.user_id.len();
        let parts = parts.iter().map(|part| size_of::<PartHash>() + part.id.len() + part.sha256.len());
        (256 + names + parts.sum::<usize>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn whose(user: &str) -> PromptOwner {
        PromptOwner { company_id: "c".into(), agent_id: "a".into(), user_id: user.into() }
    }

    fn prefix(id: &str, sha256: &str) -> Vec<PartHash> {
        vec![PartHash { id: id.into(), sha256: sha256.into() }]
    }

    #[test]
    fn the_latest_prompt_of_each_user_is_remembered() {
        let latest = LatestPrompts::default();
        assert!(latest.get(&whose("ada")).is_none());
        latest.insert(whose("ada"), prefix("rules", "1"));
        latest.insert(whose("ada"), prefix("rules", "2"));
        latest.insert(whose("bob"), prefix("rules", "3"));
        let seen = latest.get(&whose("ada")).expect("it was remembered");
        assert_eq!(*seen, prefix("rules", "2"));
    }

    #[test]
    fn memory_is_bounded() {
        let latest = LatestPrompts::default();
        let long = "x".repeat(1 << 20);
        for user in 0..32 {
            latest.insert(whose(&user.to_string()), prefix(&long, "1"));
        }
        let known = (0..32).filter(|user| latest.get(&whose(&user.to_string())).is_some()).count();
        assert!(known <= 8, "{known} of a mebibyte each");
    }
}
