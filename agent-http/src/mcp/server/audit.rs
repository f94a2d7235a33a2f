//! Who has called which tool of an agent, and how it came out; never with what.
//!
//! A call is noted in memory and written soon after, many at a time, so that no call waits for the store. Where more
//! are made than can be written, or the store does not answer for long, the oldest notes are dropped, and the log says
//! how many. A record holds a sheet of calls, so that noting one is less than a write; an agent's oldest sheets make room
//! for new ones.

mod pages;
mod sheets;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use agent_platform::records::{Collection, Records, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time;

use super::identity::Identity;
use crate::error::HttpError;

pub use pages::Calls;

use sheets::Sheets;

/// The collection of sheets; below it one for each agent.
const CALLS: &str = "toolCalls";
/// How long the first note of a batch waits for others.
const GATHER: Duration = Duration::from_millis(200);
/// How often the writer looks whether the log is still there.
const LOOK: Duration = Duration::from_secs(1);
/// How long the writer waits where the store does not answer: so long after the first time, and twice as long after
/// each further one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the last notes are tried to be written.
const LAST_TRY: Duration = Duration::from_secs(5);
/// The longest name that is noted; one that is no tool's may be of any length.
const MAX_NAME_BYTES: usize = 128;

/// How much is kept, and where.
#[derive(Clone, Copy)]
struct Limits {
    /// Calls on a sheet.
    sheet: usize,
    /// Sheets of an agent.
    sheets: usize,
    /// Notes that wait to be written.
    waiting: usize,
    /// Agents whose last sheet is in memory.
    open: usize,
}

const LIMITS: Limits = Limits { sheet: 100, sheets: 200, waiting: 10_000, open: 256 };

/// A call as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// When it ended, in RFC 3339 and UTC.
    pub at: String,
    /// The person whom the tool worked for.
    pub user_id: String,
    /// Which credential was used: its public identifier.
    pub credential_id: String,
    /// The run, where the credential was made for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The tool's name, as it was asked for.
    pub tool: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How it came out.
    pub outcome: Outcome,
}

/// How a call came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Outcome {
    /// With a result.
    Ok,
    /// With a failure that the tool has told the caller.
    ToolError,
    /// There is no such tool for the caller, or the call was malformed.
    Refused,
    /// The tool took too long.
    TimedOut,
    /// The caller did not wait for the result.
    Cancelled,
    /// A defect of ours.
    Failed,
}

/// Notes calls and writes them to a store.
#[derive(Clone)]
pub struct AuditLog(Arc<Inner>);

struct Inner {
    records: Arc<dyn Records>,
    notes: Mutex<Notes>,
    noted: Notify,
    /// The sheets that are being filled. They are held while they are written, so that one batch is at a time.
    open: tokio::sync::Mutex<HashMap<Agent, Sheets>>,
    limits: Limits,
}

/// By company and agent.
type Agent = (String, String);

#[derive(Default)]
struct Notes {
    waiting: VecDeque<(Agent, Call)>,
    dropped: usize,
}

impl AuditLog {
    /// A log in `records`. It writes in a task of its own, as long as it lives; [`Self::flush`] it at the end.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self::bounded(records, LIMITS)
    }

    fn bounded(records: Arc<dyn Records>, limits: Limits) -> Self {
        let inner = Arc::new(Inner {
            records,
            notes: Mutex::default(),
            noted: Notify::new(),
            open: tokio::sync::Mutex::default(),
            limits,
        });
        tokio::spawn(write(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Begins a note. Dropped before its call has ended, it says that the call was cancelled.
    pub(super) fn begin(&self, who: &Identity, tool: &str) -> Entry {
        let end = tool.floor_char_boundary(MAX_NAME_BYTES);
        let call = Call {
            at: String::new(),
            user_id: who.context.user_id.clone(),
            credential_id: who.id.clone(),
            run_id: Some(who.context.run_id.clone()).filter(|id| !id.is_empty()),
            tool: tool[..end].to_owned(),
            duration_ms: 0,
            outcome: Outcome::Cancelled,
        };
        let agent = (who.context.company_id.clone(), who.context.agent_id.clone());
        Entry { log: self.clone(), since: Instant::now(), note: Some((agent, call)) }
    }

    /// Writes what has been noted so far. What a store has not taken after five seconds goes on waiting.
    pub async fn flush(&self) {
        let written = async {
            while self.0.write_all().await.is_err() {
                time::sleep(FIRST_PAUSE).await;
            }
        };
        if time::timeout(LAST_TRY, written).await.is_err() {
            tracing::warn!("the last tool calls are not noted");
        }
    }

    /// One page of an agent's calls, the newest first; 50 where `limit` is absent, and at most 200.
    ///
    /// # Errors
    ///
    /// 400 for a cursor that is none of ours; 500 where the store fails.
    pub async fn calls(
        &self,
        company_id: &str,
        agent_id: &str,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Calls, HttpError> {
        let sheets = collection(company_id, agent_id).map_err(HttpError::internal)?;
        pages::read(&*self.0.records, &sheets, limit, cursor).await
    }
}

/// A note of a call that is under way.
pub(super) struct Entry {
    log: AuditLog,
    since: Instant,
    note: Option<(Agent, Call)>,
}

impl Entry {
    /// Says how the call came out.
    pub(super) fn ended(mut self, outcome: Outcome) {
        if let Some((_, call)) = &mut self.note {
            call.outcome = outcome;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some((agent, mut call)) = self.note.take() else { return };
        call.at = rfc3339(SystemTime::now());
        call.duration_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.log.0.note(agent, call);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, agent: Agent, call: Call) {
        let mut notes = self.lock();
        if notes.waiting.len() >= self.limits.waiting {
            notes.waiting.pop_front();
            notes.dropped += 1;
        }
        notes.waiting.push_back((agent, call));
        drop(notes);
        self.noted.notify_one();
    }

    /// Takes the oldest notes, each agent's together.
    fn take_batch(&self) -> HashMap<Agent, Vec<Call>> {
        let mut notes = self.lock();
        let dropped = std::mem::take(&mut notes.dropped);
        if dropped > 0 {
            tracing::warn!(dropped, "the oldest tool calls could not be noted in time");
        }
        let count = notes.waiting.len().min(2 * self.limits.sheet);
        let mut batch: HashMap<Agent, Vec<Call>> = HashMap::new();
        for (agent, call) in notes.waiting.drain(..count) {
            batch.entry(agent).or_default().push(call);
        }
        batch
    }

    /// Puts notes back that were taken, as many as there is room for.
    fn put_back(&self, batch: impl IntoIterator<Item = (Agent, Vec<Call>)>) {
        let mut notes = self.lock();
        for (agent, calls) in batch {
            for call in calls.into_iter().rev() {
                if notes.waiting.len() < self.limits.waiting {
                    notes.waiting.push_front((agent.clone(), call));
                } else {
                    notes.dropped += 1;
                }
            }
        }
    }

    /// Writes all notes.
    ///
    /// # Errors
    ///
    /// The store does not answer. What is not written waits for the next time.
    async fn write_all(&self) -> Result<(), StoreError> {
        while self.write_batch().await? {}
        Ok(())
    }

    /// Writes the oldest notes and says whether there may be more.
    async fn write_batch(&self) -> Result<bool, StoreError> {
        let mut open = self.open.lock().await;
        let batch = self.take_batch();
        if batch.is_empty() {
            return Ok(false);
        }
        if open.len() > self.limits.open {
            open.clear();
        }
        let mut batch = batch.into_iter();
        while let Some((agent, mut calls)) = batch.next() {
            match self.write_calls(&mut open, &agent, &mut calls).await {
                Ok(()) => {}
                Err(error @ StoreError::Unavailable(_)) => {
                    self.put_back(batch.chain([(agent, calls)]));
                    return Err(error);
                }
                // The store would not take them another time either.
                Err(error) => {
                    open.remove(&agent);
                    tracing::warn!(%error, count = calls.len(), "tool calls could not be noted");
                }
            }
        }
        Ok(true)
    }

    async fn write_calls(
        &self,
        open: &mut HashMap<Agent, Sheets>,
        agent: &Agent,
        calls: &mut Vec<Call>,
    ) -> Result<(), StoreError> {
        let (records, limits) = (&*self.records, &self.limits);
        let sheets = match open.entry(agent.clone()) {
            hash_map::Entry::Occupied(sheets) => sheets.into_mut(),
            hash_map::Entry::Vacant(place) => {
                place.insert(Sheets::open(records, &agent.0, &agent.1, limits).await?)
            }
        };
        sheets.write(records, calls, limits).await
    }
}

/// Writes batches until the log is dropped.
async fn write(log: Weak<Inner>) {
    let mut pause = None;
    loop {
        if let Some(pause) = pause {
            time::sleep(pause).await;
        }
        // Between two batches nothing keeps the log alive.
        let Some(inner) = log.upgrade() else { return };
        if pause.is_none() {
            if time::timeout(LOOK, inner.noted.notified()).await.is_err() {
                continue;
            }
            time::sleep(GATHER).await;
        }
        pause = match inner.write_all().await {
            Ok(()) => None,
            Err(error) => {
                let next = pause.map_or(FIRST_PAUSE, |pause| LONGEST_PAUSE.min(2 * pause));
                tracing::warn!(%error, again_in = ?next, "tool calls cannot be noted, and wait");
                Some(next)
            }
        };
    }
}

fn collection(company_id: &str, agent_id: &str) -> Result<Collection, StoreError> {
    Collection::new(company_id, CALLS)?.within(agent_id)
}

fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| format!("{time:.3}")).unwrap_or_default()
}
