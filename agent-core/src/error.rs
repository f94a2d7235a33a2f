//! How a run fails: one value for models and backends, knowing nothing of HTTP.
//!
//! A [`Failure`] has two faces. Its `Display` is the **public** message: it reaches the person who
//! chats, inside a `RUN_ERROR` event or a problem body, so it never holds a secret, an address with
//! credentials or what an upstream wrote. Its `source` is the **internal** cause: it goes to the
//! operator's log alone. The [`FailureKind`] says what the caller may do about it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::message::Usage;

/// What kind of thing went wrong, and so what a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// Nobody answered at the address: refused, unresolvable, reset before an answer. Retry later.
    Unreachable,
    /// The other side answered, but with a fault. Retrying may help.
    Failed,
    /// The other side was silent for too long. Retrying may help.
    Timeout,
    /// The other side asks for patience; see [`Failure::retry_after`].
    RateLimited,
    /// The answer stopped before it was complete.
    Truncated,
    /// The model kept calling tools beyond the round limit.
    ToolLoopLimit,
    /// The address policy refuses the target. An operator must allow it.
    Blocked,
    /// The model does not take an image or file that the turn contains.
    UnsupportedContent,
    /// A setting is missing; the message names it.
    NotConfigured,
    /// The provider is known and not built yet.
    ProviderNotImplemented,
    /// The provider's name is not known; the message names the choices.
    UnknownProvider,
    /// The request cannot be answered as it stands, such as a prompt that no trimming makes fit.
    InvalidRequest,
    /// A defect of ours.
    Internal,
}

impl FailureKind {
    /// The machine word that stands for this kind in `RUN_ERROR.code` and in problem bodies.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "BACKEND_UNREACHABLE",
            Self::Failed => "BACKEND_FAILED",
            Self::Timeout => "BACKEND_TIMEOUT",
            Self::RateLimited => "RATE_LIMITED",
            Self::Truncated => "STREAM_TRUNCATED",
            Self::ToolLoopLimit => "TOOL_LOOP_LIMIT",
            Self::Blocked => "OUTBOUND_BLOCKED",
            Self::UnsupportedContent => "UNSUPPORTED_CONTENT",
            Self::NotConfigured => "NOT_CONFIGURED",
            Self::ProviderNotImplemented => "PROVIDER_NOT_IMPLEMENTED",
            Self::UnknownProvider => "UNKNOWN_PROVIDER",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::Internal => "INTERNAL",
        }
    }

    /// The kind behind a machine word, as another of our services sends it.
    pub fn from_code(code: &str) -> Option<Self> {
        use FailureKind::*;
        [
            Unreachable,
            Failed,
            Timeout,
            RateLimited,
            Truncated,
            ToolLoopLimit,
            Blocked,
            UnsupportedContent,
            NotConfigured,
            ProviderNotImplemented,
            UnknownProvider,
            InvalidRequest,
            Internal,
        ]
        .into_iter()
        .find(|kind| kind.code() == code)
    }
}

/// Why a model or a backend did not finish; see the module's text for its two faces.
pub struct Failure {
    kind: FailureKind,
    message: Cow<'static, str>,
    retry_after: Option<Duration>,
    usage: Vec<Usage>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure with its public message.
    pub fn new(kind: FailureKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into(), retry_after: None, usage: Vec::new(), source: None }
    }

    /// Adds the internal cause, which only the log sees.
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds how long the other side asked to be left alone.
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Adds what the run had used before it failed.
    pub fn with_usage(mut self, usage: Vec<Usage>) -> Self {
        self.usage = usage;
        self
    }

    /// What the run had used before it failed, a member for each model.
    pub fn usage(&self) -> &[Usage] {
        &self.usage
    }

    /// What the caller may do about it.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The public message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How long the other side asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("kind", &self.kind)
            .field("message", &self.message)
            .field("retry_after", &self.retry_after)
            .field("source", &self.source)
            .finish()
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
