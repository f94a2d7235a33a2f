//! Reads pages of calls from segments.
//!
//! A segment is appended to, and read from its end. So a cursor holds the number of calls that remain in a segment, and
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

/// A parsed cursor: `remaining` calls of the segment `id` are left; the segment follows the store cursor `store_cursor`.
struct CursorPosition<'c> {
    remaining: usize,
    id: &'c str,
    store_cursor: Option<String>,
}

impl<'c> CursorPosition<'c> {
    fn parse(cursor: &'c str) -> Option<Self> {
        let (remaining, segment_cursor) = cursor.split_once('.')?;
        let (id, store_cursor) = segment_cursor.split_once('.')?;
        let store_cursor = Some(store_cursor.to_owned()).filter(|cursor| !cursor.is_empty());
        Some(Self { remaining: remaining.parse().ok()?, id, store_cursor })
    }
}

pub(super) async fn read(
    records: &dyn Records,
    segments: &Collection,
    limit: Option<usize>,
    cursor: Option<&str>,
) -> Result<CallPage, AuditError> {
    let limit = limit.unwrap_or(DEFAULT_PAGE_RECORDS).clamp(1, MAX_PAGE_RECORDS);
    let position =
        cursor.map(|cursor| CursorPosition::parse(cursor).ok_or(AuditError::InvalidCursor)).transpose()?;
    let mut store_cursor = position.as_ref().and_then(|position| position.store_cursor.clone());
    let mut calls = Vec::new();
    loop {
        let list = ListQuery {
            limit: Some(1),
            cursor: store_cursor.clone(),
            order: Order::Descending,
            ..ListQuery::default()
        };
        let page =
            records.list_as::<Vec<CallRecord>>(segments, &list).await.map_err(|error| match error {
                StoreError::Invalid(_) => AuditError::InvalidCursor,
                error => AuditError::Store(error),
            })?;
        let Some(Record { id, value: mut segment, .. }) = page.records.into_iter().next() else { break };
        if let Some(position) = &position {
            // Segments that were started after the previous page are newer than the cursor.
            segment.truncate(match id.as_str().cmp(position.id) {
                std::cmp::Ordering::Greater => 0,
                std::cmp::Ordering::Equal => position.remaining,
                std::cmp::Ordering::Less => usize::MAX,
            });
        }
        while let Some(call) = segment.pop() {
            if calls.len() == limit {
                let next = format!("{}.{id}.{}", segment.len() + 1, store_cursor.unwrap_or_default());
                return Ok(CallPage { calls, next_cursor: Some(next) });
            }
            calls.push(call);
        }
        store_cursor = page.next_cursor;
        if store_cursor.is_none() {
            break;
        }
    }
    Ok(CallPage { calls, next_cursor: None })
}
