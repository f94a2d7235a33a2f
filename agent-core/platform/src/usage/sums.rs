//! Sums of the ledger's entries by day.

use std::collections::BTreeMap;

use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_core::tool::Caller;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{NanoUsd, TokenCounts, UsageEntry, UsageOperation};

/// Key of a day's sums. Days are in UTC.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DayKey {
    /// The company.
    pub company_id: CompanyId,
    /// Date of the calls' ends.
    pub day: Date,
    /// The agent.
    pub agent_id: AgentId,
    /// The user.
    pub user_id: UserId,
    /// Name of the kind of caller.
    pub caller: &'static str,
    /// Provider of the model.
    pub provider: String,
    /// Model.
    pub model: String,
    /// Kind of work.
    pub operation: UsageOperation,
}

impl DayKey {
    /// Returns the key of the sums that an entry is part of.
    pub fn of(entry: &UsageEntry) -> Self {
        Self {
            company_id: entry.scope.company_id.clone(),
            day: TimeZone::UTC.to_datetime(entry.ended_at).date(),
            agent_id: entry.scope.agent_id.clone(),
            user_id: entry.scope.user_id.clone(),
            caller: caller_name(entry.scope.caller),
            provider: entry.provider.clone(),
            model: entry.model.clone(),
            operation: entry.operation,
        }
    }
}

/// Returns the name of a kind of caller.
pub(super) fn caller_name(caller: Caller) -> &'static str {
    match caller {
        Caller::Session => "session",
        Caller::Legacy => "legacy",
        Caller::Widget => "widget",
        Caller::Proactive => "proactive",
        Caller::Api => "api",
        _ => "other",
    }
}

/// Sums of entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageSums {
    /// Runs whose first entry is among these.
    pub runs: u64,
    /// Calls of models.
    pub calls: u64,
    /// Tokens.
    pub tokens: TokenCounts,
    /// Tool calls.
    pub tool_calls: u64,
    /// Price of the calls whose price is known.
    pub cost: NanoUsd,
    /// Part of the price that is of estimated calls.
    pub estimated_cost: NanoUsd,
    /// Calls of models whose price is unknown.
    pub unpriced_calls: u64,
}

impl UsageSums {
    /// Returns the sums of one entry.
    pub fn of(entry: &UsageEntry, starts_run: bool) -> Self {
        let cost = entry.cost.unwrap_or_default();
        Self {
            runs: starts_run.into(),
            calls: entry.is_model_call().into(),
            tokens: entry.tokens,
            tool_calls: entry.tool_calls,
            cost,
            estimated_cost: if entry.estimated { cost } else { NanoUsd::ZERO },
            unpriced_calls: (entry.is_model_call() && entry.cost.is_none()).into(),
        }
    }

    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
        self.runs = self.runs.saturating_add(other.runs);
        self.calls = self.calls.saturating_add(other.calls);
        self.tokens.add(&other.tokens);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.cost = self.cost.plus(other.cost);
        self.estimated_cost = self.estimated_cost.plus(other.estimated_cost);
        self.unpriced_calls = self.unpriced_calls.saturating_add(other.unpriced_calls);
    }
}

/// Returns the sums that entries add to those of their days, in the order of the keys. Each entry comes with true if its
/// run had none before.
pub fn roll_up<'a>(entries: impl IntoIterator<Item = (&'a UsageEntry, bool)>) -> BTreeMap<DayKey, UsageSums> {
    let mut days: BTreeMap<DayKey, UsageSums> = BTreeMap::new();
    for (entry, starts_run) in entries {
        days.entry(DayKey::of(entry)).or_default().add(&UsageSums::of(entry, starts_run));
    }
    days
}

/// Returns the sums of all entries of one run.
pub fn sums_of(entries: &[UsageEntry]) -> UsageSums {
    let mut sums = UsageSums::default();
    for (position, entry) in entries.iter().enumerate() {
        sums.add(&UsageSums::of(entry, position == 0));
    }
    sums
}
