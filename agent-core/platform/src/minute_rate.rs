//! Rate per minute by the generic cell rate algorithm (ITU-T I.371), as a state that processes share.
//!
//! A request moves the theoretical arrival time forward by the interval between two requests, and is refused if that
//! time would then be more than a minute ahead. So `n` requests may begin at once, and then one each `60 / n` seconds.
//!
//! Times are those of the processes' clocks: if they differ by `s` seconds, at most `s * n / 60` more requests are
//! admitted in a minute.

use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::time::saturating_after;

const MICROS_PER_MINUTE: u64 = 60_000_000;

/// Maximum lead of a stored state over the clock of this process. A state beyond it is one from before the
/// clock was set back.
const MAX_CLOCK_SKEW_MICROS: u64 = 60_000_000;

/// Error of a request beyond a limit per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limit per minute is reached")]
pub struct RateLimitError {
    /// Time until a request may be tried again.
    pub retry_after: Duration,
}

/// Returns the end of a wait that begins at `now`, in whole milliseconds, rounded up. It is [`Timestamp::MAX`] at most.
pub(crate) fn end_of_wait(now: Timestamp, wait: Duration) -> Timestamp {
    let end = saturating_after(now, wait);
    let up = i64::from(end.subsec_nanosecond() % 1_000_000 != 0);
    Timestamp::from_millisecond(end.as_millisecond() + up).unwrap_or(end)
}

/// State of a limit per minute, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MinuteState {
    /// Theoretical arrival time of the next request, in microseconds since 1970-01-01.
    arrival_micros: u64,
    /// The limit under which it was computed.
    #[serde(rename = "runsPerMinute")]
    per_minute: NonZeroU32,
}

impl MinuteState {
    /// Returns the state with another request at `now`, the time since 1970-01-01.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn admit(
        found: Option<Self>,
        per_minute: NonZeroU32,
        now: Duration,
    ) -> Result<Self, RateLimitError> {
        MinuteUse::new(found, per_minute, now).check(0)?;
        let mut request = AdmittedBatch::default();
        request.push(per_minute, now);
        Ok(Self::with_batch(found, request, per_minute, now))
    }

    /// Returns the state with the requests of `batch`, which were admitted without it. They may exceed the limit; later
    /// requests wait for this excess, for half a minute at most.
    pub(crate) fn with_batch(
        found: Option<Self>,
        batch: AdmittedBatch,
        per_minute: NonZeroU32,
        now: Duration,
    ) -> Self {
        let arrival_micros = moved(arrival_micros(found, per_minute, micros(now)), batch.count, per_minute);
        let window = window_micros(per_minute);
        let latest = micros(now).saturating_add(window + window / 2);
        Self { arrival_micros: arrival_micros.max(batch.arrival_micros).min(latest), per_minute }
    }

    /// Returns true if the state no longer has an effect, also for processes whose clocks differ.
    pub(crate) fn is_expired(self, now: Duration) -> bool {
        self.arrival_micros.saturating_add(MAX_CLOCK_SKEW_MICROS) < micros(now)
    }
}

/// Requests that were admitted without the stored state, or refunded, to be added to it later.
///
/// Adding requests one by one maps an arrival time `t` to `max(t + count * interval, arrival)`, so that these two
/// numbers are enough, and the time of the addition does not matter. Taking one back moves the arrival time back by an
/// interval: if nothing was used meanwhile, it gives back nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AdmittedBatch {
    /// Number of admitted requests, less the refunded ones.
    count: i64,
    /// Arrival time after these requests alone.
    arrival_micros: u64,
}

impl AdmittedBatch {
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Adds a request at `now`.
    pub(crate) fn push(&mut self, per_minute: NonZeroU32, now: Duration) {
        let request =
            Self { count: 1, arrival_micros: micros(now).saturating_add(interval_micros(per_minute)) };
        *self = self.followed_by(request, per_minute);
    }

    /// Refunds a request that was admitted, in this batch or before.
    pub(crate) fn refund(&mut self, per_minute: NonZeroU32, now: Duration) {
        *self = self.followed_by(Self { count: -1, arrival_micros: 0 }, per_minute);
        if self.count == 0 && self.arrival_micros <= micros(now) {
            // The remaining state has no usage, so that nothing needs to be written.
            *self = Self::default();
        }
    }

    /// Returns these requests and those of `later`.
    pub(crate) fn followed_by(self, later: Self, per_minute: NonZeroU32) -> Self {
        let arrival_micros = moved(self.arrival_micros, later.count, per_minute);
        Self {
            count: self.count.saturating_add(later.count),
            arrival_micros: arrival_micros.max(later.arrival_micros),
        }
    }
}

/// Used part of the minute of a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MinuteUse {
    used_micros: u64,
    per_minute: NonZeroU32,
}

impl MinuteUse {
    pub(crate) fn new(found: Option<MinuteState>, per_minute: NonZeroU32, now: Duration) -> Self {
        let now = micros(now);
        Self { used_micros: arrival_micros(found, per_minute, now).saturating_sub(now), per_minute }
    }

    /// Returns the number of requests that are used, and the time until none is.
    pub(crate) fn used(self) -> (u32, Duration) {
        let requests = self.used_micros.div_ceil(interval_micros(self.per_minute));
        let requests = u32::try_from(requests).unwrap_or(u32::MAX).min(self.per_minute.get());
        (requests, Duration::from_micros(self.used_micros))
    }

    /// Checks that there is room for a request besides `reserved` other requests that are not in the state.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn check(self, reserved: usize) -> Result<(), RateLimitError> {
        let window = window_micros(self.per_minute);
        let excess = |reserved| {
            let used = self.with_reserved(reserved).saturating_add(interval_micros(self.per_minute));
            used.saturating_sub(window)
        };
        // If there is no room already, there is none for the others either.
        match if excess(0) > 0 { excess(0) } else { excess(reserved) } {
            0 => Ok(()),
            excess => Err(RateLimitError { retry_after: Duration::from_micros(excess) }),
        }
    }

    /// Returns true if there is room for a request, beside `reserved` others, in half of the limit, rounded up.
    pub(crate) fn is_below_half(self, reserved: usize) -> bool {
        let interval = interval_micros(self.per_minute);
        let half_limit = interval * u64::from(self.per_minute.get().div_ceil(2));
        self.with_reserved(reserved).saturating_add(interval) <= half_limit
    }

    fn with_reserved(self, reserved: usize) -> u64 {
        let reserved = (reserved as u64).saturating_mul(interval_micros(self.per_minute));
        self.used_micros.saturating_add(reserved)
    }
}

/// Returns the arrival time of a state under the limit `per_minute`, which may be in the past.
fn arrival_micros(found: Option<MinuteState>, per_minute: NonZeroU32, now: u64) -> u64 {
    let Some(state) = found else { return 0 };
    let (interval, window) = (interval_micros(state.per_minute), window_micros(state.per_minute));
    let mut used = state.arrival_micros.saturating_sub(now);
    let is_set_back = used > window + MAX_CLOCK_SKEW_MICROS;
    if is_set_back {
        // Room for one request, whose commit replaces the state.
        used = window - interval;
    }
    if state.per_minute != per_minute {
        // The same number of requests, under a changed limit.
        let scaled = used.saturating_mul(interval_micros(per_minute)) / interval;
        return now.saturating_add(scaled.min(window_micros(per_minute)));
    }
    if is_set_back { now.saturating_add(used) } else { state.arrival_micros }
}

/// Returns an arrival time after a number of further requests, or before it if the number is negative.
fn moved(arrival_micros: u64, requests: i64, per_minute: NonZeroU32) -> u64 {
    let time = requests.unsigned_abs().saturating_mul(interval_micros(per_minute));
    if requests < 0 { arrival_micros.saturating_sub(time) } else { arrival_micros.saturating_add(time) }
}

/// Returns the time between two requests. Rounded up, so that the limit is not exceeded.
pub(crate) fn interval_micros(per_minute: NonZeroU32) -> u64 {
    MICROS_PER_MINUTE.div_ceil(u64::from(per_minute.get()))
}

/// Returns the time of a burst of all requests: a minute, apart from rounding.
fn window_micros(per_minute: NonZeroU32) -> u64 {
    interval_micros(per_minute) * u64::from(per_minute.get())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Duration = Duration::from_secs(20_000 * 24 * 60 * 60);

    fn limit(per_minute: u32) -> NonZeroU32 {
        NonZeroU32::new(per_minute).expect("not zero")
    }

    proptest! {
        #[test]
        fn a_batch_gives_the_state_of_its_requests_one_by_one(
            per_minute in 1_u32..200,
            before in 0_u64..70,
            pauses in proptest::collection::vec((0_u64..90_000, 0_u8..4), 1..40),
            split in 0_usize..40,
        ) {
            let per_minute = limit(per_minute);
            let before = START - Duration::from_secs(before);
            let stored = MinuteState::admit(None, per_minute, before).expect("the first request");
            let (mut one_by_one, mut now) = (Some(stored), START);
            let mut batches = [AdmittedBatch::default(); 2];
            let mut admitted = 0;
            for (number, (pause, kind)) in pauses.into_iter().enumerate() {
                now += Duration::from_millis(pause);
                let batch = &mut batches[usize::from(number >= split)];
                if kind == 0 && admitted > 0 {
                    let mut refunded = AdmittedBatch::default();
                    refunded.refund(per_minute, now);
                    one_by_one = Some(MinuteState::with_batch(one_by_one, refunded, per_minute, now));
                    batch.refund(per_minute, now);
                    admitted -= 1;
                } else if let Ok(state) = MinuteState::admit(one_by_one, per_minute, now) {
                    one_by_one = Some(state);
                    batch.push(per_minute, now);
                    admitted += 1;
                }
            }
            let used = |state| MinuteUse::new(state, per_minute, now).used();
            let [first, second] = batches;
            let all = first.followed_by(second, per_minute);
            let state = MinuteState::with_batch(Some(stored), all, per_minute, now);
            prop_assert_eq!(used(Some(state)), used(one_by_one));
            let state = MinuteState::with_batch(Some(stored), first, per_minute, now);
            let state = MinuteState::with_batch(Some(state), second, per_minute, now);
            prop_assert_eq!(used(Some(state)), used(one_by_one));
        }
    }

    #[test]
    fn a_wait_ends_at_a_whole_millisecond_that_is_not_early() {
        let now = Timestamp::new(1_700_000_000, 123_456_789).expect("a time");
        for (wait, end) in [
            (Duration::ZERO, "2023-11-14T22:13:20.124Z"),
            (Duration::from_nanos(543_211), "2023-11-14T22:13:20.124Z"),
            (Duration::from_nanos(543_212), "2023-11-14T22:13:20.125Z"),
            (Duration::from_micros(1_876_544), "2023-11-14T22:13:22.001Z"),
        ] {
            assert_eq!(end_of_wait(now, wait).to_string(), end, "{wait:?}");
        }
        assert_eq!(end_of_wait(now, Duration::MAX), Timestamp::MAX);
    }

    #[test]
    fn an_excess_delays_later_requests_by_half_a_minute_at_most() {
        let per_minute = limit(20);
        let mut batch = AdmittedBatch::default();
        (0..25).for_each(|_| batch.push(per_minute, START));
        let retry_after = |batch| {
            let state = MinuteState::with_batch(None, batch, per_minute, START);
            MinuteUse::new(Some(state), per_minute, START).check(0).expect_err("it is full").retry_after
        };
        assert_eq!(retry_after(batch), Duration::from_secs(6 * 3), "five too many, and this one");
        (0..1000).for_each(|_| batch.push(per_minute, START));
        assert_eq!(retry_after(batch), Duration::from_secs(33));
    }

    #[test]
    fn a_request_that_is_taken_back_leaves_the_others() {
        let per_minute = limit(20);
        let used = |batch| {
            let state = MinuteState::with_batch(None, batch, per_minute, START);
            MinuteUse::new(Some(state), per_minute, START).used().0
        };
        let mut batch = AdmittedBatch::default();
        (0..3).for_each(|_| batch.push(per_minute, START));
        batch.refund(per_minute, START);
        assert_eq!(used(batch), 2);
        (0..2).for_each(|_| batch.refund(per_minute, START));
        assert!(batch.is_empty());
        // Nothing is used, and no later request is free.
        batch.refund(per_minute, START);
        assert!(!batch.is_empty());
        batch.push(per_minute, START);
        assert_eq!(used(batch), 1);
    }

    #[test]
    fn requests_that_wait_delay_later_ones_only_if_there_is_room_for_them() {
        let per_minute = limit(20);
        let retry_after = |count, reserved| {
            let mut batch = AdmittedBatch::default();
            (0..count).for_each(|_| batch.push(per_minute, START));
            let state = MinuteState::with_batch(None, batch, per_minute, START);
            MinuteUse::new(Some(state), per_minute, START).check(reserved).map_err(|error| error.retry_after)
        };
        assert_eq!(retry_after(15, 4), Ok(()));
        assert_eq!(retry_after(15, 6), Err(Duration::from_secs(6)));
        assert_eq!(retry_after(21, 10), Err(Duration::from_secs(6)));
    }

    #[test]
    fn half_of_the_limit_is_rounded_up() {
        for (per_minute, half) in [(1, 1), (2, 1), (3, 2), (20, 10), (61, 31)] {
            let per_minute = limit(per_minute);
            let is_below = |count: usize| MinuteUse::new(None, per_minute, START).is_below_half(count);
            assert_eq!((0..100).take_while(|count| is_below(*count)).count(), half);
        }
        // One more request after an interval, not at once.
        let per_minute = limit(20);
        let mut batch = AdmittedBatch::default();
        (0..10).for_each(|_| batch.push(per_minute, START));
        let state = MinuteState::with_batch(None, batch, per_minute, START);
        let is_below_after = |time: u64| {
            MinuteUse::new(Some(state), per_minute, START + Duration::from_millis(time)).is_below_half(0)
        };
        assert!(!is_below_after(2999) && is_below_after(3000));
    }
}
