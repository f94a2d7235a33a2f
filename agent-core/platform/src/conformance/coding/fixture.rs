//! Processes that share a store, with an issuer and clocks under the control of the suite.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::ids::{CompanyId, UserId};
use agent_core::testing::ManualClock;
use async_trait::async_trait;
use futures_util::future::{self, BoxFuture, Either, poll_fn};
use futures_util::lock::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::coding::{CodingServices, CodingTokens, SignInError, SignInStatus, SignInView, SignIns};
use crate::records::{Inventory, Key, ListQuery, Records, RecordsWrapper, StoreError, Write, WriterPermit};
use crate::seal::Sealer;
use crate::spawner::Spawner;
use crate::testing::{ScriptedIssuer, SignInDecision};

/// Time that is certainly enough for the polls of a sign-in.
const POLL_TIME: Duration = Duration::from_secs(5);

/// Number of calls of the store between two advances of the clock.
const STORE_CALLS_PER_ADVANCE: usize = 4;

/// A store with an issuer.
pub(super) struct CodingFixture {
    pub(super) records: Arc<dyn Inventory>,
    pub(super) clock: ManualClock,
    pub(super) issuer: Arc<ScriptedIssuer>,
    pub(super) sealer: Arc<Sealer>,
    spawner: Arc<dyn Spawner>,
}

/// A process of the store.
pub(super) struct Process {
    pub(super) sign_ins: SignIns,
    pub(super) tokens: CodingTokens,
    tasks: CrashableTasks,
}

pub(super) fn company() -> CompanyId {
    "acme".into()
}

pub(super) fn user() -> UserId {
    "ada".into()
}

impl CodingFixture {
    pub(super) fn new(records: Arc<dyn Inventory>, spawner: Arc<dyn Spawner>) -> Self {
        let clock = ManualClock::new();
        let issuer = Arc::new(ScriptedIssuer::new(Arc::new(clock.clone())));
        Self { records, clock, issuer, sealer: Arc::new(Sealer::ephemeral()), spawner }
    }

    /// Returns the same store, clock and issuer with another key.
    pub(super) fn with_sealer(&self, sealer: Sealer) -> Self {
        let (records, clock, issuer) = (self.records.clone(), self.clock.clone(), self.issuer.clone());
        Self { records, clock, issuer, sealer: Arc::new(sealer), spawner: self.spawner.clone() }
    }

    /// Starts a process.
    pub(super) fn process(&self) -> Process {
        self.process_with(self.records.clone(), Arc::new(self.clock.clone()))
    }

    /// Starts a process with records and a separate clock.
    pub(super) fn process_with(&self, records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Process {
        let tasks = CrashableTasks { spawner: self.spawner.clone(), running: Arc::default() };
        let services = CodingServices {
            records,
            sealer: self.sealer.clone(),
            clock,
            authority: self.issuer.clone(),
            spawner: Arc::new(tasks.clone()),
        };
        Process { sign_ins: SignIns::new(services.clone()), tokens: CodingTokens::new(services), tasks }
    }

    /// Signs the user in.
    pub(super) async fn sign_in(&self, process: &Process) {
        self.issuer.decide(SignInDecision::Approved);
        let begun = process.sign_ins.begin(&company(), &user()).await.expect("begun");
        self.clock.advance(POLL_TIME);
        let view = process.settled_status(&begun.id).await.expect("a status");
        assert_eq!(view.status, SignInStatus::Complete, "a confirmed sign-in is complete");
    }

    /// Awaits `work` and advances the clock whenever something sleeps.
    pub(super) async fn drive<T>(&self, work: impl Future<Output = T>) -> T {
        let advancing = async {
            loop {
                self.clock.wait_for_sleepers(1).await;
                // The store answers in real time, so that the clock must not run ahead of it.
                for _ in 0..STORE_CALLS_PER_ADVANCE {
                    self.records.companies(None).await.expect("listed");
                }
                self.clock.advance_to_next();
            }
        };
        match future::select(pin!(work), pin!(advancing)).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    /// Returns the values of all records of the company.
    pub(super) async fn stored_text(&self) -> String {
        let mut text = String::new();
        for collection in self.records.collections("acme", None).await.expect("listed") {
            let page = self.records.list(&collection, &ListQuery::default()).await.expect("listed");
            page.records.iter().for_each(|record| text.push_str(record.value.get()));
        }
        text
    }
}

impl Process {
    /// Returns the status of a sign-in after the polls that are due or running.
    pub(super) async fn settled_status(&self, id: &str) -> Result<SignInView, SignInError> {
        let looked = self.sign_ins.status(&company(), &user(), id).await;
        // The background task may have claimed the poll just before.
        self.sign_ins.drain().await;
        looked.ok();
        self.sign_ins.status(&company(), &user(), id).await
    }

    /// Ends all tasks at the point that they have reached.
    pub(super) fn crash(&self) {
        let running = std::mem::take(&mut *lock(&self.tasks.running));
        // Dropped outside of the lock: the end of a task may start another one.
        running.into_iter().for_each(|task| drop(lock(&task).take()));
    }
}

/// Tasks of a process that can be ended at once.
#[derive(Clone)]
struct CrashableTasks {
    spawner: Arc<dyn Spawner>,
    running: Arc<Mutex<Vec<CrashableTask>>>,
}

/// A task, until it ends or its process crashes.
type CrashableTask = Arc<Mutex<Option<BoxFuture<'static, ()>>>>;

impl Spawner for CrashableTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let task: CrashableTask = Arc::new(Mutex::new(Some(task)));
        lock(&self.running).push(task.clone());
        self.spawner.spawn(Box::pin(poll_fn(move |cx| poll_task(&task, cx))));
    }
}

fn poll_task(task: &CrashableTask, cx: &mut Context<'_>) -> Poll<()> {
    let mut running = lock(task);
    let Some(future) = running.as_mut() else { return Poll::Ready(()) };
    let polled = Pin::new(future).poll(cx);
    if polled.is_ready() {
        *running = None;
    }
    polled
}

/// A gate at which tasks wait until it is opened.
pub(super) struct Gate {
    door: Arc<AsyncMutex<()>>,
    closed: Option<OwnedMutexGuard<()>>,
}

impl Gate {
    pub(super) fn closed() -> Self {
        let door = Arc::new(AsyncMutex::new(()));
        let closed = door.try_lock_owned();
        Self { door, closed }
    }

    /// Returns a future that completes when the gate is open.
    pub(super) fn pass(&self) -> BoxFuture<'static, ()> {
        let door = self.door.clone();
        Box::pin(async move { drop(door.lock().await) })
    }

    pub(super) fn open(&mut self) {
        self.closed = None;
    }
}

/// Returns a future that never completes.
pub(super) fn never() -> BoxFuture<'static, ()> {
    Box::pin(future::pending())
}

/// Point of a commit at which it can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitPoint {
    Before,
    After,
}

/// Records whose commits can be held until the end of the test.
pub(super) struct HoldingRecords {
    inner: Arc<dyn Inventory>,
    /// Points of the next commits at which they are held.
    holds: Mutex<VecDeque<Option<CommitPoint>>>,
    /// Gate that is opened once a commit is held.
    reached: Mutex<Gate>,
}

impl HoldingRecords {
    /// Creates records with one commit, counted from 0, that is held at a point.
    pub(super) fn new(inner: Arc<dyn Inventory>, held: Option<(usize, CommitPoint)>) -> Self {
        let holds =
            held.into_iter().flat_map(|(index, point)| std::iter::repeat_n(None, index).chain([Some(point)]));
        Self { inner, holds: Mutex::new(holds.collect()), reached: Mutex::new(Gate::closed()) }
    }

    /// Returns a future that completes when a commit is held.
    pub(super) fn reached(&self) -> BoxFuture<'static, ()> {
        lock(&self.reached).pass()
    }

    async fn hold(&self) {
        lock(&self.reached).open();
        future::pending::<()>().await;
    }
}

#[async_trait]
impl RecordsWrapper for HoldingRecords {
    fn inner(&self) -> &dyn Records {
        &*self.inner
    }

    // The suite holds one process while others work. Writers of different processes do not queue.
    async fn acquire_writer_permit(&self, _: &Key) -> WriterPermit {
        WriterPermit::default()
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let point = lock(&self.holds).pop_front().flatten();
        if point == Some(CommitPoint::Before) {
            self.hold().await;
        }
        let committed = self.inner.commit(writes).await;
        if point == Some(CommitPoint::After) {
            self.hold().await;
        }
        committed
    }
}

/// Locks a mutex. No code of this module panics while it holds a lock, so the data of a poisoned mutex is intact.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
