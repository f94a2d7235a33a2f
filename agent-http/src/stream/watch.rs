//! Idle and total timeouts of a run, with one timer that is rarely re-armed, and its end at shutdown.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventStream};
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, Sleep, sleep_until};

use super::StreamLimits;
use crate::shutdown::{EndingObserver, shutting_down};

/// Number of events after which the deadline is checked if the source is never pending.
const EVENTS_PER_TIMEOUT_CHECK: u32 = 256;

/// Upper bound of a timeout; a longer one could overflow `Instant`.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Event stream that fails when it is idle, or runs, for too long, or when the service shuts down.
///
/// Idle time counts only while the source is polled and pending. A client that does not read is bounded by the
/// connection's write timeout.
pub(super) struct TimeoutStream {
    events: EventStream,
    /// Fires no later than the next limit. It is re-armed when it fires, not on every event.
    timer: Pin<Box<Sleep>>,
    /// Deadline of `timer`, cached to avoid reading it through the pinned box.
    timer_deadline: Instant,
    /// Waker registered with the timer. While it stays the same, the timer is not polled before it fires.
    registered_waker: Option<Waker>,
    /// False for the plain implementation: the timer is polled whenever the source is pending.
    lazy: bool,
    idle_timeout: Duration,
    run_timeout: Duration,
    deadline: Instant,
    /// Time at which the source was last found pending after it had yielded events.
    idle_since: Instant,
    events_since_idle: u32,
    ending: EndingObserver,
}

impl TimeoutStream {
    pub(super) fn new(events: EventStream, limits: &StreamLimits) -> Self {
        let now = Instant::now();
        let idle_timeout = limits.idle_timeout.min(MAX_TIMEOUT);
        let run_timeout = limits.run_timeout.min(MAX_TIMEOUT);
        let deadline = now + run_timeout;
        let alarm_at = deadline.min(now + idle_timeout);
        Self {
            events,
            timer: Box::pin(sleep_until(alarm_at)),
            timer_deadline: alarm_at,
            registered_waker: None,
            lazy: limits.relay.lazy_timer,
            idle_timeout,
            run_timeout,
            deadline,
            idle_since: now,
            events_since_idle: 0,
            ending: limits.shutdown.observe_ending(),
        }
    }

    /// Polls the shutdown. `Ready` means that it has ended the run.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.ending.poll(cx));
        self.events.fail(shutting_down());
        Poll::Ready(())
    }

    /// Polls the timer. It is re-armed for the next limit; `Ready` means that a limit was reached and the run has
    /// failed.
    fn poll_timer(&mut self, cx: &mut Context<'_>, quiet: bool) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let silence_ends = self.idle_since + self.idle_timeout;
            if now >= self.deadline {
                self.events.fail(timeout_error("the run exceeded the time limit of", self.run_timeout));
                return Poll::Ready(());
            }
            if quiet && now >= silence_ends {
                self.events.fail(timeout_error("the backend sent no event for", self.idle_timeout));
                return Poll::Ready(());
            }
            // A source that keeps yielding may last have been pending long ago; its idle time restarts.
            let silence_ends = if quiet { silence_ends } else { now + self.idle_timeout };
            self.timer_deadline = self.deadline.min(silence_ends);
            self.timer.as_mut().reset(self.timer_deadline);
        }
        self.registered_waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn timeout_error(what: &str, limit: Duration) -> AgentError {
    AgentError::new(AgentErrorKind::Timeout, format!("{what} {} seconds", limit.as_secs_f64()))
}

impl TimeoutStream {
    /// Polls for the next event. The limits and the shutdown are checked only every [`EVENTS_PER_TIMEOUT_CHECK`]
    /// events, since a source that is ready needs no timer.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.events_since_idle >= EVENTS_PER_TIMEOUT_CHECK {
            self.events_since_idle = 1;
            if self.poll_shutdown(cx).is_pending() {
                let _ = self.poll_timer(cx, false);
            }
        }
        let polled = self.events.poll_next_unpin(cx);
        if polled.is_ready() {
            self.events_since_idle += 1;
        }
        polled
    }

    /// Polls the limits and the shutdown; to be called when the source is pending. `Ready` means that the run has
    /// failed, and the source must be polled again for the error event.
    pub(super) fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.poll_shutdown(cx).is_ready() {
            return Poll::Ready(());
        }
        let now = Instant::now();
        if self.events_since_idle > 0 {
            self.events_since_idle = 0;
            self.idle_since = now;
        }
        if self.lazy
            && now < self.timer_deadline
            && self.registered_waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            return Poll::Pending;
        }
        self.poll_timer(cx, true)
    }
}

impl Stream for TimeoutStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Poll::Ready(given) = self.poll_event(cx) {
            return Poll::Ready(given);
        }
        ready!(self.poll_limits(cx));
        self.poll_event(cx)
    }
}
