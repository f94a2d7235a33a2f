//! Conformance suite for [`Chunker`].

use crate::chunk::Chunker;
use crate::doc_index::DocIndex;
use crate::document::{ExtractedText, TextFormat};

/// Maximum length of an identifier in bytes.
const MAX_ID_BYTES: usize = 512;

/// Runs the conformance suite of [`Chunker`].
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub fn chunker(chunker: &dyn Chunker) {
    let id = chunker.id();
    assert!(
        !id.is_empty() && id.len() <= MAX_ID_BYTES,
        "an identifier has 1 to {MAX_ID_BYTES} bytes: {id:?}"
    );
    assert_eq!(id, chunker.id(), "the identifier stays the same");
    for document in documents() {
        let chunks = chunker.chunk(&document);
        assert_eq!(chunks, chunker.chunk(&document), "equal documents give equal chunks");
        let mut last_start = 0;
        let mut covered = vec![false; document.text.len()];
        for chunk in &chunks {
            let content = document.text.get(chunk.start..chunk.end);
            assert!(
                content.is_some_and(|content| !content.is_empty()),
                "{}..{} is a part of the text, on boundaries of characters",
                chunk.start,
                chunk.end
            );
            assert!(chunk.start >= last_start, "starts do not descend: {} after {last_start}", chunk.start);
            assert!(chunk.page.is_none_or(|page| page > 0), "pages are numbered from 1");
            last_start = chunk.start;
            covered[chunk.start..chunk.end].fill(true);
        }
        let uncovered =
            document.text.char_indices().find(|(at, char)| char.is_alphanumeric() && !covered[*at]);
        assert_eq!(uncovered, None, "every word is in a chunk");
        let index = DocIndex::build(&document, chunker).expect("the chunks can be indexed");
        assert_eq!(index.chunk_count(), chunks.len());
    }
}

/// Returns documents that have exposed defects of chunkers.
fn documents() -> Vec<ExtractedText> {
    let text = |text: String, format| ExtractedText {
        title: "Title".to_owned(),
        text,
        format,
        page_starts: Vec::new(),
    };
    let pages = "The first page.\n\nThe second page.\n\n".to_owned();
    vec![
        text(String::new(), TextFormat::Plain),
        text(" \n\n\t \n".to_owned(), TextFormat::Plain),
        text("word".repeat(20_000), TextFormat::Plain),
        text("領収書は十年間保管します。".repeat(500), TextFormat::Plain),
        text("👩‍👩‍👧‍👦🇩🇪e\u{301}".repeat(2_000), TextFormat::Plain),
        text("A sentence. ".repeat(2_000), TextFormat::Plain),
        text(
            "# One\n\nText of one.\n\n## Two\n\n```\n# no heading\n```\n\n".repeat(100),
            TextFormat::Markdown,
        ),
        text("#\n#\n######\n".repeat(100), TextFormat::Markdown),
        text("one\r\ntwo\rthree\u{2028}four\n".repeat(300), TextFormat::Plain),
        ExtractedText { page_starts: vec![0, 17], ..text(pages, TextFormat::Plain) },
    ]
}

#[cfg(test)]
mod tests;
