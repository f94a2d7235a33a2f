//! Usage: entries are booked by the writer thread, sums are read by a reader thread.

use agent_core::ids::{CompanyId, RunId};
use agent_platform::records::StoreError;
use agent_platform::usage::{
    MAX_RUN_ENTRIES, MAX_TRIMMED_ENTRIES, RunEntries, RunOwner, RunScope, UsageEntry, UsagePage, UsageQuery,
    UsageStore, roll_up,
};
use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, Row, Statement, params, params_from_iter};

use super::SqliteStore;
use super::error::WriteError;
use super::write_op::{WriteBatch, WriteOp};
use crate::usage_row::{
    CALL_COLUMNS, CallRow, DayRow, KEY_COLUMNS, SUM_COLUMNS, SumQuery, added_sums, parse_entry, usage_row,
};

/// Approximate size of an entry with its share of the sums, in bytes.
const ENTRY_BYTES: usize = 800;

/// Books entries.
struct BookUsage(Vec<(UsageEntry, CallRow)>);

impl WriteOp for BookUsage {
    type Output = usize;

    fn bytes(&self) -> usize {
        self.0.len() * ENTRY_BYTES
    }

    fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<usize, WriteError> {
        let connection = batch.connection;
        // The ids of runs are unique for a user or a visitor.
        let has_run = "SELECT EXISTS (SELECT 1 FROM usage_calls WHERE company = ?1 AND run = ?2
                       AND CASE WHEN json_valid(body) THEN json_extract(body, '$.userId') = ?3
                           AND ifnull(json_extract(body, '$.visitor'), '') = ?4 END)";
        let mut has_run = connection.prepare_cached(has_run)?;
        let mut insert = connection.prepare_cached(&insert_call())?;
        let mut booked = Vec::new();
        for (entry, row) in &self.0 {
            let user = entry.scope.user_id.as_str();
            let visitor = entry.scope.visitor.as_deref().unwrap_or_default();
            let starts_run = !row.run.is_empty()
                && !has_run.query_row(params![row.company, row.run, user, visitor], |found| {
                    found.get::<_, bool>(0)
                })?;
            if insert_call_row(&mut insert, row)? > 0 {
                booked.push((entry, starts_run));
            }
        }
        let count = booked.len();
        let mut upsert = connection.prepare_cached(&upsert_day())?;
        for (key, sums) in roll_up(booked) {
            insert_day_row(&mut upsert, &DayRow::new(key, &sums))?;
        }
        batch.changes.has_changes |= count > 0;
        Ok(count)
    }
}

/// Deletes old entries.
struct TrimUsage(i64);

impl WriteOp for TrimUsage {
    type Output = usize;

    fn bytes(&self) -> usize {
        0
    }

    fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<usize, WriteError> {
        let sql = "DELETE FROM usage_calls WHERE n IN
                   (SELECT n FROM usage_calls WHERE ended_ms < ?1 ORDER BY ended_ms LIMIT ?2)";
        let deleted = batch.connection.prepare_cached(sql)?.execute(params![self.0, MAX_TRIMMED_ENTRIES])?;
        batch.changes.has_changes |= deleted > 0;
        Ok(deleted)
    }
}

/// Returns the statement that inserts a row of the ledger, unless it exists.
pub(super) fn insert_call() -> String {
    format!(
        "INSERT INTO usage_calls ({CALL_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (company, id) DO NOTHING"
    )
}

/// Inserts a row of the ledger; returns the number of inserted rows.
pub(super) fn insert_call_row(insert: &mut Statement<'_>, row: &CallRow) -> rusqlite::Result<usize> {
    let CallRow { n: _, company, id, run, ended_ms, body } = row;
    insert.execute(params![company, id, run, ended_ms, body])
}

/// Returns the statement that adds sums to those of a day.
pub(super) fn upsert_day() -> String {
    let columns = [KEY_COLUMNS.as_slice(), SUM_COLUMNS.as_slice()].concat();
    let placeholders: Vec<String> = (1..=columns.len()).map(|n| format!("?{n}")).collect();
    let (columns, placeholders, added) = (columns.join(", "), placeholders.join(", "), added_sums("", "min"));
    format!("INSERT INTO usage_days ({columns}) VALUES ({placeholders}) ON CONFLICT DO UPDATE SET {added}")
}

/// Returns the SQL expression of a column's sum, at most `i64::MAX`. SQLite's own `sum` fails if it is greater, so the upper and
/// the lower half of the numbers are summed up apart.
fn clamped_sum(column: &str) -> String {
    let (upper, lower) = (format!("sum({column} >> 32)"), format!("sum({column} & {})", u32::MAX));
    format!(
        "CASE WHEN {upper} + ({lower} >> 32) > {} THEN {} ELSE ({upper} << 32) + {lower} END",
        i32::MAX,
        i64::MAX
    )
}

/// Adds the sums of a row to those of its day.
pub(super) fn insert_day_row(upsert: &mut Statement<'_>, row: &DayRow) -> rusqlite::Result<()> {
    let texts = row.key.iter().map(|text| text as &dyn rusqlite::ToSql);
    let numbers = row.sums.iter().map(|number| number as &dyn rusqlite::ToSql);
    upsert.execute(params_from_iter(texts.chain(numbers)))?;
    Ok(())
}

/// Reads the columns of sums that begin at an index.
pub(super) fn sum_columns(row: &Row<'_>, first: usize) -> rusqlite::Result<[i64; SUM_COLUMNS.len()]> {
    let mut columns = [0; SUM_COLUMNS.len()];
    for (position, column) in columns.iter_mut().enumerate() {
        *column = row.get(first + position)?;
    }
    Ok(columns)
}

/// Reads the entries of the runs with an id, those of an owner if there is one, and one more than are returned.
fn read_run_entries(
    connection: &Connection,
    (company, run): (&str, &str),
    owner: Option<&RunOwner>,
) -> Result<Vec<String>, WriteError> {
    let sql = "SELECT body FROM usage_calls WHERE company = ?1 AND run = ?2
               AND (?3 IS NULL OR CASE WHEN json_valid(body) THEN json_extract(body, '$.userId') = ?3
                   AND ifnull(json_extract(body, '$.visitor'), '') = ?4
                   AND (?5 IS NULL OR json_extract(body, '$.agentId') = ?5) END)
               ORDER BY n LIMIT ?6";
    let user = owner.map(|owner| owner.user_id.as_str());
    let visitor = owner.and_then(|owner| owner.visitor.as_deref()).unwrap_or_default();
    let agent = owner.and_then(|owner| owner.agent_id.as_deref());
    let mut statement = connection.prepare_cached(sql)?;
    let bodies = statement
        .query_map(params![company, run, user, visitor, agent, MAX_RUN_ENTRIES + 1], |row| row.get(0))?;
    Ok(bodies.collect::<Result<_, _>>()?)
}

/// Reads the first entry of each user, visitor and agent with a run of an id.
fn read_run_scopes(connection: &Connection, company: &str, run: &str) -> Result<Vec<String>, WriteError> {
    let sql = "SELECT body FROM usage_calls WHERE n IN (
                   SELECT min(n) FROM usage_calls WHERE company = ?1 AND run = ?2 GROUP BY CASE
                   WHEN json_valid(body) THEN json_extract(body, '$.userId', '$.visitor', '$.agentId') END)
               ORDER BY n LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let bodies = statement.query_map(params![company, run, MAX_RUN_ENTRIES], |row| row.get(0))?;
    Ok(bodies.collect::<Result<_, _>>()?)
}

fn read_entries_by_id(connection: &Connection, company: &str, ids: &str) -> Result<Vec<String>, WriteError> {
    let sql = "SELECT body FROM usage_calls
               WHERE company = ?1 AND id IN (SELECT value FROM json_each(?2)) ORDER BY n";
    let mut statement = connection.prepare_cached(sql)?;
    let bodies = statement.query_map(params![company, ids], |row| row.get(0))?;
    Ok(bodies.collect::<Result<_, _>>()?)
}

#[async_trait]
impl UsageStore for SqliteStore {
    async fn book(&self, entries: Vec<UsageEntry>) -> Result<usize, StoreError> {
        if entries.is_empty() {
            return Ok(0);
        }
        let rows = entries.into_iter().map(|entry| {
            let row = CallRow::new(&entry)?;
            Ok((entry, row))
        });
        self.writers.commit("", BookUsage(rows.collect::<Result<_, StoreError>>()?)).await
    }

    async fn usage(&self, company: &CompanyId, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        let parameter = |number| format!("?{number}");
        let number = |text: &str| format!("CAST({text} AS INTEGER)");
        let SumQuery { sql, values } = SumQuery::new(company, query, parameter, number, clamped_sum);
        let groups = query.group_by.len();
        let read = self.readers.read(company, move |rows| {
            let mut statement = rows.0.prepare_cached(&sql)?;
            let found = statement.query_map(params_from_iter(values), |row| {
                let group = (0..groups).map(|column| row.get(column)).collect::<Result<_, _>>()?;
                Ok(usage_row(group, sum_columns(row, groups)?))
            })?;
            Ok(found.collect::<Result<Vec<_>, _>>()?)
        });
        Ok(UsagePage::from_overfetch(read.await?, query.page_size()))
    }

    async fn run_entries(
        &self,
        company: &CompanyId,
        run: &RunId,
        owner: Option<&RunOwner>,
    ) -> Result<RunEntries, StoreError> {
        let (id, run, owner) = (company.clone(), run.clone(), owner.cloned());
        let read = self
            .readers
            .read(company, move |rows| read_run_entries(rows.0, (id.as_str(), run.as_str()), owner.as_ref()));
        let entries: Result<Vec<_>, StoreError> = read.await?.iter().map(|body| parse_entry(body)).collect();
        Ok(RunEntries::from_overfetch(entries?))
    }

    async fn run_scopes(&self, company: &CompanyId, run: &RunId) -> Result<Vec<RunScope>, StoreError> {
        let (id, run) = (company.clone(), run.clone());
        let bodies = self.readers.read(company, move |rows| read_run_scopes(rows.0, &id, &run)).await?;
        bodies.iter().map(|body| parse_entry(body).map(|entry| entry.scope)).collect()
    }

    async fn usage_entries(
        &self,
        company: &CompanyId,
        ids: &[String],
    ) -> Result<Vec<UsageEntry>, StoreError> {
        let (id, ids) = (company.clone(), serde_json::to_string(ids).map_err(StoreError::unavailable)?);
        let bodies = self.readers.read(company, move |rows| read_entries_by_id(rows.0, &id, &ids)).await?;
        bodies.iter().map(|body| parse_entry(body)).collect()
    }

    async fn trim_usage(&self, before: Timestamp) -> Result<usize, StoreError> {
        self.writers.commit("", TrimUsage(before.as_millisecond())).await
    }
}
