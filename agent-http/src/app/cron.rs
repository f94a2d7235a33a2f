//! `GET /api/cron`: fallback that runs due occurrences while the scheduler does not, under the scheduler's own
//! occurrence keys, so that no occurrence runs twice.
//!
//! The list of due occurrences comes from the scheduler if it responds. Otherwise it comes from what the scheduler
//! last reported of each assignment's job. This is one occurrence per job, since only the scheduler knows the numbers
//! of later occurrences. If no scheduler is configured, the application stores the jobs itself, and this endpoint runs them
//! ([`local`]).

mod cron_run;
mod local;

use std::sync::Arc;
use std::time::Instant;

use agent_jobs::job::{Delivery, JobFilter, JobOrder, JobState, JobView};
use agent_platform::assignment::{AssignedJob, AssignmentSync, SYNC_COLLECTION};
use agent_platform::local_pulse::is_local_job;
use agent_platform::occurrence::has_failed;
use agent_platform::pulse::{Pulse, PulseError};
use agent_platform::records::{Collection, ListQuery, MAX_PAGE_RECORDS, Records, RecordsExt, StoreError};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use self::cron_run::{CronRun, MAX_CONCURRENT_RUNS, MAX_RUNS_PER_CALL};
use self::local::run_local;
use super::due::DueOccurrences;
use super::pulse::{Completion, is_busy, run_occurrence};
use super::{App, response};
use crate::endpoint::{Operation, RequestContext, Schemas};
use crate::error::{Code, HttpError};
use crate::request::Query;
use crate::service::HandlerResult;

/// The fallback scheduler's status and the result of its run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CronStatus {
    /// Always `ok`.
    status: &'static str,
    /// The primary scheduler: always `pulse`.
    canonical_scheduler: &'static str,
    /// Result of the run; absent if none was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<CronRun>,
}

pub(super) async fn get(context: RequestContext<App>, (): ()) -> HandlerResult {
    let query = Query::from_uri(&context.head.uri);
    let run = match query.get("run")? {
        Some("true") => Some(run(&context.state).await?),
        None | Some("false") => None,
        Some(_) => return Err(HttpError::invalid("run", "must be true or false")),
    };
    let status = CronStatus { status: "ok", canonical_scheduler: "pulse", run };
    response::json(StatusCode::OK, &status)
}

async fn run(app: &Arc<App>) -> Result<CronRun, HttpError> {
    // One half of the time is for finding the due occurrences, so that some are run however many there are.
    let began = Instant::now();
    let (search_deadline, run_deadline) = (began + app.pulse.deadline / 2, began + app.pulse.deadline);
    let Some(pulse) = app.pulse.remote.as_deref() else { return run_local(app, run_deadline).await };
    let (records, now) = (&*app.records, app.pulse.now());
    let (source, due) = match due_from_scheduler(pulse, records, now, search_deadline).await {
        Ok(due) => ("scheduler", due),
        Err(error) => {
            tracing::warn!(%error, "the scheduler is unavailable; due jobs are reported from the cache");
            ("memory", due_from_links(app, search_deadline).await?)
        }
    };
    let due_count = due.count;
    let chosen = app.pulse.cron_rotation.choose(due, MAX_RUNS_PER_CALL);
    let mut result = CronRun { source, due: due_count, ..CronRun::default() };
    let timeout = tokio::time::sleep(run_deadline.saturating_duration_since(Instant::now()));
    let runs = stream::iter(chosen)
        .map(|delivery| run_occurrence(app, delivery, false))
        .buffer_unordered(MAX_CONCURRENT_RUNS);
    let mut runs = std::pin::pin!(runs.take_until(timeout));
    let mut ended_count = 0;
    while let Some(outcome) = runs.next().await {
        ended_count += 1;
        match outcome {
            Ok(Completion::Completed) => result.done += 1,
            Ok(Completion::AlreadyCompleted) => result.done_before += 1,
            Err(error) if is_busy(&error) => result.busy += 1,
            Err(error) => {
                tracing::warn!(%error, "a due job failed");
                result.failed += 1;
            }
        }
    }
    result.left = due_count - ended_count;
    Ok(result)
}

/// Reads the scheduler's jobs to the end, or until the time is up.
async fn due_from_scheduler(
    pulse: &dyn Pulse,
    records: &dyn Records,
    now: Timestamp,
    until: Instant,
) -> Result<DueOccurrences, PulseError> {
    let mut due = DueOccurrences::new(MAX_RUNS_PER_CALL);
    for state in [JobState::Retryable, JobState::Scheduled] {
        let filter = JobFilter { state: Some(state), ..JobFilter::default() };
        let mut cursor = None;
        while Instant::now() < until {
            let order = JobOrder::OldestFirst;
            let page = pulse.list_jobs(&filter, order, cursor.as_deref(), MAX_PAGE_RECORDS).await?;
            for job in page.jobs {
                let is_due = job.execute_at <= now
                    || state == JobState::Retryable && is_undelivered(records, &job).await?;
                if is_due {
                    due.add(Delivery {
                        payload: job.payload,
                        job_id: job.job_id,
                        occurrence: job.occurrence,
                        scheduled_for: job.execute_at,
                        attempt: job.attempt + 1,
                    });
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(due)
}

/// Returns true if the scheduler could not deliver an occurrence that waits for another attempt, so that it is overdue. One
/// that the application has run, and that failed, waits for the time that the scheduler or `Retry-After` has set.
async fn is_undelivered(records: &dyn Records, job: &JobView) -> Result<bool, PulseError> {
    let last = job.attempts.last().filter(|attempt| attempt.occurrence == job.occurrence);
    if last.is_some_and(|attempt| attempt.status.is_none()) {
        return Ok(true);
    }
    match has_failed(records, &job.payload.company_id, (&job.job_id, job.occurrence)).await {
        Ok(failed) => Ok(!failed),
        // Nothing is recorded under an invalid id.
        Err(StoreError::Invalid(_)) => Ok(true),
        Err(error) => Err(PulseError::Unavailable(error.into())),
    }
}

/// Reads the scheduler's last report on each assignment's job, to the end or until the time is up.
async fn due_from_links(app: &App, until: Instant) -> Result<DueOccurrences, StoreError> {
    let (now, mut due) = (app.pulse.now(), DueOccurrences::new(MAX_RUNS_PER_CALL));
    let mut last_company: Option<String> = None;
    loop {
        let companies = app.pulse.inventory.companies(last_company.as_deref()).await?;
        let Some(last) = companies.last().cloned() else { return Ok(due) };
        last_company = Some(last);
        for company in companies.iter().filter(|company| !company.is_empty()) {
            let links = Collection::new(company.as_str(), SYNC_COLLECTION)?;
            let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
            loop {
                if Instant::now() >= until {
                    return Ok(due);
                }
                let page = app.records.list_as::<AssignmentSync>(&links, &list).await?;
                let deliveries =
                    page.records.into_iter().filter_map(|link| delivery_of_link(link.value, now));
                deliveries.for_each(|delivery| due.add(delivery));
                list.cursor = page.next_cursor;
                if list.cursor.is_none() {
                    break;
                }
            }
        }
    }
}

fn delivery_of_link(link: AssignmentSync, now: Timestamp) -> Option<Delivery> {
    let last_sent = link.last_sent?;
    let is_due = |job: &AssignedJob| job.execute_at <= now && !job.paused && !is_local_job(&job.job_id);
    let job = last_sent.job.filter(is_due)?;
    Some(Delivery {
        payload: last_sent.assignment.payload().into(),
        job_id: job.job_id,
        occurrence: job.occurrence?,
        scheduled_for: job.execute_at,
        attempt: 1,
    })
}

pub(super) fn describe(schemas: &mut Schemas) -> Operation {
    let run = json!({"type": "string", "enum": ["true", "false"]});
    let summary =
        "Reports which service runs jobs; with `run=true`, runs due jobs if the scheduler does not.";
    Operation::new("cron", super::pulse::TAG, summary)
        .parameter("query", "run", "Set to true to run due jobs.", run)
        .json_response(
            200,
            "The number of jobs that are due or were run.",
            schemas.schema_for::<CronStatus>(),
        )
        .problems(&[Code::InvalidRequest])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_jobs::job::{Job, JobPayload, NewJob};
    use agent_jobs::schedule::Schedule;
    use agent_platform::memory::MemoryRecords;
    use agent_platform::testing::MemoryPulse;

    use super::super::due::CompanyRotation;
    use super::*;

    const JOBS: i64 = 2_500;

    /// Creates jobs of one company that are due in the future, and then one of another that is due now.
    async fn scheduler(now: Timestamp) -> MemoryPulse {
        let pulse = MemoryPulse::default();
        let payload = |company: &str| JobPayload::for_tool(company, "u", "a", "createTodo");
        let later = Schedule::after(now, Duration::from_secs(3600));
        let job = |company, schedule| Job::new(NewJob::new(payload(company), schedule), now);
        let jobs = (0..JOBS).map(|_| job("first", later.clone()));
        let jobs = jobs.chain([job("last", Schedule::At(now))]).collect();
        pulse.jobs().insert(jobs).await.expect("stored");
        pulse
    }

    #[tokio::test]
    async fn a_due_job_is_found_behind_thousands_of_others() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
        let pulse = scheduler(now).await;
        let (records, until) = (MemoryRecords::default(), Instant::now() + Duration::from_secs(60));
        let due = due_from_scheduler(&pulse, &records, now, until).await.expect("the scheduler answers");
        assert_eq!(due.count, 1);
        let chosen = CompanyRotation::default().choose(due, 1);
        assert_eq!(chosen[0].payload.company_id.as_str(), "last");
        let none = due_from_scheduler(&pulse, &records, now, Instant::now()).await.expect("it is cut short");
        assert_eq!(none.count, 0, "the time is kept");
    }
}
