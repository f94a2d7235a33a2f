//! Merging of pieces into chunks.

use std::sync::Arc;

use unicode_segmentation::UnicodeSegmentation;

use super::Chunk;
use super::blocks::Heading;
use super::pieces::Piece;
use super::tables::Tables;
use crate::document::ExtractedText;

/// Separator between the names of nested headings.
const HEADING_SEPARATOR: &str = " > ";

/// The chunk that pieces are added to.
struct OpenChunk {
    start: usize,
    end: usize,
    characters: usize,
    heading: Option<Arc<str>>,
}

/// Merges pieces greedily into chunks.
pub(super) struct Merger<'a> {
    document: &'a ExtractedText,
    limit: usize,
    overlap: usize,
    tables: Tables,
    /// The headings above the current position, the outermost first.
    headings: Vec<Heading<'a>>,
    path: Option<Arc<str>>,
    open: Option<OpenChunk>,
    chunks: Vec<Chunk>,
}

impl<'a> Merger<'a> {
    pub(super) fn new(document: &'a ExtractedText, limit: usize, overlap: usize) -> Self {
        let tables = Tables::find(document);
        let (headings, chunks) = (Vec::new(), Vec::new());
        Self { document, limit, overlap, tables, headings, path: None, open: None, chunks }
    }

    pub(super) fn add(&mut self, piece: Piece<'a>) {
        if let Some(heading) = piece.heading {
            self.enter_section(heading);
        }
        let visible = self.visible_characters(&piece);
        // White space between pieces is in no piece.
        let gap = self
            .open
            .as_ref()
            .map_or(0, |open| self.document.text[open.end..piece.start].chars().take(self.limit).count());
        match &mut self.open {
            // A chunk that is half full ends where a section begins.
            Some(open) if piece.heading.is_some() && open.characters >= self.limit / 2 => {
                self.close();
                self.begin(piece.start, piece);
            }
            Some(open) if open.characters + gap + visible <= self.limit => {
                open.end = piece.end;
                open.characters += gap + piece.characters;
            }
            Some(open) => {
                let (start, end) = (open.start, open.end);
                self.close();
                let repeated = match piece.heading {
                    Some(_) => None,
                    None => self.overlap_start(start, end, gap + visible),
                };
                self.begin(repeated.unwrap_or(piece.start), piece);
            }
            None => self.begin(piece.start, piece),
        }
    }

    pub(super) fn finish(mut self) -> Vec<Chunk> {
        self.close();
        self.chunks
    }

    /// Opens a chunk with a piece, and with the text before it from `start` on.
    fn begin(&mut self, start: usize, piece: Piece<'a>) {
        let overlap_characters = self.document.text[start..piece.start].chars().count();
        self.open = Some(OpenChunk {
            start,
            end: piece.end,
            characters: overlap_characters + piece.characters,
            heading: self.path.clone(),
        });
    }

    fn enter_section(&mut self, heading: Heading<'a>) {
        self.headings.retain(|open_heading| open_heading.level < heading.level);
        self.headings.push(heading);
        let names: Vec<&str> = self.headings.iter().map(|heading| heading.text).collect();
        self.path = Some(names.join(HEADING_SEPARATOR).into());
    }

    /// Appends the open chunk, without white space at its ends.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let range = &self.document.text[open.start..open.end];
        let start = open.start + (range.len() - range.trim_start().len());
        let end = open.start + range.trim_end().len();
        let page = self.document.page_at(start);
        let heading = match self.tables.header_at(start) {
            Some(header) => Some(joined(open.heading.as_deref(), header)),
            None => open.heading,
        };
        self.chunks.push(Chunk { start, end, heading, page });
    }

    /// Returns the characters of a piece without the white space after it.
    fn visible_characters(&self, piece: &Piece<'_>) -> usize {
        let range = &self.document.text[piece.start..piece.end];
        let blanks = range[range.trim_end().len()..].chars().take(self.limit).count();
        piece.characters - blanks.min(piece.characters)
    }

    /// Returns the start of the text that the next chunk repeats of the one at `start..end`: whole sentences, or words if
    /// the boundary is within a line. `next` is the number of characters that follow.
    fn overlap_start(&self, start: usize, end: usize, next: usize) -> Option<usize> {
        let allowed = self.overlap.min(self.limit.saturating_sub(next));
        let chunk = &self.document.text[start..end];
        let tail = chunk.char_indices().rev().nth(allowed.checked_sub(1)?).map_or(0, |(offset, _)| offset);
        let region = &chunk[tail..];
        // The first boundary is the beginning of the region, which is one of characters only.
        let sentence = region.split_sentence_bound_indices().map(|(offset, _)| offset).nth(1);
        let word = || {
            let space = region.find(char::is_whitespace)?;
            Some(region.len() - region[space..].trim_start().len())
        };
        let offset = if chunk.ends_with('\n') { sentence } else { sentence.or_else(word) }?;
        (!region[offset..].trim().is_empty()).then_some(start + tail + offset)
    }
}

/// Returns a path of headings with another name below it.
fn joined(path: Option<&str>, name: &str) -> Arc<str> {
    match path {
        Some(path) => format!("{path}{HEADING_SEPARATOR}{name}").into(),
        None => name.into(),
    }
}
