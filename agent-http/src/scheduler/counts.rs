//! How many jobs there are, for those who look often.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::job::{JobCounts, JobStore};
use tokio::sync::Mutex;
use tokio::time::{self, Instant};

/// How long an answer is good for. Counting walks through the store, and anybody may ask for it.
const FRESH: Duration = Duration::from_secs(1);
/// How long a store may take before it counts as one that cannot be reached.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counts a store's jobs, at most once a second however many ask.
pub struct Counts {
    jobs: Arc<dyn JobStore>,
    clock: Arc<dyn Clock>,
    last: Mutex<Option<(Instant, Option<Arc<JobCounts>>)>>,
}

impl Counts {
    /// Of the store's jobs.
    pub fn new(jobs: Arc<dyn JobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { jobs, clock, last: Mutex::new(None) }
    }

    /// What there is, or was a second ago; none where the store does not say.
    pub async fn now(&self) -> Option<Arc<JobCounts>> {
        // Whoever comes while somebody counts waits for that answer.
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
