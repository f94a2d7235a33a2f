//! Bot API client interface of a messenger, for sending messages to users.
//!
//! The API is that of Telegram and compatible services: methods by name, an object of parameters, and a response that
//! is `ok` with a `result`, or not `ok` with a `description`. This crate contains no transport; a [`Messenger`]
//! provides it.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use agent_core::error::AgentError;
use agent_core::secret::Secret;

/// Maximum length of a bot token, in bytes. Real tokens have about fifty.
const MAX_TOKEN_BYTES: usize = 128;

/// Transport for calls to a messenger's bot API.
#[async_trait]
pub trait Messenger: Send + Sync + 'static {
    /// Calls a method of the API, such as `sendMessage`, as the bot of `token`, and returns the `result` of the
    /// response. `params` is an object with the API's own names.
    ///
    /// A call is sent once and never retried, because the API does not recognize a repeated one. `idempotency_key`
    /// identifies it, for a service in between that does. The token is sent to the API only; it appears in no log and
    /// no error.
    ///
    /// # Errors
    /// The API rejected the call, or it is unknown whether the call reached it.
    async fn call(
        &self,
        token: &Secret,
        method: &str,
        params: Value,
        idempotency_key: Option<&str>,
    ) -> Result<Value, MessengerError>;
}

/// Error of a call to the bot API.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessengerError {
    /// The operator has not configured the API's address; contains the setting's name.
    #[error("{0} is not configured")]
    NotConfigured(&'static str),
    /// The API rejected the call.
    #[error("the messenger's API rejected the call (HTTP {status})")]
    Refused {
        /// The API's error code, which is an HTTP status.
        status: u16,
        /// The API's description of the error; empty if it gave none. It may repeat anything that was sent.
        description: String,
        /// Delay that the API demands before the next call.
        retry_after: Option<Duration>,
    },
    /// The call was not sent.
    #[error(transparent)]
    NotSent(AgentError),
    /// No usable response arrived; the call may have reached the API.
    #[error(transparent)]
    Failed(#[from] AgentError),
}

/// Returns true if a text has the form of a bot token, such as `123456:AbC-dEf_0`, which needs no escaping in a URL
/// path.
pub fn is_bot_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":_-".contains(&byte);
    (1..=MAX_TOKEN_BYTES).contains(&text.len()) && text.bytes().all(allowed)
}

/// Returns true if a text has the form of a method name: 3 to 64 ASCII letters.
pub fn is_method_name(text: &str) -> bool {
    (3..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_tokens_and_methods_are_refused() {
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
            assert!(is_method_name(method), "{method:?}");
        }
        for method in
            ["", "ab", &long, "send_message", "sendMessage2", "../getMe", "get/Me", "getMe?", "getMe\n"]
        {
            assert!(!is_method_name(method), "{method:?}");
        }
    }
}
