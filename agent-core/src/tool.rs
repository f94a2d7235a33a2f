//! Tools: what a model may call, who calls it, and for whom.
//!
//! Definitions are the Model Context Protocol's: JSON Schema for input and output, annotations as
//! hints, content for the model and structured content for programs. A tool takes the identity it
//! works for from the [`ExecutionContext`], which comes from the caller's credential; nothing in a
//! model's arguments can change it.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::SharedJson;
use crate::store_error::StoreError;

/// A tool's definition as models and MCP clients see it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    /// The name a model calls it by; unique in its registry.
    pub name: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub input_schema: SharedJson,
    /// JSON Schema of the structured result, an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<SharedJson>,
    /// Hints about what a call does to the world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
}

/// Hints about what a call does to the world; MCP's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolAnnotations {
    /// It changes nothing.
    pub read_only_hint: bool,
    /// It may destroy what was there.
    pub destructive_hint: bool,
    /// Calling it twice is like calling it once.
    pub idempotent_hint: bool,
    /// It has to do with what is outside of the company's own data, such as people elsewhere.
    pub open_world_hint: bool,
}

/// For whom and about what a tool works. Made from the credential and the role, once per run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionContext {
    /// The user; from the credential.
    pub user_id: String,
    /// The user's company, which every store query carries; from the credential. It stays inside.
    #[serde(skip)]
    pub company_id: String,
    /// The agent.
    #[serde(default)]
    pub agent_id: String,
    /// The agent's name, for logs and some tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// The task list that tasks and plans go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// The user's IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The conversation.
    #[serde(default)]
    pub thread_id: String,
    /// This run.
    #[serde(default)]
    pub run_id: String,
    /// What kind of caller asks.
    #[serde(default)]
    pub caller: Caller,
    /// The tools that the credential is cut down to; absent leaves the agent all of its own. It stays inside, for
    /// tools that have others called.
    #[serde(skip)]
    pub granted_tools: Option<Vec<String>>,
}

impl ExecutionContext {
    /// Whether the credential reaches a tool, as far as the credential goes.
    pub fn grants(&self, tool: &str) -> bool {
        self.granted_tools.as_ref().is_none_or(|granted| granted.iter().any(|name| name == tool))
    }
}

/// What kind of credential a turn came with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Caller {
    /// A signed-in user.
    #[default]
    Session,
    /// A visitor of a page that embeds the agent; a user of its own, without the owner's rights.
    Widget,
    /// The system itself, on a user's behalf.
    Proactive,
}

/// Whether the model may, must or must not call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// Text only.
    None,
    /// Some tool.
    Required,
    /// This tool.
    Tool(String),
}

/// One thing that a model can have done.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// The definition. The same at every call.
    fn spec(&self) -> Arc<ToolSpec>;

    /// Does it. Dropping the future cancels the call. Work that burns processor time belongs on a
    /// thread of its own, for all calls of a turn share one task.
    async fn call(
        &self,
        context: &ExecutionContext,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError>;
}

/// The tools that a run may use.
#[async_trait]
pub trait ToolRegistry: Send + Sync + 'static {
    /// The definitions that may be offered in this context, sorted by name.
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError>;

    /// Calls a tool. The registry checks again that it may be used here.
    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError>;
}

/// Where a tool that takes long says how far it is.
pub trait Progress: Send + Sync {
    /// `progress` of `total`, in units of the tool's own, and what is being done.
    fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>);
}

/// Progress that nobody follows.
pub struct NoProgress;

impl Progress for NoProgress {
    fn report(&self, _: f64, _: Option<f64>, _: Option<&str>) {}
}

/// What a call gives back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model reads.
    pub text: String,
    /// The same for programs; fits the tool's output schema.
    pub structured: Option<Value>,
    /// Whether the call failed in a way that the model should know and may mend.
    pub is_error: bool,
    /// Another run of the tool that it asks for, where a job has called it; see [`Self::wanted_follow_up`].
    pub follow_up: Option<FollowUp>,
}

/// Another run of a tool, once, that its result asks for: exactly one of a delay and a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowUp {
    /// So many milliseconds from now; at least a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// At an RFC 3339 time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execute_at: Option<String>,
    /// What the tool is called with then; as this time where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Map<String, Value>>,
}

impl ToolOutput {
    /// A result for programs, whose JSON text the model reads.
    pub fn structured(value: impl Serialize) -> Result<Self, ToolError> {
        let value = serde_json::to_value(value).map_err(ToolError::internal)?;
        Ok(Self { text: value.to_string(), structured: Some(value), ..Self::default() })
    }

    /// A result in words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A failure that the model should know of.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }

    /// The other run that the result asks for: the typed one, or else the member `followUp` of the structured
    /// result, for tools of other programs. One that does not have the shape is nobody's wish.
    pub fn wanted_follow_up(&self) -> Option<FollowUp> {
        let in_result = || {
            let wish = self.structured.as_ref()?.get("followUp")?;
            serde_json::from_value(wish.clone()).ok()
        };
        self.follow_up.clone().or_else(in_result)
    }
}

/// Why a call gave no result. Whatever it is, the model is told its `Display`; causes stay inside.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// No such tool, or not for this agent: the two are answered alike.
    #[error("there is no tool named {0:?}")]
    Unknown(String),
    /// The arguments do not fit the input schema.
    #[error("invalid arguments: {0}")]
    InvalidArguments(String),
    /// A thing that the arguments name is not there, or not the caller's: answered alike.
    #[error("{0}")]
    NotFound(String),
    /// The thing has changed since the caller read it.
    #[error("{0}")]
    Conflict(String),
    /// The tool cannot do it now.
    #[error("{0}")]
    Unavailable(String),
    /// A defect; the model is told only that.
    #[error("the tool failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ToolError {
    /// Wraps a defect.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(source.into())
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => {
                Self::Conflict("somebody else is changing the same thing; try again".to_owned())
            }
            StoreError::TooLarge { .. } => Self::InvalidArguments(error.to_string()),
            StoreError::Unavailable(_) => Self::Unavailable(error.to_string()),
            error => Self::internal(error),
        }
    }
}

/// A registry of tools that live in this process.
#[derive(Default, Clone)]
pub struct LocalTools {
    tools: std::collections::BTreeMap<String, Arc<dyn Tool>>,
}

impl LocalTools {
    /// A registry without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool; one of the same name is replaced.
    pub fn with(mut self, tool: impl Tool) -> Self {
        self.tools.insert(tool.spec().name.clone(), Arc::new(tool));
        self
    }
}

#[async_trait]
impl ToolRegistry for LocalTools {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        Ok(self.tools.values().map(|tool| tool.spec()).collect())
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let tool = self.tools.get(name).ok_or_else(|| ToolError::Unknown(name.to_owned()))?;
        tool.call(context, arguments, progress).await
    }
}
