//! Rate limits of widget tokens and of sessions.
//!
//! The limits of sessions protect this process, so they are counted in memory. The caps of widget tokens are a guarantee
//! to the customer who pays for the model, so they are counted in the store, which outlives the process and is shared by
//! all replicas.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::clock::Clock;
use agent_core::request::Principal;
use agent_platform::token::{RunCapError, Tokens};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use quick_cache::sync::Cache;

use crate::auth::Visitor;
use crate::error::{HttpError, RatePolicy};

/// Maximum number of users whose limiter is kept; the least recently used are evicted. One can exceed its
/// limit only if that many others are active within the same minute.
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

/// Limits on the requests of a signed-in user, over all of the user's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Maximum number of runs per minute; 60.
    pub runs_per_minute: NonZeroU32,
    /// Maximum number of requests per minute that change something; 300.
    pub changes_per_minute: NonZeroU32,
}

impl Default for SessionLimits {
    fn default() -> Self {
        let limit = |number| NonZeroU32::new(number).expect("the defaults are positive");
        Self { runs_per_minute: limit(60), changes_per_minute: limit(300) }
    }
}

/// Counts and limits the runs of widget tokens, and the runs and changes of sessions.
pub struct RateLimits {
    tokens: Arc<Tokens>,
    sessions: SessionLimits,
    /// Runs by user.
    session_runs: MinuteLimiters,
    /// Changes by user.
    session_changes: MinuteLimiters,
}

/// Company and id of a user.
type UserKey = (String, String);

impl RateLimits {
    /// Creates the limits, with nothing counted of sessions. The counts of widget tokens are in the store.
    pub fn new(tokens: Arc<Tokens>, sessions: SessionLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            tokens,
            sessions,
            session_runs: MinuteLimiters::new(clock.clone()),
            session_changes: MinuteLimiters::new(clock),
        }
    }

    /// Counts a run of a widget token that is about to start.
    ///
    /// # Errors
    ///
    /// 429 if a limit of the token is reached, in which case the run is not counted; 500 if the store fails.
    pub async fn count_visitor_run(&self, visitor: &Visitor) -> Result<(), HttpError> {
        let Visitor { token_id, caps, .. } = visitor;
        match (self.tokens.count_run(token_id, caps).await, caps.runs_per_day) {
            (Ok(()), _) => Ok(()),
            (Err(RunCapError::PerMinute { retry_after }), _) => {
                Err(HttpError::with_limit(minute_policy(caps.runs_per_minute), retry_after))
            }
            (Err(RunCapError::PerDay { retry_after }), Some(per_day)) => {
                let policy = RatePolicy { name: "day", quota: per_day.get(), window: DAY };
                Err(HttpError::with_limit(policy, retry_after))
            }
            (Err(error), _) => Err(HttpError::internal(error)),
        }
    }

    /// Counts a run of a session that is about to start.
    ///
    /// # Errors
    ///
    /// 429 if the user's limit is reached, in which case the run is not counted.
    pub fn count_session_run(&self, user: &Principal) -> Result<(), HttpError> {
        self.session_runs.count(&user_key(user), self.sessions.runs_per_minute)
    }

    /// Counts a request of a session that changes something.
    ///
    /// # Errors
    ///
    /// 429 if the user's limit is reached, in which case the request is not counted.
    pub fn count_session_change(&self, user: &Principal) -> Result<(), HttpError> {
        self.session_changes.count(&user_key(user), self.sessions.changes_per_minute)
    }
}

fn minute_policy(per_minute: NonZeroU32) -> RatePolicy {
    RatePolicy { name: "minute", quota: per_minute.get(), window: MINUTE }
}

fn user_key(user: &Principal) -> UserKey {
    (user.company_id.as_str().to_owned(), user.user_id.as_str().to_owned())
}

/// Limiters of requests per minute, by user.
struct MinuteLimiters {
    clock: Monotonic,
    limiters: Cache<UserKey, Arc<Limiter>>,
}

impl MinuteLimiters {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock: Monotonic(clock), limiters: Cache::new(MAX_CACHED_LIMITERS) }
    }

    fn count(&self, key: &UserKey, per_minute: NonZeroU32) -> Result<(), HttpError> {
        let fresh = || {
            let limiter = RateLimiter::direct_with_clock(Quota::per_minute(per_minute), self.clock.clone());
            Ok::<_, Infallible>(Arc::new(limiter))
        };
        let Ok(limiter) = self.limiters.get_or_insert_with(key, fresh);
        limiter.check().map_err(|until| {
            let wait = until.wait_time_from(governor::clock::Clock::now(&self.clock));
            HttpError::with_limit(minute_policy(per_minute), wait)
        })
    }
}

#[cfg(test)]
mod tests {
    use agent_core::testing::ManualClock;
    use agent_core::tool::Caller;
    use agent_platform::memory::MemoryRecords;
    use agent_platform::token::Caps;

    use super::*;
    use crate::error::Code;

    fn caps(clock: &ManualClock) -> RateLimits {
        let records = Arc::new(MemoryRecords::default());
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        RateLimits::new(Arc::new(Tokens::new(records, clock.clone())), SessionLimits::default(), clock)
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
            caps.count_visitor_run(&one).await.expect("as many may begin at once");
        }
        let refused = caps.count_visitor_run(&one).await.expect_err("the cap is reached");
        assert_eq!(refused.code(), Code::RateLimited);
        caps.count_visitor_run(&other).await.expect("another token");
        clock.advance(Duration::from_secs(19));
        caps.count_visitor_run(&one).await.expect_err("a third of a minute is not over");
        clock.advance(Duration::from_secs(1));
        caps.count_visitor_run(&one).await.expect("one more");
        caps.count_visitor_run(&one).await.expect_err("and no second");
        clock.advance(MINUTE);
        for _ in 0..3 {
            caps.count_visitor_run(&one).await.expect("a new minute");
        }
    }

    #[tokio::test]
    async fn a_day_has_so_many_runs_whatever_the_minute_allows() {
        let clock = ManualClock::new();
        let caps = caps(&clock);
        let visitor = visitor("t", 2, Some(3));
        for (wait, allowed) in [(0, true), (0, true), (0, false), (60, true), (0, false), (60, false)] {
            clock.advance(Duration::from_secs(wait));
            assert_eq!(caps.count_visitor_run(&visitor).await.is_ok(), allowed);
        }
        clock.advance(DAY);
        caps.count_visitor_run(&visitor).await.expect("a new day");
    }

    #[tokio::test]
    async fn a_token_whose_cap_was_changed_has_the_new_one() {
        let caps = caps(&ManualClock::new());
        caps.count_visitor_run(&visitor("t", 1, None)).await.expect("one");
        caps.count_visitor_run(&visitor("t", 1, None)).await.expect_err("no more");
        caps.count_visitor_run(&visitor("t", 2, None)).await.expect("a new cap");
    }

    #[test]
    fn a_user_has_runs_and_changes_of_their_own() {
        let clock = ManualClock::new();
        let limits = caps(&clock);
        let user = |company: &str, user: &str| Principal::new(user, company, Caller::Session);
        let ada = user("c1", "ada");
        for _ in 0..60 {
            limits.count_session_run(&ada).expect("within the limit");
        }
        let refused = limits.count_session_run(&ada).expect_err("the limit is reached");
        assert_eq!(refused.code(), Code::RateLimited);
        for other in [user("c1", "bob"), user("c2", "ada")] {
            limits.count_session_run(&other).expect("another user");
        }
        for _ in 0..300 {
            limits.count_session_change(&ada).expect("changes are counted apart");
        }
        limits.count_session_change(&ada).expect_err("the limit is reached");
        clock.advance(MINUTE);
        limits.count_session_run(&ada).expect("a new minute");
        limits.count_session_change(&ada).expect("a new minute");
    }
}
