//! The part of a model that all adapters share: its name, its reasoning level and its limits.

use std::sync::Arc;

use agent_core::budget::TokenCounter;
use agent_core::error::AgentError;
use agent_core::model::{ModelInfo, ModelRequest};
use agent_platform::catalog::ReasoningOption;
use agent_platform::parameters::{ModelParameters, ReasoningLevel};

use super::limits::{ModelLimits, ResolvedLimits, window_key};

/// Vendors whose models require later requests to repeat the reasoning that preceded tool calls: words in names of models or in
/// addresses.
const REASONING_ECHO_VENDORS: [&str; 3] = ["deepseek", "kimi", "moonshot"];

/// Words in the names or addresses of models that are Mistral's, whose servers and templates require ids of calls in a special form
/// and an answer after the results of calls.
const MISTRAL_WORDS: [&str; 8] =
    ["mistral", "mixtral", "ministral", "magistral", "devstral", "codestral", "pixtral", "voxtral"];

/// Name, reasoning level and token limits of a model on a server.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    /// Name of the model at the server.
    pub(super) name: String,
    /// Level of the model's reasoning, in the server's terms.
    pub(super) reasoning_effort: Option<String>,
    /// Parameters that the model is sent.
    pub(super) parameters: ModelParameters,
    /// Name of the provider in usage and in the catalogue.
    provider: &'static str,
    limits: ModelLimits,
    window_key: String,
    echoes_reasoning: bool,
    is_mistral: bool,
}

impl ModelSpec {
    /// Creates a specification with the default limits and without a reasoning level.
    pub fn new(name: impl Into<String>) -> Self {
        let (limits, window_key) = (ModelLimits::default(), String::new());
        Self {
            name: name.into(),
            reasoning_effort: None,
            parameters: ModelParameters::default(),
            provider: "",
            limits,
            window_key,
            echoes_reasoning: false,
            is_mistral: false,
        }
    }

    /// Sets the level of the model's reasoning, such as `low`, which is sent instead of a request's switch.
    pub fn with_reasoning_effort(self, effort: Option<&str>) -> Self {
        Self { reasoning_effort: effort.map(str::to_owned), ..self }
    }

    /// Sets the parameters of the calls. They must be those that the model is [sent](ModelParameters::for_model); the limit on
    /// the answer is one of the limits.
    pub(crate) fn with_parameters(self, parameters: ModelParameters) -> Self {
        Self { parameters, ..self }
    }

    /// Returns the reasoning level in OpenAI's terms, if one is set: the level in the settings as it is, or the parameter's
    /// level. If the catalogue's model does not have the parameter's level, it is the nearest one.
    pub(super) fn effort(&self) -> Option<&str> {
        let level = self.parameters.reasoning.filter(|level| *level != ReasoningLevel::None);
        let sent = || Some(self.nearest_level().or(level)?.as_str());
        self.reasoning_effort.as_deref().or_else(sent)
    }

    /// Returns the level of the catalogue's model that is nearest to the parameter's, and of two the lower one; `None` without
    /// reasoning, and for models whose levels are not known.
    pub(super) fn nearest_level(&self) -> Option<ReasoningLevel> {
        let level = self.parameters.reasoning.filter(|level| *level != ReasoningLevel::None)?;
        let known = self.known_levels().into_iter().filter(|known| *known != ReasoningLevel::None);
        known.min_by_key(|known| ((*known as u8).abs_diff(level as u8), *known))
    }

    /// Returns the model's levels by the catalogue; empty if they are not known.
    pub(super) fn known_levels(&self) -> Vec<ReasoningLevel> {
        let known = self.limits.catalog.model_with_window(self.provider, &self.name);
        let options = known.and_then(|model| model.reasoning.as_deref()).unwrap_or_default();
        options.iter().filter_map(|option| level_of(*option)).collect()
    }

    /// Returns true or false if a request switches the model's reasoning on or off.
    pub(super) fn thinking(&self, request: &ModelRequest) -> Option<bool> {
        self.parameters.reasoning.map(|level| level != ReasoningLevel::None).or(request.thinking)
    }

    /// Sets the limits on the model's tokens.
    pub fn with_limits(self, limits: ModelLimits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the provider, and the server's address, by which the model's context window is learned.
    pub(super) fn at(self, provider: &'static str, address: &str) -> Self {
        let window_key = window_key(address, &self.name);
        let names = window_key.to_ascii_lowercase();
        let has_one_of = |words: &[&str]| words.iter().any(|word| names.contains(word));
        let echoes_reasoning = has_one_of(&REASONING_ECHO_VENDORS);
        let is_mistral = has_one_of(&MISTRAL_WORDS);
        Self { provider, window_key, echoes_reasoning, is_mistral, ..self }
    }

    /// Returns true if later requests must repeat the reasoning of the model's tool calls.
    pub(super) fn echoes_reasoning(&self) -> bool {
        self.echoes_reasoning
    }

    /// Returns true for a model of Mistral's.
    pub(super) fn is_mistral(&self) -> bool {
        self.is_mistral
    }

    /// Returns the limits, with the window that has been learned.
    pub(super) fn limits(&self) -> ResolvedLimits {
        self.limits.resolve(self.provider, &self.name, &self.window_key)
    }

    /// Returns the counter from whose counts the model's own are estimated, if there is one.
    pub(super) fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        self.limits.counter.clone()
    }

    /// Describes the model, for adapters that support media, if the model does, and tools.
    pub(super) fn info(&self) -> ModelInfo {
        let ResolvedLimits { context_window, max_output_tokens } = self.limits();
        ModelInfo {
            provider: self.provider.to_owned(),
            model: self.name.clone(),
            context_window,
            max_output_tokens,
            supports_media: self.limits.supports_media(self.provider, &self.name),
            supports_tools: true,
        }
    }

    /// Returns true if the server has rejected a member of requests as unknown.
    pub(super) fn refuses(&self, member: &str) -> bool {
        self.limits.learned.refuses(&self.window_key, member)
    }

    /// Records that the server's API does not have a member of requests.
    pub(super) fn record_refusal(&self, member: &'static str) {
        tracing::info!(model = %self.name, member, "the model's server refuses a member of requests");
        self.limits.learned.record_refusal(&self.window_key, member);
    }

    /// Learns the context window if `failure` rejects a prompt of `estimated` tokens by the platform's count.
    pub(super) fn learn(&self, failure: &AgentError, estimated: Option<usize>) {
        self.limits.learn((self.provider, &self.name), &self.window_key, failure, estimated);
    }

    /// Awaits the start of a call, and learns from its failure.
    pub(super) async fn learning<T>(
        &self,
        estimated: Option<usize>,
        start: impl Future<Output = Result<T, AgentError>>,
    ) -> Result<T, AgentError> {
        let started = start.await;
        if let Err(failure) = &started {
            self.learn(failure, estimated);
        }
        started
    }
}

fn level_of(option: ReasoningOption) -> Option<ReasoningLevel> {
    match option {
        ReasoningOption::Default => None,
        ReasoningOption::None => Some(ReasoningLevel::None),
        ReasoningOption::Minimal => Some(ReasoningLevel::Minimal),
        ReasoningOption::Low => Some(ReasoningLevel::Low),
        ReasoningOption::Medium => Some(ReasoningLevel::Medium),
        ReasoningOption::High => Some(ReasoningLevel::High),
        ReasoningOption::Xhigh => Some(ReasoningLevel::Xhigh),
    }
}

impl From<&str> for ModelSpec {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}
