//! Conformance suites for the core's traits, for every implementation, an embedder's own included.
//!
//! A suite is an async function that takes a factory and panics if the contract is violated, with a message that
//! describes the violation. It needs no runtime of its own.
//!
//! ```
//! use std::sync::Arc;
//!
//! use agent_core::conformance::{self, ModelSubject, Scenario};
//! use agent_core::testing::ScriptedModel;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance::model(async |scenario| match scenario {
//!     Scenario::Completes => Some(ModelSubject::new(Arc::new(ScriptedModel::repeating("Hello.")))),
//!     _ => None,
//! })
//! .await;
//! # }
//! ```

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures_timer::Delay;
use futures_util::future::{Either, select};

mod backend;
mod context_layer;
mod model;
mod tool_registry;

pub use backend::{BackendSubject, backend};
pub use context_layer::{ContextLayerSubject, context_layer};
pub use model::{ModelSubject, model};
pub use tool_registry::{SampleCall, TenantProbe, ToolRegistrySubject, tool_registry};

/// Timeout of a suite for an event that must happen.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of polling a condition that has no notification.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Behaviour of the remote end of a subject: a model's vendor, a tool's work, a layer's data source. A factory returns `None` for a scenario that it cannot provide;
/// for example, a model within the process has no connection that could break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scenario {
    /// Answers every request with some text.
    Completes,
    /// Begins an answer with some text, then sends nothing more without ending.
    Hangs,
    /// Begins an answer with some text, then ends without completing it.
    Truncates,
    /// Rejects the request before the first output.
    Rejects,
}

/// Counts the work in progress below a subject: open connections, busy threads, open streams.
pub type OpenWorkCounter = Box<dyn Fn() -> usize + Send + Sync>;

/// Counts the effects of calls so far: records written, messages sent.
pub type EffectCounter = Box<dyn Fn() -> usize + Send + Sync>;

/// Awaits a future that must complete. For suites, also those of other crates.
///
/// # Panics
/// If the future has not completed within half a minute; the message begins with `what`.
pub async fn with_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    match select(Box::pin(future), Delay::new(EVENT_TIMEOUT)).await {
        Either::Left((value, _)) => value,
        Either::Right(_) => panic!("{what}: nothing within {EVENT_TIMEOUT:?}"),
    }
}

/// Waits until no work is in progress. For suites, also those of other crates.
///
/// # Panics
/// If work is in progress for ten seconds; the message begins with `what`.
pub async fn wait_until_idle(what: &str, open: &OpenWorkCounter) {
    with_timeout(what, async {
        while open() > 0 {
            Delay::new(POLL_INTERVAL).await;
        }
    })
    .await;
}

/// Polls a future that hangs until its work is in progress, drops it, and waits until no work is in progress. Without
/// a counter, the future is polled for a moment. For suites, also those of other crates.
///
/// # Panics
/// If the future completes, or if the work does not begin or end within half a minute; the message begins with `what`.
pub async fn drop_in_progress<T: Debug>(
    what: &str,
    future: impl Future<Output = T>,
    open: Option<&OpenWorkCounter>,
) {
    {
        let work_begins = async {
            let Some(open) = open else { return Delay::new(POLL_INTERVAL).await };
            while open() == 0 {
                Delay::new(POLL_INTERVAL).await;
            }
        };
        let (future, work_begins, beginning) =
            (pin!(future), pin!(work_begins), format!("{what}: its beginning"));
        if let Either::Left((result, _)) = with_timeout(&beginning, select(future, work_begins)).await {
            panic!("{what}: it hangs and has no result: {result:?}");
        }
    }
    if let Some(open) = open {
        wait_until_idle(what, open).await;
    }
}

#[cfg(test)]
mod tests;
