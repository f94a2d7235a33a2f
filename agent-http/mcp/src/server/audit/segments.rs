//! Writes calls to the store in segments, each one record. The number of segments of an agent is limited.

use agent_core::ids::{AgentId, CompanyId};
use agent_platform::records::{
    Collection, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, Records, StoreError, Write,
};

use super::{CallRecord, Limits, collection};

/// An agent's current segment, and the number of its segments.
pub(super) struct SegmentWriter {
    collection: Collection,
    id: String,
    calls: Vec<CallRecord>,
    count: usize,
}

impl SegmentWriter {
    /// Starts a new segment of an agent.
    pub(super) async fn open(
        records: &dyn Records,
        company_id: &CompanyId,
        agent_id: &AgentId,
        limits: &Limits,
    ) -> Result<Self, StoreError> {
        let collection = collection(company_id, agent_id)?;
        let existing = count(records, &collection, limits.max_segments_per_agent).await?;
        Ok(Self { collection, id: agent_core::new_id(), calls: Vec::new(), count: existing + 1 })
    }

    /// Writes `calls`, and leaves in it the calls that could not be written.
    ///
    /// A segment whose write failed is written again under its id, so that no call is duplicated if the store has
    /// committed the write but failed to acknowledge it.
    pub(super) async fn write(
        &mut self,
        records: &dyn Records,
        calls: &mut Vec<CallRecord>,
        limits: &Limits,
    ) -> Result<(), StoreError> {
        while !calls.is_empty() {
            if self.calls.len() >= limits.max_calls_per_segment {
                self.id = agent_core::new_id();
                self.calls.clear();
                self.count += 1;
            }
            let old_len = self.calls.len();
            let added_count = calls.len().min(limits.max_calls_per_segment - old_len);
            self.calls.extend(calls.drain(..added_count));
            if let Err(error) = self.put(records, limits).await {
                calls.splice(..0, self.calls.drain(old_len..));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the current segment, and deletes the oldest segments above the limit in the same commit.
    async fn put(&mut self, records: &dyn Records, limits: &Limits) -> Result<(), StoreError> {
        let value = serde_json::value::to_raw_value(&self.calls).expect("calls serialise").into();
        let key = self.collection.key(self.id.as_str())?;
        let mut writes = vec![Write::Put { key, value, precondition: Precondition::Any }];
        let excess = self.count.saturating_sub(limits.max_segments_per_agent);
        writes.extend(delete_oldest(records, &self.collection, excess).await?);
        records.commit(writes).await?;
        self.count -= excess;
        Ok(())
    }
}

/// Counts the records; stops after the page at which the count exceeds `max`.
async fn count(records: &dyn Records, collection: &Collection, max: usize) -> Result<usize, StoreError> {
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    let mut count = 0;
    loop {
        let page = records.list(collection, &list).await?;
        count += page.records.len();
        list.cursor = page.next_cursor;
        if list.cursor.is_none() || count > max {
            return Ok(count);
        }
    }
}

/// Returns the writes that delete the oldest records.
async fn delete_oldest(
    records: &dyn Records,
    collection: &Collection,
    count: usize,
) -> Result<Vec<Write>, StoreError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let list = ListQuery { limit: Some(count), ..ListQuery::default() };
    let page = records.list(collection, &list).await?;
    let delete = |record: Record| {
        Ok(Write::Delete { key: collection.key(record.id)?, precondition: Precondition::Any })
    };
    page.records.into_iter().map(delete).collect()
}
