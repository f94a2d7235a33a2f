//! Counters of the records that agents add to collections too large to be counted on each addition.

use serde::{Deserialize, Serialize};

use super::{WorkspaceError, collection};
use crate::records::{Key, Precondition, Records, RecordsExt, StoreError, Write, to_json};
use agent_core::message::SharedJson;

/// Maximum number of attempts when other callers add concurrently.
const MAX_COMMIT_ATTEMPTS: usize = 32;

#[derive(Default, Serialize, Deserialize)]
struct RecordCounter {
    count: usize,
}

/// Creates a record and increments its counter in one commit, and returns the record's version. Imported records do
/// not count towards the limit.
pub(super) async fn create_counted(
    records: &dyn Records,
    (key, value): (&Key, SharedJson),
    tally: &str,
    (what, limit): (&'static str, usize),
) -> Result<u64, WorkspaceError> {
    let tally = Key::new(key.company(), collection::TALLIES, tally)?;
    let mut attempt = 1;
    loop {
        let found = records.get_as::<RecordCounter>(&tally).await?;
        let count = found.as_ref().map_or(0, |record| record.value.count);
        if count >= limit {
            return Err(WorkspaceError::Full { what, limit });
        }
        let precondition = found.map_or(Precondition::Absent, |record| Precondition::Version(record.version));
        let counted = to_json(&RecordCounter { count: count + 1 })?;
        let writes = vec![
            Write::Put { key: key.clone(), value: value.clone(), precondition: Precondition::Absent },
            Write::Put { key: tally.clone(), value: counted, precondition },
        ];
        match records.commit(writes).await {
            Ok(versions) => {
                let version = versions.into_iter().next().flatten();
                return version.ok_or_else(|| StoreError::unavailable("a version is missing").into());
            }
            Err(StoreError::Conflict { .. }) if attempt < MAX_COMMIT_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;

    #[test]
    fn what_is_over_the_limit_is_not_put() {
        let records = MemoryRecords::default();
        let put = |company: &str, id: &str| {
            let key = Key::new(company, "things", id).expect("a key");
            let value = to_json(&1).expect("JSON");
            let put = create_counted(&records, (&key, value), "things", ("shelf", 2))
                .now_or_never()
                .expect("no wait");
            let there = records.get(&key).now_or_never().expect("no wait").expect("read").is_some();
            assert_eq!(put.is_ok(), there);
            put.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!((put("c", "a"), put("c", "b")), (Ok(()), Ok(())));
        assert_eq!(put("c", "c"), Err("the shelf is full: it has 2 entries".to_owned()));
        assert_eq!(put("d", "a"), Ok(()));
    }
}
