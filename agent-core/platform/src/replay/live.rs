//! Models of a replayed run that are called live, beside the record.

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{FinishReason, Usage};
use agent_core::model::{Model, ModelEvent};
use agent_core::payload::Payload;
use futures_util::StreamExt;
use serde::Serialize;

use super::Replay;

/// Maximum size of a model's answer, in bytes; the rest of a longer one is not read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A model call of a replay, with the recorded answer and that of the model called live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveCall {
    /// Number of the round, from 1.
    pub round: usize,
    /// Provider of the model.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// SHA-256 hash of the request, in hex.
    pub request_sha256: String,
    /// True if the model makes the recorded tool calls, with the same arguments and in the same order.
    pub same_tool_calls: bool,
    /// The recorded answer.
    pub recorded: ModelAnswer,
    /// The new answer.
    pub live: ModelAnswer,
}

/// A model's answer as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelAnswer {
    /// Text of the answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Tool calls of the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<AnsweredCall>,
    /// Reason why the model has stopped; absent for an answer that is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Tokens of the call, as the provider counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Code and public message of the error of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A tool call of an answer. The tool is not called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments of the call, as JSON text.
    pub arguments: String,
}

impl Replay {
    /// Calls the models with the requests of the replay, one after another, and returns their answers with the recorded ones.
    /// No tool is called: a request contains the results that were recorded. Empty for a run that was not replayed before, and
    /// for one whose backend is not a model.
    pub async fn call_models(&self) -> Vec<LiveCall> {
        let calls = std::mem::take(&mut self.progress().calls);
        let mut answered = Vec::with_capacity(calls.len());
        for (index, call) in calls.into_iter().enumerate() {
            let recorded = ModelAnswer::of(call.recorded);
            let live = match call.model {
                Some(model) => call_model(&*model, call.payload.clone()).await,
                None => ModelAnswer::failed(&AgentError::new(
                    AgentErrorKind::NotConfigured,
                    "the model's key or address is not set here",
                )),
            };
            answered.push(LiveCall {
                round: index + 1,
                provider: call.info.provider,
                model: call.info.model,
                request_sha256: call.payload.sha256(),
                same_tool_calls: live.error.is_none() && recorded.tool_calls == live.tool_calls,
                recorded,
                live,
            });
        }
        answered
    }
}

async fn call_model(model: &dyn Model, payload: Payload) -> ModelAnswer {
    let mut stream = match model.start(payload).await {
        Ok(stream) => stream,
        Err(error) => return ModelAnswer::failed(&error),
    };
    let (mut events, mut bytes) = (Vec::new(), 0);
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                bytes += size(&event);
                events.push(event);
            }
            Err(error) => {
                let failed = ModelAnswer::failed(&error);
                return ModelAnswer { error: failed.error, ..ModelAnswer::of(events) };
            }
        }
        if bytes > MAX_ANSWER_BYTES {
            break;
        }
    }
    ModelAnswer::of(events)
}

/// Returns the size of an event, with that of its structure.
fn size(event: &ModelEvent) -> usize {
    let content = match event {
        ModelEvent::Reasoning(text) | ModelEvent::Text(text) => text.len(),
        ModelEvent::ToolCallArgs { delta, .. } => delta.len(),
        _ => 0,
    };
    content + size_of::<ModelEvent>()
}

impl ModelAnswer {
    fn of(events: Vec<ModelEvent>) -> Self {
        // In the order of their start, as the recorded answer has them.
        let (mut answer, mut calls) = (Self::default(), Vec::<(usize, AnsweredCall)>::new());
        for event in events {
            match event {
                ModelEvent::Text(text) => answer.text.push_str(&text),
                ModelEvent::ToolCallStart { index, name, .. } => {
                    calls.push((index, AnsweredCall { name, arguments: String::new() }));
                }
                ModelEvent::ToolCallArgs { index, delta } => {
                    if let Some((_, call)) = calls.iter_mut().find(|(started, _)| *started == index) {
                        call.arguments.push_str(&delta);
                    }
                }
                ModelEvent::Usage(usage) => answer.usage = Some(usage),
                ModelEvent::Finish(reason) => answer.finish_reason = Some(reason),
                _ => {}
            }
        }
        Self { tool_calls: calls.into_iter().map(|(_, call)| call).collect(), ..answer }
    }

    fn failed(error: &AgentError) -> Self {
        Self { error: Some(format!("{}: {}", error.kind().code(), error.message())), ..Self::default() }
    }
}
