//! Arithmetic of times.

use std::time::Duration;

use jiff::Timestamp;

/// Adds a duration to a time; the result is at most [`Timestamp::MAX`].
pub(crate) fn add_saturating(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_time_is_not_exceeded() {
        let second = Duration::from_secs(1);
        assert_eq!(add_saturating(Timestamp::UNIX_EPOCH, second).as_second(), 1);
        for duration in [second, Duration::from_secs(u64::MAX), Duration::MAX] {
            assert_eq!(add_saturating(Timestamp::MAX, duration), Timestamp::MAX);
        }
        assert_eq!(add_saturating(Timestamp::MIN, Duration::MAX), Timestamp::MAX);
    }
}
