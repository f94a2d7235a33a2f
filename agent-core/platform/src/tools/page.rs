//! `limit` and `cursor` arguments of tools that return pages.

use crate::records::{ListQuery, MAX_PAGE_RECORDS};
use crate::workspace::WorkspaceError;

/// Validates the arguments and returns the page to read.
pub(super) fn parse_page(limit: Option<usize>, cursor: Option<String>) -> Result<ListQuery, WorkspaceError> {
    if limit.is_some_and(|limit| !(1..=MAX_PAGE_RECORDS).contains(&limit)) {
        let fault = format!("must be between 1 and {MAX_PAGE_RECORDS}");
        return Err(WorkspaceError::Invalid { field: "limit", fault });
    }
    let list = ListQuery { limit, cursor, ..ListQuery::default() };
    match list.after() {
        Ok(_) => Ok(list),
        Err(_) => Err(bad_cursor()),
    }
}

/// Returns one page of a complete list, with the cursor of the next page. The cursor is a position in the list at the
/// time of the call.
pub(super) fn slice_page<T>(
    mut all: Vec<T>,
    limit: Option<usize>,
    cursor: Option<&str>,
) -> Result<(Vec<T>, Option<String>), WorkspaceError> {
    let size = parse_page(limit, None)?.page_size();
    let begin = parse_offset(cursor)?.min(all.len());
    let end = begin.saturating_add(size).min(all.len());
    let next = (end < all.len()).then(|| end.to_string());
    all.truncate(end);
    Ok((all.split_off(begin), next))
}

/// Parses a numeric cursor; 0 without one.
pub(super) fn parse_offset(cursor: Option<&str>) -> Result<usize, WorkspaceError> {
    cursor.map_or(Ok(0), |cursor| cursor.parse().map_err(|_| bad_cursor()))
}

fn bad_cursor() -> WorkspaceError {
    let fault = "is not a nextCursor returned by this tool".to_owned();
    WorkspaceError::Invalid { field: "cursor", fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_what_is_at_hand() {
        let cut =
            |limit, cursor| slice_page((0..5).collect(), limit, cursor).map_err(|error| error.to_string());
        let next = |text: &str| Some(text.to_owned());
        assert_eq!(cut(None, None), Ok((vec![0, 1, 2, 3, 4], None)));
        assert_eq!(cut(Some(2), None), Ok((vec![0, 1], next("2"))));
        assert_eq!(cut(Some(2), Some("2")), Ok((vec![2, 3], next("4"))));
        assert_eq!(cut(Some(2), Some("4")), Ok((vec![4], None)));
        assert_eq!(cut(Some(2), Some("99999999999999")), Ok((vec![], None)));
        for cursor in ["", "-1", "x", "99999999999999999999999"] {
            assert_eq!(
                cut(None, Some(cursor)),
                Err("cursor: is not a nextCursor returned by this tool".to_owned())
            );
        }
        for limit in [0, MAX_PAGE_RECORDS + 1] {
            assert_eq!(cut(Some(limit), None), Err("limit: must be between 1 and 200".to_owned()));
            assert!(parse_page(Some(limit), None).is_err());
        }
        assert!(parse_page(Some(MAX_PAGE_RECORDS), None).is_ok());
        assert!(parse_page(None, Some("zz".to_owned())).is_err());
    }
}
