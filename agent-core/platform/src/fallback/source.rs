//! Models of containers, with their fallbacks: [`FallbackModels`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_core::backend::ModelSource;
use agent_core::budget::TokenCounter;
use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::Audience;
use agent_core::ids::CompanyId;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::{EmbeddedAi, FallbackModel, RetrySettings, TokenLimits};
use agent_core::select::BackendChoice;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::{StreamExt, stream};

use super::budget::FallbackLimits;
use super::call::RoundCalls;
use super::entries::{CallEntry, CallRoute, Entries, PreparedCall, lazy_entry};
use super::stream::FallbackStream;
use super::target::{CallTarget, ModelTarget};
use super::{Circuits, RetryPolicy};
use crate::catalog::{Catalog, CatalogModel};
use crate::parameters::thinking_switch;
use crate::usage::{CallNumbers, MeteredModels};

/// Maximum number of fallbacks of a container.
pub const MAX_FALLBACKS: usize = 4;

/// Limits and fallbacks of containers that name none.
#[derive(Debug, Clone)]
pub struct FallbackDefaults {
    /// Number of calls of one entry in a round.
    pub max_attempts: u32,
    /// Limit on the waits between them, together.
    pub max_wait: Duration,
    /// Fallbacks of containers that name neither a model nor fallbacks.
    pub fallbacks: Vec<FallbackModel>,
}

impl FallbackDefaults {
    /// Returns the limits of a container.
    pub(super) fn policy(&self, retry: Option<&RetrySettings>) -> RetryPolicy {
        let retry = retry.cloned().unwrap_or_default();
        let max_wait = retry.max_wait_ms.map(|wait| Duration::from_millis(wait.into()));
        RetryPolicy {
            max_attempts: retry.max_attempts.map_or(self.max_attempts, |attempts| attempts.get()),
            max_wait: max_wait.unwrap_or(self.max_wait),
            falls_back_on_content: retry.also.iter().any(|class| class == "content"),
        }
    }
}

/// A [`ModelSource`] whose models repeat failed calls, and call the container's fallbacks.
pub struct FallbackModels<S> {
    models: Arc<MeteredModels<S>>,
    defaults: FallbackDefaults,
    circuits: Arc<Circuits>,
    clock: Arc<dyn Clock>,
    catalog: Arc<Catalog>,
}

impl<S> std::fmt::Debug for FallbackModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FallbackModels").finish_non_exhaustive()
    }
}

impl<S: ModelSource> FallbackModels<S> {
    /// Wraps a source. Its models are metered one by one.
    pub fn new(
        models: MeteredModels<S>,
        defaults: FallbackDefaults,
        circuits: Arc<Circuits>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { models: Arc::new(models), defaults, circuits, clock, catalog: Catalog::built_in() }
    }

    /// Sets the catalogue in which previews look models up, in place of the built-in one.
    #[must_use]
    pub fn with_catalog(self, catalog: Arc<Catalog>) -> Self {
        Self { catalog, ..self }
    }

    /// Returns the limits on the prompts of the containers' fallbacks.
    pub fn limits(&self) -> Arc<dyn FallbackLimits> {
        let (models, defaults) = (self.models.clone(), self.defaults.fallbacks.clone());
        Arc::new(ModelLimits { models, defaults })
    }

    fn create(
        &self,
        settings: &EmbeddedAi,
        context: Option<&ExecutionContext>,
    ) -> Result<ModelWithFallbacks, AgentError> {
        let numbers = Arc::new(CallNumbers::default());
        let model = run_model(&self.models, settings, (context, &numbers))?;
        let first = run_entry(&self.models, settings, Ok(model), context);
        let mut entries = vec![lazy_entry(move || first)];
        let mut fallbacks = fallback_settings(settings, &self.defaults.fallbacks).peekable();
        let shared_context = fallbacks.peek().and(context).cloned().map(Arc::new);
        for settings in fallbacks {
            let (models, numbers, context) = (self.models.clone(), numbers.clone(), shared_context.clone());
            entries.push(lazy_entry(move || {
                let context = context.as_deref();
                let model = run_model(&models, &settings, (context, &numbers));
                run_entry(&models, &settings, model.map_err(|error| error.kind()), context)
            }));
        }
        let policy = self.defaults.policy(settings.retry.as_ref());
        let may_repeat = policy.max_attempts > 1 || entries.len() > 1;
        let (circuits, clock, catalog) = (self.circuits.clone(), self.clock.clone(), self.catalog.clone());
        Ok(ModelWithFallbacks {
            entries: Arc::new(Entries { entries, policy, circuits, clock, catalog }),
            numbers,
            answered: Arc::default(),
            is_trusted: context.is_some_and(|context| context.caller.audience() == Audience::Trusted),
            holds_answers: may_repeat && context.is_some_and(|context| context.whole_delivery.is_some()),
        })
    }
}

impl<S: ModelSource> ModelSource for FallbackModels<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        Ok(Arc::new(self.create(settings, None)?))
    }

    fn model_for_run(
        &self,
        settings: &EmbeddedAi,
        context: &ExecutionContext,
    ) -> Result<Arc<dyn Model>, AgentError> {
        Ok(Arc::new(self.create(settings, Some(context))?))
    }
}

/// Limits on the prompts of the fallbacks of containers with models.
struct ModelLimits<S> {
    models: Arc<MeteredModels<S>>,
    /// Fallbacks of containers that name neither a model nor fallbacks.
    defaults: Vec<FallbackModel>,
}

impl<S: ModelSource> FallbackLimits for ModelLimits<S> {
    fn max_prompt_tokens(&self, choice: &BackendChoice) -> Option<usize> {
        let BackendChoice::Embedded(settings) = choice else { return None };
        let fallbacks = fallback_settings(settings, &self.defaults);
        let models = fallbacks.filter_map(|settings| ModelSource::model(&*self.models, &settings).ok());
        models.map(|model| ModelTarget(model).max_prompt_tokens()).max()
    }
}

/// Returns the settings of a container's fallbacks, as those of containers; `defaults` are those of a container that names
/// neither a model nor fallbacks.
pub fn fallback_settings<'a>(
    settings: &'a EmbeddedAi,
    defaults: &'a [FallbackModel],
) -> impl Iterator<Item = EmbeddedAi> + 'a {
    let names_model = settings.model.as_deref().is_some_and(|model| !model.trim().is_empty());
    let fallbacks = match settings.fallbacks.is_empty() && !names_model {
        true => defaults,
        false => &settings.fallbacks,
    };
    let first_content_ms = settings.retry.as_ref().and_then(|retry| retry.first_content_ms);
    fallbacks.iter().take(MAX_FALLBACKS).map(move |fallback| {
        let first_content_ms = fallback.first_content_ms.or(first_content_ms);
        EmbeddedAi {
            provider: fallback.provider.clone(),
            model: fallback.model.clone(),
            base_url: fallback.base_url.clone(),
            api_key: fallback.api_key.clone(),
            reasoning_effort: fallback.reasoning_effort.clone(),
            enable_thinking: settings.enable_thinking,
            parameters: fallback.parameters.clone(),
            prices: fallback.prices.clone(),
            company_model: fallback.company_model.clone(),
            response_format: settings.response_format.clone(),
            retry: Some(RetrySettings { first_content_ms, ..RetrySettings::default() }),
            // The window is that of the container's model.
            token_limits: TokenLimits { context_window: None, ..settings.token_limits },
            ..EmbeddedAi::default()
        }
    })
}

/// Returns a container's model in a run, whose calls are metered with the run's numbers; without a run, one that only builds
/// requests.
fn run_model<S: ModelSource>(
    models: &MeteredModels<S>,
    settings: &EmbeddedAi,
    (context, numbers): (Option<&ExecutionContext>, &Arc<CallNumbers>),
) -> Result<Arc<dyn Model>, AgentError> {
    let Some(context) = context else { return ModelSource::model(models, settings) };
    let limited = limited_settings(models, settings, context)?;
    models.model_with_numbers(limited.as_ref().unwrap_or(settings), context, numbers)
}

/// Returns the settings of a model with the run's limit on its answers; `None` if the model's own is not higher.
fn limited_settings<S: ModelSource>(
    models: &MeteredModels<S>,
    settings: &EmbeddedAi,
    context: &ExecutionContext,
) -> Result<Option<EmbeddedAi>, AgentError> {
    let Some(limit) = context.max_output_tokens else { return Ok(None) };
    if models.model(settings)?.info().max_output_tokens <= limit.get() as usize {
        return Ok(None);
    }
    let mut limited = settings.clone();
    limited.parameters.insert("maxOutputTokens".to_owned(), limit.get().into());
    Ok(Some(limited))
}

/// Returns the entry of a container's model in a run.
fn run_entry<S: ModelSource>(
    models: &MeteredModels<S>,
    settings: &EmbeddedAi,
    model: Result<Arc<dyn Model>, AgentErrorKind>,
    context: Option<&ExecutionContext>,
) -> CallEntry<ModelTarget> {
    let company = context.map(|context| context.company_id.clone()).unwrap_or_default();
    CallEntry { own_price: models.own_price(settings), ..model_entry(settings, model, company) }
}

/// Returns the entry of a model. `model` may be the reason why it cannot be called.
fn model_entry(
    settings: &EmbeddedAi,
    model: Result<Arc<dyn Model>, AgentErrorKind>,
    company: CompanyId,
) -> CallEntry<ModelTarget> {
    let text = |setting: &Option<String>| setting.as_deref().unwrap_or_default().trim().to_owned();
    let (provider, name) = match &model {
        Ok(model) => {
            let ModelInfo { provider, model, .. } = model.info();
            (provider, model)
        }
        Err(_) => (text(&settings.provider), text(&settings.model)),
    };
    let company_model = CatalogModel::of_company(settings.company_model.as_deref());
    let has_own_window = settings.token_limits.context_window.is_some()
        || company_model.as_ref().is_some_and(|model| model.context_window.is_some());
    let has_company_price = company_model.as_ref().is_some_and(|model| model.price.is_some());
    let (provider, provider_type) = match company_model {
        Some(model) => (model.provider, Some(provider)),
        None => (provider, None),
    };
    let built_in_provider = provider_type.as_ref().unwrap_or(&provider);
    let route =
        CallRoute::new(text(&settings.base_url), built_in_provider, &name, settings.api_key.clone(), company);
    let parameters = settings.parameters.clone();
    CallEntry {
        target: model.map(ModelTarget),
        provider,
        provider_type,
        name,
        has_own_window,
        has_company_price,
        route,
        parameters,
        thinking: thinking_switch(settings.enable_thinking, settings.reasoning_effort.as_deref()),
        own_price: None,
    }
}

/// Returns the index of the entry for which a request was built; 0 for one of another source of models.
pub fn prepared_entry(payload: &Payload) -> usize {
    payload.attachment::<PreparedCall<ModelTarget>>().map_or(0, |call| call.entry)
}

/// A container's model with its fallbacks, in one run.
struct ModelWithFallbacks {
    entries: Arc<Entries<ModelTarget>>,
    numbers: Arc<CallNumbers>,
    /// The entry that answered last.
    answered: Arc<AtomicUsize>,
    is_trusted: bool,
    /// True if an answer is held back until it has ended, since another call may replace it after content too.
    holds_answers: bool,
}

#[async_trait]
impl Model for ModelWithFallbacks {
    /// Returns the information on the first entry. Media are always supported: [`prepare`](Self::prepare) refuses those of the
    /// latest user message that no entry supports, and replaces earlier ones by notes.
    fn info(&self) -> ModelInfo {
        let mut targets = self.entries.entries.iter().filter_map(|entry| entry.target.as_ref().ok());
        let first = targets.next().expect("the first entry has a model");
        ModelInfo { supports_media: true, ..first.0.info() }
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        self.entries.entries.first()?.target.as_ref().ok()?.0.counter()
    }

    /// Builds the request of the first entry that can take the call, beginning with the one that answered last. An entry that
    /// supports all content is preferred to an entry that gets notes instead of unsupported content.
    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let first = self.answered.load(Ordering::Relaxed);
        let (entry, payload) = self.entries.prepare_first(first, request)?;
        let request = (self.entries.entries.len() > 1).then(|| Arc::new(request.clone()));
        let call = PreparedCall { entries: self.entries.clone(), entry, payload: payload.clone(), request };
        Ok(payload.with_attachment(call))
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        // The caller may have built the request with another instance, whose calls are counted apart.
        let entries = self.entries.clone();
        let call = match payload.attachment::<PreparedCall<ModelTarget>>().cloned() {
            Some(call) if call.entry < entries.entries.len() => PreparedCall { entries, ..call },
            _ => PreparedCall { entries, entry: 0, payload, request: None },
        };
        self.numbers.begin_round();
        let calls = RoundCalls::new(call, (self.numbers.round(), self.answered.clone()), self.is_trusted);
        let (mut calls, started) = Box::new(calls).advance().await;
        match started {
            Ok(events) => Ok(FallbackStream::new(events, calls).hold_to_end(self.holds_answers).boxed()),
            // The run has started: its stream reports the attempts.
            Err(error) if self.numbers.round() > 1 => {
                let notices: Vec<_> = calls.take_notices().into_iter().map(Ok).collect();
                match notices.is_empty() {
                    true => Err(error),
                    false => Ok(stream::iter(notices.into_iter().chain([Err(error)])).boxed()),
                }
            }
            Err(error) => Err(error),
        }
    }
}
