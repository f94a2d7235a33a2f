//! Translation of job filters to SQL.

use agent_jobs::job::{JobFilter, JobState};
use rusqlite::{Connection, ToSql, named_params};

use super::rows::{StoredJob, found};
use crate::job_row::MIN_ID;
use crate::sqlite::fault::WriteError;

/// A query for jobs in the order of their ids.
pub(super) struct JobQuery<'f> {
    sql: String,
    parameters: Vec<(&'static str, &'f str)>,
}

impl<'f> JobQuery<'f> {
    /// Builds the query for a filter; if `open` is true, only for jobs that are not final.
    pub(super) fn from_filter(filter: &'f JobFilter, open: bool) -> Self {
        let JobFilter { scope, tool, assignment, state } = filter;
        let mut conditions = vec!["id > :after"];
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
            (tool.as_deref(), "tool = :tool", ":tool"),
            (assignment.as_deref(), "assignment = :assignment", ":assignment"),
        ];
        for (text, condition, name) in texts {
            if let Some(text) = text {
                conditions.push(condition);
                parameters.push((name, text));
            }
        }
        conditions.extend(state.map(state_condition));
        if open {
            conditions.push("ended_ms IS NULL");
        }
        let conditions = conditions.join(" AND ");
        let sql =
            format!("SELECT rowid, id, body, progress FROM jobs WHERE {conditions} ORDER BY id LIMIT :limit");
        Self { sql, parameters }
    }

    /// Reads at most `limit` matching jobs after an id.
    pub(super) fn run(
        &self,
        connection: &Connection,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StoredJob>, WriteError> {
        let after = after.unwrap_or(MIN_ID);
        let mut parameters: Vec<(&str, &dyn ToSql)> =
            self.parameters.iter().map(|(name, text)| (*name, text as _)).collect();
        parameters.extend_from_slice(named_params! {":after": after, ":limit": limit});
        let mut statement = connection.prepare_cached(&self.sql)?;
        let mut rows = statement.query(&parameters[..])?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            jobs.push(found(row)?);
        }
        Ok(jobs)
    }

    #[cfg(test)]
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }
}

/// Returns the condition for a state as a constant, because a partial index is not used for a parameter.
fn state_condition(state: JobState) -> &'static str {
    match state {
        JobState::Scheduled => "state = 'scheduled'",
        JobState::Running => "state = 'running'",
        JobState::Retryable => "state = 'retryable'",
        JobState::Paused => "state = 'paused'",
        JobState::Completed => "state = 'completed'",
        // Includes jobs that continue but have dead letters.
        JobState::Discarded => "dead = 1",
        JobState::Cancelled => "state = 'cancelled'",
    }
}
