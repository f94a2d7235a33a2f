//! Escaping of tags in texts that a prompt places between tags.

use std::borrow::Cow;

/// Escapes the beginning of each of these tags, opening or closing, with other characters than letters before the name.
pub(crate) fn escape_tags<'a>(text: &'a str, tags: &[&str]) -> Cow<'a, str> {
    let is_tag = |after: &str| {
        let name = after.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '<' && c != '>');
        tags.iter().any(|tag| name.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)))
    };
    let mut escaped = String::new();
    let mut copied = 0;
    for (at, _) in text.match_indices('<').filter(|(at, _)| is_tag(&text[at + 1..])) {
        escaped.push_str(&text[copied..at]);
        escaped.push_str("&lt;");
        copied = at + 1;
    }
    if copied == 0 {
        return text.into();
    }
    escaped.push_str(&text[copied..]);
    escaped.into()
}
