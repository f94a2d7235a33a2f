//! Reader threads.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use agent_platform::records::StoreError;
use async_channel::{Receiver, Sender};
use futures_channel::oneshot;
use rusqlite::Connection;

use super::fault::{Fault, Halt};
use super::file::{self, OpenError};
use super::freshness::Freshness;
use super::rows::Rows;
use super::{Counts, SqliteOptions, schema};

/// Number of times a thread polls the empty queue, yielding in between, before it blocks: some tens of
/// microseconds. Reads often follow one another, such as of a role and then of its documents, and waking a
/// thread costs as much as reading many rows.
const LOOKS: usize = 400;

/// Number of times a task polls for its result before it waits for the waker.
const TASK_LOOKS: usize = 100;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// Bounded queue of reads, and the threads that process it. Dropping it waits until the queue is empty.
pub(super) struct Readers {
    queue: Sender<Job>,
    threads: Vec<JoinHandle<()>>,
    freshness: Arc<Freshness>,
    counts: Arc<Counts>,
}

impl Readers {
    pub(super) fn start(
        path: &Path,
        options: &SqliteOptions,
        freshness: &Arc<Freshness>,
        counts: &Arc<Counts>,
    ) -> Result<Self, OpenError> {
        let (queue, jobs) = async_channel::bounded(options.queue.max(1));
        // If a thread cannot be started, dropping this value ends the others.
        let mut readers =
            Self { queue, threads: Vec::new(), freshness: Arc::clone(freshness), counts: Arc::clone(counts) };
        for _ in 0..options.readers.max(1) {
            let connection =
                file::open_reader(path, options).map_err(|error| OpenError::failed(path, error))?;
            let jobs = jobs.clone();
            let thread = thread::Builder::new()
                .name("store-reader".to_owned())
                .spawn(move || work(&connection, &jobs))
                .map_err(|error| OpenError::failed(path, error))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Runs `query` on a reader thread, in its own snapshot.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Rows<'_>) -> Result<T, Halt> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let (freshness, counts) = (Arc::clone(&self.freshness), Arc::clone(&self.counts));
        let job: Job = Box::new(move |connection| {
            if answer.is_canceled() {
                return;
            }
            counts.reads.fetch_add(1, Ordering::Relaxed);
            // Fails only if the caller was cancelled.
            let _ = answer.send(snapshot(connection, &freshness, query));
        });
        self.queue.send(job).await.map_err(|_| StoreError::unavailable(Fault::closed()))?;
        match patiently(answered).await {
            Ok(outcome) => outcome.map_err(StoreError::from),
            Err(oneshot::Canceled) => Err(StoreError::unavailable(Fault::closed())),
        }
    }
}

/// Waits for a result, polling it some more times before the task sleeps, because a read from memory is
/// faster than waking a worker thread. Other ready tasks run in between.
async fn patiently<T>(answered: oneshot::Receiver<T>) -> Result<T, oneshot::Canceled> {
    let mut answered = answered;
    let mut looks = 0;
    poll_fn(|cx| {
        let polled = Pin::new(&mut answered).poll(cx);
        if polled.is_pending() && looks < TASK_LOOKS {
            looks += 1;
            cx.waker().wake_by_ref();
        }
        polled
    })
    .await
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

fn work(connection: &Connection, jobs: &Receiver<Job>) {
    while let Some(job) = soon(jobs).or_else(|| jobs.recv_blocking().ok()) {
        job(connection);
    }
}

/// Returns the next read if one arrives while polling.
fn soon(jobs: &Receiver<Job>) -> Option<Job> {
    (0..LOOKS).find_map(|_| {
        let job = jobs.try_recv().ok();
        if job.is_none() {
            thread::yield_now();
        }
        job
    })
}

/// Runs a query and reads the change counter in one transaction.
fn snapshot<T>(
    connection: &Connection,
    freshness: &Freshness,
    query: impl FnOnce(&Rows<'_>) -> Result<T, Halt>,
) -> Result<T, Halt> {
    let begun = freshness.now();
    connection.prepare_cached("BEGIN")?.execute(())?;
    let outcome = schema::last_version(connection).map_err(Halt::from).and_then(|version| {
        freshness.observe(version, begun);
        query(&Rows(connection))
    });
    let ended = connection.prepare_cached("COMMIT").and_then(|mut end| end.execute(()));
    let found = outcome?;
    ended?;
    Ok(found)
}
