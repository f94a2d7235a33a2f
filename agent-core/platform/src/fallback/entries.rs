//! The callees of a container, and what their calls share.

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::payload::Payload;
use serde_json::{Map, Value};
use url::Url;

use super::circuits::CircuitKey;
use super::target::CallTarget;
use super::{Circuits, RetryPolicy};
use crate::catalog::{Catalog, ModelPrice};
use crate::parameters::{ModelApi, ModelParameters};

/// A callee that may answer.
pub(super) struct CallEntry<T> {
    /// The callee, or the reason for which it cannot be called.
    pub(super) target: Result<T, AgentErrorKind>,
    /// Name of the provider, or the identifier of a provider of the company.
    pub(super) provider: String,
    /// Name of the built-in provider whose API the company's provider has; `None` for a built-in one.
    pub(super) provider_type: Option<String>,
    /// Name of the model.
    pub(super) name: String,
    /// True if the company's provider tells the context window.
    pub(super) has_own_window: bool,
    /// Origin of the address, or a text that stands for that of the settings.
    pub(super) address: Arc<str>,
    pub(super) circuit: CircuitKey,
    pub(super) parameters: Map<String, Value>,
    /// Price that the settings set for the calls, if their owner pays for them.
    pub(super) own_price: Option<ModelPrice>,
}

impl<T: CallTarget> CallEntry<T> {
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
        self.target.as_ref().map_or(0, CallTarget::max_prompt_tokens)
    }
}

/// Returns the origin of a URL, or the text that stands for it if it is none.
pub(super) fn origin_or(url: &str, default: &str) -> Arc<str> {
    match Url::parse(url) {
        Ok(url) => url.origin().ascii_serialization().into(),
        Err(_) => default.into(),
    }
}

/// The callees of a container, and what their calls share.
pub(super) struct Entries<T> {
    pub(super) entries: Vec<CallEntry<T>>,
    pub(super) policy: RetryPolicy,
    pub(super) circuits: Arc<Circuits>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) catalog: Arc<Catalog>,
}

impl<T: CallTarget> Entries<T> {
    /// Builds the request of an entry. Pure.
    ///
    /// # Errors
    /// The reason for which the entry cannot take the call.
    pub(super) fn prepare(&self, place: usize, request: &T::Request) -> Result<Payload, AgentError> {
        let entry = &self.entries[place];
        let target =
            entry.target.as_ref().map_err(|kind| AgentError::new(*kind, "the model cannot be called"))?;
        let payload = target.prepare(request)?;
        // The prompt was assembled for the first entry.
        let is_too_long = payload.prompt_tokens().is_some_and(|tokens| tokens > entry.max_prompt_tokens());
        if place > 0 && is_too_long {
            let message = "the conversation exceeds the model's context window";
            return Err(AgentError::new(AgentErrorKind::ContextExceeded, message));
        }
        Ok(payload)
    }

    /// Builds the request of the first entry that can take the call, in the order of a round that begins with `first`.
    ///
    /// # Errors
    /// The reason of the first entry in the order, if none can take the call.
    pub(super) fn prepare_first(
        self: &Arc<Self>,
        first: usize,
        request: &T::Request,
    ) -> Result<(usize, Payload), AgentError> {
        let mut refusal = None;
        for entry in self.order(first) {
            match self.prepare(entry, request) {
                Ok(payload) => return Ok((entry, payload)),
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| AgentError::new(AgentErrorKind::Internal, "the agent has no model")))
    }

    /// Returns the places of the entries in the order in which a round tries them.
    pub(super) fn order(&self, first: usize) -> impl Iterator<Item = usize> + use<T> {
        let count = self.entries.len();
        (0..count).map(move |place| (first + place) % count)
    }
}

/// A prepared call: the request of one entry, and the means to build those of the others.
pub(super) struct PreparedCall<T: CallTarget> {
    pub(super) entries: Arc<Entries<T>>,
    pub(super) entry: usize,
    pub(super) payload: Payload,
    /// The request, if there are other entries.
    pub(super) request: Option<Arc<T::Request>>,
}

impl<T: CallTarget> Clone for PreparedCall<T> {
    fn clone(&self) -> Self {
        let Self { entries, entry, payload, request } = self;
        Self { entries: entries.clone(), entry: *entry, payload: payload.clone(), request: request.clone() }
    }
}
