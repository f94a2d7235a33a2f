//! Models that are reached over HTTP, and which model a role or a request means.

mod body;
mod failure;
#[cfg(test)]
mod harness;
pub mod ollama;
pub mod openai;

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::error::{Failure, FailureKind};
use agent_core::model::Model;
use agent_core::role::EmbeddedAi;
use agent_core::secret::Secret;
use url::Url;

use self::ollama::Ollama;
use self::openai::OpenAi;
use crate::backend::supplied_url;
use crate::outbound::{Outbound, Trust};
use crate::secret::{BoundSecret, origin_of};

/// The hosted vendor that the operator has configured.
#[derive(Clone)]
pub struct HostedVendor {
    /// Sends the calls.
    pub outbound: Outbound,
    /// The vendor's base address, `OPENAI_BASE_URL`.
    pub base_url: Url,
    /// The operator's key, good for the base address's origin alone.
    pub key: Option<BoundSecret>,
    /// The model for those who name none, `OPENAI_MODEL`.
    pub default_model: String,
    /// Whether the base address is one that serves nobody without a key.
    pub needs_key: bool,
}

/// The Ollama server that the operator has configured, and how any other is used.
#[derive(Clone)]
pub struct OllamaServer {
    /// Sends the calls.
    pub outbound: Outbound,
    /// The server's base address, `OLLAMA_BASE_URL`, where there is one.
    pub base_url: Option<Url>,
    /// The model for those who name none, `OLLAMA_MODEL`.
    pub default_model: Option<String>,
    /// How many tokens prompt and answer may have together, `OLLAMA_NUM_CTX`.
    pub num_ctx: usize,
}

/// What a role or a request says about a model over HTTP; what it leaves out is the operator's.
#[derive(Debug, Clone, Default)]
pub struct HostedSettings<'a> {
    /// The model's name.
    pub model: Option<&'a str>,
    /// The server's base address.
    pub base_url: Option<&'a str>,
    /// The key that belongs to that address.
    pub api_key: Option<&'a Secret>,
}

impl<'a> From<&'a EmbeddedAi> for HostedSettings<'a> {
    fn from(settings: &'a EmbeddedAi) -> Self {
        Self {
            model: settings.model.as_deref(),
            base_url: settings.base_url.as_deref(),
            api_key: settings.api_key.as_ref(),
        }
    }
}

impl HostedVendor {
    /// The model that `settings` mean. The operator's key goes to the operator's address alone: who
    /// brings another address brings its key.
    ///
    /// # Errors
    /// `InvalidRequest` for an address that is none; `NotConfigured`, naming the key that is missing.
    pub fn model(&self, settings: HostedSettings<'_>) -> Result<OpenAi, Failure> {
        let base = match settings.base_url.and_then(given) {
            Some(text) => supplied_url("baseUrl", text)?,
            None => self.base_url.clone(),
        };
        let own = origin_of(&base) == origin_of(&self.base_url);
        let brought = settings.api_key.filter(|key| !key.expose().is_empty());
        let key = brought.or_else(|| self.key.as_ref().and_then(|key| key.for_url(&base)));
        if key.is_none() && own && self.needs_key {
            return Err(Failure::new(FailureKind::NotConfigured, "OPENAI_API_KEY is not configured"));
        }
        let model = settings.model.and_then(given);
        OpenAi::new(
            self.outbound.clone(),
            &base,
            if own { Trust::Operator } else { Trust::Supplied },
            key.cloned(),
            model.unwrap_or(&self.default_model),
        )
    }
}

impl OllamaServer {
    /// The model that `settings` mean. A key is sent only where they bring one.
    ///
    /// # Errors
    /// `InvalidRequest` for an address that is none; `NotConfigured`, naming what is missing.
    pub fn model(&self, settings: HostedSettings<'_>) -> Result<Ollama, Failure> {
        let missing = |name| Failure::new(FailureKind::NotConfigured, format!("{name} is not configured"));
        let supplied = settings.base_url.and_then(given).map(|text| supplied_url("baseUrl", text));
        let base = match supplied.transpose()? {
            Some(base) => base,
            None => self.base_url.clone().ok_or_else(|| missing("OLLAMA_BASE_URL"))?,
        };
        let own = self.base_url.as_ref().is_some_and(|own| origin_of(own) == origin_of(&base));
        let model = settings.model.and_then(given).or(self.default_model.as_deref());
        Ollama::new(
            self.outbound.clone(),
            &base,
            if own { Trust::Operator } else { Trust::Supplied },
            settings.api_key.filter(|key| !key.expose().is_empty()).cloned(),
            model.ok_or_else(|| missing("OLLAMA_MODEL"))?,
            self.num_ctx,
        )
    }
}

/// The models that `EmbeddedAI` containers may ask for.
pub struct EmbeddedModels {
    /// The hosted vendor.
    pub hosted: HostedVendor,
    /// Ollama.
    pub ollama: OllamaServer,
    /// Whether Ollama answers those who leave the provider open, where there is no hosted key.
    pub prefer_ollama: bool,
    /// The model in this process, where there is one.
    pub local: Option<Arc<dyn Model>>,
}

/// The providers that an `EmbeddedAI` container may name.
const PROVIDERS: &str = "auto, local, openai, ollama";

impl ModelSource for EmbeddedModels {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure> {
        match settings.provider.as_deref().and_then(given).unwrap_or("auto") {
            "auto" if self.hosted.key.is_some() || brings_own(settings) => self.hosted(settings),
            "auto" if self.prefer_ollama => self.ollama(settings),
            "auto" => {
                self.local("OPENAI_API_KEY, OLLAMA_BASE_URL and EMBEDDED_MODEL_PATH are not configured")
            }
            "local" => self.local("EMBEDDED_MODEL_PATH is not configured"),
            "openai" => self.hosted(settings),
            "ollama" => self.ollama(settings),
            other => Err(Failure::new(
                FailureKind::UnknownProvider,
                format!("EmbeddedAI.provider {other:?} is not known; it is one of {PROVIDERS}"),
            )),
        }
    }
}

/// Whether settings can only be meant for a hosted model.
fn brings_own(settings: &EmbeddedAi) -> bool {
    let key = settings.api_key.as_ref().is_some_and(|key| !key.expose().is_empty());
    key || settings.base_url.as_deref().and_then(given).is_some()
}

/// The setting, unless it is blank, which counts as absent.
fn given(setting: &str) -> Option<&str> {
    Some(setting.trim()).filter(|setting| !setting.is_empty())
}

impl EmbeddedModels {
    fn hosted(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure> {
        Ok(Arc::new(self.hosted.model(settings.into())?))
    }

    fn ollama(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure> {
        Ok(Arc::new(self.ollama.model(settings.into())?))
    }

    fn local(&self, missing: &'static str) -> Result<Arc<dyn Model>, Failure> {
        self.local.clone().ok_or_else(|| Failure::new(FailureKind::NotConfigured, missing))
    }
}

#[cfg(test)]
mod tests;
