//! The answer of a Chat Completions server, chunk by chunk.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agent_core::error::{Failure, FailureKind};
use agent_core::message::{FinishReason, Usage};
use agent_core::model::ModelEvent;
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::reported;
use super::template::Template;
use crate::lines::SseDecoder;
use crate::outbound::{BodyStream, OutboundResponse};

/// A stream of model events out of a response body.
///
/// The answer is complete when the server says `[DONE]`, or when it has given a finish reason and
/// ends. `Finish` is held back until then, for usage comes after the finish reason.
pub(super) struct ChatStream {
    body: BodyStream,
    decoder: SseDecoder,
    template: Template,
    ready: VecDeque<ModelEvent>,
    calls: Vec<usize>,
    model: Option<String>,
    finish: Option<FinishReason>,
    spoke: bool,
    over: bool,
}

impl ChatStream {
    pub(super) fn new(response: OutboundResponse) -> Self {
        Self {
            body: response.into_stream(),
            decoder: SseDecoder::default(),
            template: Template::default(),
            ready: VecDeque::new(),
            calls: Vec::new(),
            model: None,
            finish: None,
            spoke: false,
            over: false,
        }
    }

    /// Takes what the decoder has; `true` says that the answer is complete.
    fn take_events(&mut self) -> Result<bool, Failure> {
        while let Some(event) = self.decoder.next_event()? {
            if event.data == b"[DONE]" {
                return Ok(true);
            }
            if let Some(text) = self.template.read(event.data) {
                self.ready.push_back(ModelEvent::Text(text.to_owned()));
                return Ok(false);
            }
            let chunk: Chunk<'_> = serde_json::from_slice(event.data).map_err(|error| {
                Failure::new(FailureKind::Failed, "the model's server sent something unreadable")
                    .with_source(fault(&error))
            })?;
            if let Some(text) = chunk.only_text() {
                self.template.learn(event.data, text);
            }
            let taken = Taken {
                ready: &mut self.ready,
                calls: &mut self.calls,
                model: &mut self.model,
                finish: &mut self.finish,
                spoke: &mut self.spoke,
            };
            taken.take(chunk)?;
            if !self.ready.is_empty() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn complete(&mut self) {
        let reason = match self.finish {
            Some(reason) => reason,
            None if self.calls.is_empty() => FinishReason::Stop,
            None => FinishReason::ToolCalls,
        };
        self.ready.push_back(ModelEvent::Finish(reason));
        self.over = true;
    }

    fn end(&mut self, failure: Failure) -> Poll<Option<Result<ModelEvent, Failure>>> {
        self.over = true;
        Poll::Ready(Some(Err(failure)))
    }
}

impl Stream for ChatStream {
    type Item = Result<ModelEvent, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if this.over {
                return Poll::Ready(None);
            }
            match this.take_events() {
                Ok(true) if this.spoke || this.finish.is_some() => {
                    this.complete();
                    continue;
                }
                Ok(true) => {
                    return this.end(Failure::new(FailureKind::Truncated, "the model gave an empty answer"));
                }
                Ok(false) if !this.ready.is_empty() => continue,
                Ok(false) => {}
                Err(failure) => return this.end(failure),
            }
            match ready!(this.body.poll_next_unpin(cx)) {
                Some(Ok(chunk)) => this.decoder.push(chunk),
                Some(Err(failure)) => return this.end(failure),
                None if this.finish.is_some() => this.complete(),
                None => {
                    return this.end(Failure::new(
                        FailureKind::Truncated,
                        "the model's answer ended before it was complete",
                    ));
                }
            }
        }
    }
}

/// What a chunk changes, apart from the decoder that it borrows from.
struct Taken<'s> {
    ready: &'s mut VecDeque<ModelEvent>,
    calls: &'s mut Vec<usize>,
    model: &'s mut Option<String>,
    finish: &'s mut Option<FinishReason>,
    spoke: &'s mut bool,
}

impl Taken<'_> {
    fn take(self, chunk: Chunk<'_>) -> Result<(), Failure> {
        if let Some(error) = chunk.error {
            return Err(reported().with_source(words(error)));
        }
        if let (None, Some(model)) = (&self.model, chunk.model) {
            *self.model = Some(model.into_owned());
        }
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            let delta = choice.delta.unwrap_or_default();
            for text in [delta.reasoning_content, delta.reasoning].into_iter().flatten().take(1) {
                if !text.is_empty() {
                    self.ready.push_back(ModelEvent::Reasoning(text.into_owned()));
                }
            }
            for text in [delta.content, delta.refusal].into_iter().flatten() {
                if !text.is_empty() {
                    *self.spoke = true;
                    self.ready.push_back(ModelEvent::Text(text.into_owned()));
                }
            }
            for call in delta.tool_calls.unwrap_or_default() {
                *self.spoke = true;
                take_call(call, self.calls, self.ready);
            }
            if let Some(reason) = choice.finish_reason {
                *self.finish = Some(finish_reason(&reason));
            }
        }
        if let Some(usage) = chunk.usage {
            self.ready.push_back(ModelEvent::Usage(usage.into_usage(self.model.clone())));
        }
        Ok(())
    }
}

/// A call begins with the fragment that first names its index; its arguments come in any fragment.
fn take_call(call: CallDelta<'_>, calls: &mut Vec<usize>, ready: &mut VecDeque<ModelEvent>) {
    let function = call.function.unwrap_or_default();
    let index = call.index.unwrap_or(match (&call.id, calls.len()) {
        (None, len @ 1..) => len - 1,
        (_, len) => len,
    });
    if !calls.contains(&index) {
        calls.push(index);
        ready.push_back(ModelEvent::ToolCallStart {
            index,
            id: call.id.unwrap_or_default().into_owned(),
            name: function.name.unwrap_or_default().into_owned(),
        });
    }
    if let Some(delta) = function.arguments
        && !delta.is_empty()
    {
        ready.push_back(ModelEvent::ToolCallArgs { index, delta: delta.into_owned() });
    }
}

fn finish_reason(word: &str) -> FinishReason {
    match word {
        "length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    choices: Vec<ChoiceDelta<'a>>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// The piece of text that is all that this chunk says.
    fn only_text(&self) -> Option<&str> {
        let [choice] = &self.choices[..] else { return None };
        let delta = choice.delta.as_ref()?;
        let calls = delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
        let other = delta.refusal.is_some() || delta.reasoning.is_some() || delta.reasoning_content.is_some();
        let more = self.error.is_some() || self.usage.is_some() || choice.finish_reason.is_some();
        let text = delta.content.as_deref().filter(|text| !text.is_empty())?;
        (choice.index == 0 && !calls && !other && !more).then_some(text)
    }
}

#[derive(Deserialize)]
struct ChoiceDelta<'a> {
    #[serde(default)]
    index: usize,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    refusal: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    #[serde(default)]
    index: Option<usize>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize, Default)]
struct FunctionDelta<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default)]
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    fn into_usage(self, model: Option<String>) -> Usage {
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

/// Says what is wrong with a chunk and not what it holds: serde's own words would quote it.
fn fault(error: &serde_json::Error) -> String {
    format!("{:?} fault at line {} column {}", error.classify(), error.line(), error.column())
}

/// What the log learns of a reported error: its type and code, where they are plain words. Its message is
/// left out, for servers repeat there what they were sent, keys included.
fn words(error: &RawValue) -> String {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Reported {
        r#type: Option<Value>,
        code: Option<Value>,
    }
    const MAX_BYTES: usize = 64;
    let is_plain = |text: &str| {
        text.len() <= MAX_BYTES && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let word = |value: Option<Value>| match value {
        Some(Value::String(text)) if is_plain(&text) => text,
        Some(Value::Number(number)) if number.as_u64().is_some_and(|number| number < 1000) => {
            number.to_string()
        }
        _ => "-".to_owned(),
    };
    let Reported { r#type, code } = serde_json::from_str(error.get()).unwrap_or_default();
    format!("type {}, code {}", word(r#type), word(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_learns_plain_words_of_an_error_and_nothing_else() {
        let cases = [
            (r#"{"message":"overloaded","type":"server_error","code":503}"#, "type server_error, code 503"),
            (r#"{"type":"sk-1234567890","code":12345678}"#, "type -, code -"),
            (r#"{"type":null,"code":"invalid_api_key"}"#, "type -, code invalid_api_key"),
            (r#"{"type":["x"],"code":{"x":1}}"#, "type -, code -"),
            (r#""sk-1234567890""#, "type -, code -"),
        ];
        for (error, expected) in cases {
            assert_eq!(words(serde_json::from_str(error).expect("JSON")), expected, "{error}");
        }
    }
}
