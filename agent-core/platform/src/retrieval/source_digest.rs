//! Digest of the inputs of a document's index.

use agent_retrieval::document::{ExtractedText, TextFormat};
use sha2::{Digest as _, Sha256};

/// Returns the SHA-256, in hexadecimal, of a text with its title, markup and pages. Documents with equal digests have equal
/// indexes.
pub(super) fn source_digest(document: &ExtractedText) -> String {
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
                assert_eq!(source_digest(one) == source_digest(other), number == other_number);
            }
        }
    }
}
