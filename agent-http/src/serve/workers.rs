//! Worker threads that run connections.

use std::future::Future;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use futures_util::future::{self, Either, FutureExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::dispatcher::{self, Dispatch};
use tracing::subscriber::NoSubscriber;

/// Pool of threads that each run their own connections from start to end, on a current-thread runtime.
///
/// A stream is a long sequence of small tasks, each started by a network event. On a work-stealing runtime each may
/// wake another thread, search other threads' queues and move the stream's state between cores' caches, which costs
/// more than the task itself. Here only the thread that the network event woke runs. The cost is that a connection
/// waits for the other connections of its thread, so nothing that runs on a worker may block or compute for long.
///
/// Clones share the same threads. The threads end when the last clone is dropped, and what they run is dropped with
/// them.
#[derive(Clone, Debug)]
pub struct Workers(Arc<Threads>);

#[derive(Debug)]
struct Threads {
    runtimes: Vec<Handle>,
    /// Round-robin index of the next thread.
    next: AtomicUsize,
    /// The threads end when these are dropped.
    _running: Vec<oneshot::Sender<()>>,
}

impl Workers {
    /// Starts as many threads as the current tokio runtime has workers: one per core, or `TOKIO_WORKER_THREADS`.
    ///
    /// # Errors
    /// Returns an error if a thread or a runtime cannot be created.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn start_default() -> io::Result<Self> {
        let count = Handle::current().metrics().num_workers();
        Self::start(NonZero::new(count).unwrap_or(NonZero::<usize>::MIN))
    }

    /// Starts `count` threads.
    ///
    /// # Errors
    /// Returns an error if a thread or a runtime cannot be created.
    pub fn start(count: NonZero<usize>) -> io::Result<Self> {
        let (mut runtimes, mut running) = (Vec::new(), Vec::new());
        for number in 1..=count.get() {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtimes.push(runtime.handle().clone());
            let (run, stopped) = oneshot::channel::<()>();
            running.push(run);
            let log = scoped_log();
            thread::Builder::new().name(format!("serve-{number}")).spawn(move || {
                let _listening = log.as_ref().map(dispatcher::set_default);
                // The receiver ends with an error, since nothing is ever sent.
                let _ = runtime.block_on(stopped);
                // Does not wait for blocking tasks, such as a DNS lookup that hangs.
                runtime.shutdown_background();
            })?;
        }
        Ok(Self(Arc::new(Threads { runtimes, next: AtomicUsize::new(0), _running: running })))
    }

    /// Runs the future that `serve` returns for a stream on the next thread, round-robin.
    ///
    /// # Errors
    /// Returns an error if the stream cannot be deregistered from the runtime that accepted it.
    pub(super) fn spawn<F>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stream = stream.into_std()?;
        let index = self.0.next.fetch_add(1, Ordering::Relaxed) % self.0.runtimes.len();
        // An `async` block would store its captured arguments beside the connection for the connection's lifetime.
        let connection = future::lazy(move |_| {
            // Registered here, so that network events wake this thread.
            match TcpStream::from_std(stream) {
                Ok(stream) => Either::Left(serve(stream)),
                Err(error) => {
                    tracing::error!(%error, "failed to register a connection; it is closed");
                    Either::Right(future::ready(()))
                }
            }
        });
        self.0.runtimes[index].spawn(connection.flatten());
        Ok(())
    }
}

/// Returns the calling thread's tracing dispatcher, which tests set per thread; `None` if there is none.
fn scoped_log() -> Option<Dispatch> {
    Some(dispatcher::get_default(Dispatch::clone)).filter(|dispatch| !dispatch.is::<NoSubscriber>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn there_are_as_many_threads_as_the_runtime_has_workers() {
        let workers = Workers::start_default().expect("threads");
        assert_eq!(workers.0.runtimes.len(), 3);
    }
}
