//! State machine of a job: its transitions as pure functions.

use std::time::Duration;

use jiff::Timestamp;

use super::outcome::AttemptOutcome;
use super::{
    Attempt, DeadLetter, Job, JobState, MAX_ABANDONED, MAX_DEAD_LETTERS, MAX_ERROR_BYTES,
    MAX_RECORDED_ATTEMPTS, MisfireDecision, NextPosition, Phase, SchedulePosition,
};
use crate::schedule::{CatchUp, Schedule, catch_up};

/// Transition of a job's state machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Claims the job for delivery by a worker.
    Claim {
        /// Jobs due up to this time can be claimed. It may lie ahead of `now`, so that persisting the claim does not
        /// delay the delivery.
        until: Timestamp,
        /// Expiry of the lease unless it is extended.
        lease: Timestamp,
    },
    /// Extends the lease of a delivery in progress.
    Extend {
        /// Fencing token of the claim.
        fence: u64,
        /// New expiry of the lease.
        lease: Timestamp,
    },
    /// Returns a claimed job whose delivery has not started. The attempt does not count.
    Release {
        /// Fencing token of the claim.
        fence: u64,
    },
    /// Records the outcome of a delivery attempt.
    End {
        /// Fencing token of the claim.
        fence: u64,
        /// Outcome of the attempt.
        outcome: AttemptOutcome,
        /// Duration of the attempt.
        duration: Duration,
        /// HTTP status of the response, if one was received.
        status: Option<u16>,
        /// Random number for the jitter of [`backoff`](super::backoff).
        jitter: u32,
    },
    /// Cancels the job.
    Cancel,
    /// Pauses the job: no delivery begins until it is resumed.
    Pause,
    /// Resumes a paused job in the phase it was in.
    Resume,
    /// Replaces the schedule.
    Reschedule(Schedule),
    /// Retries a discarded job, or the newest dead letter of a periodic job.
    Redrive,
}

/// Result of an applied step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepResult {
    /// Job after the step.
    pub job: Job,
    /// False if the step was a no-op, such as pausing a paused job; true if anything may have changed.
    pub changed: bool,
    /// True if a delivery is in progress that the step could not stop.
    pub delivering: bool,
}

/// Reason why a step was refused. The job is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The job is not due, is paused, or is claimed by another worker.
    #[error("the job is not due")]
    NotDue,
    /// The fencing token is outdated: the job was claimed again or taken away since.
    #[error("the claim has expired or was replaced by a newer one")]
    Stale,
    /// The job is final.
    #[error("the job is {}", .0.as_str())]
    Final(JobState),
    /// An occurrence is being delivered or retried, so no other can be redriven.
    #[error("the job is being delivered or waits for a retry")]
    Busy,
    /// The job has no dead letter.
    #[error("the job has no discarded occurrence to redrive")]
    NothingDiscarded,
    /// The new schedule has no occurrence left.
    #[error("the schedule has no further occurrence")]
    NeverFires,
}

/// Outcome of a step on a stored job.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// The step was applied, and its result is stored.
    Applied(Box<StepResult>),
    /// The store has no such job within the scope.
    NotFound,
    /// The step was refused; the job is unchanged.
    Rejected(StepError),
    /// The stored job cannot be read; it is unchanged.
    Unreadable,
}

impl StepOutcome {
    /// Returns the result of an applied step.
    pub fn applied(self) -> Option<StepResult> {
        match self {
            Self::Applied(result) => Some(*result),
            Self::NotFound | Self::Rejected(_) | Self::Unreadable => None,
        }
    }

    /// Returns true if the step was applied and changed the job.
    pub(crate) fn has_changed(&self) -> bool {
        matches!(self, Self::Applied(result) if result.changed)
    }

    /// Returns true if the step was applied.
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Applied(_))
    }
}

impl From<Result<StepResult, StepError>> for StepOutcome {
    fn from(result: Result<StepResult, StepError>) -> Self {
        match result {
            Ok(result) => Self::Applied(Box::new(result)),
            Err(error) => Self::Rejected(error),
        }
    }
}

impl Job {
    /// Applies a step at the time `now`.
    ///
    /// # Errors
    /// The reason why the step is refused.
    pub fn step(mut self, step: Step, now: Timestamp) -> Result<StepResult, StepError> {
        let changed = match step {
            Step::Cancel => !self.state().is_final(),
            Step::Pause => !self.paused,
            Step::Resume => self.paused,
            _ => true,
        };
        let delivering = match step {
            Step::Claim { until, lease } => self.claim(now, until, lease).map(|()| false)?,
            Step::Extend { fence, lease } => {
                self.check_fence(fence)?;
                self.phase = Phase::Running { lease };
                true
            }
            Step::Release { fence } => self.release(fence, now).map(|()| false)?,
            Step::End { fence, outcome, duration, status, jitter } => {
                self.check_fence(fence)?;
                self.record_outcome(outcome, duration, status, jitter, now);
                false
            }
            Step::Cancel => self.cancel(now),
            Step::Pause => self.pause()?,
            Step::Resume => self.resume(now)?,
            Step::Reschedule(schedule) => self.reschedule(schedule, now)?,
            Step::Redrive => self.redrive(now).map(|()| false)?,
        };
        Ok(StepResult { job: self, changed, delivering })
    }

    fn check_fence(&self, fence: u64) -> Result<(), StepError> {
        let is_current = self.is_delivering() && self.fence == fence;
        if is_current { Ok(()) } else { Err(StepError::Stale) }
    }

    fn check_not_final(&self) -> Result<(), StepError> {
        if self.state().is_final() { Err(StepError::Final(self.state())) } else { Ok(()) }
    }

    fn claim(&mut self, now: Timestamp, until: Timestamp, lease: Timestamp) -> Result<(), StepError> {
        if self.paused {
            return Err(StepError::NotDue);
        }
        match self.phase {
            Phase::Running { lease } if lease <= now => {
                self.expire_lease(now);
                // The next attempt, or the next occurrence, may be due only later.
                if self.next_run_at().is_none_or(|next_run_at| next_run_at > until) {
                    return Ok(());
                }
            }
            Phase::Scheduled | Phase::Retryable if self.due <= until => {}
            _ => return Err(StepError::NotDue),
        }
        while self.misfire_decision.is_none() {
            self.apply_misfire_policy(now);
            // Missed occurrences may have been skipped, and the next one is then usually due later.
            if self.next_run_at().is_none_or(|next_run_at| next_run_at > until) {
                return Ok(());
            }
        }
        if let Some(decision) = &mut self.misfire_decision
            && std::mem::take(&mut decision.postponed)
        {
            decision.deferrals_from = Some(now);
        }
        self.attempt += 1;
        self.fence += 1;
        self.phase = Phase::Running { lease };
        Ok(())
    }

    /// Applies the misfire policy: selects the occurrence to run, or advances past the skipped ones.
    fn apply_misfire_policy(&mut self, now: Timestamp) {
        let SchedulePosition { occurrence, scheduled_for: due } = self.position;
        let CatchUp { run, next } = catch_up(&self.schedule, due, now.max(due), self.misfire);
        let Some(scheduled_for) = run.or(next) else { return self.finish(Phase::Completed { at: now }) };
        // The receiver may have run what is skipped here by itself, under its number, while no scheduler delivered.
        let occurrence = occurrence + u64::from(scheduled_for != due);
        let position = SchedulePosition { occurrence, scheduled_for };
        match run {
            Some(_) => {
                self.position = position;
                self.misfire_decision = Some(MisfireDecision::new(now, next, false));
            }
            None => self.move_to(position, now),
        }
    }

    /// Records that the lease expired without a report, which uses up an attempt only after [`MAX_ABANDONED`] such deliveries,
    /// and schedules another attempt if one is left.
    fn expire_lease(&mut self, now: Timestamp) {
        let error = "the lease expired: the worker reported no outcome".to_owned();
        self.record_attempt(now, None, None, Some(error.clone()));
        if let Some(decision) = &mut self.misfire_decision {
            decision.lease_expired_at = Some(now);
        }
        if self.abandoned < MAX_ABANDONED {
            self.abandon(Duration::ZERO, now);
        } else if self.is_rescheduled() {
            self.advance(now);
        } else if self.attempt < self.max_attempts {
            self.phase = Phase::Retryable;
            self.due = now;
        } else {
            self.give_up(error, now);
        }
    }

    fn release(&mut self, fence: u64, now: Timestamp) -> Result<(), StepError> {
        self.check_fence(fence)?;
        if self.is_rescheduled() {
            self.advance(now);
            return Ok(());
        }
        self.attempt = self.attempt.saturating_sub(1);
        self.phase = if self.attempt == 0 { Phase::Scheduled } else { Phase::Retryable };
        // The misfire decision is made again at the next claim, except for a redriven occurrence, which keeps it.
        if self.attempt == 0 && !self.misfire_decision.is_some_and(|decision| decision.again) {
            self.misfire_decision = None;
        }
        Ok(())
    }

    pub(super) fn is_rescheduled(&self) -> bool {
        matches!(self.next_position, Some(NextPosition::Moved { .. }))
    }

    /// Records a finished attempt and drops the oldest beyond [`MAX_RECORDED_ATTEMPTS`].
    pub(super) fn record_attempt(
        &mut self,
        now: Timestamp,
        duration: Option<Duration>,
        status: Option<u16>,
        error: Option<String>,
    ) {
        let duration_ms = duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        let (occurrence, attempt) = (self.position.occurrence, self.attempt);
        self.attempts.push(Attempt {
            occurrence,
            attempt,
            ended: now,
            duration_ms,
            status,
            error: error.map(truncate_error),
        });
        let excess = self.attempts.len().saturating_sub(MAX_RECORDED_ATTEMPTS);
        self.attempts.drain(..excess);
    }

    /// Ends an occurrence that failed permanently: a job without a further occurrence is discarded, a periodic job
    /// gets a dead letter and continues.
    pub(super) fn give_up(&mut self, error: String, now: Timestamp) {
        let SchedulePosition { occurrence, scheduled_for } = self.position;
        self.advance(now);
        if let Phase::Completed { at } = self.phase {
            self.phase = Phase::Discarded { at };
            return;
        }
        self.dead_letters.push(DeadLetter {
            occurrence,
            scheduled_for,
            at: now,
            error: truncate_error(error),
        });
        let excess = self.dead_letters.len().saturating_sub(MAX_DEAD_LETTERS);
        self.dead_letters.drain(..excess);
    }

    /// Advances to the next occurrence, or completes the job if there is none.
    pub(super) fn advance(&mut self, now: Timestamp) {
        if let Some(next_position) = self.next_position.take() {
            return self.move_to(next_position.position(), now);
        }
        let next = self.misfire_decision.and_then(|decision| {
            // Occurrences until the expiry were missed: the receiver may have run them itself, under the next numbers.
            let started = decision.lease_expired_at.unwrap_or(decision.at);
            self.overlap.next_after_run(&self.schedule, decision.next, started, now)
        });
        match next {
            Some(next) => {
                self.move_to(
                    SchedulePosition { occurrence: self.position.occurrence + 1, scheduled_for: next },
                    now,
                );
            }
            None => self.finish(Phase::Completed { at: now }),
        }
    }

    /// Moves the job to a final phase and clears the state that would affect a redrive.
    pub(super) fn finish(&mut self, phase: Phase) {
        self.phase = phase;
        self.paused = false;
        self.next_position = None;
        self.misfire_decision = None;
    }

    fn move_to(&mut self, position: SchedulePosition, now: Timestamp) {
        self.position = position;
        self.phase = Phase::Scheduled;
        self.due = position.scheduled_for.max(now);
        (self.attempt, self.abandoned) = (0, 0);
        self.misfire_decision = None;
    }

    fn cancel(&mut self, now: Timestamp) -> bool {
        let delivering = self.is_delivering();
        if !self.state().is_final() {
            self.finish(Phase::Cancelled { at: now });
            // Invalidates the claim, so that the worker's report is refused as stale.
            self.fence += 1;
        }
        delivering
    }

    fn pause(&mut self) -> Result<bool, StepError> {
        self.check_not_final()?;
        self.paused = true;
        Ok(self.is_delivering())
    }

    fn resume(&mut self, now: Timestamp) -> Result<bool, StepError> {
        self.check_not_final()?;
        if std::mem::take(&mut self.paused) {
            // The pause does not count as lag. Missed occurrences are derived from the occurrence's own scheduled
            // time.
            self.due = self.due.max(now);
        }
        Ok(self.is_delivering())
    }

    fn reschedule(&mut self, schedule: Schedule, now: Timestamp) -> Result<bool, StepError> {
        self.check_not_final()?;
        let scheduled_for = schedule.first(now).ok_or(StepError::NeverFires)?;
        self.schedule = schedule;
        let occurrence = match self.next_position {
            Some(next_position) => next_position.position().occurrence,
            // The receiver may already know the current number: by a delivery or, once its time has come, by itself.
            None if self.misfire_decision.is_some() || self.position.scheduled_for <= now => {
                self.position.occurrence + 1
            }
            None => self.position.occurrence,
        };
        let position = SchedulePosition { occurrence, scheduled_for };
        match self.next_position {
            // The reschedule applies to the position after the dead letter, not to the dead letter.
            Some(NextPosition::Back { .. }) => self.next_position = Some(NextPosition::Back { position }),
            _ if self.is_delivering() => self.next_position = Some(NextPosition::Moved { position }),
            _ => self.move_to(position, now),
        }
        Ok(self.is_delivering())
    }

    fn redrive(&mut self, now: Timestamp) -> Result<(), StepError> {
        match self.phase {
            Phase::Discarded { .. } => self.phase = Phase::Scheduled,
            Phase::Completed { .. } | Phase::Cancelled { .. } => return Err(StepError::Final(self.state())),
            Phase::Scheduled if self.misfire_decision.is_none() => {
                let Some(dead_letter) = self.dead_letters.pop() else {
                    return Err(StepError::NothingDiscarded);
                };
                self.next_position = Some(NextPosition::Back { position: self.position });
                self.position = SchedulePosition {
                    occurrence: dead_letter.occurrence,
                    scheduled_for: dead_letter.scheduled_for,
                };
            }
            Phase::Scheduled | Phase::Running { .. } | Phase::Retryable => return Err(StepError::Busy),
        }
        // A redriven occurrence runs whatever its scheduled time; the schedule then continues where it was.
        self.misfire_decision = Some(MisfireDecision::new(now, None, true));
        self.due = now;
        (self.attempt, self.abandoned) = (0, 0);
        Ok(())
    }
}

/// Truncates an error text to [`MAX_ERROR_BYTES`].
fn truncate_error(mut error: String) -> String {
    error.truncate(error.floor_char_boundary(MAX_ERROR_BYTES));
    error
}

#[cfg(test)]
mod tests;
