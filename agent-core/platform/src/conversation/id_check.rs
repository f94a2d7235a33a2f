//! Checks of the identifiers that clients choose.

use super::{ConversationError, ThreadKey};

/// Limit on an identifier of a thread, a run, a node or an owner, in bytes.
pub const MAX_CONVERSATION_ID_BYTES: usize = 128;

/// Id that no thread has, since the export of all threads has its path.
const RESERVED_THREAD_ID: &str = "export";

impl ThreadKey {
    /// Checks that a thread may be created under this key.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] names the part that is empty, too long, reserved or has a control character.
    pub fn check(&self) -> Result<(), ConversationError> {
        check_conversation_id("the company", &self.company)?;
        check_conversation_id("the owner", &self.owner)?;
        check_conversation_id("the thread's id", &self.id)?;
        match self.id.as_str() {
            RESERVED_THREAD_ID => Err(ConversationError::Invalid("the thread's id is reserved".to_owned())),
            _ => Ok(()),
        }
    }
}

/// Checks an identifier: not empty, at most [`MAX_CONVERSATION_ID_BYTES`], without control characters.
///
/// # Errors
/// [`ConversationError::Invalid`] with a text that begins with `name`.
pub fn check_conversation_id(name: &str, id: &str) -> Result<(), ConversationError> {
    let fault = if id.is_empty() {
        "is empty"
    } else if id.len() > MAX_CONVERSATION_ID_BYTES {
        "has more than 128 bytes"
    } else if id.chars().any(char::is_control) {
        "has a control character"
    } else {
        return Ok(());
    };
    Err(ConversationError::Invalid(format!("{name} {fault}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_key_is_checked() {
        let longest = "x".repeat(MAX_CONVERSATION_ID_BYTES);
        for id in ["a", "job:1", "..", "日本語", "a b", "😀", &longest] {
            ThreadKey::new("acme", "ada", id).check().unwrap_or_else(|error| panic!("{id:?}: {error}"));
        }
        let reserved = ThreadKey::new("acme", "ada", RESERVED_THREAD_ID).check();
        assert!(matches!(reserved, Err(ConversationError::Invalid(_))), "{reserved:?}");
        ThreadKey::new("acme", RESERVED_THREAD_ID, "exports").check().expect("another id");
        for id in ["", "a\0", "a\nb", &"x".repeat(129)] {
            for key in [
                ThreadKey::new("acme", "ada", id),
                ThreadKey::new(id, "ada", "t"),
                ThreadKey::new("acme", id, "t"),
            ] {
                let refused = key.check();
                assert!(matches!(refused, Err(ConversationError::Invalid(_))), "{key:?}: {refused:?}");
            }
        }
    }
}
