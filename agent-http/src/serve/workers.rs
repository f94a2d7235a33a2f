//! The threads that connections run on.

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

/// Threads that each run their own connections, from the first byte to the last, with a runtime of their own.
///
/// A stream is a long sequence of small pieces of work, each begun by the network. Where threads share that work,
/// each piece may wake another thread, look for work that others have, and move the stream's state from one core's
/// cache to another's, which costs more than the piece. Here nobody is woken but the thread that the network has
/// woken already. The price is that a connection waits for others of its thread, so nothing that runs on one may
/// take long.
///
/// Clones are the same threads. They end when the last clone is dropped, and with them what they run.
#[derive(Clone, Debug)]
pub struct Workers(Arc<Threads>);

#[derive(Debug)]
struct Threads {
    runtimes: Vec<Handle>,
    /// Whose turn it is.
    next: AtomicUsize,
    /// Dropped, they end the threads.
    _running: Vec<oneshot::Sender<()>>,
}

impl Workers {
    /// Starts one thread for each core that the process may use.
    ///
    /// # Errors
    /// A thread or a runtime cannot be had.
    pub fn one_per_core() -> io::Result<Self> {
        Self::start(thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN))
    }

    /// Starts `count` threads.
    ///
    /// # Errors
    /// A thread or a runtime cannot be had.
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
                // It ends by an error, since nothing is ever sent.
                let _ = runtime.block_on(stopped);
                // A look-up of a name that hangs does not hold up the end.
                runtime.shutdown_background();
            })?;
        }
        Ok(Self(Arc::new(Threads { runtimes, next: AtomicUsize::new(0), _running: running })))
    }

    /// Runs what `serve` makes of a stream on the thread whose turn it is.
    ///
    /// # Errors
    /// The stream cannot be taken from the runtime that has accepted it.
    pub(super) fn spawn<F>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stream = stream.into_std()?;
        let turn = self.0.next.fetch_add(1, Ordering::Relaxed) % self.0.runtimes.len();
        // An `async` block would keep room for what it makes the connection of, beside the connection, all the while.
        let connection = future::lazy(move |_| {
            // Registered here, so that the network wakes this thread and no other.
            match TcpStream::from_std(stream) {
                Ok(stream) => Either::Left(serve(stream)),
                Err(error) => {
                    tracing::error!(%error, "a connection cannot be registered");
                    Either::Right(future::ready(()))
                }
            }
        });
        self.0.runtimes[turn].spawn(connection.flatten());
        Ok(())
    }
}

/// Who listens to the log of the calling thread, which in tests is that thread's alone; none where nobody does yet.
fn scoped_log() -> Option<Dispatch> {
    Some(dispatcher::get_default(Dispatch::clone)).filter(|dispatch| !dispatch.is::<NoSubscriber>())
}
