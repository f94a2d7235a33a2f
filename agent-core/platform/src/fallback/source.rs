//! [`FallbackModels`], and the entries of a container.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_core::backend::ModelSource;
use agent_core::budget::TokenCounter;
use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::Audience;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::{EmbeddedAi, FallbackModel, RetrySettings, TokenLimits};
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value};
use url::Url;

use super::call::RoundCalls;
use super::circuits::CircuitKey;
use super::stream::FallbackStream;
use super::{Circuits, RetryPolicy};
use crate::catalog::{Catalog, CatalogModel};
use crate::parameters::{ModelApi, ModelParameters};
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

/// A [`ModelSource`] whose models repeat failed calls, and call the container's fallbacks.
pub struct FallbackModels<S> {
    models: MeteredModels<S>,
    defaults: FallbackDefaults,
    circuits: Arc<Circuits>,
    clock: Arc<dyn Clock>,
    catalog: Arc<Catalog>,
}

impl<S: ModelSource> FallbackModels<S> {
    /// Wraps a source. Its models are metered one by one.
    pub fn new(
        models: MeteredModels<S>,
        defaults: FallbackDefaults,
        circuits: Arc<Circuits>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { models, defaults, circuits, clock, catalog: Catalog::shipped() }
    }

    /// Sets the catalogue by which previews tell whether a model is known, in place of the shipped one.
    #[must_use]
    pub fn with_catalog(self, catalog: Arc<Catalog>) -> Self {
        Self { catalog, ..self }
    }

    fn create(
        &self,
        settings: &EmbeddedAi,
        context: Option<&ExecutionContext>,
    ) -> Result<FallbackedModel, AgentError> {
        let numbers = Arc::new(CallNumbers::default());
        let model = |settings: &EmbeddedAi| match context {
            Some(context) => {
                let company_model = CatalogModel::of_company(settings.company_model.as_deref());
                self.models.model_with_numbers(settings, context, &numbers, company_model)
            }
            None => self.models.model(settings),
        };
        let mut entries = vec![ModelEntry::new(settings, Ok(model(settings)?))];
        for settings in fallback_settings(settings, &self.defaults.fallbacks) {
            entries.push(ModelEntry::new(&settings, model(&settings).map_err(|error| error.kind())));
        }
        let retry = settings.retry.clone().unwrap_or_default();
        let policy = RetryPolicy {
            max_attempts: retry.max_attempts.map_or(self.defaults.max_attempts, |attempts| attempts.get()),
            max_wait: retry
                .max_wait_ms
                .map_or(self.defaults.max_wait, |wait| Duration::from_millis(wait.into())),
            falls_back_on_content: retry.also.iter().any(|class| class == "content"),
        };
        let (circuits, clock, catalog) = (self.circuits.clone(), self.clock.clone(), self.catalog.clone());
        Ok(FallbackedModel {
            entries: Arc::new(Entries { entries, policy, circuits, clock, catalog }),
            numbers,
            answered: Arc::default(),
            is_trusted: context.is_some_and(|context| context.caller.audience() == Audience::Trusted),
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
            parameters: fallback.parameters.clone(),
            company_model: fallback.company_model.clone(),
            response_format: settings.response_format.clone(),
            retry: Some(RetrySettings { first_content_ms, ..RetrySettings::default() }),
            // The window is that of the container's model.
            token_limits: TokenLimits { context_window: None, ..settings.token_limits },
            ..EmbeddedAi::default()
        }
    })
}

/// A model that may answer.
pub(super) struct ModelEntry {
    /// The model, or the reason for which it cannot be called.
    pub(super) model: Result<Arc<dyn Model>, AgentErrorKind>,
    /// Name of the provider, or the identifier of a provider of the company.
    pub(super) provider: String,
    /// Name of the built-in provider whose API the company's provider has; `None` for a built-in one.
    pub(super) provider_type: Option<String>,
    pub(super) name: String,
    /// True if the company's provider tells the context window.
    has_own_window: bool,
    /// Origin of the provider's address, or a text that stands for that of the settings.
    pub(super) address: Arc<str>,
    pub(super) circuit: CircuitKey,
    parameters: Map<String, Value>,
}

impl ModelEntry {
    fn new(settings: &EmbeddedAi, model: Result<Arc<dyn Model>, AgentErrorKind>) -> Self {
        let text = |setting: &Option<String>| setting.as_deref().unwrap_or_default().trim().to_owned();
        let (provider, name) = match &model {
            Ok(model) => {
                let ModelInfo { provider, model, .. } = model.info();
                (provider, model)
            }
            Err(_) => (text(&settings.provider), text(&settings.model)),
        };
        let company_model = CatalogModel::of_company(settings.company_model.as_deref());
        let has_own_window = company_model.as_ref().is_some_and(|model| model.context_window.is_some());
        let (provider, provider_type) = match company_model {
            Some(model) => (model.provider, Some(provider)),
            None => (provider, None),
        };
        let address = match Url::parse(&text(&settings.base_url)) {
            Ok(url) => url.origin().ascii_serialization(),
            Err(_) => provider_type.as_ref().unwrap_or(&provider).clone(),
        };
        let key = settings.api_key.as_ref().map_or("", |key| key.expose());
        let circuit = CircuitKey::new(&address, &name, key);
        Self {
            model,
            provider,
            provider_type,
            name,
            has_own_window,
            address: address.into(),
            circuit,
            parameters: settings.parameters.clone(),
        }
    }

    /// Returns the names of the parameters that the model is not sent.
    pub(super) fn ignored_parameters(&self) -> Vec<&'static str> {
        let parameters = ModelParameters::read(&self.parameters).ok();
        let known = ModelApi::of_provider(self.built_in_provider()).zip(parameters);
        known.map(|(api, parameters)| parameters.ignored(api, &self.name)).unwrap_or_default()
    }

    /// Returns the name of the built-in provider whose API is called.
    fn built_in_provider(&self) -> &str {
        self.provider_type.as_ref().unwrap_or(&self.provider)
    }

    /// Returns true if the context window of the model is known, and not assumed.
    pub(super) fn is_known(&self, catalog: &Catalog) -> bool {
        self.has_own_window || catalog.is_known(self.built_in_provider(), &self.name)
    }

    /// Returns the limit on the prompt, in tokens.
    pub(super) fn max_prompt_tokens(&self) -> usize {
        self.model.as_ref().map_or(0, |model| {
            let info = model.info();
            info.context_window.saturating_sub(info.max_output_tokens)
        })
    }
}

/// The models of a container, and what their calls share.
pub(super) struct Entries {
    pub(super) entries: Vec<ModelEntry>,
    pub(super) policy: RetryPolicy,
    pub(super) circuits: Arc<Circuits>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) catalog: Arc<Catalog>,
}

impl Entries {
    /// Builds the request of an entry. Pure.
    ///
    /// # Errors
    /// The reason for which the entry cannot take the call.
    pub(super) fn prepare(&self, place: usize, request: &ModelRequest) -> Result<Payload, AgentError> {
        let refusal = |kind, message| Err(AgentError::new(kind, message));
        let entry = &self.entries[place];
        let model =
            entry.model.as_ref().map_err(|kind| AgentError::new(*kind, "the model cannot be called"))?;
        let info = model.info();
        if request.has_media() && !info.supports_media {
            let message = "this agent's model supports text input only, no images or files";
            return refusal(AgentErrorKind::UnsupportedContent, message);
        }
        if !request.tools.is_empty() && !info.supports_tools {
            return refusal(AgentErrorKind::InvalidRequest, "the model does not support tools");
        }
        let payload = model.prepare(request)?;
        // The prompt was assembled for the first entry.
        let is_too_long = payload.prompt_tokens().is_some_and(|tokens| tokens > entry.max_prompt_tokens());
        if place > 0 && is_too_long {
            return refusal(
                AgentErrorKind::ContextExceeded,
                "the conversation exceeds the model's context window",
            );
        }
        Ok(payload)
    }

    /// Returns the places of the entries in the order in which a round tries them.
    pub(super) fn order(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.entries.len();
        (0..count).map(move |place| (first + place) % count)
    }
}

/// A prepared call: the request of one entry, and the means to build those of the others.
#[derive(Clone)]
pub(super) struct PreparedCall {
    pub(super) entries: Arc<Entries>,
    pub(super) entry: usize,
    pub(super) payload: Payload,
    /// The request, if there are other entries.
    pub(super) request: Option<Arc<ModelRequest>>,
}

/// Returns the place of the entry for which a request was built; 0 for one of another source of models.
pub fn prepared_entry(payload: &Payload) -> usize {
    payload.attachment::<PreparedCall>().map_or(0, |call| call.entry)
}

/// A container's model with its fallbacks, in one run.
struct FallbackedModel {
    entries: Arc<Entries>,
    numbers: Arc<CallNumbers>,
    /// The entry that answered last.
    answered: Arc<AtomicUsize>,
    is_trusted: bool,
}

#[async_trait]
impl Model for FallbackedModel {
    /// Returns the information on the first entry. Media are supported if any entry supports them.
    fn info(&self) -> ModelInfo {
        let infos =
            || self.entries.entries.iter().filter_map(|entry| Some(entry.model.as_ref().ok()?.info()));
        let supports_media = infos().any(|info| info.supports_media);
        let first = infos().next().expect("the first entry has a model");
        ModelInfo { supports_media, ..first }
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        self.entries.entries.first()?.model.as_ref().ok()?.counter()
    }

    /// Builds the request of the first entry that can take the call, beginning with the one that answered last.
    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let mut refusal = None;
        for entry in self.entries.order(self.answered.load(Ordering::Relaxed)) {
            match self.entries.prepare(entry, request) {
                Ok(payload) => {
                    let request = (self.entries.entries.len() > 1).then(|| Arc::new(request.clone()));
                    let call = PreparedCall {
                        entries: self.entries.clone(),
                        entry,
                        payload: payload.clone(),
                        request,
                    };
                    return Ok(payload.with_attachment(call));
                }
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| AgentError::new(AgentErrorKind::Internal, "the agent has no model")))
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        // The request may have been built by another instance, whose calls are counted apart.
        let entries = self.entries.clone();
        let call = match payload.attachment::<PreparedCall>().cloned() {
            Some(call) if call.entry < entries.entries.len() => PreparedCall { entries, ..call },
            _ => PreparedCall { entries, entry: 0, payload, request: None },
        };
        self.numbers.begin_round();
        let calls = RoundCalls::new(call, (self.numbers.round(), self.answered.clone()), self.is_trusted);
        let (mut calls, started) = Box::new(calls).advance().await;
        match started {
            Ok(events) => Ok(FallbackStream::new(events, calls).boxed()),
            // The run has begun: its stream tells of the attempts.
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
