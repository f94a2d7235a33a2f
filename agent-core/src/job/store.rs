//! The trait of those who keep jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;

use super::{Job, JobState, Refusal, Step, Stepped};
use crate::store_error::StoreError;

/// How many jobs are claimed at once at most.
pub const MAX_CLAIM: usize = 1000;
/// How many jobs a page has at most.
pub const MAX_JOBS_PAGE: usize = 500;

/// Whose jobs a caller may see. Jobs outside it are as absent as ones that never were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// One company's; the operator of the scheduler alone sees those of all.
    pub company: Option<String>,
    /// One user's.
    pub user: Option<String>,
}

impl Scope {
    /// Whether a job is within it.
    pub fn contains(&self, job: &Job) -> bool {
        is(self.company.as_deref(), &job.payload.company_id) && is(self.user.as_deref(), &job.payload.user_id)
    }
}

fn is(wanted: Option<&str>, found: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

/// Which jobs are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Whose.
    pub scope: Scope,
    /// Those that call this tool.
    pub tool: Option<String>,
    /// Those of this assignment.
    pub assignment: Option<String>,
    /// Those in this state. [`JobState::Discarded`] also means periodic jobs with dead letters.
    pub state: Option<JobState>,
}

impl JobFilter {
    /// Whether a job is meant.
    pub fn matches(&self, job: &Job) -> bool {
        let payload = &job.payload;
        self.scope.contains(job)
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

/// Some jobs, in the order of their ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The last one's id where there are more after it: the next page comes after that.
    pub next: Option<String>,
}

/// What became of a job that was to be stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Inserted {
    /// It is stored.
    New,
    /// There is one with its idempotency key, and the same was asked for: that one stands.
    Existing(Box<Job>),
    /// There is one with its idempotency key, and something else was asked for: nothing is stored.
    Different(Box<Job>),
}

impl Inserted {
    /// What a job says that was there before with the same idempotency key.
    pub fn over(found: Job, new: &Job) -> Self {
        let same = found.idempotency == new.idempotency;
        if same { Self::Existing(Box::new(found)) } else { Self::Different(Box::new(found)) }
    }
}

/// Which jobs somebody wants to deliver.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The time.
    pub now: Timestamp,
    /// Jobs that are due up to here are taken. Leases that run out only then are not.
    pub until: Timestamp,
    /// When the lease runs out unless it is extended.
    pub lease: Timestamp,
    /// How many are taken at most, and at most [`MAX_CLAIM`].
    pub limit: usize,
    /// How many more of each company are taken.
    pub quota: Quota,
}

/// How many jobs of each company somebody delivers at a time.
#[derive(Debug, Clone)]
pub struct Quota {
    each: usize,
    taken: BTreeMap<String, usize>,
}

impl Quota {
    /// `each` for every company.
    pub fn new(each: usize) -> Self {
        Self { each, taken: BTreeMap::new() }
    }

    /// The same with another share for every company. What was taken stays taken.
    #[must_use]
    pub fn of_each(self, each: usize) -> Self {
        Self { each, ..self }
    }

    /// Takes one of the company's, if there is one left.
    pub fn take(&mut self, company: &str) -> bool {
        // Looked up first, as most companies are there already.
        match self.taken.get_mut(company) {
            Some(taken) if *taken >= self.each => false,
            Some(taken) => {
                *taken += 1;
                true
            }
            None if self.each == 0 => false,
            None => {
                self.taken.insert(company.to_owned(), 1);
                true
            }
        }
    }

    /// Gives one back.
    pub fn give_back(&mut self, company: &str) {
        if let Some(taken) = self.taken.get_mut(company) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(company);
            }
        }
    }

    /// The companies that have none left, for a query that leaves them out.
    pub fn exhausted(&self) -> impl Iterator<Item = &str> {
        self.taken.iter().filter(|(_, taken)| **taken >= self.each).map(|(company, _)| company.as_str())
    }
}

/// How many jobs there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// By state; states without jobs may be absent.
    pub by_state: BTreeMap<JobState, u64>,
    /// How long the job that has been due for longest has been waiting to be claimed.
    pub lag: Duration,
}

/// Keeps jobs. What becomes of one is decided by [`Job::step`] alone; a store finds the jobs, takes the step
/// and keeps the outcome, as one act that no other caller's comes between.
///
/// A method that has returned has stored what it was told to: it survives the end of the process. The contract
/// is the suite `conformance::jobs`.
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Stores new jobs, all or none, and says of each what became of it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], and nothing is stored.
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<Inserted>, StoreError>;

    /// A job of such an id, if it is within the scope.
    async fn get(&self, scope: &Scope, id: &str) -> Result<Option<Job>, StoreError>;

    /// One page of at most `limit` jobs after the id `after`, in the order of ids.
    async fn list(
        &self,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<JobPage, StoreError>;

    /// Takes a step with a job within the scope; `None` where there is no such job.
    async fn step(
        &self,
        scope: &Scope,
        id: &str,
        step: Step,
        now: Timestamp,
    ) -> Result<Option<Result<Stepped, Refusal>>, StoreError> {
        Ok(match self.get(scope, id).await? {
            Some(_) => self.steps(vec![(id.to_owned(), step)], now).await?.pop().flatten(),
            None => None,
        })
    }

    /// Takes steps with jobs of anybody, in their order, and stores what came of them together. A refused step
    /// changes nothing and hinders no other.
    async fn steps(
        &self,
        steps: Vec<(String, Step)>,
        now: Timestamp,
    ) -> Result<Vec<Option<Result<Stepped, Refusal>>>, StoreError>;

    /// Cancels all jobs that are meant and not final, as one act, and says how many they were.
    async fn cancel_all(&self, filter: &JobFilter, now: Timestamp) -> Result<u64, StoreError>;

    /// Claims jobs that are due, the earliest first, and gives them as they are then. Two callers never get
    /// the same one.
    ///
    /// One call takes [`MAX_CLAIM`] steps at most, and those that leave out what was missed count: where it
    /// gives fewer than were asked for, [`earliest`](Self::earliest) says whether more is due.
    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError>;

    /// When the next job wakes: the smallest [`Job::wakes`], or up to a millisecond later.
    async fn earliest(&self) -> Result<Option<Timestamp>, StoreError>;

    /// How many there are. The lag is to the millisecond.
    async fn counts(&self, now: Timestamp) -> Result<JobCounts, StoreError>;

    /// Removes at most `limit` jobs that were final before `ended_before`, to the millisecond, and says how many
    /// they were.
    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError>;

    /// Yields when a job may have become the earliest, by whoever's hand. It may yield in vain, and it may
    /// miss what another process has done, so callers look by themselves as well.
    fn wakes(&self) -> BoxStream<'static, ()>;
}
