//! Reader threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use agent_platform::records::StoreError;
use futures_channel::oneshot;
use rusqlite::Connection;

use super::change_tracker::ChangeTracker;
use super::error::{SqliteError, WriteError};
use super::file;
use super::open_error::SqliteOpenError;
use super::operation_queue::OperationQueue;
use super::rows::RecordTable;
use super::spin::{SpinReceiver, SpinWaits};
use super::{SqliteOptions, schema};
use crate::counters::AtomicCounters;
use crate::round_robin::Cancellable;

/// A queued read and its caller, independent of the result type.
trait QueuedRead: Cancellable + Send {
    fn run(self: Box<Self>, connection: &Connection);
}

/// A read, and the sender of its result.
struct PendingRead<Q, T> {
    query: Q,
    freshness: Arc<ChangeTracker>,
    counts: Arc<AtomicCounters>,
    answer: oneshot::Sender<Result<T, WriteError>>,
}

impl<Q, T> Cancellable for PendingRead<Q, T> {
    fn is_caller_waiting(&self) -> bool {
        !self.answer.is_canceled()
    }
}

impl<Q, T: Send> QueuedRead for PendingRead<Q, T>
where
    Q: FnOnce(&RecordTable<'_>, u64) -> Result<T, WriteError> + Send,
{
    fn run(self: Box<Self>, connection: &Connection) {
        let Self { query, freshness, counts, answer } = *self;
        if answer.is_canceled() {
            return;
        }
        counts.reads.fetch_add(1, Ordering::Relaxed);
        // Fails only if the caller was cancelled.
        let _ = answer.send(read_snapshot(connection, &freshness, query));
    }
}

/// Queue of reads, and the threads that process it. Companies alternate, and one company's reads use three quarters of the
/// threads at most. Dropping it waits until the queue is empty.
pub(super) struct Readers {
    queue: OperationQueue<Box<dyn QueuedRead>>,
    threads: Vec<JoinHandle<()>>,
    freshness: Arc<ChangeTracker>,
    counts: Arc<AtomicCounters>,
    waits: SpinWaits,
}

impl Readers {
    pub(super) fn start(
        path: &Path,
        options: &SqliteOptions,
        freshness: &Arc<ChangeTracker>,
        counts: &Arc<AtomicCounters>,
    ) -> Result<Self, SqliteOpenError> {
        let readers = options.readers.max(1);
        let queue = OperationQueue::new(readers * 3 / 4);
        // If a thread cannot be started, dropping this value ends the others.
        let (freshness, counts, spin) = (Arc::clone(freshness), Arc::clone(counts), options.spin);
        let mut store_readers = Self { queue, threads: Vec::new(), freshness, counts, waits: spin.waits() };
        for _ in 0..readers {
            let connection =
                file::open_reader(path, options).map_err(|error| SqliteOpenError::failed(path, error))?;
            let reads = store_readers.queue.receiver();
            let thread = thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || run_reader(&connection, spin.receiver(reads)))
                .map_err(|error| SqliteOpenError::failed(path, error))?;
            store_readers.threads.push(thread);
        }
        Ok(store_readers)
    }

    /// Runs `query` of a company, whose name is empty for the process itself, on a reader thread, in its own snapshot.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        company: &str,
        query: impl FnOnce(&RecordTable<'_>) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_with_counter(company, |rows, _| query(rows)).await
    }

    /// Runs `query` as [`read`](Self::read) does, with the file's change counter in its snapshot.
    pub(super) async fn read_with_counter<T: Send + 'static>(
        &self,
        company: &str,
        query: impl FnOnce(&RecordTable<'_>, u64) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, receiver) = oneshot::channel();
        let (freshness, counts) = (Arc::clone(&self.freshness), Arc::clone(&self.counts));
        let read = Box::new(PendingRead { query, freshness, counts, answer });
        let is_polled = self.queue.send(company, read).map_err(StoreError::unavailable)?;
        match self.waits.wait(receiver, is_polled).await {
            Ok(outcome) => outcome.map_err(StoreError::from),
            Err(oneshot::Canceled) => Err(StoreError::unavailable(SqliteError::closed())),
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// Runs reads until the queue is closed. A read that panics fails alone: without the threads, the process could not read
/// until it is restarted.
fn run_reader(connection: &Connection, mut reads: SpinReceiver<Box<dyn QueuedRead>>) {
    while let Some(read) = reads.receive() {
        let panicked = catch_unwind(AssertUnwindSafe(|| read.run(connection))).is_err();
        if panicked && !connection.is_autocommit() {
            // Without it, no later read could begin.
            let _ = connection.execute_batch("ROLLBACK");
        }
    }
}

/// Runs a query and reads the change counter in one transaction.
fn read_snapshot<T>(
    connection: &Connection,
    freshness: &ChangeTracker,
    query: impl FnOnce(&RecordTable<'_>, u64) -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    let check_started = freshness.now();
    connection.prepare_cached("BEGIN")?.execute(())?;
    let outcome = schema::last_version(connection).map_err(WriteError::from).and_then(|version| {
        freshness.record_counter(version, check_started);
        query(&RecordTable(connection), version)
    });
    let commit_result = connection.prepare_cached("COMMIT").and_then(|mut end| end.execute(()));
    let found = outcome?;
    commit_result?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Opens a new file, and readers of it.
    fn open(folder: &tempfile::TempDir, readers: usize) -> (Readers, Connection) {
        let path = folder.path().join("app.db");
        let options = SqliteOptions { readers, ..SqliteOptions::default() };
        let (writer, version) = file::open(&path, &options).expect("open");
        let freshness = Arc::new(ChangeTracker::new(options.clock.clone(), version));
        (Readers::start(&path, &options, &freshness, &Arc::default()).expect("readers"), writer)
    }

    #[tokio::test]
    async fn long_reads_of_one_company_leave_a_thread_to_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let (readers, _writer) = open(&folder, 4);
        let readers = Arc::new(readers);
        let gates: Vec<_> = (0..8)
            .map(|_| {
                let (release, gate) = mpsc::channel::<()>();
                let readers = Arc::clone(&readers);
                let read = tokio::spawn(async move {
                    readers.read("large", move |_| Ok(gate.recv().is_ok())).await.expect("a result")
                });
                (release, read)
            })
            .collect();
        let has_begun = async {
            while readers.counts.reads.load(Ordering::Relaxed) < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), has_begun).await.expect("three threads read");
        let short = readers.read("small", |_| Ok(1));
        let short = tokio::time::timeout(Duration::from_secs(60), short).await;
        for (release, read) in gates {
            release.send(()).expect("it waits");
            assert!(read.await.expect("no panic"));
        }
        assert_eq!(short.expect("the other company does not wait").expect("a result"), 1);
    }

    #[tokio::test]
    async fn a_read_that_panics_leaves_its_thread_to_later_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let (readers, _writer) = open(&folder, 1);
        for _ in 0..2 {
            let panicking = readers.read("company", |_| -> Result<(), WriteError> { panic!("a defect") });
            assert!(panicking.await.is_err(), "its caller gets no result");
            let count = readers.read("company", |rows| {
                Ok(rows.0.query_row("SELECT count(*) FROM records", (), |row| row.get::<_, i64>(0))?)
            });
            assert_eq!(count.await.expect("the thread reads on"), 0);
        }
    }
}
