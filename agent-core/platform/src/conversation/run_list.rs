//! Lists of runs: filter and page.

use agent_core::ids::{AgentId, ThreadId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ConversationError, MAX_PAGE_THREADS, Run, RunState, RunTriggerKind, ThreadOwner};

/// Number of runs after which a call interrupts no further ones, and maximum number of runs on a page of due ones.
pub const MAX_REAPED_RUNS: usize = 100;

/// Filter of a list of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Filters by thread.
    pub thread: Option<ThreadId>,
    /// Filters by agent.
    pub agent: Option<AgentId>,
    /// Filters by state.
    pub state: Option<RunState>,
    /// Filters by kind of cause.
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

/// A page of all owners' runs that wait for no more decisions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DueRuns {
    /// The runs with their owners.
    pub runs: Vec<(ThreadOwner, Run)>,
    /// Cursor of the next page; `None` on the last page.
    pub next_cursor: Option<String>,
}

impl DueRuns {
    /// Builds a page from runs with their positions, in order. One more than [`MAX_REAPED_RUNS`] means that another page
    /// follows. A run that cannot be read is `None`: the page leaves it out, and counts it, so that it does not hide the next
    /// page.
    pub fn from_overfetch<P: Serialize>(found: Vec<(P, ThreadOwner, Option<Run>)>) -> Self {
        let (runs, next_cursor) = owned_page(found, MAX_REAPED_RUNS);
        let readable = runs.into_iter().filter_map(|(owner, run)| Some((owner, run?)));
        Self { runs: readable.collect(), next_cursor }
    }

    /// Parses the position in a cursor.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] if no page returned it.
    pub fn position<P: DeserializeOwned>(cursor: Option<&str>) -> Result<Option<P>, ConversationError> {
        let position = cursor.map(serde_json::from_str).transpose();
        position.map_err(|_| ConversationError::Invalid("the cursor is invalid".to_owned()))
    }
}

/// A page of a company's runs that wait for decisions, newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WaitingRuns {
    /// The runs with their owners.
    pub runs: Vec<(ThreadOwner, Run)>,
    /// Cursor of the next page; `None` on the last page.
    pub next_cursor: Option<String>,
}

impl WaitingRuns {
    /// Builds a page from runs with their positions, in order, of which the one beyond
    /// [`MAX_PAGE_THREADS`](super::MAX_PAGE_THREADS) indicates that there are more.
    pub fn from_overfetch<P: Serialize>(found: Vec<(P, ThreadOwner, Run)>) -> Self {
        let (runs, next_cursor) = owned_page(found, MAX_PAGE_THREADS);
        Self { runs, next_cursor }
    }

    /// Parses the position in a cursor.
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] if no page returned it.
    pub fn position<P: DeserializeOwned>(cursor: Option<&str>) -> Result<Option<P>, ConversationError> {
        DueRuns::position(cursor)
    }
}

/// Runs with their owners, and the cursor of the next page.
type OwnedPage<R> = (Vec<(ThreadOwner, R)>, Option<String>);

/// Splits off what is beyond a page of `limit` runs with their positions.
fn owned_page<P: Serialize, R>(mut found: Vec<(P, ThreadOwner, R)>, limit: usize) -> OwnedPage<R> {
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let next_cursor = last.and_then(|(position, ..)| serde_json::to_string(position).ok());
    (found.into_iter().map(|(_, owner, run)| (owner, run)).collect(), next_cursor)
}

/// Parses the number in a cursor of nodes or runs.
///
/// # Errors
/// [`ConversationError::Invalid`] if no page returned it.
pub fn parse_number_cursor(cursor: &str) -> Result<i64, ConversationError> {
    i64::from_str_radix(cursor, 16)
        .map_err(|_| ConversationError::Invalid("the cursor is invalid".to_owned()))
}
