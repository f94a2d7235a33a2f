//! Reads pages of calls from sheets.
//!
//! A sheet is appended to, and read from its end. So a cursor holds the number of calls that remain in a sheet, and
//! calls that are recorded between two pages do not move it.

use agent_platform::records::{
    Collection, DEFAULT_PAGE_RECORDS, ListQuery, MAX_PAGE_RECORDS, Order, Record, Records, RecordsExt,
    StoreError,
};
use serde::Serialize;

use super::CallRecord;

/// One page of calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallPage {
    /// The calls, newest first.
    pub calls: Vec<CallRecord>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Error of reading the audit log. It displays the public description.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The cursor is not one of this list's.
    #[error("cursor is invalid")]
    InvalidCursor,
    /// The store failed.
    #[error("the audit log cannot be read")]
    Store(#[source] StoreError),
}

/// A parsed cursor: `left` calls of the sheet `id` remain; the sheet follows the store cursor `before`.
struct CursorPosition<'c> {
    left: usize,
    id: &'c str,
    before: Option<String>,
}

impl<'c> CursorPosition<'c> {
    fn parse(cursor: &'c str) -> Option<Self> {
        let (left, rest) = cursor.split_once('.')?;
        let (id, before) = rest.split_once('.')?;
        let before = Some(before.to_owned()).filter(|before| !before.is_empty());
        Some(Self { left: left.parse().ok()?, id, before })
    }
}

pub(super) async fn read(
    records: &dyn Records,
    sheets: &Collection,
    limit: Option<usize>,
    cursor: Option<&str>,
) -> Result<CallPage, AuditError> {
    let limit = limit.unwrap_or(DEFAULT_PAGE_RECORDS).clamp(1, MAX_PAGE_RECORDS);
    let place =
        cursor.map(|cursor| CursorPosition::parse(cursor).ok_or(AuditError::InvalidCursor)).transpose()?;
    let mut before = place.as_ref().and_then(|place| place.before.clone());
    let mut calls = Vec::new();
    loop {
        let list = ListQuery {
            limit: Some(1),
            cursor: before.clone(),
            order: Order::Descending,
            ..ListQuery::default()
        };
        let page = records.list_as::<Vec<CallRecord>>(sheets, &list).await.map_err(|error| match error {
            StoreError::Invalid(_) => AuditError::InvalidCursor,
            error => AuditError::Store(error),
        })?;
        let Some(Record { id, value: mut sheet, .. }) = page.records.into_iter().next() else { break };
        if let Some(place) = &place {
            // Sheets that were started after the previous page are newer than the cursor.
            sheet.truncate(match id.as_str().cmp(place.id) {
                std::cmp::Ordering::Greater => 0,
                std::cmp::Ordering::Equal => place.left,
                std::cmp::Ordering::Less => usize::MAX,
            });
        }
        while let Some(call) = sheet.pop() {
            if calls.len() == limit {
                let next = format!("{}.{id}.{}", sheet.len() + 1, before.unwrap_or_default());
                return Ok(CallPage { calls, next_cursor: Some(next) });
            }
            calls.push(call);
        }
        before = page.next_cursor;
        if before.is_none() {
            break;
        }
    }
    Ok(CallPage { calls, next_cursor: None })
}
