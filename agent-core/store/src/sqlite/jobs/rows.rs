//! Statements that read and write jobs.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use agent_core::ids::JobId;
use agent_jobs::job::{InsertOutcome, Job, JobScope, Step, StepOutcome, StepResult};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use serde::de::Error as _;

use crate::job_row::{self, JobRow, MutableColumns, malformed, parse_job};
use crate::sqlite::claimed_jobs::{ClaimedJob, ClaimedJobCache};
use crate::sqlite::error::WriteError;

pub(super) const SELECT_EARLIEST: &str =
    "SELECT wake_ms FROM jobs WHERE wake_ms IS NOT NULL ORDER BY wake_ms LIMIT 1";

pub(super) const SELECT_BY_ID: &str = "SELECT rowid, id, body, progress FROM jobs WHERE id = ?1";
pub(super) const SELECT_BY_IDEMPOTENCY_KEY: &str =
    "SELECT rowid, id, body, progress FROM jobs WHERE company = ?1 AND idempotency = ?2";
/// Reads rows in the order of the array, which is the outer loop of the cross join.
pub(super) const SELECT_BY_ROWIDS: &str = "
    SELECT jobs.rowid, id, body, progress FROM rarray(?1) AS chosen CROSS JOIN jobs ON jobs.rowid = chosen.value";
/// Writes the columns that a step may change.
const UPDATE: &str = "
    UPDATE jobs SET state = ?2, wake_ms = ?3, ended_ms = ?4, dead = ?5, progress = ?6 WHERE rowid = ?1";
/// Variant of [`UPDATE`] for a job that was not final and is not, so that `?4` is NULL. SQLite would write the entry of the
/// index `jobs_open` again if the statement set `ended_ms`.
pub(super) const UPDATE_OPEN: &str = "
    UPDATE jobs SET state = ?2, wake_ms = ?3, dead = ?5, progress = ?6 WHERE rowid = ?1 AND ended_ms IS ?4";
/// Variant of [`UPDATE`] that applies only if the row still has the cached content.
pub(super) const UPDATE_IF_UNCHANGED: &str = "
    UPDATE jobs SET state = ?2, wake_ms = ?3, ended_ms = ?4, dead = ?5, progress = ?6
    WHERE rowid = ?1 AND id = ?7 AND body = ?8 AND progress = ?9";
/// Variant of [`UPDATE_IF_UNCHANGED`] as [`UPDATE_OPEN`] is one of [`UPDATE`].
pub(super) const UPDATE_OPEN_IF_UNCHANGED: &str = "
    UPDATE jobs SET state = ?2, wake_ms = ?3, dead = ?5, progress = ?6
    WHERE rowid = ?1 AND ended_ms IS ?4 AND id = ?7 AND body = ?8 AND progress = ?9";
pub(super) const PURGE: &str = "
    DELETE FROM jobs
    WHERE rowid IN (SELECT rowid FROM jobs WHERE ended_ms < ?1 ORDER BY ended_ms LIMIT ?2)";

/// Access to the jobs table within one transaction.
pub(super) struct JobTable<'c> {
    pub(super) connection: &'c Connection,
    claimed: Option<&'c ClaimedJobCache>,
    changed: Cell<bool>,
    find: LazyStatement<'c>,
    update: LazyStatement<'c>,
    update_open: LazyStatement<'c>,
    update_claimed: LazyStatement<'c>,
    update_claimed_open: LazyStatement<'c>,
}

/// A statement that is run for many jobs: prepared at first use, without further lookups in the statement cache.
#[derive(Default)]
struct LazyStatement<'c>(RefCell<Option<CachedStatement<'c>>>);

impl<'c> LazyStatement<'c> {
    fn get_or_prepare(
        &self,
        connection: &'c Connection,
        sql: &str,
    ) -> rusqlite::Result<RefMut<'_, CachedStatement<'c>>> {
        let mut cached = self.0.borrow_mut();
        let statement = cached.take().map_or_else(|| connection.prepare_cached(sql), Ok)?;
        Ok(RefMut::map(cached, |cached| cached.insert(statement)))
    }
}

/// A job read from the table.
pub(super) struct StoredJob {
    rowid: i64,
    pub(super) job: Job,
    /// Column `body`, if the job may be cached after the step.
    pub(super) body: Option<String>,
}

impl<'c> JobTable<'c> {
    /// Creates read access.
    pub(super) fn new(connection: &'c Connection) -> Self {
        let (changed, find, update, update_open, update_claimed, update_claimed_open) = Default::default();
        Self {
            connection,
            claimed: None,
            changed,
            find,
            update,
            update_open,
            update_claimed,
            update_claimed_open,
        }
    }

    /// Creates read and write access.
    pub(super) fn writable(connection: &'c Connection, claimed: &'c ClaimedJobCache) -> Self {
        Self { claimed: Some(claimed), ..Self::new(connection) }
    }

    /// Returns true if anything was written.
    pub(super) fn has_written(&self) -> bool {
        self.changed.get()
    }

    /// Inserts a job, unless its idempotency key is in use.
    pub(super) fn insert(&self, row: &JobRow) -> Result<InsertOutcome, WriteError> {
        match self.find_existing(row)? {
            Some(existing) => Ok(existing),
            None => self.insert_new(row),
        }
    }

    /// Inserts a job whose idempotency key is not in use.
    pub(super) fn insert_new(&self, row: &JobRow) -> Result<InsertOutcome, WriteError> {
        let JobRow { job, body, mutable: changing } = row;
        let payload = &job.payload;
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency,
                               state, wake_ms, ended_ms, dead, body, progress, agent)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?;
        statement.execute(params![
            job.id.as_str(),
            payload.company_id.as_str(),
            payload.user_id.as_str(),
            payload.tool_id,
            payload.assignment_id,
            row.idempotency_key(),
            changing.state,
            changing.wake_ms,
            changing.ended_ms,
            changing.dead,
            body,
            changing.progress,
            payload.agent_id.as_str(),
        ])?;
        self.changed.set(true);
        Ok(InsertOutcome::New)
    }

    /// Returns the outcome of inserting a job whose idempotency key is in use.
    pub(super) fn find_existing(&self, row: &JobRow) -> Result<Option<InsertOutcome>, WriteError> {
        let Some(key) = row.idempotency_key() else { return Ok(None) };
        let mut statement = self.connection.prepare_cached(SELECT_BY_IDEMPOTENCY_KEY)?;
        let mut rows = statement.query(params![row.job.payload.company_id.as_str(), key])?;
        let Some(existing) = rows.next()? else { return Ok(None) };
        Ok(Some(InsertOutcome::from_existing(parse_stored_job(existing)?.job, &row.job)))
    }

    pub(super) fn get(&self, scope: &JobScope, id: &str) -> Result<Option<Job>, WriteError> {
        match self.find(id) {
            Ok(found) => Ok(found.map(|found| found.job).filter(|job| scope.contains(job))),
            Err(WriteError::Refused(_)) if !self.is_in_scope(scope, id)? => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn find(&self, id: &str) -> Result<Option<StoredJob>, WriteError> {
        let mut statement = self.find.get_or_prepare(self.connection, SELECT_BY_ID)?;
        let mut rows = statement.query([id])?;
        rows.next()?.map(|row| self.parse_row(row)).transpose()
    }

    /// Reads the jobs of existing rows, in the given order. Each has its own result, because each may fail to
    /// parse.
    pub(super) fn find_by_rowids(
        &self,
        rowids: impl Iterator<Item = i64>,
    ) -> rusqlite::Result<Vec<Result<StoredJob, WriteError>>> {
        let rowids = Rc::new(rowids.map(Value::from).collect::<Vec<_>>());
        let mut statement = self.connection.prepare_cached(SELECT_BY_ROWIDS)?;
        let mut rows = statement.query([&rowids])?;
        let mut jobs = Vec::with_capacity(rowids.len());
        while let Some(row) = rows.next()? {
            jobs.push(self.parse_row(row));
        }
        Ok(jobs)
    }

    /// Parses a job from a row of `rowid, id, body, progress`, with its `body` if it may be cached.
    fn parse_row(&self, row: &Row<'_>) -> Result<StoredJob, WriteError> {
        let body = self.claimed.map(|_| text(row, 2).map(str::to_owned)).transpose()?;
        Ok(StoredJob { body, ..parse_stored_job(row)? })
    }

    /// Applies a step to the job with this id, if there is one within the scope.
    pub(super) fn step(
        &self,
        scope: &JobScope,
        id: &str,
        step: Step,
        now: Timestamp,
    ) -> Result<StepOutcome, WriteError> {
        if let Some(claimed_job) = self.take_claimed(scope, id, &step)
            && let Some(stepped) = self.apply_step_if_unchanged(claimed_job, step.clone(), now)?
        {
            return Ok(StepOutcome::Applied(Box::new(stepped)));
        }
        match self.find(id) {
            Ok(Some(found)) if scope.contains(&found.job) => self.apply_step(found, step, now),
            Ok(_) => Ok(StepOutcome::NotFound),
            Err(WriteError::Refused(StoreError::Malformed { .. })) => {
                let is_in_scope = self.is_in_scope(scope, id)?;
                Ok(if is_in_scope { StepOutcome::Unreadable } else { StepOutcome::NotFound })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if a row belongs to the scope by its columns.
    pub(super) fn is_in_scope(&self, scope: &JobScope, id: &str) -> Result<bool, WriteError> {
        let JobScope { company, user } = scope;
        let mut statement = self.connection.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM jobs WHERE id = ?1 AND company = coalesce(?2, company)
                                                 AND user_id = coalesce(?3, user_id))",
        )?;
        Ok(statement.query_row(params![id, company.as_deref(), user.as_deref()], |row| row.get(0))?)
    }

    /// Removes and returns the cached job, for steps that only the holder of its claim takes.
    fn take_claimed(&self, scope: &JobScope, id: &str, step: &Step) -> Option<ClaimedJob> {
        self.claimed
            .filter(|_| job_row::ends_delivery(step))?
            .take(id)
            .filter(|claimed| scope.contains(&claimed.job))
    }

    /// Applies a step to a cached job and writes it if the row is unchanged. Returns `None` if the row has
    /// changed, or if the step is refused: a refusal must be based on the row.
    fn apply_step_if_unchanged(
        &self,
        claimed: ClaimedJob,
        step: Step,
        now: Timestamp,
    ) -> Result<Option<StepResult>, WriteError> {
        let ClaimedJob { rowid, body, progress: before, job } = claimed;
        let Ok(stepped) = job.step(step, now) else { return Ok(None) };
        let MutableColumns { state, wake_ms, ended_ms, dead, progress } =
            MutableColumns::from_job(&stepped.job)?;
        let id = stepped.job.id.as_str();
        let (update, sql) = match ended_ms {
            Some(_) => (&self.update_claimed, UPDATE_IF_UNCHANGED),
            None => (&self.update_claimed_open, UPDATE_OPEN_IF_UNCHANGED),
        };
        let values = params![rowid, state, wake_ms, ended_ms, dead, progress, id, body, before];
        let written = update.get_or_prepare(self.connection, sql)?.execute(values)?;
        if written == 0 {
            return Ok(None);
        }
        self.changed.set(true);
        if let Some(claimed) = self.claimed {
            claimed.insert(rowid, body, progress, &stepped.job);
        }
        Ok(Some(stepped))
    }

    /// Applies a step to a job and stores the result.
    pub(super) fn apply_step(
        &self,
        found: StoredJob,
        step: Step,
        now: Timestamp,
    ) -> Result<StepOutcome, WriteError> {
        let StoredJob { rowid, job, mut body } = found;
        let is_moved = matches!(step, Step::Reschedule(_));
        let outcome = StepOutcome::from(job.step(step, now));
        if let StepOutcome::Applied(result) = &outcome
            && result.changed
        {
            let job = &result.job;
            if is_moved {
                body = Some(self.update_body(rowid, job)?);
            }
            self.write(rowid, job, body)?;
        }
        Ok(outcome)
    }

    /// Writes a job after a step, and caches it if its column `body` is given.
    pub(super) fn write(&self, rowid: i64, job: &Job, body: Option<String>) -> Result<(), WriteError> {
        let progress = self.update(rowid, job)?;
        if let (Some(claimed), Some(body)) = (self.claimed, body) {
            claimed.insert(rowid, body, progress, job);
        }
        Ok(())
    }

    /// Writes the columns that a step may change, and returns the new `progress`.
    fn update(&self, rowid: i64, job: &Job) -> Result<String, WriteError> {
        let MutableColumns { state, wake_ms, ended_ms, dead, progress } = MutableColumns::from_job(job)?;
        let values = params![rowid, state, wake_ms, ended_ms, dead, progress];
        let stays_open = ended_ms.is_none()
            && self.update_open.get_or_prepare(self.connection, UPDATE_OPEN)?.execute(values)? > 0;
        if !stays_open {
            self.update.get_or_prepare(self.connection, UPDATE)?.execute(values)?;
        }
        self.changed.set(true);
        Ok(progress)
    }

    /// Writes the column `body` after a change of the schedule, and returns it.
    fn update_body(&self, rowid: i64, job: &Job) -> Result<String, WriteError> {
        let body = job_row::serialize_body(job)?;
        self.connection
            .prepare_cached("UPDATE jobs SET body = ?2 WHERE rowid = ?1")?
            .execute(params![rowid, body])?;
        Ok(body)
    }

    /// Sets the wake time of a row.
    pub(super) fn postpone(&self, rowid: i64, wake_ms: i64) -> Result<(), WriteError> {
        self.connection
            .prepare_cached("UPDATE jobs SET wake_ms = ?2 WHERE rowid = ?1")?
            .execute([rowid, wake_ms])?;
        self.changed.set(true);
        Ok(())
    }

    /// Returns the time at which the next job is due, in milliseconds since 1970.
    pub(super) fn earliest(&self) -> Result<Option<i64>, WriteError> {
        let mut statement = self.connection.prepare_cached(SELECT_EARLIEST)?;
        Ok(statement.query_row((), |row| row.get(0)).optional()?)
    }

    pub(super) fn purge(&self, ended_before_ms: i64, limit: usize) -> Result<u64, WriteError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let removed = self.connection.prepare_cached(PURGE)?.execute([ended_before_ms, limit])?;
        self.changed.set(self.changed.get() || removed > 0);
        Ok(removed as u64)
    }
}

/// Parses a job from a row of `rowid, id, body, progress`.
pub(super) fn parse_stored_job(row: &Row<'_>) -> Result<StoredJob, WriteError> {
    let progress = match row.get_ref(3)? {
        ValueRef::Null => None,
        _ => Some(text(row, 3)?),
    };
    let job = parse_job(text(row, 1)?, text(row, 2)?, progress)?;
    Ok(StoredJob { rowid: row.get(0)?, job, body: None })
}

/// Returns the id of a row of `rowid, id, …`, whatever its other columns contain.
pub(super) fn id_of(row: &Row<'_>) -> Result<JobId, WriteError> {
    Ok(String::from_utf8_lossy(row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?).as_ref().into())
}

/// Returns a text column of a row of `rowid, id, …`; a job with text that is not UTF-8 is malformed.
fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, WriteError> {
    match row.get_ref(column)?.as_str() {
        Ok(text) => Ok(text),
        Err(error) => Err(malformed(&id_of(row)?, serde_json::Error::custom(error)).into()),
    }
}
