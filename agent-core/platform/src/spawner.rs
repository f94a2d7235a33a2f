//! Background tasks as a trait, so that the crate depends on no async runtime.

use futures_util::future::BoxFuture;

/// Runs tasks in the background, such as `tokio::spawn` does.
pub trait Spawner: Send + Sync + 'static {
    /// Starts a task and returns at once. The task runs until it ends, or until the runtime stops.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

impl<F: Fn(BoxFuture<'static, ()>) + Send + Sync + 'static> Spawner for F {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self(task);
    }
}
