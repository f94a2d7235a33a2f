//! Pagination of record lists.

use super::key::MAX_KEY_ID_BYTES;
use super::record::Record;
use agent_core::message::SharedJson;
use agent_core::store_error::StoreError;

/// Default number of records on a page.
pub const DEFAULT_PAGE_RECORDS: usize = 50;
/// Maximum number of records on a page.
pub const MAX_PAGE_RECORDS: usize = 200;

/// Query of a list: prefix, page size, cursor and order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Prefix that ids must begin with; empty for all.
    pub prefix: String,
    /// Maximum number of records; [`DEFAULT_PAGE_RECORDS`] if absent, capped at [`MAX_PAGE_RECORDS`].
    pub limit: Option<usize>,
    /// Cursor returned with the previous page of the same list.
    pub cursor: Option<String>,
    /// Order of the records.
    pub order: Order,
}

/// Order of a list, by the bytes of the ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Smallest id first; for appended records, oldest first.
    #[default]
    Ascending,
    /// Largest id first; for appended records, newest first.
    Descending,
}

impl ListQuery {
    /// Returns the maximum number of records on the page, between 1 and [`MAX_PAGE_RECORDS`].
    pub fn page_size(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_PAGE_RECORDS).clamp(1, MAX_PAGE_RECORDS)
    }

    /// Returns a text before which, by the bytes, all ids with the prefix sort: no id is longer than
    /// [`MAX_KEY_ID_BYTES`].
    pub fn upper_bound(&self) -> String {
        let last = char::MAX.to_string();
        format!("{}{}", self.prefix, last.repeat(MAX_KEY_ID_BYTES / last.len()))
    }

    /// Returns the id after which, in the list's order, the page begins, or [`StoreError::Invalid`] if the cursor was
    /// not issued by a list.
    pub fn after(&self) -> Result<Option<String>, StoreError> {
        self.cursor.as_deref().map(decode_cursor).transpose()
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T = SharedJson> {
    /// The records, in the list's order.
    pub records: Vec<Record<T>>,
    /// Cursor of the next page; absent on the last page.
    pub next_cursor: Option<String>,
}

impl Page {
    /// Builds a page for `list` from records in its order. A store reads one more record than [`ListQuery::page_size`]
    /// to detect whether another page follows.
    pub fn from_overfetch(mut records: Vec<Record>, list: &ListQuery) -> Self {
        let has_more = records.len() > list.page_size();
        records.truncate(list.page_size());
        let next_cursor = records.last().filter(|_| has_more).map(|last| encode_cursor(&last.id));
        Self { records, next_cursor }
    }
}

/// Encodes an id as a cursor. Hexadecimal needs no escaping in a URL and keeps the cursor opaque.
fn encode_cursor(id: &str) -> String {
    hex::encode(id.as_bytes())
}

fn decode_cursor(cursor: &str) -> Result<String, StoreError> {
    let invalid = || StoreError::Invalid("the cursor is invalid".to_owned());
    if cursor.is_empty() || cursor.len() > 2 * MAX_KEY_ID_BYTES || !cursor.len().is_multiple_of(2) {
        return Err(invalid());
    }
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let bytes: Option<Vec<u8>> =
        cursor.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect();
    String::from_utf8(bytes.ok_or_else(invalid)?).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_with_the_prefix_sorts_after_the_upper_bound() {
        let list = ListQuery { prefix: "a".to_owned(), ..ListQuery::default() };
        let bound = list.upper_bound();
        let longest =
            format!("a{}", char::MAX.to_string().repeat((MAX_KEY_ID_BYTES - 1) / char::MAX.len_utf8()));
        assert!(longest <= bound && longest.len() <= MAX_KEY_ID_BYTES);
        assert!("a" < bound.as_str() && bound.as_str() < "b", "{bound}");
    }

    #[test]
    fn a_cursor_round_trips_and_an_invalid_one_is_refused() {
        let id = "ü/1";
        assert_eq!(decode_cursor(&encode_cursor(id)).expect("ours"), id);
        for cursor in ["", "1", "zz", "ff", &"00".repeat(300)] {
            assert!(matches!(decode_cursor(cursor), Err(StoreError::Invalid(_))), "{cursor}");
        }
    }
}
