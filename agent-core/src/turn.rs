//! Orchestration of one turn, from a message to a stream of events. It is the only orchestrator.
//!
//! A turn loads the role (an agent of another company is reported as missing), selects the backend and collects all
//! context layers concurrently. It assembles the prompt within the backend's budget, prepares the backend's request,
//! and starts it. [`prepare_turn`] stops before the start and is the basis of previews; [`run_turn`] continues from
//! there, so a run sends exactly what a preview would show.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures_util::{TryFutureExt, future, try_join};
use serde_json::json;
use tracing::warn;

use crate::backend::{Backend, BackendCapabilities, BuiltinSettings, ErasedBackend, PreparedRequest, Turn};
use crate::budget::{EstimateCounter, TokenBudget, TokenCounter};
use crate::clock::{Clock, SystemClock, find_time_zone};
use crate::context::{ContextLayer, TurnInput, collect};
use crate::error::{AgentError, AgentErrorKind};
use crate::event::{EventStream, OutputLimits, RunIds};
use crate::prompt::{AssemblyInput, ContextKey, PartCache, SentContexts, assemble};
use crate::request::{Principal, TurnRequest};
use crate::role::{ResponseFormat, ResponseKind, RoleBlock, RoleSource};
use crate::run_token::{RunToken, RunTokens};
use crate::select::{BackendChoice, BackendKind, CustomContainer, select_with_custom};
use crate::tool::{Caller, ExecutionContext, ToolRegistry, ToolSpec};
use crate::users::UserDirectory;
use tools::turn_tools;

mod observer;
mod prepared;
mod reuse;
mod tools;

pub use observer::{HistoryStep, TurnObserver};
pub use prepared::{PreparedTurn, TurnError};
pub use reuse::{PrefixReuse, PromptComparison, SentPrompts};

/// Stores, layers, tools and backends with which turns run. Shared by all turns, which do not change it.
pub struct Platform {
    roles: Arc<dyn RoleSource>,
    layers: Vec<Arc<dyn ContextLayer>>,
    tools: Arc<dyn ToolRegistry>,
    backends: BTreeMap<BackendKind, Arc<dyn ErasedBackend>>,
    custom_backends: BTreeMap<String, Arc<dyn ErasedBackend>>,
    counter: Arc<dyn TokenCounter>,
    parts: Arc<PartCache>,
    clock: Arc<dyn Clock>,
    users: Option<Arc<dyn UserDirectory>>,
    run_tokens: Option<Arc<dyn RunTokens>>,
    output_limits: OutputLimits,
    sent_contexts: SentContexts,
    sent_prompts: Option<Arc<dyn SentPrompts>>,
    history_step: Option<Arc<dyn HistoryStep>>,
}

impl Platform {
    /// Creates a platform over a role store, without layers, tools and backends.
    pub fn new(roles: Arc<dyn RoleSource>) -> Self {
        Self {
            roles,
            layers: Vec::new(),
            tools: Arc::new(crate::tool::LocalToolRegistry::new()),
            backends: BTreeMap::new(),
            custom_backends: BTreeMap::new(),
            counter: Arc::new(EstimateCounter),
            parts: Arc::new(PartCache::default()),
            clock: Arc::new(SystemClock),
            users: None,
            run_tokens: None,
            output_limits: OutputLimits::default(),
            sent_contexts: SentContexts::default(),
            sent_prompts: None,
            history_step: None,
        }
    }

    /// Sets the issuer of the tokens with which remote backends call the agent's tools.
    pub fn with_run_tokens(self, run_tokens: Arc<dyn RunTokens>) -> Self {
        Self { run_tokens: Some(run_tokens), ..self }
    }

    /// Sets the source of users' settings, such as the time zone of a request that names none.
    pub fn with_users(self, users: Arc<dyn UserDirectory>) -> Self {
        Self { users: Some(users), ..self }
    }

    /// Adds a context layer; fragments of the same stability are in the order of their layers.
    pub fn with_layer(mut self, layer: impl ContextLayer) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }

    /// Sets the registry from which roles choose the tools of their agents. Backends that call tools need it as well.
    pub fn with_tools(self, tools: Arc<dyn ToolRegistry>) -> Self {
        Self { tools, ..self }
    }

    /// Registers a backend for its kind of settings; it replaces one of the same kind.
    pub fn with_backend<B: Backend<Settings: BuiltinSettings>>(mut self, backend: B) -> Self {
        self.backends.insert(B::Settings::KIND, Arc::new(backend));
        self
    }

    /// Registers a backend for roles with a container named `container` that select no backend of the platform's own.
    pub fn with_custom_backend(
        mut self,
        container: impl Into<String>,
        backend: impl Backend<Settings = CustomContainer>,
    ) -> Self {
        self.custom_backends.insert(container.into(), Arc::new(backend));
        self
    }

    /// Sets the token counter for backends without their own.
    pub fn with_token_counter(self, counter: Arc<dyn TokenCounter>) -> Self {
        Self { counter, ..self }
    }

    /// Sets the cache for the derived forms of prompt texts.
    pub fn with_part_cache(self, parts: Arc<PartCache>) -> Self {
        Self { parts, ..self }
    }

    /// Sets the limits on the output of a run regardless of its backend.
    pub fn with_output_limits(self, limits: OutputLimits) -> Self {
        Self { output_limits: limits, ..self }
    }

    /// Sets the step that shortens histories before the assembly trims what is still too long.
    pub fn with_history_step(self, step: impl HistoryStep) -> Self {
        Self { history_step: Some(Arc::new(step)), ..self }
    }

    /// Sets the memory of sent prompts, with which runs and previews compare theirs.
    pub fn with_sent_prompts(self, sent_prompts: Arc<dyn SentPrompts>) -> Self {
        Self { sent_prompts: Some(sent_prompts), ..self }
    }

    /// Sets the clock.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Compares a prepared request with the prompts that runs have sent; `None` for a visitor, or without a memory of them.
    pub fn compare_prompt(&self, request: &PreparedRequest) -> Option<PromptComparison> {
        let is_remembered = request.turn.context.caller != Caller::Widget;
        self.sent_prompts.as_ref().filter(|_| is_remembered).map(|prompts| prompts.compare(request))
    }

    /// Returns the limit on the prompts of a request's turn, in tokens; `None` if the role has no usable backend.
    pub async fn max_prompt_tokens(&self, principal: &Principal, request: &TurnRequest) -> Option<usize> {
        let role = load_role(self, principal, request).await.ok()?;
        let choice = select_with_custom(&role, |name| self.custom_backends.contains_key(name)).choice?;
        Some(self.backend(&choice).ok()?.capabilities_of(&choice).ok()?.budget.max_prompt_tokens)
    }

    fn backend(&self, choice: &BackendChoice) -> Result<&Arc<dyn ErasedBackend>, TurnError> {
        let backend = match choice {
            BackendChoice::Custom(container) => self.custom_backends.get(&container.name),
            _ => self.backends.get(&choice.kind()),
        };
        backend.ok_or_else(|| TurnError::NoBackend(choice.kind()))
    }
}

impl std::fmt::Debug for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layers: Vec<_> = self.layers.iter().map(|layer| layer.name()).collect();
        f.debug_struct("Platform").field("layers", &layers).finish_non_exhaustive()
    }
}

/// Least prompt budget, in tokens, with which earlier messages keep their contexts. A smaller one has no room for them.
const MIN_BUDGET_FOR_SENT_CONTEXTS: usize = 4_000;

/// Runs a turn. If the model's server rejects the prompt because it exceeds the context window, and the backend has
/// learned a smaller budget from the error, the turn is prepared and sent once more.
///
/// # Errors
/// Errors that are known before the backend has accepted the turn. Later errors become the run's one `RUN_ERROR`.
pub async fn run_turn(
    platform: &Platform,
    principal: &Principal,
    request: TurnRequest,
) -> Result<EventStream, TurnError> {
    run_observed_turn(platform, principal, request, &()).await
}

/// Runs a turn as [`run_turn`] does, with an observer. Fails as that does.
pub async fn run_observed_turn(
    platform: &Platform,
    principal: &Principal,
    request: TurnRequest,
    observer: &dyn TurnObserver,
) -> Result<EventStream, TurnError> {
    let request = Arc::new(request);
    let (prepared, keys) = prepare(platform, principal, request.clone(), observer).await?;
    let rejected_budget = prepared.capabilities.budget.max_prompt_tokens;
    let error = match start(platform, principal, prepared, (keys, &request.sent_context), observer).await {
        Err(TurnError::Backend(error)) if error.kind() == AgentErrorKind::ContextExceeded => error,
        result => return result,
    };
    let (prepared, keys) = prepare(platform, principal, request.clone(), observer).await?;
    let budget = prepared.capabilities.budget.max_prompt_tokens;
    if budget >= rejected_budget {
        return Err(error.into());
    }
    warn!(error = ?error, budget, "the prompt exceeded the model's context window; sending a shorter one");
    start(platform, principal, prepared, (keys, &request.sent_context), observer).await
}

/// Sends a prepared turn. The context of its latest user message is recorded under the keys and in the slot.
async fn start(
    platform: &Platform,
    principal: &Principal,
    prepared: PreparedTurn,
    (keys, slot): (Vec<ContextKey>, &OnceLock<Arc<str>>),
    observer: &dyn TurnObserver,
) -> Result<EventStream, TurnError> {
    let PreparedRequest { payload, turn } = &prepared.request;
    let max_prompt_tokens = prepared.capabilities.budget.max_prompt_tokens;
    let backend = platform.backend(&turn.choice)?;
    // Registered before the start, since the backend may call a tool before `start` returns.
    let unreported = turn.run_token.as_ref().filter(|_| !prepared.capabilities.reports_tool_calls);
    let calls = unreported.map(|token| token.report_calls());
    let audience = principal.caller.audience();
    // Computed while the backend processes the request, which has been sent by then.
    let report = future::lazy(|_| {
        let comparison = platform.compare_prompt(&prepared.request);
        let reuse = comparison.as_ref().and_then(|comparison| comparison.reuse.as_ref());
        observer.on_request(&prepared, reuse);
        let mut summary = json!({
            "requestSha256": payload.sha256(),
            "stablePrefixBytes": turn.prompt.stable_prefix_bytes(),
            "promptTokens": turn.prompt.tokens().total(),
            "backend": turn.choice.kind(),
        });
        let omitted = turn.prompt.omitted();
        if !omitted.is_empty() {
            summary["omitted"] = json!(omitted);
        }
        if let Some(reuse) = reuse {
            summary["cache"] = json!(reuse);
        }
        let observers: Vec<_> =
            turn.prompt.reports().filter_map(|report| report.observer(audience)).collect();
        (summary, comparison, observers)
    });
    let (events, (summary, comparison, observers)) =
        future::join(backend.start_turn(prepared.request.clone()), report).await;
    let events = events?.with_output_limits(platform.output_limits);
    platform.sent_contexts.record(keys, slot, &turn.prompt, max_prompt_tokens);
    if let Some(comparison) = comparison {
        (comparison.record)();
    }
    let events = events.with_guard(turn.run_token.clone()).with_reported_calls(calls);
    let events = events.with_custom_event("agent.prompt", summary).for_audience(audience);
    Ok(observers.into_iter().fold(events, EventStream::with_observer))
}

/// Prepares a turn, and sends nothing. Fails as [`run_turn`] does, except with errors of the backend's start.
pub async fn prepare_turn(
    platform: &Platform,
    principal: &Principal,
    request: TurnRequest,
) -> Result<PreparedTurn, TurnError> {
    Ok(prepare(platform, principal, Arc::new(request), &()).await?.0)
}

/// Prepares a turn; returns with it the keys under which the context of its latest user message is recorded.
async fn prepare(
    platform: &Platform,
    principal: &Principal,
    request: Arc<TurnRequest>,
    observer: &dyn TurnObserver,
) -> Result<(PreparedTurn, Vec<ContextKey>), TurnError> {
    let role = load_role(platform, principal, &request).await?;
    let selection = select_with_custom(&role, |name| platform.custom_backends.contains_key(name));
    let choice = selection.choice.clone().ok_or_else(|| TurnError::NoConnector(selection.clone().into()))?;
    let response_format = response_format(&request, &choice)?;
    let backend = platform.backend(&choice)?;
    let capabilities = backend.capabilities_of(&choice)?;
    let max_prompt_tokens = capabilities.budget.max_prompt_tokens;
    let context = execution_context(platform, principal, &role, &request).await?;
    let input = TurnInput {
        role: role.clone(),
        context: context.clone(),
        request,
        now: platform.clock.now(),
        max_prompt_tokens,
    };
    let (fragments, tools) =
        try_join!(collect(&platform.layers, &input).err_into(), list_tools(platform, &input, &choice))?;
    let tools = turn_tools(tools, &input, &capabilities)?;
    let mut history = platform.parts.history(&input.request.messages);
    // A workflow gets the messages as data, and has a field for what is retrieved.
    let is_prompt = choice.kind() != BackendKind::Workflow;
    let keys = match is_prompt && max_prompt_tokens >= MIN_BUDGET_FOR_SENT_CONTEXTS {
        true => platform.sent_contexts.restore(&context, &mut history, max_prompt_tokens, &platform.parts),
        false => Vec::new(),
    };
    let mut assembly = AssemblyInput {
        fragments,
        history,
        tools: &tools,
        budget: prompt_budget(max_prompt_tokens, response_format.as_deref()),
        counter: capabilities.counter.clone().unwrap_or_else(|| platform.counter.clone()),
        retrieval: is_prompt.then(|| role.content.rag_placement.unwrap_or_default()),
        cache: &platform.parts,
        history_report: None,
    };
    if let Some(step) = &platform.history_step {
        step.apply(&input, &mut assembly).await?;
    }
    observer.on_inputs(&input, &assembly);
    let prompt = assemble(assembly).map_err(AgentError::from)?;
    let run_token = mint_run_token(platform, &capabilities, &context, &tools)?;
    let turn = Turn {
        run: RunIds { thread_id: context.thread_id.clone(), run_id: context.run_id.clone() },
        thinking: choice.enable_thinking(),
        role,
        choice,
        prompt: Arc::new(prompt),
        tools,
        context,
        tool_choice: input.request.tool_choice.clone(),
        response_format,
        run_token,
    };
    Ok((PreparedTurn { selection, capabilities, request: backend.prepare_turn(Arc::new(turn))? }, keys))
}

/// Returns the budget of the prompt without the tokens that the format of the answer needs.
fn prompt_budget(max_prompt_tokens: usize, format: Option<&ResponseFormat>) -> TokenBudget {
    let reserved = format.map_or(0, ResponseFormat::estimated_tokens);
    TokenBudget { max_prompt_tokens: max_prompt_tokens.saturating_sub(reserved) }
}

/// Returns the format of the answer, if it is JSON. A remote runtime and a workflow know no formats.
fn response_format(
    request: &TurnRequest,
    choice: &BackendChoice,
) -> Result<Option<Arc<ResponseFormat>>, TurnError> {
    let named = request.response_format.as_ref().filter(|format| format.kind == ResponseKind::Json);
    if named.is_some() && matches!(choice.kind(), BackendKind::AgentServer | BackendKind::Workflow) {
        let problem = format!("is not supported by the {} backend of this agent", choice.kind());
        return Err(TurnError::InvalidField { field: "responseFormat", problem });
    }
    let format = request.response_format.as_ref().or(choice.response_format());
    Ok(format.filter(|format| format.kind == ResponseKind::Json).cloned())
}

/// Issues the run's token for a backend whose tools are called from outside; none for a run without tools.
fn mint_run_token(
    platform: &Platform,
    capabilities: &BackendCapabilities,
    context: &ExecutionContext,
    tools: &[Arc<ToolSpec>],
) -> Result<Option<Arc<dyn RunToken>>, AgentError> {
    match (&platform.run_tokens, capabilities.run_token_ttl) {
        (Some(issuer), Some(ttl)) if !tools.is_empty() => issuer.issue(context, tools, ttl).map(Some),
        _ => Ok(None),
    }
}

async fn load_role(
    platform: &Platform,
    principal: &Principal,
    request: &TurnRequest,
) -> Result<Arc<RoleBlock>, TurnError> {
    if principal.agent_id.as_ref().is_some_and(|bound| *bound != request.agent_id) {
        return Err(TurnError::WrongAgent);
    }
    if let Some(role) = &request.role {
        return Ok(role.clone());
    }
    platform.roles.role(&principal.company_id, &request.agent_id).await?.ok_or(TurnError::AgentNotFound)
}

async fn execution_context(
    platform: &Platform,
    principal: &Principal,
    role: &RoleBlock,
    request: &TurnRequest,
) -> Result<ExecutionContext, TurnError> {
    let Principal { company_id, user_id, .. } = principal;
    let timezone = match (&request.timezone, &platform.users) {
        (Some(zone), _) if find_time_zone(zone).is_none() => {
            let problem = "is not an IANA time zone".to_owned();
            return Err(TurnError::InvalidField { field: "timezone", problem });
        }
        (None, Some(users)) => users.profile(company_id, user_id).await?.and_then(|profile| profile.timezone),
        (zone, _) => zone.clone(),
    };
    Ok(ExecutionContext {
        agent_name: Some(role.name.clone()).filter(|name| !name.is_empty()),
        // Task lists belong to users: one that a visitor names is not passed to backends, which may have rights to it.
        todo_list_id: request.todo_list_id.clone().filter(|_| principal.caller != Caller::Widget),
        timezone,
        thread_id: request.thread_id.clone(),
        run_id: request.run_id.clone(),
        can_suspend: request.can_suspend,
        whole_delivery: request.whole_delivery.clone(),
        max_output_tokens: request.max_output_tokens,
        trace: request.trace.clone(),
        ..principal.agent_context(&role.id, principal.caller)
    })
}

async fn list_tools(
    platform: &Platform,
    input: &TurnInput,
    choice: &BackendChoice,
) -> Result<Arc<[Arc<ToolSpec>]>, TurnError> {
    let server_tools = match choice {
        BackendChoice::AgentServer(server) => server.agent_server_tools.as_deref(),
        _ => input.role.content.agent_server.agent_server_tools.as_deref(),
    };
    let allowed = crate::allowed_tools::allowed_tools(&input.role, input.context.caller, server_tools);
    let tools = platform.tools.list(&input.context).await.map_err(TurnError::Tools)?;
    Ok(tools.into_iter().filter(|tool| allowed.contains(&tool.name)).collect())
}

#[cfg(test)]
mod tests;
