//! Retry backoff.

use std::time::Duration;

/// Delay after the first attempt, before jitter.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Upper limit of the exponential delay.
const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// Upper limit of the delay that a receiver can request.
const MAX_REQUESTED_BACKOFF: Duration = Duration::from_secs(24 * 3600);

/// Delay before the next delivery to a busy receiver that requests none.
const DEFAULT_DEFERRAL: Duration = Duration::from_secs(1);
/// Upper limit of the delay that a busy receiver can request.
const MAX_REQUESTED_DEFERRAL: Duration = Duration::from_secs(60);
/// Time after the first claim of an occurrence during which deliveries to a busy receiver do not count as attempts.
pub(super) const MAX_DEFERRAL: Duration = Duration::from_secs(3600);

/// Returns the delay before the next delivery of an occurrence that the receiver is busy with.
pub(super) fn deferral(retry_after: Option<Duration>) -> Duration {
    retry_after.unwrap_or(DEFAULT_DEFERRAL).clamp(DEFAULT_DEFERRAL, MAX_REQUESTED_DEFERRAL)
}

/// Returns the delay after failed attempt number `attempt`, counted from 1: exponential from one second to an hour,
/// scaled to between a half and the whole by `jitter` (0 to [`u32::MAX`]), so that jobs that failed together are not
/// retried together. A longer `retry_after` requested by the receiver takes precedence, up to a day.
pub fn backoff(attempt: u32, jitter: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = INITIAL_BACKOFF.saturating_mul(1 << attempt.saturating_sub(1).min(12)).min(MAX_BACKOFF);
    let half = doubled / 2;
    let own = half + half.mul_f64(f64::from(jitter) / f64::from(u32::MAX));
    own.max(retry_after.unwrap_or_default().min(MAX_REQUESTED_BACKOFF))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_their_bounds() {
        let whole = |attempt| backoff(attempt, u32::MAX, None).as_millis();
        assert_eq!(
            [1, 2, 3, 12, 13, 100, u32::MAX].map(whole),
            [1_000, 2_000, 4_000, 2_048_000, 3_600_000, 3_600_000, 3_600_000]
        );
        assert_eq!(backoff(3, 0, None), Duration::from_secs(2));
        assert_eq!(backoff(1, 0, Some(Duration::from_secs(90))), Duration::from_secs(90));
        assert_eq!(backoff(1, 0, Some(Duration::MAX)), MAX_REQUESTED_BACKOFF);
        assert_eq!(backoff(9, 0, Some(Duration::from_secs(1))), Duration::from_secs(128));
    }
}
