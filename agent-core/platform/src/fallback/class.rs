//! Classes of failures, and the parts of a provider's error that decide them.

use std::error::Error;
use std::fmt;

use agent_core::error::{AgentError, AgentErrorKind};

use crate::usage::BudgetExceededError;

/// Codes of an account whose quota is spent, or that is not paid for. Some vendors send them with the status of a rate limit,
/// which waiting does not end.
const UNPAID_CODES: [&str; 9] = [
    "ACCOUNT_REFUSED",
    "insufficient_quota",
    "insufficient_user_quota",
    "insufficient_balance",
    "insufficient_credits",
    "exceeded_current_quota_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
];
/// Other codes of an account that may not make the request, or of a service without the settings for it.
const ACCOUNT_CODES: [&str; 12] = [
    "NOT_CONFIGURED",
    "PROVIDER_NOT_IMPLEMENTED",
    "UNKNOWN_PROVIDER",
    "invalid_api_key",
    "model_not_found",
    "model_not_supported",
    "model_decommissioned",
    "invalid_model",
    "usage_not_included",
    "deactivated_workspace",
    "authentication_error",
    "unauthorized",
];
/// Codes of a refusal by the provider's filter.
const CONTENT_CODES: [&str; 6] = [
    "content_filter",
    "content_policy_violation",
    "invalid_prompt",
    "cyber_policy",
    "bio_policy",
    "data_inspection_failed",
];
/// Codes of a prompt beyond the context window.
const SIZE_CODES: [&str; 3] = ["context_length_exceeded", "exceed_context_size_error", "request_too_large"];
/// Codes of a model without a capability that the request needs, whatever the status.
const UNSUPPORTED_CODES: [&str; 1] = [UpstreamError::UNSUPPORTED_CODE];
/// Codes of a model or an endpoint that the account does not have, where no status says so.
const UNKNOWN_MODEL_CODES: [&str; 1] = ["not_found_error"];
/// Codes of an agent runtime that fails or restarts, and of an answer that the provider has rejected since the model has written a
/// tool call or JSON wrongly: another one may be right.
const TRANSIENT_CODES: [&str; 4] =
    ["INTERNAL", "SERVER_SHUTTING_DOWN", "tool_use_failed", "json_validate_failed"];
/// Beginnings of the codes of a rate limit.
const RATE_LIMIT_PREFIXES: [&str; 2] = ["rate_limit", "overloaded"];

/// Class of a failed model call, which decides on its retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// The provider is unreachable, failed, or sent no content in time. The same call may succeed.
    Transient,
    /// The provider limits the rate. The same call may succeed after the time that it names.
    RateLimit,
    /// The account may not make the call: credentials, payment, permission, or an unknown model.
    Account,
    /// The prompt exceeds the context window.
    Size,
    /// The model, or the account, does not have what the request needs, such as tools. Other requests may succeed.
    Unsupported,
    /// The provider's filter refused the content.
    Content,
    /// The request is invalid, or this platform refused it.
    Request,
}

impl FailureClass {
    /// Returns the class of an error of a model call before its first content.
    pub fn of(error: &AgentError) -> Self {
        let upstream = UpstreamError::find(error);
        match error.kind() {
            AgentErrorKind::ContextExceeded => Self::Size,
            AgentErrorKind::AccountRefused => Self::Account,
            AgentErrorKind::Unreachable | AgentErrorKind::Timeout | AgentErrorKind::Truncated => {
                Self::Transient
            }
            AgentErrorKind::Failed => upstream.map_or(Self::Transient, |error| error.class(Self::Transient)),
            AgentErrorKind::RateLimited if BudgetExceededError::find(error).is_some() => Self::Request,
            AgentErrorKind::RateLimited => {
                upstream.map_or(Self::RateLimit, |error| error.class(Self::RateLimit))
            }
            // Only another service's: this platform's own refusals are final.
            AgentErrorKind::Internal
            | AgentErrorKind::NotConfigured
            | AgentErrorKind::ProviderNotImplemented
            | AgentErrorKind::ShuttingDown
            | AgentErrorKind::UnknownProvider => {
                upstream.map_or(Self::Request, |error| error.class(Self::Request))
            }
            AgentErrorKind::InvalidRequest if upstream.is_some_and(|error| error.status == Some(413)) => {
                Self::Size
            }
            _ => Self::Request,
        }
    }

    /// Returns true if the provider works, and refused this request's demands on the model.
    pub(super) fn is_of_request(self) -> bool {
        matches!(self, Self::Size | Self::Unsupported | Self::Content | Self::Request)
    }
}

/// Returns true for an error of this platform that refused a call before it was made.
pub(super) fn is_own_refusal(error: &AgentError) -> bool {
    let is_of_budget = BudgetExceededError::find(error).is_some();
    let is_own_kind = matches!(
        error.kind(),
        AgentErrorKind::Blocked
            | AgentErrorKind::BudgetExceeded
            | AgentErrorKind::PriceUnknown
            | AgentErrorKind::StoreUnavailable
    );
    // Another service of the platform may have sent one of these kinds.
    (is_of_budget || is_own_kind) && UpstreamError::find(error).is_none()
}

/// Error of a provider: status and codes, without its text. It is the source of an [`AgentError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamError {
    status: Option<u16>,
    codes: Vec<String>,
    description: String,
}

impl UpstreamError {
    /// Code for a model without a capability that the request needs, if a provider reports this only in its error text.
    pub const UNSUPPORTED_CODE: &str = "unsupported_capability";

    /// Creates an error with the status of the response, if it was unsuccessful, and the type and code in its body.
    pub fn new<'a>(
        status: Option<u16>,
        codes: impl IntoIterator<Item = &'a str>,
        description: impl Into<String>,
    ) -> Self {
        let codes = codes.into_iter().map(str::to_owned).collect();
        Self { status, codes, description: description.into() }
    }

    /// Returns the provider's error among the sources of an error.
    pub fn find(error: &AgentError) -> Option<&Self> {
        std::iter::successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
    }

    /// Returns the status: that of the response, or a number of that kind as the code of an error within it.
    pub fn status(&self) -> Option<u16> {
        let is_error = |status: &u16| (400..600).contains(status);
        let in_codes = || self.codes.iter().filter_map(|code| code.parse().ok()).find(is_error);
        self.status.or_else(in_codes)
    }

    /// Returns true if the provider refuses the account because its quota is spent, or because it is not paid for.
    pub fn is_unpaid(&self) -> bool {
        self.status() == Some(402) || self.has_code(&UNPAID_CODES)
    }

    fn has_code(&self, known: &[&str]) -> bool {
        self.codes.iter().any(|code| known.contains(&code.as_str()))
    }

    fn class(&self, default: FailureClass) -> FailureClass {
        let has = |known: &[&str]| self.has_code(known);
        let begins = |prefix: &&str| self.codes.iter().any(|code| code.starts_with(*prefix));
        if self.is_unpaid() || has(&ACCOUNT_CODES) || begins(&"permission") {
            return FailureClass::Account;
        }
        if has(&SIZE_CODES) {
            return FailureClass::Size;
        }
        if has(&UNSUPPORTED_CODES) {
            return FailureClass::Unsupported;
        }
        if has(&CONTENT_CODES) {
            return FailureClass::Content;
        }
        if has(&TRANSIENT_CODES) {
            return FailureClass::Transient;
        }
        match self.status() {
            // A redirect is not followed: the address is wrong.
            Some(300..400 | 401..=404) => FailureClass::Account,
            // 424 is a failed generation at Text Generation Inference, and 498 a lack of capacity at Groq.
            Some(408 | 424 | 498 | 500..) => FailureClass::Transient,
            // Groq: the prompt exceeds the account's tokens a minute, and not the window of the model.
            Some(413) if RATE_LIMIT_PREFIXES.iter().any(begins) => FailureClass::Unsupported,
            Some(413) => FailureClass::Size,
            Some(429) => FailureClass::RateLimit,
            Some(400..500) => FailureClass::Request,
            _ if RATE_LIMIT_PREFIXES.iter().any(begins) => FailureClass::RateLimit,
            _ if has(&UNKNOWN_MODEL_CODES) => FailureClass::Account,
            _ => default,
        }
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description)
    }
}

impl Error for UpstreamError {}
