//! Limits per minute on the requests of signed-in users and on the runs of companies, over all processes that share the store.
//!
//! A user has one record for runs and one for changes, a company one for its runs. A record has the state of the limit
//! (module `minute_rate`). A commit for each request would delay the first token, so requests are admitted in two ways:
//!
//! - Below half of the limit, as far as this process knows, a request is admitted at once. A background commit adds it to the
//!   record, together with all others of the company, at most once in each `FLUSH_INTERVAL`. The commit, and a read one
//!   interval later, return the requests that other processes have admitted.
//! - At half of the limit and above, a commit admits the request. All waiting requests of a company share the next commit, which
//!   also claims the ids that clients have chosen for their runs. A run of a company that a budget's commit admits is counted
//!   by that commit. A request above the limit commits nothing and is refused from memory until the minute has moved on.
//!
//! A run of a company that does not begin, since a budget refuses it or another request has taken its thread, is refunded, in
//! the same two ways. A process refunds as many runs per minute as the limit has. The requests of users stay counted.
//!
//! A limit of `n` is exact above its half if the processes know of each other's requests. A process that does not know them,
//! because its last request of the user is older, may admit `⌈n / 2⌉` requests before its next commit. `p` processes
//! therefore exceed the limit by at most `(p - 1) * ⌈n / 2⌉` requests at once. Later requests wait for this excess, for half
//! a minute at most.
//!
//! While the store fails, each process counts alone. It adds the admitted requests later, and twice if a commit was applied
//! and its outcome was lost. A process that ends loses the requests that it admitted since its last commit.
//!
//! The records belong to the platform, and stores do not cache them, since an outdated read would cause a conflict. Each
//! company has a collection, `userRates/<company>`. [`RateRecordSweep`] deletes the records without effect.

mod company_runs;
mod expired;
mod flush;
mod joined;
mod limits;
mod metering;
mod table;

#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::ids::{CompanyId, RunId};
use agent_core::request::Principal;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use jiff::Timestamp;

use crate::company_table::CompanyTableLimits;
use crate::minute_rate::{MinuteUse, end_of_wait};
use crate::records::{Collection, Key, Records, StoreError};
use crate::run_registry::{NewRunId, RunIdClaim};
use crate::spawner::Spawner;

use flush::FlushTask;
use metering::Metering;
use table::{CountedRequest, LocalDecision, Meter, MeterId, MeterTable};

pub use crate::minute_rate::RateLimitError;
pub(crate) use company_runs::CountedCompanyRun;
pub use expired::RateRecordSweep;
pub(crate) use joined::{AdmittedCompanyRun, RunCount, UncountedRun};
pub use limits::{SessionLimits, UserRate};

/// Name of the platform's collection of counts. Nested collections: the company.
const USER_RATES: &str = "userRates";
/// Maximum time for which a request waits for the store; then this process decides by itself.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Maximum numbers of meters in memory: two for each user, and one for each company, that was active last.
const METER_LIMITS: CompanyTableLimits = CompanyTableLimits { total: 20_000, per_company: 5_000 };

/// Counts and limits the requests of users and the runs of companies. Clones share their state.
#[derive(Clone)]
pub struct MinuteRateLimiter {
    metering: Arc<Metering>,
}

impl std::fmt::Debug for MinuteRateLimiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MinuteRateLimiter").finish_non_exhaustive()
    }
}

impl MinuteRateLimiter {
    /// Creates the limits, with counts in `records` and times from `clock`. `spawner` runs the tasks that count in the
    /// background.
    pub fn new(
        records: Arc<dyn Records>,
        limits: SessionLimits,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
    ) -> Self {
        Self::bounded(records, limits, clock, spawner, METER_LIMITS)
    }

    fn bounded(
        records: Arc<dyn Records>,
        limits: SessionLimits,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
        meters: CompanyTableLimits,
    ) -> Self {
        let table = Mutex::new(MeterTable::new(meters));
        Self { metering: Arc::new(Metering { records, limits, clock, spawner, table }) }
    }

    /// Returns the limits.
    pub fn limits(&self) -> &SessionLimits {
        &self.metering.limits
    }

    /// Returns the used part of a user's limit, from the record and the requests that it does not count yet.
    ///
    /// # Errors
    /// The store failed.
    pub async fn state(&self, user: &Principal, rate: UserRate) -> Result<RateState, StoreError> {
        let per_minute = self.metering.limits.per_minute(rate);
        self.state_of(&user.company_id, &MeterId::User(user.user_id.clone(), rate), per_minute).await
    }

    /// Returns the used part of a company's limit on its runs, as [`state`](Self::state) does.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) async fn company_state(
        &self,
        company_id: &CompanyId,
        per_minute: NonZeroU32,
    ) -> Result<RateState, StoreError> {
        self.state_of(company_id, &MeterId::CompanyRuns, per_minute).await
    }

    async fn state_of(
        &self,
        company_id: &CompanyId,
        id: &MeterId,
        per_minute: NonZeroU32,
    ) -> Result<RateState, StoreError> {
        let stored = match record_key(company_id, id) {
            Ok(key) => self.metering.records.get(&key).await?.and_then(|found| flush::parse(found, &key)),
            // Ids that cannot be a key are counted in memory alone.
            Err(_) => None,
        };
        let now = self.metering.now();
        let mut table = self.metering.lock();
        let meter = table.meters.get_mut(company_id, id);
        let state = meter.map_or(stored, |meter| match meter.record {
            Some(_) => meter.with_uncounted(stored, now),
            None => meter.known,
        });
        let (used, resets_in) = MinuteUse::new(state, per_minute, now).used();
        Ok(RateState { limit: per_minute.get(), used, resets_in })
    }

    /// Counts a request of a user. A cancelled one may be counted.
    ///
    /// # Errors
    /// The limit is reached; then the request is not counted.
    pub async fn count(&self, user: &Principal, rate: UserRate) -> Result<(), RateLimitError> {
        let per_minute = self.metering.limits.per_minute(rate);
        self.count_for(&user.company_id, &MeterId::User(user.user_id.clone(), rate), per_minute).await
    }

    /// Counts a run of a company. A cancelled one may be counted.
    ///
    /// # Errors
    /// The limit is reached; then the run is not counted.
    pub(crate) async fn count_company_run(
        &self,
        company_id: &CompanyId,
        per_minute: NonZeroU32,
    ) -> Result<CountedCompanyRun, RateLimitError> {
        self.count_for(company_id, &MeterId::CompanyRuns, per_minute).await?;
        Ok(CountedCompanyRun::new(&self.metering, company_id))
    }

    /// Counts a run of a user as [`count`](Self::count) does. If a commit admits the run, it also claims the id that the client has
    /// chosen for it, as [`RunRegistry::claim`](crate::run_registry::RunRegistry::claim) does by a separate commit; the run is
    /// counted if the id is used, too. The run cannot start without its id, so this process does not admit it by itself
    /// if the store is slow.
    ///
    /// # Errors
    /// The limit is reached, in which case the run is not counted, and its id not claimed; the store failed.
    pub async fn count_run_with_id(
        &self,
        user: &Principal,
        run_id: &RunId,
    ) -> Result<CountedRun, RunCountError> {
        let per_minute = self.metering.limits.per_minute(UserRate::Runs);
        let id = MeterId::User(user.user_id.clone(), UserRate::Runs);
        let new_id = NewRunId::new(user, run_id, self.metering.clock.now());
        let ask = |meter: &mut Meter| new_id.map(|new_id| meter.wait(Some(new_id)));
        let waiting = self.admit((&user.company_id, &id), per_minute, DecisionScope::Either, ask)?;
        let Some(answer) = waiting.transpose()? else { return Ok(CountedRun::Unclaimed) };
        let mut waiting = WaitingRun { answer, spawner: &*self.metering.spawner };
        match (&mut waiting.answer).await {
            Ok(counted) => Ok(counted?.map_or(CountedRun::Used, CountedRun::Claimed)),
            // The store has failed, which is logged.
            Err(_) => Err(StoreError::unavailable("the run's rate limit cannot be checked now").into()),
        }
    }

    /// Counts a run of a company, if this process may do so by itself. Otherwise returns the run for the commit of another
    /// module to admit.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn begin_company_run(
        &self,
        company_id: &CompanyId,
        per_minute: NonZeroU32,
    ) -> Result<AdmittedCompanyRun, RateLimitError> {
        let metering = &self.metering;
        let ask = |meter: &mut Meter| UncountedRun::new(metering, company_id, meter);
        let scope = DecisionScope::Either;
        let uncounted = self.admit((company_id, &MeterId::CompanyRuns), per_minute, scope, ask)?;
        Ok(match uncounted.flatten() {
            Some(run) => AdmittedCompanyRun::Uncounted(run),
            None => AdmittedCompanyRun::Counted(CountedCompanyRun::new(metering, company_id)),
        })
    }

    /// Admits a run of a company by this process alone, since the commit that was to count it has failed.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn count_company_run_alone(
        &self,
        company_id: &CompanyId,
        per_minute: NonZeroU32,
    ) -> Result<CountedCompanyRun, RateLimitError> {
        self.admit_alone((company_id, &MeterId::CompanyRuns), per_minute)?;
        Ok(CountedCompanyRun::new(&self.metering, company_id))
    }

    async fn count_for(
        &self,
        company_id: &CompanyId,
        id: &MeterId,
        per_minute: NonZeroU32,
    ) -> Result<(), RateLimitError> {
        let ask = |meter: &mut Meter| meter.wait(None);
        let admitted = self.admit((company_id, id), per_minute, DecisionScope::Either, ask)?;
        let Some(waiting) = admitted else { return Ok(()) };
        match select(waiting, self.metering.clock.sleep(MAX_WAIT)).await {
            Either::Left((Ok(counted), _)) => counted.map(drop),
            // The store has failed, or is slow.
            _ => self.admit_alone((company_id, id), per_minute),
        }
    }

    fn admit_alone(
        &self,
        meter: (&CompanyId, &MeterId),
        per_minute: NonZeroU32,
    ) -> Result<(), RateLimitError> {
        self.admit(meter, per_minute, DecisionScope::Process, |_| ()).map(drop)
    }

    /// Admits a request in this process if possible; otherwise returns the result of `ask`, which requests the store's decision.
    ///
    /// # Errors
    /// The limit is reached.
    fn admit<T>(
        &self,
        (company_id, id): (&CompanyId, &MeterId),
        per_minute: NonZeroU32,
        scope: DecisionScope,
        ask: impl FnOnce(&mut Meter) -> T,
    ) -> Result<Option<T>, RateLimitError> {
        let metering = &self.metering;
        let (now, instant) = (metering.now(), metering.clock.monotonic());
        let mut table = metering.lock();
        let is_unavailable =
            table.flushers.get(company_id).is_some_and(|flusher| flusher.is_unavailable(instant));
        let create = || Meter::new(record_key(company_id, id).ok(), per_minute);
        let meter = table.meters.use_or_insert_with(company_id, id.clone(), create);
        let is_local = match meter.decide(now)? {
            LocalDecision::BelowHalf => true,
            LocalDecision::AskStore => {
                scope == DecisionScope::Process || meter.record.is_none() || is_unavailable
            }
        };
        let answer = if is_local {
            meter.admit(now);
            None
        } else {
            Some(ask(meter))
        };
        let is_waiting = !meter.waiting.is_empty();
        let must_count = meter.record.is_some() && (is_local || is_waiting);
        let must_start = must_count && table.notify(company_id, is_waiting, instant);
        drop(table);
        if must_start {
            FlushTask::start(metering, company_id);
        }
        Ok(answer)
    }
}

/// A run whose id the client has chosen, and that waits to be counted in the store. If it is dropped after its id was claimed, as by
/// a client that disconnects, the id is released in the background.
struct WaitingRun<'s> {
    answer: oneshot::Receiver<CountedRequest>,
    spawner: &'s dyn Spawner,
}

impl Drop for WaitingRun<'_> {
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Some(Ok(Some(claim)))) = self.answer.try_recv() {
            self.spawner.spawn(Box::pin(claim.release()));
        }
    }
}

/// A counted run whose id the client has chosen.
#[derive(Debug)]
pub enum CountedRun {
    /// This process has admitted the run by itself, and its id is not claimed.
    Unclaimed,
    /// A commit has admitted the run and claimed its id.
    Claimed(RunIdClaim),
    /// A commit has admitted the run, whose id the user has used before.
    Used,
}

/// Error of counting a run whose id the client has chosen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunCountError {
    /// The limit per minute is reached.
    #[error(transparent)]
    Limit(#[from] RateLimitError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Used part of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateState {
    /// The limit per minute.
    pub limit: u32,
    /// Number of requests that are used.
    pub used: u32,
    /// Time until nothing is used, if no further request is made.
    pub resets_in: Duration,
}

impl RateState {
    /// Returns the time at which nothing is used if no further request is made, in whole milliseconds.
    pub fn resets_at(&self, now: Timestamp) -> Timestamp {
        end_of_wait(now, self.resets_in)
    }
}

/// Scope in which a request may be decided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DecisionScope {
    /// By the process, or else by the store.
    Either,
    /// By the process alone.
    Process,
}

/// Returns the key of a meter's record. Those of users have a slash, that of the company has none.
fn record_key(company_id: &CompanyId, id: &MeterId) -> Result<Key, StoreError> {
    let record = match id {
        MeterId::User(user_id, UserRate::Runs) => format!("{user_id}/runs"),
        MeterId::User(user_id, UserRate::Changes) => format!("{user_id}/changes"),
        MeterId::CompanyRuns => "runs".to_owned(),
    };
    Collection::of_platform(USER_RATES)?.within(company_id)?.key(record)
}
