//! Arithmetic with timestamps.

use std::time::Duration;

use jiff::Timestamp;

/// Returns the time `duration` after `time`, at most [`Timestamp::MAX`].
pub(crate) fn saturating_after(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_of_range_is_the_last_one() {
        let day = Duration::from_secs(24 * 60 * 60);
        let next_day = Timestamp::from_second(24 * 60 * 60).expect("a time");
        assert_eq!(saturating_after(Timestamp::UNIX_EPOCH, day), next_day);
        assert_eq!(saturating_after(Timestamp::MAX, day), Timestamp::MAX);
        assert_eq!(saturating_after(Timestamp::UNIX_EPOCH, Duration::MAX), Timestamp::MAX);
    }
}
