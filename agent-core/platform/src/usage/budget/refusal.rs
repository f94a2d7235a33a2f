//! [`BudgetExceededError`]: the limit that does not admit a request.

use std::error::Error;
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::Audience;
use agent_core::tool::Caller;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{BudgetKind, BudgetLimit, BudgetUnit, BudgetWindow};

/// Time after which a request beyond a limit on concurrent runs may be tried again.
const CONCURRENCY_RETRY: Duration = Duration::from_secs(5);

/// Limit that does not admit a request, with its state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct BudgetExceededError {
    /// Kind of the budget's subject.
    pub kind: BudgetKind,
    /// Unit of the amounts.
    pub unit: BudgetUnit,
    /// Period of the limit.
    pub window: Option<BudgetWindow>,
    /// The limit.
    pub amount: i64,
    /// The used amount.
    pub used: i64,
    /// The amount that is reserved for calls in progress.
    pub reserved: i64,
    /// End of the period, if it has one.
    pub resets_at: Option<Timestamp>,
    /// Time of the refusal.
    pub refused_at: Timestamp,
    /// True if the limit is one on a rate, which soon admits more.
    pub is_rate: bool,
}

impl BudgetExceededError {
    /// Creates the error of a limit without the state of its meter.
    pub(super) fn new(kind: BudgetKind, limit: BudgetLimit, refused_at: Timestamp) -> Self {
        let BudgetLimit { unit, amount, window, .. } = limit;
        let is_rate = limit.is_rate();
        Self { kind, unit, window, amount, used: 0, reserved: 0, resets_at: None, refused_at, is_rate }
    }

    /// Returns the refusal among the sources of an error.
    pub fn find(error: &AgentError) -> Option<&Self> {
        std::iter::successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref())
    }

    /// Returns the name of the limit as a policy on a rate, such as `company-minute` or `user-concurrent`; `None` if the limit
    /// is one on an amount to spend.
    pub fn policy_name(&self) -> Option<String> {
        let period = if self.unit == BudgetUnit::ConcurrentRuns { "concurrent" } else { "minute" };
        self.is_rate.then(|| format!("{}-{period}", self.kind.as_str()))
    }

    /// Returns the public message.
    fn message(&self) -> String {
        let subject = self.kind.as_str();
        let state = match self.used >= self.amount {
            true => "is spent",
            false => "has too little left for the request",
        };
        let unit = match self.unit {
            BudgetUnit::Cost => "cost",
            BudgetUnit::Tokens => "tokens",
            BudgetUnit::Runs => "runs",
            BudgetUnit::ConcurrentRuns => {
                return format!("the {subject} has reached its limit of concurrent runs");
            }
            BudgetUnit::ToolCalls => "tool calls",
            BudgetUnit::WallMs => "time",
        };
        match self.window {
            Some(BudgetWindow::Run) | None => format!("the run's budget of {unit} {state}"),
            Some(window) => {
                format!("the {subject}'s budget of {unit} for this {} {state}", window.as_str())
            }
        }
    }

    /// Returns the time until the limit may admit the request.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.unit == BudgetUnit::ConcurrentRuns {
            return Some(CONCURRENCY_RETRY);
        }
        let wait = self.resets_at?.duration_since(self.refused_at);
        Some(Duration::try_from(wait).unwrap_or_default())
    }

    /// Returns the limit and its state as they are sent.
    pub fn to_json(&self) -> Value {
        let amount = |amount| self.unit.amount_json(amount);
        let mut budget = json!({
            "kind": self.kind.as_str(),
            "unit": self.unit.as_str(),
            "amount": amount(self.amount),
            "used": amount(self.used),
            "reserved": amount(self.reserved),
        });
        if let Some(window) = self.window {
            budget["window"] = window.as_str().into();
        }
        if let Some(end) = self.resets_at {
            budget["resetsAt"] = format!("{end:.3}").into();
        }
        budget
    }

    /// Converts the refusal into the error of a run. The error for a visitor does not contain other callers' budgets.
    pub fn into_error(self, caller: Caller) -> AgentError {
        let kind = if self.is_rate { AgentErrorKind::RateLimited } else { AgentErrorKind::BudgetExceeded };
        let error = match caller.audience() {
            Audience::Visitor => AgentError::new(kind, "the limit of this chat is reached; try again later"),
            _ => AgentError::new(kind, self.message()).with_member("budget", self.to_json()),
        };
        let error = match self.retry_after() {
            Some(delay) => error.with_retry_after(delay),
            None => error,
        };
        error.with_source(self)
    }
}
