//! The [`JobStore`] trait and the types of its interface.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId, JobId, UserId};
use agent_core::store_error::StoreError;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Job, JobPayload, JobState, Step, StepOutcome};

/// Maximum number of jobs in one claim.
pub const MAX_JOBS_PER_CLAIM: usize = 1000;
/// Maximum number of jobs on a page.
pub const MAX_JOBS_PER_PAGE: usize = 500;
/// Number of jobs that [`JobStore::cancel_all`] cancels in one transaction.
pub const CANCEL_BATCH_SIZE: usize = 200;

/// Tenant restriction of a caller. Jobs outside the scope are reported as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobScope {
    /// Restricts to one company; `None` only for the operator of the scheduler.
    pub company: Option<CompanyId>,
    /// Restricts to one user.
    pub user: Option<UserId>,
}

impl JobScope {
    /// Returns true if the job is within the scope.
    pub fn contains(&self, job: &Job) -> bool {
        matches_if_given(self.company.as_ref(), &job.payload.company_id)
            && matches_if_given(self.user.as_ref(), &job.payload.user_id)
    }
}

fn matches_if_given<T: PartialEq>(required: Option<&T>, actual: &T) -> bool {
    required.is_none_or(|required| required == actual)
}

/// Filter for listing and cancelling jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Company and user.
    pub scope: JobScope,
    /// Restricts to jobs of this agent.
    pub agent: Option<AgentId>,
    /// Restricts to jobs that call this tool.
    pub tool: Option<String>,
    /// Restricts to jobs of this assignment.
    pub assignment: Option<String>,
    /// Restricts to jobs in this state. [`JobState::Discarded`] also matches periodic jobs with dead letters.
    pub state: Option<JobState>,
    /// Restricts to jobs that are not final.
    pub open: bool,
}

impl JobFilter {
    /// Value on the wire of a filter's state that means all states that are not final.
    pub const OPEN_STATES: &'static str = "open";

    /// Returns the filter of all jobs of the payload's user that are not final.
    pub fn open_jobs_of_user(payload: &JobPayload) -> Self {
        let (company, user) = (Some(payload.company_id.clone()), Some(payload.user_id.clone()));
        Self { scope: JobScope { company, user }, open: true, ..Self::default() }
    }

    /// Returns true if the job matches all conditions.
    pub fn matches(&self, job: &Job) -> bool {
        let payload = &job.payload;
        self.scope.contains(job)
            && matches_if_given(self.agent.as_ref(), &payload.agent_id)
            && !(self.open && job.state().is_final())
            && self.tool.as_ref().is_none_or(|tool| payload.tool_id.as_ref() == Some(tool))
            && self
                .assignment
                .as_ref()
                .is_none_or(|assignment| payload.assignment_id.as_ref() == Some(assignment))
            && self.state.is_none_or(|state| {
                job.state() == state || state == JobState::Discarded && job.has_dead_letters()
            })
    }
}

/// Order of a list. Ids sort by creation time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobOrder {
    /// The newest job first, by descending ids.
    #[default]
    #[serde(rename = "desc")]
    NewestFirst,
    /// The oldest job first, by ascending ids.
    #[serde(rename = "asc")]
    OldestFirst,
}

impl JobOrder {
    /// Returns the name used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewestFirst => "desc",
            Self::OldestFirst => "asc",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::NewestFirst, Self::OldestFirst].into_iter().find(|order| order.as_str() == name)
    }
}

/// Length of the text of a UUID.
const UUID_BYTES: usize = 36;

/// Page of jobs, ordered by id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobPage {
    /// Jobs of this page.
    pub jobs: Vec<Job>,
    /// Ids of the jobs between them whose rows cannot be read.
    pub unreadable: Vec<JobId>,
    /// Id of the last job on this page if more follow: the cursor of the next page.
    pub next: Option<JobId>,
}

impl JobPage {
    /// Parses the cursor of a page: the id of a job, which is a UUID with lowercase digits, after a prefix such as `local-` if the
    /// application stores the job itself. Returns `None` for a cursor that no page returned. The job may be gone.
    pub fn parse_cursor(cursor: &str) -> Option<JobId> {
        let start = cursor.len().checked_sub(UUID_BYTES)?;
        let (prefix, uuid) = cursor.as_bytes().split_at(start);
        let is_uuid = uuid.iter().enumerate().all(|(i, byte)| match i {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        let is_prefix = match prefix {
            [] => true,
            [letters @ .., b'-'] => letters.iter().all(u8::is_ascii_lowercase),
            _ => false,
        };
        (is_uuid && is_prefix).then(|| cursor.into())
    }
}

/// Outcome of inserting a job.
#[derive(Debug, Clone, PartialEq)]
pub enum InsertOutcome {
    /// The job was stored.
    New,
    /// A job with the same idempotency key and fingerprint exists; it is kept.
    Existing(Box<Job>),
    /// A job with the same idempotency key and another fingerprint exists; nothing is stored.
    KeyConflict(Box<Job>),
    /// The user has as many open jobs as the limit allows; nothing is stored.
    LimitReached,
}

impl InsertOutcome {
    /// Text of the error that a [`KeyConflict`](Self::KeyConflict) is for the client.
    pub const KEY_CONFLICT_TEXT: &str = "the idempotencyKey belongs to another job";

    /// Returns the outcome of inserting `new` when `existing` has the same idempotency key.
    pub fn from_existing(existing: Job, new: &Job) -> Self {
        let is_same_request = existing.idempotency == new.idempotency;
        if is_same_request {
            Self::Existing(Box::new(existing))
        } else {
            Self::KeyConflict(Box::new(existing))
        }
    }
}

/// Parameters of a claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Current time.
    pub now: Timestamp,
    /// Jobs due up to this time are claimed. Expired leases are reclaimed up to `now` only.
    pub due_until: Timestamp,
    /// Expiry of the granted leases unless they are extended.
    pub lease_until: Timestamp,
    /// Maximum number of jobs to claim, capped at [`MAX_JOBS_PER_CLAIM`].
    pub limit: usize,
    /// Remaining number of jobs per company.
    pub quota: CompanyQuota,
}

/// Per-company limit on the jobs that a worker delivers concurrently.
#[derive(Debug, Clone)]
pub struct CompanyQuota {
    per_company: usize,
    in_use: BTreeMap<CompanyId, usize>,
}

impl CompanyQuota {
    /// Creates a quota of `per_company` jobs for every company.
    pub fn new(per_company: usize) -> Self {
        Self { per_company, in_use: BTreeMap::new() }
    }

    /// Replaces the limit for every company. Slots in use stay in use.
    #[must_use]
    pub fn with_limit(self, per_company: usize) -> Self {
        Self { per_company, ..self }
    }

    /// Takes one slot of the company. Returns false if none is left.
    pub fn take(&mut self, company: &str) -> bool {
        // `get_mut` before `insert`, since most companies already have an entry and the key need not be allocated.
        match self.in_use.get_mut(company) {
            Some(slots) if *slots >= self.per_company => false,
            Some(slots) => {
                *slots += 1;
                true
            }
            None if self.per_company == 0 => false,
            None => {
                self.in_use.insert(company.into(), 1);
                true
            }
        }
    }

    /// Returns one slot to the company.
    pub fn release(&mut self, company: &str) {
        if let Some(slots) = self.in_use.get_mut(company) {
            *slots -= 1;
            if *slots == 0 {
                self.in_use.remove(company);
            }
        }
    }

    /// Iterates over the companies without a free slot, so that a query can exclude them.
    pub fn exhausted(&self) -> impl Iterator<Item = &str> {
        self.in_use
            .iter()
            .filter(|(_, slots)| **slots >= self.per_company)
            .map(|(company, _)| company.as_str())
    }
}

/// Number of jobs per state, and the scheduling lag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Number of jobs by state; states without jobs may be absent.
    pub by_state: BTreeMap<JobState, u64>,
    /// Time for which the longest overdue job has been waiting to be claimed.
    pub lag: Duration,
    /// Number of distinct jobs that this process has found to be unreadable, at most a bound of the store.
    pub unreadable: u64,
}

/// Persistent storage of jobs. Transitions are decided by [`Job::step`] alone, and claims by a
/// [`ClaimPlanner`](super::claim::ClaimPlanner); a store finds the jobs and persists the results in one transaction,
/// isolated from other callers.
///
/// When a method returns, its changes are durable: they survive the end of the process. The contract is the test
/// suite `conformance::jobs`.
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Inserts new jobs, all or none, and returns the outcome of each.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; nothing is stored.
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<InsertOutcome>, StoreError>;

    /// Inserts a new job if its user has fewer than `max_open` jobs that are not final. The idempotency key is looked up
    /// first, so a repeated request gets its job at the limit too. Concurrent calls do not exceed the limit together.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; nothing is stored.
    async fn insert_within_limit(&self, job: Job, max_open: u64) -> Result<InsertOutcome, StoreError>;

    /// Checks that the store can be written, for the scheduler's readiness. A store that has no failed write behind it
    /// answers at once; the default implementation always does.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with the reason.
    async fn check_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the job with the id, if it is within the scope.
    async fn get(&self, scope: &JobScope, id: &JobId) -> Result<Option<Job>, StoreError>;

    /// Returns one page of at most `limit` jobs that follow the id `after` in the order of the list. A job whose row
    /// cannot be read fails no list; its id is in [`JobPage::unreadable`].
    async fn list(
        &self,
        filter: &JobFilter,
        order: JobOrder,
        after: Option<&JobId>,
        limit: usize,
    ) -> Result<JobPage, StoreError>;

    /// Returns the number of jobs that match the filter.
    async fn count(&self, filter: &JobFilter) -> Result<u64, StoreError>;

    /// Applies a step to a job within the scope.
    async fn apply_step(
        &self,
        scope: &JobScope,
        id: &JobId,
        step: Step,
        now: Timestamp,
    ) -> Result<StepOutcome, StoreError> {
        if self.get(scope, id).await?.is_none() {
            return Ok(StepOutcome::NotFound);
        }
        let outcome = self.apply_steps(vec![(id.clone(), step)], now).await?.pop();
        Ok(outcome.unwrap_or(StepOutcome::NotFound))
    }

    /// Applies steps, in order, to jobs of any tenant, and persists the results together. A refused step, and one on
    /// a job that cannot be read, changes nothing and does not affect the others.
    async fn apply_steps(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError>;

    /// Applies steps as [`apply_steps`](Self::apply_steps) does, except to jobs that another transaction has locked: their
    /// outcome is `None`, and the caller applies the steps again. For steps on jobs of many companies, none of which may wait
    /// for another.
    async fn apply_steps_unlocked(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<Option<StepOutcome>>, StoreError> {
        Ok(self.apply_steps(steps, now).await?.into_iter().map(Some).collect())
    }

    /// Cancels all matching jobs that are not final, and returns their number. Jobs are read and cancelled in batches
    /// of [`CANCEL_BATCH_SIZE`], the newest first, so that other writers wait for one batch only; a job that is created
    /// meanwhile is not cancelled. After an error some jobs may have been cancelled; the call can be repeated.
    async fn cancel_all(&self, filter: &JobFilter, now: Timestamp) -> Result<u64, StoreError> {
        let open = JobFilter { open: true, ..filter.clone() };
        let (mut cancelled, mut after) = (0, None);
        loop {
            let page = self.list(&open, JobOrder::NewestFirst, after.as_ref(), CANCEL_BATCH_SIZE).await?;
            let steps: Vec<_> = page.jobs.into_iter().map(|job| (job.id, Step::Cancel)).collect();
            if !steps.is_empty() {
                let outcomes = self.apply_steps(steps, now).await?;
                cancelled += outcomes.into_iter().filter(StepOutcome::has_changed).count() as u64;
            }
            after = page.next;
            if after.is_none() {
                return Ok(cancelled);
            }
        }
    }

    /// Claims due jobs, the earliest first, and returns them in their new state. No job is given to two callers.
    ///
    /// One call applies at most [`MAX_JOBS_PER_CLAIM`] steps, including those that only skip missed occurrences. If it
    /// returns fewer jobs than the limit, [`next_run_at`](Self::next_run_at) indicates whether more are due.
    async fn claim_due(&self, claim: ClaimRequest) -> Result<Vec<Job>, StoreError>;

    /// Returns the time at which the next job must be processed: the smallest [`Job::next_run_at`], or up to a
    /// millisecond later.
    async fn next_run_at(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Returns the number of jobs by state, and the lag to the millisecond.
    async fn count_by_state(&self, now: Timestamp) -> Result<JobCounts, StoreError>;

    /// Deletes at most `limit` jobs that became final before `ended_before`, to the millisecond, and returns their
    /// number.
    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Subscribes to notifications that a job may have become the earliest, from any caller. May yield spuriously,
    /// and may miss changes made by another process, so callers must poll as well.
    fn notifications(&self) -> BoxStream<'static, ()>;
}
