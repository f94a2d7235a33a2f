//! [`NestedCollectionCursor`]: pages of the collections that a collection of the platform has for each company.

use std::collections::VecDeque;

use super::{Collection, Inventory, ListQuery, MAX_PAGE_RECORDS, Page, Records, StoreError, Write};

/// Cursor over the records of all collections that are nested in one of the platform's. After the last one it begins again.
#[derive(Debug)]
pub struct NestedCollectionCursor {
    name: &'static str,
    /// Collections of the latest page that have not been visited.
    collections: VecDeque<Collection>,
    /// Path of the last one that was listed.
    after: Option<String>,
    /// Position within the first one.
    cursor: Option<String>,
}

impl NestedCollectionCursor {
    /// Creates a cursor over the collections nested in the platform's collection `name`.
    pub fn new(name: &'static str) -> Self {
        Self { name, collections: VecDeque::new(), after: None, cursor: None }
    }

    /// Returns the next page of records; `None` after the last collection.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn next_page(
        &mut self,
        inventory: &dyn Inventory,
    ) -> Result<Option<(Collection, Page)>, StoreError> {
        if self.collections.is_empty() && !self.list_collections(inventory).await? {
            return Ok(None);
        }
        let Some(collection) = self.collections.front().cloned() else { return Ok(None) };
        let list =
            ListQuery { limit: Some(MAX_PAGE_RECORDS), cursor: self.cursor.take(), ..ListQuery::default() };
        let page = inventory.list(&collection, &list).await?;
        self.cursor.clone_from(&page.next_cursor);
        if self.cursor.is_none() {
            self.collections.pop_front();
        }
        Ok(Some((collection, page)))
    }

    /// Lists the next collections. Returns false and begins again if there are none.
    async fn list_collections(&mut self, inventory: &dyn Inventory) -> Result<bool, StoreError> {
        let all_companies = format!("{}/", self.name);
        let platform = Collection::of_platform(self.name)?;
        let after = self.after.take().unwrap_or_else(|| all_companies.clone());
        let collections = inventory.collections(platform.company(), Some(&after)).await?;
        let is_ours = |collection: &Collection| collection.path().starts_with(&all_companies);
        self.collections = collections.into_iter().take_while(is_ours).collect();
        self.after = self.collections.back().map(|last| last.path().to_owned());
        Ok(self.after.is_some())
    }
}

/// Applies the deletions of records that are unchanged since they were read; none if another process has changed one of them,
/// or if the store refuses the commit, for example because another transaction has locked a record. The walk continues with the
/// next company, and the next walk tries again.
pub(crate) async fn delete_unchanged(records: &(impl Records + ?Sized), deletes: Vec<Write>) {
    if deletes.is_empty() {
        return;
    }
    match records.commit(deletes).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => {}
        Err(error) => tracing::warn!(%error, "failed to delete records without effect; trying again later"),
    }
}
