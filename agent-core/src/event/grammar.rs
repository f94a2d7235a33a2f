//! The grammar of a run's events, as a state machine.

use std::collections::{HashMap, HashSet};

use super::{Event, Id};

/// Limit on the messages, calls and steps of a run that are open, and the calls without a result, together.
pub(super) const MAX_OPEN_ITEMS: usize = 1024;

/// Validator of a run's event sequence: tracks the phase of the run and everything that is open.
#[derive(Debug, Default)]
pub struct EventGrammar {
    phase: Phase,
    /// Open items, numbered in the order of opening.
    open: HashMap<OpenItem, u64>,
    opened: u64,
    /// The open item of the latest delta, to which the next one usually belongs.
    latest: Option<OpenItem>,
    awaiting_result: HashSet<Id>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Before,
    Running,
    Over,
}

/// A message, call or step that a later event must close.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum OpenItem {
    Text(Id),
    Reasoning(Id),
    ReasoningMessage(Id),
    Call(Id),
    Step(Id),
}

/// Violation of the event grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// An event came before `RUN_STARTED`.
    #[error("{0} before RUN_STARTED")]
    BeforeStart(&'static str),
    /// `RUN_STARTED` came twice.
    #[error("RUN_STARTED occurred twice")]
    StartedTwice,
    /// An event came after the terminal event.
    #[error("{0} after the terminal event")]
    AfterEnd(&'static str),
    /// A start event for something that is already open.
    #[error("{0} for {1}, which is open")]
    AlreadyOpen(&'static str, Id),
    /// More items are open, or more calls await a result, than the limit allows.
    #[error("{0} beyond the limit of open items")]
    TooManyOpen(&'static str),
    /// A content or end event for something that is not open.
    #[error("{0} for {1}, which is not open")]
    NotOpen(&'static str, Id),
    /// A result for a call that has not started, is not complete, or has a result already.
    #[error("TOOL_CALL_RESULT for {0}, which expects none")]
    UnexpectedResult(Id),
    /// A text or reasoning delta was empty.
    #[error("{0} with an empty delta")]
    EmptyDelta(&'static str),
    /// `RUN_FINISHED` came while a message, call or step was open.
    #[error("RUN_FINISHED while {0} is open")]
    LeftOpen(Id),
    /// The stream ended without a terminal event.
    #[error("the stream ended without a terminal event")]
    NoTerminal,
}

impl EventGrammar {
    /// Validates the next event. On a violation the state is unchanged.
    pub fn accept(&mut self, event: &Event) -> Result<(), GrammarError> {
        let name = event.name();
        match (self.phase, event) {
            (Phase::Over, _) => Err(GrammarError::AfterEnd(name)),
            (Phase::Before, Event::RunStarted { .. }) => {
                self.phase = Phase::Running;
                Ok(())
            }
            (Phase::Before, _) => Err(GrammarError::BeforeStart(name)),
            (Phase::Running, _) => self.accept_running(name, event),
        }
    }

    /// Validates an event of a run that has started.
    fn accept_running(&mut self, name: &'static str, event: &Event) -> Result<(), GrammarError> {
        use OpenItem::{Call, Reasoning, ReasoningMessage, Step, Text};
        match event {
            Event::RunStarted { .. } => Err(GrammarError::StartedTwice),
            Event::TextMessageStart { message_id: id, .. } => self.open(name, Text(id.clone())),
            Event::TextMessageContent { message_id: id, delta } => {
                self.check_delta(name, delta, Text(id.clone()))
            }
            Event::TextMessageEnd { message_id: id } => self.close(name, Text(id.clone())),
            Event::ReasoningStart { message_id: id } => self.open(name, Reasoning(id.clone())),
            Event::ReasoningMessageStart { message_id: id, .. } => {
                self.open(name, ReasoningMessage(id.clone()))
            }
            Event::ReasoningMessageContent { message_id: id, delta } => {
                self.check_delta(name, delta, ReasoningMessage(id.clone()))
            }
            Event::ReasoningMessageEnd { message_id: id } => self.close(name, ReasoningMessage(id.clone())),
            Event::ReasoningEnd { message_id: id } => self.close(name, Reasoning(id.clone())),
            Event::ToolCallStart { tool_call_id: id, .. } => self.open(name, Call(id.clone())),
            Event::ToolCallArgs { tool_call_id: id, .. } => self.check_open(name, Call(id.clone())),
            Event::ToolCallEnd { tool_call_id: id } => {
                self.close(name, Call(id.clone()))?;
                self.awaiting_result.insert(id.clone());
                Ok(())
            }
            Event::ToolCallResult { tool_call_id: id, .. } => match self.awaiting_result.remove(id) {
                true => Ok(()),
                false => Err(GrammarError::UnexpectedResult(id.clone())),
            },
            Event::StepStarted { step_name: id } => self.open(name, Step(id.clone())),
            Event::StepFinished { step_name: id } => self.close(name, Step(id.clone())),
            Event::Custom { .. } => Ok(()),
            Event::RunFinished { .. } | Event::RunError { .. } => {
                match self.open_items().last().map(|item| item.id().clone()) {
                    Some(id) if name == "RUN_FINISHED" => return Err(GrammarError::LeftOpen(id)),
                    _ => self.phase = Phase::Over,
                }
                Ok(())
            }
        }
    }

    /// Accepts results of calls that an earlier run has made.
    pub fn await_results(&mut self, calls: impl IntoIterator<Item = Id>) {
        self.awaiting_result.extend(calls);
    }

    /// Checks at the end of a stream that it had a terminal event.
    pub fn finish(&self) -> Result<(), GrammarError> {
        if self.phase == Phase::Over { Ok(()) } else { Err(GrammarError::NoTerminal) }
    }

    /// Checks a complete sequence of events.
    pub fn check<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<(), GrammarError> {
        let mut grammar = Self::default();
        events.into_iter().try_for_each(|event| grammar.accept(event))?;
        grammar.finish()
    }

    /// Returns everything that is open, in the order of opening.
    pub(super) fn open_items(&self) -> Vec<&OpenItem> {
        let mut items: Vec<_> = self.open.iter().collect();
        items.sort_unstable_by_key(|(_, number)| **number);
        items.into_iter().map(|(item, _)| item).collect()
    }

    fn open(&mut self, name: &'static str, open: OpenItem) -> Result<(), GrammarError> {
        if self.open.contains_key(&open) {
            return Err(GrammarError::AlreadyOpen(name, open.id().clone()));
        }
        if self.open.len() + self.awaiting_result.len() >= MAX_OPEN_ITEMS {
            return Err(GrammarError::TooManyOpen(name));
        }
        self.opened += 1;
        self.open.insert(open, self.opened);
        Ok(())
    }

    fn check_open(&mut self, name: &'static str, open: OpenItem) -> Result<(), GrammarError> {
        if self.latest.as_ref() != Some(&open) {
            if !self.open.contains_key(&open) {
                return Err(GrammarError::NotOpen(name, open.id().clone()));
            }
            self.latest = Some(open);
        }
        Ok(())
    }

    fn check_delta(&mut self, name: &'static str, delta: &str, open: OpenItem) -> Result<(), GrammarError> {
        if delta.is_empty() { Err(GrammarError::EmptyDelta(name)) } else { self.check_open(name, open) }
    }

    fn close(&mut self, name: &'static str, open: OpenItem) -> Result<(), GrammarError> {
        if self.open.remove(&open).is_none() {
            return Err(GrammarError::NotOpen(name, open.id().clone()));
        }
        self.latest.take_if(|latest| *latest == open);
        Ok(())
    }
}

impl OpenItem {
    fn id(&self) -> &Id {
        let (Self::Text(id)
        | Self::Reasoning(id)
        | Self::ReasoningMessage(id)
        | Self::Call(id)
        | Self::Step(id)) = self;
        id
    }

    /// Returns the event that closes this.
    pub(super) fn closing_event(&self) -> Event {
        match self.clone() {
            Self::Text(message_id) => Event::TextMessageEnd { message_id },
            Self::Reasoning(message_id) => Event::ReasoningEnd { message_id },
            Self::ReasoningMessage(message_id) => Event::ReasoningMessageEnd { message_id },
            Self::Call(tool_call_id) => Event::ToolCallEnd { tool_call_id },
            Self::Step(step_name) => Event::StepFinished { step_name },
        }
    }
}

impl Event {
    /// Returns the `type` on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RunStarted { .. } => "RUN_STARTED",
            Self::StepStarted { .. } => "STEP_STARTED",
            Self::StepFinished { .. } => "STEP_FINISHED",
            Self::ReasoningStart { .. } => "REASONING_START",
            Self::ReasoningMessageStart { .. } => "REASONING_MESSAGE_START",
            Self::ReasoningMessageContent { .. } => "REASONING_MESSAGE_CONTENT",
            Self::ReasoningMessageEnd { .. } => "REASONING_MESSAGE_END",
            Self::ReasoningEnd { .. } => "REASONING_END",
            Self::TextMessageStart { .. } => "TEXT_MESSAGE_START",
            Self::TextMessageContent { .. } => "TEXT_MESSAGE_CONTENT",
            Self::TextMessageEnd { .. } => "TEXT_MESSAGE_END",
            Self::ToolCallStart { .. } => "TOOL_CALL_START",
            Self::ToolCallArgs { .. } => "TOOL_CALL_ARGS",
            Self::ToolCallEnd { .. } => "TOOL_CALL_END",
            Self::ToolCallResult { .. } => "TOOL_CALL_RESULT",
            Self::Custom { .. } => "CUSTOM",
            Self::RunFinished { .. } => "RUN_FINISHED",
            Self::RunError { .. } => "RUN_ERROR",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AssistantRole, ToolRole};

    fn started() -> Event {
        Event::RunStarted { thread_id: "t".into(), run_id: "r".into() }
    }
    fn finished() -> Event {
        Event::RunFinished {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: None,
            outcome: None,
            usage: vec![],
        }
    }
    fn text(id: &str) -> Event {
        Event::TextMessageStart { message_id: id.into(), role: AssistantRole::Assistant }
    }
    fn content(id: &str, delta: &str) -> Event {
        Event::TextMessageContent { message_id: id.into(), delta: delta.into() }
    }
    fn end(id: &str) -> Event {
        Event::TextMessageEnd { message_id: id.into() }
    }
    fn call(id: &str) -> Event {
        Event::ToolCallStart { tool_call_id: id.into(), tool_call_name: "x".into(), parent_message_id: None }
    }
    fn called(id: &str) -> Event {
        Event::ToolCallEnd { tool_call_id: id.into() }
    }
    fn result(id: &str) -> Event {
        Event::ToolCallResult {
            message_id: "m".into(),
            tool_call_id: id.into(),
            content: String::new(),
            role: ToolRole::Tool,
            metadata: None,
        }
    }

    #[test]
    fn complete_runs_conform() {
        for run in [
            vec![started(), finished()],
            vec![started(), text("a"), content("a", "x"), end("a"), finished()],
            vec![
                started(),
                call("1"),
                call("2"),
                called("2"),
                called("1"),
                result("1"),
                result("2"),
                finished(),
            ],
            vec![
                started(),
                text("a"),
                Event::RunError { message: "m".into(), code: "C".into(), usage: vec![] },
            ],
        ] {
            assert_eq!(EventGrammar::check(&run), Ok(()), "{run:?}");
        }
    }

    #[test]
    fn open_items_and_missing_results_are_bounded_together() {
        let mut grammar = EventGrammar::default();
        grammar.accept(&started()).expect("it starts");
        for index in 0..MAX_OPEN_ITEMS / 2 {
            let id = index.to_string();
            for event in [text(&id), call(&id), called(&id)] {
                grammar.accept(&event).expect("it is within the limit");
            }
        }
        assert_eq!(grammar.accept(&text("more")), Err(GrammarError::TooManyOpen("TEXT_MESSAGE_START")));
        grammar.accept(&result("0")).expect("a result makes room");
        grammar.accept(&text("more")).expect("there is room");
        assert_eq!(grammar.accept(&call("more")), Err(GrammarError::TooManyOpen("TOOL_CALL_START")));
        let order: Vec<String> = (0..MAX_OPEN_ITEMS / 2).map(|index| index.to_string()).collect();
        let open: Vec<&str> = grammar.open_items().into_iter().map(|item| &**item.id()).collect();
        assert_eq!(open[..order.len()], order, "in the order of opening");
        assert_eq!(open.last(), Some(&"more"));
    }

    #[test]
    fn a_delta_after_the_end_of_its_message_is_a_breach() {
        let run = [started(), text("a"), content("a", "x"), end("a"), content("a", "y")];
        assert_eq!(EventGrammar::check(&run), Err(GrammarError::NotOpen("TEXT_MESSAGE_CONTENT", "a".into())));
    }

    #[test]
    fn each_breach_is_named() {
        use GrammarError::*;
        for (run, violation) in [
            (vec![], NoTerminal),
            (vec![started()], NoTerminal),
            (vec![text("a")], BeforeStart("TEXT_MESSAGE_START")),
            (vec![finished()], BeforeStart("RUN_FINISHED")),
            (vec![started(), started()], StartedTwice),
            (vec![started(), finished(), finished()], AfterEnd("RUN_FINISHED")),
            (vec![started(), text("a"), text("a")], AlreadyOpen("TEXT_MESSAGE_START", "a".into())),
            (vec![started(), content("a", "x")], NotOpen("TEXT_MESSAGE_CONTENT", "a".into())),
            (vec![started(), text("a"), content("a", "")], EmptyDelta("TEXT_MESSAGE_CONTENT")),
            (vec![started(), text("a"), end("a"), end("a")], NotOpen("TEXT_MESSAGE_END", "a".into())),
            (vec![started(), text("a"), finished()], LeftOpen("a".into())),
            (vec![started(), call("1"), result("1")], UnexpectedResult("1".into())),
            (vec![started(), call("1"), called("1"), result("1"), result("1")], UnexpectedResult("1".into())),
        ] {
            assert_eq!(EventGrammar::check(&run), Err(violation), "{run:?}");
        }
    }
}
