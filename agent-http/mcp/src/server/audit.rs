//! Audit log of tool calls: caller, tool, duration and outcome, but never arguments or results.
//!
//! A call is recorded in memory and written shortly after in a batch, so that no call waits for the store. If calls
//! arrive faster than they can be written, or the store is unavailable for long, the oldest entries are dropped, and
//! their number is logged. A record holds a segment of many calls, which makes recording cheaper than one write per call;
//! new segments replace an agent's oldest ones.

mod limits;
mod pages;
mod pending;
mod record;
mod segments;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use agent_core::ids::{AgentId, CompanyId, RunId, UserId};
use agent_core::tool::ExecutionContext;
use agent_platform::records::{Records, StoreError};
use tokio::sync::Notify;
use tokio::time;

pub use pages::{AuditError, CallPage};
pub use record::{AuditDecision, AuditOutcome, CallRecord};

use limits::{LIMITS, Limits};
use pending::PendingEntries;
use record::{AgentKey, collection};
use segments::SegmentWriter;

/// Time that the first entry of a batch waits for others.
const BATCH_DELAY: Duration = Duration::from_millis(200);
/// Interval at which the writer checks that the log still exists.
const LIVENESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Backoff of the writer while the store is unavailable: starts at the first value and doubles up to the second.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Timeout of [`AuditLog::flush`].
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Credential id of entries that were made without one: by a run or a job of this process, or by a person's decision.
pub(super) const NO_CREDENTIAL: &str = "internal";
/// Maximum length of a recorded tool name, in bytes: the name of an unknown tool may have any length.
const MAX_TOOL_NAME_BYTES: usize = 128;

/// Tool call about which a decision is recorded.
#[derive(Debug, Clone, Copy)]
pub struct DecidedCall<'c> {
    /// The agent's company.
    pub company_id: &'c CompanyId,
    /// The agent.
    pub agent_id: &'c AgentId,
    /// The run that has called the tool.
    pub run_id: &'c RunId,
    /// Name of the tool.
    pub tool: &'c str,
}

/// Records tool calls and writes them to a store.
#[derive(Clone)]
pub struct AuditLog(Arc<Inner>);

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").finish_non_exhaustive()
    }
}

struct Inner {
    records: Arc<dyn Records>,
    pending: Mutex<PendingEntries>,
    entry_added: Notify,
    /// The segments being filled. Locked during a write, so that one batch is written at a time.
    writers: tokio::sync::Mutex<HashMap<AgentKey, SegmentWriter>>,
    limits: Limits,
}

impl AuditLog {
    /// Creates a log in `records`. A background task writes it while the log exists; call [`Self::flush`] at shutdown.
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
            pending: Mutex::new(PendingEntries::new(limits)),
            entry_added: Notify::new(),
            writers: tokio::sync::Mutex::default(),
            limits,
        });
        tokio::spawn(run_writer(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Starts an entry. If it is dropped before [`CallEntry::record_outcome`], it records the call as cancelled.
    pub(super) fn start_entry(
        &self,
        context: &ExecutionContext,
        credential_id: &str,
        tool: &str,
    ) -> CallEntry {
        let call = CallRecord {
            at: String::new(),
            user_id: context.user_id.clone(),
            credential_id: credential_id.to_owned(),
            run_id: Some(context.run_id.clone()).filter(|id| !id.is_empty()),
            tool: recorded_name(tool),
            duration_ms: 0,
            outcome: AuditOutcome::Cancelled,
            decision: None,
        };
        let agent = (context.company_id.clone(), context.agent_id.clone());
        CallEntry { log: self.clone(), started: Instant::now(), entry: Some((agent, call)) }
    }

    /// Records a person's decision about a call, or the expiry of the decision about a call of the user `by`.
    pub fn record_decision(&self, call: DecidedCall<'_>, by: &UserId, decision: AuditDecision) {
        let record = CallRecord {
            at: rfc3339(SystemTime::now()),
            user_id: by.clone(),
            credential_id: NO_CREDENTIAL.to_owned(),
            run_id: Some(call.run_id.clone()),
            tool: recorded_name(call.tool),
            duration_ms: 0,
            outcome: decision.outcome(),
            decision: Some(decision),
        };
        self.0.push_entry((call.company_id.clone(), call.agent_id.clone()), record);
    }

    /// Writes all entries recorded so far. Entries that the store does not accept within five seconds keep waiting.
    pub async fn flush(&self) {
        let write_pending = async {
            while self.0.write_all().await.is_err() {
                time::sleep(INITIAL_BACKOFF).await;
            }
        };
        if time::timeout(FLUSH_TIMEOUT, write_pending).await.is_err() {
            tracing::warn!("the last tool calls could not be written to the audit log in time");
        }
    }

    /// Returns one page of an agent's calls, newest first; `limit` defaults to 50 and is at most 200.
    ///
    /// # Errors
    ///
    /// The cursor is invalid, or the store fails.
    pub async fn list_calls(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<CallPage, AuditError> {
        let collection = collection(company_id, agent_id).map_err(AuditError::Store)?;
        pages::read(&*self.0.records, &collection, limit, cursor).await
    }
}

/// An entry for a call in progress.
pub(super) struct CallEntry {
    log: AuditLog,
    started: Instant,
    /// `None` once the entry is recorded.
    entry: Option<(AgentKey, CallRecord)>,
}

impl CallEntry {
    /// Records the outcome of the call.
    pub(super) fn record_outcome(mut self, outcome: AuditOutcome) {
        if let Some((_, call)) = &mut self.entry {
            call.outcome = outcome;
        }
    }
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        let Some((agent, mut call)) = self.entry.take() else { return };
        call.at = rfc3339(SystemTime::now());
        call.duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.log.0.push_entry(agent, call);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, PendingEntries> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push_entry(&self, agent: AgentKey, call: CallRecord) {
        self.lock().push_newest(agent, call);
        self.entry_added.notify_one();
    }

    /// Takes the oldest entries, grouped by agent.
    fn take_batch(&self) -> HashMap<AgentKey, Vec<CallRecord>> {
        let mut pending = self.lock();
        let dropped = pending.take_dropped();
        if dropped > 0 {
            tracing::warn!(dropped, "the oldest tool calls were dropped from the audit log");
        }
        let mut batch: HashMap<AgentKey, Vec<CallRecord>> = HashMap::new();
        for (agent, call) in pending.take(2 * self.limits.max_calls_per_segment) {
            batch.entry(agent).or_default().push(call);
        }
        batch
    }

    /// Puts entries back to the front of the queue, as many as there is room for.
    fn requeue(&self, batch: impl IntoIterator<Item = (AgentKey, Vec<CallRecord>)>) {
        let mut pending = self.lock();
        for (agent, calls) in batch {
            for call in calls.into_iter().rev() {
                pending.push_oldest(agent.clone(), call);
            }
        }
    }

    /// Writes all entries.
    ///
    /// # Errors
    ///
    /// The store is unavailable. Unwritten entries stay in the queue.
    async fn write_all(&self) -> Result<(), StoreError> {
        while self.write_batch().await? {}
        Ok(())
    }

    /// Writes the oldest entries; returns true if there may be more.
    async fn write_batch(&self) -> Result<bool, StoreError> {
        let mut writers = self.writers.lock().await;
        let batch = self.take_batch();
        if batch.is_empty() {
            return Ok(false);
        }
        if writers.len() > self.limits.max_cached_agents {
            writers.clear();
        }
        let mut batch = batch.into_iter();
        while let Some((agent, mut calls)) = batch.next() {
            match self.write_calls(&mut writers, &agent, &mut calls).await {
                Ok(()) => {}
                Err(error @ StoreError::Unavailable(_)) => {
                    self.requeue(batch.chain([(agent, calls)]));
                    return Err(error);
                }
                // The store would refuse these calls at every attempt, so they are dropped.
                Err(error) => {
                    writers.remove(&agent);
                    tracing::warn!(%error, count = calls.len(), "tool calls could not be written to the audit log");
                }
            }
        }
        Ok(true)
    }

    async fn write_calls(
        &self,
        writers: &mut HashMap<AgentKey, SegmentWriter>,
        agent: &AgentKey,
        calls: &mut Vec<CallRecord>,
    ) -> Result<(), StoreError> {
        let (records, limits) = (&*self.records, &self.limits);
        let writer = match writers.entry(agent.clone()) {
            hash_map::Entry::Occupied(writer) => writer.into_mut(),
            hash_map::Entry::Vacant(vacancy) => {
                vacancy.insert(SegmentWriter::open(records, &agent.0, &agent.1, limits).await?)
            }
        };
        writer.write(records, calls, limits).await
    }
}

/// Writes batches until the log is dropped.
async fn run_writer(log: Weak<Inner>) {
    let mut backoff = None;
    loop {
        if let Some(backoff) = backoff {
            time::sleep(backoff).await;
        }
        // The log is not kept alive between two batches.
        let Some(inner) = log.upgrade() else { return };
        if backoff.is_none() {
            if time::timeout(LIVENESS_CHECK_INTERVAL, inner.entry_added.notified()).await.is_err() {
                continue;
            }
            time::sleep(BATCH_DELAY).await;
        }
        backoff = match inner.write_all().await {
            Ok(()) => None,
            Err(error) => {
                let next = backoff.map_or(INITIAL_BACKOFF, |backoff| MAX_BACKOFF.min(2 * backoff));
                tracing::warn!(%error, again_in = ?next, "the audit log cannot be written; tool calls are queued");
                Some(next)
            }
        };
    }
}

/// Returns the name of a tool as it is recorded.
fn recorded_name(tool: &str) -> String {
    tool[..tool.floor_char_boundary(MAX_TOOL_NAME_BYTES)].to_owned()
}

fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| format!("{time:.3}")).unwrap_or_default()
}
