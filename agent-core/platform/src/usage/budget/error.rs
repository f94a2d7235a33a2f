//! Errors of budgets other than refusals.

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::Audience;
use agent_core::store_error::StoreError;

use super::super::RunScope;
use super::demand::CallDemand;

pub(super) fn store_error(error: StoreError) -> AgentError {
    let message = "the budgets cannot be read or written now";
    AgentError::new(AgentErrorKind::StoreUnavailable, message).with_source(error)
}

pub(super) fn price_unknown(scope: &RunScope, call: &CallDemand) -> AgentError {
    let message = match scope.caller.audience() {
        Audience::Visitor => "the agent cannot answer now".to_owned(),
        _ => format!(
            "the cost is limited by a budget, and the price of the model {:?} of {:?} is unknown",
            call.model, call.provider
        ),
    };
    AgentError::new(AgentErrorKind::PriceUnknown, message)
}
