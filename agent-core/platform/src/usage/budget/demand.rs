//! Amounts that runs and calls need of the limits that apply to them.

use agent_core::ids::{AgentId, UserId};
use jiff::Timestamp;

use super::super::{ModelPrice, RunScope, TokenPrices, UsageFilter, UsageQuery, UsageSums};
use super::meter::MeterState;
use super::{BudgetExceededError, BudgetKind, BudgetLimit, BudgetTimeZone, BudgetUnit, BudgetWindow};
use crate::ids::WIDGET_USER_PREFIX;

/// Numbers of output tokens that a request can be admitted with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OutputRange {
    pub(super) requested: u64,
    pub(super) minimum: u64,
}

/// Minimum number of output tokens that a call of a model is admitted with, if it requests as many or more.
const MIN_OUTPUT_TOKENS: u64 = 256;

/// Limit that applies to a run, with the id of its meter.
#[derive(Debug, Clone)]
pub(super) struct AppliedLimit {
    pub(super) kind: BudgetKind,
    pub(super) subject: String,
    pub(super) limit: BudgetLimit,
    /// Zone of the company.
    pub(super) zone: BudgetTimeZone,
    pub(super) meter: String,
    /// Part of the amount that processes use without the meter.
    pub(super) kept_back: i64,
}

impl AppliedLimit {
    pub(super) fn new(kind: BudgetKind, subject: &str, limit: BudgetLimit, zone: &BudgetTimeZone) -> Self {
        let meter = meter_id(kind, &limit, subject);
        Self { kind, subject: subject.to_owned(), limit, zone: zone.clone(), meter, kept_back: 0 }
    }

    /// Creates the limit of a run.
    pub(super) fn of_run(scope: &RunScope, limit: BudgetLimit, zone: &BudgetTimeZone) -> Self {
        let meter = meter_id(BudgetKind::Run, &limit, &scope.run_key());
        Self { meter, ..Self::new(BudgetKind::Run, &scope.run_id, limit, zone) }
    }

    /// Returns the query of the ledger's entries on the days (UTC) of the current window; `None` if the ledger has no such
    /// entries.
    pub(super) fn ledger_query(&self, now: Timestamp) -> Option<UsageQuery> {
        let (from, to) = self.zone.utc_days(self.limit.window, now)?;
        let mut filter = UsageFilter { from, to, agent: None, user: None };
        match self.kind {
            BudgetKind::Company => {}
            BudgetKind::Agent => filter.agent = Some(AgentId::from(self.subject.as_str())),
            BudgetKind::User => filter.user = Some(UserId::from(self.subject.as_str())),
            BudgetKind::Token => {
                filter.user = Some(UserId::from(format!("{WIDGET_USER_PREFIX}{}", self.subject)));
            }
            BudgetKind::Run => return None,
        }
        Some(UsageQuery { filter, group_by: Vec::new(), after: None, limit: 1 })
    }

    /// Returns the amount that is left in a state of the meter.
    pub(super) fn remaining(&self, meter: &MeterState) -> i64 {
        meter.remaining(&self.limit).saturating_sub(self.kept_back)
    }

    /// Returns the error of a request that the limit does not admit in a state of its meter.
    pub(super) fn exceeded(&self, meter: &MeterState, now: Timestamp) -> BudgetExceededError {
        BudgetExceededError {
            used: meter.total_used(),
            reserved: meter.reserved.saturating_add(self.kept_back),
            resets_at: meter.resets_at(self.limit.window, &self.zone),
            ..BudgetExceededError::new(self.kind, self.limit, now)
        }
    }

    /// Returns the amount of the limit's unit in sums of the ledger.
    pub(super) fn amount_of(&self, sums: &UsageSums) -> i64 {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        match self.limit.unit {
            BudgetUnit::Cost => sums.cost.get(),
            BudgetUnit::Tokens => number(sums.tokens.input_tokens.saturating_add(sums.tokens.output_tokens)),
            BudgetUnit::Runs => number(sums.runs),
            BudgetUnit::ToolCalls => number(sums.tool_calls),
            BudgetUnit::ConcurrentRuns | BudgetUnit::WallMs => 0,
        }
    }
}

fn meter_id(kind: BudgetKind, limit: &BudgetLimit, subject: &str) -> String {
    let window = limit.window.map_or("", BudgetWindow::as_str);
    format!("{}/{window}/{}/{subject}", limit.unit.as_str(), kind.as_str())
}

/// Amount of a limit that a request needs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Demand {
    /// One run or tool call.
    One,
    Tokens {
        input: u64,
    },
    Cost {
        input: u64,
        prices: TokenPrices,
    },
}

impl Demand {
    /// Returns the amount with a number of output tokens.
    pub(super) fn amount(&self, output: u64) -> i64 {
        match self {
            Self::One => 1,
            Self::Tokens { input } => i64::try_from(input.saturating_add(output)).unwrap_or(i64::MAX),
            Self::Cost { input, prices } => prices.cost(&prices.max_cost_counts(*input, output)).get(),
        }
    }

    /// Returns the largest number of output tokens in a range for which an amount suffices. It must suffice for the minimum.
    pub(super) fn max_output(&self, remaining: i64, range: OutputRange) -> u64 {
        let (mut fits, mut exceeds) = (range.minimum, range.requested.saturating_add(1));
        while exceeds.saturating_sub(fits) > 1 {
            let middle = fits + (exceeds - fits) / 2;
            match self.amount(middle) <= remaining {
                true => fits = middle,
                false => exceeds = middle,
            }
        }
        fits
    }
}

/// Call of a model that is about to begin.
#[derive(Debug, Clone)]
pub(in crate::usage) struct CallDemand {
    /// Provider of the model.
    pub(in crate::usage) provider: String,
    /// Model.
    pub(in crate::usage) model: String,
    /// Tokens of the prompt by the platform's count.
    pub(in crate::usage) prompt_tokens: u64,
    /// Limit on the answer.
    pub(in crate::usage) output_tokens: u64,
    /// Price of the model, if it is known.
    pub(in crate::usage) price: Option<ModelPrice>,
}

impl CallDemand {
    pub(super) fn output_range(&self, can_shrink: bool) -> OutputRange {
        let requested = self.output_tokens;
        OutputRange {
            requested,
            minimum: if can_shrink { requested.min(MIN_OUTPUT_TOKENS) } else { requested },
        }
    }

    /// Returns the input to reserve for: the platform's count of tokens may be a few percent below the provider's.
    pub(super) fn input_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.prompt_tokens.div_ceil(20))
    }
}
