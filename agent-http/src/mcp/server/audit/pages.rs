//! Reads pages of calls from sheets.
//!
//! A sheet is appended to, and read from its end. So a cursor holds the number of calls that remain in a sheet, and
//! calls that are recorded between two pages do not move it.

use agent_platform::records::{
    Collection, DEFAULT_PAGE, List, MAX_PAGE, Order, Record, Records, RecordsExt, StoreError,
};
use serde::Serialize;

use super::Call;
use crate::error::HttpError;

/// One page of calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    /// The calls, newest first.
    pub calls: Vec<Call>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A parsed cursor: `left` calls of the sheet `id` remain; the sheet follows the store cursor `before`.
struct Place<'c> {
    left: usize,
    id: &'c str,
    before: Option<String>,
}

impl<'c> Place<'c> {
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
) -> Result<Calls, HttpError> {
    let refused = || HttpError::invalid("cursor", "is none that this list has given");
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let place = cursor.map(|cursor| Place::parse(cursor).ok_or_else(refused)).transpose()?;
    let mut before = place.as_ref().and_then(|place| place.before.clone());
    let mut calls = Vec::new();
    loop {
        let list =
            List { limit: Some(1), cursor: before.clone(), order: Order::Descending, ..List::default() };
        let page = records.list_as::<Vec<Call>>(sheets, &list).await.map_err(|error| match error {
            StoreError::Invalid(_) => refused(),
            error => HttpError::internal(error),
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
                return Ok(Calls { calls, next_cursor: Some(next) });
            }
            calls.push(call);
        }
        before = page.next_cursor;
        if before.is_none() {
            break;
        }
    }
    Ok(Calls { calls, next_cursor: None })
}
