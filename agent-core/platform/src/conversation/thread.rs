//! Threads: conversations of one owner with one agent.

use std::fmt;

use agent_core::ids::{AgentId, RunId, ThreadId, UserId};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::time;
use super::{ConversationError, NodeId};

/// Maximum length of a title in characters.
pub const MAX_TITLE_CHARS: usize = 200;
/// Maximum size of a thread's metadata as JSON text, in bytes.
pub const MAX_METADATA_BYTES: usize = 16 * 1024;
/// Maximum number of threads or runs on a page.
pub const MAX_PAGE_THREADS: usize = 200;

/// A thread, in its JSON form on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// Id, unique within the owner.
    pub id: ThreadId,
    /// The agent.
    pub agent_id: AgentId,
    /// Title; empty for a thread without messages that was given none.
    pub title: String,
    /// Source of the title.
    pub title_from: TitleSource,
    /// State, for lists.
    pub status: ThreadStatus,
    /// The run that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run_id: Option<RunId>,
    /// The queued runs, in the order in which they will begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queued_run_ids: Vec<RunId>,
    /// The run whose tool calls wait for results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_run_id: Option<RunId>,
    /// Leaf of the path that is shown and continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<NodeId>,
    /// True if the owner has archived the thread.
    pub archived: bool,
    /// Kind of the thread's first call.
    pub origin: ThreadOrigin,
    /// The owner; present only in what the agent's owner is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserId>,
    /// Number of nodes in all branches.
    pub message_count: u32,
    /// The application's own data.
    pub metadata: Map<String, Value>,
    /// Time of creation.
    #[serde(with = "time")]
    pub created_at: Timestamp,
    /// Time of the last message or run.
    #[serde(with = "time")]
    pub last_activity_at: Timestamp,
    /// Time at which retention deletes the thread.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Version, which grows with every change; the first is 1.
    pub version: u64,
}

impl Thread {
    /// Returns the thread's JSON form for a visitor, without the number of its nodes, of which a visitor does not see all.
    pub fn shown_to_visitor(&self) -> Value {
        let mut thread = json!(self);
        if let Some(fields) = thread.as_object_mut() {
            fields.remove("messageCount");
        }
        thread
    }
}

/// Source of a title.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TitleSource {
    /// First line of the first user message.
    #[default]
    Message,
    /// Set by the user or the application.
    User,
    /// Written by a model.
    Model,
}

/// State of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ThreadStatus {
    /// No run is in progress.
    #[default]
    Idle,
    /// A run is running, or queued ones are about to begin.
    Running,
    /// A run asks people for decisions.
    Waiting,
    /// The client has tool calls to answer.
    AwaitingTools,
}

impl ThreadStatus {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Running, Self::Waiting, Self::AwaitingTools];

    /// Returns the name used on the wire and in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::AwaitingTools => "awaitingTools",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// Kind of the call that created a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ThreadOrigin {
    /// A chat.
    #[default]
    Chat,
    /// A scheduled job.
    Job,
    /// A proactive call.
    Proactive,
    /// Created by the client, possibly with imported messages.
    Client,
}

impl ThreadOrigin {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Chat, Self::Job, Self::Proactive, Self::Client];

    /// Returns the name used on the wire and in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Job => "job",
            Self::Proactive => "proactive",
            Self::Client => "client",
        }
    }

    /// Parses a name returned by [`as_str`](Self::as_str).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == name)
    }
}

/// Filter of a list of threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadFilter {
    /// Filters by agent.
    pub agent: Option<AgentId>,
    /// Restricts to archived threads, or to threads that are not archived; `None` for both.
    pub archived: Option<bool>,
    /// Filters by state.
    pub status: Option<ThreadStatus>,
    /// Filters by origin.
    pub origin: Option<ThreadOrigin>,
}

impl ThreadFilter {
    /// Returns true if the thread matches all conditions.
    pub fn matches(&self, thread: &Thread) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == thread.agent_id)
            && self.archived.is_none_or(|archived| archived == thread.archived)
            && self.status.is_none_or(|status| status == thread.status)
            && self.origin.is_none_or(|origin| origin == thread.origin)
    }
}

/// Page of threads, latest activity first.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadPage {
    /// Threads of this page.
    pub threads: Vec<Thread>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl ThreadPage {
    /// Builds a page from threads of one order, or of several that are joined. A store reads one more than `limit` to
    /// detect whether another page follows.
    pub fn from_overfetch(mut threads: Vec<Thread>, limit: usize) -> Self {
        threads.sort_by(|a, b| (b.last_activity_at, &b.id).cmp(&(a.last_activity_at, &a.id)));
        let has_more = threads.len() > limit;
        threads.truncate(limit);
        let next = threads.last().filter(|_| has_more).map(ThreadCursor::of);
        Self { threads, next_cursor: next.map(|cursor| cursor.to_string()) }
    }

    /// Builds a page of visitors' threads in order, as [`from_overfetch`](Self::from_overfetch) does.
    pub fn of_visitors(mut threads: Vec<Thread>, limit: usize) -> Self {
        let has_more = threads.len() > limit;
        threads.truncate(limit);
        let next = threads.last().filter(|_| has_more).map(VisitorThreadCursor::of);
        Self { threads, next_cursor: next.map(|cursor| cursor.to_string()) }
    }
}

/// Position in a list of threads: the activity and id of the last thread that was given. A thread of equal activity and
/// smaller id follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadCursor {
    /// Time of the last activity, in milliseconds since 1970.
    pub active_ms: i64,
    /// The thread's id.
    pub id: ThreadId,
}

impl ThreadCursor {
    /// Returns the position before all threads.
    pub fn start() -> Self {
        Self { active_ms: i64::MAX, id: "".into() }
    }

    /// Returns the position after `thread`.
    pub fn of(thread: &Thread) -> Self {
        Self { active_ms: thread.last_activity_at.as_millisecond(), id: thread.id.clone() }
    }

    /// Parses the cursor of a page; without one, returns the [`start`](Self::start).
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] if no page returned it.
    pub fn parse(cursor: Option<&str>) -> Result<Self, ConversationError> {
        let Some(cursor) = cursor else { return Ok(Self::start()) };
        let parse = || {
            let (time, id) = cursor.split_once('-')?;
            let id = String::from_utf8(hex::decode(id).ok()?).ok()?;
            Some(Self { active_ms: i64::from_str_radix(time, 16).ok()?, id: id.into() })
        };
        parse().ok_or_else(|| ConversationError::Invalid("the cursor is invalid".to_owned()))
    }
}

impl fmt::Display for ThreadCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.active_ms, hex::encode(self.id.as_str()))
    }
}

/// Position in a list of visitors' threads, which is in descending order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VisitorThreadCursor {
    /// Time of the last activity, in milliseconds since 1970.
    pub active_ms: i64,
    /// The visitor.
    pub owner: UserId,
    /// Id of the thread.
    pub id: ThreadId,
}

impl VisitorThreadCursor {
    /// Returns the position before the first thread.
    pub fn start() -> Self {
        Self { active_ms: i64::MAX, owner: "".into(), id: "".into() }
    }

    /// Returns the position of a thread with its owner.
    pub fn of(thread: &Thread) -> Self {
        Self {
            active_ms: thread.last_activity_at.as_millisecond(),
            owner: thread.owner.clone().unwrap_or_else(|| "".into()),
            id: thread.id.clone(),
        }
    }

    /// Parses the cursor of a page; without one, returns the [`start`](Self::start).
    ///
    /// # Errors
    /// [`ConversationError::Invalid`] if no page returned it.
    pub fn parse(cursor: Option<&str>) -> Result<Self, ConversationError> {
        let Some(cursor) = cursor else { return Ok(Self::start()) };
        let text = |part: &str| String::from_utf8(hex::decode(part).ok()?).ok();
        let parse = || {
            let mut parts = cursor.splitn(3, '-');
            let active_ms = i64::from_str_radix(parts.next()?, 16).ok()?;
            let (owner, id) = (text(parts.next()?)?, text(parts.next()?)?);
            Some(Self { active_ms, owner: owner.into(), id: id.into() })
        };
        parse().ok_or_else(|| ConversationError::Invalid("the cursor is invalid".to_owned()))
    }
}

impl fmt::Display for VisitorThreadCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, id) = (hex::encode(self.owner.as_str()), hex::encode(self.id.as_str()));
        write!(f, "{:x}-{owner}-{id}", self.active_ms)
    }
}

/// Changes of a thread; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadPatch {
    /// New title.
    pub title: Option<String>,
    /// Archives the thread, or the reverse.
    pub archived: Option<bool>,
    /// New metadata, in place of the old.
    pub metadata: Option<Map<String, Value>>,
    /// Selects the branch of this node: the head becomes its newest leaf.
    pub head: Option<NodeId>,
    /// Version that the thread must have.
    pub expected_version: Option<u64>,
}

/// Attributes of a thread that is created.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewThread {
    /// Kind of the call that creates it.
    pub origin: ThreadOrigin,
    /// Title; without one, it is the first line of the first user message.
    pub title: Option<String>,
    /// The application's own data.
    pub metadata: Map<String, Value>,
}

/// Returns the time at which retention deletes a thread; `None` for one that is kept.
pub(super) fn expiry(last_activity: Timestamp, retention: Option<SignedDuration>) -> Option<Timestamp> {
    retention.map(|after| time::whole_millis(last_activity.saturating_add(after).unwrap_or(Timestamp::MAX)))
}

/// Checks a title that a client gives.
///
/// # Errors
/// [`ConversationError::Invalid`] if it has more than [`MAX_TITLE_CHARS`] or a NUL.
pub(super) fn check_title(title: &str) -> Result<(), ConversationError> {
    if title.contains('\0') {
        return Err(ConversationError::Invalid("title has a NUL character".to_owned()));
    }
    if title.chars().nth(MAX_TITLE_CHARS).is_some() {
        return Err(ConversationError::Invalid("title has more than 200 characters".to_owned()));
    }
    Ok(())
}

/// Checks metadata that a client gives.
///
/// # Errors
/// [`ConversationError::Invalid`] if it has more than [`MAX_METADATA_BYTES`].
pub(super) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), ConversationError> {
    let text = serde_json::to_vec(metadata).unwrap_or_default();
    match text.len() > MAX_METADATA_BYTES {
        true => Err(ConversationError::Invalid("metadata has more than 16 KiB".to_owned())),
        false => Ok(()),
    }
}
