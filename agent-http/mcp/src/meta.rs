//! Members of a request's `_meta` that this crate defines.

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

/// Sets the idempotency key of a call.
pub(crate) fn set_idempotency_key(meta: &mut RequestMetaObject, key: Option<&str>) {
    if let Some(key) = key {
        meta.insert(IDEMPOTENCY_KEY.to_owned(), key.into());
    }
}
