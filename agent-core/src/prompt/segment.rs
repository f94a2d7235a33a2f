//! The stable prefix of a system prompt, joined once.

use std::sync::{Arc, LazyLock};

use super::part::Part;
use crate::budget::{TokenCountCache, TokenCounter};
use crate::prompt::Fragment;

/// Separator between the fragments of a system prompt.
pub(super) const SEPARATOR: &str = "\n\n";
pub(super) const SEPARATOR_JSON: &[u8] = br"\n\n";

/// Parts joined into one text with its own derived forms, so that a stable prefix is written as one copy.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) parts: Box<[Arc<Part>]>,
    pub(super) joined: Part,
    tokens: TokenCountCache,
}

impl Segment {
    pub(super) fn new(fragments: &[Fragment]) -> Self {
        let parts: Box<[Arc<Part>]> = fragments.iter().map(|fragment| Arc::clone(&fragment.part)).collect();
        let texts: Vec<&str> = parts.iter().map(|part| part.text()).collect();
        let joined = Part::from_text(texts.join(SEPARATOR));
        Self { parts, joined, tokens: TokenCountCache::default() }
    }

    /// Returns the segment without parts, shared by all prompts without a stable prefix.
    pub(super) fn empty() -> Arc<Self> {
        static EMPTY: LazyLock<Arc<Segment>> = LazyLock::new(|| Arc::new(Segment::new(&[])));
        Arc::clone(&EMPTY)
    }

    /// Returns the sum of the parts' tokens: when one part changes, the others are not counted again.
    pub(super) fn tokens(&self, counter: &dyn TokenCounter) -> usize {
        self.tokens.get(counter.id(), || self.parts.iter().map(|part| part.tokens(counter)).sum())
    }
}
