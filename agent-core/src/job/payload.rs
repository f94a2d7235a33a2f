//! What a job is to do, and for whom.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Whether a tool is called or an agent is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Calls one tool with arguments that are known already.
    Tool,
    /// Runs a turn of the agent with a message.
    Agent,
}

/// What a job is to do, and for whom. It travels to the scheduler and comes back with the callback.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobPayload {
    /// What is done.
    pub kind: JobKind,
    /// For whom.
    pub user_id: String,
    /// The user's company.
    pub company_id: String,
    /// The agent that does it.
    pub agent_id: String,
    /// The tool's name, for [`JobKind::Tool`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// The assignment that the job is kept in step with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment_id: Option<String>,
    /// The tool's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    /// What the agent is asked, for [`JobKind::Agent`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The todo list that the tools work on, where it is not the agent's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// The user's zone, an IANA name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

/// A payload that nobody could do anything with; the text names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// An identifier that is empty or too long, or has a character that no identifier has.
    #[error("{0} must have 1 to {MAX_ID_BYTES} bytes and no control character")]
    Id(&'static str),
    /// A field that this kind needs.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A zone that nobody knows.
    #[error("timezone {0:?} is unknown")]
    Zone(String),
    /// It is too large.
    #[error("the payload has {0} bytes as JSON, and at most {MAX_PAYLOAD_BYTES} are taken")]
    TooLarge(usize),
}

/// The most bytes of an identifier in a payload.
const MAX_ID_BYTES: usize = 256;
/// The most bytes of a payload as JSON.
const MAX_PAYLOAD_BYTES: usize = 64 * 1024;

impl JobPayload {
    /// Says what is wrong with it.
    ///
    /// # Errors
    /// The first field that cannot be, or is missing.
    pub fn validate(&self) -> Result<(), PayloadError> {
        let ids = [
            ("userId", Some(&self.user_id)),
            ("companyId", Some(&self.company_id)),
            ("agentId", Some(&self.agent_id)),
            ("toolId", self.tool_id.as_ref()),
            ("assignmentId", self.assignment_id.as_ref()),
            ("todoListId", self.todo_list_id.as_ref()),
        ];
        for (field, id) in ids {
            if id.is_some_and(|id| !is_id(id)) {
                return Err(PayloadError::Id(field));
            }
        }
        match self.kind {
            JobKind::Tool if self.tool_id.is_none() => return Err(PayloadError::Missing("toolId")),
            JobKind::Agent if self.message.as_deref().is_none_or(|text| text.trim().is_empty()) => {
                return Err(PayloadError::Missing("message"));
            }
            _ => {}
        }
        if let Some(zone) = &self.timezone
            && jiff::tz::TimeZone::get(zone).is_err()
        {
            return Err(PayloadError::Zone(zone.clone()));
        }
        match serde_json::to_vec(self).map_or(usize::MAX, |json| json.len()) {
            bytes if bytes > MAX_PAYLOAD_BYTES => Err(PayloadError::TooLarge(bytes)),
            _ => Ok(()),
        }
    }
}

fn is_id(id: &str) -> bool {
    (1..=MAX_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control)
}
