//! Ranges of documents' texts, wherever these are stored.

use std::ops::Range;

use super::pieces::{PieceSet, TEXT_PIECE_BYTES, TextPiece, replaced};
use crate::records::{Records, RecordsExt, StoreError};
use crate::workspace::Document;
use agent_core::ids::CompanyId;

/// Number of pieces that are read at once.
const PIECES_PER_READ: usize = 8;

/// Part of a document's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRange {
    /// Position of the part in the text, in bytes.
    pub start: usize,
    /// The part.
    pub text: String,
}

impl TextRange {
    /// Returns the position after the part, in bytes.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Reads a range of a document's text in bytes, wherever the text is stored. Either end that is inside a character is
/// moved to its beginning, and to the end of the text if it is beyond.
///
/// # Errors
/// [`StoreError::Conflict`] if the text has been replaced or deleted since the document was read.
pub async fn read_document_text(
    records: &dyn Records,
    company_id: &CompanyId,
    document: &Document,
    range: Range<usize>,
) -> Result<TextRange, StoreError> {
    let content = document.content.as_ref();
    let long = content.and_then(|content| Some((content, content.long_text_bytes()?)));
    let Some((content, bytes)) = long else {
        return Ok(slice(&document.text, 0, &range));
    };
    let (start, end) = (range.start.min(bytes), range.end.min(bytes));
    let generation = content.text_generation.as_deref().unwrap_or_default();
    let pieces = bytes.div_ceil(TEXT_PIECE_BYTES);
    let set = PieceSet { document_id: document.id.clone(), generation: generation.to_owned(), pieces };
    // A piece begins at the last character boundary up to a multiple of the size, so the next one may have the byte.
    let first = (start / TEXT_PIECE_BYTES).min(set.pieces - 1);
    let last = (end.max(start) / TEXT_PIECE_BYTES + 1).min(set.pieces);
    let keys = set.keys(company_id, first..last)?;
    let (mut text, mut text_start) = (String::new(), None);
    for keys in keys.chunks(PIECES_PER_READ) {
        for piece in records.get_many_as::<TextPiece>(keys).await? {
            let piece = piece.ok_or_else(replaced)?.value;
            text_start.get_or_insert(piece.start);
            text.push_str(&piece.text);
        }
    }
    Ok(slice(&text, text_start.unwrap_or_default(), &(start..end)))
}

/// Returns the range of a text that begins at `text_start`.
fn slice(text: &str, text_start: usize, range: &Range<usize>) -> TextRange {
    let start = text.floor_char_boundary(range.start.saturating_sub(text_start));
    let end = text.floor_char_boundary(range.end.saturating_sub(text_start)).max(start);
    TextRange { start: text_start + start, text: text[start..end].to_owned() }
}
