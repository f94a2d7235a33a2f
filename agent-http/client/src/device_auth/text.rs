//! Limits on an issuer's texts, and their checks.

/// Maximum size of a token in bytes, which has to fit into a header.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Maximum length of an account id in bytes.
pub const MAX_ACCOUNT_BYTES: usize = 128;

/// Maximum length of a plan's name in bytes.
pub(crate) const MAX_PLAN_BYTES: usize = 64;

/// Returns true for 1 to `max_bytes` bytes of printable ASCII without blanks.
pub(crate) fn is_printable(text: &str, max_bytes: usize) -> bool {
    (1..=max_bytes).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns true for a code that a person can enter: 4 to 32 ASCII letters, digits and hyphens.
pub(crate) fn is_user_code(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (4..=32).contains(&text.len()) && text.bytes().all(allowed)
}
