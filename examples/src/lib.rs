//! What the examples share: a model that costs nothing and says what it was told.

use std::sync::Arc;

use agent_core::error::Failure;
use agent_core::event::{Event, EventStream};
use agent_core::message::{FinishReason, Role};
use agent_core::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::prompt::{Dialect, Prompt};
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use serde_json::Value;

/// A model that needs no weights: it repeats the latest message, or the result of the tool it called.
/// Yours calls a vendor here.
pub struct Parrot;

#[async_trait]
impl Model for Parrot {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            provider: "example".into(),
            model: "parrot".into(),
            context_window: 8_000,
            max_output_tokens: 1_000,
            takes_media: false,
            takes_tools: true,
        }
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, Failure> {
        let mut body = Payload::builder(1024);
        body.raw(r#"{"system":"#);
        request.prompt.push_system_json(body.buffer());
        body.raw(r#","said":"#).json(&last_words(request));
        body.raw(r#","call":"#).json(&wanted_tool(request)).raw("}");
        Ok(body.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, Failure> {
        let body: Value = serde_json::from_slice(payload.bytes()).expect("prepare wrote JSON");
        let events = match body["call"].as_str() {
            Some(name) => vec![
                ModelEvent::ToolCallStart { index: 0, id: "call-1".into(), name: name.into() },
                ModelEvent::ToolCallArgs { index: 0, delta: r#"{"city":"Berlin"}"#.into() },
                ModelEvent::Finish(FinishReason::ToolCalls),
            ],
            None => vec![
                ModelEvent::Text("You said: ".into()),
                ModelEvent::Text(body["said"].as_str().unwrap_or_default().into()),
                ModelEvent::Finish(FinishReason::Stop),
            ],
        };
        Ok(stream::iter(events.into_iter().map(Ok)).boxed())
    }
}

/// The first tool on offer, until its result is there.
fn wanted_tool(request: &ModelRequest) -> Option<&str> {
    let answered = request.appended.iter().any(|message| message.role == Role::Tool);
    request.tools.first().map(|tool| tool.name.as_str()).filter(|_| !answered)
}

fn last_words(request: &ModelRequest) -> String {
    match request.appended.last() {
        Some(result) => result.content.to_text().into_owned(),
        None => latest(&request.prompt),
    }
}

fn latest(prompt: &Arc<Prompt>) -> String {
    let mut json = Vec::new();
    json.push(b'[');
    prompt.push_messages_json(Dialect::AgUi, &mut json);
    json.push(b']');
    let messages: Value = serde_json::from_slice(&json).expect("messages are JSON");
    messages.as_array().and_then(|all| all.last()).map(|m| m["content"].to_string()).unwrap_or_default()
}

/// Prints a run's text as it comes, and how the run ended.
#[expect(clippy::print_stdout, reason = "it is what an example is for")]
pub async fn print(mut events: EventStream) {
    while let Some(event) = events.next().await {
        match event {
            Event::TextMessageContent { delta, .. } => print!("{delta}"),
            Event::ToolCallStart { tool_call_name, .. } => println!("[calls {tool_call_name}]"),
            Event::ToolCallResult { content, .. } => println!("[result {content}]"),
            Event::RunFinished { .. } => println!(),
            Event::RunError { message, code, .. } => println!("{code}: {message}"),
            _ => {}
        }
    }
}
