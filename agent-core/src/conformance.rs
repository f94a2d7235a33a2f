//! The contracts of the core's traits as suites that every implementation runs, an integrator's own
//! included.
//!
//! A suite is an async function that is given a factory and panics with a sentence where the contract
//! does not hold. It needs no runtime of its own; whatever the subject needs, the caller brings.
//!
//! ```
//! use std::sync::Arc;
//!
//! use agent_core::conformance;
//! use agent_platform::memory::MemoryRecords;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance::records(async || Arc::new(MemoryRecords::default()) as _).await;
//! # }
//! ```

use std::time::Duration;

use futures_timer::Delay;
use futures_util::future::{Either, select};

mod backend;
#[cfg(feature = "jobs")]
mod jobs;
mod model;

pub use backend::{BackendSubject, backend};
#[cfg(feature = "jobs")]
pub use jobs::{jobs, jobs_against_model};
pub use model::{ModelSubject, model};

/// Timeout of a suite for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of polling a condition that has no notification.
const GLANCE: Duration = Duration::from_millis(10);

/// Behaviour of the remote end of a model or a backend. A factory returns `None` for a scenario that it cannot provide;
/// for example, a model within the process has no connection that could break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scenario {
    /// Answers every request with some text.
    Answers,
    /// Begins an answer with some text, then sends nothing more without ending.
    Hangs,
    /// Begins an answer with some text, then ends without completing it.
    CutOff,
    /// Rejects the request before the first output.
    Refuses,
}

/// Counts the work in progress below a subject: open connections, busy threads, open streams.
pub type OpenWork = Box<dyn Fn() -> usize + Send + Sync>;

/// Awaits a future that must complete, and panics after [`PATIENCE`].
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match select(Box::pin(future), Delay::new(PATIENCE)).await {
        Either::Left((value, _)) => value,
        Either::Right(_) => panic!("{what}: nothing within {PATIENCE:?}"),
    }
}

/// Waits until no work is in progress.
async fn at_rest(what: &str, open: &OpenWork) {
    within(what, async {
        while open() > 0 {
            Delay::new(GLANCE).await;
        }
    })
    .await;
}

#[cfg(test)]
mod tests;
