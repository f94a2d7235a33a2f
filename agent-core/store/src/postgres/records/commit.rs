//! Transactions that commit writes of records.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_platform::records::{Key, StoreError, Write};
use serde_json::value::RawValue;
use tokio_postgres::Row;

use super::batch::{Batch, RecordState, WrittenVersions, version_count};
use super::feed::ChangeTracker;
use super::rows::unsigned;
use crate::counters::AtomicCounters;
use crate::postgres::error::{OperationError, PostgresError, PostgresErrorKind};
use crate::postgres::param::Param;
use crate::postgres::session::{Query, Session, SessionPool};
use crate::read_cache::is_cacheable;
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

/// Takes advisory locks in the order of their hashes, which prevents deadlocks. The first expression sets the timeout of
/// each lock of the transaction, without a separate statement.
const LOCK: &str = "
    SELECT CASE
        WHEN set_config('lock_timeout', $3, true) IS NULL THEN NULL
        WHEN is_exclusive THEN pg_advisory_xact_lock(hash)
        ELSE pg_advisory_xact_lock_shared(hash)
    END
    FROM (
        SELECT hashtextextended(name, 0) AS hash, bool_or(is_exclusive) AS is_exclusive
        FROM unnest($1::text[], $2::bool[]) AS lock (name, is_exclusive)
        GROUP BY 1 ORDER BY 1
    ) AS locks";

/// Acquires the advisory locks that no other transaction holds, and returns true for each of them.
const TRY_LOCK: &str = "
    SELECT position, CASE
        WHEN set_config('lock_timeout', $3, true) IS NULL THEN NULL
        WHEN is_exclusive THEN pg_try_advisory_xact_lock(hashtextextended(name, 0))
        ELSE pg_try_advisory_xact_lock_shared(hashtextextended(name, 0))
    END
    FROM unnest($1::text[], $2::bool[]) WITH ORDINALITY AS lock (name, is_exclusive, position)";

/// Locks the rows of written records that no other transaction has locked, as other programs do, and returns their
/// positions.
const TRY_LOCK_ROWS: &str = "
    SELECT wanted.position
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bool[]) WITH ORDINALITY
        AS wanted (company, collection, id, is_written, position)
    CROSS JOIN LATERAL (
        SELECT FROM records
        WHERE company = wanted.company AND collection = wanted.collection AND id = wanted.id LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS found
    WHERE wanted.is_written";

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

/// Reaction of a transaction to locks that other transactions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockPolicy {
    /// Time after which a wait for a lock fails the transaction.
    pub(super) timeout: Duration,
    /// True to leave out the commits that would have to wait for keys.
    pub(super) skips_held: bool,
}

/// Outcome of one of the commits of a transaction.
#[derive(Debug)]
pub(super) enum CommitOutcome {
    /// The commit succeeded, or was rejected because of the data.
    Decided(Result<WrittenVersions, StoreError>),
    /// The commit was left out, since another transaction holds a lock that it needs.
    Locked,
}

/// Commits writes of records.
pub(in crate::postgres) struct Committer {
    pub(in crate::postgres) sessions: SessionPool,
    pub(in crate::postgres) tracker: Arc<ChangeTracker>,
    /// Name of this process in the change feed.
    pub(in crate::postgres) origin: String,
    pub(in crate::postgres) counts: Arc<AtomicCounters>,
}

impl Committer {
    /// Commits several lists of writes in one transaction, each as a whole or not at all.
    ///
    /// # Errors
    /// An error of the database, with which nothing is committed. After a lost connection or a timeout during the
    /// commit the outcome is unknown.
    pub(super) async fn commit(
        &self,
        commits: &[&[Write]],
        policy: LockPolicy,
    ) -> Result<Vec<CommitOutcome>, PostgresError> {
        let keys = LockedKeys::of(commits);
        let (session, (mut batch, held)) = self.lock_and_read(commits, &keys, policy).await?;
        let outcomes: Vec<_> = commits
            .iter()
            .map(|writes| match held.conflict_with(writes) {
                true => CommitOutcome::Locked,
                false => CommitOutcome::Decided(batch.apply(writes)),
            })
            .collect();
        let changes = Changes::of(&batch);
        if changes.is_empty() {
            return session.rollback().await.map(|()| outcomes);
        }
        let _in_progress = self.tracker.begin_commit(changes.slots());
        match self.write(&session, &changes).await {
            Ok(()) => {
                session.release(Ok(())).await.map_err(OperationError::into_error)?;
                let is_committed =
                    |outcome: &&CommitOutcome| matches!(outcome, CommitOutcome::Decided(Ok(_)));
                let committed = outcomes.iter().filter(is_committed).count();
                self.counts.commits.fetch_add(committed as u64, Ordering::Relaxed);
                self.counts.transactions.fetch_add(1, Ordering::Relaxed);
                Ok(outcomes)
            }
            Err(error) => {
                if !error.leaves_session_usable() {
                    self.tracker.record_unknown_outcome();
                }
                session
                    .release(Err(OperationError::from(error)))
                    .await
                    .map(|()| outcomes)
                    .map_err(OperationError::into_error)
            }
        }
    }

    /// Begins a transaction, locks the keys and reads their records. Begins again on another connection if the
    /// connection was lost, as all idle ones are by a restart of the server.
    async fn lock_and_read(
        &self,
        commits: &[&[Write]],
        keys: &LockedKeys<'_>,
        policy: LockPolicy,
    ) -> Result<(Session, (Batch, HeldLocks)), PostgresError> {
        let mut remaining_retries = self.sessions.max_size();
        loop {
            let mut session = self.sessions.get().await?;
            match keys.lock_and_read(&mut session, commits, policy).await {
                Ok(read) => return Ok((session, read)),
                Err(error) if error.kind() == PostgresErrorKind::Unreachable && remaining_retries > 0 => {
                    remaining_retries -= 1;
                }
                Err(error) => {
                    let failed = session.release(Err(OperationError::from(error))).await;
                    return failed.map_err(OperationError::into_error);
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

/// Keys and companies whose locks other transactions hold.
#[derive(Debug, Default, PartialEq, Eq)]
struct HeldLocks {
    keys: HashSet<Key>,
    companies: HashSet<String>,
}

impl HeldLocks {
    /// Returns true if a commit needs one of the locks.
    fn conflict_with(&self, writes: &[Write]) -> bool {
        let is_held = |key: &Key| self.keys.contains(key) || self.companies.contains(key.company());
        writes.iter().any(|write| is_held(write.key()))
    }
}

impl<'w> LockedKeys<'w> {
    fn of(commits: &[&'w [Write]]) -> Self {
        let mut positions: HashMap<&Key, usize> = HashMap::new();
        let mut all = Self { keys: Vec::new(), is_written: Vec::new(), with_value: Vec::new() };
        for write in commits.iter().copied().flatten() {
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
        let companies = self.companies().into_iter();
        let mut locks: Vec<_> = companies.map(|company| (company.to_owned(), is_large)).collect();
        if !is_large {
            let name = |key: &Key| [key.company(), key.collection().path(), key.id()].join(KEY_SEPARATOR);
            locks.extend(self.keys.iter().zip(&self.is_written).map(|(key, written)| (name(key), *written)));
        }
        locks.into_iter().unzip()
    }

    fn companies(&self) -> BTreeSet<&'w str> {
        self.keys.iter().map(|key| key.company()).collect()
    }

    /// Returns the locks that other transactions hold: those of [`Self::locks`] that were not taken, and the rows of written
    /// records that were found and not locked. All arguments are indices.
    fn held(
        &self,
        free_locks: &HashSet<usize>,
        found_rows: &[usize],
        free_rows: &HashSet<usize>,
    ) -> HeldLocks {
        let companies = self.companies();
        let mut held_locks = HeldLocks::default();
        for (position, company) in companies.iter().enumerate() {
            if !free_locks.contains(&position) {
                held_locks.companies.insert((*company).to_owned());
            }
        }
        let has_key_locks = self.keys.len() <= MAX_KEY_LOCKS;
        for (position, key) in self.keys.iter().enumerate() {
            if has_key_locks && !free_locks.contains(&(companies.len() + position)) {
                held_locks.keys.insert((*key).clone());
            }
        }
        let locked_rows = found_rows.iter().filter(|row| self.is_written[**row] && !free_rows.contains(*row));
        held_locks.keys.extend(locked_rows.map(|row| self.keys[*row].clone()));
        held_locks
    }

    async fn lock_and_read(
        &self,
        session: &mut Session,
        commits: &[&[Write]],
        policy: LockPolicy,
    ) -> Result<(Batch, HeldLocks), PostgresError> {
        let count: usize = commits.iter().map(|writes| version_count(writes)).sum();
        let (names, is_exclusive) = self.locks();
        let columns = KeyColumns::of(self.keys.iter().copied());
        let versions = i64::try_from(count).unwrap_or(i64::MAX);
        let limit = format!("{}ms", LARGE_TRANSACTION_STATEMENT_TIMEOUT.as_millis());
        let lock_timeout = format!("{}ms", policy.timeout.as_millis().max(1));
        let lock = if policy.skips_held { TRY_LOCK } else { LOCK };
        let row_values: [&(dyn Param + Sync); 4] =
            [&columns.companies, &columns.paths, &columns.ids, &self.is_written];
        let queries: [Query<'_>; 4] = [
            (SET_STATEMENT_TIMEOUT, &[&limit]),
            (lock, &[&names, &is_exclusive, &lock_timeout]),
            (SELECT_STATES, &[&columns.companies, &columns.paths, &columns.ids, &self.with_value]),
            (TAKE_VERSIONS, &[&versions]),
        ];
        let mut queries = queries.to_vec();
        if policy.skips_held {
            queries.insert(2, (TRY_LOCK_ROWS, &row_values));
        }
        let is_large = self.keys.len() > LARGE_TRANSACTION_WRITES;
        if is_large {
            session.set_response_timeout(LARGE_TRANSACTION_STATEMENT_TIMEOUT);
        }
        let queries = if is_large { &queries[..] } else { &queries[1..] };
        let mut results = session.begin(queries).await?;
        let taken = results.pop().unwrap_or_default();
        let states = results.pop().unwrap_or_default();
        let held = match policy.skips_held {
            true => {
                let free_rows = results.pop().unwrap_or_default().iter().map(row_index).collect();
                let locks = results.pop().unwrap_or_default();
                let free_locks = locks.iter().filter(|row| row.get(1)).map(row_index).collect();
                let found_rows: Vec<_> = states.iter().map(row_index).collect();
                self.held(&free_locks, &found_rows, &free_rows)
            }
            false => HeldLocks::default(),
        };
        let versions: Vec<u64> = taken.iter().map(|row| unsigned(row.get(0))).collect();
        Ok((Batch { records: self.states(&states)?, versions: versions.into_iter() }, held))
    }

    fn states(&self, rows: &[Row]) -> Result<HashMap<Key, RecordState>, PostgresError> {
        let mut states = HashMap::with_capacity(rows.len());
        for row in rows {
            let value = row.get::<_, Option<String>>(2).map(RawValue::from_string).transpose();
            // Without a value that is damaged, an increment fails, and a put replaces it.
            let value = value.ok().flatten().map(Into::into);
            let version = Some(unsigned(row.get(1)));
            states
                .insert(self.keys[row_index(row)].clone(), RecordState { version, value, is_changed: false });
        }
        Ok(states)
    }
}

/// Returns the index of a record from a row's first column, which counts from one.
fn row_index(row: &Row) -> usize {
    usize::try_from(row.get::<_, i64>(0)).unwrap_or_default().saturating_sub(1)
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

    /// Returns a row of the change feed for each company with records that may be cached.
    fn feed_rows(&self) -> Vec<FeedRow<'b>> {
        let mut rows: HashMap<&str, FeedRow<'b>> = HashMap::new();
        for (key, _) in &self.0 {
            if is_cacheable(key.collection()) {
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

#[cfg(test)]
mod tests {
    use agent_platform::records::{Collection, Precondition};

    use super::*;

    fn key(company: &str, id: &str) -> Key {
        Key::new(company, "things", id).expect("a key")
    }

    fn put(company: &str, id: &str) -> Write {
        let value = RawValue::NULL.to_owned().into();
        Write::Put { key: key(company, id), value, precondition: Precondition::Any }
    }

    #[test]
    fn locks_of_other_transactions_concern_the_commits_that_need_them() {
        let check = Write::Check { key: key("b", "checked"), precondition: Precondition::Any };
        let commits = [vec![put("a", "1")], vec![put("a", "2"), check], vec![put("b", "3")]];
        let commits = commits.each_ref().map(Vec::as_slice);
        let keys = LockedKeys::of(&commits);
        let (names, is_exclusive) = keys.locks();
        assert_eq!((names.len(), is_exclusive), (6, vec![false, false, true, true, false, true]));
        let all = || (0..6).collect::<HashSet<_>>();
        let without =
            |place: usize| -> HashSet<usize> { all().into_iter().filter(|free| *free != place).collect() };
        let conflicting = |held: HeldLocks| commits.map(|writes| held.conflict_with(writes));
        let rows = [0, 2, 3];
        let free_rows: HashSet<usize> = [0, 3].into();
        assert_eq!(conflicting(keys.held(&all(), &rows, &free_rows)), [false; 3], "a checked row");
        assert_eq!(conflicting(keys.held(&without(2), &rows, &free_rows)), [true, false, false]);
        assert_eq!(conflicting(keys.held(&without(4), &rows, &free_rows)), [false, true, false]);
        assert_eq!(conflicting(keys.held(&without(1), &rows, &free_rows)), [false, true, true], "a company");
        assert_eq!(conflicting(keys.held(&all(), &rows, &[0].into())), [false, false, true], "a row");
    }

    #[test]
    fn the_feed_names_the_records_that_may_be_cached() {
        let collection =
            |company: &str, path: &str| Collection::from_stored(company, path).expect("a collection");
        let keys = [
            collection("a", "things").key("1"),
            collection("a", "runIds/002950/ada").key("r"),
            collection("a", "runIdsOfOthers").key("2"),
            collection("b", "runIds/002950/ada").key("r"),
            Collection::of_platform("tokens").expect("a collection").key("t"),
        ];
        let state = RecordState { version: Some(1), value: None, is_changed: true };
        let records = keys.map(|key| (key.expect("a key"), state.clone())).into();
        let batch = Batch { records, ..Batch::default() };
        let rows = Changes::of(&batch).feed_rows();
        let mut named: Vec<_> = rows.iter().map(|row| (row.company, row.ids.clone().expect("ids"))).collect();
        named.iter_mut().for_each(|(_, ids)| ids.sort_unstable());
        assert_eq!(named, [("a", vec!["1", "2"])]);
    }

    #[test]
    fn many_keys_are_locked_by_their_companies() {
        let writes: Vec<_> = (0..=MAX_KEY_LOCKS).map(|n| put("a", &n.to_string())).collect();
        let commits = [writes.as_slice()];
        let keys = LockedKeys::of(&commits);
        assert_eq!(keys.locks(), (vec!["a".to_owned()], vec![true]));
        assert!(!keys.held(&[0].into(), &[], &HashSet::new()).conflict_with(&writes));
        assert!(keys.held(&HashSet::new(), &[], &HashSet::new()).conflict_with(&writes));
    }
}
