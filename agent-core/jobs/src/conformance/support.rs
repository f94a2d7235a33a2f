//! Jobs, times and steps that the tests of a store share.

use std::sync::Arc;
use std::time::Duration;

use agent_core::store_error::StoreError;
use jiff::{SignedDuration, Timestamp};

use crate::job::{
    AttemptOutcome, InsertOutcome, Job, JobFilter, JobPayload, JobScope, JobStore, NewJob, Step, StepError,
    StepOutcome, StepResult,
};
use crate::schedule::Schedule;

pub(super) type SharedJobStore = Arc<dyn JobStore>;

/// Returns the time `ms` milliseconds after the suite's start time.
pub(super) fn at(ms: i64) -> Timestamp {
    let offset = SignedDuration::from_millis(1_767_225_600_000 + ms);
    Timestamp::UNIX_EPOCH.checked_add(offset).expect("the suite's times are in the calendar")
}

pub(super) fn payload(company: &str, user: &str) -> JobPayload {
    JobPayload::for_tool(company, user, "agent", "remind")
}

/// Builds a job of a company that is due once, `ms` milliseconds after the start time.
pub(super) fn once(company: &str, ms: i64) -> Job {
    Job::new(NewJob::new(payload(company, "ada"), Schedule::At(at(ms))), at(0))
}

/// Builds a job that is due every `ms` milliseconds.
pub(super) fn every(company: &str, ms: u64) -> Job {
    let schedule = Schedule::Every { every: Duration::from_millis(ms), anchor: at(0) };
    Job::new(NewJob::new(payload(company, "ada"), schedule), at(0))
}

pub(super) fn expect_ok<T>(what: &str, result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error:?}"))
}

/// Stores jobs and asserts that all of them are new.
pub(super) async fn insert(store: &dyn JobStore, jobs: &[Job]) {
    let inserted = expect_ok("insert", store.insert(jobs.to_vec()).await);
    assert_eq!(inserted, vec![InsertOutcome::New; jobs.len()], "a new job is stored");
}

pub(super) async fn get(store: &dyn JobStore, job: &Job) -> Job {
    expect_ok("get", store.get(&JobScope::default(), &job.id).await).expect("the job is stored")
}

pub(super) async fn step(
    store: &dyn JobStore,
    job: &Job,
    step: Step,
    now: Timestamp,
) -> Result<StepResult, StepError> {
    match expect_ok("step", store.apply_step(&JobScope::default(), &job.id, step, now).await) {
        StepOutcome::Applied(result) => Ok(*result),
        StepOutcome::Rejected(error) => Err(error),
        StepOutcome::NotFound | StepOutcome::Unreadable => panic!("the job is stored and readable"),
    }
}

/// Claims the given job, which must be due.
pub(super) async fn claim_job(store: &dyn JobStore, job: &Job, now: Timestamp, lease: Timestamp) -> Job {
    let claim = Step::Claim { until: now, lease };
    step(store, job, claim, now).await.expect("the job is due").job
}

pub(super) fn ended(job: &Job, outcome: AttemptOutcome) -> Step {
    Step::End { fence: job.fence, outcome, duration: Duration::from_millis(7), status: Some(200), jitter: 0 }
}

pub(super) fn rejected() -> AttemptOutcome {
    AttemptOutcome::Rejected { error: "no such tool".to_owned() }
}

pub(super) fn failed() -> AttemptOutcome {
    AttemptOutcome::Failed { error: "it was busy".to_owned(), retry_after: None }
}

pub(super) fn company_scope(company: &str) -> JobScope {
    JobScope { company: Some(company.into()), user: None }
}

pub(super) fn filter_of(scope: JobScope) -> JobFilter {
    JobFilter { scope, ..JobFilter::default() }
}
