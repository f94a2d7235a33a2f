//! Script of a recorded run, made from its events: the model's answers, and the progress and results of tool calls.

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventStream, Interrupt, RunEnd, RunIds, RunOutcome, SourceEvent};
use agent_core::model::ModelEvent;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::Value;

use super::driver::{is_of_turn, read_to_end};
use crate::model_notice::ModelNotice;
use crate::run_observer::RunInputs;

/// Text in place of a delta that the log does not have.
const HIDDEN_TEXT: &str = "…";

/// Script of a recorded run.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) rounds: Vec<ScriptRound>,
    /// Events of the log without its start, its end and the platform's own events, for a remote backend.
    pub(super) source: Vec<Event>,
    /// End of the run; `None` for a log without one.
    pub(super) end: Option<RunEnd>,
    /// Number of the turn's events after which the run was cancelled.
    pub(super) cut: Option<usize>,
    /// Decisions that the run has ended with.
    pub(super) interrupts: Vec<Interrupt>,
}

/// A call of the model with the tool calls of its answer.
#[derive(Debug, Default)]
pub(super) struct ScriptRound {
    /// Events of the answer.
    pub(super) answer: Vec<ModelEvent>,
    /// True if the answer was complete.
    pub(super) is_complete: bool,
    /// Delta that has opened the last message, if the run was cut before it.
    opening: Option<ModelEvent>,
    /// Tool calls in their order.
    pub(super) calls: Vec<ScriptCall>,
    /// Progress and results of the calls, in their order.
    pub(super) steps: Vec<ReplayStep>,
}

/// A recorded tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// Progress or result of a recorded tool call.
#[derive(Debug, Clone)]
pub(super) struct ReplayStep {
    /// Index of the call in its round.
    pub(super) call: usize,
    pub(super) kind: StepKind,
}

#[derive(Debug, Clone)]
pub(super) enum StepKind {
    Progress(ToolProgress),
    Result { content: String, is_error: bool },
}

/// Progress report of a tool, as the event `agent.debug` has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolProgress {
    tool_call_id: String,
    pub(super) progress: f64,
    pub(super) total: Option<f64>,
    pub(super) message: Option<String>,
}

impl Script {
    pub(super) fn new(events: &[Event], inputs: &RunInputs) -> Self {
        let mut script = Self::default();
        let mut is_open = false;
        for event in events {
            match event {
                Event::StepStarted { .. } => {
                    is_open = true;
                    script.rounds.push(ScriptRound::default());
                }
                Event::StepFinished { .. } => is_open = false,
                _ if is_open => script.rounds.last_mut().into_iter().for_each(|round| round.add(event)),
                _ => {}
            }
            script.end = script.end.or_else(|| run_end(event));
        }
        if let Some(RunEnd::Finished { outcome: Some(RunOutcome::Interrupt { interrupts, .. }), .. }) =
            &script.end
        {
            script.interrupts.clone_from(interrupts);
        }
        let is_cancelled =
            matches!(&script.end, Some(RunEnd::Finished { outcome: Some(RunOutcome::Cancelled), .. }));
        script.cut =
            script.end.as_ref().filter(|_| is_cancelled).and_then(|end| cancelled_after(events, end));
        let is_of_source = |event: &&Event| match event {
            Event::Custom { name, .. } => name == "agent.debug",
            event => !matches!(event, Event::RunStarted { .. }) && !event.is_terminal(),
        };
        script.source = events.iter().filter(is_of_source).cloned().collect();
        script.complete(inputs);
        script
    }

    /// Adds the parts that the events do not contain.
    fn complete(&mut self, inputs: &RunInputs) {
        let object = match &self.end {
            Some(RunEnd::Finished { result, .. }) => result.as_ref().and_then(|result| result.object.clone()),
            _ => None,
        };
        let last = self.rounds.len().saturating_sub(1);
        for (index, (round, record)) in self.rounds.iter_mut().zip(&inputs.rounds).enumerate() {
            for result in &inputs.results {
                let call = round.calls.iter().position(|call| call.id == result.call_id);
                let (content, is_error) = (result.content.clone(), result.is_error);
                let kind = StepKind::Result { content, is_error };
                round.steps.extend(call.map(|call| ReplayStep { call, kind }));
            }
            let opening = round.opening.take();
            round.answer.extend(opening);
            if !record.draft.is_empty() {
                round.answer.push(ModelEvent::Draft(record.draft.clone()));
            }
            let end = record.finish_reason.map(ModelEvent::Finish);
            let Some(end) = record.correction.clone().map(ModelEvent::Rejected).or(end) else { continue };
            round.is_complete = true;
            let items = record.provider_items.iter().cloned();
            round.answer.extend(items.map(|item| ModelEvent::ProviderItem(item.into())));
            round.answer.extend(record.usage.clone().map(ModelEvent::Usage));
            round.answer.extend(object.clone().filter(|_| index == last).map(ModelEvent::Object));
            round.answer.push(end);
        }
    }

    /// Returns the error with which a call of the model failed that the record has no further events of; `None` if the
    /// run was cut there from outside.
    pub(super) fn failure(&self) -> Option<AgentError> {
        let Some(RunEnd::Failed { message, code, .. }) = &self.end else { return None };
        Some(AgentError::new(AgentErrorKind::from_code(code)?, message.clone()))
    }
}

impl ScriptRound {
    fn add(&mut self, event: &Event) {
        self.opening = match event {
            Event::TextMessageStart { .. } => Some(ModelEvent::Text(HIDDEN_TEXT.to_owned())),
            Event::ReasoningStart { .. } | Event::ReasoningMessageStart { .. } => {
                Some(ModelEvent::Reasoning(HIDDEN_TEXT.to_owned()))
            }
            // Events that close a message that was cut off.
            Event::TextMessageEnd { .. }
            | Event::ReasoningMessageEnd { .. }
            | Event::ReasoningEnd { .. }
            | Event::ToolCallEnd { .. } => self.opening.take(),
            _ => None,
        };
        match event {
            // Reasoning that a visitor does not see has come between two messages.
            Event::TextMessageStart { .. } if matches!(self.answer.last(), Some(ModelEvent::Text(_))) => {
                self.answer.push(ModelEvent::Reasoning(HIDDEN_TEXT.to_owned()));
            }
            Event::TextMessageContent { delta, .. } => self.answer.push(ModelEvent::Text(delta.clone())),
            Event::ReasoningMessageContent { delta, .. } => {
                self.answer.push(ModelEvent::Reasoning(delta.clone()));
            }
            Event::ToolCallStart { tool_call_id, tool_call_name, .. } => {
                let (id, name) = (tool_call_id.to_string(), tool_call_name.clone());
                let index = self.calls.len();
                self.answer.push(ModelEvent::ToolCallStart { index, id: id.clone(), name: name.clone() });
                self.calls.push(ScriptCall { id, name, arguments: String::new() });
            }
            Event::ToolCallArgs { tool_call_id, delta } => {
                if let Some(index) = self.call_index(tool_call_id) {
                    self.calls[index].arguments.push_str(delta);
                    self.answer.push(ModelEvent::ToolCallArgs { index, delta: delta.clone() });
                }
            }
            Event::ToolCallResult { tool_call_id, content, metadata, .. } => {
                if let Some(call) = self.call_index(tool_call_id) {
                    let is_error = metadata.is_some_and(|metadata| metadata.is_error);
                    let kind = StepKind::Result { content: content.clone(), is_error };
                    self.steps.push(ReplayStep { call, kind });
                }
            }
            Event::Custom { name, value } if name == "agent.debug" => {
                if let Ok(progress) = ToolProgress::deserialize(value) {
                    let call = self.call_index(&progress.tool_call_id);
                    let kind = StepKind::Progress(progress);
                    self.steps.extend(call.map(|call| ReplayStep { call, kind }));
                } else if let Value::Object(notice) = value
                    && ModelNotice::is_notice(value)
                {
                    self.answer.push(ModelEvent::Notice(notice.clone()));
                }
            }
            _ => {}
        }
    }

    fn call_index(&self, id: &str) -> Option<usize> {
        self.calls.iter().position(|call| call.id == id)
    }
}

/// Returns the events that the turn makes: neither the events that the platform adds around it, nor the results of calls by an
/// earlier run, which are in the turn's messages.
pub(super) fn of_run(recorded: &[Event]) -> impl Iterator<Item = &Event> {
    let first =
        recorded.iter().position(|event| matches!(event, Event::StepStarted { .. })).unwrap_or_default();
    let is_earlier =
        move |index: usize, event: &Event| index < first && matches!(event, Event::ToolCallResult { .. });
    let events = recorded.iter().enumerate().filter(move |(index, event)| !is_earlier(*index, event));
    events.map(|(_, event)| event).filter(is_of_turn)
}

/// Returns the number of the turn's events after which a run was cancelled: later events close the open items.
fn cancelled_after(events: &[Event], end: &RunEnd) -> Option<usize> {
    let turn: Vec<&Event> = of_run(events).collect();
    let (last, before) = turn.split_last()?;
    let is_closing = |event: &&Event| {
        matches!(
            event,
            Event::TextMessageEnd { .. }
                | Event::ReasoningMessageEnd { .. }
                | Event::ReasoningEnd { .. }
                | Event::ToolCallEnd { .. }
                | Event::StepFinished { .. }
        )
    };
    let first = before.iter().rposition(|event| !is_closing(event)).map_or(0, |index| index + 1);
    let Event::RunFinished { thread_id, run_id, .. } = *last else { return None };
    let run = RunIds { thread_id: thread_id.clone(), run_id: run_id.clone() };
    (first..turn.len()).find(|index| {
        let live: Vec<_> =
            turn[..*index].iter().map(|event| Ok(SourceEvent::Event((*event).clone()))).collect();
        let events = EventStream::new(run.clone(), stream::iter(live).chain(stream::pending()));
        let (closed, _) = read_to_end(events, Some(end.clone()), None);
        closed.len() == turn.len() && closed[*index..].iter().eq(turn[*index..].iter().copied())
    })
}

/// Returns the end of a run by its terminal event.
fn run_end(terminal: &Event) -> Option<RunEnd> {
    match terminal.clone() {
        Event::RunFinished { result, outcome, usage, .. } => {
            Some(RunEnd::Finished { result, outcome, usage })
        }
        Event::RunError { message, code, usage } => Some(RunEnd::Failed { message, code, usage }),
        _ => None,
    }
}
