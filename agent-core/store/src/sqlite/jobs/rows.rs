//! The statements that read and write jobs.

use std::cell::Cell;

use agent_core::job::{Inserted, Job, JobFilter, Refusal, Step, Stepped};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::filter::Query;
use crate::job_row::{Changing, JobRow, parse};
use crate::sqlite::fault::Halt;

/// How many jobs are cancelled before the next ones are read.
const CANCELLED_AT_ONCE: usize = 500;

pub(super) const OF_ID: &str = "SELECT rowid, id, body FROM jobs WHERE id = ?1";
pub(super) const OF_KEY: &str = "SELECT rowid, id, body FROM jobs WHERE company = ?1 AND idempotency = ?2";
pub(super) const PURGE: &str = "
    DELETE FROM jobs
    WHERE rowid IN (SELECT rowid FROM jobs WHERE ended_ms < ?1 ORDER BY ended_ms LIMIT ?2)";

/// Jobs as one transaction sees them.
pub(super) struct JobRows<'c> {
    pub(super) connection: &'c Connection,
    changed: Cell<bool>,
}

/// Where a job stands in the table, and the job.
pub(super) type Found = (i64, Job);

impl<'c> JobRows<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, changed: Cell::new(false) }
    }

    /// Whether anything was written.
    pub(super) fn changed(&self) -> bool {
        self.changed.get()
    }

    pub(super) fn insert(&self, row: &JobRow) -> Result<Inserted, Halt> {
        let JobRow { job, changing } = row;
        let payload = &job.payload;
        if let Some(key) = row.idempotency_key()
            && let Some(found) = self.of_key(&payload.company_id, key)?
        {
            return Ok(Inserted::over(found, job));
        }
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency,
                               state, wake_ms, ended_ms, dead, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
        statement.execute(params![
            job.id,
            payload.company_id,
            payload.user_id,
            payload.tool_id,
            payload.assignment_id,
            row.idempotency_key(),
            changing.state,
            changing.wake_ms,
            changing.ended_ms,
            changing.dead,
            changing.body,
        ])?;
        self.changed.set(true);
        Ok(Inserted::New)
    }

    fn of_key(&self, company: &str, key: &str) -> Result<Option<Job>, Halt> {
        let mut statement = self.connection.prepare_cached(OF_KEY)?;
        let mut rows = statement.query(params![company, key])?;
        rows.next()?.map(|row| found(row).map(|(_, job)| job)).transpose()
    }

    pub(super) fn get(&self, id: &str) -> Result<Option<Job>, Halt> {
        Ok(self.find(id)?.map(|(_, job)| job))
    }

    fn find(&self, id: &str) -> Result<Option<Found>, Halt> {
        let mut statement = self.connection.prepare_cached(OF_ID)?;
        let mut rows = statement.query([id])?;
        rows.next()?.map(found).transpose()
    }

    pub(super) fn list(
        &self,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Job>, Halt> {
        let found = Query::of(filter, false).run(self.connection, after, limit)?;
        Ok(found.into_iter().map(|(_, job)| job).collect())
    }

    pub(super) fn step(
        &self,
        id: &str,
        step: Step,
        now: Timestamp,
    ) -> Result<Option<Result<Stepped, Refusal>>, Halt> {
        self.find(id)?.map(|found| self.step_of(&found, step, now)).transpose()
    }

    /// Takes a step with a job that was found, and stores what came of it.
    pub(super) fn step_of(
        &self,
        (rowid, job): &Found,
        step: Step,
        now: Timestamp,
    ) -> Result<Result<Stepped, Refusal>, Halt> {
        let stepped = job.step(step, now);
        if let Ok(Stepped { job, changed: true, .. }) = &stepped {
            self.update(*rowid, &Changing::of(job)?)?;
        }
        Ok(stepped)
    }

    fn update(&self, rowid: i64, changing: &Changing) -> Result<(), Halt> {
        let Changing { state, wake_ms, ended_ms, dead, body } = changing;
        self.connection
            .prepare_cached(
                "UPDATE jobs SET state = ?2, wake_ms = ?3, ended_ms = ?4, dead = ?5, body = ?6
                 WHERE rowid = ?1",
            )?
            .execute(params![rowid, state, wake_ms, ended_ms, dead, body])?;
        self.changed.set(true);
        Ok(())
    }

    /// Sees to it that a job is not looked at for a while, whatever it says itself.
    pub(super) fn postpone(&self, rowid: i64, wake_ms: i64) -> Result<(), Halt> {
        self.connection
            .prepare_cached("UPDATE jobs SET wake_ms = ?2 WHERE rowid = ?1")?
            .execute([rowid, wake_ms])?;
        self.changed.set(true);
        Ok(())
    }

    pub(super) fn cancel_all(&self, filter: &JobFilter, now: Timestamp) -> Result<u64, Halt> {
        let query = Query::of(filter, true);
        let mut cancelled = 0;
        let mut after: Option<String> = None;
        loop {
            let found = query.run(self.connection, after.as_deref(), CANCELLED_AT_ONCE)?;
            let Some((_, last)) = found.last() else { return Ok(cancelled) };
            after = Some(last.id.clone());
            for found in &found {
                cancelled += u64::from(self.step_of(found, Step::Cancel, now)?.is_ok());
            }
        }
    }

    /// When the next job wakes.
    pub(super) fn earliest(&self) -> Result<Option<i64>, Halt> {
        let mut statement = self.connection.prepare_cached(super::claim::EARLIEST)?;
        Ok(statement.query_row((), |row| row.get(0)).optional()?)
    }

    pub(super) fn purge(&self, ended_before_ms: i64, limit: usize) -> Result<u64, Halt> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let removed = self.connection.prepare_cached(PURGE)?.execute([ended_before_ms, limit])?;
        self.changed.set(self.changed.get() || removed > 0);
        Ok(removed as u64)
    }
}

/// The job of a row that begins with `rowid, id, body`.
pub(super) fn found(row: &Row<'_>) -> Result<Found, Halt> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    Ok((row.get(0)?, parse(text(1)?, text(2)?)?))
}
