//! Items of a backend's source of events.

use super::{Event, RunOutcome, RunResult};
use crate::message::Usage;

/// One item of the source behind an [`EventStream`](super::EventStream).
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEvent {
    /// An event within the run: any but `RUN_STARTED`, `RUN_FINISHED` and `RUN_ERROR`.
    Event(Event),
    /// The end of the run. Items after it are ignored.
    End(RunEnd),
}

/// End of a run as its source reports it. The stream adds the run's identifiers and closes open items.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    /// The answer is complete, or the run was cancelled.
    Finished {
        /// Result of the run, if known.
        result: Option<RunResult>,
        /// Outcome other than success.
        outcome: Option<RunOutcome>,
        /// Token usage per model.
        usage: Vec<Usage>,
    },
    /// Another service reported an error as the end of its run; message and code are passed on.
    Failed {
        /// Public message.
        message: String,
        /// Machine-readable error code.
        code: String,
        /// Token usage up to the error, per model.
        usage: Vec<Usage>,
    },
}

impl RunEnd {
    /// Returns a successful end without usage.
    pub fn success() -> Self {
        Self::Finished { result: None, outcome: None, usage: Vec::new() }
    }

    /// Returns the end of a run that its caller has cancelled, without usage.
    pub fn cancelled() -> Self {
        Self::Finished { result: None, outcome: Some(RunOutcome::Cancelled), usage: Vec::new() }
    }
}

impl From<RunEnd> for SourceEvent {
    fn from(end: RunEnd) -> Self {
        Self::End(end)
    }
}

/// Converts an event as another service sent it: its terminal events become the end of the run.
impl From<Event> for SourceEvent {
    fn from(event: Event) -> Self {
        Self::End(match event {
            Event::RunFinished { result, outcome, usage, .. } => RunEnd::Finished { result, outcome, usage },
            Event::RunError { message, code, usage } => RunEnd::Failed { message, code, usage },
            event => return Self::Event(event),
        })
    }
}
