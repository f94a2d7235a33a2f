//! Timer of a stream's idle and total timeouts, which is rarely re-armed.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::StreamLimits;
use super::encode::KEEP_ALIVE_INTERVAL;

/// Number of items after which the deadline is checked if the source is never pending.
const ITEMS_PER_TIMEOUT_CHECK: u32 = 256;

/// Upper bound of a timeout; a longer one could overflow `Instant`.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A timeout that has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamTimeout {
    /// The source was pending for too long.
    Idle(Duration),
    /// The stream has taken too long.
    Total(Duration),
}

/// Timer of one stream.
///
/// Idle time counts only while the source is polled and pending. A client that does not read is bounded by the
/// connection's write timeout.
pub(crate) struct StreamTimer {
    /// Fires no later than the next limit. It is re-armed when it fires, not on every item.
    timer: Pin<Box<Sleep>>,
    /// Deadline of `timer`, cached to avoid reading it through the pinned box.
    timer_deadline: Instant,
    /// Waker registered with the timer. While it stays the same, the timer is not polled before it fires.
    registered_waker: Option<Waker>,
    /// False for the plain implementation: the timer is polled whenever the source is pending.
    is_lazy: bool,
    idle_timeout: Duration,
    total_timeout: Duration,
    deadline: Instant,
    /// Time at which the source was last found pending after it had yielded items.
    idle_since: Instant,
    /// Time of the last item or keep-alive that the client has received.
    unseen_since: Instant,
    is_keep_alive_due: bool,
    items_since_idle: u32,
    /// Items since the source was last pending that the client receives.
    seen_items: u32,
}

impl StreamTimer {
    /// Creates the timer of a stream that begins now, with the timeouts of `limits`.
    pub(crate) fn new(limits: &StreamLimits) -> Self {
        let now = Instant::now();
        let idle_timeout = limits.idle_timeout.min(MAX_TIMEOUT);
        let total_timeout = limits.run_timeout.min(MAX_TIMEOUT);
        let deadline = now + total_timeout;
        let timer_deadline = deadline.min(now + idle_timeout);
        Self {
            timer: Box::pin(sleep_until(timer_deadline)),
            timer_deadline,
            registered_waker: None,
            is_lazy: limits.relay.lazy_timer,
            idle_timeout,
            total_timeout,
            deadline,
            idle_since: now,
            unseen_since: now,
            is_keep_alive_due: false,
            items_since_idle: 0,
            seen_items: 0,
        }
    }

    /// Records that the source has yielded an item.
    pub(crate) fn record_item(&mut self) {
        self.items_since_idle += 1;
        self.seen_items = self.seen_items.saturating_add(1);
    }

    /// Records that the client does not receive the latest item.
    pub(super) fn record_unseen_item(&mut self) {
        self.seen_items = self.seen_items.saturating_sub(1);
    }

    /// Records that a source that is pending has yielded items which the client does not receive. Call it before
    /// [`poll_pending`](Self::poll_pending).
    pub(crate) fn record_hidden_items(&mut self) {
        self.idle_since = Instant::now();
        self.update_keep_alive(self.idle_since);
    }

    /// Makes a keep-alive due if the client has received nothing for [`KEEP_ALIVE_INTERVAL`].
    fn update_keep_alive(&mut self, now: Instant) {
        if self.seen_items == 0 && now.duration_since(self.unseen_since) >= KEEP_ALIVE_INTERVAL {
            self.unseen_since = now;
            self.is_keep_alive_due = true;
        }
    }

    /// Returns true once for each [`KEEP_ALIVE_INTERVAL`] in which the source has yielded only items that the client does
    /// not receive.
    pub(crate) fn take_keep_alive(&mut self) -> bool {
        std::mem::take(&mut self.is_keep_alive_due)
    }

    /// Returns true every [`ITEMS_PER_TIMEOUT_CHECK`] items without a pause, when the timer should be polled with
    /// [`poll_busy`](Self::poll_busy).
    pub(crate) fn is_check_due(&mut self) -> bool {
        let is_due = self.items_since_idle >= ITEMS_PER_TIMEOUT_CHECK;
        if is_due {
            self.items_since_idle = 1;
        }
        is_due
    }

    /// Polls the timer of a source that keeps yielding items.
    pub(crate) fn poll_busy(&mut self, cx: &mut Context<'_>) -> Poll<StreamTimeout> {
        self.poll_timer(cx, false)
    }

    /// Polls the timer of a source that is pending.
    pub(crate) fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<StreamTimeout> {
        let now = Instant::now();
        if self.items_since_idle > 0 {
            self.items_since_idle = 0;
            self.idle_since = now;
            match std::mem::take(&mut self.seen_items) {
                0 => self.update_keep_alive(now),
                _ => self.unseen_since = now,
            }
        }
        if self.is_lazy
            && now < self.timer_deadline
            && self.registered_waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            return Poll::Pending;
        }
        self.poll_timer(cx, true)
    }

    /// Polls the timer and re-arms it for the next limit.
    fn poll_timer(&mut self, cx: &mut Context<'_>, quiet: bool) -> Poll<StreamTimeout> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let silence_ends = self.idle_since + self.idle_timeout;
            if now >= self.deadline {
                return Poll::Ready(StreamTimeout::Total(self.total_timeout));
            }
            if quiet && now >= silence_ends {
                return Poll::Ready(StreamTimeout::Idle(self.idle_timeout));
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
