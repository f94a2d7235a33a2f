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

impl<'a> Chunk<'a> {
    /// The piece of text that is all that this chunk says.
    pub(super) fn only_text(&self) -> Option<&str> {
        let [choice] = self.choices.as_deref()? else { return None };
        let delta = choice.delta.as_ref()?;
        let calls = delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
        let other = delta.refusal.is_some() || delta.reasoning.is_some() || delta.reasoning_content.is_some();
        let more = self.error.is_some() || self.usage.is_some();
        let ends = choice.finish_reason.is_some() || choice.message.is_some();
        let text = delta.content.as_ref().map(|text| &*text.0).filter(|text| !text.is_empty())?;
        (choice.index == 0 && !calls && !other && !more && !ends).then_some(text)
    }
}

/// A string that is borrowed unless it has escapes. Serde borrows a `Cow` only where it stands
/// alone, and not inside an `Option`.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub index: usize,
    #[serde(borrow, default)]
    pub delta: Option<Delta<'a>>,
    /// Some servers give in each chunk, beside the delta, all that they have said so far.
    #[serde(borrow, default)]
    pub message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    pub finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub content: Option<Text<'a>>,
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
