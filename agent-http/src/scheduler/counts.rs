//! Cached job counts for health checks and metrics scrapes.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::job::{JobCounts, JobStore};
use tokio::sync::Mutex;
use tokio::time::{self, Instant};

/// Time for which a result is cached. Counting scans the store, and `/health` needs no credential.
const FRESH: Duration = Duration::from_secs(1);
/// Time after which the store counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counts a store's jobs at most once a second, however many requests ask for them.
pub struct Counts {
    jobs: Arc<dyn JobStore>,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<(Instant, Option<Arc<JobCounts>>)>>,
}

impl Counts {
    /// Creates a counter of the jobs in `jobs`.
    pub fn new(jobs: Arc<dyn JobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { jobs, clock, last: Mutex::new(None) }
    }

    /// Returns the job counts, at most one second old; `None` if the store fails or times out.
    pub async fn now(&self) -> Option<Arc<JobCounts>> {
        // Holding the lock while counting makes concurrent callers wait for this result instead of counting again.
        let mut last = self.last.lock().await;
        if let Some((since, counts)) = &*last
            && since.elapsed() < FRESH
        {
            return counts.clone();
        }
        let now = super::worker::now(&*self.clock);
        let counts = match time::timeout(PATIENCE, self.jobs.counts(now)).await {
            Ok(Ok(counts)) => Some(Arc::new(counts)),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the jobs cannot be counted");
                None
            }
            Err(_) => None,
        };
        *last = Some((Instant::now(), counts.clone()));
        counts
    }
}
