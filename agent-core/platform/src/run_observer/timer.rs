//! Times of a run's steps, made at its events.

use crate::conversation::{MAX_TIMED_ROUNDS, RoundTiming, RunTiming};

/// Step of the run that is being timed.
#[derive(Default)]
pub(super) struct TimerState {
    /// Time at which the latest request to the model was sent.
    request_ms: u64,
    is_round_open: bool,
}

impl TimerState {
    /// Records that a request is sent.
    pub(super) fn request_at(&mut self, now: u64) {
        self.request_ms = now;
    }

    pub(super) fn begin_round(&mut self, timing: &mut RunTiming, _: u64) {
        self.is_round_open = timing.rounds.len() < MAX_TIMED_ROUNDS;
        if self.is_round_open {
            timing.rounds.push(RoundTiming { started_ms: self.request_ms, ..RoundTiming::default() });
        }
    }

    pub(super) fn content(&mut self, timing: &mut RunTiming, now: u64) {
        timing.first_content_ms.get_or_insert(now);
        if let Some(round) = timing.rounds.last_mut().filter(|_| self.is_round_open) {
            round.first_content_ms.get_or_insert(now);
        }
    }

    /// Ends the answer of the open round; its tool calls may follow.
    pub(super) fn end_answer(&mut self, timing: &mut RunTiming, now: u64) {
        if let Some(round) = timing.rounds.last_mut().filter(|_| self.is_round_open) {
            round.ended_ms.get_or_insert(now);
        }
    }

    /// Ends the open round, after which the next request is sent.
    pub(super) fn end_step(&mut self, timing: &mut RunTiming, now: u64) {
        self.end_answer(timing, now);
        self.is_round_open = false;
        self.request_ms = now;
    }
}
