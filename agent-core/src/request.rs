//! The request of a turn and the principal that makes it.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::ids::{AgentId, CompanyId, RunId, ThreadId, TraceContext, UserId};
use crate::message::Message;
use crate::role::{ResponseFormat, RoleBlock};
use crate::tool::{Caller, ExecutionContext, ToolChoice, ToolSpec, WholeDelivery};

/// Identity of the caller, derived from the credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The user.
    pub user_id: UserId,
    /// The user's company.
    pub company_id: CompanyId,
    /// Kind of caller.
    pub caller: Caller,
    /// The only agent for which the credential is valid, or `None` for all agents of the company.
    pub agent_id: Option<AgentId>,
    /// Id of the API token that is the credential, if it is one.
    pub token_id: Option<String>,
}

impl Principal {
    /// Creates a principal whose credential is valid for all agents of the company.
    pub fn new(user_id: impl Into<UserId>, company_id: impl Into<CompanyId>, caller: Caller) -> Self {
        let (user_id, company_id) = (user_id.into(), company_id.into());
        Self { user_id, company_id, caller, agent_id: None, token_id: None }
    }

    /// Returns the identity in the context of an agent's tools. `caller` differs from the principal's in trials and for jobs.
    pub fn agent_context(&self, agent_id: &AgentId, caller: Caller) -> ExecutionContext {
        let Self { user_id, company_id, token_id, .. } = self.clone();
        let agent_id = agent_id.clone();
        ExecutionContext { user_id, company_id, agent_id, caller, token_id, ..ExecutionContext::default() }
    }
}

/// Request for a turn, parsed from the caller's request and validated.
#[derive(Debug, Clone, Default)]
pub struct TurnRequest {
    /// The agent.
    pub agent_id: AgentId,
    /// The conversation so far, oldest message first, including the latest message. Each tool call has its result. Turns may share the list.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The conversation's identifier.
    pub thread_id: ThreadId,
    /// The run's identifier.
    pub run_id: RunId,
    /// The browser tab from which the request comes.
    pub tab_id: Option<String>,
    /// The task list for tasks and plans.
    pub todo_list_id: Option<String>,
    /// The user's IANA time zone.
    pub timezone: Option<String>,
    /// Content of the page around the chat.
    pub page_context: Option<Value>,
    /// Related content blocks around the chat.
    pub blocks_context: Vec<Value>,
    /// Constraint on tool calls.
    pub tool_choice: ToolChoice,
    /// Tools that the client executes, offered besides the agent's own.
    pub client_tools: Vec<Arc<ToolSpec>>,
    /// True if tool calls may wait for a person: a later turn brings their results.
    pub can_suspend: bool,
    /// Present if the answer is delivered when the run has ended.
    pub whole_delivery: Option<WholeDelivery>,
    /// Reason for a proactive turn.
    pub trigger: Option<String>,
    /// Limit on the answer of each model call, in tokens, if it is lower than that of the model.
    pub max_output_tokens: Option<std::num::NonZeroU32>,
    /// Format of the answer, in place of the role's.
    pub response_format: Option<Arc<ResponseFormat>>,
    /// True if the conversation is kept on the server.
    pub is_stored: bool,
    /// True for a preview, whose preparation has no effects.
    pub is_preview: bool,
    /// Role of the agent in place of the stored one, for the preview of a change that is not saved.
    pub role: Option<Arc<RoleBlock>>,
    /// Receives the context that was sent with the latest user message, once the backend has accepted the turn: the text
    /// that later requests have in [`Message::sent_context`]. One that later prompts must not repeat is left out.
    pub sent_context: Arc<OnceLock<Arc<str>>>,
    /// Trace that the run belongs to, for its [`ExecutionContext`].
    pub trace: Option<TraceContext>,
}

impl TurnRequest {
    /// Creates a request in a new conversation, with new identifiers.
    pub fn new(agent_id: impl Into<AgentId>, messages: Vec<Message>) -> Self {
        Self {
            agent_id: agent_id.into(),
            messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
            thread_id: crate::new_id().into(),
            run_id: crate::new_id().into(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_the_credentials_and_the_caller_that_of_the_call() {
        let user = Principal::new("ada", "c1", Caller::Api);
        let principal = Principal { token_id: Some("t1".to_owned()), ..user };
        let context = principal.agent_context(&"a1".into(), Caller::Proactive);
        assert_eq!((&*context.user_id, &*context.company_id, &*context.agent_id), ("ada", "c1", "a1"));
        assert_eq!((context.caller, context.token_id.as_deref()), (Caller::Proactive, Some("t1")));
    }
}
