//! Rate limits of tokens and of users, as HTTP errors.
//!
//! Both are counted in the store, for all processes. The caps of widget and API tokens need a commit for each run,
//! since the customer who pays for the model relies on them; it also claims an id that the client has chosen. The limits of
//! sessions are counted in batches ([`user_rates`]), which claim the ids of the runs that they admit.
//!
//! [`user_rates`]: agent_platform::user_rates

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::{CompanyId, RunId};
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::records::StoreError;
use agent_platform::token::{RunCapError, RunCaps, Tokens};
use agent_platform::user_rates::{MinuteRateLimiter, RateLimitError, RateState, RunCountError, UserRate};

use super::run_id::ChosenRunId;
use crate::auth::{ApiClient, Visitor};
use crate::error::{HttpError, RatePolicy};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Counts and limits the runs of widget tokens, and the runs and changes of sessions.
pub struct RateLimiter {
    tokens: Arc<Tokens>,
    users: MinuteRateLimiter,
}

impl RateLimiter {
    /// Creates the limits of widget tokens and of users.
    pub fn new(tokens: Arc<Tokens>, users: MinuteRateLimiter) -> Self {
        Self { tokens, users }
    }

    /// Counts a run of a widget token that is about to start, and claims its id by the same commit. Returns `None` if `run_id`
    /// is empty, since the client has chosen none.
    ///
    /// # Errors
    ///
    /// 429 if a limit of the token is reached, in which case the run is not counted; 503 if the store is unavailable.
    pub(in crate::app) async fn count_visitor_run(
        &self,
        visitor: &Visitor,
        run_id: &RunId,
    ) -> Result<Option<ChosenRunId>, HttpError> {
        let Visitor { token_id, company_id, caps, .. } = visitor;
        if run_id.is_empty() {
            return self.count_token_run((company_id, token_id.as_str()), caps).await.map(|()| None);
        }
        let counted =
            self.tokens.count_run_with_id((token_id.as_str(), caps), (&visitor.principal(), run_id)).await;
        let claim = counted.map_err(|error| cap_error(error, caps))?;
        Ok(Some(claim.map_or(ChosenRunId::Used, ChosenRunId::Claimed)))
    }

    /// Counts a run of an API token that is about to start: against its caps, if it has any, and the limit of its user.
    ///
    /// # Errors
    ///
    /// 429 if a limit is reached; 503 if the store is unavailable.
    pub(crate) async fn count_api_run(&self, client: &ApiClient) -> Result<(), HttpError> {
        if let Some(caps) = &client.caps {
            self.count_token_run((&client.company_id, client.token_id.as_str()), caps).await?;
        }
        let ApiClient { user_id, company_id, .. } = client;
        let user = Principal::new(user_id.clone(), company_id.clone(), Caller::Api);
        self.count_session(&user, UserRate::Runs).await
    }

    async fn count_token_run(&self, token: (&CompanyId, &str), caps: &RunCaps) -> Result<(), HttpError> {
        self.tokens.count_run(token, caps).await.map_err(|error| cap_error(error, caps))
    }

    /// Counts a run of a session that is about to start, and claims its id if a commit admits the run. Returns `None` if `run_id`
    /// is empty, since the client has chosen none.
    ///
    /// # Errors
    ///
    /// 429 if the user's limit is reached, in which case the run is not counted; 503 if the store is unavailable while the run
    /// waits for its id.
    pub(in crate::app) async fn count_session_run(
        &self,
        user: &Principal,
        run_id: &RunId,
    ) -> Result<Option<ChosenRunId>, HttpError> {
        if run_id.is_empty() {
            return self.count_session(user, UserRate::Runs).await.map(|()| None);
        }
        match self.users.count_run_with_id(user, run_id).await {
            Ok(counted) => Ok(Some(counted.into())),
            Err(RunCountError::Limit(error)) => Err(self.session_error(UserRate::Runs, error)),
            Err(RunCountError::Store(error)) => Err(error.into()),
            Err(error) => Err(HttpError::internal(error)),
        }
    }

    /// Counts a request of a session that changes something.
    ///
    /// # Errors
    ///
    /// 429 if the user's limit is reached, in which case the request is not counted.
    pub(crate) async fn count_session_change(&self, user: &Principal) -> Result<(), HttpError> {
        self.count_session(user, UserRate::Changes).await
    }

    /// Counts a request of a visitor that changes something. The visitors of a token share a limit, since a visitor can
    /// have any number of keys.
    ///
    /// # Errors
    ///
    /// 429 if the limit is reached, in which case the request is not counted.
    pub(crate) async fn count_visitor_change(&self, visitor: &Visitor) -> Result<(), HttpError> {
        let token = Visitor { key_hash: None, ..visitor.clone() };
        self.count_session(&token.principal(), UserRate::Changes).await
    }

    /// Returns the limits of a session's user by their units.
    ///
    /// # Errors
    ///
    /// 500 or 503 if the store fails.
    pub(in crate::app) async fn session_state(
        &self,
        user: &Principal,
    ) -> Result<[(&'static str, RateState); 2], HttpError> {
        Ok([
            ("runs", self.users.state(user, UserRate::Runs).await?),
            ("changes", self.users.state(user, UserRate::Changes).await?),
        ])
    }

    async fn count_session(&self, user: &Principal, rate: UserRate) -> Result<(), HttpError> {
        self.users.count(user, rate).await.map_err(|error| self.session_error(rate, error))
    }

    fn session_error(&self, rate: UserRate, error: RateLimitError) -> HttpError {
        HttpError::with_limit(minute_policy(self.users.limits().per_minute(rate)), error.retry_after)
    }
}

/// Converts the error of counting a run against the caps of its token.
fn cap_error(error: RunCapError, caps: &RunCaps) -> HttpError {
    match (error, caps.runs_per_day) {
        (RunCapError::PerMinute { retry_after }, _) => {
            HttpError::with_limit(minute_policy(caps.runs_per_minute), retry_after)
        }
        (RunCapError::PerDay { retry_after }, Some(per_day)) => {
            let policy = RatePolicy { name: "day".into(), quota: per_day.get().into(), window: Some(DAY) };
            HttpError::with_limit(policy, retry_after)
        }
        (RunCapError::Store(error @ StoreError::Unavailable(_)), _) => error.into(),
        (error, _) => HttpError::internal(error),
    }
}

fn minute_policy(per_minute: NonZeroU32) -> RatePolicy {
    RatePolicy { name: "minute".into(), quota: per_minute.get().into(), window: Some(MINUTE) }
}

#[cfg(test)]
mod tests {
    use agent_core::clock::Clock;
    use agent_core::testing::ManualClock;
    use agent_platform::memory::MemoryRecords;
    use agent_platform::records::{Records, RecordsWrapper, Write};
    use agent_platform::user_rates::SessionLimits;
    use async_trait::async_trait;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::error::Code;

    fn caps(clock: &ManualClock) -> RateLimiter {
        limits_over(Arc::new(MemoryRecords::default()), clock)
    }

    fn limits_over(records: Arc<dyn Records>, clock: &ManualClock) -> RateLimiter {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
        let users = MinuteRateLimiter::new(records.clone(), SessionLimits::default(), clock.clone(), spawner);
        RateLimiter::new(Arc::new(Tokens::new(records, clock)), users)
    }

    fn visitor(token: &str, per_minute: u32, per_day: Option<u32>) -> Visitor {
        let caps = RunCaps {
            runs_per_minute: NonZeroU32::new(per_minute).expect("a cap"),
            runs_per_day: per_day.and_then(NonZeroU32::new),
        };
        Visitor { token_id: token.into(), company_id: "c".into(), agent_id: "a".into(), caps, key_hash: None }
    }

    /// Counts a run whose id the service generates.
    async fn count(limits: &RateLimiter, visitor: &Visitor) -> Result<(), HttpError> {
        limits.count_visitor_run(visitor, &"".into()).await.map(drop)
    }

    /// Counts a run of a session whose id the service generates.
    async fn count_session_run(limits: &RateLimiter, user: &Principal) -> Result<(), HttpError> {
        limits.count_session_run(user, &"".into()).await.map(drop)
    }

    /// A store that can be read, as a database that has become read-only can.
    #[derive(Default)]
    struct ReadOnlyRecords(MemoryRecords);

    #[async_trait]
    impl RecordsWrapper for ReadOnlyRecords {
        fn inner(&self) -> &dyn Records {
            &self.0
        }

        async fn commit(&self, _: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
            Err(StoreError::unavailable("it is read-only"))
        }
    }

    #[tokio::test]
    async fn a_run_that_cannot_be_counted_is_refused_until_the_store_is_back() {
        let limits = limits_over(Arc::new(ReadOnlyRecords::default()), &ManualClock::new());
        for per_day in [None, Some(3)] {
            let visitor = visitor("t", 2, per_day);
            let refused = count(&limits, &visitor).await.expect_err("it is not counted");
            assert_eq!(refused.code(), Code::StoreUnavailable);
            assert!(refused.retry_after().is_some(), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn a_minute_has_so_many_runs_and_a_token_its_own_minute() {
        let clock = ManualClock::new();
        let caps = caps(&clock);
        let (one, other) = (visitor("t", 3, None), visitor("u", 3, None));
        for _ in 0..3 {
            count(&caps, &one).await.expect("as many may begin at once");
        }
        let refused = count(&caps, &one).await.expect_err("the cap is reached");
        assert_eq!(refused.code(), Code::RateLimited);
        count(&caps, &other).await.expect("another token");
        clock.advance(Duration::from_secs(19));
        count(&caps, &one).await.expect_err("a third of a minute is not over");
        clock.advance(Duration::from_secs(1));
        count(&caps, &one).await.expect("one more");
        count(&caps, &one).await.expect_err("and no second");
        clock.advance(MINUTE);
        for _ in 0..3 {
            count(&caps, &one).await.expect("a new minute");
        }
    }

    #[tokio::test]
    async fn a_day_has_so_many_runs_whatever_the_minute_allows() {
        let clock = ManualClock::new();
        let caps = caps(&clock);
        let visitor = visitor("t", 2, Some(3));
        for (wait, allowed) in [(0, true), (0, true), (0, false), (60, true), (0, false), (60, false)] {
            clock.advance(Duration::from_secs(wait));
            assert_eq!(count(&caps, &visitor).await.is_ok(), allowed);
        }
        clock.advance(DAY);
        count(&caps, &visitor).await.expect("a new day");
    }

    #[tokio::test]
    async fn a_token_whose_cap_was_changed_has_the_new_one() {
        let caps = caps(&ManualClock::new());
        count(&caps, &visitor("t", 1, None)).await.expect("one");
        count(&caps, &visitor("t", 1, None)).await.expect_err("no more");
        count(&caps, &visitor("t", 2, None)).await.expect("a new cap");
    }

    #[tokio::test]
    async fn a_user_has_runs_and_changes_of_their_own() {
        let clock = ManualClock::new();
        let limits = caps(&clock);
        let user = |company: &str, user: &str| Principal::new(user, company, Caller::Session);
        let ada = user("c1", "ada");
        for _ in 0..60 {
            count_session_run(&limits, &ada).await.expect("within the limit");
        }
        let refused = count_session_run(&limits, &ada).await.expect_err("the limit is reached");
        assert_eq!(refused.code(), Code::RateLimited);
        for other in [user("c1", "bob"), user("c2", "ada")] {
            count_session_run(&limits, &other).await.expect("another user");
        }
        for _ in 0..300 {
            limits.count_session_change(&ada).await.expect("changes are counted apart");
        }
        limits.count_session_change(&ada).await.expect_err("the limit is reached");
        clock.advance(MINUTE);
        count_session_run(&limits, &ada).await.expect("a new minute");
        limits.count_session_change(&ada).await.expect("a new minute");
    }
}
