//! Checks of an issuer's texts.

/// Returns true for 1 to `max_bytes` bytes of printable ASCII without blanks.
pub(crate) fn is_printable(text: &str, max_bytes: usize) -> bool {
    (1..=max_bytes).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns true for a code that a person can enter: 4 to 32 ASCII letters, digits and hyphens.
pub(crate) fn is_user_code(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (4..=32).contains(&text.len()) && text.bytes().all(allowed)
}
