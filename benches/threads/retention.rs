//! Deletion of threads whose retention is over, and what a writer notices of it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agent_core::ids::AgentId;
use agent_platform::conversation::{ActiveThread, Conversations, DeleteFilter, ThreadOwner};
use agent_platform::records::{Key, Precondition, Records};
use agent_store::sqlite::SqliteStore;
use anyhow::{Result, ensure};
use benches::comparison::{Bound, Comparison};
use benches::measure::millis;
use jiff::{Timestamp, ToSpan};
use rusqlite::{Connection, TransactionBehavior};
use serde_json::value::RawValue;

use crate::stored::{create_all, dialogue, open, thread};

/// Number of messages of a thread.
const MESSAGES: usize = 20;
/// Number of threads of each owner.
const PER_OWNER: usize = 100;
/// Number of threads that the reference deletes in a transaction: as many messages as the store deletes at once.
const RAW_BATCH: usize = 25;
/// Time for which a writer is measured alone.
const ALONE: Duration = Duration::from_secs(2);
/// Limit of the time for 1,000 threads: 1,000,000 in ten minutes.
const LIMIT_MS: f64 = 600.0;
const PAUSE_LIMIT_MS: f64 = 50.0;

pub(crate) async fn measure(repeats: usize, expired: usize) -> Result<Vec<Comparison>> {
    let folder = tempfile::tempdir()?;
    let template = folder.path().join("template.db");
    fill(&template, expired).await?;
    let (mut raw, mut swept, mut alone, mut paused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let copies = [folder.path().join("reference.db"), folder.path().join("subject.db")];
        for copy in &copies {
            fs::copy(&template, copy)?;
        }
        let per_thousand = |elapsed: Duration| millis(elapsed) * 1000.0 / expired as f64;
        raw.push(per_thousand(delete_raw(&copies[0], expired)?));
        let store = open(&copies[1])?;
        alone.push(longest_commit(&store, tokio::time::sleep(ALONE)).await?.0);
        let started = Instant::now();
        let (pause, deleted) = longest_commit(&store, sweep(&store, Timestamp::now() - 24.hours())).await?;
        swept.push(per_thousand(started.elapsed()));
        paused.push(pause);
        let deleted = deleted?;
        ensure!(deleted == expired, "{deleted} threads were deleted");
    }
    let description = format!(
        "1,000 of {expired} expired threads of {MESSAGES} messages deleted while a writer commits, beside bare rusqlite \
         without a writer"
    );
    Ok(vec![
        Comparison::new(description, "ms", Bound::FigureAtMost(LIMIT_MS), &raw, &swept),
        Comparison::new(
            "the longest commit of that writer, beside without a deletion",
            "ms",
            Bound::FigureAtMost(PAUSE_LIMIT_MS),
            &alone,
            &paused,
        ),
    ])
}

/// Creates the threads, whose last activity was long ago, and closes the file.
async fn fill(path: &Path, expired: usize) -> Result<()> {
    let store = open(path)?;
    let then = Timestamp::now() - (60 * 24).hours();
    let make = move |n: usize| {
        let owner = ThreadOwner::new("company", format!("owner-{}", n / PER_OWNER));
        thread(owner.thread(format!("thread-{n}")), dialogue(MESSAGES), then)
    };
    create_all(&store, expired, make).await?;
    drop(store);
    ensure!(!path.with_extension("db-wal").exists(), "the file is closed");
    Ok(())
}

/// Deletes expired threads as an application does, and returns their number.
async fn sweep(store: &SqliteStore, before: Timestamp) -> Result<usize> {
    let (mut deleted, mut cursor) = (0, None);
    loop {
        let page = store.scan_threads(cursor.as_deref()).await?;
        let expired = page.threads.into_iter().filter(|thread| thread.last_activity_at < before);
        let groups: HashSet<(ThreadOwner, AgentId)> =
            expired.map(|ActiveThread { owner, agent_id, .. }| (owner, agent_id)).collect();
        for (owner, agent) in groups {
            let filter = DeleteFilter { agent: Some(agent), before: Some(before) };
            loop {
                let batch = store.delete_many(&owner, &filter).await?;
                deleted += batch.deleted;
                if !batch.has_more || batch.deleted == 0 {
                    break;
                }
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(deleted);
        }
    }
}

/// Writes records one after another until `work` is done. Returns the longest time of a commit in milliseconds, and the
/// result of the work.
async fn longest_commit<T>(store: &Arc<SqliteStore>, work: impl Future<Output = T>) -> Result<(f64, T)> {
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write_until(store.clone(), is_over.clone()));
    let done = work.await;
    is_over.store(true, Ordering::Relaxed);
    Ok((writer.await??, done))
}

async fn write_until(store: Arc<SqliteStore>, is_over: Arc<AtomicBool>) -> Result<f64> {
    let key = Key::new("company", "plans", "plan")?;
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let value = RawValue::from_string("{\"text\":\"Water the basil\"}".to_owned())?;
        let started = Instant::now();
        store.put(&key, value.into(), Precondition::Any).await?;
        longest = longest.max(started.elapsed());
    }
    Ok(millis(longest))
}

/// The reference: deletes the same rows with rusqlite alone, as safely.
fn delete_raw(path: &Path, expired: usize) -> Result<Duration> {
    let mut connection = Connection::open(path)?;
    for (pragma, value) in [("journal_mode", "wal"), ("synchronous", "full"), ("secure_delete", "true")] {
        connection.pragma_update_and_check(None, pragma, value, |_| Ok(())).or_else(|error| match error {
            // Not every pragma returns a row.
            rusqlite::Error::QueryReturnedNoRows => Ok(()),
            error => Err(error),
        })?;
    }
    let started = Instant::now();
    let mut deleted = 0;
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let threads: Vec<i64> = transaction
            .prepare_cached("SELECT n FROM threads ORDER BY n LIMIT ?1")?
            .query_map([i64::try_from(RAW_BATCH)?], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for thread in &threads {
            transaction.prepare_cached("DELETE FROM nodes WHERE thread = ?1")?.execute([thread])?;
            transaction.prepare_cached("DELETE FROM threads WHERE n = ?1")?.execute([thread])?;
        }
        transaction.commit()?;
        deleted += threads.len();
        if threads.len() < RAW_BATCH {
            break;
        }
    }
    ensure!(deleted == expired, "{deleted} threads were deleted");
    Ok(started.elapsed())
}
