//! Token counts in the answers of providers.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a count. One that is negative or not a whole number counts as not reported, and does not fail the answer.
pub(super) fn token_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_u64())
}
