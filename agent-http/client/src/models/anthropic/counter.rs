//! Token counts by Anthropic's tokenizers, which are not published.

use std::sync::Arc;

use agent_core::budget::TokenCounter;
use agent_platform::messages_model::ClaudeTokenizer;

/// Counter that estimates the tokens of a tokenizer from the count of `o200k_base`.
pub(super) struct ClaudeCounter {
    tokenizer: ClaudeTokenizer,
    counter: Arc<dyn TokenCounter>,
}

impl ClaudeCounter {
    /// Creates a counter over one by `o200k_base`.
    pub(super) fn new(tokenizer: ClaudeTokenizer, counter: Arc<dyn TokenCounter>) -> Self {
        Self { tokenizer, counter }
    }
}

impl TokenCounter for ClaudeCounter {
    fn id(&self) -> &'static str {
        self.tokenizer.counter_name()
    }

    fn count(&self, text: &str) -> usize {
        self.tokenizer.estimate(self.counter.count(text))
    }
}
