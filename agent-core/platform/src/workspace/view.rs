//! Pages of filtered or projected records.

use serde::de::DeserializeOwned;

use crate::records::{Collection, ListQuery, Page, Record, Records, RecordsExt, StoreError, to_json};

/// Batch size for reading records: a value may be large, while a page keeps little of it.
pub(super) const READ_BATCH_SIZE: usize = 25;
/// Maximum number of records read for one page. A selective filter gives a short page with a cursor to continue.
pub(super) const MAX_RECORDS_SCANNED: usize = 2_000;

/// Page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<T> {
    /// Items, in the order of the list.
    pub items: Vec<T>,
    /// Cursor of the next page; absent on the last page. A page with fewer items than requested, or none, may still
    /// have a next page.
    pub next_cursor: Option<String>,
}

/// Returns one page of the records projected by `view`; records for which it returns `None` are skipped.
pub(crate) async fn list_projected<T: DeserializeOwned + Send, V: Send>(
    records: &dyn Records,
    collection: &Collection,
    list: &ListQuery,
    view: impl Fn(Record<T>) -> Option<V> + Send,
) -> Result<ListPage<V>, StoreError> {
    let nothing = to_json(&())?;
    // One item more than the page size shows whether there is a next page.
    let read_count = list.page_size() + 1;
    let (mut items, mut list_entries) = (Vec::new(), Vec::new());
    let mut batch = ListQuery { limit: Some(READ_BATCH_SIZE), ..list.clone() };
    let mut scanned = 0;
    loop {
        let Page { records: found, next_cursor } = records.list_as::<T>(collection, &batch).await?;
        scanned += found.len();
        for record in found {
            let list_entry = Record {
                id: record.id.clone(),
                version: record.version,
                updated: record.updated,
                value: nothing.clone(),
            };
            if let Some(item) = view(record) {
                items.push(item);
                list_entries.push(list_entry);
            }
        }
        if items.len() >= read_count {
            let cut = Page::from_overfetch(list_entries, list);
            items.truncate(cut.records.len());
            return Ok(ListPage { items, next_cursor: cut.next_cursor });
        }
        if next_cursor.is_none() || scanned >= MAX_RECORDS_SCANNED {
            return Ok(ListPage { items, next_cursor });
        }
        batch.cursor = next_cursor;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::{MAX_PAGE_RECORDS, Order};

    /// Reads all pages and returns their items and their sizes.
    fn walk(count: u32, limit: Option<usize>, is_visible: fn(u32) -> bool) -> (Vec<u32>, Vec<usize>) {
        let records = MemoryRecords::default();
        let things = Collection::new("c", "things").expect("a name");
        for n in 0..count {
            records.append_as(&things, &n).now_or_never().expect("no wait").expect("appended");
        }
        let mut list = ListQuery { limit, order: Order::Descending, ..ListQuery::default() };
        let (mut all, mut sizes) = (Vec::new(), Vec::new());
        loop {
            let page = list_projected(&records, &things, &list, |record: Record<u32>| {
                is_visible(record.value).then_some(record.value)
            });
            let page = page.now_or_never().expect("no wait").expect("read");
            sizes.push(page.items.len());
            all.extend(page.items);
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return (all, sizes);
            }
        }
    }

    #[test]
    fn pages_give_each_wanted_thing_once() {
        let newest_first = |count: u32| (0..count).rev().collect::<Vec<_>>();
        assert_eq!(walk(0, None, |_| true), (vec![], vec![0]));
        assert_eq!(walk(50, None, |_| true), (newest_first(50), vec![50]));
        assert_eq!(walk(51, None, |_| true), (newest_first(51), vec![50, 1]));
        assert_eq!(
            walk(420, Some(1_000), |_| true),
            (newest_first(420), vec![MAX_PAGE_RECORDS, MAX_PAGE_RECORDS, 20])
        );
        assert_eq!(walk(60, Some(2), |n| n % 20 == 0), (vec![40, 20, 0], vec![2, 1]));
    }

    #[test]
    fn a_page_reads_at_most_its_share() {
        let (all, sizes) = walk(MAX_RECORDS_SCANNED as u32 + 10, None, |n| n == 0);
        assert_eq!((all, sizes), (vec![0], vec![0, 1]));
    }
}
