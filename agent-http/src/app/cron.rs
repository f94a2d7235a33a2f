//! `GET /api/cron`: fallback that runs due occurrences while the scheduler does not, under the scheduler's own
//! occurrence keys, so that no occurrence runs twice.
//!
//! The list of due occurrences comes from the scheduler if it responds. Otherwise it comes from what the scheduler
//! last reported of each assignment's job. That is one occurrence per job, since only the scheduler knows the numbers
//! of later ones.

use std::sync::Arc;

use agent_core::job::{Delivery, JobFilter, JobState, JobView};
use agent_platform::assignment::{LINKS, Link};
use agent_platform::pulse::{Pulse, PulseError};
use agent_platform::records::{Collection, List, MAX_PAGE, RecordsExt, StoreError};
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::pulse::{Worked, work};
use super::{App, answer};
use crate::error::{Code, HttpError};
use crate::request::{Handled, Query};
use crate::serve::Body;

pub(super) const PATH: &str = "/api/cron";

/// Maximum number of occurrences that one call runs.
const MAX_RUN: usize = 50;
/// Maximum number of concurrent runs.
const AT_ONCE: usize = 8;
/// Maximum number of pages of jobs, or of remembered jobs, that one call reads.
const PAGES: usize = 20;

/// The fallback scheduler's status and the result of its run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CronStatus {
    /// Always `ok`.
    status: &'static str,
    /// The primary scheduler: always `pulse`.
    canonical_scheduler: &'static str,
    /// Result of the run; absent if none was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<CronRun>,
}

/// Result of one run of the fallback.
#[derive(Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CronRun {
    /// Source of the due occurrences: `scheduler` or `memory`.
    source: &'static str,
    /// Number of due occurrences among those examined.
    due: usize,
    /// Number of occurrences completed by this call.
    done: usize,
    /// Number of occurrences that were already complete.
    done_before: usize,
    /// Number of occurrences that are being run by another process, or rejected because too many runs are in
    /// progress.
    busy: usize,
    /// Number of failed occurrences; they can be retried.
    failed: usize,
    /// Number of due occurrences left for the next call.
    left: usize,
}

pub(super) async fn get(app: &Arc<App>, request: Request<Body>) -> Handled {
    let (head, _) = request.into_parts();
    let gate = app.pulse.cron.as_ref().ok_or_else(|| HttpError::not_configured("CRON_SECRET"))?;
    gate.check(&head.headers)?;
    let query = Query::of(&head.uri);
    let run = match query.get("run")? {
        Some("true") => Some(run(app).await?),
        _ => None,
    };
    let status = CronStatus { status: "ok", canonical_scheduler: "pulse", run };
    answer::json(StatusCode::OK, &status)
}

async fn run(app: &Arc<App>) -> Result<CronRun, HttpError> {
    let now = app.pulse.now();
    let said = match app.pulse.client() {
        Ok(pulse) => due_by_scheduler(pulse, now).await,
        Err(_) => Err(PulseError::NotConfigured),
    };
    let (source, mut due) = match said {
        Ok(due) => ("scheduler", due),
        Err(error) => {
            tracing::warn!(%error, "what is due is told from memory");
            ("memory", due_by_memory(app, now).await?)
        }
    };
    let all = due.len();
    due.truncate(MAX_RUN);
    let mut result = CronRun { source, due: all, ..CronRun::default() };
    let deadline = tokio::time::sleep(app.pulse.deadline);
    let works = stream::iter(due).map(|delivery| work(app, delivery, false)).buffer_unordered(AT_ONCE);
    let mut works = std::pin::pin!(works.take_until(deadline));
    let mut ended = 0;
    while let Some(worked) = works.next().await {
        ended += 1;
        match worked {
            Ok(Worked::Now) => result.done += 1,
            Ok(Worked::Before) => result.done_before += 1,
            Err(error) if matches!(error.code(), Code::Conflict | Code::RateLimited) => result.busy += 1,
            Err(error) => {
                tracing::warn!(%error, "a job has failed");
                result.failed += 1;
            }
        }
    }
    result.left = all - ended;
    Ok(result)
}

async fn due_by_scheduler(pulse: &dyn Pulse, now: Timestamp) -> Result<Vec<Delivery>, PulseError> {
    let mut due = Vec::new();
    for state in [JobState::Scheduled, JobState::Retryable] {
        let filter = JobFilter { state: Some(state), ..JobFilter::default() };
        let mut cursor = None;
        for _ in 0..PAGES / 2 {
            let page = pulse.get_jobs(&filter, cursor.as_deref(), MAX_PAGE).await?;
            // A retryable occurrence is overdue; its backoff concerns the scheduler, which could not deliver it.
            let is_due = |job: &JobView| state == JobState::Retryable || job.execute_at <= now;
            let jobs = page.jobs.into_iter().filter(is_due);
            due.extend(jobs.map(|job| Delivery {
                payload: job.payload,
                job_id: job.job_id,
                occurrence: job.occurrence,
                scheduled_for: job.execute_at,
                attempt: job.attempt + 1,
            }));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    due.sort_by_key(|delivery| delivery.scheduled_for);
    Ok(due)
}

async fn due_by_memory(app: &App, now: Timestamp) -> Result<Vec<Delivery>, StoreError> {
    let (mut due, mut pages) = (Vec::new(), 0);
    let mut after: Option<String> = None;
    loop {
        let companies = app.pulse.inventory.companies(after.as_deref()).await?;
        let Some(last) = companies.last().cloned().filter(|_| pages < PAGES) else { break };
        after = Some(last);
        for company in companies.iter().filter(|company| !company.is_empty()) {
            let links = Collection::new(company.as_str(), LINKS)?;
            let mut list = List { limit: Some(MAX_PAGE), ..List::default() };
            while pages < PAGES {
                let page = app.records.list_as::<Link>(&links, &list).await?;
                // Empty pages of companies without links do not count towards the limit.
                pages += usize::from(!page.records.is_empty());
                due.extend(page.records.into_iter().filter_map(|record| remembered(record.value, now)));
                list.cursor = page.next_cursor;
                if list.cursor.is_none() {
                    break;
                }
            }
        }
    }
    due.sort_by_key(|delivery| delivery.scheduled_for);
    Ok(due)
}

fn remembered(link: Link, now: Timestamp) -> Option<Delivery> {
    let told = link.told?;
    let job = told.job.filter(|job| job.execute_at <= now)?;
    Some(Delivery {
        payload: told.assignment.payload().into(),
        job_id: job.job_id,
        occurrence: job.occurrence?,
        scheduled_for: job.execute_at,
        attempt: 1,
    })
}
