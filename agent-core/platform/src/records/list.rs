//! Lists of records, page by page.

use super::{MAX_KEY_ID_BYTES, Record, StoreError};
use agent_core::message::SharedJson;

/// How many records a page has where nothing else is asked for.
pub const DEFAULT_PAGE: usize = 50;
/// How many records a page has at most.
pub const MAX_PAGE: usize = 200;

/// Which records to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    /// Only ids that begin with this; empty is all.
    pub prefix: String,
    /// How many records at most; absent is [`DEFAULT_PAGE`], and more than [`MAX_PAGE`] are not given.
    pub limit: Option<usize>,
    /// Where an earlier page of the same list ended.
    pub cursor: Option<String>,
    /// In which order.
    pub order: Order,
}

/// The order of a list, by the bytes of the ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Smallest id first; of appended records, the oldest.
    #[default]
    Ascending,
    /// Largest id first; of appended records, the newest.
    Descending,
}

impl List {
    /// How many records the page has at most, between 1 and [`MAX_PAGE`].
    pub fn page_size(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE)
    }

    /// The id after which, in the list's order, the page begins; [`StoreError::Invalid`] where the
    /// cursor is none of ours.
    pub fn after(&self) -> Result<Option<String>, StoreError> {
        self.cursor.as_deref().map(open_cursor).transpose()
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T = SharedJson> {
    /// The records, in the list's order.
    pub records: Vec<Record<T>>,
    /// Where the next page begins; absent on the last one.
    pub next_cursor: Option<String>,
}

impl Page {
    /// Makes a page for `list` of records in its order, of which a store reads one more than
    /// [`List::page_size`] to know whether there is another page.
    pub fn cut(mut records: Vec<Record>, list: &List) -> Self {
        let more = records.len() > list.page_size();
        records.truncate(list.page_size());
        let next_cursor = records.last().filter(|_| more).map(|last| seal_cursor(&last.id));
        Self { records, next_cursor }
    }
}

/// A cursor is hexadecimal so that it needs no escaping in an address and nobody reads an id in it.
fn seal_cursor(id: &str) -> String {
    hex::encode(id.as_bytes())
}

fn open_cursor(cursor: &str) -> Result<String, StoreError> {
    let invalid = || StoreError::Invalid("the cursor is not one that a list gave".to_owned());
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
    fn a_cursor_comes_back_and_a_made_up_one_is_refused() {
        let id = "ü/1";
        assert_eq!(open_cursor(&seal_cursor(id)).expect("ours"), id);
        for cursor in ["", "1", "zz", "ff", &"00".repeat(300)] {
            assert!(matches!(open_cursor(cursor), Err(StoreError::Invalid(_))), "{cursor}");
        }
    }
}
