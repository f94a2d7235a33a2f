//! Deletion of the records of users' rates that have no effect any more.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use super::USER_RATES;
use crate::minute_rate::MinuteState;
use crate::records::{Collection, Inventory, ListQuery, MAX_PAGE_RECORDS, Precondition, StoreError, Write};

/// Position of the deletion among the companies. After the last one it begins again.
#[derive(Debug, Default)]
pub struct ExpiredRates {
    /// Collections that have not been visited, of those that were listed last.
    collections: VecDeque<Collection>,
    /// Path of the last one that was listed.
    after: Option<String>,
    /// Position within the first one.
    cursor: Option<String>,
}

impl ExpiredRates {
    /// Deletes the expired records of the next page. Returns false after the last company.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn delete_page(
        &mut self,
        inventory: &dyn Inventory,
        now: SystemTime,
    ) -> Result<bool, StoreError> {
        if self.collections.is_empty() && !self.list_collections(inventory).await? {
            return Ok(false);
        }
        let Some(collection) = self.collections.front() else { return Ok(false) };
        let list =
            ListQuery { limit: Some(MAX_PAGE_RECORDS), cursor: self.cursor.take(), ..ListQuery::default() };
        let page = inventory.list(collection, &list).await?;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut deletes = Vec::new();
        for record in page.records {
            // A record in an unknown format is kept.
            let Ok(record) = record.parse::<MinuteState>(collection) else { continue };
            if record.value.is_expired(now) {
                let precondition = Precondition::Version(record.version);
                deletes.push(Write::Delete { key: collection.key(record.id)?, precondition });
            }
        }
        if !deletes.is_empty() {
            match inventory.commit(deletes).await {
                // One of the users is active again; the next pass retries.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.cursor = page.next_cursor;
        if self.cursor.is_none() {
            self.collections.pop_front();
        }
        Ok(true)
    }

    /// Lists the next collections. Returns false and begins again if there are none.
    async fn list_collections(&mut self, inventory: &dyn Inventory) -> Result<bool, StoreError> {
        let all_companies = format!("{USER_RATES}/");
        let platform = Collection::of_platform(USER_RATES)?;
        let after = self.after.take().unwrap_or_else(|| all_companies.clone());
        let found = inventory.collections(platform.company(), Some(&after)).await?;
        let is_ours = |collection: &Collection| collection.path().starts_with(&all_companies);
        self.collections = found.into_iter().take_while(is_ours).collect();
        self.after = self.collections.back().map(|last| last.path().to_owned());
        Ok(self.after.is_some())
    }
}
