//! Decision about the step after a failed attempt. Pure.

use std::time::Duration;

use super::FailureClass;

/// Limit on the first wait before a repeated call; it doubles with each.
const FIRST_BACKOFF: Duration = Duration::from_millis(250);
/// Limit on any wait that the provider did not request.
const MAX_BACKOFF: Duration = Duration::from_secs(4);

/// Limits on the calls of one entry in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Number of calls.
    pub max_attempts: u32,
    /// Limit on the waits between them, together.
    pub max_wait: Duration,
    /// True if a fallback is called after a refusal by the provider's filter.
    pub falls_back_on_content: bool,
}

/// State of a round in which an attempt has failed.
#[derive(Debug, Clone, Copy)]
pub struct RoundHistory {
    /// Limits on the calls of the entry.
    pub policy: RetryPolicy,
    /// Number of calls of the entry so far.
    pub attempts: u32,
    /// Time that was waited between them.
    pub waited: Duration,
    /// True if the entry's circuit and the budget of repetitions permit another call.
    pub may_repeat: bool,
    /// Random number from 0 to 1 that spreads the waits (jitter).
    pub jitter: f64,
}

/// Step after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Repeat the same call after a wait.
    Repeat {
        /// The wait.
        wait: Duration,
    },
    /// A call of the next entry.
    NextEntry,
    /// No further call.
    GiveUp,
}

/// Decides what follows a failure. `retry_after` is the delay that the provider requested.
pub fn plan(class: FailureClass, retry_after: Option<Duration>, history: &RoundHistory) -> NextStep {
    let RoundHistory { policy, attempts, waited, may_repeat, jitter } = *history;
    let backoff = FIRST_BACKOFF.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(MAX_BACKOFF);
    let wait = match class {
        FailureClass::Transient => {
            Some(backoff.mul_f64(jitter.clamp(0.0, 1.0)).max(retry_after.unwrap_or_default()))
        }
        FailureClass::RateLimit => retry_after,
        FailureClass::Account | FailureClass::Size | FailureClass::Unsupported => None,
        FailureClass::Content if policy.falls_back_on_content => None,
        FailureClass::Content | FailureClass::Request => return NextStep::GiveUp,
    };
    match wait {
        Some(wait)
            if may_repeat
                && attempts < policy.max_attempts
                && waited.saturating_add(wait) <= policy.max_wait =>
        {
            NextStep::Repeat { wait }
        }
        _ => NextStep::NextEntry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_follows_the_class() {
        use FailureClass::*;
        let ms = Duration::from_millis;
        let policy = RetryPolicy { max_attempts: 3, max_wait: ms(10_000), falls_back_on_content: false };
        let first = RoundHistory { policy, attempts: 1, waited: ms(0), may_repeat: true, jitter: 0.5 };
        let repeat = |wait| NextStep::Repeat { wait: ms(wait) };
        for (class, retry_after, history, expected) in [
            (Transient, None, first, repeat(125)),
            (Transient, None, RoundHistory { attempts: 2, ..first }, repeat(250)),
            (Transient, None, RoundHistory { attempts: 3, ..first }, NextStep::NextEntry),
            (Transient, None, RoundHistory { may_repeat: false, ..first }, NextStep::NextEntry),
            (Transient, Some(ms(5_000)), first, repeat(5_000)),
            (Transient, Some(ms(10_001)), first, NextStep::NextEntry),
            (RateLimit, None, first, NextStep::NextEntry),
            (RateLimit, Some(ms(10_000)), first, repeat(10_000)),
            (RateLimit, Some(ms(10_000)), RoundHistory { waited: ms(1), ..first }, NextStep::NextEntry),
            (RateLimit, Some(Duration::MAX), first, NextStep::NextEntry),
            (Account, None, first, NextStep::NextEntry),
            (Size, None, first, NextStep::NextEntry),
            (Unsupported, None, first, NextStep::NextEntry),
            (Content, None, first, NextStep::GiveUp),
            (Request, None, first, NextStep::GiveUp),
        ] {
            assert_eq!(plan(class, retry_after, &history), expected, "{class:?} {retry_after:?} {history:?}");
        }
        let also = RetryPolicy { falls_back_on_content: true, ..policy };
        assert_eq!(plan(Content, None, &RoundHistory { policy: also, ..first }), NextStep::NextEntry);
        let many = RetryPolicy { max_attempts: 100, ..policy };
        let late = RoundHistory { policy: many, attempts: 99, jitter: 1.0, ..first };
        assert_eq!(plan(Transient, None, &late), repeat(4_000), "the backoff is bounded");
    }
}
