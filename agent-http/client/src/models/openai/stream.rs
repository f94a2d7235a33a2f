//! Decoder of Chat Completions responses, streamed or whole.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{FinishReason, ProviderItem};
use agent_core::model::ModelEvent;
use futures_util::{Stream, StreamExt};
use serde_json::value::RawValue;

use super::wire::{AnswerContent, CallDelta, Choice, Chunk, WireUsage};
use crate::lines::SseDecoder;
use crate::models::answer_parts::{ItemMaker, arguments_text};
use crate::models::errors::{
    MAX_CALLS, empty_answer, malformed_response, reported_error, too_many_calls, truncated_answer,
    unknown_response,
};
use crate::models::reasoning_text::ReasoningText;
use crate::models::spec::ModelSpec;
use crate::models::vendor_error::VendorError;
use crate::outbound::{BodyStream, OutboundResponse};
use crate::relay::DeltaTemplate;

/// Limit on the arguments of a call that are held back until its name comes, in bytes.
const MAX_HELD_BYTES: usize = 64 << 10;
/// Limit on the reasoning that is kept of an answer, in bytes.
const MAX_REASONING_BYTES: usize = 4 << 20;

/// A stream of model events decoded from a response body.
///
/// The answer is complete at `[DONE]`, or at the end of the body after a finish reason. `Finish` is held back until
/// then, because usage comes after the finish reason.
pub(super) struct ChatStream {
    body: BodyStream,
    decoder: SseDecoder,
    template: DeltaTemplate,
    answer: AnswerDecoder,
    /// Pending failure, returned after the usage that its event has reported.
    failure: Option<AgentError>,
    is_finished: bool,
    model: Arc<ModelSpec>,
    prompt_tokens: Option<usize>,
}

/// Result of reading the buffered SSE events.
enum DecodeStep {
    /// A text delta, returned at once.
    Text(String),
    /// Events are ready in the queue.
    Ready,
    /// The answer has ended: `[DONE]`.
    End,
    /// Another chunk of the body is needed.
    NeedMore,
}

impl ChatStream {
    /// Creates the stream. The context window of `model` is learned if the server rejects a prompt of `prompt_tokens`.
    pub(super) fn new(
        response: OutboundResponse,
        model: Arc<ModelSpec>,
        prompt_tokens: Option<usize>,
    ) -> Self {
        let body = response.into_stream();
        let template = DeltaTemplate::new(body.relay().delta_template);
        Self {
            body,
            decoder: SseDecoder::default(),
            template,
            answer: AnswerDecoder::new(&model),
            failure: None,
            is_finished: false,
            model,
            prompt_tokens,
        }
    }

    /// Takes buffered SSE events until one of them yields model events.
    fn take_events(&mut self) -> Result<DecodeStep, AgentError> {
        while let Some(event) = self.decoder.next_event()? {
            if event.data.trim_ascii() == b"[DONE]" {
                return Ok(DecodeStep::End);
            }
            let reports_error = event.event == b"error";
            if let Some(text) = self.template.match_chunk(event.data).filter(|_| !reports_error) {
                return Ok(DecodeStep::Text(text.to_owned()));
            }
            let chunk = parse_chunk(event.data)?;
            let reports_error = reports_error || chunk.is_error();
            if let Some(text) = chunk.only_text() {
                self.template.learn(event.data, text);
            }
            self.answer.take(chunk)?;
            if reports_error {
                return Err(VendorError::from_body(event.data).into_error(reported_error()));
            }
            if !self.answer.ready.is_empty() {
                return Ok(DecodeStep::Ready);
            }
        }
        Ok(DecodeStep::NeedMore)
    }

    /// Ends the stream with a failure. Only the usage of the event that reports it is kept: another model may answer in place
    /// of this one.
    fn end(&mut self, failure: AgentError) {
        self.is_finished = true;
        self.model.learn(&failure, self.prompt_tokens);
        self.answer.ready.retain(|event| matches!(event, ModelEvent::Usage(_)));
        self.failure = Some(failure);
    }
}

impl Stream for ChatStream {
    type Item = Result<ModelEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.answer.next() {
                return Poll::Ready(Some(Ok(event)));
            }
            if this.is_finished {
                return Poll::Ready(this.failure.take().map(Err));
            }
            match this.take_events() {
                Ok(DecodeStep::Text(text)) => return Poll::Ready(Some(Ok(ModelEvent::Text(text)))),
                Ok(DecodeStep::Ready) => continue,
                Ok(DecodeStep::End) if this.answer.has_output() => {
                    this.answer.finish();
                    this.is_finished = true;
                    continue;
                }
                Ok(DecodeStep::End) => {
                    this.end(empty_answer());
                    continue;
                }
                Ok(DecodeStep::NeedMore) => {}
                Err(failure) => {
                    this.end(failure);
                    continue;
                }
            }
            match ready!(this.body.poll_next_unpin(cx)) {
                Some(Ok(chunk)) => this.decoder.push(chunk),
                Some(Err(failure)) => this.end(failure),
                None if this.answer.finish.is_some() => {
                    this.answer.finish();
                    this.is_finished = true;
                }
                None => this.end(truncated_answer()),
            }
        }
    }
}

/// Decodes the events of a whole response, from a server that does not stream.
///
/// # Errors
/// `Failed` for a reported error and for a body that is not an answer; `Truncated` for an empty answer.
pub(super) fn decode_response(
    body: &[u8],
    model: &Arc<ModelSpec>,
) -> Result<VecDeque<ModelEvent>, AgentError> {
    let mut answer = AnswerDecoder::new(model);
    let chunk = parse_chunk(body)?;
    if chunk.is_error() {
        return Err(VendorError::from_body(body).into_error(reported_error()));
    }
    if chunk.error.is_none() && chunk.choices.is_none() {
        return Err(unknown_response());
    }
    answer.take(chunk)?;
    if !answer.has_output() {
        return Err(empty_answer());
    }
    answer.finish();
    Ok(answer.ready)
}

/// Decoding state of one answer.
struct AnswerDecoder {
    spec: Arc<ModelSpec>,
    ready: VecDeque<ModelEvent>,
    calls: Vec<AnsweredCall>,
    /// Number of calls that have started.
    started_calls: usize,
    model: Option<String>,
    finish: Option<FinishReason>,
    has_content: bool,
    /// True if the answer contains a refusal, which vendors end as any other answer.
    is_refusal: bool,
    /// Reasoning so far, of a model that requires it in later requests.
    reasoning: String,
}

/// A tool call of the answer, with the index and identifier to which later fragments are matched.
struct AnsweredCall {
    index: Option<usize>,
    id: String,
    /// Number of the calls that started before it; absent until its name has come.
    position: Option<usize>,
    /// Arguments so far of a call that has not started.
    held_arguments: String,
    /// Signature that later requests must repeat.
    signature: Option<Box<RawValue>>,
}

impl AnswerDecoder {
    fn new(model: &Arc<ModelSpec>) -> Self {
        Self {
            spec: Arc::clone(model),
            ready: VecDeque::new(),
            calls: Vec::new(),
            started_calls: 0,
            model: None,
            finish: None,
            has_content: false,
            is_refusal: false,
            reasoning: String::new(),
        }
    }

    /// Takes the next ready event. Frees the queue when it is empty, since most chunks make one event that is never
    /// queued.
    fn next(&mut self) -> Option<ModelEvent> {
        let event = self.ready.pop_front()?;
        if self.ready.is_empty() {
            self.ready = VecDeque::new();
        }
        Some(event)
    }

    /// Takes a chunk. Its usage is taken also if it ends the answer with an error.
    fn take(&mut self, chunk: Chunk<'_>) -> Result<(), AgentError> {
        let usage = chunk.usage();
        if let (None, Some(model)) = (&self.model, chunk.model) {
            self.model = Some(model.0.into_owned());
        }
        let mut choices = chunk.choices.unwrap_or_default().into_iter().filter(Choice::is_first);
        let result = match chunk.error {
            Some(error) => Err(VendorError::from_error(error).into_error(reported_error())),
            None => choices.try_for_each(|choice| self.take_choice(choice)),
        };
        if let Some(usage) = usage.and_then(WireUsage::read) {
            self.ready.push_back(ModelEvent::Usage(usage.into_usage(self.model.clone())));
        }
        result
    }

    fn take_choice(&mut self, choice: Choice<'_>) -> Result<(), AgentError> {
        if let Some(error) = choice.error {
            return Err(VendorError::from_error(error).into_error(reported_error()));
        }
        let delta = choice.delta.or(choice.message).unwrap_or_default();
        let content = delta.content.map(AnswerContent::into_texts).unwrap_or_default();
        // Some servers send the reasoning under several names.
        let reasoning = [delta.reasoning_content, delta.reasoning, delta.thinking].into_iter().flatten();
        let mut reasoning = reasoning.map(|ReasoningText(text)| text).chain([content.reasoning]);
        let reasoning = reasoning.find(|text| !text.is_empty());
        if let Some(delta) = reasoning {
            self.keep_reasoning(&delta)?;
            self.ready.push_back(ModelEvent::Reasoning(delta));
        }
        let refusals = [delta.refusal.unwrap_or_default(), content.refusal];
        self.is_refusal |= refusals.iter().any(|refusal| !refusal.is_empty());
        // A refusal takes the place of the text.
        for text in [content.text].into_iter().chain(refusals).filter(|text| !text.is_empty()) {
            self.has_content = true;
            self.ready.push_back(ModelEvent::Text(text));
        }
        let mut calls = delta.tool_calls.unwrap_or_default();
        if let (true, Some(function)) = (calls.is_empty(), delta.function_call) {
            calls.push(CallDelta::from_function(function));
        }
        for call in calls {
            self.take_call(call)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.0.is_empty()) {
            self.finish = Some(finish_reason(&reason.0)?);
        }
        Ok(())
    }

    /// Keeps the reasoning of a model that requires it in later requests.
    fn keep_reasoning(&mut self, delta: &str) -> Result<(), AgentError> {
        if !self.spec.echoes_reasoning() {
            return Ok(());
        }
        if self.reasoning.len() + delta.len() > MAX_REASONING_BYTES {
            let message = "the model's reasoning exceeds the size limit";
            return Err(AgentError::new(AgentErrorKind::OutputTooLarge, message));
        }
        self.reasoning.push_str(delta);
        Ok(())
    }

    /// Takes a fragment of a tool call: the first one with a name starts the call, and any fragment may carry arguments. The limit on
    /// the calls also bounds the search for the call of a fragment.
    fn take_call(&mut self, call: CallDelta<'_>) -> Result<(), AgentError> {
        let signature = call.signature();
        let function = call.function.unwrap_or_default();
        let arguments = non_empty(Some(arguments_text(function.arguments)));
        let (id, name) = (non_empty(call.id), non_empty(function.name));
        let is_empty = id.is_none() && name.is_none() && arguments.is_none();
        if is_empty && signature.is_none() {
            return Ok(());
        }
        let found = self.calls.iter().rposition(|found| found.is_continued_by(call.index, &id, &name));
        let found = match found {
            Some(found) => found,
            // A signature of no call.
            None if is_empty => return Ok(()),
            None if self.calls.len() == MAX_CALLS => return Err(too_many_calls()),
            None => {
                let id = id.clone().unwrap_or_else(|| format!("call_{}", agent_core::new_id()));
                let (index, position, held_arguments) = (call.index, None, String::new());
                self.calls.push(AnsweredCall { index, id, position, held_arguments, signature: None });
                self.calls.len() - 1
            }
        };
        self.has_content = true;
        let call = &mut self.calls[found];
        call.signature = signature.or(call.signature.take());
        if let Some(index) = call.position {
            self.ready.extend(arguments.map(|delta| ModelEvent::ToolCallArgs { index, delta }));
            return Ok(());
        }
        if let Some(id) = id {
            call.id = id;
        }
        call.held_arguments.extend(arguments);
        if name.is_some() || call.held_arguments.len() > MAX_HELD_BYTES {
            self.start_call(found, name.unwrap_or_default());
        }
        Ok(())
    }

    /// Starts a call with the arguments that have been held back for its name. The calls are numbered in the order of their
    /// start, regardless of the server's indices.
    fn start_call(&mut self, found: usize, name: String) {
        let (index, call) = (self.started_calls, &mut self.calls[found]);
        if call.position.is_some() {
            return;
        }
        call.position = Some(index);
        let (id, arguments) = (call.id.clone(), std::mem::take(&mut call.held_arguments));
        self.started_calls += 1;
        self.ready.push_back(ModelEvent::ToolCallStart { index, id, name });
        self.ready.extend(non_empty(Some(arguments)).map(|delta| ModelEvent::ToolCallArgs { index, delta }));
    }

    fn has_output(&self) -> bool {
        self.has_content || self.finish.is_some()
    }

    fn finish(&mut self) {
        // A call without a name calls no tool; the model receives an error result.
        (0..self.calls.len()).for_each(|found| self.start_call(found, String::new()));
        let reason = match self.finish {
            Some(FinishReason::Stop) | None if self.is_refusal => FinishReason::ContentFilter,
            Some(reason) => reason,
            None if self.calls.is_empty() => FinishReason::Stop,
            None => FinishReason::ToolCalls,
        };
        self.push_items();
        self.ready.push_back(ModelEvent::Finish(reason));
    }

    /// Emits the items that the next request of the run sends back: the reasoning in front of the calls, and the calls' signatures.
    fn push_items(&mut self) {
        let name = &self.spec.name;
        let item = |json: Box<RawValue>, calls_before| {
            ModelEvent::ProviderItem(ProviderItem { json: json.into(), text_before: 0, calls_before })
        };
        if !self.calls.is_empty() && !self.reasoning.is_empty() {
            self.ready.push_back(item(ItemMaker::reasoning(name).keep(&self.reasoning), 0));
        }
        let signed = |call: &AnsweredCall| {
            let signature = call.signature.as_deref()?;
            Some(item(ItemMaker::call_signature(name).keep(signature), call.position?))
        };
        self.ready.extend(self.calls.iter().filter_map(signed));
    }
}

impl AnsweredCall {
    /// Returns true if a fragment belongs to this call. The caller searches from the latest call backwards.
    ///
    /// Normally the index decides. Some servers omit it, and some give every call the same index; then a fragment with
    /// a name starts a new call, unless its identifier is that of an existing one.
    fn is_continued_by(&self, index: Option<usize>, id: &Option<String>, name: &Option<String>) -> bool {
        let same_index = index.is_none() || index == self.index;
        match (id, name) {
            // The name of a call whose first fragment had none may come with the identifier, or without any.
            (Some(_), Some(_)) if index.is_some() && self.position.is_none() => same_index,
            (Some(id), Some(_)) => same_index && *id == self.id,
            (None, Some(_)) => same_index && (index.is_some() || self.position.is_none()),
            (Some(id), None) if index.is_none() => *id == self.id,
            (_, None) => same_index,
        }
    }
}

/// Returns the text unless it is empty: servers write either `null` or the empty string.
fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn finish_reason(word: &str) -> Result<FinishReason, AgentError> {
    // Google's API adds details behind a colon.
    let (word, _) = word.split_once(':').unwrap_or((word, ""));
    Ok(match word {
        // Mistral's word for an answer that reaches the end of the context window, and the words of another API, which gateways
        // may leave as they are.
        "length" | "model_length" | "max_tokens" => FinishReason::Length,
        "tool_calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "content_filter" | "refusal" => FinishReason::ContentFilter,
        // The words of vLLM and SGLang, and of DeepSeek, for an answer that the server has broken off, and Google's for one with a
        // tool call that the model has written wrongly.
        "error" | "abort" | "insufficient_system_resource" | "function_call_filter" => {
            return Err(reported_error());
        }
        _ => FinishReason::Stop,
    })
}

fn parse_chunk(json: &[u8]) -> Result<Chunk<'_>, AgentError> {
    serde_json::from_slice(json).map_err(|error| malformed_response(&error))
}
