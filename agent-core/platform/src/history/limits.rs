//! Limits on conversations in bodies.

/// Limit on an identifier, in bytes.
pub const MAX_ID_BYTES: usize = 128;

/// Limit on the messages of one conversation.
pub(crate) const MAX_MESSAGES: usize = 10_000;

/// Limit on the elements of any other list: parts and tool calls of a message, tools, context blocks.
pub(crate) const MAX_LIST_ITEMS: usize = 1_000;
