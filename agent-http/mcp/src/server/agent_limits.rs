//! Rate and concurrency limits per agent, shared by all callers of the agent, and the companies' shares of the process.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use quick_cache::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time;

use agent_core::ids::{AgentId, CompanyId};
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};

use super::identity::Identity;

/// Maximum number of agents whose usage is tracked; the least used are evicted. An agent can exceed its limits only if
/// more agents than this are used at the same time.
const MAX_TRACKED_AGENTS: usize = 10_000;

/// Maximum number of waiting requests per unit of concurrency.
const MAX_WAITING_PER_PERMIT: usize = 16;

/// Maximum number of open subscriptions per unit of concurrency.
const MAX_SUBSCRIPTIONS_PER_PERMIT: usize = 8;

/// Maximum number of requests that are processed or wait, of all companies and of one. A company may have many agents, and
/// each request holds a connection.
const MAX_REQUESTS: u32 = 8_192;
const MAX_COMPANY_REQUESTS: u32 = MAX_REQUESTS / 4;

/// Maximum number of open subscriptions and streams of sessions, of all companies and of one.
const MAX_SUBSCRIPTIONS: u32 = 4_096;
const MAX_COMPANY_SUBSCRIPTIONS: u32 = MAX_SUBSCRIPTIONS / 4;

/// Limits shared by all callers of an agent.
#[derive(Debug, Clone)]
pub struct AgentLimits {
    /// Maximum number of concurrent requests; further requests wait.
    pub concurrency: usize,
    /// Messages per minute; also the size of a burst.
    pub per_minute: NonZeroU32,
    /// Maximum time that a request waits for a permit.
    pub wait: Duration,
}

/// Enforces the limits per agent and per company.
pub(super) struct AgentLimiter {
    limits: AgentLimits,
    clock: MonotonicClock,
    /// Keyed by company and agent.
    agents: Cache<(CompanyId, AgentId), Arc<AgentState>>,
    requests: Arc<CompanyPermits>,
    subscriptions: Arc<CompanyPermits>,
}

struct AgentState {
    rate: RateLimiter<NotKeyed, InMemoryState, MonotonicClock, NoOpMiddleware<Instant>>,
    /// Permits for running requests.
    permits: Arc<Semaphore>,
    /// Permits for running and waiting requests together.
    queue: Arc<Semaphore>,
    subscriptions: Arc<Semaphore>,
}

/// Error for an exceeded limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LimitExceededError {
    pub(super) message: &'static str,
    pub(super) retry_after: Option<Duration>,
}

/// A permit, released when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _of_agent: [Option<OwnedSemaphorePermit>; 2],
    _of_company: CompanyPermit,
}

impl AgentLimiter {
    /// Creates the limiter of a server with at most `connections` connections, of which requests take three quarters at most,
    /// and those of one company a quarter; subscriptions take half, and a company's subscriptions an eighth.
    pub(super) fn new(limits: AgentLimits, connections: u32) -> Self {
        let permits = |max_total: u32, max_of_company: u32| {
            CompanyPermits::new(max_total.max(1) as usize, max_of_company.max(1) as usize)
        };
        Self {
            limits,
            clock: MonotonicClock,
            agents: Cache::new(MAX_TRACKED_AGENTS),
            requests: permits(
                MAX_REQUESTS.min(connections - connections / 4),
                MAX_COMPANY_REQUESTS.min(connections / 4),
            ),
            subscriptions: permits(
                MAX_SUBSCRIPTIONS.min(connections / 2),
                MAX_COMPANY_SUBSCRIPTIONS.min(connections / 8),
            ),
        }
    }

    fn agent(&self, identity: &Identity) -> Arc<AgentState> {
        let AgentLimits { concurrency, per_minute, .. } = self.limits;
        let create_state = || {
            Ok::<_, Infallible>(Arc::new(AgentState {
                rate: RateLimiter::direct_with_clock(Quota::per_minute(per_minute), self.clock.clone()),
                permits: Arc::new(Semaphore::new(concurrency)),
                queue: Arc::new(Semaphore::new(
                    concurrency.saturating_mul(1 + MAX_WAITING_PER_PERMIT).min(Semaphore::MAX_PERMITS),
                )),
                subscriptions: Arc::new(Semaphore::new(
                    concurrency.saturating_mul(MAX_SUBSCRIPTIONS_PER_PERMIT).min(Semaphore::MAX_PERMITS),
                )),
            }))
        };
        let key = (identity.context.company_id.clone(), identity.context.agent_id.clone());
        let Ok(agent) = self.agents.get_or_insert_with(&key, create_state);
        agent
    }

    /// Counts a message against the rate limit.
    pub(super) fn check_rate(&self, identity: &Identity) -> Result<(), LimitExceededError> {
        self.agent(identity).rate.check().map_err(|until| LimitExceededError {
            message: "this agent's limit of requests per minute is reached",
            retry_after: Some(until.wait_time_from(self.clock.now())),
        })
    }

    /// Waits for a permit to process a request.
    pub(super) async fn acquire(&self, identity: &Identity) -> Result<Permit, LimitExceededError> {
        let error = LimitExceededError {
            message: "this agent's limit of concurrent requests is reached",
            retry_after: None,
        };
        let of_company = acquire_share(&self.requests, identity)?;
        let agent = self.agent(identity);
        let queued = agent.queue.clone().try_acquire_owned().map_err(|_| error.clone())?;
        let permit = match agent.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let permit = time::timeout(self.limits.wait, agent.permits.clone().acquire_owned()).await;
                permit.map_err(|_| error)?.expect("the semaphore is never closed")
            }
        };
        Ok(Permit { _of_agent: [Some(queued), Some(permit)], _of_company: of_company })
    }

    /// Takes a permit for a subscription. Subscriptions are long-lived, so they have a separate limit.
    pub(super) fn acquire_subscription(&self, identity: &Identity) -> Result<Permit, LimitExceededError> {
        let of_company = acquire_share(&self.subscriptions, identity)?;
        let permit = self.agent(identity).subscriptions.clone().try_acquire_owned();
        let to_error = |_| LimitExceededError {
            message: "this agent's limit of open subscriptions is reached",
            retry_after: None,
        };
        let permit = permit.map_err(to_error)?;
        Ok(Permit { _of_agent: [Some(permit), None], _of_company: of_company })
    }

    /// Takes a permit for a stream of a session. An agent may have any number: each of its clients opens one.
    pub(super) fn acquire_stream(&self, identity: &Identity) -> Result<CompanyPermit, LimitExceededError> {
        acquire_share(&self.subscriptions, identity)
    }
}

/// Takes a permit of the company's share.
fn acquire_share(
    permits: &Arc<CompanyPermits>,
    identity: &Identity,
) -> Result<CompanyPermit, LimitExceededError> {
    permits.try_acquire(&identity.context.company_id).ok_or(LimitExceededError {
        message: "the limit of open requests, or of subscriptions and streams, is reached, of the company or in all",
        retry_after: None,
    })
}

#[cfg(test)]
mod tests {
    use agent_core::tool::ExecutionContext;
    use futures_util::FutureExt;

    use super::*;

    fn identity(agent: &str) -> Identity {
        identity_of("c", agent)
    }

    fn identity_of(company: &str, agent: &str) -> Identity {
        let context = ExecutionContext {
            company_id: company.into(),
            agent_id: agent.into(),
            ..ExecutionContext::default()
        };
        Identity { id: "t".into(), context, calls: None }
    }

    /// Maximum number of connections beyond which the companies' shares do not grow.
    const MANY_CONNECTIONS: u32 = 20_000;

    fn limiter(concurrency: usize, per_minute: u32) -> AgentLimiter {
        limiter_of(MANY_CONNECTIONS, concurrency, per_minute)
    }

    fn limiter_of(connections: u32, concurrency: usize, per_minute: u32) -> AgentLimiter {
        let per_minute = NonZeroU32::new(per_minute).expect("not zero");
        let limits = AgentLimits { concurrency, per_minute, wait: Duration::from_secs(1) };
        AgentLimiter::new(limits, connections)
    }

    #[test]
    fn a_minute_has_so_many_messages_for_each_agent() {
        let limiter = limiter(1, 2);
        for _ in 0..2 {
            limiter.check_rate(&identity("a")).expect("within the limit");
        }
        let error = limiter.check_rate(&identity("a")).expect_err("over the limit");
        assert!(error.retry_after.is_some_and(|wait| wait <= Duration::from_secs(30)));
        limiter.check_rate(&identity("b")).expect("another agent has its own limit");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_permit_for_a_limited_time() {
        let limiter = limiter(2, 100);
        let a = identity("a");
        let permits =
            [limiter.acquire(&a).await.expect("a permit"), limiter.acquire(&a).await.expect("a permit")];
        assert!(limiter.acquire(&identity("b")).now_or_never().is_some_and(|result| result.is_ok()));
        let mut waiting: Vec<_> =
            (0..2 * MAX_WAITING_PER_PERMIT).map(|_| Box::pin(limiter.acquire(&a))).collect();
        for request in &mut waiting {
            assert!(request.now_or_never().is_none(), "the request waits");
        }
        assert!(
            limiter.acquire(&a).now_or_never().is_some_and(|result| result.is_err()),
            "the queue is full"
        );
        drop(permits);
        waiting.truncate(3);
        let mut waiting = waiting.into_iter();
        let mut next = || waiting.next().expect("there are three");
        let (first, second) = (next().await.expect("a permit"), next().await.expect("a permit"));
        next().await.expect_err("no permit was released in time");
        drop((first, second));
        limiter.acquire(&a).now_or_never().expect("without waiting").expect("all permits were released");
    }

    #[test]
    fn subscriptions_have_a_limit_of_their_own() {
        let limiter = limiter(1, 100);
        let a = identity("a");
        let open: Vec<_> = (0..MAX_SUBSCRIPTIONS_PER_PERMIT)
            .map(|_| limiter.acquire_subscription(&a).expect("below the limit"))
            .collect();
        limiter.acquire_subscription(&a).expect_err("above the limit");
        drop(open);
        limiter.acquire_subscription(&a).expect("below the limit");
    }

    #[test]
    fn a_company_with_many_agents_has_a_share_of_the_process() {
        for (connections, requests, subscriptions) in
            [(MANY_CONNECTIONS, MAX_COMPANY_REQUESTS, MAX_COMPANY_SUBSCRIPTIONS), (400, 100, 50), (1, 1, 1)]
        {
            let limiter = limiter_of(connections, 1, 100);
            let agents = || (0..2 * MAX_REQUESTS).map(|number| number.to_string());
            let open: Vec<_> =
                agents().map_while(|agent| limiter.acquire_subscription(&identity(&agent)).ok()).collect();
            assert_eq!(open.len(), subscriptions as usize, "{connections}");
            let acquire = |company: &str, agent: &str| {
                limiter.acquire(&identity_of(company, agent)).now_or_never().expect("it does not wait")
            };
            let mut running: Vec<_> = agents().map_while(|agent| acquire("c", &agent).ok()).collect();
            assert_eq!(running.len(), requests as usize, "{connections}");
            if connections > 1 {
                let other = identity_of("d", "a");
                limiter.acquire_subscription(&other).expect("another company has its own share");
                acquire("d", "a").expect("another company has its own share");
            }
            running.pop();
            acquire("c", "another").expect("below the limit");
        }
    }
}
