//! Rate limits of widget tokens.
//!
//! The limit per minute protects this process, so it is counted in memory. The limit per day is a guarantee to the
//! customer who pays for the model, so it is counted in the store, which outlives the process and is shared by all
//! replicas.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::clock::Clock;
use agent_platform::token::{DailyCapError, Tokens};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use quick_cache::sync::Cache;

use crate::auth::Visitor;
use crate::error::{HttpError, RatePolicy};

/// Maximum number of tokens whose per-minute limiter is kept; the least recently used are evicted. A token can exceed
/// its limit only if that many others are used within the same minute.
const MAX_CACHED_LIMITERS: usize = 10_000;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

type Limiter = RateLimiter<NotKeyed, InMemoryState, Monotonic, NoOpMiddleware<Instant>>;

/// Adapts the platform's clock to the rate limiter.
#[derive(Clone)]
struct Monotonic(Arc<dyn Clock>);

impl governor::clock::Clock for Monotonic {
    type Instant = Instant;

    fn now(&self) -> Instant {
        self.0.monotonic()
    }
}

/// Counts and limits the runs of widget tokens.
pub struct RunRateLimits {
    tokens: Arc<Tokens>,
    clock: Monotonic,
    /// Limiters by token id and limit per minute.
    minutes: Cache<(String, NonZeroU32), Arc<Limiter>>,
}

impl RunRateLimits {
    /// Creates the limits, with no runs counted in the current minute. The counts per day are in the store.
    pub fn new(tokens: Arc<Tokens>, clock: Arc<dyn Clock>) -> Self {
        Self { tokens, clock: Monotonic(clock), minutes: Cache::new(MAX_CACHED_LIMITERS) }
    }

    /// Counts a run that is about to start.
    ///
    /// # Errors
    ///
    /// 429 if a limit of the token is reached, in which case the run is not counted; 500 if the store fails.
    pub async fn count_run(&self, visitor: &Visitor) -> Result<(), HttpError> {
        let Visitor { token_id, caps, .. } = visitor;
        let limiter = self.limiter(token_id, caps.runs_per_minute);
        if let Err(until) = limiter.check() {
            let policy = RatePolicy { name: "minute", quota: caps.runs_per_minute.get(), window: MINUTE };
            let wait = until.wait_time_from(governor::clock::Clock::now(&self.clock));
            return Err(HttpError::with_limit(policy, wait));
        }
        let Some(per_day) = caps.runs_per_day else { return Ok(()) };
        match self.tokens.count_run(token_id, per_day).await {
            Ok(()) => Ok(()),
            Err(DailyCapError::Reached { retry_after }) => {
                let policy = RatePolicy { name: "day", quota: per_day.get(), window: DAY };
                Err(HttpError::with_limit(policy, retry_after))
            }
            Err(error) => Err(HttpError::internal(error)),
        }
    }

    fn limiter(&self, token_id: &str, per_minute: NonZeroU32) -> Arc<Limiter> {
        let fresh = || {
            let limiter = RateLimiter::direct_with_clock(Quota::per_minute(per_minute), self.clock.clone());
            Ok::<_, Infallible>(Arc::new(limiter))
        };
        let Ok(limiter) = self.minutes.get_or_insert_with(&(token_id.to_owned(), per_minute), fresh);
        limiter
    }
}

#[cfg(test)]
mod tests {
    use agent_core::testing::ManualClock;
    use agent_platform::memory::MemoryRecords;
    use agent_platform::token::Caps;

    use super::*;
    use crate::error::Code;

    fn caps(clock: &ManualClock) -> RunRateLimits {
        let records = Arc::new(MemoryRecords::default());
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        RunRateLimits::new(Arc::new(Tokens::new(records, clock.clone())), clock)
    }

    fn visitor(token: &str, per_minute: u32, per_day: Option<u32>) -> Visitor {
        let caps = Caps {
            runs_per_minute: NonZeroU32::new(per_minute).expect("a cap"),
            runs_per_day: per_day.and_then(NonZeroU32::new),
        };
        Visitor { token_id: token.into(), company_id: "c".into(), agent_id: "a".into(), caps }
    }

    #[tokio::test]
    async fn a_minute_has_so_many_runs_and_a_token_its_own_minute() {
        let clock = ManualClock::new();
        let caps = caps(&clock);
        let (one, other) = (visitor("t", 3, None), visitor("u", 3, None));
        for _ in 0..3 {
            caps.count_run(&one).await.expect("as many may begin at once");
        }
        let refused = caps.count_run(&one).await.expect_err("the cap is reached");
        assert_eq!(refused.code(), Code::RateLimited);
        caps.count_run(&other).await.expect("another token");
        clock.advance(Duration::from_secs(19));
        caps.count_run(&one).await.expect_err("a third of a minute is not over");
        clock.advance(Duration::from_secs(1));
        caps.count_run(&one).await.expect("one more");
        caps.count_run(&one).await.expect_err("and no second");
        clock.advance(MINUTE);
        for _ in 0..3 {
            caps.count_run(&one).await.expect("a new minute");
        }
    }

    #[tokio::test]
    async fn a_day_has_so_many_runs_whatever_the_minute_allows() {
        let clock = ManualClock::new();
        let caps = caps(&clock);
        let visitor = visitor("t", 2, Some(3));
        for (wait, allowed) in [(0, true), (0, true), (0, false), (60, true), (0, false), (60, false)] {
            clock.advance(Duration::from_secs(wait));
            assert_eq!(caps.count_run(&visitor).await.is_ok(), allowed);
        }
        clock.advance(DAY);
        caps.count_run(&visitor).await.expect("a new day");
    }

    #[tokio::test]
    async fn a_token_whose_cap_was_changed_has_the_new_one() {
        let caps = caps(&ManualClock::new());
        caps.count_run(&visitor("t", 1, None)).await.expect("one");
        caps.count_run(&visitor("t", 1, None)).await.expect_err("no more");
        caps.count_run(&visitor("t", 2, None)).await.expect("a new cap");
    }
}
