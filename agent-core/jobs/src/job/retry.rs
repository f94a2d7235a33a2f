//! Retry backoff.

use std::time::Duration;

/// Delay after the first attempt, before jitter.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Upper limit of the exponential delay.
const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// Upper limit of the delay that a receiver can request.
const MAX_REQUESTED_BACKOFF: Duration = Duration::from_secs(24 * 3600);
/// Maximum jitter of a requested delay, as a share of it.
const REQUESTED_SPREAD: f64 = 0.1;
/// Upper limit of the jitter that is added to a requested delay.
const MAX_REQUESTED_SPREAD: Duration = Duration::from_secs(60);

/// Delay before the next delivery to a busy receiver that requests none.
const DEFAULT_DEFERRAL: Duration = Duration::from_secs(1);
/// Upper limit of the delay that a busy receiver can request, and of that after which a receiver that is unavailable counts
/// as busy.
pub(super) const MAX_REQUESTED_DEFERRAL: Duration = Duration::from_secs(60);
/// Maximum time after the first claim of an occurrence, or the first one since it was postponed, during which deliveries to a
/// busy receiver do not count as attempts.
pub(super) const MAX_DEFERRAL: Duration = Duration::from_secs(3600);

/// Lower limit of the delay before the next delivery of an occurrence that was postponed.
const MIN_POSTPONEMENT: Duration = Duration::from_secs(60);
/// Maximum time after the first claim of an occurrence during which deliveries that were postponed do not count as attempts: the
/// longest window of a budget, a month, and a few days.
pub(super) const MAX_POSTPONEMENT: Duration = Duration::from_secs(35 * 24 * 3600);

/// Returns the delay before the next delivery of an occurrence that the receiver is busy with.
pub(super) fn deferral(retry_after: Option<Duration>) -> Duration {
    retry_after.unwrap_or(DEFAULT_DEFERRAL).clamp(DEFAULT_DEFERRAL, MAX_REQUESTED_DEFERRAL)
}

/// Returns the delay before the next delivery of an occurrence that the receiver may not run for the time `retry_after`: that
/// time, between a minute and a day, extended by `jitter` as in [`backoff`]. After a day it is delivered again, since a
/// budget may have been raised.
pub(super) fn postponement(retry_after: Duration, jitter: u32) -> Duration {
    backoff(1, jitter, Some(retry_after.max(MIN_POSTPONEMENT)))
}

/// Returns the delay after failed attempt number `attempt`, counted from 1. It grows exponentially from one second to
/// an hour. `jitter` (0 to [`u32::MAX`]) scales it to a value between a half and the whole, so that jobs that failed
/// together are not retried together. A longer `retry_after` requested by the receiver takes precedence, up to a day;
/// `jitter` extends it by up to a tenth and a minute, since a receiver may ask all jobs to wait for the same time, such
/// as the reset of a budget.
pub fn backoff(attempt: u32, jitter: u32, retry_after: Option<Duration>) -> Duration {
    let doubled = INITIAL_BACKOFF.saturating_mul(1 << attempt.saturating_sub(1).min(12)).min(MAX_BACKOFF);
    let half = doubled / 2;
    let fraction = f64::from(jitter) / f64::from(u32::MAX);
    let delay = half + half.mul_f64(fraction);
    let requested = retry_after.unwrap_or_default().min(MAX_REQUESTED_BACKOFF);
    let spread = requested.mul_f64(REQUESTED_SPREAD).min(MAX_REQUESTED_SPREAD);
    delay.max(requested + spread.mul_f64(fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_within_their_bounds() {
        let longest_millis = |attempt| backoff(attempt, u32::MAX, None).as_millis();
        assert_eq!(
            [1, 2, 3, 12, 13, 100, u32::MAX].map(longest_millis),
            [1_000, 2_000, 4_000, 2_048_000, 3_600_000, 3_600_000, 3_600_000]
        );
        assert_eq!(backoff(3, 0, None), Duration::from_secs(2));
        assert_eq!(backoff(1, 0, Some(Duration::from_secs(90))), Duration::from_secs(90));
        assert_eq!(backoff(1, 0, Some(Duration::MAX)), MAX_REQUESTED_BACKOFF);
        assert_eq!(backoff(9, 0, Some(Duration::from_secs(1))), Duration::from_secs(128));
    }

    #[test]
    fn jobs_that_wait_for_the_same_time_are_spread_after_it() {
        let seconds = Duration::from_secs;
        for (requested, latest) in [
            (seconds(5), Duration::from_millis(5_500)),
            (seconds(90), seconds(99)),
            (seconds(12 * 3600), seconds(12 * 3600 + 60)),
            (Duration::MAX, MAX_REQUESTED_BACKOFF + MAX_REQUESTED_SPREAD),
        ] {
            assert_eq!(backoff(1, u32::MAX, Some(requested)), latest, "{requested:?}");
        }
        // A thousand jobs whose budget ends at the same time: none comes before it, and no second has a tenth of them.
        let step = u32::MAX / 1_000;
        let mut by_second = std::collections::BTreeMap::<u64, usize>::new();
        for jitter in (0..1_000).map(|job| job * step) {
            let delay = backoff(1, jitter, Some(seconds(3600)));
            assert!((seconds(3600)..=seconds(3660)).contains(&delay), "{delay:?}");
            *by_second.entry(delay.as_secs()).or_default() += 1;
        }
        assert!(by_second.len() >= 60 && by_second.values().all(|jobs| *jobs < 100), "{by_second:?}");
    }

    #[test]
    fn postponed_deliveries_wait_for_a_minute_to_a_day_and_are_spread() {
        let seconds = Duration::from_secs;
        for (requested, earliest, latest) in [
            (Duration::ZERO, seconds(60), seconds(66)),
            (seconds(600), seconds(600), seconds(660)),
            (Duration::MAX, MAX_REQUESTED_BACKOFF, MAX_REQUESTED_BACKOFF + MAX_REQUESTED_SPREAD),
        ] {
            assert_eq!(postponement(requested, 0), earliest);
            assert_eq!(postponement(requested, u32::MAX), latest);
        }
    }
}
