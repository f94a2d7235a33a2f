//! Decision of commits: applies writes to the records that were read. Pure.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use agent_core::message::SharedJson;
use agent_platform::records::{Key, Record, RecordCounter, StoreError, Write};
use serde_json::value::RawValue;

/// Versions that were put, deleted or checked, one per write.
pub(super) type WrittenVersions = Vec<Option<u64>>;

/// State of a record in a transaction.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordState {
    /// `None` if the record does not exist.
    pub(super) version: Option<u64>,
    /// The value, if it was read or put.
    pub(super) value: Option<SharedJson>,
    /// True if the transaction changed it.
    pub(super) is_changed: bool,
}

/// Records that the commits of a transaction read and change, and the versions for their writes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) records: HashMap<Key, RecordState>,
    /// Versions that the database has assigned, in ascending order. Those of commits that fail are not used.
    pub(super) versions: std::vec::IntoIter<u64>,
}

impl Batch {
    /// Applies a commit as a whole or not at all.
    pub(super) fn apply(&mut self, writes: &[Write]) -> Result<WrittenVersions, StoreError> {
        let mut undo = Vec::new();
        let mut written = WrittenVersions::with_capacity(writes.len());
        for write in writes {
            match self.apply_write(write, &mut undo) {
                Ok(version) => written.push(version),
                Err(error) => {
                    for (key, state) in undo.into_iter().rev() {
                        self.records.insert(key, state);
                    }
                    return Err(error);
                }
            }
        }
        Ok(written)
    }

    fn apply_write(
        &mut self,
        write: &Write,
        undo: &mut Vec<(Key, RecordState)>,
    ) -> Result<Option<u64>, StoreError> {
        let key = write.key();
        let found = self.records.get(key).cloned().unwrap_or_default();
        write.precondition().check(found.version)?;
        let (version, value) = match write {
            Write::Check { .. } => return Ok(found.version),
            Write::Delete { .. } if found.version.is_none() => return Ok(None),
            Write::Delete { .. } => (None, None),
            Write::Put { value, .. } => (Some(self.next_version()?), Some(value.clone())),
            Write::Increment { key, limit } => {
                let value = RecordCounter::incremented(key, *limit, found.record(key).as_ref())?;
                (Some(self.next_version()?), Some(value))
            }
        };
        let result = version.or(found.version);
        self.records.insert(key.clone(), RecordState { version, value, is_changed: true });
        undo.push((key.clone(), found));
        Ok(result)
    }

    fn next_version(&mut self) -> Result<u64, StoreError> {
        self.versions.next().ok_or_else(|| StoreError::unavailable("a version is missing"))
    }

    /// Returns the records that were changed.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&Key, &RecordState)> {
        self.records.iter().filter(|(_, state)| state.is_changed)
    }
}

impl RecordState {
    /// Returns the record with its value, or with null if the value is damaged.
    fn record(&self, key: &Key) -> Option<Record> {
        let value = self.value.clone().unwrap_or_else(|| RawValue::NULL.to_owned().into());
        Some(Record { id: key.id().to_owned(), version: self.version?, updated: UNIX_EPOCH, value })
    }
}

/// Returns the number of versions that a commit needs at most.
pub(super) fn version_count(writes: &[Write]) -> usize {
    writes.iter().filter(|write| matches!(write, Write::Put { .. } | Write::Increment { .. })).count()
}

#[cfg(test)]
mod tests {
    use agent_platform::records::Precondition;

    use super::*;

    fn key(id: &str) -> Key {
        Key::new("company", "things", id).expect("a key")
    }

    fn put(id: &str, precondition: Precondition) -> Write {
        Write::Put { key: key(id), value: RawValue::NULL.to_owned().into(), precondition }
    }

    fn batch(versions: std::ops::Range<u64>) -> Batch {
        Batch { records: HashMap::new(), versions: versions.collect::<Vec<_>>().into_iter() }
    }

    #[test]
    fn a_commit_that_fails_leaves_the_changes_of_the_one_before() {
        let mut batch = batch(1..10);
        let first = batch.apply(&[put("a", Precondition::Absent)]).expect("it is absent");
        assert_eq!(first, [Some(1)]);
        let failing = [
            put("a", Precondition::Version(1)),
            put("b", Precondition::Any),
            Write::Delete { key: key("a"), precondition: Precondition::Any },
            put("c", Precondition::Version(7)),
        ];
        let error = batch.apply(&failing).expect_err("there is no c");
        assert!(matches!(error, StoreError::Conflict { expected: Some(7), found: None }), "{error:?}");
        let changed: Vec<_> = batch.changes().map(|(key, state)| (key.id(), state.version)).collect();
        assert_eq!(changed, [("a", Some(1))]);
        let next = batch.apply(&[put("a", Precondition::Version(1))]).expect("it has that version");
        assert_eq!(next, [Some(4)], "versions that a failed commit took are not used again");
    }

    #[test]
    fn increments_of_several_commits_add_up() {
        let mut batch = batch(1..10);
        let increment = [Write::Increment { key: key("n"), limit: 2 }];
        batch.apply(&increment).expect("one");
        batch.apply(&increment).expect("two");
        batch.apply(&increment).expect_err("the limit is reached");
        let value = batch.changes().next().and_then(|(_, state)| state.value.clone()).expect("a value");
        assert_eq!(value.get(), r#"{"count":2}"#);
    }

    #[test]
    fn a_damaged_counter_is_not_restarted() {
        let mut batch = batch(1..10);
        batch.records.insert(key("n"), RecordState { version: Some(3), value: None, is_changed: false });
        let refused =
            batch.apply(&[Write::Increment { key: key("n"), limit: 2 }]).expect_err("it is damaged");
        assert!(matches!(refused, StoreError::Malformed { .. }), "{refused:?}");
        assert_eq!(batch.changes().count(), 0);
        batch.apply(&[put("n", Precondition::Version(3))]).expect("a put replaces it");
    }
}
