//! [`Budgets`]: the budgets of all companies, and the admission of runs, calls of models and tool calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::{AgentId, CompanyId};
use agent_core::store_error::StoreError;
use agent_core::tool::ExecutionContext;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::super::{RunScope, UsageObserver, UsageStore};
use super::deadline::ExpireRun;
use super::defaults::{DefaultAdmission, DefaultLimits, DefaultMeters, RunSlot, kinds};
use super::demand::{AppliedLimit, CallDemand, Demand, OutputRange};
use super::error::{price_unknown, store_error};
use super::limit::Budget;
use super::meter::{LimitStatus, METERS, MeterState};
use super::reservation::RequestedCall;
use super::state::{
    Admission, AdmissionSubject, AdmittedRequest, BudgetError, BudgetOptions, BudgetState, PendingCounts,
    ReservationGuard, SettlementOutcome, budget_key,
};
use super::{BudgetExceededError, BudgetKind, BudgetTimeZone, BudgetUnit, Settlement};
use crate::company_table::{CompanyTable, CompanyTableLimits};
use crate::ids::WIDGET_USER_PREFIX;
use crate::records::{Collection, Key, Records, RecordsExt};
use crate::spawner::Spawner;
use crate::user_rates::{MinuteRateLimiter, UncountedRun};

/// Maximum numbers of runs whose latest refusal, or whose restart, is kept in memory.
const RUN_LIMITS: CompanyTableLimits = CompanyTableLimits { total: 10_000, per_company: 1_000 };

/// Units of the limits on calls of models.
const CALL_UNITS: [BudgetUnit; 2] = [BudgetUnit::Cost, BudgetUnit::Tokens];

/// The budgets of all companies. Clones share their state.
#[derive(Clone)]
pub struct Budgets {
    pub(super) state: Arc<BudgetState>,
    /// Default limits, if there are any.
    defaults: Option<Arc<DefaultMeters>>,
    observer: Option<Arc<dyn UsageObserver>>,
    /// The latest refusals of runs in this process, by the runs' [keys](RunScope::run_key).
    refusals: Arc<Mutex<CompanyTable<String, BudgetExceededError>>>,
    /// Runs in this process whose backend may start again, with the same key.
    restarts: Arc<Mutex<CompanyTable<String, ()>>>,
}

/// Budget of a subject with the state of its limits.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetStatus {
    /// Kind of the subject.
    pub kind: BudgetKind,
    /// Identifier of the subject.
    pub subject: String,
    /// The limits.
    pub limits: Vec<LimitStatus>,
}

/// Guard that counts a run towards the limits on concurrent runs until it is dropped.
pub(in crate::usage) type RunReservation = (Option<ReservationGuard>, Option<RunSlot>);

/// Admission of a run.
#[derive(Default)]
pub(in crate::usage) struct RunAdmission {
    /// Counts the run among the concurrent ones until it is dropped.
    pub(in crate::usage) reservation: RunReservation,
    /// End of the time that the run may take, and the function that returns its error then.
    pub(in crate::usage) deadline: Option<(BoxFuture<'static, ()>, ExpireRun)>,
    /// Counts that apply once the run is stored, or its first call is not refused.
    pub(in crate::usage) pending: PendingCounts,
    /// True if limits apply to the run's calls of models.
    pub(in crate::usage) has_call_limits: bool,
}

impl std::fmt::Debug for Budgets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budgets").finish_non_exhaustive()
    }
}

impl Budgets {
    /// Creates the budgets in `records`, with the ledger in `usage`. `spawner` runs the tasks that commit.
    pub fn new(
        records: Arc<dyn Records>,
        usage: Arc<dyn UsageStore>,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
        options: BudgetOptions,
    ) -> Self {
        let times = (options.lease, options.max_wait);
        let state = Arc::new(BudgetState::new(records, usage, (clock, spawner), times));
        let refusals = Arc::new(Mutex::new(CompanyTable::new(RUN_LIMITS)));
        let restarts = Arc::new(Mutex::new(CompanyTable::new(RUN_LIMITS)));
        Self { state, defaults: None, observer: None, refusals, restarts }
    }

    /// Adds limits for companies and runs whose budgets have none. `rates` counts the runs of companies.
    #[must_use]
    pub fn with_default_limits(self, limits: DefaultLimits, rates: MinuteRateLimiter) -> Self {
        Self { defaults: Some(Arc::new(DefaultMeters::new(limits, rates))), ..self }
    }

    /// Sets the receiver of refusals.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn UsageObserver>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Reports a refusal, and returns it as the error of a run.
    fn refuse(&self, refusal: BudgetExceededError, scope: &RunScope) -> AgentError {
        if let Some(observer) = &self.observer {
            observer.on_budget_refusal(refusal.kind.as_str(), refusal.unit.as_str());
        }
        if !scope.run_id.is_empty() {
            // No code panics while holding the lock, so the data behind a poisoned one is intact.
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            refusals.insert(&scope.company_id, scope.run_key(), refusal.clone());
        }
        refusal.into_error(scope.caller)
    }

    /// Removes and returns the latest refusal of a run or of one of its calls in this process, as the error of the run. Neither
    /// the events of a run nor the results of its tools say when a budget begins again.
    pub fn take_refusal(&self, context: &ExecutionContext) -> Option<AgentError> {
        let scope = RunScope::from(context);
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = refusals.remove(&scope.company_id, &scope.run_key())?;
        Some(refusal.into_error(scope.caller))
    }

    /// Records that the backend of a run, which counts, may start again with a shorter prompt.
    pub(in crate::usage) fn record_restart(&self, scope: &RunScope) {
        if !scope.run_id.is_empty() {
            let mut restarts = self.restarts.lock().unwrap_or_else(PoisonError::into_inner);
            restarts.insert(&scope.company_id, scope.run_key(), ());
        }
    }

    fn take_restart(&self, scope: &RunScope) -> bool {
        let mut restarts = self.restarts.lock().unwrap_or_else(PoisonError::into_inner);
        !restarts.is_empty() && restarts.remove(&scope.company_id, &scope.run_key()).is_some()
    }

    /// Returns the current time.
    pub(in crate::usage) fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// Returns the monotonic time.
    pub(in crate::usage) fn monotonic(&self) -> Instant {
        self.state.clock.monotonic()
    }

    /// Returns true for the reservation of a run of this process that is in progress, or is not stored yet.
    pub(in crate::usage) fn holds_run(&self, company_id: &CompanyId, id: &str) -> bool {
        self.state.active_reservations.contains(company_id, id)
    }

    /// Returns the state of a budget's limits. A budget of runs has none, since each run has its own.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn status(
        &self,
        company: &CompanyId,
        (kind, subject): (BudgetKind, &str),
        budget: &Budget,
    ) -> Result<BudgetStatus, StoreError> {
        let zone = self.state.zone(company).await?;
        let applied: Vec<AppliedLimit> =
            budget.limits.iter().map(|limit| AppliedLimit::new(kind, subject, *limit, &zone)).collect();
        let meters = Collection::of_platform(METERS)?.within(company)?;
        let keys =
            applied.iter().map(|limit| meters.key(limit.meter.clone())).collect::<Result<Vec<_>, _>>()?;
        let found = self.state.records.get_many_as::<MeterState>(&keys).await?;
        let now = self.state.now();
        let mut limits = Vec::with_capacity(applied.len());
        for (applied, found) in applied.iter().zip(found) {
            let window = applied.limit.window;
            let meter = match found {
                Some(found) => found.value.at(window, &zone, now),
                None => {
                    let used = self.state.used_before(company, applied, now).await?;
                    MeterState::beginning(&applied.limit, &zone, now, used)
                }
            };
            limits.push(LimitStatus {
                limit: applied.limit,
                used: meter.total_used(),
                reserved: meter.reserved,
                resets_at: meter.resets_at(window, &zone),
            });
        }
        Ok(BudgetStatus { kind, subject: subject.to_owned(), limits })
    }

    /// Returns the default limits of a company and of runs that the company's budget does not replace, with their state.
    /// Each run has a separate state, which is not among it.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn default_status(
        &self,
        company: &CompanyId,
    ) -> Result<Vec<(BudgetKind, LimitStatus)>, StoreError> {
        let Some(defaults) = &self.defaults else { return Ok(Vec::new()) };
        let found = self.get(company, BudgetKind::Company, company.as_str()).await?;
        let Budget { limits, timezone } = found.map(|found| found.value).unwrap_or_default();
        let company_limits: Vec<_> = limits.into_iter().map(|limit| (BudgetKind::Company, limit)).collect();
        let shared = defaults.shared_limit(company, (&company_limits, &timezone.unwrap_or_default()));
        let shared_runs = match shared {
            Some(shared) => {
                let key = Collection::of_platform(METERS)?.within(company)?.key(shared.meter)?;
                let found = self.state.records.get_as::<MeterState>(&key).await?;
                found.map_or(0, |found| found.value.reserved)
            }
            None => 0,
        };
        defaults.status(company, (&company_limits, shared_runs), self.state.now()).await
    }

    /// Returns true if the budget of a company, of an agent or of the agent's runs limits the cost, so that the prices of the
    /// agent's models must be known.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn limits_cost(&self, company: &CompanyId, agent: &AgentId) -> Result<bool, StoreError> {
        let subjects = [
            (BudgetKind::Company, company.as_str()),
            (BudgetKind::Agent, agent.as_str()),
            (BudgetKind::Run, agent.as_str()),
        ];
        // A subject whose id cannot be a key has no budget.
        let keys = subjects.into_iter().filter_map(|(kind, subject)| budget_key(company, kind, subject).ok());
        let found = self.state.records.get_many_as::<Budget>(&keys.collect::<Vec<_>>()).await?;
        Ok(found.iter().flatten().any(|found| found.value.limits_cost()))
    }

    /// Waits until all settlements are in the store.
    pub async fn flush(&self) {
        self.state.flush().await;
    }

    /// Returns the limits of some units that apply to a run, and the company's time zone.
    async fn limits(
        &self,
        scope: &RunScope,
        units: &[BudgetUnit],
    ) -> Result<(Vec<AppliedLimit>, BudgetTimeZone), StoreError> {
        let company = &scope.company_id;
        let user = scope.user_id.as_str();
        let of_user = match user.strip_prefix(WIDGET_USER_PREFIX) {
            Some(token) => (BudgetKind::Token, token),
            None => (BudgetKind::User, user),
        };
        let of_token = scope.token_id.as_deref().map(|token| (BudgetKind::Token, token));
        let agent = scope.agent_id.as_str();
        let subjects = [
            Some((BudgetKind::Company, company.as_str())),
            Some((BudgetKind::Agent, agent)),
            Some(of_user),
            of_token,
            // Calls outside of runs, as those of MCP clients are, have no limits of a run.
            Some((BudgetKind::Run, agent)).filter(|_| !scope.run_id.is_empty()),
        ];
        // A subject whose id cannot be a key has no budget.
        let (subjects, keys): (Vec<_>, Vec<Key>) = subjects
            .into_iter()
            .flatten()
            .filter_map(|(kind, id)| Some(((kind, id), budget_key(company, kind, id).ok()?)))
            .unzip();
        if keys.is_empty() {
            return Ok((Vec::new(), BudgetTimeZone::default()));
        }
        let found = self.state.records.get_many_as::<Budget>(&keys).await?;
        let budgets: Vec<Budget> =
            found.into_iter().map(|found| found.map(|found| found.value).unwrap_or_default()).collect();
        // That of the company is the only one with a zone.
        let zone = budgets.iter().find_map(|budget| budget.timezone.clone()).unwrap_or_default();
        let mut applied = Vec::new();
        for ((kind, subject), budget) in subjects.into_iter().zip(budgets) {
            let limits = budget.limits.into_iter().filter(|limit| units.contains(&limit.unit));
            applied.extend(limits.map(|limit| match kind {
                BudgetKind::Run => AppliedLimit::of_run(scope, limit, &zone),
                kind => AppliedLimit::new(kind, subject, limit, &zone),
            }));
        }
        Ok((applied, zone))
    }

    /// Admits requests for demands; `None` if there are none.
    async fn admit(
        &self,
        scope: &RunScope,
        demands: Vec<(AppliedLimit, Demand)>,
        (output, subject, uncounted): (OutputRange, AdmissionSubject, Option<UncountedRun>),
    ) -> Result<Option<AdmittedRequest>, AgentError> {
        if demands.is_empty() {
            return Ok(None);
        }
        let deadline = self.state.clock.monotonic() + self.state.max_wait;
        let request = |answer| Admission { demands, output, subject, uncounted, deadline, answer };
        match self.state.admit(&scope.company_id, request).await {
            Ok(admitted) => Ok(Some(admitted)),
            Err(BudgetError::Refused(refusal)) => Err(self.refuse(*refusal, scope)),
            Err(BudgetError::Store(error)) => Err(store_error(error)),
        }
    }

    /// Reserves the most that a call of a model can use. Returns the reservation and the limit on the answer, which is lower
    /// than the requested one if no more is left and `can_shrink` returns true; `None` if no limit applies.
    ///
    /// # Errors
    /// A budget is spent; the model's price is unknown while the cost is limited; the store failed.
    pub(in crate::usage) async fn reserve_call(
        &self,
        scope: &RunScope,
        call: CallDemand,
        can_shrink: impl FnOnce() -> bool,
    ) -> Result<Option<(ReservationGuard, u64)>, AgentError> {
        let (applied, _) = self.limits(scope, &CALL_UNITS).await.map_err(store_error)?;
        if applied.is_empty() {
            return Ok(None);
        }
        let range = call.output_range(can_shrink());
        let input = call.input_tokens();
        let mut demands = Vec::with_capacity(applied.len());
        for limit in applied {
            let demand = match (limit.limit.unit, &call.price) {
                (BudgetUnit::Cost, Some(price)) => Demand::Cost { input, prices: price.prices },
                (BudgetUnit::Cost, None) => return Err(price_unknown(scope, &call)),
                _ => Demand::Tokens { input },
            };
            demands.push((limit, demand));
        }
        let CallDemand { provider, model, price, .. } = call;
        let requested = RequestedCall { scope: scope.clone(), provider, model, input_tokens: input, price };
        let subject = AdmissionSubject::Call(requested);
        let admitted = self.admit(scope, demands, (range, subject, None)).await?;
        Ok(admitted.and_then(|AdmittedRequest { output, reservation, .. }| Some((reservation?, output))))
    }

    /// Admits a run whose backend starts now. It counts towards budgets at once, unless its backend starts again, and per minute
    /// unless the [pending counts](RunAdmission::pending) are dropped.
    ///
    /// # Errors
    /// A budget is spent, as many runs as permitted are in progress, or the store failed.
    pub(in crate::usage) async fn admit_run(&self, scope: &RunScope) -> Result<RunAdmission, AgentError> {
        let subject = match self.take_restart(scope) {
            true => AdmissionSubject::RestartedRun,
            false => AdmissionSubject::Other,
        };
        self.admit_run_as(scope, subject).await
    }

    /// Admits a run that counts once it is stored.
    ///
    /// # Errors
    /// As [`admit_run`](Self::admit_run).
    pub(in crate::usage) async fn admit_unstored_run(
        &self,
        scope: &RunScope,
    ) -> Result<RunAdmission, AgentError> {
        self.admit_run_as(scope, AdmissionSubject::UnstoredRun(scope.clone())).await
    }

    async fn admit_run_as(
        &self,
        scope: &RunScope,
        subject: AdmissionSubject,
    ) -> Result<RunAdmission, AgentError> {
        let counts = !matches!(subject, AdmissionSubject::RestartedRun);
        let mut units = [&[BudgetUnit::ConcurrentRuns, BudgetUnit::WallMs][..], &CALL_UNITS].concat();
        units.extend(counts.then_some(BudgetUnit::Runs));
        let (applied, zone) = self.limits(scope, &units).await.map_err(store_error)?;
        let (of_calls, applied): (Vec<_>, Vec<_>) =
            applied.into_iter().partition(|limit| CALL_UNITS.contains(&limit.limit.unit));
        let DefaultAdmission { slot, shared, mut counted, uncounted } = match &self.defaults {
            Some(defaults) => {
                let (applied_kinds, now) = (kinds(&applied), self.state.now());
                let admitted =
                    defaults.admit_run(&scope.company_id, (&applied_kinds, &zone), (now, counts)).await;
                admitted.map_err(|refusal| self.refuse(refusal, scope))?
            }
            None => DefaultAdmission::default(),
        };
        let (of_time, of_runs): (Vec<_>, Vec<_>) =
            applied.into_iter().partition(|limit| limit.limit.unit == BudgetUnit::WallMs);
        let (is_default_alone, per_minute) =
            (of_runs.is_empty(), uncounted.as_ref().map(UncountedRun::per_minute));
        let demands = of_runs.into_iter().chain(shared).map(|limit| (limit, Demand::One)).collect();
        let admitted = match self.admit(scope, demands, (OutputRange::default(), subject, uncounted)).await {
            // The process counts by itself, since a default limit must not end runs while the store takes no commit.
            Err(error) if is_default_alone && error.kind() == AgentErrorKind::StoreUnavailable => {
                if let Some((defaults, per_minute)) = self.defaults.as_ref().zip(per_minute) {
                    let alone = defaults.count_run_alone(&scope.company_id, per_minute, self.state.now());
                    counted = Some(alone.map_err(|refusal| self.refuse(refusal, scope))?);
                }
                None
            }
            admitted => admitted?,
        };
        let deadline = of_time.first().map(|limit| {
            let (clock, amount) = (&self.state.clock, limit.limit.amount);
            let timer = clock.sleep(Duration::from_millis(amount.unsigned_abs()));
            let (budgets, scope, limit) = (self.clone(), scope.clone(), limit.clone());
            let expire: ExpireRun = Box::new(move || {
                let spent_state = MeterState { used: amount, ..MeterState::default() };
                budgets.refuse(limit.exceeded(&spent_state, budgets.state.now()), &scope)
            });
            (timer, expire)
        });
        let (reservation, mut pending) =
            admitted.map(|admitted| (admitted.reservation, admitted.pending)).unwrap_or_default();
        pending.per_minute = pending.per_minute.or(counted);
        Ok(RunAdmission {
            reservation: (reservation, slot),
            deadline,
            pending,
            has_call_limits: !of_calls.is_empty(),
        })
    }

    /// Admits a tool call.
    ///
    /// # Errors
    /// A budget is spent, or the store failed.
    pub(in crate::usage) async fn admit_tool_call(&self, scope: &RunScope) -> Result<(), AgentError> {
        let (applied, _) = self.limits(scope, &[BudgetUnit::ToolCalls]).await.map_err(store_error)?;
        if let Some(defaults) = &self.defaults {
            let admitted = defaults.admit_tool_call(scope, &kinds(&applied), self.state.now());
            admitted.map_err(|refusal| self.refuse(refusal, scope))?;
        }
        let demands = applied.into_iter().map(|limit| (limit, Demand::One)).collect();
        self.admit(scope, demands, (OutputRange::default(), AdmissionSubject::Other, None)).await.map(drop)
    }

    /// Settles reservations whose entries are in the ledger.
    ///
    /// # Errors
    /// Errors of the store. Settling again has no effect on settled reservations.
    pub(in crate::usage) async fn settle(&self, settlements: Vec<Settlement>) -> Result<(), StoreError> {
        self.state.settle(settlements).await
    }

    /// Settles reservations whose entries are in the ledger. If the store does not accept them at once, it retries in the
    /// background. Returns the receivers of the outcomes that are not known yet.
    pub(in crate::usage) async fn settle_or_retry(
        &self,
        settlements: Vec<Settlement>,
    ) -> Vec<SettlementOutcome> {
        self.state.settle_or_retry(settlements).await
    }
}
