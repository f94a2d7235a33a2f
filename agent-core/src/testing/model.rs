//! A model that returns scripted answers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;

use super::OpenCount;
use crate::error::{AgentError, AgentErrorKind};
use crate::message::{FinishReason, Usage};
use crate::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use crate::payload::{Payload, PromptSection};
use crate::prompt::{Dialect, push_message_json};

/// A [`Model`] that returns prepared answers, one for each call, and records the payloads.
///
/// ```
/// use agent_core::message::FinishReason;
/// use agent_core::testing::{ScriptedAnswer, ScriptedModel};
///
/// let model = ScriptedModel::new([
///     ScriptedAnswer::new().call("call-1", "readTodos", ["{", "}"]).finish(FinishReason::ToolCalls),
///     ScriptedAnswer::from_text("Nothing to do today."),
/// ]);
/// assert_eq!(model.unused_answers(), 2);
/// ```
pub struct ScriptedModel {
    info: ModelInfo,
    /// Context window that an error of the script has reported.
    learned_window: Mutex<Option<usize>>,
    answers: Mutex<VecDeque<ScriptedAnswer>>,
    repeated_text: Option<String>,
    payloads: Mutex<Vec<Payload>>,
    open: OpenCount,
}

impl ScriptedModel {
    /// Creates a model that returns these answers in order. A call beyond them fails with [`AgentErrorKind::Internal`].
    pub fn new(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self {
            info: ModelInfo {
                provider: "scripted".to_owned(),
                model: "script-1".to_owned(),
                context_window: 8192,
                max_output_tokens: 1024,
                supports_media: true,
                supports_tools: true,
            },
            learned_window: Mutex::default(),
            answers: Mutex::new(answers.into_iter().collect()),
            repeated_text: None,
            payloads: Mutex::default(),
            open: OpenCount::default(),
        }
    }

    /// Creates a model that answers every call with the same text.
    pub fn repeating(text: impl Into<String>) -> Self {
        Self { repeated_text: Some(text.into()), ..Self::new([]) }
    }

    /// Sets the model's [`ModelInfo`].
    pub fn with_info(self, info: ModelInfo) -> Self {
        Self { info, ..self }
    }

    /// Appends an answer to the script.
    pub fn push(&self, answer: ScriptedAnswer) {
        lock(&self.answers).push_back(answer);
    }

    /// Returns the payloads of all calls so far.
    pub fn payloads(&self) -> Vec<Payload> {
        lock(&self.payloads).clone()
    }

    /// Returns the payloads as JSON: `{"model","system"?,"messages":[…],"tools":[…]?,"toolChoice","thinking"?}`, with
    /// messages in [`Dialect::AgUi`].
    pub fn sent_requests(&self) -> Vec<Value> {
        let parse = |payload: &Payload| serde_json::from_slice(payload.bytes()).expect("prepare made JSON");
        lock(&self.payloads).iter().map(parse).collect()
    }

    /// Returns the number of scripted answers that are not used yet.
    pub fn unused_answers(&self) -> usize {
        lock(&self.answers).len()
    }

    /// Returns the number of open streams: started and not dropped.
    pub fn open_streams(&self) -> usize {
        self.open.get()
    }

    fn next_answer(&self) -> ScriptedAnswer {
        let scripted = lock(&self.answers).pop_front();
        scripted.or_else(|| self.repeated_text.as_ref().map(ScriptedAnswer::from_text)).unwrap_or_else(|| {
            ScriptedAnswer::from_start_error(AgentError::new(
                AgentErrorKind::Internal,
                "the script has no answer for this call",
            ))
        })
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn info(&self) -> ModelInfo {
        let learned = lock(&self.learned_window).unwrap_or(usize::MAX);
        ModelInfo { context_window: self.info.context_window.min(learned), ..self.info.clone() }
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let mut body = Payload::builder(1024);
        body.raw(r#"{"model":"#).json(&self.info.model);
        if !request.prompt.system_is_empty() {
            body.section(PromptSection::System).raw(r#","system":"#);
            request.prompt.push_system_json(body.buffer());
        }
        body.raw(r#","messages":["#);
        request.prompt.push_messages_json(Dialect::AgUi, body.buffer());
        let mut first = request.prompt.messages().is_empty();
        for message in &request.appended_messages {
            if !std::mem::replace(&mut first, false) {
                body.raw(",");
            }
            push_message_json(message, Dialect::AgUi, body.buffer());
        }
        body.raw("]");
        if !request.tools.is_empty() {
            body.section(PromptSection::Tools).raw(r#","tools":"#).json(&request.tools);
        }
        body.raw(r#","toolChoice":"#).json(&format!("{:?}", request.tool_choice));
        if let Some(thinking) = request.thinking {
            body.raw(r#","thinking":"#).json(&thinking);
        }
        body.raw("}");
        Ok(body.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        lock(&self.payloads).push(payload);
        let mut answer = self.next_answer();
        if let Some(failure) = answer.refusal.take() {
            if let Some((_, window)) = failure.members().iter().find(|(name, _)| *name == "contextWindow") {
                *lock(&self.learned_window) = window.as_u64().map(|window| window as usize);
            }
            return Err(failure);
        }
        let state = (answer.steps, self.open.enter());
        let steps = stream::unfold(state, |(mut steps, open)| async move {
            loop {
                match steps.pop_front()? {
                    Step::Event(event) => return Some((Ok(event), (steps, open))),
                    Step::Fail(failure) => return Some((Err(failure), (VecDeque::new(), open))),
                    Step::Wait(gate) => gate.await,
                }
            }
        });
        // Fused: a stream polled after its end stays ended, which its contract allows but does not require.
        Ok(steps.fuse().boxed())
    }
}

/// Locks a mutex. No code panics while holding one of these locks, so the data behind a poisoned one is intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An answer of a script: its steps in order. Without [`finish`](ScriptedAnswer::finish) the stream ends truncated.
#[derive(Default)]
pub struct ScriptedAnswer {
    refusal: Option<AgentError>,
    steps: VecDeque<Step>,
    calls: usize,
}

enum Step {
    Event(ModelEvent),
    Fail(AgentError),
    Wait(BoxFuture<'static, ()>),
}

impl ScriptedAnswer {
    /// Creates an answer without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a complete answer with the text in one delta.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::new().text(text).finish(FinishReason::Stop)
    }

    /// Creates a complete answer that calls one tool.
    pub fn from_tool_call(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self::new().call(id, name, [arguments.into()]).finish(FinishReason::ToolCalls)
    }

    /// Creates an answer for which the call fails before its first delta. The model learns the context window that the
    /// error reports.
    pub fn from_start_error(failure: AgentError) -> Self {
        Self { refusal: Some(failure), ..Self::default() }
    }

    /// Adds any event, such as interleaved argument fragments of several tool calls.
    pub fn event(self, event: ModelEvent) -> Self {
        self.step(Step::Event(event))
    }

    /// Adds a reasoning delta.
    pub fn reasoning(self, delta: impl Into<String>) -> Self {
        self.event(ModelEvent::Reasoning(delta.into()))
    }

    /// Adds a text delta.
    pub fn text(self, delta: impl Into<String>) -> Self {
        self.event(ModelEvent::Text(delta.into()))
    }

    /// Adds a tool call at the next index, with its arguments in these fragments.
    pub fn call<F: Into<String>>(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        fragments: impl IntoIterator<Item = F>,
    ) -> Self {
        let index = self.calls;
        self.calls += 1;
        let start = ModelEvent::ToolCallStart { index, id: id.into(), name: name.into() };
        fragments.into_iter().fold(self.event(start), |answer, delta| {
            answer.event(ModelEvent::ToolCallArgs { index, delta: delta.into() })
        })
    }

    /// Adds the token usage of the call.
    pub fn usage(self, input_tokens: u64, output_tokens: u64) -> Self {
        self.event(ModelEvent::Usage(Usage {
            model: Some("script-1".to_owned()),
            provider: Some("scripted".to_owned()),
            input_tokens: Some(input_tokens),
            output_tokens: Some(output_tokens),
            ..Usage::default()
        }))
    }

    /// Adds the finish event, which completes the answer.
    pub fn finish(self, reason: FinishReason) -> Self {
        self.event(ModelEvent::Finish(reason))
    }

    /// Adds a failure of the stream; later steps are not delivered.
    pub fn fail(self, failure: AgentError) -> Self {
        self.step(Step::Fail(failure))
    }

    /// Suspends the stream until `gate` completes.
    pub fn wait(self, gate: impl Future<Output = ()> + Send + 'static) -> Self {
        self.step(Step::Wait(gate.boxed()))
    }

    /// Suspends the stream forever.
    pub fn hang(self) -> Self {
        self.wait(std::future::pending())
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push_back(step);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::message::Message;
    use crate::prompt::{Prompt, PromptMessage};
    use crate::tool::ToolChoice;

    fn request() -> ModelRequest {
        ModelRequest {
            prompt: Arc::new(Prompt::new(vec![], vec![PromptMessage::new(Message::user("hi"))])),
            appended_messages: vec![Message::assistant("hm")],
            tools: Arc::new([]),
            tool_choice: ToolChoice::Auto,
            thinking: Some(true),
            response_format: None,
        }
    }

    fn start(model: &ScriptedModel) -> Result<ModelStream, AgentError> {
        let payload = model.prepare(&request()).expect("prepared");
        model.start(payload).now_or_never().expect("it does not wait")
    }

    #[test]
    fn the_script_is_followed_and_what_was_sent_is_kept() {
        let model = ScriptedModel::new([
            ScriptedAnswer::new().text("a").call("1", "x", ["{", "}"]).usage(3, 4),
            ScriptedAnswer::from_start_error(AgentError::new(AgentErrorKind::RateLimited, "slow down")),
            ScriptedAnswer::new().fail(AgentError::new(AgentErrorKind::Failed, "broken")).text("never"),
        ]);
        let events: Vec<_> = start(&model).expect("started").collect().now_or_never().expect("no wait");
        assert_eq!(events.len(), 5);
        assert_eq!(start(&model).err().expect("refused").kind(), AgentErrorKind::RateLimited);
        let events: Vec<_> = start(&model).expect("started").collect().now_or_never().expect("no wait");
        assert!(matches!(&events[..], [Err(failure)] if failure.kind() == AgentErrorKind::Failed));
        assert_eq!(start(&model).err().expect("over").kind(), AgentErrorKind::Internal);
        assert_eq!(
            model.sent_requests()[0],
            json!({
                "model": "script-1",
                "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hm"}],
                "toolChoice": "Auto",
                "thinking": true,
            })
        );
    }

    #[test]
    fn a_dropped_stream_is_seen() {
        let model = ScriptedModel::new([ScriptedAnswer::new().text("a").hang()]);
        let mut stream = start(&model).expect("started");
        assert!(matches!(stream.next().now_or_never(), Some(Some(Ok(ModelEvent::Text(_))))));
        assert!(stream.next().now_or_never().is_none());
        assert_eq!(model.open_streams(), 1);
        drop(stream);
        assert_eq!(model.open_streams(), 0);
    }
}
