//! Part hashes of the latest prompts, for finding the part at which a later prompt differs.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::manifest::PartHash;
use crate::ids::{AgentId, CompanyId, RunId, UserId};
use crate::tool::ExecutionContext;

/// Capacity in bytes: prompts of about a thousand users, a few dozen parts each. Least used ones are evicted.
const MAX_LATEST_PROMPTS_BYTES: u64 = 8 << 20;
/// Expected number of prompts.
const TYPICAL_PROMPTS: usize = 2_000;

/// In-process cache of the part hashes of each user's latest prompt to each agent. It holds hashes, never texts.
pub(crate) struct LatestPrompts(Cache<PromptOwner, Arc<LatestPrompt>, PrefixWeighter>);

/// Prefix of a user's latest prompt to an agent.
#[derive(Debug)]
pub struct LatestPrompt {
    /// The run.
    pub run_id: RunId,
    /// The prompt's [`prefix_hashes`](super::Prompt::prefix_hashes).
    pub prefix: Vec<PartHash>,
}

/// Key of a prompt's owner: the company, the agent and the user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PromptOwner {
    company_id: CompanyId,
    agent_id: AgentId,
    user_id: UserId,
}

impl From<&ExecutionContext> for PromptOwner {
    fn from(context: &ExecutionContext) -> Self {
        let ExecutionContext { company_id, agent_id, user_id, .. } = context;
        let (company_id, agent_id, user_id) = (company_id.clone(), agent_id.clone(), user_id.clone());
        Self { company_id, agent_id, user_id }
    }
}

impl PromptOwner {
    /// Returns the size of the identifiers, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.company_id.len() + self.agent_id.len() + self.user_id.len()
    }
}

impl Default for LatestPrompts {
    fn default() -> Self {
        Self(Cache::with_weighter(TYPICAL_PROMPTS, MAX_LATEST_PROMPTS_BYTES, PrefixWeighter))
    }
}

impl LatestPrompts {
    /// Stores a prompt's prefix in place of the previous one.
    pub(crate) fn insert(&self, whose: PromptOwner, run_id: RunId, prefix: Vec<PartHash>) {
        self.0.insert(whose, Arc::new(LatestPrompt { run_id, prefix }));
    }

    /// Returns the latest prompt, if it is still cached.
    pub(crate) fn get(&self, whose: &PromptOwner) -> Option<Arc<LatestPrompt>> {
        self.0.get(whose)
    }
}

#[derive(Clone)]
struct PrefixWeighter;

impl Weighter<PromptOwner, Arc<LatestPrompt>> for PrefixWeighter {
    fn weight(&self, whose: &PromptOwner, prompt: &Arc<LatestPrompt>) -> u64 {
        let parts =
            prompt.prefix.iter().map(|part| size_of::<PartHash>() + part.id.len() + part.sha256.len());
        (256 + whose.bytes() + prompt.run_id.len() + parts.sum::<usize>()) as u64
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
        latest.insert(whose("ada"), "1".into(), prefix("rules", "1"));
        latest.insert(whose("ada"), "2".into(), prefix("rules", "2"));
        latest.insert(whose("bob"), "3".into(), prefix("rules", "3"));
        let seen = latest.get(&whose("ada")).expect("it was remembered");
        assert_eq!((&*seen.run_id, &seen.prefix), ("2", &prefix("rules", "2")));
    }

    #[test]
    fn memory_is_bounded() {
        let latest = LatestPrompts::default();
        let long = "x".repeat(1 << 20);
        for user in 0..32 {
            latest.insert(whose(&user.to_string()), "r".into(), prefix(&long, "1"));
        }
        let known = (0..32).filter(|user| latest.get(&whose(&user.to_string())).is_some()).count();
        assert!(known <= 8, "{known} of a mebibyte each");
    }
}
