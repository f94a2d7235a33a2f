//! Counters of the records that agents add to collections too large to be counted on each addition.

use super::{WorkspaceError, collection};
use crate::records::{Key, Precondition, RecordCounter, Records, RecordsExt, StoreError, Write};
use agent_core::message::SharedJson;

/// Creates a record and increments its counter in one commit, and returns the record's version. Concurrent additions
/// do not conflict. Imported records do not count towards the limit.
pub(super) async fn create_counted(
    records: &dyn Records,
    (key, value): (&Key, SharedJson),
    counter: &str,
    (what, limit): (&'static str, usize),
) -> Result<u64, WorkspaceError> {
    let counter = Key::new(key.company(), collection::COUNTERS, counter)?;
    let max_count = u64::try_from(limit).unwrap_or(u64::MAX);
    let writes = vec![
        Write::Put { key: key.clone(), value, precondition: Precondition::Absent },
        Write::Increment { key: counter.clone(), limit: max_count },
    ];
    match records.commit(writes).await {
        Ok(versions) => {
            let version = versions.into_iter().next().flatten();
            version.ok_or_else(|| StoreError::unavailable("a version is missing").into())
        }
        Err(error @ StoreError::Conflict { .. }) => {
            let found = records.get_as::<RecordCounter>(&counter).await?;
            match found {
                Some(found) if found.value.count >= max_count => Err(WorkspaceError::Full { what, limit }),
                _ => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::to_json;

    #[test]
    fn a_record_beyond_the_limit_is_not_created() {
        let records = MemoryRecords::default();
        let put = |company: &str, id: &str| {
            let key = Key::new(company, "things", id).expect("a key");
            let value = to_json(&1).expect("JSON");
            let put = create_counted(&records, (&key, value), "things", ("shelf", 2))
                .now_or_never()
                .expect("no wait");
            let exists = records.get(&key).now_or_never().expect("no wait").expect("read").is_some();
            assert_eq!(put.is_ok(), exists);
            put.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!((put("c", "a"), put("c", "b")), (Ok(()), Ok(())));
        assert_eq!(put("c", "c"), Err("the shelf is full: it has 2 entries".to_owned()));
        assert_eq!(put("d", "a"), Ok(()));
    }
}
