//! Records of sealed run tokens that ended before their expiry, for the processes that did not issue them.
//!
//! The process that issued a token writes the record in the background, with those of other tokens in one commit.
//! Until it is written, the other processes accept the token; if the process is killed first, they do so until its
//! expiry. The records are the platform's, which stores do not cache. Their ids begin with the expiry, so that they are
//! deleted in its order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use uuid::Uuid;

use super::table::MAX_RUN_TOKENS;
use crate::backoff::Backoff;
use crate::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Records, StoreError, Write, to_json,
};
use crate::spawner::Spawner;
use agent_core::clock::Clock;

/// Name of the platform's collection of ended tokens, by expiry and id.
const ENDED_TOKENS: &str = "endedRunTokens";
/// Maximum number of tokens in a commit. PostgreSQL locks 256 records one by one; for more, it would lock all that the platform
/// has, and runs of other companies would wait to be admitted.
const MAX_TOKENS_PER_COMMIT: usize = 250;
/// Maximum number of ended tokens that wait to be written.
const MAX_PENDING_TOKENS: usize = MAX_RUN_TOKENS;
/// Number of attempts to write a batch.
const WRITE_ATTEMPTS: u32 = 10;
/// Pauses between the attempts.
const WRITE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// Interval at which [`EndedTokenWriter::flush`] looks for the end of the writes.
const FLUSH_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time for which a record is kept after the expiry, for processes whose clock is behind.
const RETENTION_AFTER_EXPIRY: Duration = Duration::from_secs(10 * 60);
/// Maximum number of pages of records that one pass of maintenance deletes.
const MAX_PAGES_PER_PASS: usize = 50;

/// An ended token; its record has no content.
#[derive(Serialize)]
struct EndedToken {}

/// Returns the key of the record that marks a token as ended.
pub(super) fn ended_token_key(id: Uuid, expires_at: SystemTime) -> Result<Key, StoreError> {
    let expires_ms = expires_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Collection::of_platform(ENDED_TOKENS)?.key(format!("{expires_ms:015}-{id}"))
}

/// Writes the records of ended tokens in the background.
pub(super) struct EndedTokenWriter {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    spawner: Arc<dyn Spawner>,
    queue: Mutex<EndedTokenQueue>,
}

#[derive(Default)]
struct EndedTokenQueue {
    tokens: VecDeque<(Uuid, SystemTime)>,
    /// Number of tokens that were omitted since the last batch.
    omitted: usize,
    /// True while a task writes.
    is_writing: bool,
}

impl EndedTokenWriter {
    pub(super) fn new(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        spawner: Arc<dyn Spawner>,
    ) -> Arc<Self> {
        Arc::new(Self { records, clock, spawner, queue: Mutex::default() })
    }

    /// Locks the queue. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, EndedTokenQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a token that has ended. Does not block.
    pub(super) fn push(self: &Arc<Self>, id: Uuid, expires_at: SystemTime) {
        let mut queue = self.lock();
        if queue.tokens.len() >= MAX_PENDING_TOKENS {
            queue.omitted += 1;
            return;
        }
        queue.tokens.push_back((id, expires_at));
        if !std::mem::replace(&mut queue.is_writing, true) {
            drop(queue);
            // Created here, since a runtime that shuts down drops the task before its first poll.
            let task = WriterTask { writer: self.clone(), is_done: false };
            self.spawner.spawn(Box::pin(task.run()));
        }
    }

    /// Waits until all queued tokens are written or given up.
    pub(super) async fn flush(&self) {
        while self.lock().is_writing {
            self.clock.sleep(FLUSH_POLL_INTERVAL).await;
        }
    }

    /// Takes the next batch; marks the writer as idle if there is none.
    fn next_batch(&self) -> Option<Vec<(Uuid, SystemTime)>> {
        let mut queue = self.lock();
        let omitted = std::mem::take(&mut queue.omitted);
        let size = queue.tokens.len().min(MAX_TOKENS_PER_COMMIT);
        let batch: Vec<_> = queue.tokens.drain(..size).collect();
        queue.is_writing = !batch.is_empty();
        drop(queue);
        if omitted > 0 {
            tracing::error!(
                omitted,
                "too many ended run tokens: other processes accept them until they expire"
            );
        }
        (!batch.is_empty()).then_some(batch)
    }

    async fn write(&self, batch: Vec<(Uuid, SystemTime)>) {
        let mut backoff = WRITE_BACKOFF;
        for attempt in 1..=WRITE_ATTEMPTS {
            let Err(error) = self.commit(&batch).await else { return };
            let tokens = batch.len();
            if attempt == WRITE_ATTEMPTS {
                tracing::error!(%error, tokens, "the ends of run tokens were not written; other processes accept them");
                return;
            }
            tracing::warn!(%error, tokens, attempt, "the ends of run tokens were not written; trying again");
            backoff.sleep(&*self.clock).await;
        }
    }

    async fn commit(&self, batch: &[(Uuid, SystemTime)]) -> Result<(), StoreError> {
        let value = to_json(&EndedToken {})?;
        let put = |(id, expires_at): &(Uuid, SystemTime)| {
            let key = ended_token_key(*id, *expires_at)?;
            Ok(Write::Put { key, value: value.clone(), precondition: Precondition::Any })
        };
        let writes = batch.iter().map(put).collect::<Result<_, StoreError>>()?;
        self.records.commit(writes).await.map(drop)
    }
}

/// Task that writes until the queue is empty. If it is dropped before, the next token starts another one.
struct WriterTask {
    writer: Arc<EndedTokenWriter>,
    is_done: bool,
}

impl WriterTask {
    async fn run(mut self) {
        while let Some(batch) = self.writer.next_batch() {
            self.writer.write(batch).await;
        }
        self.is_done = true;
    }
}

impl Drop for WriterTask {
    fn drop(&mut self) {
        if !self.is_done {
            self.writer.lock().is_writing = false;
        }
    }
}

/// Deletes the records of tokens that have expired at `now`, a bounded number of them.
///
/// # Errors
/// Errors of the store.
pub(in crate::token) async fn delete_expired(
    records: &dyn Records,
    now: SystemTime,
) -> Result<(), StoreError> {
    let ended = Collection::of_platform(ENDED_TOKENS)?;
    let kept_since = now.checked_sub(RETENTION_AFTER_EXPIRY).unwrap_or(UNIX_EPOCH);
    let first_kept = ended_token_key(Uuid::nil(), kept_since)?;
    for _ in 0..MAX_PAGES_PER_PASS {
        let list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let page = records.list(&ended, &list).await?;
        let is_full = page.next_cursor.is_some();
        let listed = page.records.len();
        let expired = page.records.into_iter().take_while(|record| *record.id < *first_kept.id());
        let delete = |id| Ok(Write::Delete { key: ended.key(id)?, precondition: Precondition::Any });
        let deletes: Vec<Write> =
            expired.map(|record| delete(record.id)).collect::<Result<_, StoreError>>()?;
        let has_more = is_full && deletes.len() == listed;
        if !deletes.is_empty() {
            records.commit(deletes).await?;
        }
        if !has_more {
            break;
        }
    }
    Ok(())
}
