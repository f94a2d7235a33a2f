//! Logs of runs as a store keeps them, and the signals between processes that concern live runs.

use agent_core::ids::RunId;
use jiff::Timestamp;

use super::time::whole_millis;
use super::{CancelReason, LogChunk, Run, RunLogState, ThreadOwner};

/// Number of runs after whose logs a call deletes no further ones.
pub const MAX_TRIMMED_LOGS: usize = 100;
/// Maximum size of a page of a log, in bytes: once it is reached, no further chunk is added.
pub const MAX_LOG_PAGE_BYTES: usize = 1 << 20;

/// Owner and id of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// The owner.
    pub owner: ThreadOwner,
    /// The run's id.
    pub id: RunId,
}

impl Run {
    /// Returns true if the log of the run can be read at `now`: the run is live, or its log is still kept.
    pub fn has_log(&self, now: Timestamp) -> bool {
        let is_kept = self.events.count > 0 && self.events.until.is_some_and(|until| until > now);
        self.state.is_live() || is_kept
    }
}

/// The current time, and the time until which logs that end now are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunClock {
    /// Current time.
    pub now: Timestamp,
    /// Time until which a log is kept that ends now.
    pub log_until: Timestamp,
}

/// A chunk of a run's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunChunk {
    /// The run.
    pub run: RunKey,
    /// The chunk.
    pub chunk: LogChunk,
}

/// Outcome of appending chunks to the logs of runs. Logs of runs that it does not name were stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppendedEvents {
    /// Runs that the process no longer has.
    pub lost: Vec<RunKey>,
    /// Runs whose rows another transaction has locked. The caller appends their chunks again.
    pub locked: Vec<RunKey>,
}

/// A run with a part of its log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogPage {
    /// The run; the number of events of a live one is that of its stored events.
    pub run: Run,
    /// Chunks in order.
    pub chunks: Vec<LogChunk>,
}

/// Signal to the process of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunSignal {
    /// Another process reads the log, so each event must be stored soon.
    Watch,
    /// The run is the next of its thread's queue. Requires an action of the process.
    Start,
    /// The run must be cancelled, for this reason. Requires an action of the process, and is kept until the run has ended, since a run
    /// that would wait for decisions is cancelled by the commit of its end.
    Cancel(CancelReason),
}

impl RunSignal {
    /// Returns the name used in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Start => "start",
            Self::Cancel(reason) => reason.as_str(),
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "watch" => Some(Self::Watch),
            "start" => Some(Self::Start),
            name => CancelReason::from_name(name).map(Self::Cancel),
        }
    }

    /// Returns the reason for which the signal cancels the run, if it does.
    pub fn cancel_reason(self) -> Option<CancelReason> {
        match self {
            Self::Cancel(reason) => Some(reason),
            Self::Watch | Self::Start => None,
        }
    }

    /// Returns true if the signal is delivered once; other signals are delivered until they expire or the run ends.
    pub fn is_delivered_once(self) -> bool {
        self == Self::Start
    }
}

/// End of a run's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// The last chunks, with the terminal event; none if the run has no log. One that the log has is left out.
    pub chunks: Vec<LogChunk>,
    /// True if events are missing in the log.
    pub is_incomplete: bool,
    /// Time until which the log is kept.
    pub until: Option<Timestamp>,
    /// Inputs of the run, if they are recorded. They are part of the log, and no event.
    pub inputs: Option<Vec<u8>>,
}

impl LogEnd {
    /// Returns the state of the log.
    pub(super) fn log_state(&self) -> RunLogState {
        RunLogState {
            count: self.chunks.last().map_or(0, |chunk| chunk.last + 1),
            complete: !self.is_incomplete && !self.chunks.is_empty(),
            until: self.until.map(whole_millis),
        }
    }
}
