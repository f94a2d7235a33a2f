//! What a Chat Completions server writes, as far as anybody here reads it.

use std::borrow::Cow;

use agent_core::message::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A chunk of a streamed answer, or a whole answer, which has a `message` where a chunk has a `delta`.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub model: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    pub usage: Option<WireUsage>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
}

/// A string that is borrowed unless it has escapes. Serde borrows a `Cow` only where it stands
/// alone, and not inside an `Option`.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub index: usize,
    #[serde(default)]
    pub delta: Option<Delta>,
    /// Some servers give in each chunk, beside the delta, all that they have said so far.
    #[serde(default)]
    pub message: Option<Delta>,
    #[serde(borrow, default)]
    pub finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Delta {
    pub content: Option<String>,
    pub refusal: Option<String>,
    pub reasoning_content: Option<String>,
    pub reasoning: Option<String>,
    pub tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Call {
    pub index: Option<usize>,
    pub id: Option<String>,
    pub function: Option<Function>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Function {
    pub name: Option<String>,
    pub arguments: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    pub(super) fn into_usage(self, model: Option<String>) -> Usage {
        Usage {
            model,
            provider: Some("openai".into()),
            input_tokens: self.prompt_tokens,
            output_tokens: self.completion_tokens,
            reasoning_tokens: self.completion_tokens_details.and_then(|details| details.reasoning_tokens),
            cached_input_tokens: self.prompt_tokens_details.and_then(|details| details.cached_tokens),
        }
    }
}
