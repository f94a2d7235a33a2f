//! Conformance suite for [`Backend`].

use std::sync::Arc;

use futures_util::StreamExt;
use serde::de::IgnoredAny;

use super::model::{prompt, tools};
use super::{OpenWorkCounter, Scenario, wait_until_idle, with_timeout};
use crate::backend::{Backend, BackendSettings, PreparedRequest, Turn};
use crate::error::AgentError;
use crate::event::{Event, EventGrammar, EventStream, RunIds};
use crate::payload::Payload;
use crate::role::RoleBlock;
use crate::tool::ToolChoice;
use crate::tool::{Caller, ExecutionContext};

/// A backend under test, the settings of its turns, and a counter of the work below it.
pub struct BackendSubject<B: Backend> {
    /// The backend.
    pub backend: Arc<B>,
    /// The settings used for every turn.
    pub settings: B::Settings,
    /// Counter of the work in progress, if it can be counted.
    pub open: Option<OpenWorkCounter>,
}

impl<B: Backend> BackendSubject<B> {
    /// Creates a subject without a counter.
    pub fn new(backend: Arc<B>, settings: B::Settings) -> Self {
        Self { backend, settings, open: None }
    }
}

/// Runs the conformance suite of [`Backend`] against backends whose remote end behaves as the scenario says. The
/// factory must provide the first scenario, [`Scenario::Completes`].
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn backend<B: Backend>(make: impl AsyncFn(Scenario) -> Option<BackendSubject<B>>) {
    let subject = make(Scenario::Completes).await.expect("the factory provides Scenario::Completes");
    prepare_is_a_function_of_the_turn(&subject);
    answers_are_whole(&subject).await;
    if let Some(subject) = make(Scenario::Hangs).await {
        dropping_the_stream_ends_the_run(subject).await;
    }
    if let Some(subject) = make(Scenario::Truncates).await {
        a_cut_off_answer_is_an_error(&subject).await;
    }
    if let Some(subject) = make(Scenario::Rejects).await {
        let started = with_timeout("a refusal", start(&subject)).await;
        assert!(started.is_err(), "an error before the backend has accepted is an error of start");
    }
}

/// Builds a turn that shares no data with any other.
fn turn<B: Backend>(subject: &BackendSubject<B>, text: &str) -> Arc<Turn> {
    let role = RoleBlock {
        id: "agent".into(),
        name: "Ann".to_owned(),
        company_id: "company".into(),
        ..RoleBlock::default()
    };
    let context = ExecutionContext {
        user_id: "ada".into(),
        company_id: "company".into(),
        agent_id: "agent".into(),
        agent_name: Some("Ann".to_owned()),
        todo_list_id: Some("list".to_owned()),
        timezone: Some("Europe/Berlin".to_owned()),
        thread_id: "thread".into(),
        run_id: "run".into(),
        caller: Caller::Session,
        ..ExecutionContext::default()
    };
    Arc::new(Turn {
        run: RunIds { thread_id: "thread".into(), run_id: "run".into() },
        role: Arc::new(role),
        choice: subject.settings.clone().into_choice(),
        prompt: prompt(text),
        tools: tools(),
        context,
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
        run_token: None,
    })
}

fn prepare<B: Backend>(subject: &BackendSubject<B>, text: &str) -> PreparedRequest {
    let prepared = subject.backend.prepare(&subject.settings, turn(subject, text));
    prepared.unwrap_or_else(|failure| panic!("preparing a plain turn failed: {failure:?}"))
}

async fn start<B: Backend>(subject: &BackendSubject<B>) -> Result<EventStream, AgentError> {
    subject.backend.start(&subject.settings, prepare(subject, "Hello")).await
}

async fn started<B: Backend>(subject: &BackendSubject<B>) -> EventStream {
    let stream = with_timeout("the start of a run", start(subject)).await;
    stream.unwrap_or_else(|failure| panic!("starting a plain turn failed: {failure:?}"))
}

/// Returns the run's identifiers of an event that carries them.
fn ids(event: &Event) -> Option<(&str, &str)> {
    match event {
        Event::RunStarted { thread_id, run_id } => Some((thread_id, run_id)),
        Event::RunFinished { thread_id, run_id, .. } => Some((thread_id, run_id)),
        _ => None,
    }
}

/// Returns the redacted form as text, which a failed assertion prints.
fn shown(payload: &Payload) -> String {
    format!("{payload:?}")
}

fn prepare_is_a_function_of_the_turn<B: Backend>(subject: &BackendSubject<B>) {
    let capabilities = subject.backend.capabilities(&subject.settings);
    let budget =
        capabilities.unwrap_or_else(|failure| panic!("asking for the budget failed: {failure:?}")).budget;
    assert!(budget.max_prompt_tokens > 0, "a backend has room for a prompt");
    let (first, second) = (prepare(subject, "Hello"), prepare(subject, "Hello"));
    // Run tokens differ between runs and are masked; everything else must be equal.
    assert_eq!(shown(&first.payload), shown(&second.payload), "equal turns give the same bytes");
    let once_more = subject.backend.prepare(&subject.settings, first.turn.clone());
    let once_more = once_more.unwrap_or_else(|failure| panic!("preparing a turn again failed: {failure:?}"));
    assert_eq!(first.payload.sha256(), once_more.payload.sha256(), "a turn has one hash");
    let other = prepare(subject, "Bye");
    assert_ne!(shown(&first.payload), shown(&other.payload), "the bytes contain the user's message");
    if first.payload.is_json() {
        let json = serde_json::from_slice::<IgnoredAny>(first.payload.bytes());
        assert!(json.is_ok(), "a payload that is said to be JSON is JSON: {json:?}");
    }
    if let Some(open) = &subject.open {
        assert_eq!(open(), 0, "preparing begins no work");
    }
}

async fn answers_are_whole<B: Backend>(subject: &BackendSubject<B>) {
    let events: Vec<Event> = with_timeout("the end of a run", started(subject).await.collect()).await;
    check_grammar(&events);
    assert_eq!(events.first().and_then(ids), Some(("thread", "run")), "a run begins under its own ids");
    assert_eq!(
        events.last().and_then(ids),
        Some(("thread", "run")),
        "a whole run finishes under its own ids"
    );
    let has_text = events.iter().any(|event| matches!(event, Event::TextMessageContent { .. }));
    assert!(has_text, "an answer has text: {events:?}");
    if let Some(open) = &subject.open {
        wait_until_idle("a run that is over leaves no work behind", open).await;
    }
}

fn check_grammar(events: &[Event]) {
    EventGrammar::check(events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
}

async fn dropping_the_stream_ends_the_run<B: Backend>(subject: BackendSubject<B>) {
    let mut events = started(&subject).await;
    let first_words =
        async { while !matches!(events.next().await, Some(Event::TextMessageContent { .. }) | None) {} };
    with_timeout("the first words of a run that hangs", first_words).await;
    assert!(!events.is_over(), "a run that hangs is not over");
    if let Some(open) = &subject.open {
        assert!(open() > 0, "a run that hangs is work in progress");
    }
    drop(events);
    if let Some(open) = &subject.open {
        wait_until_idle("dropping the stream ends the work below it", open).await;
    }
}

async fn a_cut_off_answer_is_an_error<B: Backend>(subject: &BackendSubject<B>) {
    let events: Vec<Event> = with_timeout("the end of a cut-off run", started(subject).await.collect()).await;
    check_grammar(&events);
    assert!(
        matches!(events.last(), Some(Event::RunError { .. })),
        "an answer that was cut off ends with RUN_ERROR: {events:?}"
    );
}
