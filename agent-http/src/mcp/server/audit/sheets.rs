//! Sheets of calls, as they are written: each is a record, and an agent has so many of them.

use agent_platform::records::{Collection, List, MAX_PAGE, Precondition, Record, Records, StoreError, Write};

use super::{Call, Limits, collection};

/// An agent's last sheet, and how many there are with it.
pub(super) struct Sheets {
    collection: Collection,
    id: String,
    calls: Vec<Call>,
    count: usize,
}

impl Sheets {
    /// Begins a new sheet of an agent.
    pub(super) async fn open(
        records: &dyn Records,
        company_id: &str,
        agent_id: &str,
        limits: &Limits,
    ) -> Result<Self, StoreError> {
        let collection = collection(company_id, agent_id)?;
        let before = count(records, &collection, limits.sheets).await?;
        Ok(Self { collection, id: agent_core::new_id(), calls: Vec::new(), count: before + 1 })
    }

    /// Writes `calls`, and leaves in it what is not written.
    ///
    /// A sheet that could not be written is written again under its id, so that no call is there twice where the store
    /// has kept it and could not say so.
    pub(super) async fn write(
        &mut self,
        records: &dyn Records,
        calls: &mut Vec<Call>,
        limits: &Limits,
    ) -> Result<(), StoreError> {
        while !calls.is_empty() {
            if self.calls.len() >= limits.sheet {
                self.id = agent_core::new_id();
                self.calls.clear();
                self.count += 1;
            }
            let before = self.calls.len();
            let fitting = calls.len().min(limits.sheet - before);
            self.calls.extend(calls.drain(..fitting));
            if let Err(error) = self.put(records, limits).await {
                calls.splice(..0, self.calls.drain(before..));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the last sheet, and removes the oldest ones where there are too many.
    async fn put(&mut self, records: &dyn Records, limits: &Limits) -> Result<(), StoreError> {
        let value = serde_json::value::to_raw_value(&self.calls).expect("calls serialise").into();
        let key = self.collection.key(self.id.as_str())?;
        let mut writes = vec![Write::Put { key, value, precondition: Precondition::Any }];
        let surplus = self.count.saturating_sub(limits.sheets);
        writes.extend(oldest(records, &self.collection, surplus).await?);
        records.commit(writes).await?;
        self.count -= surplus;
        Ok(())
    }
}

/// How many records there are, up to a little more than `most`.
async fn count(records: &dyn Records, collection: &Collection, most: usize) -> Result<usize, StoreError> {
    let mut list = List { limit: Some(MAX_PAGE), ..List::default() };
    let mut count = 0;
    loop {
        let page = records.list(collection, &list).await?;
        count += page.records.len();
        list.cursor = page.next_cursor;
        if list.cursor.is_none() || count > most {
            return Ok(count);
        }
    }
}

/// Removals of the oldest records.
async fn oldest(
    records: &dyn Records,
    collection: &Collection,
    count: usize,
) -> Result<Vec<Write>, StoreError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let list = List { limit: Some(count), ..List::default() };
    let page = records.list(collection, &list).await?;
    let remove = |record: Record| {
        Ok(Write::Delete { key: collection.key(record.id)?, precondition: Precondition::Any })
    };
    page.records.into_iter().map(remove).collect()
}
