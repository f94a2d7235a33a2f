//! Translation of job filters to SQL.

use agent_core::ids::JobId;
use agent_jobs::job::{Job, JobFilter, JobOrder, JobState};
use rusqlite::{Connection, ToSql, named_params};

use super::rows::{id_of, parse_stored_job};
use crate::job_row::state_condition;
use crate::sqlite::error::WriteError;

/// A query for the jobs that match a filter.
pub(super) struct JobQuery<'f> {
    conditions: String,
    parameters: Vec<(&'static str, &'f str)>,
}

impl<'f> JobQuery<'f> {
    /// Builds the query for a filter.
    pub(super) fn from_filter(filter: &'f JobFilter) -> Self {
        let JobFilter { scope, agent, tool, assignment, state, open } = filter;
        let mut conditions = vec!["1"];
        let mut parameters = Vec::new();
        // A unary plus excludes a column from index selection, where another index is better.
        let by_user = if assignment.is_some() || *state == Some(JobState::Discarded) {
            "+user_id = :user"
        } else {
            "user_id = :user"
        };
        let texts = [
            (scope.company.as_deref(), "company = :company", ":company"),
            (scope.user.as_deref(), by_user, ":user"),
            (agent.as_deref(), "agent = :agent", ":agent"),
            (tool.as_deref(), "tool = :tool", ":tool"),
            (assignment.as_deref(), "assignment = :assignment", ":assignment"),
        ];
        for (text, condition, name) in texts {
            if let Some(text) = text {
                conditions.push(condition);
                parameters.push((name, text));
            }
        }
        conditions.extend(state.map(|state| state_condition(state, "dead = 1")));
        if *open {
            conditions.push("ended_ms IS NULL");
        }
        Self { conditions: conditions.join(" AND "), parameters }
    }

    /// Reads at most `limit` matching rows that follow an id. A job that cannot be parsed is `None`.
    pub(super) fn list(
        &self,
        connection: &Connection,
        order: JobOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(JobId, Option<Job>)>, WriteError> {
        let mut parameters = self.parameters();
        parameters.extend_from_slice(named_params! {":limit": limit});
        if let Some(after) = &after {
            parameters.push((":after", after as _));
        }
        let mut statement = connection.prepare_cached(&self.list_sql(order, after.is_some()))?;
        let mut rows = statement.query(&parameters[..])?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            match parse_stored_job(row) {
                Ok(found) => jobs.push((found.job.id.clone(), Some(found.job))),
                Err(WriteError::Refused(_)) => jobs.push((id_of(row)?, None)),
                Err(failed) => return Err(failed),
            }
        }
        Ok(jobs)
    }

    /// Returns the number of matching rows.
    pub(super) fn count(&self, connection: &Connection) -> Result<u64, WriteError> {
        let mut statement = connection.prepare_cached(&self.count_sql())?;
        Ok(statement.query_row(&self.parameters()[..], |row| row.get(0))?)
    }

    /// Returns the number of matching rows, but at most `limit`: it counts no further.
    pub(super) fn count_up_to(&self, connection: &Connection, limit: u64) -> Result<u64, WriteError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut parameters = self.parameters();
        parameters.extend_from_slice(named_params! {":limit": limit});
        let mut statement = connection.prepare_cached(&self.count_up_to_sql())?;
        Ok(statement.query_row(&parameters[..], |row| row.get(0))?)
    }

    fn parameters(&self) -> Vec<(&str, &dyn ToSql)> {
        self.parameters.iter().map(|(name, text)| (*name, text as _)).collect()
    }

    pub(super) fn list_sql(&self, order: JobOrder, is_continued: bool) -> String {
        let (after, order) = match order {
            JobOrder::NewestFirst => ("id < :after", "id DESC"),
            JobOrder::OldestFirst => ("id > :after", "id"),
        };
        let after = if is_continued { after } else { "1" };
        let conditions = &self.conditions;
        format!(
            "SELECT rowid, id, body, progress FROM jobs WHERE {after} AND {conditions} ORDER BY {order} LIMIT :limit"
        )
    }

    pub(super) fn count_sql(&self) -> String {
        format!("SELECT count(*) FROM jobs WHERE {}", self.conditions)
    }

    pub(super) fn count_up_to_sql(&self) -> String {
        format!("SELECT count(*) FROM (SELECT 1 FROM jobs WHERE {} LIMIT :limit)", self.conditions)
    }
}
