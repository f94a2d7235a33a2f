//! Inputs of a run, for running it again.

use std::sync::Arc;

use crate::conversation::RunPrompt;
use agent_core::context::TurnInput;
use agent_core::event::Audience;
use agent_core::ids::{AgentId, CompanyId, RunId, ThreadId, UserId};
use agent_core::message::{FinishReason, Message, ProviderItem, SharedJson, Usage};
use agent_core::prompt::{AssemblyInput, Fragment, PromptMessage, Stability};
use agent_core::role::{Container, EmbeddedAi, ResponseFormat, ResponseKind, RoleBlock};
use agent_core::select::{BackendChoice, select_backend};
use agent_core::tool::{Caller, ToolChoice, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum size of a run's recorded inputs, in bytes of JSON. Larger ones are not recorded.
pub const MAX_RUN_INPUT_BYTES: usize = 4 << 20;
/// Placeholder for the path and the query of an address that may contain a secret.
const MASKED_PATH: &str = "/***";

/// Inputs of a run. Secrets of the role are masked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunInputs {
    /// The company.
    pub company_id: CompanyId,
    /// The user.
    pub user_id: UserId,
    /// Kind of caller.
    pub caller: Caller,
    /// The agent's role.
    pub role: RoleBlock,
    /// The request.
    pub request: RecordedRequest,
    /// Fragments of the context layers, in the order of the layers.
    pub fragments: Vec<RecordedFragment>,
    /// Contexts in front of earlier user messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent_contexts: Vec<RecordedContext>,
    /// Tools of the agent that the prompt offers, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// Entries of the company's providers for the models of each `EmbeddedAI` container and of its fallbacks, in their order; an
    /// empty one for a built-in provider. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub company_models: Vec<Vec<Map<String, Value>>>,
    /// Limit on the prompt, in tokens.
    pub max_prompt_tokens: usize,
    /// Answers of the model.
    pub rounds: Vec<RoundRecord>,
    /// Results of tool calls, if the run's events lack them: a visitor's do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<RecordedResult>,
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedResult {
    /// Identifier of the call.
    pub call_id: String,
    /// Text for the model.
    pub content: String,
    /// True if the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl RunInputs {
    /// Returns the role as the run had it: with the entries of the company's providers, and without secrets.
    pub(crate) fn completed_role(&self) -> RoleBlock {
        let mut role = self.role.clone();
        for (settings, entries) in embedded_containers(&mut role).zip(&self.company_models) {
            let fallbacks = settings.fallbacks.iter_mut().map(|fallback| &mut fallback.company_model);
            for (model, entry) in std::iter::once(&mut settings.company_model).chain(fallbacks).zip(entries) {
                *model = Some(entry).filter(|entry| !entry.is_empty()).cloned().map(Arc::new);
            }
        }
        role
    }

    /// Adds the texts to the parts of a manifest that have been made of them.
    pub fn add_contents(&self, prompt: &mut RunPrompt) {
        for part in &mut prompt.parts {
            let is_part = |fragment: &&RecordedFragment| {
                fragment.id == part.id && fragment.source == part.source && fragment.text.len() == part.bytes
            };
            part.content = self.fragments.iter().find(is_part).map(|fragment| fragment.text.clone());
        }
    }
}

/// The request of a recorded run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedRequest {
    /// The agent.
    pub agent_id: AgentId,
    /// The conversation.
    pub thread_id: ThreadId,
    /// The run.
    pub run_id: RunId,
    /// Messages of the conversation, oldest first.
    pub messages: Vec<Message>,
    /// The task list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// The user's time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Constraint on tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<RecordedToolChoice>,
    /// Format of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Arc<ResponseFormat>>,
    /// Tools that the client executes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ToolSpec>,
    /// True if tool calls may wait for a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_suspend: bool,
    /// Reason for a proactive turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
}

/// Constraint on tool calls other than the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedToolChoice {
    /// No tool.
    None,
    /// Any tool.
    Required,
    /// This tool.
    Tool(String),
}

impl RecordedToolChoice {
    fn new(choice: &ToolChoice) -> Option<Self> {
        match choice {
            ToolChoice::None => Some(Self::None),
            ToolChoice::Required => Some(Self::Required),
            ToolChoice::Tool(name) => Some(Self::Tool(name.clone())),
            _ => None,
        }
    }
}

impl From<RecordedToolChoice> for ToolChoice {
    fn from(choice: RecordedToolChoice) -> Self {
        match choice {
            RecordedToolChoice::None => Self::None,
            RecordedToolChoice::Required => Self::Required,
            RecordedToolChoice::Tool(name) => Self::Tool(name),
        }
    }
}

/// A fragment of a recorded prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedFragment {
    /// The fragment's identifier.
    pub id: String,
    /// Name of the layer that produced it.
    pub source: String,
    /// Lifetime of its text.
    pub stability: Stability,
    /// The text.
    pub text: String,
    /// Origin of a stored text that was shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<RecordedOrigin>,
}

/// Origin of a stored text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedOrigin {
    /// Kind of text, such as `document`.
    pub kind: String,
    /// Identifier of the stored item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Title of the stored item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The user who owns the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserId>,
    /// Number of bytes that were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_bytes: Option<usize>,
}

impl From<&Fragment> for RecordedFragment {
    fn from(fragment: &Fragment) -> Self {
        let origin = fragment.origin.as_deref().map(|origin| RecordedOrigin {
            kind: origin.kind.to_owned(),
            id: origin.id.clone(),
            title: origin.title.clone(),
            owner: origin.owner.clone(),
            omitted_bytes: origin.omitted_bytes,
        });
        Self {
            id: fragment.id.to_string(),
            source: fragment.source.to_owned(),
            stability: fragment.stability,
            text: fragment.part.text().to_owned(),
            origin,
        }
    }
}

/// Context that was sent in front of an earlier user message, without the lines around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedContext {
    /// Index of the message in the request.
    pub message: usize,
    /// The text.
    pub text: String,
}

/// Record of a model's answer: the parts that the run's events do not contain.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoundRecord {
    /// Number of requests until the model answered.
    pub attempts: u32,
    /// Index of the model for which the request was built among the models of the container.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub entry: usize,
    /// Hash of the request in its shown form, if the run's inputs are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_sha256: Option<String>,
    /// Usage by the provider's report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Reason why the model stopped; absent if the answer was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Text of the answer that the run's events lack, if the run's inputs are recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub draft: String,
    /// Message that asks for another answer in place of this one, if the run's inputs are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<String>,
    /// Items in the provider's own format, if the run's inputs are recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provider_items: Vec<RecordedProviderItem>,
}

fn is_zero(entry: &usize) -> bool {
    *entry == 0
}

/// Item of an answer in the provider's own format; see [`ProviderItem`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedProviderItem {
    /// The item.
    pub json: SharedJson,
    /// Length of the answer's text in front of the item, in bytes.
    pub text_before: usize,
    /// Number of the answer's tool calls in front of the item.
    pub calls_before: usize,
}

impl From<&ProviderItem> for RecordedProviderItem {
    fn from(item: &ProviderItem) -> Self {
        let ProviderItem { json, text_before, calls_before } = item.clone();
        Self { json, text_before, calls_before }
    }
}

impl From<RecordedProviderItem> for ProviderItem {
    fn from(item: RecordedProviderItem) -> Self {
        let RecordedProviderItem { json, text_before, calls_before } = item;
        Self { json, text_before, calls_before }
    }
}

/// Inputs of a turn as its observer has received them. Texts are shared with the turn.
pub(super) struct CapturedInputs {
    input: TurnInput,
    /// Limit on the prompt, in tokens: that of a fallback, if the prompt does not fit the first model.
    max_prompt_tokens: usize,
    fragments: Vec<Fragment>,
    history: Vec<Arc<PromptMessage>>,
    tools: Vec<Arc<ToolSpec>>,
}

/// Returns the limit on the prompt in tokens, with the part that the format of the answer takes: a replay takes it again.
fn prompt_limit(input: &TurnInput, assembly: &AssemblyInput<'_>) -> usize {
    let choice = select_backend(&input.role).choice;
    let own = match &choice {
        Some(BackendChoice::Embedded(settings)) => settings.response_format.as_ref(),
        _ => None,
    };
    let format = input.request.response_format.as_ref().or(own);
    let format = format.filter(|format| format.kind == ResponseKind::Json);
    let reserved = format.map_or(0, |format| format.estimated_tokens());
    input.max_prompt_tokens.max(assembly.budget.max_prompt_tokens.saturating_add(reserved))
}

impl CapturedInputs {
    pub(super) fn new(input: &TurnInput, assembly: &AssemblyInput<'_>) -> Self {
        Self {
            input: input.clone(),
            max_prompt_tokens: prompt_limit(input, assembly),
            fragments: assembly.fragments.clone(),
            history: assembly.history.clone(),
            tools: assembly.tools.to_vec(),
        }
    }

    /// Returns the audience of the run.
    pub(super) fn audience(&self) -> Audience {
        self.input.context.caller.audience()
    }

    /// Returns the inputs as they are recorded.
    pub(super) fn record(&self, rounds: Vec<RoundRecord>, results: Vec<RecordedResult>) -> RunInputs {
        let TurnInput { role, context, request, .. } = &self.input;
        let sent = |(message, sent): (usize, &Arc<PromptMessage>)| {
            let texts: Vec<&str> = sent.context().iter().map(|fragment| fragment.part.text()).collect();
            (!texts.is_empty()).then(|| RecordedContext { message, text: texts.join("\n\n") })
        };
        let tools = self.tools.iter().filter(|tool| !tool.is_client_side);
        RunInputs {
            company_id: context.company_id.clone(),
            user_id: context.user_id.clone(),
            caller: context.caller,
            role: masked_role(role),
            request: RecordedRequest {
                agent_id: request.agent_id.clone(),
                thread_id: request.thread_id.clone(),
                run_id: request.run_id.clone(),
                // Recorded after compaction, which a replay does not repeat.
                messages: self.history.iter().map(|message| message.original().clone()).collect(),
                todo_list_id: request.todo_list_id.clone(),
                timezone: context.timezone.clone(),
                tool_choice: RecordedToolChoice::new(&request.tool_choice),
                response_format: request.response_format.clone(),
                client_tools: request.client_tools.iter().map(|tool| ToolSpec::clone(tool)).collect(),
                can_suspend: request.can_suspend,
                trigger: request.trigger.clone(),
            },
            fragments: self.fragments.iter().map(RecordedFragment::from).collect(),
            sent_contexts: self.history.iter().enumerate().filter_map(sent).collect(),
            tools: tools.map(|tool| ToolSpec::clone(tool)).collect(),
            company_models: company_models(role),
            max_prompt_tokens: self.max_prompt_tokens,
            rounds,
            results,
        }
    }
}

fn embedded_containers(role: &mut RoleBlock) -> impl Iterator<Item = &mut EmbeddedAi> {
    role.children.iter_mut().filter_map(|child| match child {
        Container::EmbeddedAi(settings) => Some(settings),
        _ => None,
    })
}

/// Returns the entries of the company's providers for the models of a role; none if there are no entries.
fn company_models(role: &RoleBlock) -> Vec<Vec<Map<String, Value>>> {
    let entries = |child: &Container| match child {
        Container::EmbeddedAi(settings) => {
            let fallbacks = settings.fallbacks.iter().map(|fallback| &fallback.company_model);
            let models = std::iter::once(&settings.company_model).chain(fallbacks);
            Some(models.map(|entry| entry.as_deref().cloned().unwrap_or_default()).collect())
        }
        _ => None,
    };
    let all: Vec<Vec<Map<String, Value>>> = role.children.iter().filter_map(entries).collect();
    if all.iter().flatten().all(Map::is_empty) { Vec::new() } else { all }
}

/// Returns a role without parts that may contain unmarked secrets: contents of unknown containers, and
/// paths of webhooks. Marked secrets are masked when the role is serialized.
fn masked_role(role: &RoleBlock) -> RoleBlock {
    let mut role = role.clone();
    for child in &mut role.children {
        match child {
            Container::Other { content, .. } => *content = Value::Object(Map::new()),
            Container::WorkflowConnector(workflow) => {
                workflow.webhook_url = workflow.webhook_url.as_deref().map(mask_path);
            }
            _ => {}
        }
    }
    role
}

/// Replaces everything after the host of a URL.
fn mask_path(address: &str) -> String {
    match url::Url::parse(address) {
        Ok(url) if url.has_host() => {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{}{port}{MASKED_PATH}", url.scheme(), url.host_str().unwrap_or_default())
        }
        // The selection of a backend depends on the field's presence.
        _ => agent_core::secret::Secret::MASK.to_owned(),
    }
}
