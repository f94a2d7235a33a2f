//! Digest of the inputs of a document's index.

use agent_retrieval::chunk::{Chunker, StructuralChunker};
use agent_retrieval::document::{ExtractedText, TextFormat};
use sha2::{Digest as _, Sha256};

/// Separates the SHA-256 in a digest from the identifier of the chunker.
const CHUNKER_SEPARATOR: char = ' ';

/// Returns the SHA-256, in hexadecimal, of a text with its title, markup and pages, and the identifier of the chunker. Documents
/// with equal digests have equal indexes.
///
/// The default chunker is not named, as in the digests of versions that had no other.
pub(super) fn source_digest(document: &ExtractedText, chunker: &dyn Chunker) -> String {
    let (digest, id) = (text_digest(document), chunker.id());
    if id == StructuralChunker::default().id() { digest } else { format!("{digest}{CHUNKER_SEPARATOR}{id}") }
}

/// Returns true if an index with this digest was made by the chunker with this identifier.
pub(super) fn is_by_chunker(source_digest: Option<&str>, chunker_id: &str) -> bool {
    match source_digest.and_then(|digest| digest.split_once(CHUNKER_SEPARATOR)) {
        Some((_, id)) => id == chunker_id,
        None => chunker_id == StructuralChunker::default().id(),
    }
}

fn text_digest(document: &ExtractedText) -> String {
    let ExtractedText { title, text, format, page_starts } = document;
    let mut hasher = Sha256::new();
    for part in [title, text] {
        // The length keeps the end of the title apart from the beginning of the text.
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update([match format {
        TextFormat::Plain => 0_u8,
        TextFormat::Markdown => 1,
    }]);
    for start in page_starts {
        hasher.update(start.to_le_bytes());
    }
    hex::encode(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_document_changes_its_digest() {
        let document = |title: &str, text: &str, format, page_starts: &[u32]| ExtractedText {
            title: title.to_owned(),
            text: text.to_owned(),
            format,
            page_starts: page_starts.to_vec(),
        };
        let documents = [
            document("a", "bc", TextFormat::Plain, &[]),
            document("ab", "c", TextFormat::Plain, &[]),
            document("a", "bd", TextFormat::Plain, &[]),
            document("a", "bc", TextFormat::Markdown, &[]),
            document("a", "bc", TextFormat::Plain, &[0]),
            document("a", "bc", TextFormat::Plain, &[0, 1]),
        ];
        for (number, one) in documents.iter().enumerate() {
            for (other_number, other) in documents.iter().enumerate() {
                assert_eq!(text_digest(one) == text_digest(other), number == other_number);
            }
        }
    }

    #[test]
    fn a_digest_depends_on_the_chunker() {
        let chunkers =
            [StructuralChunker::default(), StructuralChunker::new(40, 0), StructuralChunker::new(40, 10)];
        for chunker in chunkers {
            let digest = source_digest(&ExtractedText::default(), &chunker);
            for other in chunkers {
                assert_eq!(is_by_chunker(Some(&digest), &other.id()), chunker == other, "{digest}");
            }
        }
        assert!(is_by_chunker(None, &StructuralChunker::default().id()), "of an old version");
    }
}
