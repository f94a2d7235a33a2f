//! Entries of a container: the models or agent servers that may answer, and the state that their calls share.

use std::sync::{Arc, LazyLock, OnceLock};

use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::CompanyId;
use agent_core::payload::Payload;
use agent_core::secret::Secret;
use serde_json::{Map, Value};
use url::Url;

use super::circuits::CircuitKey;
use super::target::CallTarget;
use super::{Circuits, RetryPolicy};
use crate::catalog::{Catalog, ModelPrice};
use crate::content_notes::has_notes;
use crate::parameters::{ModelApi, ModelParameters};

/// A model or an agent server that may answer.
pub(super) struct CallEntry<T> {
    /// The model or agent server, or the reason why it cannot be called.
    pub(super) target: Result<T, AgentErrorKind>,
    /// Name of the provider, or the identifier of a provider of the company.
    pub(super) provider: String,
    /// Name of the built-in provider whose API the company's provider has; `None` for a built-in one.
    pub(super) provider_type: Option<String>,
    /// Name of the model.
    pub(super) name: String,
    /// True if the role or the company's provider names the context window.
    pub(super) has_own_window: bool,
    /// True if the company's provider names the price.
    pub(super) has_company_price: bool,
    pub(super) route: CallRoute,
    pub(super) parameters: Map<String, Value>,
    /// True or false if the settings beside the parameters switch the model's thinking on or off.
    pub(super) thinking: Option<bool>,
    /// Price that the settings set for the calls, if their owner pays for them.
    pub(super) own_price: Option<ModelPrice>,
}

impl<T: CallTarget> CallEntry<T> {
    /// Returns the names of the parameters that the model is not sent.
    pub(super) fn ignored_parameters(&self) -> Vec<&'static str> {
        let parameters = ModelParameters::read(&self.parameters).ok();
        let known = ModelApi::of_provider(self.built_in_provider()).zip(parameters);
        let limit = self.target.as_ref().ok().and_then(CallTarget::max_output_tokens);
        let ignored = |(api, parameters): (_, ModelParameters)| {
            parameters.ignored(api, &self.name, self.thinking, limit)
        };
        known.map(ignored).unwrap_or_default()
    }

    /// Returns the name of the built-in provider whose API is called.
    fn built_in_provider(&self) -> &str {
        self.provider_type.as_ref().unwrap_or(&self.provider)
    }

    /// Returns true if the context window of the model is known, and not assumed.
    pub(super) fn is_known(&self, catalog: &Catalog) -> bool {
        self.has_own_window || catalog.is_known(self.built_in_provider(), &self.name)
    }

    /// Returns true if the price of the calls is known. A budget that limits the cost refuses others.
    pub(super) fn is_priced(&self, catalog: &Catalog) -> bool {
        self.own_price.is_some()
            || self.has_company_price
            || catalog.price(self.built_in_provider(), &self.name).is_some()
    }

    /// Returns the limit on the prompt, in tokens.
    pub(super) fn max_prompt_tokens(&self) -> usize {
        self.target.as_ref().map_or(0, CallTarget::max_prompt_tokens)
    }
}

/// Address to which an entry's calls go, and the key of their circuit. Both are computed when a call or a preview asks for
/// them: many instances of a model only tell its limits or build a request.
pub(super) struct CallRoute {
    url: String,
    /// Text in place of the address if the URL is not valid.
    default_address: String,
    model: String,
    api_key: Option<Secret>,
    /// Company that makes the calls.
    company: CompanyId,
    computed: OnceLock<(Arc<str>, CircuitKey)>,
}

impl CallRoute {
    pub(super) fn new(
        url: impl Into<String>,
        default_address: impl Into<String>,
        model: impl Into<String>,
        api_key: Option<Secret>,
        company: CompanyId,
    ) -> Self {
        let (url, default_address, model) = (url.into(), default_address.into(), model.into());
        Self { url, default_address, model, api_key, company, computed: OnceLock::new() }
    }

    /// Returns the origin of the URL, or the text in its place.
    pub(super) fn address(&self) -> &Arc<str> {
        &self.computed().0
    }

    pub(super) fn circuit(&self) -> &CircuitKey {
        &self.computed().1
    }

    fn computed(&self) -> &(Arc<str>, CircuitKey) {
        self.computed.get_or_init(|| {
            let address: Arc<str> = match Url::parse(&self.url) {
                Ok(url) => url.origin().ascii_serialization().into(),
                Err(_) => self.default_address.as_str().into(),
            };
            let key = self.api_key.as_ref().map_or("", |key| key.expose());
            let circuit = CircuitKey::new(&address, &self.model, key, &self.company);
            (address, circuit)
        })
    }
}

/// An entry that is created when it is first used: most runs call the first one only.
pub(super) type LazyEntry<T> = LazyLock<CallEntry<T>, Box<dyn FnOnce() -> CallEntry<T> + Send>>;

/// Returns an entry that `create` creates.
pub(super) fn lazy_entry<T>(create: impl FnOnce() -> CallEntry<T> + Send + 'static) -> LazyEntry<T> {
    LazyLock::new(Box::new(create))
}

/// The entries of a container, and the state that their calls share.
pub(super) struct Entries<T> {
    pub(super) entries: Vec<LazyEntry<T>>,
    pub(super) policy: RetryPolicy,
    pub(super) circuits: Arc<Circuits>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) catalog: Arc<Catalog>,
}

impl<T: CallTarget> Entries<T> {
    /// Builds the request of an entry. Pure.
    ///
    /// # Errors
    /// The reason why the entry cannot take the call.
    pub(super) fn prepare(&self, index: usize, request: &T::Request) -> Result<Payload, AgentError> {
        let entry = &self.entries[index];
        let target =
            entry.target.as_ref().map_err(|kind| AgentError::new(*kind, "the model cannot be called"))?;
        let payload = target.prepare(request)?;
        let limit = entry.max_prompt_tokens();
        let is_too_long = match index {
            // The prompt was assembled for the first entry, or for the largest one if it does not fit the first.
            0 => target.assembled_tokens(request) > limit && self.has_fallback_above(limit),
            _ => payload.prompt_tokens().is_some_and(|tokens| tokens > limit),
        };
        if is_too_long {
            let message = "the conversation exceeds the model's context window";
            return Err(AgentError::new(AgentErrorKind::ContextExceeded, message));
        }
        Ok(payload)
    }

    /// Returns true if a fallback has a larger limit on the prompt.
    fn has_fallback_above(&self, limit: usize) -> bool {
        self.entries.iter().skip(1).any(|entry| entry.max_prompt_tokens() > limit)
    }

    /// Builds the request of the first entry that can take the call, in the order of a round that begins with `first`. An entry
    /// that supports all content is preferred to an entry that gets notes instead of unsupported content.
    ///
    /// # Errors
    /// The reason of the first entry in the order, if none can take the call.
    pub(super) fn prepare_first(
        self: &Arc<Self>,
        first: usize,
        request: &T::Request,
    ) -> Result<(usize, Payload), AgentError> {
        let (mut with_notes, mut refusal) = (None, None);
        for entry in self.order(first) {
            match self.prepare(entry, request) {
                Ok(payload) if has_notes(&payload) => {
                    with_notes.get_or_insert((entry, payload));
                }
                Ok(payload) => return Ok((entry, payload)),
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        let no_model = || AgentError::new(AgentErrorKind::Internal, "the agent has no model");
        with_notes.ok_or_else(|| refusal.unwrap_or_else(no_model))
    }

    /// Returns the indices of the entries in the order in which a round tries them.
    pub(super) fn order(&self, first: usize) -> impl Iterator<Item = usize> + use<T> {
        let count = self.entries.len();
        (0..count).map(move |offset| (first + offset) % count)
    }
}

/// A prepared call: the request of one entry, and a builder for the requests of the others.
pub(super) struct PreparedCall<T: CallTarget> {
    pub(super) entries: Arc<Entries<T>>,
    pub(super) entry: usize,
    pub(super) payload: Payload,
    /// The request, if there are other entries.
    pub(super) request: Option<Arc<T::Request>>,
}

impl<T: CallTarget> PreparedCall<T> {
    /// Builds the request of an entry, or returns the prepared one. Pure.
    ///
    /// # Errors
    /// The reason why the entry cannot take the call.
    pub(super) fn payload_for(&self, entry: usize) -> Result<Payload, AgentError> {
        match self.request.as_ref().filter(|_| entry != self.entry) {
            Some(request) => self.entries.prepare(entry, request),
            None => Ok(self.payload.clone()),
        }
    }

    /// Returns true for a request that has notes in place of content of the prepared one.
    pub(super) fn has_more_content_than(&self, payload: &Payload) -> bool {
        has_notes(payload) && !has_notes(&self.payload)
    }
}

impl<T: CallTarget> Clone for PreparedCall<T> {
    fn clone(&self) -> Self {
        let Self { entries, entry, payload, request } = self;
        Self { entries: entries.clone(), entry: *entry, payload: payload.clone(), request: request.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_the_origin_of_its_url_and_a_circuit_of_it_the_model_and_the_key() {
        for (url, api_key, address) in [
            ("https://a.example:8443/v1?x=1", Some("k"), "https://a.example:8443"),
            ("https://A.example:443/v1", None, "https://a.example"),
            ("no URL", Some("k"), "openai"),
            ("", None, "openai"),
        ] {
            let route = CallRoute::new(url, "openai", "m", api_key.map(Secret::new), "c".into());
            let circuit = CircuitKey::new(address, "m", api_key.unwrap_or_default(), "c");
            assert_eq!((&**route.address(), route.circuit()), (address, &circuit), "{url}");
        }
    }
}
