//! Graceful shutdown: its stages, and the handle that a service's server, streams and health share.
//!
//! | [`ShutdownStage`] | entered by | effect |
//! |---|---|---|
//! | `Running` | | |
//! | `LameDuck` | the signal to stop | `/readyz` fails; requests are still accepted |
//! | `Draining` | the server, after [`ServeLimits::lame_duck`](crate::serve::ServeLimits::lame_duck) | the listener closes; what runs may finish |
//! | `Ending` | the server, shortly before the drain times out, or a second signal | each run ends with `SERVER_SHUTTING_DOWN` |

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use agent_core::error::{AgentError, AgentErrorKind};
use futures_util::FutureExt;
use futures_util::future::Fuse;
use tokio::sync::watch;

/// Stage of a graceful shutdown. Stages are entered in order; some may be skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownStage {
    /// No shutdown has started.
    #[default]
    Running,
    /// Readiness fails, and new connections are still accepted.
    LameDuck,
    /// The listener is closed, and running exchanges may finish.
    Draining,
    /// Running exchanges end with an error.
    Ending,
}

/// Shutdown of a service. Clones share its stage.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(watch::Sender<ShutdownStage>);

impl Shutdown {
    /// Begins the shutdown, as the signal to stop does.
    pub fn begin(&self) {
        self.advance(ShutdownStage::LameDuck);
    }

    /// Ends the remaining requests, as a second signal does.
    pub fn end(&self) {
        self.advance(ShutdownStage::Ending);
    }

    /// Returns the current stage.
    #[must_use]
    pub fn stage(&self) -> ShutdownStage {
        *self.0.borrow()
    }

    /// Waits until the shutdown is at `stage` or a later one.
    pub fn wait_for(&self, stage: ShutdownStage) -> impl Future<Output = ()> + Send + use<> {
        let mut stages = self.0.subscribe();
        async move {
            if stages.wait_for(|now| *now >= stage).await.is_err() {
                // No handle is left that could advance the stage.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Enters `stage`, unless the shutdown is at a later one.
    pub(crate) fn advance(&self, stage: ShutdownStage) {
        self.0.send_if_modified(|now| {
            let is_later = stage > *now;
            *now = stage.max(*now);
            is_later
        });
    }

    /// Creates an observer of [`ShutdownStage::Ending`] for one task.
    pub(crate) fn observe_ending(&self) -> EndingObserver {
        let ending: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(self.wait_for(ShutdownStage::Ending));
        EndingObserver { stages: self.0.subscribe(), ending: ending.fuse(), waker: None }
    }

    /// Runs `work` until the shutdown ends running work; `None` if `work` was dropped for that.
    pub(crate) async fn run_until_ending<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut observer = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            // Most work is done at its first poll and needs no observer.
            observer.get_or_insert_with(|| self.observe_ending()).poll(cx).map(|()| None)
        })
        .await
    }
}

/// Returns the error of a run that the shutdown ends.
pub(crate) fn shutting_down() -> AgentError {
    AgentError::new(AgentErrorKind::ShuttingDown, "the server is shutting down; send the request again")
}

/// Observer of [`ShutdownStage::Ending`] for one task, to be polled often: it registers the task's waker once. Further
/// polls with the same waker compare a version number, until a shutdown has started.
///
/// From then on each poll polls the channel: its version changes before its waiters are woken, so that a poll in between
/// would otherwise hide the change from the poll that the wake-up causes.
pub(crate) struct EndingObserver {
    /// Receiver whose version changes with the stage; `ending` is polled only after a change.
    stages: watch::Receiver<ShutdownStage>,
    ending: Fuse<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Waker registered with `ending`.
    waker: Option<Waker>,
}

impl EndingObserver {
    /// Returns `Ready` once, when the stage is reached.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_registered = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        // An error means that no handle is left, so that the stage stays.
        if is_registered && !self.stages.has_changed().unwrap_or(false) {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        self.ending.poll_unpin(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::task::{ArcWake, waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl ArcWake for Wakes {
        fn wake_by_ref(wakes: &Arc<Self>) {
            wakes.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn shutdown_stages_only_advance() {
        let shutdown = Shutdown::default();
        assert_eq!(shutdown.stage(), ShutdownStage::Running);
        let mut draining = Box::pin(shutdown.wait_for(ShutdownStage::Draining));
        shutdown.begin();
        assert_eq!(shutdown.stage(), ShutdownStage::LameDuck);
        assert!(draining.as_mut().now_or_never().is_none());
        shutdown.end();
        shutdown.begin();
        shutdown.advance(ShutdownStage::Draining);
        assert_eq!(shutdown.stage(), ShutdownStage::Ending);
        assert!(draining.now_or_never().is_some(), "a later stage includes the earlier ones");
    }

    #[test]
    fn an_observer_is_woken_by_the_end_and_reports_it_once() {
        let shutdown = Shutdown::default();
        let mut observer = shutdown.observe_ending();
        let wakes = Arc::new(Wakes::default());
        let waker = waker(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(observer.poll(&mut cx).is_pending());
        shutdown.begin();
        assert!(observer.poll(&mut cx).is_pending() && observer.poll(&mut cx).is_pending());
        shutdown.advance(ShutdownStage::Draining);
        let before = wakes.0.load(Ordering::SeqCst);
        assert!(observer.poll(&mut cx).is_pending());
        shutdown.end();
        assert!(wakes.0.load(Ordering::SeqCst) > before);
        assert!(observer.poll(&mut cx).is_ready());
        assert!(observer.poll(&mut cx).is_pending());
        assert!(shutdown.observe_ending().poll(&mut cx).is_ready(), "a late observer");
    }

    #[test]
    fn an_observer_outlives_the_handles() {
        let mut observer = Shutdown::default().observe_ending();
        let waker = waker(Arc::new(Wakes::default()));
        let mut cx = Context::from_waker(&waker);
        assert!(observer.poll(&mut cx).is_pending() && observer.poll(&mut cx).is_pending());
    }

    #[tokio::test]
    async fn work_is_dropped_at_the_end() {
        let shutdown = Shutdown::default();
        assert_eq!(shutdown.run_until_ending(async { 1 }).await, Some(1));
        let endless = shutdown.run_until_ending(std::future::pending::<()>());
        let (ended, ()) = tokio::join!(endless, async { shutdown.end() });
        assert_eq!(ended, None);
    }
}
