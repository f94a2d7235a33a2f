//! Messages to people where they are: a bot of a messenger, by whatever brings calls to the bot's API.
//!
//! The API is Telegram's, and of those that took its form: methods by name, an object of parameters, an answer
//! that is `ok` with a `result`, or not with a `description`. This crate knows no transport; a [`Messenger`]
//! is one.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use agent_core::error::Failure;
use agent_core::secret::Secret;

/// The most bytes of a bot's token; those in use have about fifty.
const MAX_TOKEN_BYTES: usize = 128;

/// Brings calls to the API of a messenger's bots.
#[async_trait]
pub trait Messenger: Send + Sync + 'static {
    /// Calls a method of the API, such as `sendMessage`, as the bot that `token` is for, and gives the answer's
    /// `result`. `params` is an object, by the API's own names.
    ///
    /// A call is sent once and never again, for what it does happens with every call. The token reaches the API
    /// and nothing else: no log, and no error.
    ///
    /// # Errors
    /// The API refused the call, or it is not known to have come there.
    async fn call(&self, token: &Secret, method: &str, params: Value) -> Result<Value, MessengerError>;
}

/// Why a call gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessengerError {
    /// The operator has not set what leads to the API; the setting's name.
    #[error("{0} is not configured")]
    NotConfigured(&'static str),
    /// The API refused the call.
    #[error("the messenger refused the call ({status})")]
    Refused {
        /// The API's error code, which is an HTTP status.
        status: u16,
        /// Why, in the API's words; empty where it has none. They may repeat anything that was sent.
        description: String,
        /// How long the API asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The call did not come there, or no answer came from there.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Whether a text has the shape of a bot's token, such as `123456:AbC-dEf_0`, which may stand in a path as it is.
pub fn is_bot_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":_-".contains(&byte);
    (1..=MAX_TOKEN_BYTES).contains(&text.len()) && text.bytes().all(allowed)
}

/// Whether a text may be a method's name: three to 64 letters.
pub fn is_method(text: &str) -> bool {
    (3..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let (longest, long) = ("a".repeat(MAX_TOKEN_BYTES), "a".repeat(MAX_TOKEN_BYTES + 1));
        for token in ["1:a", "123456:AbC-dEf_0", &longest] {
            assert!(is_bot_token(token), "{token:?}");
        }
        for token in
            ["", &long, "1:a/x", "1:a\\x", "..", "1:a?x", "1:a#x", "1:a%2f", "1:a\n", "1:a ", "1:a\0", "1:ä"]
        {
            assert!(!is_bot_token(token), "{token:?}");
        }
        let (longest, long) = ("m".repeat(64), "m".repeat(65));
        for method in ["sendMessage", "getMe", "abc", &longest] {
            assert!(is_method(method), "{method:?}");
        }
        for method in
            ["", "ab", &long, "send_message", "sendMessage2", "../getMe", "get/Me", "getMe?", "getMe\n"]
        {
            assert!(!is_method(method), "{method:?}");
        }
    }
}
