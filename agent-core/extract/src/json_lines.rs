//! Files with a JSON object in each line, as databases and logs are exported.

use serde::de::IgnoredAny;

/// Returns true for a text of several lines, each of which is a JSON object.
pub(crate) fn is_json_lines(text: &str) -> bool {
    let is_object = |line: &str| line.starts_with('{') && serde_json::from_str::<IgnoredAny>(line).is_ok();
    records(text).nth(1).is_some() && records(text).all(is_object)
}

/// Returns the lines of a text that are not blank.
pub(crate) fn records(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}
