//! Errors of the libraries as HTTP errors.

use std::error::Error;
use std::time::Duration;

use agent_core::error::AgentError;
use agent_platform::history::FieldError;
use agent_platform::job_request::JobRequestError;
use agent_platform::records::StoreError;

use super::{Code, HttpError, RatePolicy, STORE_RETRY_AFTER};

/// `Retry-After` of a response of a process that stops. Another process answers at once, or this one's successor soon. A
/// scheduler that delivers a job again after it counts no attempt.
const SHUTDOWN_RETRY_AFTER: Duration = Duration::from_secs(2);

/// Converts the error of a run that failed before its stream began. Its message is public; its source is logged.
impl From<AgentError> for HttpError {
    fn from(failure: AgentError) -> Self {
        let code = Code::from_wire(failure.kind().code()).unwrap_or(Code::Internal);
        let error = Self::new(code, failure.message().to_owned());
        let default_retry_after = match code {
            Code::StoreUnavailable => Some(STORE_RETRY_AFTER),
            Code::ServerShuttingDown => Some(SHUTDOWN_RETRY_AFTER),
            _ => None,
        };
        let retry_after = failure.retry_after().or(default_retry_after);
        let error = retry_after.into_iter().fold(error, Self::with_retry_after);
        let policy = RatePolicy::from_budget(&failure);
        let error = policy.into_iter().fold(error, Self::with_policy);
        let members = failure.members().iter().cloned();
        let error = members.fold(error, |error, (name, value)| error.with_member(name, value));
        if failure.source().is_some() { error.with_source(failure) } else { error }
    }
}

/// Returns the reason why the store is unavailable, in the store's own words, for responses to operators; `None` for
/// other errors. The errors of our stores contain neither values nor keys.
pub(crate) fn unavailable_reason(error: &StoreError) -> Option<String> {
    let StoreError::Unavailable(fault) = error else { return None };
    Some(format!("the store is unavailable: {fault}"))
}

/// Exposes the errors that a client may have caused; all others become 500 or 503.
impl From<StoreError> for HttpError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => {
                Self::conflict("concurrent modification: the resource has changed").with_source(error)
            }
            StoreError::Invalid(fault) => Self::new(Code::InvalidRequest, fault),
            StoreError::TooLarge { .. } => Self::new(Code::PayloadTooLarge, error.to_string()),
            StoreError::NotConfigured(_) => Self::new(Code::NotConfigured, error.to_string()),
            StoreError::Unavailable(_) => Self::store_unavailable(error),
            error => Self::internal(error),
        }
    }
}

impl From<JobRequestError> for HttpError {
    fn from(error: JobRequestError) -> Self {
        match error {
            JobRequestError::Member { member, fault } => Self::invalid(member, fault),
            error => Self::new(Code::InvalidRequest, error.to_string()),
        }
    }
}

impl From<FieldError> for HttpError {
    fn from(error: FieldError) -> Self {
        let invalid = Self::new(Code::InvalidRequest, error.to_string());
        if error.path.is_empty() { invalid } else { invalid.with_param(error.path) }
    }
}
