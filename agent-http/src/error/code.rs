//! Machine-readable error codes.

use std::fmt;

use http::StatusCode;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:ident;)*) => {
        /// Machine-readable error codes of problems. They are part of the wire contract: codes are added, never
        /// changed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All codes, in the order of their statuses.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the code as it is on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// Returns the HTTP status of a response with this code.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)*
                }
            }
        }
    };
}

codes! {
    /// The request, or a field of it, is malformed.
    InvalidRequest = "INVALID_REQUEST", BAD_REQUEST;
    /// The request has more than one explicit credential.
    AmbiguousCredentials = "AMBIGUOUS_CREDENTIALS", BAD_REQUEST;
    /// An OAuth endpoint refused a request; the member `error` has the reason, as in RFC 6749 and RFC 8628.
    OauthError = "OAUTH_ERROR", BAD_REQUEST;
    /// A field of OpenAI's API is not supported.
    UnsupportedParameter = "UNSUPPORTED_PARAMETER", BAD_REQUEST;
    /// The provider name is unknown.
    UnknownProvider = "UNKNOWN_PROVIDER", BAD_REQUEST;
    /// The request has no valid credential.
    Unauthenticated = "UNAUTHENTICATED", UNAUTHORIZED;
    /// A budget is spent; the member `budget` has its state. In a stream it is a `RUN_ERROR`.
    BudgetExceeded = "BUDGET_EXCEEDED", PAYMENT_REQUIRED;
    /// The credential does not permit the request.
    Forbidden = "FORBIDDEN", FORBIDDEN;
    /// The agent answers by the user's subscription, and the user has not signed in to it, or the sign-in has ended. In
    /// a stream it is a `RUN_ERROR`.
    SignInRequired = "SIGN_IN_REQUIRED", FORBIDDEN;
    /// The user's subscription does not permit the request. In a stream it is a `RUN_ERROR`.
    SubscriptionRefused = "SUBSCRIPTION_REFUSED", FORBIDDEN;
    /// The address policy blocks an outbound address.
    OutboundBlocked = "OUTBOUND_BLOCKED", FORBIDDEN;
    /// The resource does not exist, or belongs to another tenant.
    NotFound = "NOT_FOUND", NOT_FOUND;
    /// The path does not support the method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", METHOD_NOT_ALLOWED;
    /// None of the accepted media types is available.
    NotAcceptable = "NOT_ACCEPTABLE", NOT_ACCEPTABLE;
    /// The client did not send its body in time.
    RequestTimeout = "REQUEST_TIMEOUT", REQUEST_TIMEOUT;
    /// The request conflicts with the current state.
    Conflict = "CONFLICT", CONFLICT;
    /// Another run of the thread has not ended; the member `activeRunId` has its id.
    ThreadBusy = "THREAD_BUSY", CONFLICT;
    /// The thread waits for decisions about tool calls; the member `interrupts` has them.
    InterruptsOpen = "INTERRUPTS_OPEN", CONFLICT;
    /// The thread, a message of it or its owner has as many messages, alternatives or threads as the limit allows.
    ThreadFull = "THREAD_FULL", CONFLICT;
    /// The resource has existed and is gone: the caller may stop requesting it.
    Gone = "GONE", GONE;
    /// The time for the decision about a tool call is over.
    InterruptExpired = "INTERRUPT_EXPIRED", GONE;
    /// The run's events have been deleted; the thread has its messages.
    RunLogGone = "RUN_LOG_GONE", GONE;
    /// A precondition of the request, such as `If-Match`, does not hold.
    PreconditionFailed = "PRECONDITION_FAILED", PRECONDITION_FAILED;
    /// The body exceeds its limit.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", PAYLOAD_TOO_LARGE;
    /// The body's media type or encoding is not supported.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", UNSUPPORTED_MEDIA_TYPE;
    /// The request's `Host` is not one under which the console is served.
    MisdirectedRequest = "MISDIRECTED_REQUEST", MISDIRECTED_REQUEST;
    /// No backend can be selected for the agent.
    NoConnector = "NO_CONNECTOR", UNPROCESSABLE_ENTITY;
    /// The text of an uploaded document could not be extracted; the detail has the reason.
    ExtractionFailed = "EXTRACTION_FAILED", UNPROCESSABLE_ENTITY;
    /// A tool call was interrupted, its outcome is unknown, and it is not repeated.
    OutcomeUnknown = "OUTCOME_UNKNOWN", UNPROCESSABLE_ENTITY;
    /// The model does not support a part of the message.
    UnsupportedContent = "UNSUPPORTED_CONTENT", UNPROCESSABLE_ENTITY;
    /// The cost of calls is limited by a budget, and the price of the model is unknown. In a stream it is a `RUN_ERROR`.
    PriceUnknown = "PRICE_UNKNOWN", UNPROCESSABLE_ENTITY;
    /// A rate limit was reached, here or upstream.
    RateLimited = "RATE_LIMITED", TOO_MANY_REQUESTS;
    /// The thread's queue of waiting runs is full.
    QueueFull = "QUEUE_FULL", TOO_MANY_REQUESTS;
    /// Internal server error.
    Internal = "INTERNAL", INTERNAL_SERVER_ERROR;
    /// The provider is known, but not implemented.
    ProviderNotImplemented = "PROVIDER_NOT_IMPLEMENTED", NOT_IMPLEMENTED;
    /// The backend could not be reached.
    BackendUnreachable = "BACKEND_UNREACHABLE", BAD_GATEWAY;
    /// The backend returned an error or an invalid response.
    BackendFailed = "BACKEND_FAILED", BAD_GATEWAY;
    /// The provider refuses the account that pays for the model: its quota is spent, or it is not paid for. In a stream it is a
    /// `RUN_ERROR`.
    AccountRefused = "ACCOUNT_REFUSED", BAD_GATEWAY;
    /// The model kept calling tools up to the limit of rounds. In a stream it is a `RUN_ERROR`.
    ToolLoopLimit = "TOOL_LOOP_LIMIT", BAD_GATEWAY;
    /// The output of an answer or of the run exceeds its limit. In a stream it is a `RUN_ERROR`.
    OutputTooLarge = "OUTPUT_TOO_LARGE", BAD_GATEWAY;
    /// The answer of the model does not have the requested format. In a stream it is a `RUN_ERROR`.
    OutputInvalid = "OUTPUT_INVALID", BAD_GATEWAY;
    /// The model rejects the prompt, because it exceeds the model's context window. In a stream it is a `RUN_ERROR`.
    ContextLengthExceeded = "CONTEXT_LENGTH_EXCEEDED", BAD_GATEWAY;
    /// The backend's stream ended without its final event. In a stream it is a `RUN_ERROR`.
    StreamTruncated = "STREAM_TRUNCATED", BAD_GATEWAY;
    /// A setting that the endpoint requires is missing; the detail names it.
    NotConfigured = "NOT_CONFIGURED", SERVICE_UNAVAILABLE;
    /// The scheduler's address or secret is not configured.
    PulseNotConfigured = "PULSE_NOT_CONFIGURED", SERVICE_UNAVAILABLE;
    /// The store cannot be read or written: the disk is full, or the database does not answer. No part of the request
    /// was committed.
    StoreUnavailable = "STORE_UNAVAILABLE", SERVICE_UNAVAILABLE;
    /// The server shuts down before the request is answered. In a stream it is a `RUN_ERROR`.
    ServerShuttingDown = "SERVER_SHUTTING_DOWN", SERVICE_UNAVAILABLE;
    /// The backend did not answer in time.
    BackendTimeout = "BACKEND_TIMEOUT", GATEWAY_TIMEOUT;
}

impl Code {
    /// Returns the code for its text on the wire.
    #[must_use]
    pub fn from_wire(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == word)
    }

    /// Returns the problem's title: the status's reason phrase, as RFC 9457 requires of problems of type
    /// `about:blank`.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.status().canonical_reason().unwrap_or("Error")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
