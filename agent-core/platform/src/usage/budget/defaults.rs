//! Default limits of companies and runs, for which nothing is committed before a run or a call begins in the ordinary case.
//!
//! Runs per minute are counted as those of users are ([`MinuteRateLimiter`]): over all processes, exactly from half of the
//! limit on. A run that a commit of the budgets admits is counted by the same commit. One that is refused later, or is not
//! stored, is refunded.
//!
//! Of the concurrent runs of a company, each process admits an eighth of the limit without a commit. The run beyond them is
//! admitted as by a budget, by a reservation in the store; what all processes reserve is at most the limit without one eighth.
//! So one process admits exactly as many runs as the limit, and each further process at most another eighth of it.
//!
//! The tool calls of a run are counted in the process. The count is exact if the process of the run calls the tools; the
//! calls of runtimes and workflows may reach several processes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;
use agent_core::store_error::StoreError;
use jiff::Timestamp;

use super::super::RunScope;
use super::demand::AppliedLimit;
use super::meter::{LimitStatus, METERS};
use super::{BudgetExceededError, BudgetKind, BudgetLimit, BudgetTimeZone, BudgetUnit, BudgetWindow};
use crate::company_table::{CompanyTable, CompanyTableLimits};
use crate::minute_rate::{RateLimitError, end_of_wait};
use crate::records::Collection;
use crate::user_rates::{AdmittedCompanyRun, CountedCompanyRun, MinuteRateLimiter, UncountedRun};

/// Maximum numbers of runs in memory whose tool calls are counted: those that called a tool last.
const RUN_LIMITS: CompanyTableLimits = CompanyTableLimits { total: 20_000, per_company: 5_000 };

/// Divisor of the limit on concurrent runs: a process admits one part in this many without a commit.
const UNSHARED_DIVISOR: u32 = 8;

/// Limits that hold where a company's budget, or the budget of an agent's runs, has none of the same unit and window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefaultLimits {
    /// Maximum number of runs of a company per minute.
    pub company_runs_per_minute: Option<NonZeroU32>,
    /// Maximum number of runs of a company at one time. Each process in addition to the first may admit another eighth of it.
    pub company_concurrent_runs: Option<NonZeroU32>,
    /// Maximum number of tool calls of a run.
    pub run_tool_calls: Option<NonZeroU32>,
}

impl DefaultLimits {
    /// Returns the limit on a company's runs per minute, unless one of the given limits replaces it.
    fn runs_per_minute(&self, limits: &[(BudgetKind, BudgetLimit)]) -> Option<NonZeroU32> {
        let window = Some(BudgetWindow::Minute);
        self.company_runs_per_minute
            .filter(|_| !replaces(limits, BudgetKind::Company, BudgetUnit::Runs, window))
    }

    fn concurrent_runs(&self, limits: &[(BudgetKind, BudgetLimit)]) -> Option<NonZeroU32> {
        let unit = BudgetUnit::ConcurrentRuns;
        self.company_concurrent_runs.filter(|_| !replaces(limits, BudgetKind::Company, unit, None))
    }

    fn tool_calls(&self, limits: &[(BudgetKind, BudgetLimit)]) -> Option<NonZeroU32> {
        let window = Some(BudgetWindow::Run);
        self.run_tool_calls.filter(|_| !replaces(limits, BudgetKind::Run, BudgetUnit::ToolCalls, window))
    }
}

fn replaces(
    limits: &[(BudgetKind, BudgetLimit)],
    kind: BudgetKind,
    unit: BudgetUnit,
    window: Option<BudgetWindow>,
) -> bool {
    limits.iter().any(|(of, limit)| *of == kind && limit.unit == unit && limit.window == window)
}

/// Returns limits with the kinds of their subjects.
pub(super) fn kinds(applied: &[AppliedLimit]) -> Vec<(BudgetKind, BudgetLimit)> {
    applied.iter().map(|applied| (applied.kind, applied.limit)).collect()
}

/// Numbers of a company's runs in progress in this process.
#[derive(Debug, Clone, Copy, Default)]
struct LocalRuns {
    total: u32,
    /// Number of those that were admitted without a commit.
    unshared: u32,
}

/// Admission of a run by the default limits.
#[derive(Default)]
pub(super) struct DefaultAdmission {
    /// Counts the run in this process until it is dropped.
    pub(super) slot: Option<RunSlot>,
    /// Limit by which the store admits the run once the process's share for runs without a commit is used.
    pub(super) shared: Option<AppliedLimit>,
    /// The run, if it is counted per minute.
    pub(super) counted: Option<CountedCompanyRun>,
    /// The run, if the commit that admits it is to count it per minute.
    pub(super) uncounted: Option<UncountedRun>,
}

/// Meters of the default limits.
pub(super) struct DefaultMeters {
    limits: DefaultLimits,
    rates: MinuteRateLimiter,
    /// Numbers of the runs in progress; companies without one are absent.
    runs: Mutex<HashMap<CompanyId, LocalRuns>>,
    /// Numbers of the tool calls of runs, by their [keys](RunScope::run_key).
    tool_calls: Mutex<CompanyTable<String, u32>>,
}

impl DefaultMeters {
    pub(super) fn new(limits: DefaultLimits, rates: MinuteRateLimiter) -> Self {
        let tool_calls = Mutex::new(CompanyTable::new(RUN_LIMITS));
        Self { limits, rates, runs: Mutex::default(), tool_calls }
    }

    /// Locks the numbers of runs. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock_runs(&self) -> MutexGuard<'_, HashMap<CompanyId, LocalRuns>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a run of a company to which the given limits of budgets apply. It is counted per minute if `counts` is true.
    ///
    /// # Errors
    /// A default limit is reached.
    pub(super) async fn admit_run(
        self: &Arc<Self>,
        company_id: &CompanyId,
        (budget_limits, zone): (&[(BudgetKind, BudgetLimit)], &BudgetTimeZone),
        (now, counts): (Timestamp, bool),
    ) -> Result<DefaultAdmission, BudgetExceededError> {
        let slot = match self.limits.concurrent_runs(budget_limits) {
            Some(max_runs) => Some(self.begin_run(company_id, max_runs, now)?),
            None => None,
        };
        let is_shared = slot.as_ref().is_some_and(|slot| slot.is_shared);
        let shared = if is_shared { self.shared_limit(company_id, (budget_limits, zone)) } else { None };
        let is_committed =
            shared.is_some() || budget_limits.iter().any(|(_, limit)| limit.unit != BudgetUnit::WallMs);
        let (mut counted, mut uncounted) = (None, None);
        if let Some(per_minute) = self.limits.runs_per_minute(budget_limits).filter(|_| counts) {
            let admitted = match is_committed {
                true => self.rates.begin_company_run(company_id, per_minute),
                false => self
                    .rates
                    .count_company_run(company_id, per_minute)
                    .await
                    .map(AdmittedCompanyRun::Counted),
            };
            match admitted.map_err(|error| minute_refusal(per_minute, error, now))? {
                AdmittedCompanyRun::Counted(run) => counted = Some(run),
                AdmittedCompanyRun::Uncounted(run) => uncounted = Some(run),
            }
        }
        Ok(DefaultAdmission { slot, shared, counted, uncounted })
    }

    /// Counts a run of a company per minute in this process alone, since the commit that was to count it has failed.
    ///
    /// # Errors
    /// The limit is reached.
    pub(super) fn count_run_alone(
        &self,
        company_id: &CompanyId,
        per_minute: NonZeroU32,
        now: Timestamp,
    ) -> Result<CountedCompanyRun, BudgetExceededError> {
        let counted = self.rates.count_company_run_alone(company_id, per_minute);
        counted.map_err(|error| minute_refusal(per_minute, error, now))
    }

    /// Returns the limit on the runs of a company that are reserved in the store; `None` if there is none, or if the company's id
    /// cannot be a key, so that each process counts by itself.
    pub(super) fn shared_limit(
        &self,
        company_id: &CompanyId,
        (budget_limits, zone): (&[(BudgetKind, BudgetLimit)], &BudgetTimeZone),
    ) -> Option<AppliedLimit> {
        let most = self.limits.concurrent_runs(budget_limits)?;
        let (kind, limit) = concurrent_limit(most.get().into());
        let applied = AppliedLimit::new(kind, company_id.as_str(), limit, zone);
        // Not the meter of a budget's limit, which begins without the runs that are in progress when it is set.
        let meter = format!("{}/default/{}/{company_id}", limit.unit.as_str(), kind.as_str());
        let meters = Collection::of_platform(METERS).and_then(|meters| meters.within(company_id)).ok()?;
        meters.key(meter.clone()).ok()?;
        Some(AppliedLimit { meter, kept_back: (most.get() / UNSHARED_DIVISOR).into(), ..applied })
    }

    fn begin_run(
        self: &Arc<Self>,
        company_id: &CompanyId,
        most: NonZeroU32,
        now: Timestamp,
    ) -> Result<RunSlot, BudgetExceededError> {
        let mut runs = self.lock_runs();
        let counts = runs.entry(company_id.clone()).or_default();
        if counts.total >= most.get() {
            let (kind, limit) = concurrent_limit(most.get().into());
            let reserved = counts.total.into();
            return Err(BudgetExceededError { reserved, ..BudgetExceededError::new(kind, limit, now) });
        }
        let is_shared = counts.unshared >= most.get() / UNSHARED_DIVISOR;
        counts.total += 1;
        counts.unshared += u32::from(!is_shared);
        Ok(RunSlot { meters: self.clone(), company_id: company_id.clone(), is_shared })
    }

    /// Admits a tool call of a run to which the given limits of budgets apply. Calls outside of runs are not limited.
    ///
    /// # Errors
    /// The limit is reached.
    pub(super) fn admit_tool_call(
        &self,
        scope: &RunScope,
        budget_limits: &[(BudgetKind, BudgetLimit)],
        now: Timestamp,
    ) -> Result<(), BudgetExceededError> {
        let Some(max_calls) = self.limits.tool_calls(budget_limits).filter(|_| !scope.run_id.is_empty())
        else {
            return Ok(());
        };
        let mut runs = self.tool_calls.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.use_or_insert_with(&scope.company_id, scope.run_key(), || 0);
        if *count >= max_calls.get() {
            let (kind, limit) = tool_call_limit(max_calls.get().into());
            let used = (*count).into();
            return Err(BudgetExceededError { used, ..BudgetExceededError::new(kind, limit, now) });
        }
        *count += 1;
        Ok(())
    }

    /// Returns the default limits that the given limits of budgets do not replace, with their state. `shared_runs` is the number
    /// of runs that are reserved in the store.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn status(
        &self,
        company_id: &CompanyId,
        (budget_limits, shared_runs): (&[(BudgetKind, BudgetLimit)], i64),
        now: Timestamp,
    ) -> Result<Vec<(BudgetKind, LimitStatus)>, StoreError> {
        let mut found = Vec::new();
        let mut add = |(kind, limit), used, reserved, resets_at| {
            found.push((kind, LimitStatus { limit, used, reserved, resets_at }));
        };
        if let Some(per_minute) = self.limits.runs_per_minute(budget_limits) {
            let state = self.rates.company_state(company_id, per_minute).await?;
            let resets_at = Some(state.resets_at(now));
            add(company_limit(per_minute.get().into()), state.used.into(), 0, resets_at);
        }
        if let Some(limit) = self.limits.concurrent_runs(budget_limits) {
            let unshared = self.lock_runs().get(company_id).map_or(0, |counts| counts.unshared);
            add(concurrent_limit(limit.get().into()), 0, shared_runs + i64::from(unshared), None);
        }
        if let Some(limit) = self.limits.tool_calls(budget_limits) {
            add(tool_call_limit(limit.get().into()), 0, 0, None);
        }
        Ok(found)
    }
}

/// Limit with the kind of its subject.
type LimitOfKind = (BudgetKind, BudgetLimit);

fn company_limit(amount: i64) -> LimitOfKind {
    let window = Some(BudgetWindow::Minute);
    (BudgetKind::Company, BudgetLimit { unit: BudgetUnit::Runs, amount, window, warn_at: None })
}

/// Returns the refusal of a run beyond the limit on a company's runs per minute.
pub(super) fn minute_refusal(
    per_minute: NonZeroU32,
    error: RateLimitError,
    now: Timestamp,
) -> BudgetExceededError {
    let amount = i64::from(per_minute.get());
    let resets_at = Some(end_of_wait(now, error.retry_after));
    let (kind, limit) = company_limit(amount);
    BudgetExceededError { used: amount, resets_at, ..BudgetExceededError::new(kind, limit, now) }
}

fn concurrent_limit(amount: i64) -> LimitOfKind {
    let unit = BudgetUnit::ConcurrentRuns;
    (BudgetKind::Company, BudgetLimit { unit, amount, window: None, warn_at: None })
}

fn tool_call_limit(amount: i64) -> LimitOfKind {
    let window = Some(BudgetWindow::Run);
    (BudgetKind::Run, BudgetLimit { unit: BudgetUnit::ToolCalls, amount, window, warn_at: None })
}

/// A run in progress. It counts towards the company's runs in this process until it is dropped.
pub(in crate::usage) struct RunSlot {
    meters: Arc<DefaultMeters>,
    company_id: CompanyId,
    /// True if the store admits the run.
    is_shared: bool,
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        let mut runs = self.meters.lock_runs();
        if let Entry::Occupied(mut entry) = runs.entry(self.company_id.clone()) {
            let counts = entry.get_mut();
            counts.total = counts.total.saturating_sub(1);
            counts.unshared = counts.unshared.saturating_sub(u32::from(!self.is_shared));
            if counts.total == 0 {
                entry.remove();
            }
        }
    }
}
