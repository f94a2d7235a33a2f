//! Translation of job filters to SQL.

use agent_jobs::job::{JobFilter, JobOrder};
use tokio_postgres::Row;

use crate::job_row::state_condition;
use crate::postgres::error::PostgresError;
use crate::postgres::param::Param;
use crate::postgres::session::{Session, contains_nul};

/// SQL conditions and parameters of a job filter.
pub(super) struct SqlFilter<'f> {
    conditions: String,
    values: Vec<&'f str>,
}

impl<'f> SqlFilter<'f> {
    /// Translates a filter. Returns `None` if no job can match.
    pub(super) fn from_filter(filter: &'f JobFilter) -> Option<Self> {
        let JobFilter { scope, agent, tool, assignment, state, open } = filter;
        let texts = [
            (scope.company.as_deref(), "company"),
            (scope.user.as_deref(), "user_id"),
            (agent.as_deref(), "agent"),
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
            conditions.push_str(state_condition(*state, "dead"));
        }
        if *open {
            conditions.push_str(" AND ended_ms IS NULL");
        }
        Some(Self { conditions, values })
    }

    /// Reads at most `limit` matching jobs that follow an id.
    pub(super) async fn select(
        &self,
        session: &Session,
        order: JobOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Row>, PostgresError> {
        // No stored id contains NUL, but a cursor may. The part before the NUL is the next smaller id.
        let cut =
            after.map(|after| after.split_once('\0').map_or((after, false), |(before, _)| (before, true)));
        let (operator, direction) = match (order, cut) {
            (JobOrder::OldestFirst, _) => (">", "ASC"),
            (JobOrder::NewestFirst, Some((_, true))) => ("<=", "DESC"),
            (JobOrder::NewestFirst, _) => ("<", "DESC"),
        };
        let limit = row_limit(limit);
        let mut values = self.sql_values();
        values.push(&limit);
        let mut after = String::new();
        if let Some((id, _)) = &cut {
            values.push(id);
            after = format!(" AND id {operator} ${}", values.len());
        }
        let sql = format!(
            "SELECT id, body, progress FROM jobs WHERE true{}{after} ORDER BY id {direction} LIMIT ${}",
            self.conditions,
            self.values.len() + 1,
        );
        session.query(&sql, &values).await
    }

    /// Returns the number of matching jobs.
    pub(super) async fn count(&self, session: &Session) -> Result<u64, PostgresError> {
        let sql = format!("SELECT count(*) FROM jobs WHERE true{}", self.conditions);
        Ok(counted(&session.query(&sql, &self.sql_values()).await?))
    }

    /// Returns the number of matching jobs, but at most `limit`: the server counts no further.
    pub(super) async fn count_up_to(&self, session: &Session, limit: u64) -> Result<u64, PostgresError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut values = self.sql_values();
        values.push(&limit);
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE true{} LIMIT ${}) AS found",
            self.conditions,
            values.len(),
        );
        Ok(counted(&session.query(&sql, &values).await?))
    }

    fn sql_values(&self) -> Vec<&(dyn Param + Sync)> {
        self.values.iter().map(|text| text as _).collect()
    }
}

/// Returns the number in the only column of the only row.
fn counted(rows: &[Row]) -> u64 {
    let count: i64 = rows.first().map_or(0, |row| row.get(0));
    u64::try_from(count).unwrap_or_default()
}

/// Converts a limit to the type that the server takes.
pub(super) fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
