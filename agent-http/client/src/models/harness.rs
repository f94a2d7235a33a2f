//! Test helpers shared by the model adapters: requests, and responses rendered as lines.

use std::sync::Arc;
use std::time::Duration;

use agent_core::conformance::{self, ModelSubject, Scenario};
use agent_core::error::AgentError;
use agent_core::message::Message;
use agent_core::model::{Model, ModelEvent, ModelRequest};
use agent_core::payload::Payload;
use agent_core::prompt::{Prompt, PromptMessage};
use agent_core::tool::{ToolChoice, ToolSpec};
use expect_test::Expect;
use futures_util::StreamExt;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::loopback::{AfterResponse, LoopbackServer, chunked_response};

/// Returns a request with the user message "hi".
pub(in crate::models) fn request() -> ModelRequest {
    ModelRequest {
        prompt: Arc::new(Prompt::new(Vec::new(), vec![PromptMessage::new(Message::user("hi"))])),
        appended_messages: Vec::new(),
        tools: Arc::new([]),
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
    }
}

/// Renders a response for comparison, one line per event. Generated identifiers are shown as `new`.
fn render_events(events: Result<Vec<Result<ModelEvent, AgentError>>, AgentError>) -> Vec<String> {
    let events = match events {
        Ok(events) => events,
        Err(failure) => return vec![format!("refused {:?}", failure.kind())],
    };
    let line = |event: Result<ModelEvent, AgentError>| match event {
        Ok(ModelEvent::Text(text)) => format!("text {text}"),
        Ok(ModelEvent::Reasoning(text)) => format!("reasoning {text}"),
        Ok(ModelEvent::ToolCallStart { index, id, name }) => {
            format!("call {index} {} {name}", if id.len() > 36 { "new" } else { &id })
        }
        Ok(ModelEvent::ToolCallArgs { index, delta }) => format!("args {index} {delta}"),
        Ok(ModelEvent::Usage(usage)) => {
            let numbers =
                [usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.reasoning_tokens];
            let numbers = numbers.map(|number| number.map_or("-".to_owned(), |number| number.to_string()));
            format!("usage {} {}", usage.model.as_deref().unwrap_or("-"), numbers.join(" "))
        }
        Ok(ModelEvent::Finish(reason)) => format!("finish {reason:?}"),
        Ok(other) => format!("{other:?}"),
        Err(failure) => format!("fails {:?}", failure.kind()),
    };
    events.into_iter().map(line).collect()
}

/// Returns a tool specification.
pub(in crate::models) fn tool(name: &str, description: &str, schema: &str) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: name.into(),
        description: description.into(),
        input_schema: RawValue::from_string(schema.into()).expect("JSON").into(),
        output_schema: Some(RawValue::from_string("{}".into()).expect("JSON").into()),
        annotations: None,
        is_client_side: false,
    })
}

/// Sends [`request`] to a model and renders the response with [`render_events`].
pub(in crate::models) async fn answer_of(model: &dyn Model) -> Vec<String> {
    answer_to(model, &request()).await
}

/// Sends `request` to a model and renders the response with [`render_events`].
pub(in crate::models) async fn answer_to(model: &dyn Model, request: &ModelRequest) -> Vec<String> {
    let payload = model.prepare(request).expect("prepared");
    let events = async { Ok(model.start(payload).await?.collect::<Vec<_>>().await) };
    render_events(tokio::time::timeout(Duration::from_secs(60), events).await.expect("the answer ends"))
}

/// Checks the events of a streamed answer for several chunk sizes, which also split multi-byte characters. `model` creates
/// the adapter for a server.
pub(in crate::models) async fn check_chunked_answer<M: Model>(
    model: impl Fn(&LoopbackServer) -> M,
    kind: &str,
    body: &str,
    expected: &[&str],
) {
    for size in [usize::MAX, 7, 1] {
        let answer = chunked_response("200 OK", kind, body.as_bytes(), size.min(body.len().max(1)), true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        assert_eq!(answer_of(&model(&server)).await, expected, "in chunks of {size}: {body}");
    }
}

/// Sends [`request`] to a model. Checks that the server receives the bytes of the prepared payload and these lines of the
/// head, and returns the head.
pub(in crate::models) async fn check_sent_request(
    model: &dyn Model,
    server: &LoopbackServer,
    lines: &[&str],
) -> String {
    let payload = model.prepare(&request()).expect("prepared");
    let bytes = payload.bytes().clone();
    drop(model.start(payload).await.expect("started"));
    let requests = server.requests();
    let (head, body) = requests[0].split_once("\r\n\r\n").expect("a request");
    assert_eq!(body.as_bytes(), bytes);
    for line in lines {
        assert!(head.lines().any(|found| found == *line), "{line}: {head}");
    }
    head.to_owned()
}

/// Compares the body of a streamed request, whose server has the key `sk-1`, with its expected lines.
pub(in crate::models) fn check_streamed_body(payload: &Payload, expected: &Expect) {
    assert!(!format!("{payload:?}").contains("sk-1"), "the key is no part of the body");
    let body: Value = serde_json::from_slice(payload.bytes()).expect("the body is JSON");
    assert_eq!(body["stream"], true);
    expected.assert_eq(
        &String::from_utf8_lossy(payload.bytes())
            .replace("},{", "},\n{")
            .replace(",\"messages", ",\n\"messages"),
    );
}

/// Checks that an adapter conforms. `model` creates it for a server whose responses have the media type; `whole` is a
/// complete answer, and `partial` the beginning of one.
pub(in crate::models) async fn check_conformance<M: Model>(
    media_type: &'static str,
    (complete, partial): (String, String),
    model: impl Fn(&LoopbackServer) -> M,
) {
    conformance::model(async |scenario| {
        let answer = |status: &str, media_type: &str, body: &str, is_complete: bool| {
            chunked_response(status, media_type, body.as_bytes(), 64, is_complete)
        };
        let (answer, then) = match scenario {
            Scenario::Completes => (answer("200 OK", media_type, &complete, true), AfterResponse::Close),
            Scenario::Hangs => (answer("200 OK", media_type, &partial, false), AfterResponse::Hold),
            Scenario::Truncates => (answer("200 OK", media_type, &partial, true), AfterResponse::Close),
            Scenario::Rejects => {
                let answer = answer("503 Service Unavailable", "application/json; charset=utf-8", "{}", true);
                (answer, AfterResponse::Close)
            }
            _ => return None,
        };
        // The closure that counts connections keeps the server alive.
        let server = LoopbackServer::respond_with(answer, then).await;
        let (model, open) = (Arc::new(model(&server)), server.open());
        let open = Box::new(move || {
            let _ = &server;
            open()
        });
        Some(ModelSubject { model, open: Some(open) })
    })
    .await;
}
