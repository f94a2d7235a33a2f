//! Token counts in the answers of providers and agent servers.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Limit on a whole number that is written as a float: up to here, doubles are exact.
const MAX_FLOAT_COUNT: f64 = 9_007_199_254_740_992.0;

/// Reads a count. One that is negative or not a whole number counts as not reported, and does not fail the answer.
pub(crate) fn token_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(whole_count(&Value::deserialize(deserializer)?))
}

/// Returns a count; `None` for a value that is none. Some servers write whole numbers as floats, such as `12.0`.
pub(crate) fn whole_count(value: &Value) -> Option<u64> {
    let is_whole = |count: &f64| count.fract() == 0.0 && (0.0..=MAX_FLOAT_COUNT).contains(count);
    value.as_u64().or_else(|| value.as_f64().filter(is_whole).map(|count| count as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_number_is_a_count_however_it_is_written() {
        for (value, expected) in [
            (json!(12), Some(12)),
            (json!(12.0), Some(12)),
            (json!(0.0), Some(0)),
            (json!(1.5e3), Some(1500)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(12.5), None),
            (json!(-1.0), None),
            (json!(-1), None),
            (json!(1e300), None),
            (json!("12"), None),
            (json!(null), None),
        ] {
            assert_eq!(whole_count(&value), expected, "{value}");
        }
    }
}
