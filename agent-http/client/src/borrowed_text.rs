//! Strings that are borrowed from JSON.

use std::borrow::Cow;

use serde::Deserialize;

/// String that is borrowed unless it contains escapes. Serde borrows a `Cow` only as a separate field, not inside
/// an `Option`.
#[derive(Deserialize)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);
