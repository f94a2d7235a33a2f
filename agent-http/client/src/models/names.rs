//! Identifiers of calls and names of tools that the vendors' APIs accept.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// Limit of the APIs on the length of an identifier or name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Limit on the length of a call's identifier in Chat Completions, in bytes.
const MAX_SHORT_ID_BYTES: usize = 40;
/// Length of a call's identifier for Mistral's models, in bytes.
const ALPHANUMERIC_ID_BYTES: usize = 9;
/// Bytes of a hash in the identifier that replaces a call's own, and in the alias of a tool.
const CALL_HASH_BYTES: usize = 8;
const TOOL_HASH_BYTES: usize = 6;

/// Returns the identifier of a call as it is sent: its own, or one made from its hash if an API would reject it.
pub(super) fn wire_call_id(id: &str) -> Cow<'_, str> {
    plain_or_hashed(id, "c_", CALL_HASH_BYTES)
}

/// Returns the identifier of a call for Chat Completions: its own, or one made from its hash if OpenAI's API would reject its length.
pub(super) fn short_call_id(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_SHORT_ID_BYTES { id.into() } else { hashed(id, "c_", CALL_HASH_BYTES).into() }
}

/// Returns the identifier of a call for Mistral's models: its own if it has nine letters and digits, or else one made from its hash.
pub(super) fn alphanumeric_call_id(id: &str) -> Cow<'_, str> {
    if id.len() == ALPHANUMERIC_ID_BYTES && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.into();
    }
    let mut hash = hashed(id, "", CALL_HASH_BYTES);
    hash.truncate(ALPHANUMERIC_ID_BYTES);
    hash.into()
}

/// Returns the name of a tool as it is sent: its own, or an alias made from its hash if an API would reject it.
pub(super) fn wire_tool_name(name: &str) -> Cow<'_, str> {
    plain_or_hashed(name, "t_", TOOL_HASH_BYTES)
}

fn plain_or_hashed<'a>(name: &'a str, prefix: &str, hash_bytes: usize) -> Cow<'a, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
        return name.into();
    }
    hashed(name, prefix, hash_bytes).into()
}

fn hashed(name: &str, prefix: &str, hash_bytes: usize) -> String {
    let digest = Sha256::digest(name);
    digest[..hash_bytes].iter().fold(prefix.to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_ids_that_chat_completions_reject_are_replaced() {
        for id in ["", "functions.x:0", &"x".repeat(40)] {
            assert_eq!(short_call_id(id), id);
        }
        let short = short_call_id("call_01a1fe22-a159-71ee-b7ea-c21f6a0d92e8");
        assert!(short.starts_with("c_") && short.len() == 18, "{short}");
        assert_eq!(alphanumeric_call_id("D681PevKs"), "D681PevKs");
        for id in ["", "call_1", "call-1234", "call_D681PevKs"] {
            let sent = alphanumeric_call_id(id);
            assert!(sent.len() == 9 && sent.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{sent}");
            assert_eq!(alphanumeric_call_id(&sent), sent);
        }
        assert_ne!(alphanumeric_call_id("call_1"), alphanumeric_call_id("call_2"));
    }

    #[test]
    fn names_that_the_api_rejects_are_replaced() {
        for name in ["a", "read_Todos-1", &"x".repeat(64)] {
            assert_eq!((&*wire_call_id(name), &*wire_tool_name(name)), (name, name));
        }
        for name in ["", "a.b", "a b", "ä", "a\n", &"x".repeat(65)] {
            let (call, tool) = (wire_call_id(name), wire_tool_name(name));
            assert!(call.starts_with("c_") && call.len() == 18, "{call}");
            assert!(tool.starts_with("t_") && tool.len() == 14, "{tool}");
            assert_eq!((&wire_call_id(&call), &wire_tool_name(&tool)), (&call, &tool));
        }
        assert_eq!(wire_tool_name("a.b"), "t_2e7336dc8eba", "the alias is part of the cached prefix");
        assert_ne!(wire_call_id("a.b"), wire_call_id("a.c"));
    }
}
