//! Deletion of several records of a collection.

use crate::records::{Collection, ListQuery, MAX_PAGE_RECORDS, Precondition, Records, StoreError, Write};

/// Deletes all records of a collection and returns their number.
pub(super) async fn clear(records: &dyn Records, collection: &Collection) -> Result<usize, StoreError> {
    let mut deleted = 0;
    let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
    loop {
        let page = records.list(collection, &list).await?;
        let mut writes = Vec::with_capacity(page.records.len());
        for record in page.records {
            writes.push(Write::Delete { key: collection.key(record.id)?, precondition: Precondition::Any });
        }
        deleted += records.commit(writes).await?.into_iter().flatten().count();
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(deleted);
        }
    }
}

/// Deletes records of a collection, and returns the number of those that existed.
pub(super) async fn delete_records(
    records: &dyn Records,
    collection: &Collection,
    ids: Vec<String>,
) -> Result<usize, StoreError> {
    let mut deleted = 0;
    for id in ids {
        deleted += usize::from(records.delete(&collection.key(id)?, Precondition::Any).await?);
    }
    Ok(deleted)
}
