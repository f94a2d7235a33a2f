//! The error type of a run, shared by models and backends and independent of HTTP.
//!
//! An [`AgentError`] has two messages. Its `Display` is the **public** message: it reaches the user of the chat, in a
//! `RUN_ERROR` event or a problem body, so it must not contain a secret, an address with credentials or text from an
//! upstream server. Its `source` is the **internal** cause, for the log. [`AgentErrorKind`] classifies it for callers.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use serde_json::Value;

use crate::message::Usage;

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        /// Class of an error, from which a caller decides how to react.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum AgentErrorKind {
            $($(#[$doc])* $name,)*
        }

        impl AgentErrorKind {
            /// Returns the machine-readable code of this kind, used in `RUN_ERROR.code` and in problem bodies.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// Returns the kind for a code, as received from another service of the platform.
            pub fn from_code(code: &str) -> Option<Self> {
                [$(Self::$name),*].into_iter().find(|kind| kind.code() == code)
            }
        }
    };
}

error_kinds! {
    /// No connection or no response: refused, unresolvable, or reset before a response. Retry later.
    Unreachable = "BACKEND_UNREACHABLE";
    /// The upstream server responded with an error. A retry may help.
    Failed = "BACKEND_FAILED";
    /// The upstream server sent nothing for too long. A retry may help.
    Timeout = "BACKEND_TIMEOUT";
    /// The upstream server limits the request rate; see [`AgentError::retry_after`].
    RateLimited = "RATE_LIMITED";
    /// The response stream ended before it was complete.
    Truncated = "STREAM_TRUNCATED";
    /// The model still called tools at the round limit, or made too many calls in one round.
    ToolLoopLimit = "TOOL_LOOP_LIMIT";
    /// The output of an answer or of the run exceeds its limit.
    OutputTooLarge = "OUTPUT_TOO_LARGE";
    /// The model's answer does not have the format that was requested.
    OutputInvalid = "OUTPUT_INVALID";
    /// The prompt exceeds the model's context window. Members of the error have the sizes, if they are known.
    ContextExceeded = "CONTEXT_LENGTH_EXCEEDED";
    /// The outbound address policy rejects the target; an operator must allow it.
    Blocked = "OUTBOUND_BLOCKED";
    /// The model does not accept an image or file in the turn.
    UnsupportedContent = "UNSUPPORTED_CONTENT";
    /// A setting is missing; the message names it.
    NotConfigured = "NOT_CONFIGURED";
    /// The user has not signed in to the subscription that answers, or its sign-in has ended.
    SignInRequired = "SIGN_IN_REQUIRED";
    /// The user's subscription does not permit the request.
    SubscriptionRefused = "SUBSCRIPTION_REFUSED";
    /// The provider refuses the account: its quota is spent, or it is not paid for. An operator must act.
    AccountRefused = "ACCOUNT_REFUSED";
    /// A budget is spent.
    BudgetExceeded = "BUDGET_EXCEEDED";
    /// The cost of calls is limited, and the price of the model is unknown.
    PriceUnknown = "PRICE_UNKNOWN";
    /// The provider is known but not implemented.
    ProviderNotImplemented = "PROVIDER_NOT_IMPLEMENTED";
    /// The provider is unknown; the message lists the known ones.
    UnknownProvider = "UNKNOWN_PROVIDER";
    /// The request cannot be answered as it is, such as a prompt that exceeds the budget after trimming.
    InvalidRequest = "INVALID_REQUEST";
    /// The store cannot be read or written now. Retry later.
    StoreUnavailable = "STORE_UNAVAILABLE";
    /// The server ends the run because it shuts down; another process can answer a retry.
    ShuttingDown = "SERVER_SHUTTING_DOWN";
    /// A bug in this software.
    Internal = "INTERNAL";
}

/// Error of a model or a backend; see the [module documentation](self) for its public and internal messages.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    kind: AgentErrorKind,
    message: Cow<'static, str>,
    retry_after: Option<Duration>,
    usage: Vec<Usage>,
    members: Box<[(&'static str, Value)]>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl AgentError {
    /// Creates an error with its public message.
    pub fn new(kind: AgentErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let (message, members) = (message.into(), Box::default());
        Self { kind, message, retry_after: None, usage: Vec::new(), members, source: None }
    }

    /// Sets the internal cause, which is only logged.
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Sets the delay that the upstream server requested before a retry.
    pub fn with_retry_after(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }

    /// Sets the token usage of the run before the error.
    pub fn with_usage(self, usage: Vec<Usage>) -> Self {
        Self { usage, ..self }
    }

    /// Adds a public member for a problem body, such as the address at which the user can sign in.
    pub fn with_member(self, name: &'static str, value: impl Into<Value>) -> Self {
        Self { members: self.members.into_iter().chain([(name, value.into())]).collect(), ..self }
    }

    /// Returns the public members for a problem body.
    pub fn members(&self) -> &[(&'static str, Value)] {
        &self.members
    }

    /// Returns the token usage of the run before the error, one entry per model.
    pub fn usage(&self) -> &[Usage] {
        &self.usage
    }

    /// Returns the class of the error.
    pub fn kind(&self) -> AgentErrorKind {
        self.kind
    }

    /// Returns the public message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the delay that the upstream server requested before a retry.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}
