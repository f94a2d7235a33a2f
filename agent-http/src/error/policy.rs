//! [`RatePolicy`]: a limit of the service in errors.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use agent_core::error::AgentError;
use agent_platform::usage::BudgetExceededError;

/// Type of the problems of the service's own limits, by the same draft.
pub(super) const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

const MINUTE: Duration = Duration::from_secs(60);

/// Rate limit policy, as described by the IETF draft on rate limit headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RatePolicy {
    /// Name of the policy: lower-case words with hyphens.
    pub name: Cow<'static, str>,
    /// Maximum number of requests per window, or at one time.
    pub quota: u64,
    /// Length of the window; `None` for a limit on concurrent requests.
    pub window: Option<Duration>,
}

impl RatePolicy {
    /// Returns the policy of a budget's limit on a rate that refuses a run; `None` for another error. Budgets
    /// are not disclosed to visitors, so the error of a visitor's run does not contain the state of one.
    pub(super) fn from_budget(error: &AgentError) -> Option<Self> {
        let exceeded = BudgetExceededError::find(error)?;
        let is_disclosed = error.members().iter().any(|(name, _)| *name == "budget");
        let name = exceeded.policy_name().filter(|_| is_disclosed)?.into();
        let window = exceeded.window.map(|_| MINUTE);
        Some(Self { name, quota: exceeded.amount.unsigned_abs(), window })
    }
}

/// Writes the value of the header `RateLimit-Policy`.
impl fmt::Display for RatePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, quota, window } = self;
        write!(f, "\"{name}\";q={quota}")?;
        match window {
            Some(window) => write!(f, ";w={}", window.as_secs()),
            None => f.write_str(";qu=\"concurrent-requests\""),
        }
    }
}
