//! Validation of text values.

use super::WorkspaceError;

/// Maximum size of a title or another one-line name, in bytes.
pub const MAX_TITLE_BYTES: usize = 800;

/// Validates one line and returns it trimmed; the error describes the fault.
pub(super) fn checked_line(line: &str, max_bytes: usize) -> Result<&str, String> {
    let line = check_size(line, max_bytes)?;
    if line.chars().any(char::is_control) {
        return Err("has a line break or another control character".to_owned());
    }
    Ok(line)
}

/// Validates a text and returns it trimmed; the error describes the fault. Since control characters are excluded, the
/// text at most doubles in size as JSON.
pub(super) fn checked_text(text: &str, max_bytes: usize) -> Result<&str, String> {
    let text = check_size(text, max_bytes)?;
    if text.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\r' | '\t')) {
        return Err("has a control character other than a line break or a tab".to_owned());
    }
    Ok(text)
}

fn check_size(text: &str, max_bytes: usize) -> Result<&str, String> {
    let text = text.trim();
    if text.is_empty() {
        Err("is blank".to_owned())
    } else if text.len() > max_bytes {
        Err(format!("has {} bytes; the limit is {max_bytes}", text.len()))
    } else {
        Ok(text)
    }
}

/// Returns a function that converts a fault into [`WorkspaceError::Invalid`] for the field.
pub(super) fn invalid_field(field: &'static str) -> impl Fn(String) -> WorkspaceError {
    move |fault| WorkspaceError::Invalid { field, fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_trimmed_or_refused_with_the_reason() {
        for (text, line, is_complete) in [
            (" a b ", Ok("a b"), Ok("a b")),
            ("a\nb\tc\r\n", Err("has a line break or another control character"), Ok("a\nb\tc")),
            (
                "a\0",
                Err("has a line break or another control character"),
                Err("has a control character other than a line break or a tab"),
            ),
            (" \n ", Err("is blank"), Err("is blank")),
            ("1234567", Err("has 7 bytes; the limit is 6"), Err("has 7 bytes; the limit is 6")),
        ] {
            assert_eq!(checked_line(text, 6), line.map_err(str::to_owned), "{text:?}");
            assert_eq!(checked_text(text, 6), is_complete.map_err(str::to_owned), "{text:?}");
        }
    }
}
