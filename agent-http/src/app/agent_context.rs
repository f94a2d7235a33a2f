//! Context of an agent's tools outside of a turn, which makes its own.

use agent_core::ids::AgentId;
use agent_core::request::Principal;
use agent_core::tool::{Caller, ExecutionContext};

/// Returns the context in which `caller` uses the agent for the principal's user. Only the identity is set. `caller` differs from
/// the principal's in trials and for scheduled runs.
pub(super) fn agent_context(principal: &Principal, agent_id: &AgentId, caller: Caller) -> ExecutionContext {
    ExecutionContext {
        user_id: principal.user_id.clone(),
        company_id: principal.company_id.clone(),
        agent_id: agent_id.clone(),
        caller,
        ..ExecutionContext::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_the_credentials_and_the_caller_that_of_the_call() {
        let principal = Principal::new("ada", "c1", Caller::Session);
        let context = agent_context(&principal, &"a1".into(), Caller::Proactive);
        assert_eq!((&*context.user_id, &*context.company_id, &*context.agent_id), ("ada", "c1", "a1"));
        assert_eq!(context.caller, Caller::Proactive);
    }
}
