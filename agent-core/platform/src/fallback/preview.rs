//! The models and agent servers that a call may go to, as previews show them.

use agent_core::payload::Payload;
use serde::{Serialize, Serializer};

use super::CircuitState;
use super::call::CIRCUIT_OPEN;
use super::entries::PreparedCall;
use super::servers::ServerTarget;
use super::target::{CallTarget, ModelTarget};
use crate::catalog::ModelPrice;
use crate::response_format::FormatMethod;

/// A model or an agent server that a call may go to. Its request is the one that a run with the same inputs would send to it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptPreview {
    /// Index of the entry: 0 for the container's own model or agent server, then the fallbacks.
    pub entry: usize,
    /// Provider of the model: a built-in one, the identifier of a provider of the company, or `runtime` for an agent server
    /// that names none.
    pub provider: String,
    /// Type of the company's provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_type: Option<String>,
    /// The model.
    pub model: String,
    /// True if the context window of the model is known, and not assumed.
    pub known: bool,
    /// True if the price of the calls is known. A budget that limits the cost refuses others.
    pub priced: bool,
    /// True if the call would go to the model, if those in front of it fail.
    pub eligible: bool,
    /// Code of the reason why the entry would not be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// State of its circuit in this process.
    pub circuit: CircuitState,
    /// Limit on the prompt, in tokens.
    pub max_prompt_tokens: usize,
    /// Prices that the role sets for the calls, in place of those of the catalogue; `asOf` is `role`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<ModelPrice>,
    /// Names of the container's parameters that the model is not sent, since it has no use for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_parameters: Vec<&'static str>,
    /// Method that binds the model to the format of the answer, if one is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<FormatMethod>,
    /// Hash of the request in its shown form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_sha256: Option<String>,
    /// The request in its shown form.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_payload")]
    pub payload: Option<Payload>,
}

fn serialize_payload<S: Serializer>(payload: &Option<Payload>, serializer: S) -> Result<S::Ok, S::Error> {
    payload.as_ref().map(Payload::redacted_json).serialize(serializer)
}

/// Returns the models or agent servers that a prepared call may go to, with their requests if `has_payloads` is set. The list
/// is empty for a call of another source of models.
pub fn preview_attempts(payload: &Payload, has_payloads: bool) -> Vec<AttemptPreview> {
    if let Some(call) = payload.attachment::<PreparedCall<ModelTarget>>() {
        return previews(call, has_payloads);
    }
    let call = payload.attachment::<PreparedCall<ServerTarget>>();
    call.map(|call| previews(call, has_payloads)).unwrap_or_default()
}

/// Returns the limit on the prompt of the model or agent server for which a request was built, in tokens; `None` for a request of
/// another source of models.
pub(crate) fn prepared_prompt_limit(payload: &Payload) -> Option<usize> {
    fn limit<T: CallTarget>(call: &PreparedCall<T>) -> usize {
        call.entries.entries[call.entry].max_prompt_tokens()
    }
    let of_model = payload.attachment::<PreparedCall<ModelTarget>>().map(limit);
    of_model.or_else(|| payload.attachment::<PreparedCall<ServerTarget>>().map(limit))
}

fn previews<T: CallTarget>(call: &PreparedCall<T>, has_payloads: bool) -> Vec<AttemptPreview> {
    let entries = &call.entries;
    let now = entries.clock.monotonic();
    let count = entries.entries.len();
    let preview = |index: usize| {
        let entry = &entries.entries[index];
        let request = call.payload_for(index);
        let circuit = entries.circuits.state(entry.route.circuit(), now);
        let is_shut_out = circuit == CircuitState::Open && count > 1;
        let reason = request.as_ref().err().map(|error| error.kind().code());
        let reason = reason.or(is_shut_out.then_some(CIRCUIT_OPEN));
        AttemptPreview {
            entry: index,
            provider: entry.provider.clone(),
            provider_type: entry.provider_type.clone(),
            model: entry.name.clone(),
            known: entry.is_known(&entries.catalog),
            priced: entry.is_priced(&entries.catalog),
            eligible: reason.is_none(),
            reason,
            circuit,
            max_prompt_tokens: entry.max_prompt_tokens(),
            prices: entry.own_price.clone(),
            ignored_parameters: entry.ignored_parameters(),
            response_format: request.as_ref().ok().and_then(|payload| payload.attachment().copied()),
            request_sha256: request.as_ref().ok().map(Payload::sha256),
            payload: request.ok().filter(|_| has_payloads),
        }
    };
    (0..count).map(preview).collect()
}
