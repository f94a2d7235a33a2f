//! Models reached over HTTP, and the selection of a model from the settings of a role or request.

mod answer_parts;
mod answer_stream;
pub mod anthropic;
mod body;
mod called_function;
mod errors;
#[cfg(test)]
mod harness;
mod limits;
mod names;
pub mod ollama;
pub mod openai;
mod optional_member;
mod prompt_tokens;
mod reasoning_text;
mod response_format;
pub mod responses;
mod sampling;
mod spec;
mod tenant;
pub(crate) mod vendor_error;

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::model::Model;
use agent_core::role::{EmbeddedAi, TokenLimits};
use agent_core::secret::Secret;
use agent_platform::catalog::{CatalogModel, LOCAL_PROVIDER};
use agent_platform::parameters::{ModelApi, ModelParameters, ParameterError};
use agent_platform::usage::OperatorAddresses;
use serde_json::{Map, Value};
use url::Url;

pub(crate) use self::limits::window_key;
pub use self::limits::{DEFAULT_MAX_OUTPUT_TOKENS, LearnedLimits, ModelLimits};
pub use self::spec::ModelSpec;
pub use self::tenant::{TenantModel, TenantModels};

use self::anthropic::Anthropic;
use self::ollama::Ollama;
use self::openai::OpenAi;
use self::responses::{Account, Responses, ResponsesProtocol};
use crate::outbound::{OutboundClient, UrlTrust, parse_supplied_url};
use crate::secret::{BoundSecret, is_within};

/// A hosted vendor that the operator has configured.
#[derive(Clone)]
pub struct HostedVendor {
    /// HTTP client for the calls.
    pub outbound: OutboundClient,
    /// The vendor's base URL, `OPENAI_BASE_URL` or `ANTHROPIC_BASE_URL`.
    pub base_url: Url,
    /// The operator's API key, sent only to the base URL and below it.
    pub key: Option<BoundSecret>,
    /// Model used if the settings name no model, `OPENAI_MODEL` or `ANTHROPIC_MODEL`.
    pub default_model: String,
    /// Setting that contains the key, for error messages.
    pub key_setting: &'static str,
    /// True if the base URL is known to require a key.
    pub needs_key: bool,
    /// Limits on the models' tokens.
    pub limits: ModelLimits,
}

impl std::fmt::Debug for HostedVendor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostedVendor").finish_non_exhaustive()
    }
}

/// The Ollama server that the operator has configured, and the defaults for any other Ollama server.
#[derive(Clone)]
pub struct OllamaServer {
    /// HTTP client for the calls.
    pub outbound: OutboundClient,
    /// The server's base URL, `OLLAMA_BASE_URL`, if configured.
    pub base_url: Option<Url>,
    /// Model used if the settings name no model, `OLLAMA_MODEL`.
    pub default_model: Option<String>,
    /// Context window in tokens, prompt and answer together, `OLLAMA_NUM_CTX`.
    pub num_ctx: usize,
    /// Limits on the models' tokens; their window is not used.
    pub limits: ModelLimits,
}

impl std::fmt::Debug for OllamaServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OllamaServer").finish_non_exhaustive()
    }
}

/// Model settings of a role or a request; missing fields default to the operator's.
#[derive(Debug, Clone, Default)]
pub struct HostedSettings<'a> {
    /// Model name.
    pub model: Option<&'a str>,
    /// The server's base URL.
    pub base_url: Option<&'a str>,
    /// API key for that server.
    pub api_key: Option<&'a Secret>,
    /// Level of the model's reasoning, in the server's terms.
    pub reasoning_effort: Option<&'a str>,
    /// The role's limits on the model's tokens.
    pub token_limits: TokenLimits,
    /// Parameters of the calls, as [`ModelParameters::read`] reads them.
    pub parameters: Option<&'a Map<String, Value>>,
    /// Entry of the company's provider to which address and key belong.
    pub company_model: Option<CatalogModel>,
}

impl HostedSettings<'_> {
    /// Returns the model `name` with the settings' parameters and reasoning level, and with their limits in place of
    /// `limits`.
    fn spec(&self, api: ModelApi, name: &str, limits: ModelLimits) -> Result<ModelSpec, AgentError> {
        let effort = self.reasoning_effort.and_then(non_blank);
        let parameters =
            self.parameters.map(ModelParameters::read).transpose().map_err(invalid_parameters)?;
        let parameters = parameters.unwrap_or_default();
        let max_output_tokens = parameters.max_output_tokens.or(self.token_limits.max_output_tokens);
        let company = self.company_model.as_ref().map(CatalogModel::limits).unwrap_or_default();
        let limits = limits.with_role(TokenLimits { max_output_tokens, ..self.token_limits });
        let limits = ModelLimits { company, ..limits };
        let resolve = || limits.resolve(anthropic::PROVIDER, name, "").max_output_tokens;
        let parameters = parameters.for_model(api, name, (api == ModelApi::Messages).then(resolve));
        let spec = ModelSpec::new(name).with_limits(limits).with_reasoning_effort(effort);
        Ok(spec.with_parameters(parameters))
    }
}

/// Returns the error of parameters that were stored before they were checked, or that a request names.
pub(crate) fn invalid_parameters(faults: Vec<ParameterError>) -> AgentError {
    let fault = faults.first().map(|fault| format!("parameters.{} {}", fault.name, fault.message));
    AgentError::new(AgentErrorKind::InvalidRequest, fault.unwrap_or_default())
}

impl<'a> From<&'a EmbeddedAi> for HostedSettings<'a> {
    fn from(settings: &'a EmbeddedAi) -> Self {
        Self {
            model: settings.model.as_deref(),
            base_url: settings.base_url.as_deref(),
            api_key: settings.api_key.as_ref(),
            reasoning_effort: settings.reasoning_effort.as_deref(),
            token_limits: settings.token_limits,
            parameters: Some(&settings.parameters),
            company_model: CatalogModel::of_company(settings.company_model.as_deref()),
        }
    }
}

impl HostedVendor {
    /// Returns the model that `settings` select. The operator's key is sent only to the operator's origin: settings
    /// with another base URL must bring their own key.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid base URL; `NotConfigured` for a missing key, naming the setting.
    pub fn model(&self, settings: HostedSettings<'_>) -> Result<OpenAi, AgentError> {
        let HostedTarget { base, trust, key, model } = self.target(&settings, ModelApi::ChatCompletions)?;
        OpenAi::new(self.outbound.clone(), &base, trust, key, model)
    }

    /// Returns the model that `settings` select, called through the vendor's Responses API. The limit on the answer is sent,
    /// unless the server's API does not have it: the reservation of the call in budgets depends on the limit.
    ///
    /// # Errors
    /// As [`model`](Self::model).
    pub fn responses_model(&self, settings: HostedSettings<'_>) -> Result<Responses, AgentError> {
        let HostedTarget { base, trust, key, model } = self.target(&settings, ModelApi::Responses)?;
        let protocol = ResponsesProtocol::new(RESPONSES_PROVIDER, Account::ApiKey, model, base.as_str())
            .with_output_limit(true);
        Responses::new(self.outbound.clone(), &base, trust, key, protocol)
    }

    /// Returns the model that `settings` select, called through Anthropic's Messages API.
    ///
    /// # Errors
    /// As [`model`](Self::model).
    pub(crate) fn anthropic_model(&self, settings: HostedSettings<'_>) -> Result<Anthropic, AgentError> {
        let HostedTarget { base, trust, key, model } = self.target(&settings, ModelApi::Messages)?;
        Anthropic::new(self.outbound.clone(), &base, trust, key, model)
    }

    fn target(&self, settings: &HostedSettings<'_>, api: ModelApi) -> Result<HostedTarget, AgentError> {
        let base = match settings.base_url.and_then(non_blank) {
            Some(text) => parse_supplied_url("baseUrl", text)?,
            None => self.base_url.clone(),
        };
        let is_operator_address = is_within(&self.base_url, &base);
        let brought = settings.api_key.filter(|key| !key.expose().is_empty());
        // A company's provider without a key is not called at the operator's expense.
        let operators = self.key.as_ref().filter(|_| settings.company_model.is_none());
        let key = brought.or_else(|| operators.and_then(|key| key.for_url(&base)));
        if key.is_none() && is_operator_address && self.needs_key {
            let message = match &settings.company_model {
                Some(model) => format!("the provider {:?} of the company has no key", model.provider),
                None => format!("{} is not configured", self.key_setting),
            };
            return Err(AgentError::new(AgentErrorKind::NotConfigured, message));
        }
        let name = settings.model.and_then(non_blank).unwrap_or(&self.default_model);
        let model = settings.spec(api, name, self.limits.clone())?;
        let trust = if is_operator_address { UrlTrust::Operator } else { UrlTrust::Supplied };
        Ok(HostedTarget { base, trust, key: key.cloned(), model })
    }
}

/// Server, key and model that settings select.
struct HostedTarget {
    base: Url,
    trust: UrlTrust,
    key: Option<Secret>,
    model: ModelSpec,
}

impl OllamaServer {
    /// Returns the model that `settings` select. A key is sent only if the settings contain one.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid base URL; `NotConfigured`, naming the missing setting.
    pub fn model(&self, settings: HostedSettings<'_>) -> Result<Ollama, AgentError> {
        let missing =
            |name| AgentError::new(AgentErrorKind::NotConfigured, format!("{name} is not configured"));
        let supplied = settings.base_url.and_then(non_blank).map(|text| parse_supplied_url("baseUrl", text));
        let base = match supplied.transpose()? {
            Some(base) => base,
            None => self.base_url.clone().ok_or_else(|| missing("OLLAMA_BASE_URL"))?,
        };
        let is_operator_address =
            self.base_url.as_ref().is_some_and(|operator_url| is_within(operator_url, &base));
        let model = settings.model.and_then(non_blank).or(self.default_model.as_deref());
        let model = model.ok_or_else(|| missing("OLLAMA_MODEL"))?;
        let limits = self.limits.with_server_window(self.num_ctx, ollama::PROVIDER, model);
        Ollama::new(
            self.outbound.clone(),
            &base,
            if is_operator_address { UrlTrust::Operator } else { UrlTrust::Supplied },
            settings.api_key.filter(|key| !key.expose().is_empty()).cloned(),
            settings.spec(ModelApi::Ollama, model, limits)?,
        )
    }
}

/// Model source for `EmbeddedAI` containers.
pub struct EmbeddedModels {
    /// The hosted vendor of the Chat Completions and Responses APIs.
    pub hosted: HostedVendor,
    /// The hosted vendor of the Messages API.
    pub anthropic: HostedVendor,
    /// The Ollama server.
    pub ollama: OllamaServer,
    /// True if provider `auto` falls back to Ollama when no hosted key is configured.
    pub prefers_ollama: bool,
    /// The in-process model, if there is one.
    pub local: Option<Arc<dyn Model>>,
}

impl std::fmt::Debug for EmbeddedModels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedModels").finish_non_exhaustive()
    }
}

/// Provider names that an `EmbeddedAI` container accepts, for error messages.
const PROVIDERS: &str = "auto, anthropic, local, openai, openai-responses, ollama";
/// Provider name that stands for the first provider that is configured.
const AUTO: &str = "auto";
/// Provider name of the hosted vendor's Responses API.
const RESPONSES_PROVIDER: &str = "openai-responses";

impl ModelSource for EmbeddedModels {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        match self.provider(settings) {
            AUTO => {
                let message = "no model is configured: set OPENAI_API_KEY, ANTHROPIC_API_KEY, OLLAMA_BASE_URL or \
                    EMBEDDED_MODEL_PATH, or store the demo model by `agentd model pull`";
                self.local(message)
            }
            LOCAL_PROVIDER => {
                self.local("EMBEDDED_MODEL_PATH is not configured, and no model is stored in MODEL_DIR")
            }
            openai::PROVIDER => self.hosted(settings),
            RESPONSES_PROVIDER => Ok(Arc::new(self.hosted.responses_model(settings.into())?)),
            ollama::PROVIDER => self.ollama(settings),
            anthropic::PROVIDER => self.anthropic(settings),
            other => Err(AgentError::new(
                AgentErrorKind::UnknownProvider,
                format!(
                    "EmbeddedAI.provider {other:?} is unknown; expected one of {PROVIDERS}, or a provider of the company"
                ),
            )),
        }
    }
}

/// Returns true if the settings contain a key or a base URL, and so can only mean a hosted model.
fn has_own_endpoint(settings: &EmbeddedAi) -> bool {
    let key = settings.api_key.as_ref().is_some_and(|key| !key.expose().is_empty());
    key || settings.base_url.as_deref().and_then(non_blank).is_some()
}

/// Trims a setting; returns `None` if it is blank.
fn non_blank(setting: &str) -> Option<&str> {
    Some(setting.trim()).filter(|setting| !setting.is_empty())
}

impl EmbeddedModels {
    /// Returns the names of the provider and the model that `settings` select, whether they can be called or not. The model
    /// in the process has an empty name.
    pub fn names<'a>(&'a self, settings: &'a EmbeddedAi) -> (&'a str, &'a str) {
        let provider = self.provider(settings);
        let default = match provider {
            openai::PROVIDER | RESPONSES_PROVIDER => self.hosted.default_model.as_str(),
            anthropic::PROVIDER => &self.anthropic.default_model,
            ollama::PROVIDER => self.ollama.default_model.as_deref().unwrap_or_default(),
            _ => "",
        };
        match (provider, settings.model.as_deref().and_then(non_blank).unwrap_or(default)) {
            (AUTO | LOCAL_PROVIDER, _) => (LOCAL_PROVIDER, ""),
            names => names,
        }
    }

    /// Returns the addresses at which the operator pays for the calls.
    pub fn operator_addresses(&self) -> OperatorAddresses {
        let addresses =
            [Some(&self.hosted.base_url), Some(&self.anthropic.base_url), self.ollama.base_url.as_ref()];
        OperatorAddresses::new(addresses.into_iter().flatten().cloned())
    }

    /// Checks that an address of a company's provider can be called as far as that is known without resolving its name.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid address, `Blocked` for one that the address policy rejects.
    pub fn check_address(&self, base_url: &str) -> Result<(), AgentError> {
        let url = parse_supplied_url("baseUrl", base_url)?;
        let addresses =
            [Some(&self.hosted.base_url), Some(&self.anthropic.base_url), self.ollama.base_url.as_ref()];
        let is_own = addresses.into_iter().flatten().any(|address| is_within(address, &url));
        let trust = if is_own { UrlTrust::Operator } else { UrlTrust::Supplied };
        self.hosted.outbound.target(&url, trust).map(drop)
    }

    /// Returns the provider that `settings` select; `auto` if no provider is configured.
    fn provider<'a>(&self, settings: &'a EmbeddedAi) -> &'a str {
        match settings.provider.as_deref().and_then(non_blank).unwrap_or(AUTO) {
            AUTO if self.hosted.key.is_some() || has_own_endpoint(settings) => openai::PROVIDER,
            AUTO if self.anthropic.key.is_some() => anthropic::PROVIDER,
            AUTO if self.prefers_ollama => ollama::PROVIDER,
            named => named,
        }
    }

    fn hosted(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        Ok(Arc::new(self.hosted.model(settings.into())?))
    }

    fn anthropic(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        Ok(Arc::new(self.anthropic.anthropic_model(settings.into())?))
    }

    fn ollama(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        Ok(Arc::new(self.ollama.model(settings.into())?))
    }

    fn local(&self, missing: &'static str) -> Result<Arc<dyn Model>, AgentError> {
        self.local.clone().ok_or_else(|| AgentError::new(AgentErrorKind::NotConfigured, missing))
    }
}

#[cfg(test)]
mod tests;
