//! Texts of documents with hits, and offsets in them.

use std::ops::Deref;
use std::sync::Arc;

/// Distance in bytes between the positions at which the characters before are counted once.
const BLOCK_BYTES: usize = 1024;

/// The text of a document, in which an offset in bytes is converted into one in characters without reading all of the text
/// before it.
#[derive(Debug, Clone)]
pub struct DocumentText {
    text: Arc<str>,
    /// Number of characters that begin before each block.
    characters_before_blocks: Arc<[u32]>,
}

impl DocumentText {
    /// Returns the number of characters before an offset in bytes; `None` if it is not on a boundary of characters of the text.
    pub fn characters_before(&self, offset: usize) -> Option<usize> {
        if !self.text.is_char_boundary(offset) {
            return None;
        }
        let block = offset / BLOCK_BYTES;
        let in_block = &self.text.as_bytes()[block * BLOCK_BYTES..offset];
        let before = self.characters_before_blocks.get(block).copied().unwrap_or(0);
        Some(before as usize + count_characters(in_block))
    }
}

impl<T: Into<Arc<str>>> From<T> for DocumentText {
    fn from(text: T) -> Self {
        let text = text.into();
        let mut before = 0;
        let blocks = text.as_bytes().chunks(BLOCK_BYTES).map(|block| {
            let before_block = before;
            before += count_characters(block) as u32;
            before_block
        });
        // An offset at the end of the last block is in the block behind it.
        let mut characters_before_blocks: Vec<u32> = blocks.collect();
        characters_before_blocks.push(before);
        Self { text, characters_before_blocks: characters_before_blocks.into() }
    }
}

impl Deref for DocumentText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// Returns the number of characters whose first byte is among these bytes of a text.
fn count_characters(bytes: &[u8]) -> usize {
    let is_first = |byte: &&u8| !matches!(**byte, 0x80..0xC0);
    bytes.iter().filter(is_first).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_up_to_every_boundary() {
        let lengths = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES];
        for unit in ["x", "ä漢b😀c", "漢", "😀"] {
            for length in lengths {
                let plain = unit.repeat(length.div_ceil(unit.len()));
                let text = DocumentText::from(plain.as_str());
                for offset in 0..=plain.len() + 1 {
                    let expected = plain.get(..offset).map(|before| before.chars().count());
                    assert_eq!(text.characters_before(offset), expected, "{offset} of {length} of {unit}");
                }
            }
        }
    }
}
