//! Cached job counts for health checks and metrics scrapes.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_jobs::job::{JobCounts, JobStore};
use tokio::sync::Mutex;
use tokio::time::{self, Instant};

/// Time for which a result is cached. Counting scans the store, and `/health` needs no credential.
const COUNTS_MAX_AGE: Duration = Duration::from_secs(1);
/// Time after which the store counts as unreachable.
const COUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Counts a store's jobs at most once a second, however many requests ask for them.
pub struct JobCountCache {
    jobs: Arc<dyn JobStore>,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<(Instant, Option<Arc<JobCounts>>)>>,
}

impl JobCountCache {
    /// Creates a counter of the jobs in `jobs`.
    pub fn new(jobs: Arc<dyn JobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { jobs, clock, last: Mutex::new(None) }
    }

    /// Returns the job counts, at most one second old; `None` if the store fails or times out.
    pub async fn current(&self) -> Option<Arc<JobCounts>> {
        // Holding the lock while counting makes concurrent callers wait for this result instead of counting again.
        let mut last = self.last.lock().await;
        if let Some((since, counts)) = &*last
            && since.elapsed() < COUNTS_MAX_AGE
        {
            return counts.clone();
        }
        let now = super::worker::now(&*self.clock);
        let counts = match time::timeout(COUNT_TIMEOUT, self.jobs.count_by_state(now)).await {
            Ok(Ok(counts)) => Some(Arc::new(counts)),
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to count jobs; their metrics are left out");
                None
            }
            Err(_) => None,
        };
        *last = Some((Instant::now(), counts.clone()));
        counts
    }
}
