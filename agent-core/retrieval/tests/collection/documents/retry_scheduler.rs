//! Retries of webhook deliveries with exponential backoff.

use std::time::Duration;

/// Longest pause between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(3600);

/// Decides when a failed delivery is attempted again.
pub struct RetryScheduler {
    base_delay: Duration,
    max_attempts: u32,
}

impl RetryScheduler {
    /// Returns the pause before the given attempt, or `None` once the delivery is given up.
    pub fn next_delay(&self, attempt: u32, jitter: f64) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        let exponential = self.base_delay.saturating_mul(1 << attempt.min(16));
        Some(exponential.min(MAX_BACKOFF).mul_f64(1.0 + jitter))
    }

    /// Honours a server that asks for patience by `Retry-After`.
    pub fn with_retry_after(&self, delay: Duration, retry_after: Option<Duration>) -> Duration {
        retry_after.map_or(delay, |asked| asked.max(delay))
    }
}

/// Moves deliveries that were given up to the dead letter queue.
pub fn bury_expired(queue: &mut DeliveryQueue, dead_letters: &mut Vec<Delivery>) {
    while let Some(delivery) = queue.pop_expired() {
        dead_letters.push(delivery);
    }
}
