//! Blocking work, such as the analysis of a text, in a pool of threads.

use std::sync::Arc;

use futures_channel::oneshot;

/// A pool of threads for blocking work, such as that of `tokio::task::spawn_blocking`.
pub trait BlockingPool: Send + Sync + 'static {
    /// Starts the work on a thread of the pool, and returns at once.
    fn run(&self, work: Box<dyn FnOnce() + Send>);
}

impl<F: Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static> BlockingPool for F {
    fn run(&self, work: Box<dyn FnOnce() + Send>) {
        self(work);
    }
}

/// Runs work in a pool and returns its result; `None` if it panicked, or if the pool dropped it.
pub(super) async fn run_blocking<T: Send + 'static>(
    pool: &Arc<dyn BlockingPool>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = oneshot::channel();
    pool.run(Box::new(move || {
        // The receiver is gone if the caller was dropped; the work is done nevertheless.
        let _ = sender.send(work());
    }));
    receiver.await.ok()
}
