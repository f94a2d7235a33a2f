//! Who has called which tool of an agent, and how it came out; never with what.
//!
//! A call is noted in memory and written soon after, many at a time, so that no call waits for the store. Where more
//! are made than can be written the oldest notes are dropped, and the log says how many. A record holds a sheet of
//! calls, so that noting one is less than a write; an agent's oldest sheets make room for new ones.

mod pages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use agent_core::records::{Collection, List, MAX_PAGE, Precondition, Records, StoreError, Write};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time;

use super::identity::Identity;
use crate::error::HttpError;

pub use pages::Calls;

/// The collection of sheets; below it one for each agent.
const CALLS: &str = "toolCalls";
/// How long the first note of a batch waits for others.
const GATHER: Duration = Duration::from_millis(200);
/// How often the writer looks whether the log is still there.
const LOOK: Duration = Duration::from_secs(1);
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
    open: tokio::sync::Mutex<HashMap<Agent, OpenSheets>>,
    limits: Limits,
}

/// By company and agent.
type Agent = (String, String);

#[derive(Default)]
struct Notes {
    waiting: VecDeque<(Agent, Call)>,
    dropped: usize,
}

/// An agent's last sheet, and how many there are with it.
struct OpenSheets {
    id: String,
    calls: Vec<Call>,
    count: usize,
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

    /// Writes what has been noted so far.
    pub async fn flush(&self) {
        while self.0.write_batch().await {}
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

    /// Writes the oldest notes and says whether there may be more.
    async fn write_batch(&self) -> bool {
        let mut open = self.open.lock().await;
        let (batch, dropped) = {
            let mut notes = self.lock();
            let count = notes.waiting.len().min(2 * self.limits.sheet);
            (notes.waiting.drain(..count).collect::<Vec<_>>(), std::mem::take(&mut notes.dropped))
        };
        if dropped > 0 {
            tracing::warn!(dropped, "tool calls were made faster than they could be noted");
        }
        if batch.is_empty() {
            return false;
        }
        let mut of_agents: BTreeMap<Agent, Vec<Call>> = BTreeMap::new();
        for (agent, call) in batch {
            of_agents.entry(agent).or_default().push(call);
        }
        if open.len() > self.limits.open {
            open.clear();
        }
        for (agent, calls) in of_agents {
            let count = calls.len();
            let sheets = open.remove(&agent);
            match self.write_calls(&agent, sheets, calls).await {
                // Should a write fail, the next one begins a new sheet.
                Err(error) => tracing::warn!(%error, count, "tool calls could not be noted"),
                Ok(sheets) => drop(open.insert(agent, sheets)),
            }
        }
        true
    }

    async fn write_calls(
        &self,
        agent: &Agent,
        sheets: Option<OpenSheets>,
        calls: Vec<Call>,
    ) -> Result<OpenSheets, StoreError> {
        let collection = collection(&agent.0, &agent.1)?;
        let mut last = match sheets {
            Some(sheets) => sheets,
            None => {
                let before = count(&*self.records, &collection, self.limits.sheets).await?;
                OpenSheets { id: agent_core::new_id(), calls: Vec::new(), count: before + 1 }
            }
        };
        let mut writes = Vec::new();
        let put = |sheet: &OpenSheets| {
            let value = serde_json::value::to_raw_value(&sheet.calls).expect("calls serialise").into();
            let key = collection.key(sheet.id.as_str())?;
            Ok::<_, StoreError>(Write::Put { key, value, precondition: Precondition::Any })
        };
        for call in calls {
            if last.calls.len() >= self.limits.sheet {
                writes.push(put(&last)?);
                last = OpenSheets { id: agent_core::new_id(), calls: Vec::new(), count: last.count + 1 };
            }
            last.calls.push(call);
        }
        writes.push(put(&last)?);
        let surplus = last.count.saturating_sub(self.limits.sheets);
        writes.extend(oldest(&*self.records, &collection, surplus).await?);
        self.records.commit(writes).await?;
        last.count -= surplus;
        Ok(last)
    }
}

/// Writes batches until the log is dropped.
async fn write(log: Weak<Inner>) {
    loop {
        // Between two batches nothing keeps the log alive.
        let Some(inner) = log.upgrade() else { return };
        let more = time::timeout(LOOK, inner.noted.notified()).await.is_ok();
        if more {
            time::sleep(GATHER).await;
            while inner.write_batch().await {}
        }
    }
}

fn collection(company_id: &str, agent_id: &str) -> Result<Collection, StoreError> {
    Collection::new(company_id, CALLS)?.within(agent_id)
}

/// How many records there are, up to a little more than `most`.
async fn count(records: &dyn Records, collection: &Collection, most: usize) -> Result<usize, StoreError> {
    let mut list = List { limit: Some(MAX_PAGE), ..List::default() };
    let mut count = 0;
    loop {
        let page = records.list(collection, &list).await?;
        count += page.records.len();
        list.cursor = page.next_cursor;
        if list.cursor.is_none() || count > most {
            return Ok(count);
        }
    }
}

/// Removals of the oldest records.
async fn oldest(
    records: &dyn Records,
    collection: &Collection,
    count: usize,
) -> Result<Vec<Write>, StoreError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let list = List { limit: Some(count), ..List::default() };
    let page = records.list(collection, &list).await?;
    let remove = |record: agent_core::records::Record| {
        Ok(Write::Delete { key: collection.key(record.id)?, precondition: Precondition::Any })
    };
    page.records.into_iter().map(remove).collect()
}

fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| format!("{time:.3}")).unwrap_or_default()
}
