//! Fixtures of the tests of the tool loop: a scripted model and fake tools. Every run is checked against the event grammar.

use std::sync::Mutex;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

use super::*;
use crate::error::AgentError;
use crate::event::{Event, EventGrammar, EventStream, RunIds};
use crate::message::{FinishReason, Message};
use crate::model::{ModelEvent, ModelRequest};
use crate::prompt::{Prompt, PromptMessage};
use crate::testing::{FakeTools, ManualClock, ScriptedAnswer, ScriptedModel};
use crate::tool::{ExecutionContext, ToolChoice, ToolSpec};

mod calls;
mod provider_items;
mod rounds;

/// A loop with access to its parts.
struct LoopFixture {
    model: Arc<ScriptedModel>,
    tools: Arc<FakeTools>,
    clock: ManualClock,
    limits: LoopLimits,
    request: ModelRequest,
}

fn fixture(tools: FakeTools, answers: impl IntoIterator<Item = ScriptedAnswer>) -> LoopFixture {
    LoopFixture {
        model: Arc::new(ScriptedModel::new(answers)),
        clock: ManualClock::new(),
        limits: LoopLimits::default(),
        request: request(vec![Message::user("hi")], tools.specs()),
        tools: Arc::new(tools),
    }
}

fn request(messages: Vec<Message>, tools: Arc<[Arc<ToolSpec>]>) -> ModelRequest {
    let messages = messages.into_iter().map(PromptMessage::new).collect();
    ModelRequest {
        prompt: Arc::new(Prompt::new(Vec::new(), messages)),
        appended_messages: Vec::new(),
        tools,
        tool_choice: ToolChoice::Auto,
        thinking: None,
        response_format: None,
    }
}

fn context() -> ExecutionContext {
    ExecutionContext { user_id: "ada".into(), company_id: "c".into(), ..ExecutionContext::default() }
}

impl LoopFixture {
    async fn start(&self) -> Result<EventStream, AgentError> {
        self.start_with(self.tools.clone()).await
    }

    async fn start_with(&self, tools: Arc<dyn ToolRegistry>) -> Result<EventStream, AgentError> {
        let tool_loop = ToolLoop {
            model: self.model.clone(),
            tools,
            clock: Arc::new(self.clock.clone()),
            limits: self.limits,
        };
        let payload = self.model.prepare(&self.request)?;
        let run = RunIds { thread_id: "t".into(), run_id: "r".into() };
        tool_loop.start(payload, self.request.clone(), context(), run).await
    }

    /// Runs the loop to its end without waiting.
    fn run(&self) -> Vec<Event> {
        let run = async { read(self.start().await.expect("the run starts")).await };
        run.now_or_never().expect("nothing in this run waits")
    }

    /// Returns the messages sent to the model in a round, counted from 0.
    fn sent(&self, round: usize) -> Value {
        self.model.sent_requests()[round]["messages"].clone()
    }
}

async fn read(stream: EventStream) -> Vec<Event> {
    let events: Vec<Event> = stream.collect().await;
    EventGrammar::check(&events).unwrap_or_else(|violation| panic!("{violation}: {events:?}"));
    events
}

fn text(answer: &[Event]) -> String {
    let deltas = answer.iter().filter_map(|event| match event {
        Event::TextMessageContent { delta, .. } => Some(delta.as_str()),
        _ => None,
    });
    deltas.collect()
}

/// Returns call id, content and error flag of all tool results.
fn results(events: &[Event]) -> Vec<(&str, &str, bool)> {
    let results = events.iter().filter_map(|event| match event {
        Event::ToolCallResult { tool_call_id, content, metadata, .. } => {
            Some((&**tool_call_id, content.as_str(), metadata.is_some_and(|metadata| metadata.is_error)))
        }
        _ => None,
    });
    results.collect()
}

fn call_ids(events: &[Event]) -> Vec<&str> {
    let ids = events.iter().filter_map(|event| match event {
        Event::ToolCallStart { tool_call_id, .. } => Some(&**tool_call_id),
        _ => None,
    });
    ids.collect()
}

fn finish_reason(events: &[Event]) -> Option<FinishReason> {
    match events.last() {
        Some(Event::RunFinished { result, .. }) => result.as_ref().map(|result| result.finish_reason),
        other => panic!("the run did not finish but {other:?}"),
    }
}

fn code(events: &[Event]) -> &str {
    match events.last() {
        Some(Event::RunError { code, .. }) => code,
        other => panic!("the run did not fail but {other:?}"),
    }
}
