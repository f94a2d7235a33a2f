//! Idle and total timeouts of a run, with one timer that is rarely re-armed.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use agent_core::error::{Failure, FailureKind};
use agent_core::event::{Event, EventStream};
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, Sleep, sleep_until};

use super::StreamLimits;

/// Number of events after which the deadline is checked if the source is never pending.
const EVENTS_PER_LOOK: u32 = 256;

/// Upper bound of a timeout; a longer one could overflow `Instant`.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Event stream that fails when it is idle, or runs, for too long.
///
/// Idle time counts only while the source is polled and pending. A client that does not read is bounded by the
/// connection's write timeout.
pub(super) struct Watched {
    events: EventStream,
    /// Fires no later than the next limit. It is re-armed when it fires, not on every event.
    alarm: Pin<Box<Sleep>>,
    /// Deadline of `alarm`, cached to avoid reading it through the pinned box.
    alarm_at: Instant,
    /// Waker registered with the timer. While it stays the same, the timer is not polled before it fires.
    set: Option<Waker>,
    idle_timeout: Duration,
    run_timeout: Duration,
    deadline: Instant,
    /// Time at which the source was last found pending after it had yielded events.
    quiet_since: Instant,
    given_since_quiet: u32,
}

impl Watched {
    pub(super) fn new(events: EventStream, limits: &StreamLimits) -> Self {
        let now = Instant::now();
        let idle_timeout = limits.idle_timeout.min(LONGEST);
        let run_timeout = limits.run_timeout.min(LONGEST);
        let deadline = now + run_timeout;
        let alarm_at = deadline.min(now + idle_timeout);
        Self {
            events,
            alarm: Box::pin(sleep_until(alarm_at)),
            alarm_at,
            set: None,
            idle_timeout,
            run_timeout,
            deadline,
            quiet_since: now,
            given_since_quiet: 0,
        }
    }

    /// Polls the timer. It is re-armed for the next limit; `Ready` means that a limit was reached and the run has
    /// failed.
    fn poll_alarm(&mut self, cx: &mut Context<'_>, quiet: bool) -> Poll<()> {
        while self.alarm.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let silence_ends = self.quiet_since + self.idle_timeout;
            if now >= self.deadline {
                self.events.fail(timeout("the run took longer than", self.run_timeout));
                return Poll::Ready(());
            }
            if quiet && now >= silence_ends {
                self.events.fail(timeout("the backend has sent nothing for", self.idle_timeout));
                return Poll::Ready(());
            }
            // A source that keeps yielding may last have been pending long ago; its idle time restarts.
            let silence_ends = if quiet { silence_ends } else { now + self.idle_timeout };
            self.alarm_at = self.deadline.min(silence_ends);
            self.alarm.as_mut().reset(self.alarm_at);
        }
        self.set = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn timeout(what: &str, limit: Duration) -> Failure {
    Failure::new(FailureKind::Timeout, format!("{what} {} seconds", limit.as_secs_f64()))
}

impl Watched {
    /// Polls for the next event. The limits are checked only every [`EVENTS_PER_LOOK`] events, since a source that is
    /// ready needs no timer.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.given_since_quiet >= EVENTS_PER_LOOK {
            self.given_since_quiet = 1;
            let _ = self.poll_alarm(cx, false);
        }
        let polled = self.events.poll_next_unpin(cx);
        if polled.is_ready() {
            self.given_since_quiet += 1;
        }
        polled
    }

    /// Polls the limits; to be called when the source is pending. `Ready` means that a limit was reached: the run has
    /// failed, and the source must be polled again for the error event.
    pub(super) fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        if self.given_since_quiet > 0 {
            self.given_since_quiet = 0;
            self.quiet_since = now;
        }
        if now < self.alarm_at && self.set.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.poll_alarm(cx, true)
    }
}

impl Stream for Watched {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Poll::Ready(given) = self.poll_event(cx) {
            return Poll::Ready(given);
        }
        ready!(self.poll_silence(cx));
        self.poll_event(cx)
    }
}
