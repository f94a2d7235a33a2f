mod limits;
mod sign_in;
mod tasks;
mod tokens;

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::testing::ManualClock;
use async_trait::async_trait;
use futures_util::future::{self, BoxFuture, Either};

use super::*;
use crate::conformance;
use crate::memory::MemoryRecords;
use crate::records::{Key, RecordsWrapper};
use crate::seal::Sealer;
use crate::spawner::Spawner;
use crate::testing::{IssuerCall, IssuerStep, ScriptedIssuer, SignInDecision};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Runs tasks on the test's runtime.
fn spawner() -> Arc<dyn Spawner> {
    Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)))
}

#[tokio::test]
async fn the_records_in_memory_conform() {
    conformance::coding(async || Arc::new(MemoryRecords::default()) as _, spawner()).await;
}

#[tokio::test]
async fn concurrent_callers_refresh_once() {
    conformance::coding_refreshes(async || Arc::new(MemoryRecords::default()) as _, spawner(), 2).await;
}

#[tokio::test]
async fn polls_are_never_too_soon_or_too_late() {
    conformance::coding_polls(async || Arc::new(MemoryRecords::default()) as _, spawner(), 1_000).await;
}

/// Records in memory whose next commits can fail, or can be followed by a stop of the process.
struct FailingRecords {
    inner: MemoryRecords,
    failures: AtomicUsize,
    /// True if a failed commit is applied nevertheless.
    is_applied: bool,
    /// Holds the process up after its next commit, until it completes.
    stop: Mutex<Option<BoxFuture<'static, ()>>>,
}

#[async_trait]
impl RecordsWrapper for FailingRecords {
    fn inner(&self) -> &dyn Records {
        &self.inner
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let left = self.failures.load(Ordering::SeqCst);
        if left == 0 {
            let committed = self.inner.commit(writes).await;
            let stop = self.stop.lock().expect("unpoisoned").take();
            if let Some(stop) = stop {
                stop.await;
            }
            return committed;
        }
        self.failures.store(left - 1, Ordering::SeqCst);
        if self.is_applied {
            self.inner.commit(writes).await?;
        }
        Err(StoreError::unavailable("the disk is full"))
    }
}

/// A process with its store, clock and issuer.
struct ProcessFixture {
    records: Arc<FailingRecords>,
    clock: ManualClock,
    issuer: Arc<ScriptedIssuer>,
    services: CodingServices,
    sign_ins: SignIns,
    tokens: CodingTokens,
    company: CompanyId,
    user: UserId,
}

impl ProcessFixture {
    fn new() -> Self {
        Self::over(false)
    }

    fn over(is_applied: bool) -> Self {
        let clock = ManualClock::new();
        let issuer = Arc::new(ScriptedIssuer::new(Arc::new(clock.clone())));
        let inner = MemoryRecords::default();
        let records = Arc::new(FailingRecords {
            inner,
            failures: AtomicUsize::new(0),
            is_applied,
            stop: Mutex::default(),
        });
        let services = CodingServices {
            records: records.clone(),
            sealer: Arc::new(Sealer::ephemeral()),
            clock: Arc::new(clock.clone()),
            authority: issuer.clone(),
            spawner: spawner(),
        };
        Self {
            records,
            clock,
            issuer,
            sign_ins: SignIns::new(services.clone()),
            tokens: CodingTokens::new(services.clone()),
            services,
            company: "acme".into(),
            user: "ada".into(),
        }
    }

    async fn signed_in() -> Self {
        let fixture = Self::new();
        fixture.sign_in().await;
        fixture
    }

    async fn begin(&self) -> String {
        self.sign_ins.begin(&self.company, &self.user).await.expect("a sign-in is begun").id
    }

    async fn sign_in(&self) {
        self.issuer.decide(SignInDecision::Approved);
        let id = self.begin().await;
        self.clock.advance(5 * SECOND);
        assert_eq!(self.status(&id).await.expect("a status").status, SignInStatus::Complete);
    }

    async fn status(&self, id: &str) -> Result<SignInView, SignInError> {
        self.sign_ins.status(&self.company, &self.user, id).await
    }

    async fn access(&self) -> Result<AccessToken, CodingTokenError> {
        self.tokens.access(&self.company, &self.user).await
    }

    async fn expect_access(&self) -> String {
        self.access().await.expect("there is an access token").token.expose().to_owned()
    }

    async fn subscription(&self) -> SubscriptionStatus {
        self.tokens.status(&self.company, &self.user).await.expect("a status")
    }

    /// Makes the next commits fail.
    fn fail_commits(&self, count: usize) {
        self.records.failures.store(count, Ordering::SeqCst);
    }

    /// Returns the stored value of the user in a collection.
    async fn stored(&self, collection: &str) -> String {
        let key = Key::new(&self.company, collection, self.user.as_str()).expect("a key");
        let found = self.records.get(&key).await.expect("read");
        found.map(|record| record.value.get().to_owned()).unwrap_or_default()
    }

    /// Awaits `work` and advances the clock whenever everything sleeps.
    async fn drive<T>(&self, work: impl Future<Output = T>) -> T {
        let advancing = async {
            loop {
                // Lets the tasks run: with a store in memory, each continues until it sleeps.
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
                self.clock.wait_for_sleepers(1).await;
                self.clock.advance_to_next();
            }
        };
        match future::select(pin!(work), pin!(advancing)).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }
}

/// Returns the error of a call whose answer has not arrived.
fn unanswered() -> CodingAuthorityError {
    let error = AgentError::new(AgentErrorKind::Failed, "the issuer failed");
    CodingAuthorityError::Unanswered(Arc::new(error))
}

fn fail(error: CodingAuthorityError) -> IssuerStep {
    IssuerStep::Fail(error)
}
