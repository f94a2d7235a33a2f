//! Mapping between conversations and their table rows, common to all databases.
//!
//! The column `body` of a thread and of a run has all of it as JSON; the other columns are derived from it on every
//! write and exist for queries. The column `body` of a node has its message. The format is part of the schema version.

use std::sync::Arc;

use agent_platform::conversation::commit::StoredRun;
use agent_platform::conversation::{
    ActiveThread, AgentFeedback, ContentHash, ConversationError, Feedback, LogChunk, MAX_CONTEXT_BYTES,
    NodeContent, NodeLink, NodeMessage, NodeOrigin, NodeRole, NodeStatus, Run, RunKey, SentContext,
    StoredNode, Thread, ThreadKey, ThreadOwner, TurnContext,
};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use serde::de::{DeserializeOwned, Error as _};

/// Maximum number of nodes that one commit deletes, so that other writers do not wait long.
pub(crate) const DELETE_BATCH_NODES: usize = 500;
/// Maximum number of chunks of logs that one commit of a thread's deletion deletes.
pub(crate) const DELETE_BATCH_CHUNKS: usize = 2_000;
/// Size of logs at which a commit deletes or reads no further log, in bytes.
pub(crate) const BATCH_LOG_BYTES: usize = 8 << 20;

/// Number in the table of logs of the row with a run's inputs, which is not an event: selections of events begin at 0. The row of a
/// run that must not store its inputs at its end is empty.
pub(crate) const INPUTS_NUMBER: i64 = -1;

/// A row of the table of threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadRow {
    /// Number that nodes and runs refer to; not read for a row that is written.
    pub(crate) n: i64,
    pub(crate) company: String,
    pub(crate) owner: String,
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) archived: bool,
    pub(crate) status: String,
    pub(crate) origin: String,
    pub(crate) active_ms: i64,
    pub(crate) body: String,
}

impl ThreadRow {
    pub(crate) fn new(n: i64, key: &ThreadKey, thread: &Thread) -> Result<Self, StoreError> {
        Ok(Self {
            n,
            company: key.company.to_string(),
            owner: key.owner.to_string(),
            id: thread.id.to_string(),
            agent: thread.agent_id.to_string(),
            archived: thread.archived,
            status: thread.status.as_str().to_owned(),
            origin: thread.origin.as_str().to_owned(),
            active_ms: thread.last_activity_at.as_millisecond(),
            body: to_json(thread)?,
        })
    }
}

/// A row of the table of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) thread: i64,
    pub(crate) seq: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) id: String,
    pub(crate) client_id: Option<String>,
    pub(crate) turn: String,
    pub(crate) run: Option<String>,
    pub(crate) role: String,
    pub(crate) status: String,
    pub(crate) origin: String,
    pub(crate) at_ms: i64,
    /// Hash of role and content in hexadecimal.
    pub(crate) sha: String,
    pub(crate) body: String,
}

impl NodeRow {
    pub(crate) fn new(thread: i64, node: &StoredNode) -> Result<Self, StoreError> {
        let link = &node.link;
        Ok(Self {
            thread,
            seq: link.seq.into(),
            parent: link.parent.map(i64::from),
            id: link.id.to_string(),
            client_id: link.client_id.clone(),
            turn: link.turn_id.to_string(),
            run: node.run_id.as_ref().map(ToString::to_string),
            role: link.role.as_str().to_owned(),
            status: link.status.as_str().to_owned(),
            origin: node.origin.as_str().to_owned(),
            at_ms: node.created_at.as_millisecond(),
            sha: link.hash.to_hex(),
            body: to_json(&node.message)?,
        })
    }

    /// Returns the node, whose parent has the id `parent_id`, with the column `body` of its feedback.
    pub(crate) fn into_node(
        self,
        parent_id: Option<String>,
        feedback: Option<&str>,
    ) -> Result<StoredNode, StoreError> {
        let message = parse_message(&self.role, &self.id, &self.body)?;
        let run_id = self.run.as_deref().map(Into::into);
        let created_at = from_millis(self.at_ms);
        let feedback = feedback.map(|body| parse_feedback(&self.id, body)).transpose()?;
        let link = LinkColumns {
            seq: self.seq,
            parent: self.parent,
            id: &self.id,
            client_id: self.client_id.as_deref(),
            turn: &self.turn,
            role: &self.role,
            status: &self.status,
            sha: &self.sha,
            origin: &self.origin,
        };
        let (link, parent_id) = (link.parse(None)?, parent_id.map(Into::into));
        let origin = link.origin;
        Ok(StoredNode { link, parent_id, run_id, origin, created_at, feedback, message })
    }
}

/// Columns of a node's identity, as they are read.
pub(crate) struct LinkColumns<'r> {
    pub(crate) seq: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) id: &'r str,
    pub(crate) client_id: Option<&'r str>,
    pub(crate) turn: &'r str,
    pub(crate) role: &'r str,
    pub(crate) status: &'r str,
    pub(crate) sha: &'r str,
    pub(crate) origin: &'r str,
}

impl LinkColumns<'_> {
    /// Names of the columns, in the order of the fields.
    pub(crate) const NAMES: &'static str = "seq, parent, id, client_id, turn, role, status, sha, origin";

    /// Parses a row. `neighbour` is the node of the row before, which shares the id of the turn if it is the same.
    pub(crate) fn parse(self, neighbour: Option<&NodeLink>) -> Result<NodeLink, StoreError> {
        let id: Arc<str> = self.id.into();
        let same_turn = neighbour.map(|link| &link.turn_id).filter(|turn| turn.as_str() == self.turn);
        let turn_id = match same_turn {
            Some(turn) => turn.clone(),
            // A node without a run is a separate turn.
            None if self.turn == self.id => Arc::clone(&id).into(),
            None => self.turn.into(),
        };
        Ok(NodeLink {
            seq: to_seq(self.seq),
            parent: self.parent.map(to_seq),
            id: id.into(),
            client_id: self.client_id.map(str::to_owned),
            turn_id,
            role: parse_name(NodeRole::from_name, self.role, self.id)?,
            status: parse_name(NodeStatus::from_name, self.status, self.id)?,
            origin: parse_name(NodeOrigin::from_name, self.origin, self.id)?,
            hash: ContentHash::from_hex(self.sha),
        })
    }
}

/// Columns of a node's content, as they are read.
pub(crate) struct ContentColumns<'r> {
    pub(crate) seq: i64,
    pub(crate) id: &'r str,
    pub(crate) role: &'r str,
    pub(crate) status: &'r str,
    pub(crate) origin: &'r str,
    pub(crate) body: &'r str,
}

impl ContentColumns<'_> {
    /// Names of the columns, in the order of the fields.
    pub(crate) const NAMES: &'static str = "seq, id, role, status, origin, body";

    pub(crate) fn parse(self) -> Result<NodeContent, StoreError> {
        Ok(NodeContent {
            seq: to_seq(self.seq),
            status: parse_name(NodeStatus::from_name, self.status, self.id)?,
            origin: parse_name(NodeOrigin::from_name, self.origin, self.id)?,
            message: parse_message(self.role, self.id, self.body)?,
        })
    }
}

/// Parses the column `body` of the node `id`. The role gives the kind of message: serde would copy the content to find
/// the kind.
fn parse_message(role: &str, id: &str, body: &str) -> Result<NodeMessage, StoreError> {
    match role == NodeRole::Reasoning.as_str() {
        true => from_json("nodes", id, body).map(NodeMessage::Reasoning),
        false => from_json("nodes", id, body).map(NodeMessage::Message),
    }
}

/// Parses a name of the node `id`.
fn parse_name<T>(parse: fn(&str) -> Option<T>, name: &str, id: &str) -> Result<T, StoreError> {
    parse(name).ok_or_else(|| unknown("nodes", id))
}

/// Position of a run among those of all owners: a time in milliseconds, the first sort key of some lists, and its number.
pub(crate) type RunPosition = (i64, i64);

/// A run of any owner, and its position.
pub(crate) type PlacedRun = (RunPosition, RunKey);

/// A run that is due, with its owner and its position; `None` if it cannot be read.
pub(crate) type DueRun = (RunPosition, ThreadOwner, Option<Run>);

/// A run with its owner and its number among all runs.
pub(crate) type NumberedRun = (i64, ThreadOwner, Run);

/// The position before those of all runs.
pub(crate) const FIRST_POSITION: RunPosition = (i64::MIN, i64::MIN);

/// A row of the table of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunRow {
    /// Number in the order of beginnings; not read for a row that is written.
    pub(crate) n: i64,
    pub(crate) company: String,
    pub(crate) owner: String,
    pub(crate) id: String,
    pub(crate) thread: i64,
    pub(crate) agent: String,
    pub(crate) state: String,
    pub(crate) kind: String,
    pub(crate) process: String,
    pub(crate) body: String,
    /// Number among the owner's runs in the order of beginnings; not read for a row that is written.
    pub(crate) seq: i64,
    pub(crate) log_until_ms: Option<i64>,
    pub(crate) due_ms: Option<i64>,
}

impl RunRow {
    pub(crate) fn new(
        n: i64,
        owner: &ThreadOwner,
        thread: i64,
        stored: &StoredRun,
    ) -> Result<Self, StoreError> {
        let StoredRun { run, process } = stored;
        Ok(Self {
            n,
            company: owner.company.to_string(),
            owner: owner.owner.to_string(),
            id: run.id.to_string(),
            thread,
            agent: run.agent_id.to_string(),
            state: run.state.as_str().to_owned(),
            kind: run.trigger.kind.as_str().to_owned(),
            process: process.clone(),
            body: to_json(run)?,
            seq: 0,
            log_until_ms: log_until_ms(run),
            due_ms: due_ms(run),
        })
    }
}

/// A row of the table of feedback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FeedbackRow {
    pub(crate) thread: i64,
    pub(crate) seq: i64,
    pub(crate) company: String,
    pub(crate) agent: String,
    pub(crate) at_ms: i64,
    pub(crate) id: String,
    /// True if the agent's owner may read the rated message.
    pub(crate) shared: bool,
    pub(crate) body: String,
}

impl FeedbackRow {
    pub(crate) fn new(
        thread: i64,
        seq: u32,
        company: &str,
        agent: &str,
        feedback: &Feedback,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            thread,
            seq: seq.into(),
            company: company.to_owned(),
            agent: agent.to_owned(),
            at_ms: feedback.created_at.as_millisecond(),
            id: feedback.id.clone(),
            shared: feedback.share,
            body: to_json(feedback)?,
        })
    }
}

/// A row of the table of contexts, as copies of databases need it.
#[cfg(all(feature = "postgres", feature = "sqlite"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContextRow {
    pub(crate) thread: i64,
    pub(crate) seq: i64,
    pub(crate) turn: String,
    /// The text, as a JSON string: PostgreSQL's text has no NUL.
    pub(crate) body: String,
}

/// Returns the column `body` of a context; `None` for a context that is too long to be stored.
pub(crate) fn context_body(sent: &SentContext) -> Result<Option<String>, StoreError> {
    match sent.text.len() <= MAX_CONTEXT_BYTES {
        true => to_json(&*sent.text).map(Some),
        false => Ok(None),
    }
}

/// Parses a context of the node `node`.
pub(crate) fn parse_context(node: &str, turn: &str, body: &str) -> Result<TurnContext, StoreError> {
    let text: String = from_json("turn_contexts", node, body)?;
    Ok(TurnContext { turn_id: turn.into(), sent: SentContext { node: node.into(), text: text.into() } })
}

/// Parses a feedback with the rated message, if that is read too.
pub(crate) fn parse_agent_feedback(body: &str, message: Option<&str>) -> Result<AgentFeedback, StoreError> {
    let feedback = parse_feedback("", body)?;
    let message: Option<NodeMessage> =
        message.map(|message| from_json("nodes", &feedback.id, message)).transpose()?;
    Ok(AgentFeedback::new(feedback, message.as_ref()))
}

fn parse_feedback(id: &str, body: &str) -> Result<Feedback, StoreError> {
    from_json("feedback", id, body)
}

/// A row of the table of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogRow {
    pub(crate) run: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) body: Vec<u8>,
}

impl LogRow {
    pub(crate) fn into_chunk(self) -> LogChunk {
        LogChunk { first: from_number(self.first), last: from_number(self.last), body: self.body }
    }
}

/// Chunks of a thread's logs that were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeletedLogs {
    pub(crate) bytes: usize,
    /// True if the logs have more chunks.
    pub(crate) has_more: bool,
}

/// Returns the number of an event as the column has it.
pub(crate) fn to_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_number(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Returns the column `log_until_ms` of a run.
pub(crate) fn log_until_ms(run: &Run) -> Option<i64> {
    run.events.until.map(Timestamp::as_millisecond)
}

/// Returns the column `due_ms` of a run.
pub(crate) fn due_ms(run: &Run) -> Option<i64> {
    run.due_at().map(Timestamp::as_millisecond)
}

/// Returns a run as clients see it: the number of events of a live one is that of its stored events, of which `last` is
/// the last.
pub(crate) fn with_stored_events(mut run: Run, last: Option<i64>) -> Run {
    if run.state.is_live() {
        // The row of the inputs is not an event.
        run.events.count = last.filter(|last| *last >= 0).map_or(0, |last| from_number(last) + 1);
    }
    run
}

/// Parses the column `body` of a thread.
pub(crate) fn parse_thread(id: &str, body: &str) -> Result<Thread, StoreError> {
    from_json("threads", id, body)
}

/// Returns the columns of a thread that retention needs.
pub(crate) fn active_thread(company: &str, owner: &str, agent: &str, active_ms: i64) -> ActiveThread {
    ActiveThread {
        owner: ThreadOwner::new(company, owner),
        agent_id: agent.into(),
        last_activity_at: Timestamp::from_millisecond(active_ms).unwrap_or_default(),
    }
}

/// Parses the column `body` of a run.
pub(crate) fn parse_run(id: &str, body: &str) -> Result<Run, StoreError> {
    from_json("runs", id, body)
}

/// Parses a run in a list of the runs of all companies. A run that cannot be read is logged and is `None`, so that
/// it does not hide the others.
pub(crate) fn parse_run_of_any(id: &str, body: &str) -> Option<Run> {
    let parsed = parse_run(id, body);
    parsed.inspect_err(|error| tracing::error!(run = id, %error, "the run's row cannot be read")).ok()
}

pub(crate) fn to_seq(seq: i64) -> u32 {
    u32::try_from(seq).unwrap_or_default()
}

pub(crate) fn from_millis(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or_default()
}

fn to_json(value: &(impl serde::Serialize + ?Sized)) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Invalid(error.to_string()))
}

fn from_json<T: DeserializeOwned>(table: &str, id: &str, body: &str) -> Result<T, StoreError> {
    serde_json::from_str(body).map_err(|source| malformed(table, id, source))
}

fn unknown(table: &str, id: &str) -> StoreError {
    malformed(table, id, serde_json::Error::custom("unknown name"))
}

fn malformed(table: &str, id: &str, source: serde_json::Error) -> StoreError {
    StoreError::Malformed { collection: table.to_owned(), id: id.to_owned(), source }
}

/// Error of an operation on conversations: rejected because of the rows, or failed in the database.
#[derive(Debug)]
pub(crate) enum RowError<F> {
    Rejected(ConversationError),
    Failed(F),
}

impl<F> From<ConversationError> for RowError<F> {
    fn from(error: ConversationError) -> Self {
        Self::Rejected(error)
    }
}

impl<F> From<StoreError> for RowError<F> {
    fn from(error: StoreError) -> Self {
        Self::Rejected(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_turn_share_its_id() {
        let read = |seq: i64, id: &'static str, turn: &'static str, neighbour: Option<&NodeLink>| {
            let (role, status) = (NodeRole::User.as_str(), NodeStatus::Complete.as_str());
            let (sha, origin) = ("", NodeOrigin::User.as_str());
            let (parent, client_id) = (None, None);
            let columns = LinkColumns { seq, parent, id, client_id, turn, role, status, sha, origin };
            let link = columns.parse(neighbour).expect("a node");
            assert_eq!((link.id.as_str(), link.turn_id.as_str()), (id, turn));
            link
        };
        let is_shared = |one: &str, other: &str| std::ptr::eq(one, other);
        let imported = read(0, "n0", "n0", None);
        assert!(is_shared(&imported.turn_id, imported.id.as_str()));
        let question = read(1, "n1", "r", Some(&imported));
        let answer = read(2, "n2", "r", Some(&question));
        assert!(is_shared(&question.turn_id, &answer.turn_id));
        read(3, "n3", "q", Some(&answer));
    }
}
