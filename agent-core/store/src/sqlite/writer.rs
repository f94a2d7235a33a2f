//! Writer thread with group commit.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use agent_core::clock::Clock;
use agent_jobs::job::WakeSignal;
use agent_platform::records::StoreError;
use futures_channel::oneshot;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::change_tracker::ChangeTracker;
use super::claimed_jobs::ClaimedJobCache;
use super::error::{SqliteError, SqliteErrorKind, WriteError};
use super::operation_queue::{OperationQueue, OperationReceiver};
use super::rows::to_millis;
use super::write_op::{Changes, PendingWrite, QueuedWrite, WriteBatch, WriteOp};
use super::{SqliteOptions, schema};
use crate::counters::AtomicCounters;
use crate::round_robin::Cancellable;

/// Maximum number of commits per transaction.
const MAX_GROUP_COMMITS: usize = 256;
/// Maximum size of a transaction in bytes: once it is reached, no further commit is added.
const MAX_GROUP_BYTES: usize = 8 << 20;

/// Minimum size of a group after which the writer polls for more commits.
const MIN_POLLED_GROUP: usize = 4;

/// Queue of commits, and the thread that processes it. A transaction takes the commits of all companies round-robin. Dropping it
/// waits until the queue is empty and the file is closed.
pub(super) struct WriterHandle {
    queue: OperationQueue<Box<dyn QueuedWrite>>,
    thread: Option<JoinHandle<()>>,
}

impl WriterHandle {
    pub(super) fn start(
        connection: Connection,
        options: &SqliteOptions,
        freshness: Arc<ChangeTracker>,
        counts: Arc<AtomicCounters>,
        signal: WakeSignal,
    ) -> io::Result<Self> {
        let queue = OperationQueue::new(usize::MAX);
        let mut commits = queue.receiver();
        let clock = Arc::clone(&options.clock);
        let (claimed, spin_iterations) = (ClaimedJobCache::default(), options.spin.writer_iterations());
        let mut writer = Writer { connection, clock, freshness, claimed, counts, signal };
        let thread = thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            let mut usual = 1;
            while let Some(first) = commits.receive() {
                let group = collect_group(first, &mut commits, usual, spin_iterations);
                usual = group.len();
                writer.commit_or_recover(group);
            }
        })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Queues an operation of a company, whose name is empty for the process itself, and returns its result once it is on
    /// disk.
    pub(super) async fn commit<A: WriteOp>(&self, company: &str, op: A) -> Result<A::Output, StoreError> {
        let (write, receiver) = PendingWrite::new(op);
        self.queue.send(company, write).map_err(StoreError::unavailable)?;
        let closed = || StoreError::unavailable(SqliteError::closed());
        receiver.await.unwrap_or_else(|oneshot::Canceled| Err(closed()))
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// Collects the queued commits, within the limits of one transaction. Callers that were answered together commit again
/// at nearly the same time. A group that is smaller than the previous one therefore polls briefly for more commits,
/// unless the previous one was small: then polling would cost more than it saves.
fn collect_group(
    first: Box<dyn QueuedWrite>,
    commits: &mut OperationReceiver<Box<dyn QueuedWrite>>,
    usual: usize,
    spin_iterations: usize,
) -> Vec<Box<dyn QueuedWrite>> {
    let mut bytes = first.bytes();
    let mut group = vec![first];
    let mut remaining_polls = spin_iterations;
    while group.len() < MAX_GROUP_COMMITS && bytes < MAX_GROUP_BYTES {
        if let Some(next) = commits.poll() {
            bytes += next.bytes();
            group.push(next);
        } else if group.len() < usual && usual >= MIN_POLLED_GROUP && remaining_polls > 0 {
            remaining_polls -= 1;
            thread::yield_now();
        } else {
            break;
        }
    }
    group
}

struct Writer {
    connection: Connection,
    clock: Arc<dyn Clock>,
    freshness: Arc<ChangeTracker>,
    claimed: ClaimedJobCache,
    counts: Arc<AtomicCounters>,
    signal: WakeSignal,
}

/// Reason why a transaction was rolled back.
enum GroupError {
    /// A commit made the database fail, such as by filling the disk.
    Write(SqliteError),
    /// The commit at this index of a larger group was rejected after it had changed something.
    PartlyApplied(usize),
    /// The transaction could not begin or be committed.
    Transaction(SqliteError),
}

impl From<rusqlite::Error> for GroupError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Transaction(error.into())
    }
}

impl Writer {
    /// Commits a group, and keeps the thread running if that panics: its transaction is rolled back, and its callers
    /// get an error. Without the thread, the process could not write until it is restarted.
    fn commit_or_recover(&mut self, group: Vec<Box<dyn QueuedWrite>>) {
        // Unwinding drops the transaction, which rolls it back, so the connection is usable again.
        if catch_unwind(AssertUnwindSafe(|| self.commit(group))).is_err() {
            self.freshness.abort_commit();
            self.counts.is_failing.store(true, Ordering::Relaxed);
        }
    }

    /// Moves the write-ahead log into the database and truncates it, which frees space on a full volume: the log may be
    /// many times as large as the database. Returns false if nothing was freed.
    fn truncate_log(&self) -> bool {
        let checkpoint = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| {
            let (is_busy, log_pages): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(is_busy == 0 && log_pages == 0)
        });
        checkpoint.unwrap_or(false)
    }

    /// Runs a group of commits in one transaction and answers each of them.
    fn commit(&mut self, mut group: Vec<Box<dyn QueuedWrite>>) {
        // A cancelled commit was not acknowledged and need not be applied.
        group.retain(|commit| commit.is_caller_waiting());
        let outcomes = match self.transact(&mut group) {
            Err(GroupError::Write(error) | GroupError::Transaction(error))
                if error.kind() == SqliteErrorKind::Full && group.len() == 1 && self.truncate_log() =>
            {
                self.transact(&mut group)
            }
            outcomes => outcomes,
        };
        match outcomes {
            Ok(outcomes) => {
                for (commit, outcome) in group.into_iter().zip(outcomes) {
                    commit.respond(outcome);
                }
            }
            // The other commits run without the rejected one. Those after it have not run yet, so each commit
            // runs at most twice, however many are rejected.
            Err(GroupError::PartlyApplied(index)) => {
                let after = group.split_off(index + 1);
                let rejected = group.split_off(index);
                [group, rejected, after].into_iter().for_each(|part| self.commit(part));
            }
            Err(GroupError::Write(_)) if group.len() > 1 => {
                for commit in group {
                    self.commit(vec![commit]);
                }
            }
            Err(GroupError::Write(error) | GroupError::Transaction(error)) => {
                self.counts.is_failing.store(true, Ordering::Relaxed);
                for commit in group {
                    commit.respond(Err(StoreError::unavailable(error.clone())));
                }
            }
        }
    }

    fn transact(
        &mut self,
        group: &mut [Box<dyn QueuedWrite>],
    ) -> Result<Vec<Result<(), StoreError>>, GroupError> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let check_started = self.freshness.now();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let first = schema::last_version(&transaction)?;
        self.freshness.record_counter(first, check_started);

        let now_ms = to_millis(self.clock.now());
        let mut all = Changes { version: first, ..Changes::default() };
        let mut commits = 0;
        let mut outcomes = Vec::with_capacity(group.len());
        let is_alone = group.len() == 1;
        for (index, commit) in group.iter_mut().enumerate() {
            let before = transaction.total_changes();
            let mut batch = WriteBatch::new(&transaction, &self.claimed, now_ms, all.version);
            let applied = commit.apply(&mut batch);
            let has_written = transaction.total_changes() > before;
            match applied {
                // An operation with a separate result for a rejection has no changes then.
                Ok(()) if !is_alone && has_written && !batch.changes.has_changes => {
                    return Err(GroupError::PartlyApplied(index));
                }
                Ok(()) => {
                    let changes = batch.changes;
                    commits += u64::from(changes.has_changes);
                    all.version = changes.version;
                    all.slots.extend(changes.slots);
                    all.is_earliest_changed |= changes.is_earliest_changed;
                    outcomes.push(Ok(()));
                }
                // Rolling back the transaction undoes it if it is alone. A savepoint per commit would do so
                // within a group, but would copy every changed page.
                Err(WriteError::Refused(_)) if !is_alone && has_written => {
                    return Err(GroupError::PartlyApplied(index));
                }
                Err(WriteError::Refused(error)) => outcomes.push(Err(error)),
                Err(WriteError::Failed(error)) => return Err(GroupError::Write(error)),
            }
        }
        if commits == 0 {
            transaction.rollback()?;
            return Ok(outcomes);
        }
        commit_and_invalidate(transaction, &self.freshness, first, all.version, all.slots)?;
        if all.is_earliest_changed {
            self.signal.notify();
        }
        self.counts.is_failing.store(false, Ordering::Relaxed);
        self.counts.commits.fetch_add(commits, Ordering::Relaxed);
        self.counts.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }
}

/// Commits and invalidates the cached records in these slots, before any caller is notified.
fn commit_and_invalidate(
    transaction: Transaction<'_>,
    freshness: &ChangeTracker,
    first: u64,
    last: u64,
    mut slots: Vec<usize>,
) -> Result<(), GroupError> {
    if slots.is_empty() {
        // No record has changed.
        return Ok(transaction.commit()?);
    }
    // A removal assigns no version but must change the counter too.
    let version = last.max(first + 1);
    schema::set_last_version(&transaction, version).map_err(|error| GroupError::Write(error.into()))?;
    slots.sort_unstable();
    slots.dedup();
    freshness.begin_commit(slots, version);
    if let Err(error) = transaction.commit() {
        freshness.abort_commit();
        return Err(error.into());
    }
    freshness.finish_commit();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use agent_core::clock::SystemClock;
    use agent_platform::records::{Key, Precondition, Write};
    use serde_json::value::RawValue;

    use super::*;
    use crate::slots::StampSource;
    use crate::sqlite::file;
    use crate::sqlite::write_op::{WriteResult, WrittenVersions};

    fn put(id: &str) -> (Box<PendingWrite<Vec<Write>>>, oneshot::Receiver<WriteResult<WrittenVersions>>) {
        let key = Key::new("company", "things", id).expect("a key");
        let value = RawValue::from_string("1".to_owned()).expect("JSON").into();
        PendingWrite::new(vec![Write::Put { key, value, precondition: Precondition::Any }])
    }

    fn writer(folder: &tempfile::TempDir) -> Writer {
        let options = SqliteOptions::default();
        let (connection, version) = file::open(&folder.path().join("app.db"), &options).expect("open");
        let clock = Arc::new(SystemClock);
        let freshness = Arc::new(ChangeTracker::new(clock.clone(), version));
        let (claimed, counts, signal) = Default::default();
        Writer { connection, clock, freshness, claimed, counts, signal }
    }

    /// A write that panics after it has changed something.
    struct PanickingWrite;

    impl WriteOp for PanickingWrite {
        type Output = ();

        fn bytes(&self) -> usize {
            0
        }

        fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<(), WriteError> {
            let (write, _) = put("lost");
            write.op.apply(batch)?;
            panic!("a defect");
        }
    }

    #[test]
    fn a_panic_rolls_back_its_transaction_and_the_writer_continues() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = writer(&folder);
        let (panicking, mut answer) = PendingWrite::new(PanickingWrite);
        writer.commit_or_recover(vec![panicking]);
        assert!(answer.try_recv().is_err(), "its caller gets no result");
        assert!(writer.counts.is_failing.load(Ordering::Relaxed));
        let (commit, mut answer) = put("a");
        writer.commit_or_recover(vec![commit]);
        assert!(matches!(answer.try_recv(), Ok(Some(Ok(versions))) if versions == [Some(1)]));
        assert!(!writer.counts.is_failing.load(Ordering::Relaxed));
        let stored: i64 = writer
            .connection
            .query_row("SELECT count(*) FROM records", (), |row| row.get(0))
            .expect("counted");
        assert_eq!(stored, 1);
    }

    /// A write that is rejected after it has changed something.
    struct LateRejection;

    impl WriteOp for LateRejection {
        type Output = Result<(), &'static str>;

        fn bytes(&self) -> usize {
            0
        }

        fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<Self::Output, WriteError> {
            batch.connection.execute("DELETE FROM records", ())?;
            Ok(Err("rejected"))
        }
    }

    #[test]
    fn nothing_of_a_rejected_operation_is_committed_with_its_group() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = writer(&folder);
        let ((first, _first_answer), (last, mut last_answer)) = (put("a"), put("b"));
        let (rejected, mut outcome) = PendingWrite::new(LateRejection);
        writer.commit(vec![first as Box<dyn QueuedWrite>, rejected, last]);
        assert!(matches!(outcome.try_recv(), Ok(Some(Ok(Err("rejected"))))));
        assert!(matches!(last_answer.try_recv(), Ok(Some(Ok(_)))));
        let stored: i64 = writer
            .connection
            .query_row("SELECT count(*) FROM records", (), |row| row.get(0))
            .expect("counted");
        assert_eq!(stored, 2);
    }

    /// SQLite reports `SQLITE_READONLY` for a file that becomes read-only while it is open; `query_only` makes it do so.
    #[test]
    fn a_file_that_becomes_read_only_is_reported_until_it_can_be_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = writer(&folder);
        let (commit, _answer) = put("kept");
        writer.commit_or_recover(vec![commit]);
        writer.connection.pragma_update(None, "query_only", true).expect("set");
        for group in [&["a"][..], &["b", "c"]] {
            let (commits, answers): (Vec<_>, Vec<_>) = group.iter().map(|id| put(id)).unzip();
            writer.commit_or_recover(
                commits.into_iter().map(|commit| commit as Box<dyn QueuedWrite>).collect(),
            );
            for mut answer in answers {
                let Ok(Some(Err(StoreError::Unavailable(source)))) = answer.try_recv() else {
                    panic!("no write of {group:?} can be stored")
                };
                let error = source.downcast_ref::<SqliteError>().expect("an error");
                assert_eq!(error.kind(), SqliteErrorKind::ReadOnly);
            }
        }
        assert!(writer.counts.is_failing.load(Ordering::Relaxed), "the next check writes");
        let read = |sql| writer.connection.query_row(sql, (), |row| row.get::<_, i64>(0)).expect("read");
        assert_eq!(read("SELECT count(*) FROM records"), 1, "an acknowledged write can be read");
        writer.connection.pragma_update(None, "query_only", false).expect("set");
        let (commit, mut answer) = put("a");
        writer.commit_or_recover(vec![commit]);
        assert!(matches!(answer.try_recv(), Ok(Some(Ok(versions))) if versions == [Some(2)]));
        assert!(!writer.counts.is_failing.load(Ordering::Relaxed));
    }

    /// A write that finds no room as long as the write-ahead log has any.
    struct WriteToFullVolume {
        log: PathBuf,
    }

    impl WriteOp for WriteToFullVolume {
        type Output = ();

        fn bytes(&self) -> usize {
            0
        }

        fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<(), WriteError> {
            if fs::metadata(&self.log).expect("a log").len() > 0 {
                return Err(WriteError::Failed(io::Error::from(io::ErrorKind::StorageFull).into()));
            }
            let (write, _) = put("b");
            write.op.apply(batch).map(drop)
        }
    }

    #[test]
    fn a_write_to_a_full_volume_gets_the_room_of_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, log) = (folder.path().join("app.db"), folder.path().join("app.db-wal"));
        let mut writer = writer(&folder);
        writer.connection.busy_timeout(Duration::ZERO).expect("set");
        let (commit, _answer) = put("a");
        writer.commit(vec![commit]);
        assert!(fs::metadata(&log).expect("a log").len() > 0);

        let reader = Connection::open(&database).expect("open");
        let count = || reader.query_row("SELECT count(*) FROM records", (), |row| row.get::<_, i64>(0));
        reader.execute_batch("BEGIN").expect("begun");
        assert_eq!(count().expect("counted"), 1);
        let (commit, mut answer) = PendingWrite::new(WriteToFullVolume { log: log.clone() });
        writer.commit(vec![commit]);
        let answered = answer.try_recv();
        assert!(matches!(answered, Ok(Some(Err(StoreError::Unavailable(_))))), "a reader holds the log");
        assert!(writer.counts.is_failing.load(Ordering::Relaxed));

        reader.execute_batch("COMMIT").expect("ended");
        let (commit, mut answer) = PendingWrite::new(WriteToFullVolume { log });
        writer.commit(vec![commit]);
        assert!(matches!(answer.try_recv(), Ok(Some(Ok(())))), "the log is in the database");
        assert_eq!(count().expect("counted"), 2);
        assert!(!writer.counts.is_failing.load(Ordering::Relaxed));
    }

    #[test]
    fn a_failed_transaction_is_not_attributed_to_a_company() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut writer = writer(&folder);
        writer.connection.commit_hook(Some(|| true)).expect("a hook that turns commits into rollbacks");
        let (group, mut answers): (Vec<_>, Vec<_>) = ["a", "b"].map(put).into_iter().unzip();
        writer.commit(group.into_iter().map(|commit| commit as Box<dyn QueuedWrite>).collect());
        for answer in &mut answers {
            let Ok(Some(Err(StoreError::Unavailable(source)))) = answer.try_recv() else {
                panic!("no write was stored, and each caller gets the error")
            };
            assert_eq!(
                source.downcast_ref::<SqliteError>().expect("an error").kind(),
                SqliteErrorKind::Failed
            );
        }
        assert_eq!(schema::last_version(&writer.connection).expect("read"), 0);

        writer.connection.commit_hook(None::<fn() -> bool>).expect("no hook");
        let (commit, mut answer) = put("a");
        let stamp = writer.freshness.stamp(commit.op[0].key()).expect("a failed commit is not pending");
        writer.commit(vec![commit]);
        assert!(matches!(answer.try_recv(), Ok(Some(Ok(versions))) if versions == [Some(1)]));
        assert!(!writer.freshness.is_valid(stamp));
    }
}
