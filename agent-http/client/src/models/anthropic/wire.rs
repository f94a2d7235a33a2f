//! Wire types of the Messages API's answers, limited to the members that the adapter reads.

use agent_core::message::Usage;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::token_count::token_count;

/// Provider name in usage and in settings.
pub(in crate::models) const PROVIDER: &str = "anthropic";

/// Limit on a token count that is believed.
const MAX_TOKEN_COUNT: u64 = u32::MAX as u64;

/// The type of an event alone.
#[derive(Deserialize)]
pub(super) struct EventKind {
    #[serde(rename = "type")]
    pub kind: String,
}

/// One event of a stream, or a whole answer, which has `content` instead of `message`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub index: Option<u64>,
    pub message: Option<WireMessage>,
    pub content_block: Option<WireBlock>,
    pub delta: Option<BlockDelta>,
    pub usage: Option<MessageUsage>,
    #[serde(borrow)]
    pub error: Option<&'a RawValue>,
    pub content: Option<Vec<WireBlock>>,
    pub model: Option<String>,
    pub stop_reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireMessage {
    pub model: Option<String>,
    pub usage: Option<MessageUsage>,
}

/// A block of content.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireBlock {
    #[serde(rename = "type")]
    pub kind: String,
    pub text: Option<String>,
    pub thinking: Option<String>,
    pub signature: Option<String>,
    pub data: Option<String>,
    pub id: Option<String>,
    pub name: Option<String>,
    pub input: Option<Box<RawValue>>,
}

/// A change of a block, or of the answer.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct BlockDelta {
    pub text: Option<String>,
    pub thinking: Option<String>,
    pub signature: Option<String>,
    pub partial_json: Option<String>,
    pub stop_reason: Option<String>,
}

/// Token counts. A later event may repeat some of them. A count that no answer can have is as if it were not reported.
#[derive(Deserialize, Default, Clone, Copy)]
#[serde(default)]
pub(super) struct MessageUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(default)]
struct OutputDetails {
    #[serde(deserialize_with = "count")]
    thinking_tokens: Option<u64>,
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(token_count(deserializer)?.filter(|count| *count <= MAX_TOKEN_COUNT))
}

impl MessageUsage {
    /// Returns the counts of the prompt alone. At its beginning, an answer is reported to have a token or two; if it breaks
    /// off, these are not the tokens that the vendor has made and charges for.
    pub(super) fn of_prompt(self) -> Self {
        Self { output_tokens: None, output_tokens_details: None, ..self }
    }

    /// Returns the counts, replaced by the counts of a later event. The counts of an answer do not decrease, so that a shorter
    /// prompt in a later event is none: some gateways fill in zeros there.
    pub(super) fn with(self, later: Self) -> Self {
        let is_longer = later.prompt_tokens() >= self.prompt_tokens();
        let (prompt, other) = if is_longer { (later, self) } else { (self, later) };
        Self {
            input_tokens: prompt.input_tokens.or(other.input_tokens),
            cache_creation_input_tokens: prompt
                .cache_creation_input_tokens
                .or(other.cache_creation_input_tokens),
            cache_read_input_tokens: prompt.cache_read_input_tokens.or(other.cache_read_input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
            output_tokens_details: later.output_tokens_details.or(self.output_tokens_details),
        }
    }

    /// Returns the number of all tokens of the prompt.
    fn prompt_tokens(&self) -> u64 {
        let counts = [self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens];
        counts.into_iter().flatten().sum()
    }

    /// Converts the counts. The vendor counts cached tokens separately from the other input.
    pub(super) fn into_usage(self, model: Option<String>) -> Usage {
        let cached = [self.cache_creation_input_tokens, self.cache_read_input_tokens];
        let cached = cached.into_iter().flatten().sum::<u64>();
        Usage {
            model,
            provider: Some(PROVIDER.into()),
            input_tokens: self.input_tokens.map(|tokens| tokens + cached),
            output_tokens: self.output_tokens,
            reasoning_tokens: self.output_tokens_details.and_then(|details| details.thinking_tokens),
            cached_input_tokens: self.cache_read_input_tokens,
            cache_write_tokens: self.cache_creation_input_tokens,
        }
    }
}
