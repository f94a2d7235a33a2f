//! Models that are reached over HTTP, and which model a role or a request means.

pub mod openai;

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::error::{Failure, FailureKind};
use agent_core::model::Model;
use agent_core::role::{EmbeddedAi, Secret};
use url::Url;

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

/// What a role or a request says about a hosted model; everything may be left to the operator.
#[derive(Debug, Clone, Default)]
pub struct HostedSettings<'a> {
    /// The model's name.
    pub model: Option<&'a str>,
    /// The server's base address.
    pub base_url: Option<&'a str>,
    /// The key that belongs to that address.
    pub api_key: Option<&'a Secret>,
}

impl HostedVendor {
    /// The model that `settings` mean. The operator's key goes to the operator's address alone: who
    /// brings another address brings its key.
    ///
    /// # Errors
    /// `InvalidRequest` for an address that is none; `NotConfigured`, naming the key that is missing.
    pub fn model(&self, settings: HostedSettings<'_>) -> Result<OpenAi, Failure> {
        let supplied = settings.base_url.map(str::trim).filter(|text| !text.is_empty());
        let base = match supplied {
            Some(text) => supplied_url("baseUrl", text)?,
            None => self.base_url.clone(),
        };
        let own = origin_of(&base) == origin_of(&self.base_url);
        let given = settings.api_key.filter(|key| !key.expose().is_empty());
        let key = given.or_else(|| self.key.as_ref().and_then(|key| key.for_url(&base)));
        if key.is_none() && own && self.needs_key {
            return Err(Failure::new(FailureKind::NotConfigured, "OPENAI_API_KEY is not configured"));
        }
        let model = settings.model.map(str::trim).filter(|model| !model.is_empty());
        OpenAi::new(
            self.outbound.clone(),
            &base,
            if own { Trust::Operator } else { Trust::Supplied },
            key.cloned(),
            model.unwrap_or(&self.default_model),
        )
    }
}

/// The models that `EmbeddedAI` containers may ask for.
pub struct EmbeddedModels {
    /// The hosted vendor.
    pub hosted: HostedVendor,
    /// The model in this process, where there is one.
    pub local: Option<Arc<dyn Model>>,
}

/// The providers that an `EmbeddedAI` container may name.
const PROVIDERS: &str = "auto, local, openai, ollama";

impl ModelSource for EmbeddedModels {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure> {
        let provider = settings.provider.as_deref().map(str::trim).filter(|name| !name.is_empty());
        match provider.unwrap_or("auto") {
            "auto" if settings.base_url.is_some() || self.hosted.key.is_some() => self.hosted(settings),
            "auto" | "local" => self.local(),
            "openai" => self.hosted(settings),
            "ollama" => Err(Failure::new(
                FailureKind::ProviderNotImplemented,
                "provider ollama is not implemented yet",
            )),
            other => Err(Failure::new(
                FailureKind::UnknownProvider,
                format!("EmbeddedAI.provider {other:?} is not known; it is one of {PROVIDERS}"),
            )),
        }
    }
}

impl EmbeddedModels {
    fn hosted(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, Failure> {
        let settings = HostedSettings {
            model: settings.model.as_deref(),
            base_url: settings.base_url.as_deref(),
            api_key: settings.api_key.as_ref(),
        };
        Ok(Arc::new(self.hosted.model(settings)?))
    }

    fn local(&self) -> Result<Arc<dyn Model>, Failure> {
        self.local.clone().ok_or_else(|| {
            Failure::new(
                FailureKind::NotConfigured,
                "there is no model for this agent: neither OPENAI_API_KEY nor EMBEDDED_MODEL_PATH is configured",
            )
        })
    }
}
