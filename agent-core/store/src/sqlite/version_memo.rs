//! Versions of records that were read together, for as long as no record changes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_platform::records::Key;

use super::fault::WriteError;
use super::rows::RecordTable;

/// Maximum number of lists that are kept.
const MAX_LISTS: usize = 16;
/// Maximum number of keys of a list that is kept.
const MAX_KEYS: usize = 1024;
/// Minimum number of keys of a list that is kept: a shorter one is read as fast.
const MIN_KEYS: usize = 16;

/// Versions by the list of their keys.
///
/// A search compares the versions of all its documents with those of its index. They are those of the last search as long as
/// the file's counter is the same, which every change of a record increments and which is read in the same snapshot: what
/// is returned is never stale.
#[derive(Default)]
pub(super) struct VersionMemo {
    /// The latest last.
    lists: Mutex<VecDeque<VersionList>>,
}

struct VersionList {
    /// The file's counter in the snapshot of the versions.
    counter: u64,
    keys: Vec<Key>,
    versions: Vec<Option<u64>>,
}

impl VersionMemo {
    /// Returns the versions of records in a snapshot, in which the file's counter has this value.
    pub(super) fn versions(
        &self,
        rows: &RecordTable<'_>,
        counter: u64,
        keys: Vec<Key>,
    ) -> Result<Vec<Option<u64>>, WriteError> {
        if !(MIN_KEYS..=MAX_KEYS).contains(&keys.len()) {
            return rows.versions(&keys);
        }
        if let Some(versions) = self.find(counter, &keys) {
            return Ok(versions);
        }
        let versions = rows.versions(&keys)?;
        let mut lists = self.lists();
        lists.retain(|list| list.counter == counter && list.keys != keys);
        if lists.len() >= MAX_LISTS {
            lists.pop_front();
        }
        lists.push_back(VersionList { counter, keys, versions: versions.clone() });
        Ok(versions)
    }

    fn find(&self, counter: u64, keys: &[Key]) -> Option<Vec<Option<u64>>> {
        let lists = self.lists();
        let list = lists.iter().find(|list| list.counter == counter && list.keys == keys)?;
        Some(list.versions.clone())
    }

    /// Locks the lists. No code panics while it holds the lock.
    fn lists(&self) -> MutexGuard<'_, VecDeque<VersionList>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
