//! The request of a turn and the principal that makes it.

use serde_json::Value;

use crate::message::Message;
use crate::tool::{Caller, ToolChoice};

/// Who asks, as the credential says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The user.
    pub user_id: String,
    /// The user's company.
    pub company_id: String,
    /// What kind of credential it was.
    pub caller: Caller,
    /// The only agent that the credential is good for, where it is bound to one.
    pub agent_id: Option<String>,
}

impl Principal {
    /// A caller whose credential is good for all agents of the company.
    pub fn new(user_id: impl Into<String>, company_id: impl Into<String>, caller: Caller) -> Self {
        Self { user_id: user_id.into(), company_id: company_id.into(), caller, agent_id: None }
    }
}

/// What is asked, read from the caller's request and checked.
#[derive(Debug, Clone, Default)]
pub struct TurnRequest {
    /// The agent.
    pub agent_id: String,
    /// The conversation so far, oldest first, the latest message included; repaired.
    pub messages: Vec<Message>,
    /// The conversation's identifier.
    pub thread_id: String,
    /// The run's identifier.
    pub run_id: String,
    /// The browser tab that asks.
    pub tab_id: Option<String>,
    /// The task list that tasks and plans go to.
    pub todo_list_id: Option<String>,
    /// The user's IANA time zone.
    pub timezone: Option<String>,
    /// What is on the page around the chat.
    pub page_context: Option<Value>,
    /// Related blocks around the chat.
    pub blocks_context: Vec<Value>,
    /// Whether a tool must be called.
    pub tool_choice: ToolChoice,
    /// Why a proactive turn was triggered.
    pub trigger: Option<String>,
}

impl TurnRequest {
    /// A turn in a new conversation with new identifiers.
    pub fn new(agent_id: impl Into<String>, messages: Vec<Message>) -> Self {
        Self {
            agent_id: agent_id.into(),
            messages,
            thread_id: crate::new_id(),
            run_id: crate::new_id(),
            ..Self::default()
        }
    }
}
