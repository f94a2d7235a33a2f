//! Outcomes of delivery attempts, and the state that each of them leaves a job in.

use std::time::Duration;

use jiff::Timestamp;

use super::retry::{MAX_DEFERRAL, MAX_POSTPONEMENT, MAX_REQUESTED_DEFERRAL, deferral, postponement};
use super::{Job, MAX_ABANDONED, Phase, backoff};

/// Outcome of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver has processed the delivery.
    Succeeded,
    /// Transient failure: a retry may succeed.
    Failed {
        /// Error text.
        error: String,
        /// Delay that the receiver requested before the next attempt.
        retry_after: Option<Duration>,
    },
    /// The connection to the receiver ended without an answer, as if its process has been killed, or there was none. Does not
    /// count as an attempt, unless five deliveries of the occurrence have been abandoned before; then it is a failure.
    Abandoned {
        /// Error text.
        error: String,
    },
    /// Permanent failure: a retry cannot succeed.
    Rejected {
        /// Error text.
        error: String,
    },
    /// The receiver is still busy with an earlier delivery of the occurrence, or is unavailable for a moment. Does not count
    /// as an attempt until the first claim of the occurrence, or the first one since it was postponed, is an hour old; then
    /// it is a failure.
    Deferred {
        /// Error text.
        error: String,
        /// Delay that the receiver requested before the next delivery.
        retry_after: Option<Duration>,
    },
    /// The receiver may not run the occurrence before a time that it named, such as the reset of a budget that is spent.
    /// Does not count as an attempt until the first claim of the occurrence is 35 days old; then it is a failure.
    Postponed {
        /// Error text.
        error: String,
        /// Delay until that time.
        retry_after: Duration,
    },
    /// The receiver answered that the job is gone; the job is cancelled.
    Gone,
}

impl AttemptOutcome {
    /// Returns the outcome of a delivery that was answered with an HTTP status, an error text that is ignored in a
    /// success, and a `Retry-After`.
    pub fn from_status(status: u16, error: String, retry_after: Option<Duration>) -> Self {
        match (status, retry_after) {
            (200..300, _) => Self::Succeeded,
            (402, Some(retry_after)) => Self::Postponed { error, retry_after },
            (409, _) => Self::Deferred { error, retry_after },
            (503, Some(delay)) if delay <= MAX_REQUESTED_DEFERRAL => Self::Deferred { error, retry_after },
            (410, _) => Self::Gone,
            (400 | 413 | 415 | 422, _) => Self::Rejected { error },
            _ => Self::Failed { error, retry_after },
        }
    }
}

impl Job {
    /// Records the outcome of a delivery attempt that ended at `now`.
    pub(super) fn record_outcome(
        &mut self,
        outcome: AttemptOutcome,
        duration: Duration,
        status: Option<u16>,
        jitter: u32,
        now: Timestamp,
    ) {
        let decided_at = self.misfire_decision.map(|decision| decision.at);
        let deferrals_from =
            self.misfire_decision.and_then(|decision| decision.deferrals_from).or(decided_at);
        let outcome = match outcome {
            AttemptOutcome::Deferred { retry_after, .. } if is_within(deferrals_from, MAX_DEFERRAL, now) => {
                return self.deliver_again(deferral(retry_after), now);
            }
            AttemptOutcome::Postponed { error, retry_after }
                if is_within(decided_at, MAX_POSTPONEMENT, now) =>
            {
                self.record_postponement(error, duration, status, now);
                return self.postpone(postponement(retry_after, jitter), now);
            }
            AttemptOutcome::Abandoned { error } if self.abandoned < MAX_ABANDONED => {
                self.record_attempt(now, Some(duration), status, Some(error));
                return self.abandon(backoff(self.abandoned + 1, jitter, None), now);
            }
            AttemptOutcome::Abandoned { error } => AttemptOutcome::Failed { error, retry_after: None },
            AttemptOutcome::Deferred { error, retry_after } => AttemptOutcome::Failed { error, retry_after },
            AttemptOutcome::Postponed { error, retry_after } => {
                AttemptOutcome::Failed { error, retry_after: Some(retry_after) }
            }
            outcome => outcome,
        };
        let error = match &outcome {
            AttemptOutcome::Failed { error, .. } | AttemptOutcome::Rejected { error } => Some(error.clone()),
            _ => None,
        };
        self.record_attempt(now, Some(duration), status, error);
        match outcome {
            AttemptOutcome::Gone => self.finish(Phase::Cancelled { at: now }),
            AttemptOutcome::Succeeded => self.advance(now),
            _ if self.is_rescheduled() => self.advance(now),
            AttemptOutcome::Failed { retry_after, .. } if self.attempt < self.max_attempts => {
                self.phase = Phase::Retryable;
                self.set_due_in(backoff(self.attempt, jitter, retry_after), now);
            }
            AttemptOutcome::Failed { error, .. }
            | AttemptOutcome::Rejected { error }
            | AttemptOutcome::Abandoned { error }
            | AttemptOutcome::Deferred { error, .. }
            | AttemptOutcome::Postponed { error, .. } => self.give_up(error, now),
        }
    }

    /// Records a postponed delivery in place of the previous one, so that a month of them leaves the earlier attempts.
    fn record_postponement(
        &mut self,
        error: String,
        duration: Duration,
        status: Option<u16>,
        now: Timestamp,
    ) {
        let (occurrence, attempt) = (self.position.occurrence, self.attempt);
        self.attempts.pop_if(|last| {
            (last.occurrence, last.attempt, last.status) == (occurrence, attempt, status)
                && last.error.is_some()
        });
        self.record_attempt(now, Some(duration), status, Some(error));
    }

    /// Returns the job to the waiting ones after a delivery that was postponed. The receiver may be busy when it may run the
    /// occurrence, for as long as after the first claim.
    fn postpone(&mut self, delay: Duration, now: Timestamp) {
        self.deliver_again(delay, now);
        if let Some(decision) = &mut self.misfire_decision {
            decision.postponed = true;
        }
    }

    /// Returns the job to the waiting ones after a delivery whose result is unknown.
    pub(super) fn abandon(&mut self, delay: Duration, now: Timestamp) {
        self.abandoned += 1;
        self.deliver_again(delay, now);
    }

    /// Returns the job to the waiting ones after a delivery that does not count. In contrast to a release, the
    /// receiver knows the occurrence, so that its number and misfire decision stay.
    fn deliver_again(&mut self, delay: Duration, now: Timestamp) {
        if self.is_rescheduled() {
            return self.advance(now);
        }
        self.attempt = self.attempt.saturating_sub(1);
        if let Some(decision) = &mut self.misfire_decision {
            decision.again = true;
        }
        self.phase = Phase::Retryable;
        self.set_due_in(delay, now);
    }

    fn set_due_in(&mut self, delay: Duration, now: Timestamp) {
        self.due = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
    }
}

/// Returns true if less than `limit` has passed since a time, or there is none.
fn is_within(start: Option<Timestamp>, limit: Duration, now: Timestamp) -> bool {
    let elapsed = now.duration_since(start.unwrap_or(now));
    Duration::try_from(elapsed).unwrap_or_default() < limit
}
