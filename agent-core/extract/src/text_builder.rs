//! Accumulation of a document's text: visible characters, normalized line breaks, pages, and the limits.

use agent_retrieval::analysis::is_hidden;
use agent_retrieval::document::{ExtractedText, TextFormat};
use agent_retrieval::extract::{ExtractError, ExtractedDocument};

use crate::limits::ExtractionLimits;
use crate::title;

/// A text under construction.
///
/// Hidden characters are dropped, line breaks become `\n`, white space at the end of lines is removed, and at most one
/// empty line is kept in sequence.
pub(crate) struct TextBuilder {
    text: String,
    page_starts: Vec<u32>,
    max_bytes: usize,
    max_pages: u32,
    after_carriage_return: bool,
}

impl TextBuilder {
    pub(crate) fn new(limits: &ExtractionLimits) -> Self {
        Self {
            text: String::new(),
            page_starts: Vec::new(),
            // Offsets of pages are 32-bit numbers.
            max_bytes: limits.max_text_bytes.min(u32::MAX as usize),
            max_pages: limits.max_pages,
            after_carriage_return: false,
        }
    }

    /// Returns the number of pages begun.
    pub(crate) fn pages(&self) -> u32 {
        u32::try_from(self.page_starts.len()).unwrap_or(u32::MAX)
    }

    /// Begins a page, a slide or a sheet.
    pub(crate) fn begin_page(&mut self) -> Result<(), ExtractError> {
        if self.pages() >= self.max_pages {
            return Err(ExtractError::LimitExceeded(format!("more than {} pages", self.max_pages)));
        }
        self.end_paragraph();
        self.page_starts.push(offset(&self.text));
        Ok(())
    }

    /// Returns the text since the beginning of the current page.
    pub(crate) fn page_text(&self) -> &str {
        let start = self.page_starts.last().copied().unwrap_or_default() as usize;
        self.text.get(start..).unwrap_or_default()
    }

    /// Ends the paragraph, so that an empty line separates it from what follows.
    pub(crate) fn end_paragraph(&mut self) {
        self.text.truncate(self.text.trim_end().len());
        if !self.text.is_empty() {
            self.text.push_str("\n\n");
        }
    }

    /// Appends text.
    pub(crate) fn push(&mut self, piece: &str) -> Result<(), ExtractError> {
        for character in piece.chars() {
            let follows_carriage_return = std::mem::take(&mut self.after_carriage_return);
            match character {
                '\n' if follows_carriage_return => {}
                '\r' => {
                    self.break_line();
                    self.after_carriage_return = true;
                }
                '\n' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => self.break_line(),
                _ if is_hidden(character) => {}
                _ => self.text.push(character),
            }
        }
        if self.text.len() > self.max_bytes {
            return Err(ExtractError::LimitExceeded(format!("more than {} bytes of text", self.max_bytes)));
        }
        Ok(())
    }

    fn break_line(&mut self) {
        self.text.truncate(self.text.trim_end_matches([' ', '\t', '\u{a0}']).len());
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Returns the extraction. Without a title, the first heading of a Markdown text is the title.
    pub(crate) fn finish(mut self, title: Option<&str>, format: TextFormat) -> ExtractedDocument {
        self.text.truncate(self.text.trim_end().len());
        let end = offset(&self.text);
        for start in &mut self.page_starts {
            *start = (*start).min(end);
        }
        let title = title.map(title::normalize).filter(|title| title::is_meaningful(title));
        let title = match format {
            TextFormat::Markdown => title.or_else(|| title::first_heading(&self.text)),
            TextFormat::Plain => title,
        };
        let pages = Some(self.pages()).filter(|&pages| pages > 0);
        let document = ExtractedText {
            title: title.unwrap_or_default(),
            text: self.text,
            format,
            page_starts: self.page_starts,
        };
        ExtractedDocument { document, pages, needs_ocr: Vec::new() }
    }
}

/// Returns the length of a text that is within the limit of offsets.
fn offset(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(pieces: &[&str]) -> String {
        let mut builder = TextBuilder::new(&ExtractionLimits::default());
        for piece in pieces {
            builder.push(piece).unwrap();
        }
        builder.finish(None, TextFormat::Plain).document.text
    }

    #[test]
    fn line_breaks_are_normalized() {
        assert_eq!(build(&["\r\n\n a  \r\nb\rc\u{2028}d\r", "\ne\n\n\n\n\tf \n\n"]), " a\nb\nc\nd\ne\n\n\tf");
    }

    #[test]
    fn hidden_characters_are_dropped() {
        let tags: String =
            "ignore".chars().map(|letter| char::from_u32(0xe0000 + letter as u32).unwrap()).collect();
        let text = format!("pay\u{200b}ment\u{202e} \u{0}\u{7}\u{1b}[31mred\u{feff}{tags}");
        assert_eq!(build(&[&text]), "payment [31mred");
    }

    #[test]
    fn pages_have_offsets() {
        let mut builder = TextBuilder::new(&ExtractionLimits { max_pages: 5, ..ExtractionLimits::default() });
        for page in ["one\n", "", "\n\nthree", "", ""] {
            builder.begin_page().unwrap();
            builder.push(page).unwrap();
            assert_eq!(builder.page_text().trim(), page.trim());
        }
        assert_eq!(builder.begin_page(), Err(ExtractError::LimitExceeded("more than 5 pages".to_owned())),);
        let extraction = builder.finish(None, TextFormat::Plain);
        assert_eq!(extraction.document.text, "one\n\nthree");
        assert_eq!((extraction.document.page_starts, extraction.pages), (vec![0, 5, 5, 10, 10], Some(5)));
    }

    #[test]
    fn the_text_is_limited() {
        let limits = ExtractionLimits { max_text_bytes: 4, ..ExtractionLimits::default() };
        let mut builder = TextBuilder::new(&limits);
        assert_eq!(builder.push("four"), Ok(()));
        let expected = ExtractError::LimitExceeded("more than 4 bytes of text".to_owned());
        assert_eq!(builder.push("!"), Err(expected));
    }
}
