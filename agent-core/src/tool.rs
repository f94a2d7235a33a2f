//! Tools that a model may call: definitions, execution context, and registries.
//!
//! Definitions follow the Model Context Protocol: text for the model, structured content for programs. A tool takes the identity
//! on whose behalf it works from the [`ExecutionContext`], which the model's arguments cannot change.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::event::{Audience, Interrupt};
use crate::ids::{AgentId, CompanyId, RunId, ThreadId, TraceContext, UserId};
use crate::message::SharedJson;
use crate::store_error::StoreError;

/// Definition of a tool, as sent to models and MCP clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    /// Name by which a model calls the tool; unique in its registry.
    pub name: String,
    /// Description for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments, an object schema.
    pub input_schema: SharedJson,
    /// JSON Schema of the structured result, an object schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<SharedJson>,
    /// Hints about the side effects of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// True for a tool that the client of the run executes. Not serialized.
    #[serde(skip)]
    pub is_client_side: bool,
}

impl ToolSpec {
    /// Creates a definition without output schema and hints. Set other fields with the struct update syntax.
    pub fn new(name: impl Into<String>, description: impl Into<String>, input_schema: &Value) -> Self {
        let input_schema = to_raw_value(input_schema).expect("a JSON value serialises into memory").into();
        let (name, description) = (name.into(), description.into());
        Self {
            name,
            description,
            input_schema,
            output_schema: None,
            annotations: None,
            is_client_side: false,
        }
    }
}

/// Hints about the side effects of a call; names follow MCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolAnnotations {
    /// True if the tool does not modify anything.
    pub read_only_hint: bool,
    /// True if the tool may delete or overwrite data.
    pub destructive_hint: bool,
    /// True if repeating a call has no further effect.
    pub idempotent_hint: bool,
    /// True if the tool acts outside of the company's own data, for example by contacting people elsewhere.
    pub open_world_hint: bool,
}

/// Identity, conversation and run on whose behalf a tool works. Created from the credential and the role, once per run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionContext {
    /// The user, from the credential.
    pub user_id: UserId,
    /// The user's company, from the credential; part of every store query. Not serialized.
    #[serde(skip)]
    pub company_id: CompanyId,
    /// The agent.
    #[serde(default)]
    pub agent_id: AgentId,
    /// The agent's name, for logs and some tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// The task list for tasks and plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// The user's IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The conversation.
    #[serde(default)]
    pub thread_id: ThreadId,
    /// Id of the run.
    #[serde(default)]
    pub run_id: RunId,
    /// Kind of the caller.
    #[serde(default)]
    pub caller: Caller,
    /// Id of the API token that requested the run. Not serialized.
    #[serde(skip)]
    pub token_id: Option<String>,
    /// Key of this call, equal if the same call is repeated; unique for the user. Set by the tool loop.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
    /// Arguments of this call as the model has written them. Set by the tool loop.
    #[serde(skip)]
    pub arguments_text: Option<Arc<str>>,
    /// True if a call may be suspended: the run is stored, and a later run can continue it. Not serialized.
    #[serde(skip)]
    pub can_suspend: bool,
    /// Whole delivery of the [request](crate::request::TurnRequest::whole_delivery). Not serialized.
    #[serde(skip)]
    pub whole_delivery: Option<WholeDelivery>,
    /// Limit on answers, of the [request](crate::request::TurnRequest::max_output_tokens). Not serialized.
    #[serde(skip)]
    pub max_output_tokens: Option<std::num::NonZeroU32>,
    /// Tools to which the credential is restricted, for tools that call other tools; `None` allows all. Not serialized.
    #[serde(skip)]
    pub granted_tools: Option<Vec<String>>,
    /// Trace of the run, which the requests to other services continue; never to models. Not serialized.
    #[serde(skip)]
    pub trace: Option<TraceContext>,
}

/// Delivery of an answer when its run has ended, so that a round that fails after content may begin again. Clones share it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WholeDelivery(Arc<OnceLock<()>>);

impl WholeDelivery {
    /// Records that the run's model limits the silence of its answers itself, since a round that is held back has no events.
    pub fn set_silence_limited(&self) {
        self.0.get_or_init(|| ());
    }

    /// Returns true if the run's model limits the silence of its answers.
    pub fn is_silence_limited(&self) -> bool {
        self.0.get().is_some()
    }
}

/// Kind of caller, determined by the credential of the turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Caller {
    /// A signed-in user.
    #[default]
    Session,
    /// A signed-in user of a mobile app or another older client, on the legacy route.
    Legacy,
    /// A visitor of a page that embeds the agent: a separate user, without the owner's rights.
    Widget,
    /// The platform itself, on behalf of a user.
    Proactive,
    /// A program with an API token of a user.
    Api,
}

impl Caller {
    /// Returns the audience that the caller belongs to.
    pub fn audience(self) -> Audience {
        match self {
            Self::Widget => Audience::Visitor,
            Self::Session | Self::Legacy | Self::Proactive | Self::Api => Audience::Trusted,
        }
    }
}

/// Constraint on tool calls of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides whether to call tools.
    #[default]
    Auto,
    /// The model must not call tools.
    None,
    /// The model must call at least one tool.
    Required,
    /// The model must call this tool.
    Tool(String),
}

impl ToolChoice {
    /// Describes why the choice cannot be made among a turn's tools; `None` if it can.
    pub(crate) fn describe_conflict(&self, tools: &[Arc<ToolSpec>]) -> Option<&'static str> {
        match self {
            Self::Tool(name) if !tools.iter().any(|tool| tool.name == *name) => {
                Some("names a tool that this agent may not use in this context")
            }
            Self::Required if tools.is_empty() => {
                Some("requires a tool call, but the agent has no tools in this context")
            }
            _ => None,
        }
    }

    /// Returns the tools that a request with this choice offers to the model: none for [`None`](Self::None), and for a
    /// named tool this tool alone, since many servers ignore the name.
    pub fn offered<'a>(&self, tools: &'a [Arc<ToolSpec>]) -> &'a [Arc<ToolSpec>] {
        match self {
            Self::Auto | Self::Required => tools,
            Self::None => &[],
            Self::Tool(name) => {
                tools.iter().position(|tool| tool.name == *name).map_or(&[], |index| &tools[index..=index])
            }
        }
    }
}

/// A tool that a model can call.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Returns the definition, which is the same on every call.
    fn spec(&self) -> Arc<ToolSpec>;

    /// Executes a call. Dropping the future cancels it. Run CPU-bound work on another thread: a turn's calls share a task.
    ///
    /// # Errors
    /// The model reads the error's text and may call again; of [`ToolError::Internal`], which is logged, it learns only that the
    /// tool failed. [`ToolError::InvalidArguments`] names the member, since arguments are not checked against the schema before.
    async fn call(
        &self,
        context: &ExecutionContext,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError>;
}

/// The tools available to a run. The contract is the test suite `conformance::tool_registry`.
#[async_trait]
pub trait ToolRegistry: Send + Sync + 'static {
    /// Returns the definitions of the tools that may be offered in this context, sorted by name. An error prevents the turn.
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError>;

    /// Calls a tool. The registry checks again that it is allowed in this context. Dropping the future cancels the call.
    ///
    /// # Errors
    /// [`ToolError::Unknown`] for a tool that does not exist or is not allowed; an error or an error result that names
    /// the path for arguments that do not conform to the tool's input schema.
    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError>;
}

/// Receiver of progress reports of long-running tools.
pub trait Progress: Send + Sync {
    /// Reports `progress` of `total`, in units chosen by the tool, and a description of the current work.
    fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>);
}

/// A progress receiver that discards all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn report(&self, _: f64, _: Option<f64>, _: Option<&str>) {}
}

/// Result of a tool call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// Text for the model.
    pub text: String,
    /// The same result as structured content, which conforms to the tool's output schema.
    pub structured: Option<Value>,
    /// True if the call failed with an error that the model should see and may correct.
    pub is_error: bool,
    /// Follow-up run that the tool requests when called by a job.
    pub follow_up: Option<FollowUp>,
    /// Present if the call has no result yet. A tool loop ends the run once the round's other calls are complete.
    pub suspension: Option<Suspension>,
}

/// Reason why a tool call has no result yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Suspension {
    /// The client of the run executes the call.
    ClientSide,
    /// A person must decide about the call.
    Interrupt(Box<Interrupt>),
}

impl From<Suspension> for ToolOutput {
    fn from(suspension: Suspension) -> Self {
        Self { suspension: Some(suspension), ..Self::default() }
    }
}

/// One more run of a tool, requested by its result: exactly one of a delay and a time is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowUp {
    /// Delay from now in milliseconds, at least 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Time in RFC 3339 format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execute_at: Option<String>,
    /// Arguments of the follow-up call; if absent, the same as those of this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Map<String, Value>>,
}

impl ToolOutput {
    /// Creates a structured result; its JSON text is the text for the model.
    pub fn structured(value: impl Serialize) -> Result<Self, ToolError> {
        let value = serde_json::to_value(value).map_err(ToolError::internal)?;
        Ok(Self { text: value.to_string(), structured: Some(value), ..Self::default() })
    }

    /// Creates a text result.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates an error result for the model.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }
}

/// Error of a tool call without a result. The model receives its `Display`; sources are internal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool does not exist or is not allowed for this agent; both have the same message.
    #[error("there is no tool named {0:?}")]
    Unknown(String),
    /// The arguments do not conform to the input schema.
    #[error("invalid arguments: {0}")]
    InvalidArguments(String),
    /// An object named by the arguments does not exist or is not the caller's; both have the same message.
    #[error("{0}")]
    NotFound(String),
    /// The object has changed since the caller read it.
    #[error("{0}")]
    Conflict(String),
    /// The tool is temporarily unavailable.
    #[error("{0}")]
    Unavailable(String),
    /// The store is unavailable.
    #[error(transparent)]
    StoreUnavailable(StoreError),
    /// The call may or may not have taken effect; it is not repeated on its own.
    #[error("{0}")]
    OutcomeUnknown(String),
    /// An internal error, whose cause is hidden from the model.
    #[error("the tool failed")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ToolError {
    /// Wraps an internal error.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(source.into())
    }
}

impl From<StoreError> for ToolError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::Conflict("concurrent modification of an item; retry".into()),
            StoreError::TooLarge { .. } => Self::InvalidArguments(error.to_string()),
            StoreError::Unavailable(_) => Self::StoreUnavailable(error),
            error => Self::internal(error),
        }
    }
}

/// Refuses arguments that are not a JSON object. Null is accepted as no arguments.
pub(crate) fn check_is_object(arguments: &Value) -> Result<(), ToolError> {
    match arguments {
        Value::Object(_) | Value::Null => Ok(()),
        _ => Err(ToolError::InvalidArguments("they must be a JSON object".to_owned())),
    }
}

/// A registry of tools in this process.
#[derive(Default, Clone)]
pub struct LocalToolRegistry {
    tools: std::collections::BTreeMap<String, Arc<dyn Tool>>,
}

impl LocalToolRegistry {
    /// Creates a registry without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool, replacing any tool with the same name.
    pub fn with_tool(mut self, tool: impl Tool) -> Self {
        self.tools.insert(tool.spec().name.clone(), Arc::new(tool));
        self
    }
}

impl FromIterator<Arc<dyn Tool>> for LocalToolRegistry {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Tool>>>(tools: I) -> Self {
        Self { tools: tools.into_iter().map(|tool| (tool.spec().name.clone(), tool)).collect() }
    }
}

#[async_trait]
impl ToolRegistry for LocalToolRegistry {
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
        check_is_object(&arguments)?;
        tool.call(context, arguments, progress).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A tool with a name and a fixed result.
    struct FixedTool(&'static str, &'static str);

    #[async_trait]
    impl Tool for FixedTool {
        fn spec(&self) -> Arc<ToolSpec> {
            Arc::new(ToolSpec::new(self.0, "Returns a fixed text.", &json!({"type": "object"})))
        }

        async fn call(
            &self,
            _: &ExecutionContext,
            _: Value,
            _: &dyn Progress,
        ) -> Result<ToolOutput, ToolError> {
            Ok(ToolOutput::text(self.1))
        }
    }

    #[tokio::test]
    async fn a_registry_is_collected_from_shared_tools() {
        let tools: [Arc<dyn Tool>; 3] =
            [Arc::new(FixedTool("b", "1")), Arc::new(FixedTool("a", "2")), Arc::new(FixedTool("b", "3"))];
        let registry: LocalToolRegistry = tools.into_iter().collect();
        let context = ExecutionContext::default();
        let specs = registry.list(&context).await.expect("a list");
        let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let output = registry.call(&context, "b", json!({}), &NoProgress).await.expect("a result");
        assert_eq!(output.text, "3", "the last of two tools with the same name remains");
    }

    #[test]
    fn a_new_definition_equals_a_parsed_one() {
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let new = ToolSpec::new("weather", "Tells the weather.", &schema);
        let parsed = json!({"name": "weather", "description": "Tells the weather.", "inputSchema": schema});
        assert_eq!(serde_json::to_value(new).expect("a definition serialises"), parsed);
    }
}
