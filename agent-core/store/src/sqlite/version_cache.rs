//! Versions of records, for as long as no record changes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_platform::records::Key;

use super::error::WriteError;
use super::rows::RecordTable;

/// Maximum number of versions that are kept.
const MAX_VERSIONS: usize = 16 * 1024;

/// Cache of versions by the keys of their records.
///
/// A search compares the versions of all its documents with its index, and later the versions of the documents that it quotes.
/// The versions are valid as long as the file's counter is unchanged. Every change of a record increments the counter, and the
/// counter is read in the same snapshot, so a returned version is never stale.
#[derive(Default)]
pub(super) struct VersionCache {
    known: Mutex<KnownVersions>,
}

#[derive(Default)]
struct KnownVersions {
    /// The file's counter in the snapshots of the versions.
    counter: u64,
    /// `None` for a record that does not exist.
    by_key: HashMap<Key, Option<u64>>,
}

impl VersionCache {
    /// Returns the versions of records in a snapshot, in which the file's counter has this value. Reads those that are not known.
    pub(super) fn versions(
        &self,
        rows: &RecordTable<'_>,
        counter: u64,
        keys: Vec<Key>,
    ) -> Result<Vec<Option<u64>>, WriteError> {
        let mut versions = self.find(counter, &keys);
        let (positions, unknown): (Vec<usize>, Vec<Key>) =
            keys.into_iter().enumerate().filter(|(position, _)| versions[*position].is_none()).unzip();
        if !unknown.is_empty() {
            let read = rows.versions(&unknown)?;
            for (position, version) in positions.into_iter().zip(&read) {
                versions[position] = Some(*version);
            }
            self.insert(counter, unknown.into_iter().zip(read));
        }
        Ok(versions.into_iter().map(Option::flatten).collect())
    }

    /// Returns the version of each record, if it is known.
    fn find(&self, counter: u64, keys: &[Key]) -> Vec<Option<Option<u64>>> {
        let known = self.lock();
        if known.counter != counter {
            return vec![None; keys.len()];
        }
        keys.iter().map(|key| known.by_key.get(key).copied()).collect()
    }

    fn insert(&self, counter: u64, read: impl ExactSizeIterator<Item = (Key, Option<u64>)>) {
        let mut known = self.lock();
        if known.counter != counter || known.by_key.len() + read.len() > MAX_VERSIONS {
            known.by_key.clear();
            known.counter = counter;
        }
        if read.len() <= MAX_VERSIONS {
            known.by_key.extend(read);
        }
    }

    /// Locks the versions. No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, KnownVersions> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn key(id: &str) -> Key {
        Key::new("c", "documents", id).expect("a key")
    }

    #[test]
    fn versions_are_read_once_while_the_counter_is_the_same() {
        let connection = Connection::open_in_memory().expect("a database");
        let change = |sql: &str| connection.execute_batch(sql).expect("a statement");
        change("CREATE TABLE records (company, collection, id, version)");
        change("INSERT INTO records VALUES ('c', 'documents', 'a', 1), ('c', 'documents', 'b', 2)");
        let (rows, cache) = (RecordTable(&connection), VersionCache::default());
        let read = |counter: u64, ids: &[&str]| {
            cache.versions(&rows, counter, ids.iter().copied().map(key).collect()).expect("read")
        };
        assert_eq!(read(1, &["a", "absent", "b"]), [Some(1), None, Some(2)]);
        // Changes without a new value of the counter, which the store never makes, show that nothing is read again.
        change("UPDATE records SET version = 9");
        change("INSERT INTO records VALUES ('c', 'documents', 'd', 4)");
        assert_eq!(read(1, &["b", "absent", "b"]), [Some(2), None, Some(2)]);
        assert_eq!(read(1, &["d", "a"]), [Some(4), Some(1)], "only what is not known is read");
        assert_eq!(read(2, &["b", "a"]), [Some(9), Some(9)]);
    }

    #[test]
    fn the_number_of_versions_is_limited() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch("CREATE TABLE records (company, collection, id, version)").expect("a table");
        let (rows, cache) = (RecordTable(&connection), VersionCache::default());
        for range in [0..10, 10..MAX_VERSIONS, 0..10, 0..MAX_VERSIONS + 1] {
            let keys: Vec<Key> = range.map(|number| key(&number.to_string())).collect();
            let versions = cache.versions(&rows, 1, keys.clone()).expect("read");
            assert_eq!(versions, vec![None; keys.len()]);
            assert!(cache.lock().by_key.len() <= MAX_VERSIONS);
        }
    }
}
