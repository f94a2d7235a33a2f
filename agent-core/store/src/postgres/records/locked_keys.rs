//! Locks of the keys of a transaction, and the records under them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use agent_platform::records::{Key, Write};
use serde_json::value::RawValue;
use tokio_postgres::Row;

use super::batch::{Batch, RecordState, version_count};
use super::key_columns::KeyColumns;
use super::rows::unsigned;
use crate::postgres::error::PostgresError;
use crate::postgres::param::Param;
use crate::postgres::session::{Query, Session};

/// Maximum number of keys that are locked one by one. A transaction with more of them locks their companies.
const MAX_KEY_LOCKS: usize = 256;
/// Number of keys from which the statements of a transaction get more time.
const LARGE_TRANSACTION_WRITES: usize = 1_000;
/// Timeout of a statement of a large transaction.
const LARGE_TRANSACTION_STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

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

/// Reaction of a transaction to locks that other transactions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockPolicy {
    /// Time after which a wait for a lock fails the transaction.
    pub(super) timeout: Duration,
    /// True to leave out the commits that would have to wait for keys.
    pub(super) skips_held: bool,
}

/// Keys of a transaction, each once.
pub(super) struct LockedKeys<'w> {
    keys: Vec<&'w Key>,
    /// True for keys that are more than checked.
    is_written: Vec<bool>,
    /// True for keys whose values are read.
    with_value: Vec<bool>,
}

/// Keys and companies whose locks other transactions hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HeldLocks {
    keys: HashSet<Key>,
    companies: HashSet<String>,
}

impl HeldLocks {
    /// Returns true if a commit needs one of the locks.
    pub(super) fn conflict_with(&self, writes: &[Write]) -> bool {
        let is_held = |key: &Key| self.keys.contains(key) || self.companies.contains(key.company());
        writes.iter().any(|write| is_held(write.key()))
    }
}

impl<'w> LockedKeys<'w> {
    pub(super) fn of(commits: &[&'w [Write]]) -> Self {
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
    fn held_locks(
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

    pub(super) async fn lock_and_read(
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
        let version_rows = results.pop().unwrap_or_default();
        let states = results.pop().unwrap_or_default();
        let held_locks = match policy.skips_held {
            true => {
                let free_rows = results.pop().unwrap_or_default().iter().map(row_index).collect();
                let locks = results.pop().unwrap_or_default();
                let free_locks = locks.iter().filter(|row| row.get(1)).map(row_index).collect();
                let found_rows: Vec<_> = states.iter().map(row_index).collect();
                self.held_locks(&free_locks, &found_rows, &free_rows)
            }
            false => HeldLocks::default(),
        };
        let versions: Vec<u64> = version_rows.iter().map(|row| unsigned(row.get(0))).collect();
        Ok((Batch { records: self.states(&states)?, versions: versions.into_iter() }, held_locks))
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

#[cfg(test)]
mod tests {
    use agent_platform::records::Precondition;

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
        assert_eq!(conflicting(keys.held_locks(&all(), &rows, &free_rows)), [false; 3], "a checked row");
        assert_eq!(conflicting(keys.held_locks(&without(2), &rows, &free_rows)), [true, false, false]);
        assert_eq!(conflicting(keys.held_locks(&without(4), &rows, &free_rows)), [false, true, false]);
        assert_eq!(
            conflicting(keys.held_locks(&without(1), &rows, &free_rows)),
            [false, true, true],
            "a company"
        );
        assert_eq!(conflicting(keys.held_locks(&all(), &rows, &[0].into())), [false, false, true], "a row");
    }

    #[test]
    fn many_keys_are_locked_by_their_companies() {
        let writes: Vec<_> = (0..=MAX_KEY_LOCKS).map(|n| put("a", &n.to_string())).collect();
        let commits = [writes.as_slice()];
        let keys = LockedKeys::of(&commits);
        assert_eq!(keys.locks(), (vec!["a".to_owned()], vec![true]));
        assert!(!keys.held_locks(&[0].into(), &[], &HashSet::new()).conflict_with(&writes));
        assert!(keys.held_locks(&HashSet::new(), &[], &HashSet::new()).conflict_with(&writes));
    }
}
