//! The state machine: what can happen to a job, as pure functions.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    Attempt, Begun, DeadLetter, Job, JobState, MAX_ATTEMPTS_KEPT, MAX_DEAD_LETTERS, MAX_ERROR_BYTES, Phase,
    Place, Then, backoff,
};
use crate::schedule::{CatchUp, Schedule, catch_up};

/// Something that happens to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Somebody takes it, to deliver it.
    Claim {
        /// Jobs that are due up to here may be taken, which can be some time ahead, so that storing the claim
        /// does not make the delivery late.
        until: Timestamp,
        /// When the lease runs out unless it is extended.
        lease: Timestamp,
    },
    /// Its holder is still at it.
    Extend {
        /// The claim's number.
        fence: u64,
        /// When the lease runs out now.
        lease: Timestamp,
    },
    /// Its holder gives it back without having begun. The attempt does not count.
    Release {
        /// The claim's number.
        fence: u64,
    },
    /// Its holder has delivered it, or tried.
    End {
        /// The claim's number.
        fence: u64,
        /// What came of it.
        outcome: Outcome,
        /// How long it took.
        took: Duration,
        /// The HTTP status of the answer, where there was one.
        status: Option<u16>,
        /// A random number, for the jitter of [`backoff`].
        jitter: u32,
    },
    /// Nobody wants it any more.
    Cancel,
    /// Nothing shall begin.
    Pause,
    /// It goes on where it was.
    Resume,
    /// It gets another schedule.
    Reschedule(Schedule),
    /// What was discarded last is tried again.
    Redrive,
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has done it.
    Succeeded,
    /// It may work another time.
    Failed {
        /// Why.
        error: String,
        /// How long the receiver asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// It will not work another time.
    Rejected {
        /// Why.
        error: String,
    },
    /// The receiver wants nothing of this job any more.
    Gone,
}

/// What a step has made of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Stepped {
    /// The job as it is now.
    pub job: Job,
    /// Whether anything may be different: not where it was so already, as when what is paused is paused.
    pub changed: bool,
    /// Whether a delivery is under way that the step could not take back.
    pub delivering: bool,
}

/// Why a step cannot be taken. The job is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is not due, or somebody else holds it.
    #[error("the job is not due")]
    NotDue,
    /// It was claimed anew since, or taken away: what the caller knows of it is out of date.
    #[error("the claim is no longer valid")]
    Stale,
    /// Nothing more happens to a job that is final.
    #[error("the job is {}", .0.as_str())]
    Final(JobState),
    /// An occurrence is being tried, and another can be only after it.
    #[error("the job is being delivered or tried again")]
    Busy,
    /// No occurrence of it has failed for good.
    #[error("the job has nothing that was discarded")]
    NothingDiscarded,
    /// The new schedule has no time left.
    #[error("the schedule has no time left")]
    NeverFires,
}

impl Job {
    /// Takes a step at the time `now`.
    ///
    /// # Errors
    /// Why it cannot be taken.
    pub fn step(mut self, step: Step, now: Timestamp) -> Result<Stepped, Refusal> {
        let changed = match step {
            Step::Cancel => !self.state().is_final(),
            Step::Pause => !self.paused,
            Step::Resume => self.paused,
            _ => true,
        };
        let delivering = match step {
            Step::Claim { until, lease } => self.claim(now, until, lease).map(|()| false)?,
            Step::Extend { fence, lease } => {
                self.held(fence)?;
                self.phase = Phase::Running { lease };
                true
            }
            Step::Release { fence } => self.release(fence, now).map(|()| false)?,
            Step::End { fence, outcome, took, status, jitter } => {
                self.held(fence)?;
                self.end(outcome, took, status, jitter, now);
                false
            }
            Step::Cancel => self.cancel(now),
            Step::Pause => self.pause()?,
            Step::Resume => self.resume(now)?,
            Step::Reschedule(schedule) => self.reschedule(schedule, now)?,
            Step::Redrive => self.redrive(now).map(|()| false)?,
        };
        Ok(Stepped { job: self, changed, delivering })
    }

    fn held(&self, fence: u64) -> Result<(), Refusal> {
        let held = self.is_delivering() && self.fence == fence;
        if held { Ok(()) } else { Err(Refusal::Stale) }
    }

    fn open(&self) -> Result<(), Refusal> {
        if self.state().is_final() { Err(Refusal::Final(self.state())) } else { Ok(()) }
    }

    fn claim(&mut self, now: Timestamp, until: Timestamp, lease: Timestamp) -> Result<(), Refusal> {
        if self.paused {
            return Err(Refusal::NotDue);
        }
        match self.phase {
            Phase::Running { lease } if lease <= now => {
                self.lost(now);
                // What is left of it may be due only later.
                if self.wakes().is_none_or(|wakes| wakes > until) {
                    return Ok(());
                }
            }
            Phase::Scheduled | Phase::Retryable if self.due <= until => {}
            _ => return Err(Refusal::NotDue),
        }
        while self.begun.is_none() {
            self.begin(now);
            // What was missed may have been left out, and the next one is due later, mostly.
            if self.wakes().is_none_or(|wakes| wakes > until) {
                return Ok(());
            }
        }
        self.attempt += 1;
        self.fence += 1;
        self.phase = Phase::Running { lease };
        Ok(())
    }

    /// Decides what is to be run now of what may have been missed, or goes on where that is nothing.
    fn begin(&mut self, now: Timestamp) {
        let due = self.place.scheduled_for;
        let CatchUp { run, next } = catch_up(&self.schedule, due, now.max(due), self.misfire);
        match (run, next) {
            (Some(run), next) => {
                self.place.scheduled_for = run;
                self.begun = Some(Begun { at: now, next, again: false });
            }
            // The number of what is left out was used for nothing, so the next one has it.
            (None, Some(next)) => self.go_to(Place { scheduled_for: next, ..self.place }, now),
            (None, None) => self.finish(Phase::Completed { at: now }),
        }
    }

    /// Notes that whoever held it has not come back, and makes it ready for another attempt, if there is one.
    fn lost(&mut self, now: Timestamp) {
        let error = "the lease ran out: whoever delivered it has not reported".to_owned();
        self.note(now, None, None, Some(error.clone()));
        if self.was_moved() {
            self.go_on(now);
        } else if self.attempt < self.max_attempts {
            self.phase = Phase::Retryable;
            self.due = now;
        } else {
            self.give_up(error, now);
        }
    }

    fn release(&mut self, fence: u64, now: Timestamp) -> Result<(), Refusal> {
        self.held(fence)?;
        if self.was_moved() {
            self.go_on(now);
            return Ok(());
        }
        self.attempt = self.attempt.saturating_sub(1);
        self.phase = if self.attempt == 0 { Phase::Scheduled } else { Phase::Retryable };
        // What is run now is decided anew, unless that is known, as of what is run again.
        if self.attempt == 0 && !self.begun.is_some_and(|begun| begun.again) {
            self.begun = None;
        }
        Ok(())
    }

    fn was_moved(&self) -> bool {
        matches!(self.then, Some(Then::Moved { .. }))
    }

    fn end(&mut self, outcome: Outcome, took: Duration, status: Option<u16>, jitter: u32, now: Timestamp) {
        let error = match &outcome {
            Outcome::Succeeded | Outcome::Gone => None,
            Outcome::Failed { error, .. } | Outcome::Rejected { error } => Some(error.clone()),
        };
        self.note(now, Some(took), status, error);
        match outcome {
            Outcome::Gone => self.finish(Phase::Cancelled { at: now }),
            Outcome::Succeeded => self.go_on(now),
            _ if self.was_moved() => self.go_on(now),
            Outcome::Failed { retry_after, .. } if self.attempt < self.max_attempts => {
                self.phase = Phase::Retryable;
                self.due = later(now, backoff(self.attempt, jitter, retry_after));
            }
            Outcome::Failed { error, .. } | Outcome::Rejected { error } => self.give_up(error, now),
        }
    }

    /// Keeps an attempt that has ended, and forgets the oldest.
    fn note(&mut self, now: Timestamp, took: Option<Duration>, status: Option<u16>, error: Option<String>) {
        let duration_ms = took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let (occurrence, attempt) = (self.place.occurrence, self.attempt);
        self.attempts.push(Attempt {
            occurrence,
            attempt,
            ended: now,
            duration_ms,
            status,
            error: error.map(brief),
        });
        let excess = self.attempts.len().saturating_sub(MAX_ATTEMPTS_KEPT);
        self.attempts.drain(..excess);
    }

    /// Its occurrence has failed for good: the end of a job that has no other, and a dead letter of one that
    /// goes on.
    fn give_up(&mut self, error: String, now: Timestamp) {
        let Place { occurrence, scheduled_for } = self.place;
        self.go_on(now);
        if let Phase::Completed { at } = self.phase {
            self.phase = Phase::Discarded { at };
            return;
        }
        self.dead_letters.push(DeadLetter { occurrence, scheduled_for, at: now, error: brief(error) });
        let excess = self.dead_letters.len().saturating_sub(MAX_DEAD_LETTERS);
        self.dead_letters.drain(..excess);
    }

    /// Goes to the next occurrence, or to the end where there is none.
    fn go_on(&mut self, now: Timestamp) {
        if let Some(then) = self.then.take() {
            return self.go_to(then.place(), now);
        }
        let next = self.begun.and_then(|begun| self.overlap.next(&self.schedule, begun.next, begun.at, now));
        match next {
            Some(next) => {
                self.go_to(Place { occurrence: self.place.occurrence + 1, scheduled_for: next }, now);
            }
            None => self.finish(Phase::Completed { at: now }),
        }
    }

    /// Comes to its end, with nothing left over that would hold if it were run again.
    fn finish(&mut self, phase: Phase) {
        self.phase = phase;
        self.paused = false;
        self.then = None;
        self.begun = None;
    }

    fn go_to(&mut self, place: Place, now: Timestamp) {
        self.place = place;
        self.phase = Phase::Scheduled;
        self.due = place.scheduled_for.max(now);
        self.attempt = 0;
        self.begun = None;
    }

    fn cancel(&mut self, now: Timestamp) -> bool {
        let delivering = self.is_delivering();
        if !self.state().is_final() {
            self.finish(Phase::Cancelled { at: now });
            // Whoever delivers it has nothing to report any more.
            self.fence += 1;
        }
        delivering
    }

    fn pause(&mut self) -> Result<bool, Refusal> {
        self.open()?;
        self.paused = true;
        Ok(self.is_delivering())
    }

    fn resume(&mut self, now: Timestamp) -> Result<bool, Refusal> {
        self.open()?;
        if std::mem::take(&mut self.paused) {
            // It is not late for having been paused. What it missed is told by the occurrence's own time.
            self.due = self.due.max(now);
        }
        Ok(self.is_delivering())
    }

    fn reschedule(&mut self, schedule: Schedule, now: Timestamp) -> Result<bool, Refusal> {
        self.open()?;
        let scheduled_for = schedule.first(now).ok_or(Refusal::NeverFires)?;
        self.schedule = schedule;
        let occurrence = match self.then {
            Some(then) => then.place().occurrence,
            // Its number is known to the receiver already.
            None if self.begun.is_some() => self.place.occurrence + 1,
            None => self.place.occurrence,
        };
        let place = Place { occurrence, scheduled_for };
        match self.then {
            // The dead letter is not what is moved.
            Some(Then::Back { .. }) => self.then = Some(Then::Back { place }),
            _ if self.is_delivering() => self.then = Some(Then::Moved { place }),
            _ => self.go_to(place, now),
        }
        Ok(self.is_delivering())
    }

    fn redrive(&mut self, now: Timestamp) -> Result<(), Refusal> {
        match self.phase {
            Phase::Discarded { .. } => self.phase = Phase::Scheduled,
            Phase::Completed { .. } | Phase::Cancelled { .. } => return Err(Refusal::Final(self.state())),
            Phase::Scheduled if self.begun.is_none() => {
                let Some(dead) = self.dead_letters.pop() else { return Err(Refusal::NothingDiscarded) };
                self.then = Some(Then::Back { place: self.place });
                self.place = Place { occurrence: dead.occurrence, scheduled_for: dead.scheduled_for };
            }
            Phase::Scheduled | Phase::Running { .. } | Phase::Retryable => return Err(Refusal::Busy),
        }
        // It runs whatever its time, and the schedule goes on where it was, if it does.
        self.begun = Some(Begun { at: now, next: None, again: true });
        self.due = now;
        self.attempt = 0;
        Ok(())
    }
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait).ok().and_then(|wait| now.checked_add(wait).ok()).unwrap_or(Timestamp::MAX)
}

/// An error's text within bounds.
fn brief(mut error: String) -> String {
    error.truncate(error.floor_char_boundary(MAX_ERROR_BYTES));
    error
}

#[cfg(test)]
mod tests;
