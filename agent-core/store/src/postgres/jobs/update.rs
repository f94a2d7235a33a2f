//! State transitions of jobs, and their storage.

use std::collections::{HashMap, HashSet};

use agent_core::ids::JobId;
use agent_jobs::job::{Job, JobScope, Step, StepError, StepOutcome, StepResult};
use jiff::Timestamp;

use super::{NOTIFY_IF_EARLIEST, Sender, parse_row};
use crate::job_row::{self, MutableColumns};
use crate::postgres::error::OperationError;
use crate::postgres::param::Param;
use crate::postgres::schema::{SELECT_VERSIONS, SELECT_VERSIONS_WITH_LOCK_TIMEOUT, check_not_newer};
use crate::postgres::session::{Query, Session, Values, contains_nul};

/// The jobs with the ids `$1`, of the company `$2` and the user `$3` unless they are NULL.
macro_rules! jobs_in_scope {
    () => {
        "FROM jobs
         WHERE id = ANY ($1) AND ($2::text IS NULL OR company = $2) AND ($3::text IS NULL OR user_id = $3)"
    };
}

/// Reads and locks jobs in the order of ids, as every statement that waits for row locks does.
macro_rules! select_for_update {
    ($locked_rows:literal) => {
        concat!("SELECT id, body, progress ", jobs_in_scope!(), " ORDER BY id FOR UPDATE", $locked_rows)
    };
}

const SELECT_FOR_UPDATE: &str = select_for_update!("");
/// Leaves out the jobs that other transactions have locked.
const SELECT_UNLOCKED: &str = select_for_update!(" SKIP LOCKED");

/// Reads which of these jobs there are.
const SELECT_IDS: &str = concat!("SELECT id ", jobs_in_scope!());

/// Updates locked rows. Their `ctid` is stable, because they are locked. `LIMIT` makes the planner look up
/// each row by its id, even if it planned the statement while the table was nearly empty.
const UPDATE_LOCKED: &str = "
    UPDATE jobs AS job
    SET state = new.state, wake_ms = new.wake_ms, ended_ms = new.ended_ms, dead = new.dead,
        progress = new.progress, body = coalesce(new.body, job.body)
    FROM unnest($1::text[], $2::text[], $3::int8[], $4::int8[], $5::bool[], $6::text[], $7::text[])
        AS new (id, state, wake_ms, ended_ms, dead, progress, body)
    CROSS JOIN LATERAL (SELECT ctid FROM jobs WHERE id = new.id LIMIT 1) AS found
    WHERE job.ctid = found.ctid";

/// Column arrays of changed jobs.
#[derive(Default)]
pub(super) struct JobUpdates {
    ids: Vec<String>,
    states: Vec<&'static str>,
    wakes: Vec<Option<i64>>,
    ended: Vec<Option<i64>>,
    dead: Vec<bool>,
    progress: Vec<String>,
    /// New `serialize_body` of jobs that were rescheduled.
    bodies: Vec<Option<String>>,
}

impl JobUpdates {
    /// Adds a job after a step other than [`Step::Reschedule`].
    pub(super) fn add(&mut self, job: &Job) -> Result<(), OperationError> {
        self.add_job(job, false)
    }

    fn add_job(&mut self, job: &Job, is_moved: bool) -> Result<(), OperationError> {
        let MutableColumns { state, wake_ms, ended_ms, dead, progress } = MutableColumns::from_job(job)?;
        self.ids.push(job.id.to_string());
        self.states.push(state);
        self.wakes.push(wake_ms);
        self.ended.push(ended_ms);
        self.dead.push(dead);
        self.progress.push(progress);
        self.bodies.push(is_moved.then(|| job_row::serialize_body(job)).transpose()?);
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Writes the changes within the open transaction.
    pub(super) async fn write_rows(&self, session: &Session) -> Result<(), OperationError> {
        if !self.is_empty() {
            session.query(UPDATE_LOCKED, &self.values()).await?;
        }
        Ok(())
    }

    /// Writes the changes and commits.
    pub(super) async fn commit(&self, session: &Session) -> Result<(), OperationError> {
        let values = self.values();
        let update: [Query<'_>; 1] = [(UPDATE_LOCKED, &values)];
        session.commit(if self.is_empty() { &[] } else { &update }).await?;
        Ok(())
    }

    /// Writes the changes, notifies listeners if one of the jobs has become the earliest, and commits.
    /// Returns true if listeners were notified.
    async fn notify_and_commit(&self, session: &Session, sender: &Sender) -> Result<bool, OperationError> {
        let Some(wake_ms) = self.wakes.iter().flatten().min() else {
            self.commit(session).await?;
            return Ok(false);
        };
        let results = session
            .commit(&[
                (NOTIFY_IF_EARLIEST, &[wake_ms, &sender.name, &sender.channel]),
                (UPDATE_LOCKED, &self.values()),
            ])
            .await?;
        Ok(results.first().is_some_and(|rows| !rows.is_empty()))
    }

    fn values(&self) -> [&(dyn Param + Sync); 7] {
        [&self.ids, &self.states, &self.wakes, &self.ended, &self.dead, &self.progress, &self.bodies]
    }
}

/// Applies steps to jobs within a scope, and waits for each lock for at most `lock_timeout`. The flag is true if one of the
/// jobs has become the earliest.
pub(in crate::postgres) async fn apply_steps(
    session: &Session,
    scope: &JobScope,
    steps: &[(JobId, Step)],
    now: Timestamp,
    sender: &Sender,
    lock_timeout: &str,
) -> Result<(Vec<StepOutcome>, bool), OperationError> {
    let locked_rows = LockedRows::Wait(lock_timeout);
    let (outcomes, is_earliest) = run_steps(session, scope, steps, now, sender, locked_rows).await?;
    // None was left out.
    Ok((outcomes.into_iter().flatten().collect(), is_earliest))
}

/// Applies steps to jobs of all companies. The outcome of a job that another transaction has locked is `None`. The flag
/// is true if one of the jobs has become the earliest.
pub(in crate::postgres) async fn apply_steps_unlocked(
    session: &Session,
    steps: &[(JobId, Step)],
    now: Timestamp,
    sender: &Sender,
) -> Result<(Vec<Option<StepOutcome>>, bool), OperationError> {
    run_steps(session, &JobScope::default(), steps, now, sender, LockedRows::LeaveOut).await
}

/// Reaction to rows that other transactions have locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockedRows<'t> {
    /// Waits for them with this timeout.
    Wait(&'t str),
    LeaveOut,
}

async fn run_steps(
    session: &Session,
    scope: &JobScope,
    steps: &[(JobId, Step)],
    now: Timestamp,
    sender: &Sender,
    locked_rows: LockedRows<'_>,
) -> Result<(Vec<Option<StepOutcome>>, bool), OperationError> {
    let JobScope { company, user } = scope;
    let (company, user) = (company.as_deref(), user.as_deref());
    if [company, user].into_iter().flatten().any(contains_nul) {
        return Ok((vec![Some(StepOutcome::NotFound); steps.len()], false));
    }
    let ids: Vec<&str> = steps.iter().map(|(id, _)| id.as_str()).filter(|id| !contains_nul(id)).collect();
    let values: Values<'_> = &[&ids, &company, &user];
    let results = match locked_rows {
        LockedRows::Wait(lock_timeout) => {
            let versions: Query<'_> = (SELECT_VERSIONS_WITH_LOCK_TIMEOUT, &[&lock_timeout]);
            session.begin(&[versions, (SELECT_FOR_UPDATE, values)]).await?
        }
        LockedRows::LeaveOut => {
            session.begin(&[(SELECT_VERSIONS, &[]), (SELECT_UNLOCKED, values), (SELECT_IDS, values)]).await?
        }
    };
    if !steps.iter().all(|(_, step)| job_row::ends_delivery(step)) {
        check_not_newer(results.first())?;
    }
    let mut jobs: HashMap<JobId, Option<LockedJob>> = HashMap::with_capacity(ids.len());
    for row in results.get(1).into_iter().flatten() {
        // An error of a row is one of its content, and concerns no other job.
        let job = parse_row(row).ok();
        let locked = job.map(|job| LockedJob { job, is_changed: false, is_rescheduled: false });
        jobs.insert(row.get::<_, &str>(0).into(), locked);
    }
    let found = results.get(2).into_iter().flatten();
    let found: HashSet<&str> = found.map(|row| row.get::<_, &str>(0)).collect();
    let apply = |(id, step): &(JobId, Step)| match jobs.get_mut(id) {
        Some(Some(job)) => Some(job.step(step.clone(), now).into()),
        Some(None) => Some(StepOutcome::Unreadable),
        None if found.contains(id.as_str()) => None,
        None => Some(StepOutcome::NotFound),
    };
    let outcomes = steps.iter().map(apply).collect();
    let mut update = JobUpdates::default();
    for LockedJob { job, is_rescheduled: is_moved, .. } in
        jobs.values().flatten().filter(|locked| locked.is_changed)
    {
        update.add_job(job, *is_moved)?;
    }
    let is_earliest = update.notify_and_commit(session, sender).await?;
    Ok((outcomes, is_earliest))
}

/// A job whose row is locked.
struct LockedJob {
    job: Job,
    /// True if the job differs from its row.
    is_changed: bool,
    /// True if the schedule differs from that in the row.
    is_rescheduled: bool,
}

impl LockedJob {
    /// Applies a step and keeps the resulting job.
    fn step(&mut self, step: Step, now: Timestamp) -> Result<StepResult, StepError> {
        let is_moved = matches!(step, Step::Reschedule(_));
        let stepped = self.job.clone().step(step, now)?;
        if stepped.changed {
            self.job = stepped.job.clone();
            self.is_changed = true;
            self.is_rescheduled |= is_moved;
        }
        Ok(stepped)
    }
}
