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

/// How long a suite waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits between two looks at something that it can only look at.
const GLANCE: Duration = Duration::from_millis(10);

/// What the far side of a model or a backend is to do. A factory that cannot stage a scenario, as
/// there is no far side that could be cut off in a model within the process, says so by `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scenario {
    /// Answers whatever is asked, as often as it is asked, with some text.
    Answers,
    /// Begins an answer with some text and then says nothing more, but does not end either.
    Hangs,
    /// Begins an answer with some text and breaks off.
    CutOff,
    /// Refuses before the first word.
    Refuses,
}

/// Counts how much work is under way below a subject: open connections, busy threads, held streams.
pub type OpenWork = Box<dyn Fn() -> usize + Send + Sync>;

/// Waits for what must come.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match select(Box::pin(future), Delay::new(PATIENCE)).await {
        Either::Left((value, _)) => value,
        Either::Right(_) => panic!("{what}: nothing within {PATIENCE:?}"),
    }
}

/// Waits until no work is under way.
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
