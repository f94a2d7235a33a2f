//! Translation of job filters to SQL.

use agent_jobs::job::{JobFilter, JobState};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{contains_nul, row_limit};
use crate::job_row::MIN_ID;
use crate::postgres::fault::PostgresError;
use crate::postgres::session::Session;

/// SQL conditions and parameters of a job filter.
pub(super) struct SqlFilter<'f> {
    conditions: String,
    values: Vec<&'f str>,
}

impl<'f> SqlFilter<'f> {
    /// Translates a filter. Returns `None` if no job can match.
    pub(super) fn from_filter(filter: &'f JobFilter) -> Option<Self> {
        let JobFilter { scope, tool, assignment, state } = filter;
        let texts = [
            (scope.company.as_deref(), "company"),
            (scope.user.as_deref(), "user_id"),
            (tool.as_deref(), "tool"),
            (assignment.as_deref(), "assignment"),
        ];
        let mut conditions = String::new();
        let mut values = Vec::new();
        for (text, column) in texts {
            let Some(text) = text else { continue };
            if contains_nul(text) {
                return None;
            }
            values.push(text);
            conditions.push_str(&format!(" AND {column} = ${}", values.len()));
        }
        if let Some(state) = state {
            conditions.push_str(" AND ");
            conditions.push_str(state_condition(*state));
        }
        Some(Self { conditions, values })
    }

    /// Reads at most `limit` matching jobs after an id, in the order of ids.
    pub(super) async fn select(
        &self,
        session: &Session,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Row>, PostgresError> {
        let (after, limit) = (after.unwrap_or(MIN_ID), row_limit(limit));
        let n = self.values.len();
        let sql = format!(
            "SELECT id, body, progress FROM scheduler.jobs WHERE id > ${}{} ORDER BY id LIMIT ${}",
            n + 1,
            self.conditions,
            n + 2
        );
        let values: Vec<&(dyn ToSql + Sync)> =
            self.values.iter().map(|text| text as _).chain([&after as _, &limit as _]).collect();
        session.query(&sql, &values).await
    }

    /// Reads and locks at most `limit` matching jobs that are not final, after an id and up to the id `last`.
    /// The locks last until the transaction ends.
    pub(super) async fn select_open_for_update(
        &self,
        session: &Session,
        after: Option<&str>,
        last: &str,
        limit: usize,
    ) -> Result<Vec<Row>, PostgresError> {
        let (after, limit) = (after.unwrap_or(MIN_ID), row_limit(limit));
        let n = self.values.len();
        let sql = format!(
            "SELECT id, body, progress FROM scheduler.jobs WHERE id > ${} AND id <= ${} AND ended_ms IS NULL{}
             ORDER BY id LIMIT ${} FOR UPDATE",
            n + 1,
            n + 2,
            self.conditions,
            n + 3
        );
        let values: Vec<&(dyn ToSql + Sync)> =
            self.values.iter().map(|text| text as _).chain([&after as _, &last as _, &limit as _]).collect();
        session.query(&sql, &values).await
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
        JobState::Discarded => "dead",
        JobState::Cancelled => "state = 'cancelled'",
    }
}
