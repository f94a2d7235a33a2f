//! Members of the `_meta` of a call: its idempotency key and its trace.

use agent_core::ids::TraceContext;
use agent_platform::own_tools::CallMeta;
use agent_platform::trace::{parse_trace, trace_headers};
use rmcp::model::RequestMetaObject;

/// Member with the idempotency key of a tool call: equal if the same call is repeated.
pub const IDEMPOTENCY_KEY: &str = "agentd/idempotencyKey";
/// Maximum length of a key, in bytes; a longer one is ignored.
const MAX_KEY_BYTES: usize = 512;

/// Returns the idempotency key of a call, if it has a valid one.
pub(crate) fn idempotency_key(meta: &RequestMetaObject) -> Option<String> {
    let key = meta.get(IDEMPOTENCY_KEY)?.as_str()?;
    let is_valid = (1..=MAX_KEY_BYTES).contains(&key.len()) && !key.chars().any(char::is_control);
    is_valid.then(|| key.to_owned())
}

/// Returns the trace that a call continues, if it has a valid one (SEP-414).
pub(crate) fn trace(meta: &RequestMetaObject) -> Option<TraceContext> {
    parse_trace(meta.get_traceparent()?, meta.get_tracestate())
}

/// Sets the members of a call.
pub(crate) fn set_call_meta(meta: &mut RequestMetaObject, call: CallMeta<'_>) {
    if let Some(key) = call.idempotency_key {
        meta.insert(IDEMPOTENCY_KEY.to_owned(), key.into());
    }
    for (name, value) in call.trace.into_iter().flat_map(|trace| trace_headers(Some(trace))) {
        meta.insert(name.to_owned(), value.into());
    }
}
