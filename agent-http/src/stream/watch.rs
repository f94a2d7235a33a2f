//! The watchdog of a run: silence and length are bounded by one timer that is rarely touched.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use agent_core::error::{Failure, FailureKind};
use agent_core::event::{Event, EventStream};
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, Sleep, sleep_until};

use super::StreamLimits;

/// How many events may pass between two looks at the deadline when the source is never pending.
const EVENTS_PER_LOOK: u32 = 256;

/// What stands for longer limits, which an instant could not hold.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A run that fails when it is silent, or goes on, for too long.
///
/// Silence counts only while the source is asked and has nothing. A reader who does not take what
/// there is must be bounded by the connection's write time-out.
pub(super) struct Watched {
    events: EventStream,
    /// Fires no later than the next limit. It is armed anew when it fires, not with every event.
    alarm: Pin<Box<Sleep>>,
    /// When it fires, so that it is not looked for where it lies.
    alarm_at: Instant,
    /// Whom it wakes when it fires. Before that, it is left alone.
    set: Option<Waker>,
    idle_timeout: Duration,
    run_timeout: Duration,
    deadline: Instant,
    /// When the source was last found to have no more after it had given something.
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

    /// Waits for the alarm; it stays set for the next limit unless the run is failed by this look.
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
            // A source that keeps giving may have been quiet long ago; its silence begins anew.
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
    /// The next event, without a look at the limits unless there has been none for long: a source that
    /// is asked again at once need not be watched in between.
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

    /// To be called when the source has nothing and will not be asked before it wakes the task. Ready
    /// says that a limit is reached and the source to be asked again, for its run has failed.
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
