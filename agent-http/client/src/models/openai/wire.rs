//! Wire types of Chat Completions responses, limited to the fields that this adapter reads.

use std::borrow::Cow;
use std::fmt;

use agent_core::message::Usage;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::borrowed_text::BorrowedText;
use crate::models::called_function::CalledFunction;
use crate::models::reasoning_text::ReasoningText;
use crate::token_count::token_count;

/// Name of the signature of a call.
const SIGNATURE_NAME: &str = r#""thought_signature""#;
/// Limit on a total of tokens that is believed.
const MAX_TOTAL_TOKENS: u64 = u32::MAX as u64;

/// A chunk of a streamed response, or a whole response, which has a `message` instead of a `delta`.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub model: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    pub choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

impl<'a> Chunk<'a> {
    /// Returns the usage, wherever it is.
    pub(super) fn usage(&self) -> Option<&'a RawValue> {
        let of_choices = || self.choices.iter().flatten().find_map(|choice| choice.usage);
        self.usage.or_else(of_choices)
    }

    /// Returns true if the chunk itself is the error, as older versions of vLLM send it.
    pub(super) fn is_error(&self) -> bool {
        self.object.is_some_and(|object| object.get() == r#""error""#)
    }

    /// Returns the text delta if the chunk contains nothing else.
    pub(super) fn only_text(&self) -> Option<&str> {
        let [choice] = self.choices.as_deref()? else { return None };
        let delta = choice.delta.as_ref()?;
        let calls = delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
        let calls = calls || delta.function_call.is_some();
        let reasoning = [&delta.reasoning_content, &delta.reasoning, &delta.thinking];
        let other = delta.refusal.is_some() || reasoning.into_iter().any(Option::is_some);
        // Some servers send an empty reason with each chunk.
        let ends = choice.finish_reason.as_ref().is_some_and(|reason| !reason.0.is_empty());
        let has_error = self.error.is_some() || choice.error.is_some();
        let more = has_error || self.usage().is_some() || ends;
        let AnswerContent::Text(text) = delta.content.as_ref()? else { return None };
        (choice.is_first() && !calls && !other && !more && !text.is_empty()).then_some(text)
    }
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    index: Option<usize>,
    #[serde(borrow, default)]
    pub delta: Option<Delta<'a>>,
    /// Some servers repeat all content so far in each chunk, beside the delta.
    #[serde(borrow, default)]
    pub message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    pub finish_reason: Option<BorrowedText<'a>>,
    /// OpenRouter may have the error of the model's provider here.
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    /// Moonshot has the usage of a stream here.
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

impl Choice<'_> {
    /// Returns true for the only choice that is requested.
    pub(super) fn is_first(&self) -> bool {
        self.index.unwrap_or_default() == 0
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub content: Option<AnswerContent<'a>>,
    pub refusal: Option<String>,
    pub reasoning_content: Option<ReasoningText>,
    pub reasoning: Option<ReasoningText>,
    pub thinking: Option<ReasoningText>,
    #[serde(borrow)]
    pub tool_calls: Option<Vec<CallDelta<'a>>>,
    /// The only call of an answer of a server with the API's older form.
    #[serde(borrow)]
    pub function_call: Option<CalledFunction<'a>>,
}

/// Content of a message: a text, borrowed unless it contains escapes, or parts, as reasoning models of some vendors send them.
pub(super) enum AnswerContent<'a> {
    Text(Cow<'a, str>),
    Parts(AnswerTexts),
}

/// Texts of a content.
#[derive(Default)]
pub(super) struct AnswerTexts {
    pub(super) reasoning: String,
    pub(super) text: String,
    pub(super) refusal: String,
}

impl<'a> AnswerContent<'a> {
    /// Returns the texts of all parts.
    pub(super) fn into_texts(self) -> AnswerTexts {
        match self {
            Self::Text(text) => AnswerTexts { text: text.into_owned(), ..AnswerTexts::default() },
            Self::Parts(texts) => texts,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for AnswerContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnswerContentVisitor)
    }
}

struct AnswerContentVisitor;

impl<'de> Visitor<'de> for AnswerContentVisitor {
    type Value = AnswerContent<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an array")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<AnswerContent<'de>, E> {
        Ok(AnswerContent::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<AnswerContent<'de>, E> {
        Ok(AnswerContent::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<AnswerContent<'de>, A::Error> {
        let mut texts = AnswerTexts::default();
        while let Some(part) = parts.next_element::<WirePart>()? {
            let thoughts = [part.thinking, part.reasoning].into_iter().flatten();
            texts.reasoning.extend(thoughts.map(|ReasoningText(text)| text));
            texts.refusal.extend(part.refusal);
            // A part of reasoning may have its text in the member of a text.
            if matches!(part.kind.as_deref(), Some("thinking" | "reasoning")) {
                texts.reasoning.extend(part.text);
            } else {
                texts.text.extend(part.text);
            }
        }
        Ok(AnswerContent::Parts(texts))
    }
}

/// Part of a content; parts of other kinds have no text.
#[derive(Deserialize, Default)]
#[serde(default)]
struct WirePart {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
    thinking: Option<ReasoningText>,
    reasoning: Option<ReasoningText>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CallDelta<'a> {
    pub index: Option<usize>,
    pub id: Option<String>,
    #[serde(borrow)]
    pub function: Option<CalledFunction<'a>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

impl<'a> CallDelta<'a> {
    /// Creates the only call of an answer in the API's older form.
    pub(super) fn from_function(function: CalledFunction<'a>) -> Self {
        Self { function: Some(function), ..Self::default() }
    }

    /// Returns the object with the signature of Google's APIs, which later requests must repeat.
    pub(super) fn signature(&self) -> Option<Box<RawValue>> {
        let is_signature = |json: &str| json.starts_with('{') && json.contains(SIGNATURE_NAME);
        self.extra_content.filter(|extra| is_signature(extra.get())).map(ToOwned::to_owned)
    }
}

#[derive(Deserialize)]
pub(super) struct WireUsage {
    #[serde(default, deserialize_with = "token_count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "token_count")]
    total_tokens: Option<u64>,
    /// Cached tokens of the prompt where the vendor has no details: Moonshot's name for them.
    #[serde(default, deserialize_with = "token_count")]
    cached_tokens: Option<u64>,
    /// DeepSeek's name for them.
    #[serde(default, deserialize_with = "token_count")]
    prompt_cache_hit_tokens: Option<u64>,
    /// Tokens written to the cache where the details have none, as gateways to other APIs name them.
    #[serde(default, deserialize_with = "token_count")]
    cache_creation_input_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default, deserialize_with = "token_count")]
    cached_tokens: Option<u64>,
    /// Tokens written to the cache, which gateways report and the vendor's own API does not.
    #[serde(default, deserialize_with = "token_count")]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default, deserialize_with = "token_count")]
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    /// Reads the usage of a chunk. One of another shape counts as not reported, and does not fail the answer.
    pub(super) fn read(json: &RawValue) -> Option<Self> {
        serde_json::from_str(json.get()).ok()
    }

    /// Returns the numbers of output and of reasoning tokens. Some vendors have their reasoning in the total alone, and not
    /// among the tokens of the completion.
    fn output_tokens(&self) -> (Option<u64>, Option<u64>) {
        let reasoning = self.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens);
        let counts = (self.prompt_tokens, self.completion_tokens, self.total_tokens);
        let (Some(prompt), Some(completion), Some(total)) = counts else {
            return (self.completion_tokens, reasoning);
        };
        let excess = total.saturating_sub(prompt.saturating_add(completion));
        let is_reasoning = match reasoning {
            Some(reasoning) => reasoning == excess,
            None => !self.is_of_cache(excess),
        };
        match excess > 0 && total <= MAX_TOTAL_TOKENS && is_reasoning {
            true => (Some(completion + excess), Some(excess)),
            false => (Some(completion), reasoning),
        }
    }

    /// Returns true if `tokens` is the number of tokens that were read from a cache or written to it. Some gateways add it to the
    /// total in addition to the tokens of the prompt.
    fn is_of_cache(&self, tokens: u64) -> bool {
        let read = self.cached_tokens().unwrap_or_default();
        let written = self.cache_write_tokens().unwrap_or_default();
        [read, written, read.saturating_add(written)].contains(&tokens)
    }

    /// Returns the number of the prompt's tokens that were read from a cache.
    fn cached_tokens(&self) -> Option<u64> {
        let details = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
        details.or(self.cached_tokens).or(self.prompt_cache_hit_tokens)
    }

    /// Returns the number of the prompt's tokens that were written to a cache.
    fn cache_write_tokens(&self) -> Option<u64> {
        let details = self.prompt_tokens_details.as_ref().and_then(|details| details.cache_write_tokens);
        details.or(self.cache_creation_input_tokens)
    }

    pub(super) fn into_usage(self, model: Option<String>) -> Usage {
        let (output_tokens, reasoning_tokens) = self.output_tokens();
        Usage {
            model,
            provider: Some("openai".into()),
            input_tokens: self.prompt_tokens,
            output_tokens,
            reasoning_tokens,
            cached_input_tokens: self.cached_tokens(),
            cache_write_tokens: self.cache_write_tokens(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::DeltaTemplate;

    #[test]
    fn a_text_without_escapes_lies_in_its_chunk_so_that_likeness_can_be_learned() {
        let chunk = |text: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#);
        let (first, second) = (chunk("one"), chunk("two"));
        let read: Chunk<'_> = serde_json::from_str(&first).expect("a chunk");
        let mut template = DeltaTemplate::new(true);
        template.learn(first.as_bytes(), read.only_text().expect("text alone"));
        assert_eq!(template.match_chunk(second.as_bytes()), Some("two"));
    }

    #[test]
    fn impossible_counts_are_not_reported() {
        let read = |usage: &str| {
            let usage: WireUsage = serde_json::from_str(usage).expect("usage");
            let usage = usage.into_usage(None);
            [usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens, usage.output_tokens]
        };
        let details = r#"{"prompt_tokens":9,"completion_tokens":2,
            "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":5}}"#;
        let details_counts = [Some(9), Some(4), Some(5), Some(2)];
        assert_eq!(read(details), details_counts);
        let wrong =
            r#"{"prompt_tokens":-9,"completion_tokens":2.5,"prompt_tokens_details":{"cached_tokens":"4"}}"#;
        assert_eq!(read(wrong), [None; 4]);
        assert_eq!(read(r#"{"prompt_tokens":9223372036854775808}"#), [Some(1 << 63), None, None, None]);
        let floats =
            r#"{"prompt_tokens":9.0,"completion_tokens":2.0,"prompt_tokens_details":{"cached_tokens":4.0}}"#;
        assert_eq!(read(floats), [Some(9), Some(4), None, Some(2)]);
        assert_eq!(read("{}"), [None; 4]);
        for cached in [
            r#""prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":5"#,
            r#""cached_tokens":4"#,
            r#""cached_tokens":4,"prompt_tokens_details":null"#,
            r#""prompt_cache_hit_tokens":7,"prompt_tokens_details":{"cached_tokens":4}"#,
        ] {
            let usage = format!(r#"{{"prompt_tokens":9,"completion_tokens":2,{cached}}}"#);
            assert_eq!(read(&usage), [Some(9), Some(4), None, Some(2)], "{usage}");
        }
        let written = r#"{"prompt_tokens":9,"completion_tokens":2,"cache_creation_input_tokens":5,
            "prompt_tokens_details":{"cached_tokens":4}}"#;
        assert_eq!(read(written), details_counts);
    }

    #[test]
    fn reasoning_that_only_the_total_has_is_output() {
        let read = |completion: u64, total: u64, reasoning: Option<u64>| {
            let usage = serde_json::json!({"prompt_tokens": 32, "completion_tokens": completion, "total_tokens": total,
                "completion_tokens_details": {"reasoning_tokens": reasoning}});
            let usage: WireUsage = serde_json::from_value(usage).expect("usage");
            let usage = usage.into_usage(None);
            (usage.output_tokens, usage.reasoning_tokens)
        };
        for (completion, total, reasoning, expected) in [
            (103, 135, Some(94), (Some(103), Some(94))),
            (9, 135, Some(94), (Some(103), Some(94))),
            (9, 135, None, (Some(103), Some(94))),
            (9, 41, None, (Some(9), None)),
            // The other components of the total are not known, and a total that is too small or too large is wrong.
            (9, 60, Some(0), (Some(9), Some(0))),
            (9, 0, Some(3), (Some(9), Some(3))),
            (9, u64::MAX, None, (Some(9), None)),
        ] {
            assert_eq!(read(completion, total, reasoning), expected, "{completion} {total} {reasoning:?}");
        }
        // Tokens of a cache beside those of the prompt.
        for total in [101, 81, 141] {
            let usage = serde_json::json!({"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": total,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 40}});
            let usage: WireUsage = serde_json::from_value(usage).expect("usage");
            let usage = usage.into_usage(None);
            assert_eq!((usage.output_tokens, usage.reasoning_tokens), (Some(9), None), "{total}");
        }
    }

    #[test]
    fn a_chunk_that_says_more_is_more_than_text() {
        let cases = [
            (r#"{"choices":[{"delta":{"content":"a"}}]}"#, Some("a")),
            (r#"{"choices":[{"delta":{"content":"a","tool_calls":[]}}],"usage":null}"#, Some("a")),
            (r#"{"choices":[{"delta":{"content":""}}]}"#, None),
            (r#"{"choices":[{"delta":{}}]}"#, None),
            (r#"{"choices":[{"index":1,"delta":{"content":"a"}}]}"#, None),
            (r#"{"choices":[{"index":null,"delta":{"content":"a"}}]}"#, Some("a")),
            (r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}"#, Some("a")),
            (r#"{"choices":[{"delta":{"content":"a","refusal":"b"}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a","reasoning":"b"}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a","thinking":{"content":"b"}}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a","tool_calls":[{}]}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a","function_call":null}}]}"#, Some("a")),
            (r#"{"choices":[{"delta":{"content":"a","function_call":{}}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a"}}],"usage":{}}"#, None),
            (r#"{"choices":[{"delta":{"content":"a"},"usage":{}}]}"#, None),
            (r#"{"choices":[{"delta":{"content":"a"}}],"error":{}}"#, None),
            (r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}"#, None),
            (r#"{"choices":[{"message":{"content":"a"}}]}"#, None),
            (r#"{"choices":[]}"#, None),
            ("{}", None),
        ];
        for (chunk, expected) in cases {
            let read: Chunk<'_> = serde_json::from_str(chunk).expect(chunk);
            assert_eq!(read.only_text(), expected, "{chunk}");
        }
    }
}
