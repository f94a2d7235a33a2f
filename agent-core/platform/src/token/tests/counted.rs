//! Companies that the lookups and changes of tokens are counted for.

use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::records::RecordsWrapper;

/// Records that note the companies that the operations on the platform's records are counted for.
#[derive(Default)]
struct CountedRecords {
    records: MemoryRecords,
    counted: Mutex<Vec<String>>,
}

impl CountedRecords {
    fn note<'c>(&self, collections: impl IntoIterator<Item = &'c Collection>) {
        // A commit with a record of a company is counted for it.
        let collections: Vec<_> = collections.into_iter().collect();
        if collections.iter().all(|collection| collection.company().is_empty()) {
            let counted = collections.iter().find_map(|collection| collection.counted_company());
            self.counted.lock().expect("intact").push(counted.map(CompanyId::to_string).unwrap_or_default());
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.counted.lock().expect("intact"))
    }
}

#[async_trait]
impl RecordsWrapper for CountedRecords {
    fn inner(&self) -> &dyn Records {
        &self.records
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.note(keys.iter().map(Key::collection));
        self.records.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.note([collection]);
        self.records.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        self.note(writes.iter().map(|write| write.key().collection()));
        self.records.commit(writes).await
    }
}

#[test]
fn token_operations_are_counted_for_their_company_once_known() {
    let records = Arc::new(CountedRecords::default());
    let tokens = Tokens::new(records.clone(), Arc::new(ManualClock::new()));
    let minted = now(tokens.mint(mcp("a"))).expect("minted");
    assert_eq!(records.take(), [""; 0], "the commit has a record of the company");
    let find = || now(tokens.find(minted.text.expose()));
    find().expect("valid");
    assert_eq!(records.take(), [""], "the first lookup finds out the company");
    find().expect("valid");
    assert_eq!(records.take(), ["c"]);
    now(tokens.list(&"c".into(), &"a".into(), &ListQuery::default())).expect("a page");
    assert_eq!(records.take(), ["c"]);
    let caps = RunCaps { runs_per_minute: NonZeroU32::MAX, runs_per_day: None };
    now(tokens.count_run((&"c".into(), "t"), &caps)).expect("counted");
    assert_eq!(records.take(), ["c", "c"]);
    now(tokens.revoke(minted.token.id.as_str(), None)).expect("revoked");
    assert_eq!(records.take(), ["c", "c"]);
    assert!(matches!(find(), Err(TokenError::Revoked)));
    assert_eq!(records.take(), ["c"]);
}
