//! Wire types of Ollama's responses, limited to the fields that this adapter reads.

use agent_core::message::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::models::called_function::CalledFunction;
use crate::models::reasoning_text::ReasoningText;
use crate::token_count::token_count;

/// Provider name of Ollama models.
pub(in crate::models) const PROVIDER: &str = "ollama";

/// A line of a streamed response, or a whole response.
#[derive(Deserialize)]
pub(super) struct ChatLine<'a> {
    #[serde(default)]
    pub model: Option<String>,
    #[serde(borrow, default)]
    pub message: Option<ResponseMessage<'a>>,
    #[serde(default)]
    pub done: Option<bool>,
    #[serde(default)]
    pub done_reason: Option<String>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    /// Prompt tokens. Tokens served from the cache are included, except by some old servers.
    #[serde(default, deserialize_with = "token_count")]
    pub prompt_eval_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    prompt_eval_cached_count: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    eval_count: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ResponseMessage<'a> {
    pub content: Option<String>,
    pub thinking: Option<ReasoningText>,
    /// Name of compatible servers.
    pub reasoning: Option<ReasoningText>,
    #[serde(borrow)]
    pub tool_calls: Option<Vec<Call<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Call<'a> {
    pub id: Option<String>,
    #[serde(borrow)]
    pub function: Option<CalledFunction<'a>>,
}

impl ChatLine<'_> {
    /// Returns the usage that the last line reports, if any.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.prompt_eval_count.or(self.eval_count)?;
        Some(Usage {
            model: self.model.clone(),
            provider: Some(PROVIDER.to_owned()),
            input_tokens: self.prompt_eval_count,
            output_tokens: self.eval_count,
            reasoning_tokens: None,
            cached_input_tokens: self.prompt_eval_cached_count,
            cache_write_tokens: None,
        })
    }
}
