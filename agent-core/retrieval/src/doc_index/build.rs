//! Building of a document's index.

use std::sync::Arc;

use super::{BuildError, ChunkLocation, DocIndex, Labels, MAX_TEXT_BYTES};
use crate::analysis::{Analyzer, Language};
use crate::chunk::{Chunk, Chunker};
use crate::document::ExtractedText;
use crate::postings::{Occurrence, Postings};

/// Maximum number of bytes of a title that are kept and indexed.
const MAX_TITLE_BYTES: usize = 512;
/// Maximum number of bytes of a path of headings that are kept and indexed.
const MAX_HEADING_BYTES: usize = 1024;

impl DocIndex {
    /// Analyzes a document and builds its index.
    pub fn build(document: &ExtractedText, chunker: &dyn Chunker) -> Result<Self, BuildError> {
        let text = &document.text;
        if text.len() > MAX_TEXT_BYTES {
            return Err(BuildError::TextTooLong(text.len()));
        }
        let language = Language::detect(text);
        let title = prefix(&document.title, MAX_TITLE_BYTES);
        let mut builder = Builder { analyzer: Analyzer::new(language), ..Builder::default() };
        builder.analyzer.append_terms(title, &mut builder.title_terms);
        let mut last_start = 0;
        for chunk in chunker.chunk(document) {
            let content = text.get(chunk.start..chunk.end).filter(|content| !content.is_empty());
            let Some(content) = content.filter(|_| chunk.start >= last_start) else {
                return Err(BuildError::InvalidChunk(chunk.start, chunk.end));
            };
            last_start = chunk.start;
            builder.add(&chunk, content);
        }
        Ok(Self {
            labels: Labels { title: title.into(), headings: builder.headings.into() },
            language,
            locations: builder.locations,
            lengths: builder.lengths,
            postings: Postings::build(builder.analyzer.terms(), &builder.occurrences),
            vectors: None,
        })
    }
}

struct Builder {
    analyzer: Analyzer,
    title_terms: Vec<u32>,
    heading_terms: Vec<u32>,
    headings: Vec<Arc<str>>,
    locations: Vec<ChunkLocation>,
    lengths: Vec<u16>,
    occurrences: Vec<Occurrence>,
    terms: Vec<u32>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            analyzer: Analyzer::new(Language::Other),
            title_terms: Vec::new(),
            heading_terms: Vec::new(),
            headings: Vec::new(),
            locations: Vec::new(),
            lengths: Vec::new(),
            occurrences: Vec::new(),
            terms: Vec::new(),
        }
    }
}

impl Builder {
    fn add(&mut self, chunk: &Chunk, content: &str) {
        let heading = self.enter_heading(chunk.heading.as_deref());
        self.terms.clear();
        self.terms.extend_from_slice(&self.title_terms);
        if heading > 0 {
            self.terms.extend_from_slice(&self.heading_terms);
        }
        self.analyzer.append_terms(content, &mut self.terms);
        // Function words say nothing about how much a chunk is about.
        let length = self.terms.iter().filter(|&&term| !self.analyzer.is_stop_term(term)).count();
        self.lengths.push(u16::try_from(length).unwrap_or(u16::MAX));
        self.terms.sort_unstable();
        let number = self.locations.len() as u32;
        for equal in self.terms.chunk_by(|left, right| left == right) {
            let count = u8::try_from(equal.len()).unwrap_or(u8::MAX);
            self.occurrences.push(Occurrence { term: equal[0], chunk: number, count });
        }
        self.locations.push(ChunkLocation {
            start: chunk.start as u32,
            end: chunk.end as u32,
            heading,
            page: chunk.page.unwrap_or(0),
        });
    }

    /// Returns the number of a heading path. A path that differs from the previous one is analyzed and gets a new number.
    fn enter_heading(&mut self, heading: Option<&str>) -> u32 {
        let Some(heading) = heading.map(|heading| prefix(heading, MAX_HEADING_BYTES)) else { return 0 };
        if self.headings.last().map(AsRef::as_ref) != Some(heading) {
            self.headings.push(heading.into());
            self.heading_terms.clear();
            self.analyzer.append_terms(heading, &mut self.heading_terms);
        }
        self.headings.len() as u32
    }
}

/// Returns the beginning of a text, at most `limit` bytes.
fn prefix(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
