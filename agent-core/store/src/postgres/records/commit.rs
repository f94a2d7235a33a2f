//! Transactions that commit writes of records.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_platform::records::{Key, StoreError, Write};
use serde_json::value::RawValue;
use tokio_postgres::Row;

use super::batch::{Batch, RecordState, WrittenVersions, version_count};
use super::feed::ChangeTracker;
use super::rows::unsigned;
use crate::activity::ActivityCounters;
use crate::postgres::fault::{OperationError, PostgresError, PostgresErrorKind};
use crate::postgres::param::Param;
use crate::postgres::session::{Query, Session, SessionPool};
use crate::slots::SlotTable;

/// Maximum number of keys that are locked one by one. A transaction with more of them locks their companies.
const MAX_KEY_LOCKS: usize = 256;
/// Number of keys from which the statements of a transaction get more time.
const LARGE_TRANSACTION_WRITES: usize = 1_000;
/// Timeout of a statement of a large transaction.
const LARGE_TRANSACTION_STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of keys that the change feed names. More are stored as a change of all records.
const MAX_FEED_KEYS: usize = 1_000;

/// Separates the parts of a key in the text that is hashed for its lock; keys contain no control characters.
const KEY_SEPARATOR: &str = "\u{1f}";

/// Sets the timeout of the following statements of the transaction.
const SET_STATEMENT_TIMEOUT: &str = "SELECT set_config('statement_timeout', $1, true)";

/// Takes advisory locks in the order of their hashes, which prevents deadlocks.
const LOCK: &str = "
    SELECT CASE WHEN is_exclusive THEN pg_advisory_xact_lock(hash) ELSE pg_advisory_xact_lock_shared(hash) END
    FROM (
        SELECT hashtextextended(name, 0) AS hash, bool_or(is_exclusive) AS is_exclusive
        FROM unnest($1::text[], $2::bool[]) AS lock (name, is_exclusive)
        GROUP BY 1 ORDER BY 1
    ) AS locks";

/// Reads the versions of records, and the values of those that are incremented. `LIMIT` makes the planner look up each
/// key instead of scanning all.
const SELECT_STATES: &str = "
    SELECT wanted.position, found.version, CASE WHEN wanted.with_value THEN found.value END
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bool[]) WITH ORDINALITY
        AS wanted (company, collection, id, with_value, position)
    CROSS JOIN LATERAL (
        SELECT version, value FROM records
        WHERE company = wanted.company AND collection = wanted.collection AND id = wanted.id LIMIT 1
    ) AS found";

const TAKE_VERSIONS: &str = "SELECT nextval('record_version') FROM generate_series(1, $1::int8)";

const PUT: &str = "
    INSERT INTO records (company, collection, id, version, value, updated_ms)
    SELECT company, collection, id, version, value, (extract(epoch FROM clock_timestamp()) * 1000)::int8
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::text[])
        AS new (company, collection, id, version, value)
    ON CONFLICT (company, collection, id) DO UPDATE
    SET version = excluded.version, updated_ms = excluded.updated_ms, value = excluded.value";

/// Deletes records. Their `ctid` is stable, because their keys are locked.
const DELETE: &str = "
    DELETE FROM records WHERE ctid = ANY (ARRAY (
        SELECT found.ctid FROM unnest($1::text[], $2::text[], $3::text[]) AS old (company, collection, id)
        CROSS JOIN LATERAL (
            SELECT ctid FROM records
            WHERE company = old.company AND collection = old.collection AND id = old.id LIMIT 1
        ) AS found
    ))";

const INSERT_CHANGE: &str = "
    INSERT INTO change (origin, company, collections, ids) VALUES ($1, $2, $3::text[], $4::text[])";

/// Commits writes of records.
pub(in crate::postgres) struct Committer {
    pub(in crate::postgres) sessions: SessionPool,
    pub(in crate::postgres) tracker: Arc<ChangeTracker>,
    /// Name of this process in the change feed.
    pub(in crate::postgres) origin: String,
    pub(in crate::postgres) counts: Arc<ActivityCounters>,
}

impl Committer {
    /// Commits several lists of writes in one transaction, each as a whole or not at all.
    ///
    /// # Errors
    /// An error of the database, with which nothing is committed. After a lost connection or a timeout during the
    /// commit the outcome is unknown.
    pub(super) async fn commit(
        &self,
        commits: &[Vec<Write>],
    ) -> Result<Vec<Result<WrittenVersions, StoreError>>, PostgresError> {
        let keys = LockedKeys::of(commits);
        let (session, mut batch) = self.lock_and_read(commits, &keys).await?;
        let outcomes: Vec<_> = commits.iter().map(|writes| batch.apply(writes)).collect();
        let changes = Changes::of(&batch);
        if changes.is_empty() {
            return session.rollback().await.map(|()| outcomes);
        }
        let _in_progress = self.tracker.begin_commit(changes.slots());
        match self.write(&session, &changes).await {
            Ok(()) => {
                session.release(Ok(())).await.map_err(OperationError::into_fault)?;
                let committed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
                self.counts.commits.fetch_add(committed as u64, Ordering::Relaxed);
                self.counts.transactions.fetch_add(1, Ordering::Relaxed);
                Ok(outcomes)
            }
            Err(fault) => {
                if !fault.leaves_session_usable() {
                    self.tracker.record_unknown_outcome();
                }
                session
                    .release(Err(OperationError::from(fault)))
                    .await
                    .map(|()| outcomes)
                    .map_err(OperationError::into_fault)
            }
        }
    }

    /// Begins a transaction, locks the keys and reads their records. Begins again on another connection if the
    /// connection was lost, as all idle ones are by a restart of the server.
    async fn lock_and_read(
        &self,
        commits: &[Vec<Write>],
        keys: &LockedKeys<'_>,
    ) -> Result<(Session, Batch), PostgresError> {
        let mut remaining_retries = self.sessions.max_size();
        loop {
            let mut session = self.sessions.get().await?;
            match keys.lock_and_read(&mut session, commits).await {
                Ok(batch) => return Ok((session, batch)),
                Err(fault) if fault.kind() == PostgresErrorKind::Unreachable && remaining_retries > 0 => {
                    remaining_retries -= 1;
                }
                Err(fault) => {
                    let failed = session.release(Err(OperationError::from(fault))).await;
                    return failed.map_err(OperationError::into_fault);
                }
            }
        }
    }

    async fn write(&self, session: &Session, changes: &Changes<'_>) -> Result<(), PostgresError> {
        let put = changes.put_columns();
        let deleted = changes.deleted_columns();
        let feed = changes.feed_rows();
        let mut queries: Vec<Query<'_>> = Vec::new();
        let put_values: [&(dyn Param + Sync); 5] =
            [&put.key.companies, &put.key.paths, &put.key.ids, &put.versions, &put.values];
        if !put.versions.is_empty() {
            queries.push((PUT, &put_values));
        }
        let deleted_values = deleted.values();
        if !deleted.ids.is_empty() {
            queries.push((DELETE, &deleted_values));
        }
        let feed_values: Vec<[&(dyn Param + Sync); 4]> =
            feed.iter().map(|row| row.values(&self.origin)).collect();
        queries.extend(feed_values.iter().map(|values| (INSERT_CHANGE, &values[..])));
        session.commit(&queries).await.map(drop)
    }
}

/// Keys of a transaction, each once.
struct LockedKeys<'w> {
    keys: Vec<&'w Key>,
    /// True for keys that are more than checked.
    is_written: Vec<bool>,
    /// True for keys whose values are read.
    with_value: Vec<bool>,
}

impl<'w> LockedKeys<'w> {
    fn of(commits: &'w [Vec<Write>]) -> Self {
        let mut positions: HashMap<&Key, usize> = HashMap::new();
        let mut all = Self { keys: Vec::new(), is_written: Vec::new(), with_value: Vec::new() };
        for write in commits.iter().flatten() {
            let position = *positions.entry(write.key()).or_insert_with(|| {
                all.keys.push(write.key());
                all.is_written.push(false);
                all.with_value.push(false);
                all.keys.len() - 1
            });
            all.is_written[position] |= !matches!(write, Write::Check { .. });
            all.with_value[position] |= matches!(write, Write::Increment { .. });
        }
        all
    }

    /// Returns the names of the locks, and true for those that are exclusive. Every transaction locks its companies:
    /// exclusively if it has too many keys to lock each.
    fn locks(&self) -> (Vec<String>, Vec<bool>) {
        let is_large = self.keys.len() > MAX_KEY_LOCKS;
        let companies: BTreeSet<&str> = self.keys.iter().map(|key| key.company()).collect();
        let mut locks: Vec<_> = companies.into_iter().map(|company| (company.to_owned(), is_large)).collect();
        if !is_large {
            let name = |key: &Key| [key.company(), key.collection().path(), key.id()].join(KEY_SEPARATOR);
            locks.extend(self.keys.iter().zip(&self.is_written).map(|(key, written)| (name(key), *written)));
        }
        locks.into_iter().unzip()
    }

    async fn lock_and_read(
        &self,
        session: &mut Session,
        commits: &[Vec<Write>],
    ) -> Result<Batch, PostgresError> {
        let count: usize = commits.iter().map(|writes| version_count(writes)).sum();
        let (names, is_exclusive) = self.locks();
        let columns = KeyColumns::of(self.keys.iter().copied());
        let versions = i64::try_from(count).unwrap_or(i64::MAX);
        let limit = format!("{}ms", LARGE_TRANSACTION_STATEMENT_TIMEOUT.as_millis());
        let queries: [Query<'_>; 4] = [
            (SET_STATEMENT_TIMEOUT, &[&limit]),
            (LOCK, &[&names, &is_exclusive]),
            (SELECT_STATES, &[&columns.companies, &columns.paths, &columns.ids, &self.with_value]),
            (TAKE_VERSIONS, &[&versions]),
        ];
        let is_large = self.keys.len() > LARGE_TRANSACTION_WRITES;
        if is_large {
            session.set_response_timeout(LARGE_TRANSACTION_STATEMENT_TIMEOUT);
        }
        let queries = if is_large { &queries[..] } else { &queries[1..] };
        let mut results = session.begin(queries).await?;
        let taken = results.pop().unwrap_or_default();
        let states = results.pop().unwrap_or_default();
        let versions: Vec<u64> = taken.iter().map(|row| unsigned(row.get(0))).collect();
        Ok(Batch { records: self.states(&states)?, versions: versions.into_iter() })
    }

    fn states(&self, rows: &[Row]) -> Result<HashMap<Key, RecordState>, PostgresError> {
        let mut states = HashMap::with_capacity(rows.len());
        for row in rows {
            let position = usize::try_from(row.get::<_, i64>(0)).unwrap_or_default().saturating_sub(1);
            let value = row.get::<_, Option<String>>(2).map(RawValue::from_string).transpose();
            // A damaged value counts as none: an increment fails, and a put replaces it.
            let value = value.ok().flatten().map(Into::into);
            let version = Some(unsigned(row.get(1)));
            states.insert(self.keys[position].clone(), RecordState { version, value, is_changed: false });
        }
        Ok(states)
    }
}

/// Column arrays of keys.
#[derive(Default)]
struct KeyColumns<'k> {
    companies: Vec<&'k str>,
    paths: Vec<&'k str>,
    ids: Vec<&'k str>,
}

impl<'k> KeyColumns<'k> {
    fn of(keys: impl Iterator<Item = &'k Key>) -> Self {
        let mut columns = Self::default();
        keys.for_each(|key| columns.push(key));
        columns
    }

    fn push(&mut self, key: &'k Key) {
        self.companies.push(key.company());
        self.paths.push(key.collection().path());
        self.ids.push(key.id());
    }

    fn values(&self) -> [&(dyn Param + Sync); 3] {
        [&self.companies, &self.paths, &self.ids]
    }
}

/// Columns of records that are put.
#[derive(Default)]
struct PutColumns<'k> {
    key: KeyColumns<'k>,
    versions: Vec<i64>,
    values: Vec<&'k str>,
}

/// Changed records of a transaction.
struct Changes<'b>(Vec<(&'b Key, &'b RecordState)>);

impl<'b> Changes<'b> {
    fn of(batch: &'b Batch) -> Self {
        Self(batch.changes().collect())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the cache slots of the changed records and collections.
    fn slots(&self) -> Vec<usize> {
        let slots = |key: &Key| [SlotTable::slot(key), SlotTable::slot(key.collection())];
        self.0.iter().flat_map(|(key, _)| slots(key)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn put_columns(&self) -> PutColumns<'b> {
        let mut columns = PutColumns::default();
        for (key, state) in &self.0 {
            if let (Some(version), Some(value)) = (state.version, &state.value) {
                columns.key.push(key);
                columns.versions.push(i64::try_from(version).unwrap_or(i64::MAX));
                columns.values.push(value.get());
            }
        }
        columns
    }

    fn deleted_columns(&self) -> KeyColumns<'b> {
        let deleted = self.0.iter().filter(|(_, state)| state.version.is_none());
        KeyColumns::of(deleted.map(|(key, _)| *key))
    }

    /// Returns a row of the change feed for each company. Records of the platform are never cached.
    fn feed_rows(&self) -> Vec<FeedRow<'b>> {
        let mut rows: HashMap<&str, FeedRow<'b>> = HashMap::new();
        for (key, _) in &self.0 {
            if !key.company().is_empty() {
                let row = rows.entry(key.company()).or_insert_with(|| FeedRow::new(key.company()));
                row.push(key);
            }
        }
        rows.into_values().collect()
    }
}

/// A row of the change feed.
struct FeedRow<'k> {
    company: &'k str,
    /// `None` stands for all records.
    paths: Option<Vec<&'k str>>,
    ids: Option<Vec<&'k str>>,
}

impl<'k> FeedRow<'k> {
    fn new(company: &'k str) -> Self {
        Self { company, paths: Some(Vec::new()), ids: Some(Vec::new()) }
    }

    fn push(&mut self, key: &'k Key) {
        if let (Some(paths), Some(ids)) = (&mut self.paths, &mut self.ids) {
            paths.push(key.collection().path());
            ids.push(key.id());
            if ids.len() > MAX_FEED_KEYS {
                (self.paths, self.ids) = (None, None);
            }
        }
    }

    fn values<'v>(&'v self, origin: &'v String) -> [&'v (dyn Param + Sync); 4] {
        [origin, &self.company, &self.paths, &self.ids]
    }
}
