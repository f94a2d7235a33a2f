//! Limits on the tools that a role defines.

/// Maximum number of tools that a role defines.
pub const MAX_OWN_TOOLS: usize = 64;

/// Maximum size of the definitions of an agent's own tools, as the model receives them, in bytes.
pub const MAX_DEFINITION_BYTES: usize = 32 * 1024;

/// Maximum length of a request's body, in bytes.
pub(super) const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// Maximum length of a tool's name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// Maximum length of a header's value, in bytes.
const MAX_HEADER_BYTES: usize = 4 * 1024;

/// Returns true for a text that may be the value of a header: printable ASCII of at most 4 KiB.
pub(super) fn is_header_value(text: &str) -> bool {
    text.len() <= MAX_HEADER_BYTES && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}
