//! Usage in the schema of records. A batch of entries is one transaction under advisory locks on its companies.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use agent_core::ids::{CompanyId, RunId};
use agent_platform::records::StoreError;
use agent_platform::usage::{
    MAX_RUN_ENTRIES, MAX_TRIMMED_ENTRIES, RunEntries, RunOwner, RunScope, UsageEntry, UsagePage, UsageQuery,
    UsageStore, roll_up,
};
use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_postgres::Row;

use super::error::{OperationError, PostgresErrorKind};
use super::lock_wait::{MAX_CONTENDED_LOCK_WAIT, MAX_LOCK_WAIT};
use super::param::Param;
use super::session::{Session, contains_nul};
use super::{PostgresError, PostgresRecords};
use crate::usage_row::{
    CALL_COLUMNS, CallRow, DayRow, KEY_COLUMNS, SUM_COLUMNS, SumQuery, added_sums, parse_entry, usage_row,
};

/// Locks the ledgers of companies until the end of the transaction, in one order. The seed keeps the locks apart from
/// those of conversations. The first expression sets the timeout of each lock of the transaction, without a statement of its
/// own.
const LOCK_COMPANIES: &str = "
    SELECT CASE
        WHEN set_config('lock_timeout', $2, true) IS NULL THEN NULL
        ELSE pg_advisory_xact_lock(hashtextextended(company, 11))
    END
    FROM (SELECT DISTINCT unnest($1::text[]) AS company ORDER BY company) AS companies";

/// Returns the companies, runs, users and visitors of arrays that have entries. The ids of runs are unique for a user or a
/// visitor.
const SELECT_RUNS: &str = "
    SELECT company, run, user_id, visitor
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS wanted (company, run, user_id, visitor)
    WHERE EXISTS (
        SELECT 1 FROM usage_calls AS calls
        WHERE calls.company = wanted.company AND calls.run = wanted.run
            AND calls.body::json ->> 'userId' = wanted.user_id
            AND coalesce(calls.body::json ->> 'visitor', '') = wanted.visitor)";

/// Returns the entries of the runs with an id, those of an owner if there is one.
const SELECT_RUN_ENTRIES: &str = "
    SELECT body FROM usage_calls WHERE company = $1 AND run = $2
        AND ($3::text IS NULL OR (body::json ->> 'userId' = $3
            AND coalesce(body::json ->> 'visitor', '') = $4
            AND ($5::text IS NULL OR body::json ->> 'agentId' = $5)))
    ORDER BY n LIMIT $6";

/// Returns the first entry of each user, visitor and agent with a run of an id.
const SELECT_RUN_SCOPES: &str = "
    SELECT body FROM usage_calls WHERE company = $1 AND n IN (
        SELECT min(n) FROM usage_calls WHERE company = $1 AND run = $2
        GROUP BY body::json ->> 'userId', body::json ->> 'visitor', body::json ->> 'agentId')
    ORDER BY n LIMIT $3";

/// Deletes old entries. Rows that others have locked are left to the next call.
const TRIM_CALLS: &str = "
    WITH old AS MATERIALIZED (
        SELECT n FROM usage_calls WHERE ended_ms < $1 ORDER BY ended_ms LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM usage_calls WHERE n = ANY (ARRAY (SELECT n FROM old)) RETURNING n";

/// Returns the statement that inserts rows of the ledger from arrays, except existing ones.
fn insert_calls() -> String {
    format!(
        "INSERT INTO usage_calls ({CALL_COLUMNS})
         SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::text[])
         ON CONFLICT (company, id) DO NOTHING RETURNING company, id"
    )
}

/// Returns the statement that adds sums from arrays to the sums of their days.
fn upsert_days() -> String {
    let columns = [KEY_COLUMNS.as_slice(), SUM_COLUMNS.as_slice()].concat().join(", ");
    let texts = (1..=KEY_COLUMNS.len()).map(|n| format!("${n}::text[]"));
    let numbers =
        (KEY_COLUMNS.len() + 1..=KEY_COLUMNS.len() + SUM_COLUMNS.len()).map(|n| format!("${n}::int8[]"));
    let arrays = texts.chain(numbers).collect::<Vec<_>>().join(", ");
    let (keys, added) = (KEY_COLUMNS.join(", "), added_sums("usage_days.", "least"));
    format!(
        "INSERT INTO usage_days ({columns}) SELECT * FROM unnest({arrays}) ON CONFLICT ({keys}) DO UPDATE SET {added}"
    )
}

/// Inserts rows of the ledger; returns the company and the id of those that were not there.
pub(super) async fn insert_call_rows(
    session: &Session,
    rows: &[CallRow],
) -> Result<HashSet<(String, String)>, PostgresError> {
    let text = |column: fn(&CallRow) -> &str| -> Vec<&str> { rows.iter().map(column).collect() };
    let ended: Vec<i64> = rows.iter().map(|row| row.ended_ms).collect();
    let (company, id, run) = (text(|row| &row.company), text(|row| &row.id), text(|row| &row.run));
    let body = text(|row| &row.body);
    let values: [&(dyn Param + Sync); 5] = [&company, &id, &run, &ended, &body];
    let inserted = session.query(&insert_calls(), &values).await?;
    Ok(inserted.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Adds the sums of rows to those of their days.
pub(super) async fn insert_day_rows(session: &Session, rows: &[DayRow]) -> Result<(), PostgresError> {
    let texts: Vec<Vec<&str>> = (0..KEY_COLUMNS.len())
        .map(|column| rows.iter().map(|row| row.key[column].as_str()).collect())
        .collect();
    let numbers: Vec<Vec<i64>> =
        (0..SUM_COLUMNS.len()).map(|column| rows.iter().map(|row| row.sums[column]).collect()).collect();
    let texts = texts.iter().map(|values| values as &(dyn Param + Sync));
    let values: Vec<_> = texts.chain(numbers.iter().map(|values| values as &(dyn Param + Sync))).collect();
    session.query(&upsert_days(), &values).await.map(drop)
}

/// Reads a page of the ledger after a position.
#[cfg(feature = "sqlite")]
pub(super) async fn select_call_rows(
    session: &Session,
    after: i64,
    limit: i64,
) -> Result<Vec<CallRow>, PostgresError> {
    let sql = format!("SELECT n, {CALL_COLUMNS} FROM usage_calls WHERE n > $1 ORDER BY n LIMIT $2");
    let rows = session.query(&sql, &[&after, &limit]).await?;
    let row = |row: &Row| CallRow {
        n: row.get(0),
        company: row.get(1),
        id: row.get(2),
        run: row.get(3),
        ended_ms: row.get(4),
        body: row.get(5),
    };
    Ok(rows.iter().map(row).collect())
}

/// Reads a page of the days' sums after a row.
#[cfg(feature = "sqlite")]
pub(super) async fn select_day_rows(
    session: &Session,
    after: Option<&DayRow>,
    limit: i64,
) -> Result<Vec<DayRow>, PostgresError> {
    let (keys, sums) = (KEY_COLUMNS.join(", "), SUM_COLUMNS.join(", "));
    let sql = format!(
        "SELECT {keys}, {sums} FROM usage_days WHERE ({keys}) > ($1, $2, $3, $4, $5, $6, $7, $8)
         ORDER BY {keys} LIMIT $9"
    );
    let first: [String; KEY_COLUMNS.len()] = Default::default();
    let key = after.map_or(&first, |row| &row.key);
    let mut values: Vec<&(dyn Param + Sync)> = key.iter().map(|text| text as _).collect();
    values.push(&limit);
    let rows = session.query(&sql, &values).await?;
    let row = |row: &Row| DayRow {
        key: std::array::from_fn(|column| row.get(column)),
        sums: sum_columns(row, KEY_COLUMNS.len()),
    };
    Ok(rows.iter().map(row).collect())
}

/// Reads the columns of sums that begin at an index.
fn sum_columns(row: &Row, first: usize) -> [i64; SUM_COLUMNS.len()] {
    std::array::from_fn(|column| row.get(first + column))
}

/// Entries with their rows.
#[derive(Default)]
struct UsageBatch {
    entries: Vec<UsageEntry>,
    rows: Vec<CallRow>,
}

impl UsageBatch {
    fn new(entries: Vec<UsageEntry>) -> Result<Self, StoreError> {
        let rows = entries.iter().map(CallRow::new).collect::<Result<_, _>>()?;
        Ok(Self { entries, rows })
    }

    /// Returns a batch for each company.
    fn by_company(self) -> HashMap<CompanyId, Self> {
        let mut batches: HashMap<CompanyId, Self> = HashMap::new();
        for (entry, row) in self.entries.into_iter().zip(self.rows) {
            let batch = batches.entry(entry.scope.company_id.clone()).or_default();
            batch.entries.push(entry);
            batch.rows.push(row);
        }
        batches
    }

    /// Books the entries in the session's transaction, and commits it. Waits for each lock for at most `lock_timeout`.
    async fn book(&self, session: &Session, lock_timeout: Duration) -> Result<usize, PostgresError> {
        let companies: Vec<&str> = self.rows.iter().map(|row| row.company.as_str()).collect();
        let runs: Vec<&str> = self.rows.iter().map(|row| row.run.as_str()).collect();
        let lock_timeout = format!("{}ms", lock_timeout.as_millis().max(1));
        let lock: [&(dyn Param + Sync); 2] = [&companies, &lock_timeout];
        let users: Vec<&str> = self.entries.iter().map(|entry| entry.scope.user_id.as_str()).collect();
        let visitors = self.entries.iter().map(|entry| entry.scope.visitor.as_deref().unwrap_or_default());
        let visitors: Vec<&str> = visitors.collect();
        let run_parameters: [&(dyn Param + Sync); 4] = [&companies, &runs, &users, &visitors];
        let found = session.begin(&[(LOCK_COMPANIES, &lock), (SELECT_RUNS, &run_parameters)]).await?.pop();
        let mut runs: HashSet<[String; 4]> = found
            .unwrap_or_default()
            .iter()
            .map(|row| std::array::from_fn(|column| row.get(column)))
            .collect();
        let mut inserted = insert_call_rows(session, &self.rows).await?;
        let mut booked = Vec::with_capacity(inserted.len());
        for (entry, row) in self.entries.iter().zip(&self.rows) {
            // Of several entries with one id, the first was inserted.
            if inserted.remove(&(row.company.clone(), row.id.clone())) {
                let (user, visitor) = (entry.scope.user_id.to_string(), entry.scope.visitor.clone());
                let run = [row.company.clone(), row.run.clone(), user, visitor.unwrap_or_default()];
                let is_new_run = runs.insert(run);
                booked.push((entry, is_new_run && !row.run.is_empty()));
            }
        }
        let count = booked.len();
        let days: Vec<DayRow> =
            roll_up(booked).into_iter().map(|(key, sums)| DayRow::new(key, &sums)).collect();
        if !days.is_empty() {
            insert_day_rows(session, &days).await?;
        }
        session.commit(&[]).await?;
        Ok(count)
    }
}

impl PostgresRecords {
    /// Books a batch. Begins again on another connection if one was lost, as all idle ones are by a restart of the server:
    /// entries that were booked nevertheless are left out then.
    async fn book_batch(&self, batch: &UsageBatch, lock_timeout: Duration) -> Result<usize, OperationError> {
        let _permit = self.permits.acquire("", self.wait_timeout).await?;
        let mut remaining_retries = self.sessions.max_size();
        loop {
            let session = self.sessions.get().await?;
            let booked = batch.book(&session, lock_timeout).await.map_err(OperationError::from);
            match session.release(booked).await {
                Err(OperationError::Failed(error))
                    if error.kind() == PostgresErrorKind::Unreachable && remaining_retries > 0 =>
                {
                    remaining_retries -= 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Books a batch. Returns false if another transaction holds a lock that it needs for longer than `lock_timeout`.
    async fn try_book_batch(
        &self,
        batch: &UsageBatch,
        lock_timeout: Duration,
    ) -> Result<bool, OperationError> {
        match self.book_batch(batch, lock_timeout.min(self.lock_timeout)).await {
            Err(OperationError::Failed(error)) if error.kind() == PostgresErrorKind::Locked => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }
}

#[async_trait]
impl UsageStore for PostgresRecords {
    async fn book(&self, entries: Vec<UsageEntry>) -> Result<usize, StoreError> {
        if entries.is_empty() {
            return Ok(0);
        }
        Ok(self.book_batch(&UsageBatch::new(entries)?, self.lock_timeout).await?)
    }

    async fn book_unlocked(&self, entries: Vec<UsageEntry>) -> Result<HashSet<CompanyId>, StoreError> {
        let batch = UsageBatch::new(entries)?;
        if batch.rows.is_empty() || self.try_book_batch(&batch, MAX_LOCK_WAIT).await? {
            return Ok(HashSet::new());
        }
        let batches = batch.by_company();
        if batches.len() == 1 {
            return Ok(batches.into_keys().collect());
        }
        // The transaction had no effect. Each company is now booked in a separate transaction, within the time of a single lock
        // wait.
        let deadline = Instant::now() + self.lock_timeout;
        let mut locked = HashSet::new();
        for (company_id, batch) in batches {
            let may_try = Instant::now() < deadline;
            if !may_try || !self.try_book_batch(&batch, MAX_CONTENDED_LOCK_WAIT).await? {
                locked.insert(company_id);
            }
        }
        Ok(locked)
    }

    async fn usage(&self, company: &CompanyId, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        let sum = |column: &str| format!("least(sum({column}), {})::int8", i64::MAX);
        let parameter = |number| format!("${number}");
        let SumQuery { sql, values } =
            SumQuery::new(company, query, parameter, |text| format!("{text}::text::int8"), sum);
        let (sql, values, groups) = (&sql, &values, query.group_by.len());
        if values.iter().any(|value| contains_nul(value)) {
            return Ok(UsagePage::from_overfetch(Vec::new(), 1));
        }
        let rows = self.read(company, |session| async move {
            let values: Vec<_> = values.iter().map(|value| value as &(dyn Param + Sync)).collect();
            let found = session.query(sql, &values).await.map_err(OperationError::from);
            session.release(found).await
        });
        let row = |row: &Row| {
            usage_row((0..groups).map(|column| row.get(column)).collect(), sum_columns(row, groups))
        };
        Ok(UsagePage::from_overfetch(rows.await?.iter().map(row).collect(), query.page_size()))
    }

    async fn run_entries(
        &self,
        company: &CompanyId,
        run: &RunId,
        owner: Option<&RunOwner>,
    ) -> Result<RunEntries, StoreError> {
        let (company, run) = (company.as_str(), run.as_str());
        let user = owner.map(|owner| owner.user_id.as_str());
        let visitor = owner.and_then(|owner| owner.visitor.as_deref()).unwrap_or_default();
        let agent = owner.and_then(|owner| owner.agent_id.as_deref());
        let texts = [Some(company), Some(run), user, Some(visitor), agent];
        if texts.into_iter().flatten().any(contains_nul) {
            return Ok(RunEntries::default());
        }
        let rows = self.read(company, |session| async move {
            let limit = i64::try_from(MAX_RUN_ENTRIES + 1).unwrap_or(i64::MAX);
            let values: [&(dyn Param + Sync); 6] = [&company, &run, &user, &visitor, &agent, &limit];
            let found = session.query(SELECT_RUN_ENTRIES, &values).await.map_err(OperationError::from);
            session.release(found).await
        });
        let entries: Result<Vec<_>, StoreError> =
            rows.await?.iter().map(|row| parse_entry(row.get(0))).collect();
        Ok(RunEntries::from_overfetch(entries?))
    }

    async fn run_scopes(&self, company: &CompanyId, run: &RunId) -> Result<Vec<RunScope>, StoreError> {
        let (company, run) = (company.as_str(), run.as_str());
        if contains_nul(company) || contains_nul(run) {
            return Ok(Vec::new());
        }
        let rows = self.read(company, |session| async move {
            let limit = i64::try_from(MAX_RUN_ENTRIES).unwrap_or(i64::MAX);
            let values: [&(dyn Param + Sync); 3] = [&company, &run, &limit];
            let found = session.query(SELECT_RUN_SCOPES, &values).await.map_err(OperationError::from);
            session.release(found).await
        });
        rows.await?.iter().map(|row| parse_entry(row.get(0)).map(|entry| entry.scope)).collect()
    }

    async fn usage_entries(
        &self,
        company: &CompanyId,
        ids: &[String],
    ) -> Result<Vec<UsageEntry>, StoreError> {
        let sql = "SELECT body FROM usage_calls WHERE company = $1 AND id = ANY($2::text[]) ORDER BY n";
        let company = company.as_str();
        let ids: Vec<&str> = ids.iter().map(String::as_str).filter(|id| !contains_nul(id)).collect();
        if contains_nul(company) {
            return Ok(Vec::new());
        }
        let ids = &ids;
        let rows = self.read(company, |session| async move {
            let found = session.query(sql, &[&company, ids]).await.map_err(OperationError::from);
            session.release(found).await
        });
        rows.await?.iter().map(|row| parse_entry(row.get(0))).collect()
    }

    async fn trim_usage(&self, before: Timestamp) -> Result<usize, StoreError> {
        let deleted = self.read("", |session| async move {
            let (before, limit) =
                (before.as_millisecond(), i64::try_from(MAX_TRIMMED_ENTRIES).unwrap_or(i64::MAX));
            let found = session.query(TRIM_CALLS, &[&before, &limit]).await.map_err(OperationError::from);
            session.release(found).await
        });
        Ok(deleted.await?.len())
    }
}
