//! Lists of runs: filter and page.

use agent_core::ids::{AgentId, ThreadId};
use serde::Serialize;

use super::{Run, RunState, RunTriggerKind};

/// Filter of a list of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Restricts to a thread.
    pub thread: Option<ThreadId>,
    /// Restricts to an agent.
    pub agent: Option<AgentId>,
    /// Restricts to a state.
    pub state: Option<RunState>,
    /// Restricts to a kind of cause.
    pub kind: Option<RunTriggerKind>,
}

impl RunFilter {
    /// Returns true if the run matches all conditions.
    pub fn matches(&self, run: &Run) -> bool {
        self.thread.as_ref().is_none_or(|thread| *thread == run.thread_id)
            && self.agent.as_ref().is_none_or(|agent| *agent == run.agent_id)
            && self.state.is_none_or(|state| state == run.state)
            && self.kind.is_none_or(|kind| kind == run.trigger.kind)
    }
}

/// Page of runs, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    /// Runs of this page.
    pub runs: Vec<Run>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl RunPage {
    /// Builds a page from runs with their numbers, in order. A store reads one more than `limit` to detect whether
    /// another page follows.
    pub fn from_overfetch(mut runs: Vec<(i64, Run)>, limit: usize) -> Self {
        let has_more = runs.len() > limit;
        runs.truncate(limit);
        let next_cursor = runs.last().filter(|_| has_more).map(|(number, _)| format!("{number:x}"));
        Self { runs: runs.into_iter().map(|(_, run)| run).collect(), next_cursor }
    }
}
