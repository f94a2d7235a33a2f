//! Reader threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use agent_platform::records::StoreError;
use async_channel::Sender;
use futures_channel::oneshot;
use rusqlite::Connection;

use super::fault::{SqliteError, WriteError};
use super::file;
use super::freshness::ChangeTracker;
use super::open_error::SqliteOpenError;
use super::rows::RecordTable;
use super::spin::{SpinOptions, SpinReceiver};
use super::{SqliteOptions, schema};
use crate::activity::ActivityCounters;

type ReadTask = Box<dyn FnOnce(&Connection) + Send>;

/// Bounded queue of reads, and the threads that process it. Dropping it waits until the queue is empty.
pub(super) struct Readers {
    queue: Sender<ReadTask>,
    threads: Vec<JoinHandle<()>>,
    freshness: Arc<ChangeTracker>,
    counts: Arc<ActivityCounters>,
    spin: SpinOptions,
}

impl Readers {
    pub(super) fn start(
        path: &Path,
        options: &SqliteOptions,
        freshness: &Arc<ChangeTracker>,
        counts: &Arc<ActivityCounters>,
    ) -> Result<Self, SqliteOpenError> {
        let (queue, jobs) = async_channel::bounded(options.queue.max(1));
        // If a thread cannot be started, dropping this value ends the others.
        let (freshness, counts, spin) = (Arc::clone(freshness), Arc::clone(counts), options.spin);
        let mut readers = Self { queue, threads: Vec::new(), freshness, counts, spin };
        for _ in 0..options.readers.max(1) {
            let connection =
                file::open_reader(path, options).map_err(|error| SqliteOpenError::failed(path, error))?;
            let jobs = jobs.clone();
            let thread = thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || run_reader(&connection, spin.receiver(jobs)))
                .map_err(|error| SqliteOpenError::failed(path, error))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Runs `query` on a reader thread, in its own snapshot.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&RecordTable<'_>) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_with_counter(|rows, _| query(rows)).await
    }

    /// Runs `query` on a reader thread, in its own snapshot, with the file's change counter in it.
    pub(super) async fn read_with_counter<T: Send + 'static>(
        &self,
        query: impl FnOnce(&RecordTable<'_>, u64) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, receiver) = oneshot::channel();
        let (freshness, counts) = (Arc::clone(&self.freshness), Arc::clone(&self.counts));
        let job: ReadTask = Box::new(move |connection| {
            if answer.is_canceled() {
                return;
            }
            counts.reads.fetch_add(1, Ordering::Relaxed);
            // Fails only if the caller was cancelled.
            let _ = answer.send(read_snapshot(connection, &freshness, query));
        });
        self.queue.send(job).await.map_err(|_| StoreError::unavailable(SqliteError::closed()))?;
        match self.spin.wait(receiver).await {
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

fn run_reader(connection: &Connection, mut jobs: SpinReceiver<ReadTask>) {
    while let Some(job) = jobs.receive() {
        job(connection);
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
