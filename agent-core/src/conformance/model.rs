//! Conformance suite for [`Model`].

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::join;
use serde_json::json;

use super::{OpenWorkCounter, Scenario, wait_until_idle, with_timeout};
use crate::error::AgentError;
use crate::message::Message;
use crate::model::{Model, ModelEvent, ModelRequest, ModelStream};
use crate::prompt::{Fragment, Stability};
use crate::prompt::{Part, Prompt, PromptMessage};
use crate::tool::ToolChoice;
use crate::tool::ToolSpec;

/// A model under test and a counter of the work below it.
pub struct ModelSubject {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Counter of the work in progress, if it can be counted.
    pub open: Option<OpenWorkCounter>,
}

impl ModelSubject {
    /// Creates a subject without a counter.
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { model, open: None }
    }
}

/// Runs the conformance suite of [`Model`] against models whose remote end behaves as the scenario says. The factory
/// must provide the first scenario, [`Scenario::Completes`].
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn model(make: impl AsyncFn(Scenario) -> Option<ModelSubject>) {
    let subject = make(Scenario::Completes).await.expect("the factory provides Scenario::Completes");
    info_is_complete(&*subject.model);
    prepare_is_a_function_of_the_request(&*subject.model);
    answers_are_whole(&*subject.model).await;
    if let Some(open) = &subject.open {
        wait_until_idle("a call that is over leaves no work behind", open).await;
    }
    if let Some(subject) = make(Scenario::Hangs).await {
        dropping_the_stream_ends_the_call(subject).await;
    }
    if let Some(subject) = make(Scenario::Truncates).await {
        a_cut_off_answer_has_no_finish(&*subject.model).await;
    }
    if let Some(subject) = make(Scenario::Rejects).await {
        let started = with_timeout("a refusal", start(&*subject.model, "Hello")).await;
        assert!(started.is_err(), "an error before the first delta is an error of start");
    }
}

/// Builds a prompt that shares no data with any other.
pub(super) fn prompt(text: &str) -> Arc<Prompt> {
    let system = Fragment::new("role", "suite", Stability::Role, Part::new("You are \"terse\".\n"));
    Arc::new(Prompt::new(vec![system], vec![PromptMessage::new(Message::user(text))]))
}

pub(super) fn tools() -> Arc<[Arc<ToolSpec>]> {
    let schema =
        json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    Arc::new([Arc::new(ToolSpec::new("createTodo", "Adds a todo.", &schema))])
}

fn request(model: &dyn Model, text: &str) -> ModelRequest {
    ModelRequest {
        prompt: prompt(text),
        appended_messages: Vec::new(),
        tools: if model.info().supports_tools { tools() } else { Arc::new([]) },
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
    }
}

fn prepare(model: &dyn Model, request: &ModelRequest) -> crate::payload::Payload {
    model.prepare(request).unwrap_or_else(|failure| panic!("preparing a plain request failed: {failure:?}"))
}

async fn start(model: &dyn Model, text: &str) -> Result<ModelStream, AgentError> {
    model.start(prepare(model, &request(model, text))).await
}

async fn started(model: &dyn Model) -> ModelStream {
    let stream = with_timeout("the start of an answer", start(model, "Hello")).await;
    stream.unwrap_or_else(|failure| panic!("starting a plain request failed: {failure:?}"))
}

fn info_is_complete(model: &dyn Model) {
    let info = model.info();
    assert!(
        !info.provider.is_empty() && !info.model.is_empty(),
        "a model has a provider and a name: {info:?}"
    );
    assert!(info.max_output_tokens > 0, "a model can answer: {info:?}");
    assert!(
        info.context_window > info.max_output_tokens,
        "beside the answer there is room for a prompt: {info:?}"
    );
    assert_eq!(info, model.info(), "a model's info is the same each time");
}

fn prepare_is_a_function_of_the_request(model: &dyn Model) {
    let first = prepare(model, &request(model, "Hello"));
    let second = prepare(model, &request(model, "Hello"));
    assert_eq!(first.bytes(), second.bytes(), "equal requests give the same bytes");
    assert_eq!(first.sha256(), second.sha256(), "equal requests are shown alike");
    let other = prepare(model, &request(model, "Bye"));
    assert_ne!(first.bytes(), other.bytes(), "the bytes contain the user's message");
    let mut round = request(model, "Hello");
    round.appended_messages.push(Message::assistant("Welcome"));
    assert_ne!(first.bytes(), prepare(model, &round).bytes(), "the bytes contain the appended messages");
}

async fn answers_are_whole(model: &dyn Model) {
    let read = async || with_timeout("the end of an answer", started(model).await.collect::<Vec<_>>()).await;
    let (first, second) = join(read(), read()).await;
    for events in [first, second] {
        check_order(&events);
        assert!(
            matches!(events.last(), Some(Ok(ModelEvent::Finish(_)))),
            "a whole answer ends with Finish: {events:?}"
        );
    }
}

/// Checks the order of events, which holds for complete and truncated answers.
fn check_order(events: &[Result<ModelEvent, AgentError>]) {
    let mut started_calls = Vec::new();
    for (i, event) in events.iter().enumerate() {
        let last = i + 1 == events.len();
        match event {
            Err(_) => assert!(last, "nothing follows an error: {events:?}"),
            Ok(ModelEvent::Finish(_)) => assert!(last, "nothing follows Finish: {events:?}"),
            Ok(ModelEvent::ToolCallStart { index, id, name }) => {
                assert!(!started_calls.contains(index), "a tool call begins once: {events:?}");
                assert!(!id.is_empty() && !name.is_empty(), "a tool call has an id and a name: {events:?}");
                started_calls.push(*index);
            }
            Ok(ModelEvent::ToolCallArgs { index, .. }) => {
                assert!(
                    started_calls.contains(index),
                    "arguments come after their call has begun: {events:?}"
                );
            }
            Ok(_) => {}
        }
    }
}

async fn dropping_the_stream_ends_the_call(subject: ModelSubject) {
    let mut stream = started(&*subject.model).await;
    let first = with_timeout("the first delta", stream.next()).await;
    assert!(matches!(first, Some(Ok(_))), "an answer that hangs has begun: {first:?}");
    if let Some(open) = &subject.open {
        assert!(open() > 0, "an answer that hangs is work in progress");
    }
    drop(stream);
    if let Some(open) = &subject.open {
        wait_until_idle("dropping the stream ends the call below it", open).await;
    }
}

async fn a_cut_off_answer_has_no_finish(model: &dyn Model) {
    let events: Vec<_> = with_timeout("the end of a cut-off answer", started(model).await.collect()).await;
    check_order(&events);
    assert!(
        !events.iter().any(|event| matches!(event, Ok(ModelEvent::Finish(_)))),
        "an answer that was cut off has no Finish: {events:?}"
    );
}
