//! Code shared by the examples: a model without a vendor, and printing.

use agent_core::prelude::*;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

/// A model that repeats the user's message. If it is offered a tool, it calls it once, with the message as `city`. A
/// real model calls a vendor.
pub struct EchoModel;

#[async_trait]
impl Model for EchoModel {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            provider: "example".into(),
            model: "echo".into(),
            context_window: 8_000,
            max_output_tokens: 1_000,
            supports_media: false,
            supports_tools: true,
        }
    }

    /// Serializes the vendor's request. Pure, so that a preview shows the request that would be sent.
    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let user_text = request.prompt.latest_user_text().unwrap_or_default();
        let result = request.appended_messages.iter().rfind(|message| message.role == Role::Tool);
        let tool = request.tools.first().filter(|_| result.is_none());
        let mut body = Payload::builder(256);
        body.json(&json!({
            "said": user_text,
            "messagesSince": request.appended_messages.len(),
            "tool": tool.map(|tool| &tool.name),
            "result": result.map(|message| message.content.to_text()),
        }));
        Ok(body.finish())
    }

    /// Sends the request and streams the response. This model has no vendor, so it answers from the request.
    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let body: Value = serde_json::from_slice(payload.bytes()).expect("prepare wrote JSON");
        let text = |field: &str| body[field].as_str().map(str::to_owned);
        let user_text = text("said").unwrap_or_default();
        let events = match (text("tool"), text("result")) {
            (Some(name), _) => vec![
                ModelEvent::ToolCallStart { index: 0, id: "call-1".into(), name },
                ModelEvent::ToolCallArgs { index: 0, delta: json!({"city": user_text}).to_string() },
                ModelEvent::Finish(FinishReason::ToolCalls),
            ],
            (None, result) => vec![
                ModelEvent::Text(if result.is_some() { "The tool says: " } else { "You said: " }.into()),
                ModelEvent::Text(result.unwrap_or(user_text)),
                ModelEvent::Finish(FinishReason::Stop),
            ],
        };
        Ok(stream::iter(events).map(Ok).boxed())
    }
}

/// Prints a run's events as they arrive: text, tool calls, and the error if the run fails.
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
