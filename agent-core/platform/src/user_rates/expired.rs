//! Deletion of the records of users' rates that no longer have an effect.

use std::time::{SystemTime, UNIX_EPOCH};

use super::USER_RATES;
use crate::minute_rate::MinuteState;
use crate::records::{Inventory, NestedCollectionCursor, Precondition, StoreError, Write, delete_unchanged};

/// Sweep over the records of all companies that deletes those without effect, a page at a time. After the last company it begins
/// again.
#[derive(Debug)]
pub struct RateRecordSweep {
    cursor: NestedCollectionCursor,
}

impl Default for RateRecordSweep {
    fn default() -> Self {
        Self { cursor: NestedCollectionCursor::new(USER_RATES) }
    }
}

impl RateRecordSweep {
    /// Deletes the expired records of the next page. Returns false after the last company.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn delete_page(
        &mut self,
        inventory: &dyn Inventory,
        now: SystemTime,
    ) -> Result<bool, StoreError> {
        let Some((collection, page)) = self.cursor.next_page(inventory).await? else { return Ok(false) };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut deletes = Vec::new();
        for record in page.records {
            // A record in an unknown format is kept.
            let Ok(record) = record.parse::<MinuteState>(&collection) else { continue };
            if record.value.is_expired(now) {
                let precondition = Precondition::Version(record.version);
                deletes.push(Write::Delete { key: collection.key(record.id)?, precondition });
            }
        }
        delete_unchanged(inventory, deletes).await;
        Ok(true)
    }
}
