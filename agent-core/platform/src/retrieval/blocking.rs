//! Work that takes long without waiting, such as the analysis of a text.

use std::sync::Arc;

use futures_channel::oneshot;

/// Runs work that occupies a thread, such as `tokio::task::spawn_blocking` does.
pub trait BlockingPool: Send + Sync + 'static {
    /// Runs work on a thread that may be occupied, and returns at once.
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
        // The receiver is gone if the caller was dropped; the work is done all the same.
        let _ = sender.send(work());
    }));
    receiver.await.ok()
}
