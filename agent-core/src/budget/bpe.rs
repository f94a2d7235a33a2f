//! Exact token counts for the encoding of hosted models.

use super::TokenCounter;

/// Counts tokens with `o200k_base`, the byte-pair encoding of the hosted provider's current models.
///
/// The first count loads the encoding's tables, which takes about 40 ms.
#[derive(Debug, Clone, Copy, Default)]
pub struct BpeCounter;

impl TokenCounter for BpeCounter {
    fn id(&self) -> &'static str {
        "o200k_base"
    }

    fn count(&self, text: &str) -> usize {
        bpe_openai::o200k_base().count(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_tokens_in_a_text_are_ordinary_text() {
        assert_eq!(BpeCounter.count("hello world"), 2);
        assert!(BpeCounter.count("<|endoftext|>") > 1);
    }
}
