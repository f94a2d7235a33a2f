//! Who has called which tool of an agent, and how it came out; never with what.
//!
//! A call is noted in memory and written soon after, many at a time, so that no call waits for the store. Where more
//! are made than can be written the oldest notes are dropped, and the log says how many. An agent's calls are kept up
//! to a number, newest first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use agent_core::records::{
    Collection, List, MAX_PAGE, Order, Page, Precondition, Records, RecordsExt, StoreError, Write,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time;

use super::identity::Identity;
use crate::error::HttpError;

/// The collection of calls; below it one for each agent.
const CALLS: &str = "toolCalls";
/// How many calls of an agent are kept. There may be a batch more.
const KEPT: usize = 10_000;
/// How many notes wait to be written.
const WAITING: usize = 10_000;
/// How many are written together.
const BATCH: usize = 200;
/// How long the first note of a batch waits for others.
const GATHER: Duration = Duration::from_millis(200);
/// Of how many agents it is remembered how many calls are kept.
const COUNTED: usize = 10_000;
/// The longest name that is noted; one that is no tool's may be of any length.
const MAX_NAME_BYTES: usize = 128;

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
    /// How many calls of an agent are kept. It is held while they are written, so that one batch is at a time.
    kept: tokio::sync::Mutex<HashMap<Agent, usize>>,
    limits: Limits,
}

#[derive(Clone, Copy)]
struct Limits {
    kept: usize,
    waiting: usize,
}

/// By company and agent.
type Agent = (String, String);

#[derive(Default)]
struct Notes {
    waiting: VecDeque<(Agent, String, Call)>,
    dropped: usize,
}

impl AuditLog {
    /// A log in `records`. It writes in a task of its own, as long as it lives; [`Self::flush`] it at the end.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self::bounded(records, Limits { kept: KEPT, waiting: WAITING })
    }

    fn bounded(records: Arc<dyn Records>, limits: Limits) -> Self {
        let inner = Arc::new(Inner {
            records,
            notes: Mutex::default(),
            noted: Notify::new(),
            kept: tokio::sync::Mutex::default(),
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

    /// One page of an agent's calls, the newest first.
    ///
    /// # Errors
    ///
    /// 400 for a cursor that is none of ours; 500 where the store fails.
    pub async fn calls(
        &self,
        company_id: &str,
        agent_id: &str,
        limit: Option<usize>,
        cursor: Option<String>,
    ) -> Result<Page<Call>, HttpError> {
        let list = List { limit, cursor, order: Order::Descending, ..List::default() };
        list.after().map_err(|_| HttpError::invalid("cursor", "is none that this list has given"))?;
        let calls = collection(company_id, agent_id).map_err(HttpError::internal)?;
        self.0.records.list_as(&calls, &list).await.map_err(HttpError::internal)
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
        notes.waiting.push_back((agent, agent_core::new_id(), call));
        drop(notes);
        self.noted.notify_one();
    }

    /// Writes the oldest notes and says whether there may be more.
    async fn write_batch(&self) -> bool {
        let mut kept = self.kept.lock().await;
        let (batch, dropped) = {
            let mut notes = self.lock();
            let count = notes.waiting.len().min(BATCH);
            (notes.waiting.drain(..count).collect::<Vec<_>>(), std::mem::take(&mut notes.dropped))
        };
        if dropped > 0 {
            tracing::warn!(dropped, "tool calls were made faster than they could be noted");
        }
        if batch.is_empty() {
            return false;
        }
        let mut of_agents: BTreeMap<Agent, Vec<(String, Call)>> = BTreeMap::new();
        for (agent, id, call) in batch {
            of_agents.entry(agent).or_default().push((id, call));
        }
        if kept.len() > COUNTED {
            kept.clear();
        }
        for (agent, calls) in of_agents {
            let count = calls.len();
            if let Err(error) = self.write_calls(&mut kept, agent, calls).await {
                tracing::warn!(%error, count, "tool calls could not be noted");
            }
        }
        true
    }

    async fn write_calls(
        &self,
        kept: &mut HashMap<Agent, usize>,
        agent: Agent,
        calls: Vec<(String, Call)>,
    ) -> Result<(), StoreError> {
        let collection = collection(&agent.0, &agent.1)?;
        let before = match kept.get(&agent) {
            Some(count) => *count,
            None => count(&*self.records, &collection, self.limits.kept).await?,
        };
        // Should the write fail half-way, they are counted again.
        kept.remove(&agent);
        let mut writes = Vec::with_capacity(calls.len());
        for (id, call) in calls {
            let value = serde_json::value::to_raw_value(&call).expect("a call serialises").into();
            writes.push(Write::Put { key: collection.key(id)?, value, precondition: Precondition::Any });
        }
        let after = before + writes.len();
        let surplus = after.saturating_sub(self.limits.kept);
        writes.extend(oldest(&*self.records, &collection, surplus).await?);
        self.records.commit(writes).await?;
        kept.insert(agent, after - surplus);
        Ok(())
    }
}

/// Writes batches until the log is dropped.
async fn write(log: Weak<Inner>) {
    loop {
        // Between two batches nothing keeps the log alive.
        let Some(inner) = log.upgrade() else { return };
        let more = time::timeout(Duration::from_secs(1), inner.noted.notified()).await.is_ok();
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

#[cfg(test)]
mod tests {
    use agent_core::memory::MemoryRecords;
    use agent_core::tool::ExecutionContext;

    use super::*;

    fn who(company: &str, agent: &str) -> Identity {
        let context = ExecutionContext {
            user_id: "ada".into(),
            company_id: company.into(),
            agent_id: agent.into(),
            ..ExecutionContext::default()
        };
        Identity { id: "t1".into(), context, tools: None }
    }

    fn log(kept: usize, waiting: usize) -> AuditLog {
        AuditLog::bounded(Arc::new(MemoryRecords::default()), Limits { kept, waiting })
    }

    async fn tools(log: &AuditLog, company: &str, agent: &str) -> Vec<String> {
        let page = log.calls(company, agent, Some(200), None).await.expect("a page");
        page.records.into_iter().map(|record| record.value.tool).collect()
    }

    #[tokio::test]
    async fn calls_are_kept_by_agent_newest_first() {
        let log = log(100, 100);
        log.begin(&who("c", "a"), "first").ended(Outcome::Ok);
        log.begin(&who("c", "b"), "other").ended(Outcome::Refused);
        drop(log.begin(&who("c", "a"), "second"));
        log.begin(&who("d", "a"), &"ü".repeat(100)).ended(Outcome::Failed);
        log.flush().await;
        assert_eq!(tools(&log, "c", "a").await, ["second", "first"]);
        assert_eq!(tools(&log, "c", "b").await, ["other"]);
        assert_eq!(tools(&log, "d", "a").await, ["ü".repeat(64)]);
        assert!(tools(&log, "d", "b").await.is_empty());

        let page = log.calls("c", "a", Some(1), None).await.expect("a page");
        let call = &page.records[0].value;
        assert_eq!((call.user_id.as_str(), call.credential_id.as_str()), ("ada", "t1"));
        assert_eq!((call.outcome, call.run_id.as_deref()), (Outcome::Cancelled, None));
        assert!(call.at.ends_with('Z') && call.at.len() == "2026-07-28T12:00:00.000Z".len(), "{}", call.at);
        let next = log.calls("c", "a", Some(1), page.next_cursor).await.expect("a page");
        assert_eq!((next.records[0].value.tool.as_str(), next.next_cursor), ("first", None));
        log.calls("c", "a", None, Some("x".into())).await.expect_err("no cursor");
    }

    #[tokio::test]
    async fn old_calls_make_room_for_new_ones() {
        let records = Arc::new(MemoryRecords::default());
        let limits = Limits { kept: 5, waiting: 100 };
        let note = async |log: &AuditLog, range: std::ops::Range<usize>| {
            for i in range {
                log.begin(&who("c", "a"), &i.to_string()).ended(Outcome::Ok);
            }
            log.flush().await;
        };
        let log = AuditLog::bounded(records.clone(), limits);
        note(&log, 0..4).await;
        note(&log, 4..7).await;
        assert_eq!(tools(&log, "c", "a").await, ["6", "5", "4", "3", "2"]);
        let again = AuditLog::bounded(records, limits);
        note(&again, 7..9).await;
        assert_eq!(tools(&again, "c", "a").await, ["8", "7", "6", "5", "4"]);
    }

    #[tokio::test]
    async fn what_cannot_be_written_in_time_is_dropped_from_the_old_end() {
        let log = log(1000, 3);
        for i in 0..10 {
            log.begin(&who("c", "a"), &i.to_string()).ended(Outcome::Ok);
        }
        log.flush().await;
        assert_eq!(tools(&log, "c", "a").await, ["9", "8", "7"]);
    }

    #[tokio::test(start_paused = true)]
    async fn notes_are_written_by_themselves() {
        let log = log(10, 10);
        log.begin(&who("c", "a"), "x").ended(Outcome::Ok);
        while tools(&log, "c", "a").await.is_empty() {
            time::sleep(Duration::from_millis(50)).await;
        }
    }
}
