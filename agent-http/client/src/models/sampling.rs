//! Members of request bodies for the parameters of a call.

use agent_core::payload::PayloadBuilder;
use agent_platform::parameters::ModelParameters;
use serde::Serialize;

/// Appends a member, if there is a value.
pub(super) fn push<T: Serialize>(body: &mut PayloadBuilder, name: &str, value: Option<T>) {
    if let Some(value) = value {
        body.raw(",").json(&name).raw(":").json(&value);
    }
}

/// Name of the seed at most servers.
pub(super) const SEED: &str = "seed";

/// Appends the members that OpenAI's APIs and Ollama's options have by the same names, except the seed.
pub(super) fn push_sampling(parameters: &ModelParameters, seed: &str, body: &mut PayloadBuilder) {
    push(body, "temperature", parameters.temperature.as_ref());
    push(body, "top_p", parameters.top_p.as_ref());
    push(body, "top_k", parameters.top_k);
    push(body, "presence_penalty", parameters.presence_penalty.as_ref());
    push(body, "frequency_penalty", parameters.frequency_penalty.as_ref());
    push(body, "stop", Some(&parameters.stop_sequences).filter(|texts| !texts.is_empty()));
    push(body, seed, parameters.seed);
}

/// Appends the members that a role adds to its requests.
pub(super) fn push_extra(parameters: &ModelParameters, body: &mut PayloadBuilder) {
    for (name, value) in &parameters.extra_body {
        push(body, name, Some(value));
    }
}
