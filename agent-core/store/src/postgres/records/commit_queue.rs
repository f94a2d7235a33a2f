//! Queue of commits: those of one company that wait share a transaction. The platform's records about a company, such as its
//! meters, have transactions of their own, which wait neither for those of other companies nor for the company's large ones.
//!
//! A transaction waits for locks of other transactions for a short time, and then continues without the commits that need
//! them. These share transactions that wait for their locks beside the company's others.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_platform::records::{StoreError, Write};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::batch::WrittenVersions;
use super::commit::{CommitOutcome, Committer, LockPolicy};
use crate::owner::owner_of_keys;
use crate::postgres::fair_queue::FairQueue;
use crate::postgres::fault::{PostgresError, PostgresErrorKind};
use crate::postgres::lock_wait::{MAX_LOCK_WAIT, MAX_LOCK_WAIT_BESIDE_HELD};

/// Maximum number of transactions of one company at a time while no other company commits and many commits wait.
const MAX_TRANSACTIONS_ALONE: usize = 2;
/// Minimum number of waiting commits for which a company has more than one transaction at a time. Fewer cost the server less
/// if they share the next transaction than if they have one of their own at once.
const MIN_COMMITS_BESIDE_TRANSACTION: usize = 32;
/// Maximum number of commits of one company that wait.
const MAX_QUEUED_PER_COMPANY: usize = 4096;
/// Maximum time for which a commit waits for transactions before it, and for which those of a failed transaction are tried
/// one by one: some may wait for locks until they fail.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum numbers of commits, writes and bytes of a transaction. A commit that exceeds them has one of its own.
const MAX_BATCH_COMMITS: usize = 256;
const MAX_BATCH_WRITES: usize = 256;
const MAX_BATCH_BYTES: usize = 1 << 20;

/// Commits of all companies.
pub(in crate::postgres) struct CommitQueue {
    shared: Arc<Shared>,
}

struct Shared {
    committer: Committer,
    permits: Arc<FairQueue>,
    /// Permits of transactions that wait for locks that are known to be held.
    blocked: Arc<FairQueue>,
    wait_timeout: Duration,
    /// Maximum time for which a transaction of commits that were left out waits for a lock.
    lock_timeout: Duration,
    /// Runtime of the transactions. A commit is not cut short by the end of its caller.
    runtime: Handle,
    queues: Mutex<HashMap<QueueOwner, CompanyQueue>>,
    /// Number of the next commit.
    next_number: AtomicU64,
}

/// Owner of the commits that share transactions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct QueueOwner {
    /// The company that the commits are counted for; empty for the platform.
    company: String,
    /// True if they change records of the platform alone.
    is_of_platform: bool,
}

impl QueueOwner {
    fn of(writes: &[Write]) -> Self {
        let is_of_platform = writes.iter().all(|write| write.key().company().is_empty());
        Self { company: owner_of_keys(writes.iter().map(Write::key)), is_of_platform }
    }
}

#[derive(Default)]
struct CompanyQueue {
    transactions: usize,
    queued: VecDeque<QueuedCommit>,
    /// Commits that were left out of a transaction, since they need locks that others hold.
    blocked: VecDeque<QueuedCommit>,
    /// True while some of them wait for their locks.
    is_waiting: bool,
}

struct QueuedCommit {
    number: u64,
    since: Instant,
    writes: Vec<Write>,
    answer: Answer,
}

type Answer = oneshot::Sender<Result<WrittenVersions, StoreError>>;

impl CommitQueue {
    /// Creates a queue whose transactions run on the current runtime.
    pub(in crate::postgres) fn new(
        committer: Committer,
        (permits, blocked): (Arc<FairQueue>, Arc<FairQueue>),
        (wait_timeout, lock_timeout): (Duration, Duration),
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                committer,
                permits,
                blocked,
                wait_timeout,
                lock_timeout,
                runtime: Handle::current(),
                queues: Mutex::default(),
                next_number: AtomicU64::default(),
            }),
        }
    }

    /// Commits writes, atomically. If the caller is cancelled, they are applied as a whole or not at all.
    pub(in crate::postgres) async fn commit(
        &self,
        writes: Vec<Write>,
    ) -> Result<WrittenVersions, StoreError> {
        let owner = QueueOwner::of(&writes);
        let (answer, mut receiver) = oneshot::channel();
        let number = self.shared.next_number.fetch_add(1, Ordering::Relaxed);
        let must_start = {
            let mut queues = self.shared.lock();
            let count = queues.len() + usize::from(!queues.contains_key(&owner));
            let queue = queues.entry(owner.clone()).or_default();
            if queue.queued.len() + queue.blocked.len() >= MAX_QUEUED_PER_COMPANY {
                return Err(busy());
            }
            queue.queued.push_back(QueuedCommit { number, since: Instant::now(), writes, answer });
            let must_start = queue.transactions < max_transactions(count, queue.queued.len());
            queue.transactions += usize::from(must_start);
            must_start
        };
        if must_start {
            self.shared.start_transactions(owner.clone());
        }
        let received = match timeout(QUEUE_TIMEOUT, &mut receiver).await {
            Ok(received) => received,
            Err(_) if self.shared.remove(&owner, number) => return Err(busy()),
            // Its own transaction has timeouts.
            Err(_) => receiver.await,
        };
        let unreachable =
            |_| StoreError::unavailable(PostgresError::from_kind(PostgresErrorKind::Unreachable));
        received.map_err(unreachable)?
    }
}

fn busy() -> StoreError {
    StoreError::unavailable(PostgresError::from_kind(PostgresErrorKind::Busy))
}

/// Returns the maximum number of concurrent transactions of a queue with `queued` waiting commits, while `queues` commit. It
/// is one while others commit, so that a company with many commits takes no more of the server's time than the others.
const fn max_transactions(queues: usize, queued: usize) -> usize {
    if queues > 1 || queued < MIN_COMMITS_BESIDE_TRANSACTION { 1 } else { MAX_TRANSACTIONS_ALONE }
}

impl Shared {
    /// Locks the queues. No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<QueueOwner, CompanyQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_transactions(self: &Arc<Self>, owner: QueueOwner) {
        self.runtime.spawn(run_transactions(self.clone(), owner));
    }

    fn start_blocked(self: &Arc<Self>, owner: QueueOwner) {
        self.runtime.spawn(run_blocked(self.clone(), owner));
    }

    /// Takes the commits of the owner's next transaction. If there are none, the caller must start no further one.
    fn next_batch(&self, owner: &QueueOwner) -> Vec<QueuedCommit> {
        let mut queues = self.lock();
        let count = queues.len();
        let Some(queue) = queues.get_mut(owner) else { return Vec::new() };
        let has_room = queue.transactions <= max_transactions(count, queue.queued.len());
        let batch = if has_room { next_batch(&mut queue.queued) } else { Vec::new() };
        if batch.is_empty() {
            queue.transactions -= 1;
            if queue.is_idle() {
                queues.remove(owner);
            }
        }
        batch
    }

    /// Returns the maximum time for which a transaction of the owner's commits waits for a lock.
    fn max_lock_wait(&self, owner: &QueueOwner) -> Duration {
        let is_waiting = self.lock().get(owner).is_some_and(|queue| queue.is_waiting);
        let limit = if is_waiting { MAX_LOCK_WAIT_BESIDE_HELD } else { MAX_LOCK_WAIT };
        limit.min(self.lock_timeout)
    }

    /// Removes a commit from its owner's queues. Returns false if a transaction has taken it.
    fn remove(&self, owner: &QueueOwner, number: u64) -> bool {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(owner) else { return false };
        [&mut queue.queued, &mut queue.blocked].into_iter().any(|commits| {
            let position = commits.iter().position(|queued| queued.number == number);
            position.is_some_and(|position| commits.remove(position).is_some())
        })
    }

    /// Runs a transaction. The commits whose locks are held wait for them apart.
    async fn run(self: &Arc<Self>, owner: &QueueOwner, batch: Vec<QueuedCommit>) {
        let permit = match self.permits.acquire(&owner.company, self.wait_timeout).await {
            Ok(permit) => permit,
            Err(fault) => return respond_with_fault(batch, &fault),
        };
        let blocked = self.run_batch(batch, self.max_lock_wait(owner)).await;
        drop(permit);
        if self.add_blocked(owner, blocked) {
            self.start_blocked(owner.clone());
        }
    }

    /// Commits what needs no lock that is held for longer than `timeout`, and returns the rest.
    async fn run_batch(&self, batch: Vec<QueuedCommit>, timeout: Duration) -> Vec<QueuedCommit> {
        let is_locked = |outcome: &Result<Vec<CommitOutcome>, PostgresError>| {
            outcome.as_ref().is_err_and(|fault| fault.kind() == PostgresErrorKind::Locked)
        };
        let mut outcome = self.commit(&batch, LockPolicy { timeout, skips_held: false }).await;
        if is_locked(&outcome) && batch.len() > 1 {
            outcome = self.commit(&batch, LockPolicy { timeout, skips_held: true }).await;
        }
        if is_locked(&outcome) {
            return batch;
        }
        match outcome {
            Ok(outcomes) => return respond(batch, outcomes),
            // The fault may be of one of them only.
            Err(fault) if batch.len() > 1 && fault.has_no_effect() => {
                self.run_each(batch, &fault, self.lock_timeout, QUEUE_TIMEOUT).await;
            }
            Err(fault) => respond_with_fault(batch, &fault),
        }
        Vec::new()
    }

    async fn commit(
        &self,
        batch: &[QueuedCommit],
        policy: LockPolicy,
    ) -> Result<Vec<CommitOutcome>, PostgresError> {
        let commits: Vec<&[Write]> = batch.iter().map(|queued| queued.writes.as_slice()).collect();
        self.committer.commit(&commits, policy).await
    }

    /// Runs the commits of a transaction that had no effect one by one, each of which may wait for a lock for `timeout`. Those
    /// that would begin after `limit` get the fault of the transaction.
    async fn run_each(
        &self,
        batch: Vec<QueuedCommit>,
        fault: &PostgresError,
        timeout: Duration,
        limit: Duration,
    ) {
        let policy = LockPolicy { timeout, skips_held: false };
        let deadline = Instant::now() + limit;
        for queued in batch {
            if Instant::now() >= deadline {
                respond_with_fault([queued], fault);
                continue;
            }
            let batch = vec![queued];
            match self.commit(&batch, policy).await {
                // It is not left out.
                Ok(outcomes) => drop(respond(batch, outcomes)),
                Err(fault) => respond_with_fault(batch, &fault),
            }
        }
    }

    /// Adds commits that wait for locks. Returns true if the caller must start [`run_blocked`]. Those that have waited for
    /// [`QUEUE_TIMEOUT`] fail, since their callers no longer remove them from the queue.
    fn add_blocked(&self, owner: &QueueOwner, blocked: Vec<QueuedCommit>) -> bool {
        let (expired, blocked): (Vec<_>, Vec<_>) =
            blocked.into_iter().partition(|queued| queued.since.elapsed() >= QUEUE_TIMEOUT);
        respond_with_fault(expired, &PostgresError::from_kind(PostgresErrorKind::Locked));
        if blocked.is_empty() {
            return false;
        }
        let mut queues = self.lock();
        let queue = queues.entry(owner.clone()).or_default();
        queue.blocked.extend(blocked);
        !std::mem::replace(&mut queue.is_waiting, true)
    }

    /// Takes the commits that wait for their locks next. If there are none, the caller must end.
    fn next_blocked(&self, owner: &QueueOwner) -> Vec<QueuedCommit> {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(owner) else { return Vec::new() };
        let batch = next_batch(&mut queue.blocked);
        queue.is_waiting = !batch.is_empty();
        if queue.is_idle() {
            queues.remove(owner);
        }
        batch
    }
}

/// Sends the outcomes of a transaction's commits to their callers, and returns the commits that it has left out.
fn respond(batch: Vec<QueuedCommit>, outcomes: Vec<CommitOutcome>) -> Vec<QueuedCommit> {
    let mut blocked = Vec::new();
    for (queued, outcome) in batch.into_iter().zip(outcomes) {
        match outcome {
            CommitOutcome::Decided(outcome) => {
                // Fails only if the caller was cancelled.
                let _ = queued.answer.send(outcome);
            }
            CommitOutcome::Locked => blocked.push(queued),
        }
    }
    blocked
}

fn respond_with_fault(batch: impl IntoIterator<Item = QueuedCommit>, fault: &PostgresError) {
    for queued in batch {
        let _ = queued.answer.send(Err(StoreError::unavailable(fault.clone())));
    }
}

/// Runs transactions that wait for locks, until no commit of the owner needs them. What waits for too long fails.
async fn run_blocked(shared: Arc<Shared>, owner: QueueOwner) {
    loop {
        let batch = shared.next_blocked(&owner);
        if batch.is_empty() {
            return;
        }
        let Ok(_blocked) = shared.blocked.acquire(&owner.company, shared.wait_timeout).await else {
            respond_with_fault(batch, &PostgresError::from_kind(PostgresErrorKind::Locked));
            continue;
        };
        match shared.permits.acquire(&owner.company, shared.wait_timeout).await {
            Ok(_permit) => {
                let blocked = shared.run_batch(batch, shared.lock_timeout).await;
                // Locks that other processes hold for a moment were left out too.
                let fault = PostgresError::from_kind(PostgresErrorKind::Locked);
                let timeout = MAX_LOCK_WAIT.min(shared.lock_timeout);
                shared.run_each(blocked, &fault, timeout, shared.lock_timeout).await;
            }
            Err(fault) => respond_with_fault(batch, &fault),
        }
    }
}

/// Runs transactions of an owner until its queue is empty.
async fn run_transactions(shared: Arc<Shared>, owner: QueueOwner) {
    loop {
        let batch = shared.next_batch(&owner);
        if batch.is_empty() {
            return;
        }
        shared.run(&owner, batch).await;
    }
}

impl CompanyQueue {
    fn is_idle(&self) -> bool {
        self.transactions == 0 && self.queued.is_empty() && self.blocked.is_empty() && !self.is_waiting
    }
}

/// Takes commits for a transaction from the front of a queue.
fn next_batch(queue: &mut VecDeque<QueuedCommit>) -> Vec<QueuedCommit> {
    let (mut batch, mut writes, mut bytes) = (Vec::new(), 0, 0);
    while let Some(next) = queue.front() {
        if next.answer.is_closed() {
            queue.pop_front();
            continue;
        }
        writes += next.writes.len();
        bytes += next.writes.iter().map(value_bytes).sum::<usize>();
        let is_full =
            batch.len() >= MAX_BATCH_COMMITS || writes > MAX_BATCH_WRITES || bytes > MAX_BATCH_BYTES;
        if is_full && !batch.is_empty() {
            break;
        }
        batch.extend(queue.pop_front());
    }
    batch
}

fn value_bytes(write: &Write) -> usize {
    match write {
        Write::Put { value, .. } => value.get().len(),
        Write::Delete { .. } | Write::Check { .. } | Write::Increment { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use agent_platform::records::{Collection, Key, Precondition};
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use serde_json::value::RawValue;

    use super::*;
    use crate::postgres::PostgresOptions;
    use crate::postgres::records::ChangeTracker;
    use crate::postgres::session::SessionPool;

    /// Returns the owner of a company's commits.
    fn own(company: &str) -> QueueOwner {
        QueueOwner { company: company.to_owned(), is_of_platform: false }
    }

    fn put(id: &str) -> Vec<Write> {
        let key = Key::new("acme", "things", id).expect("a key");
        vec![Write::Put { key, value: RawValue::NULL.to_owned().into(), precondition: Precondition::Any }]
    }

    fn queued(id: &str) -> (QueuedCommit, oneshot::Receiver<Result<WrittenVersions, StoreError>>) {
        let (answer, receiver) = oneshot::channel();
        (QueuedCommit { number: 0, since: Instant::now(), writes: put(id), answer }, receiver)
    }

    /// Creates a queue over a server that never answers.
    fn queue(server: &TcpListener) -> CommitQueue {
        let url = format!("postgres://u@{}/d", server.local_addr().expect("an address"));
        let options =
            PostgresOptions { connect_timeout: Duration::from_secs(600), ..PostgresOptions::default() };
        let committer = Committer {
            sessions: SessionPool::connect("app", &url, &options).expect("a pool"),
            tracker: Arc::new(ChangeTracker::new()),
            origin: String::new(),
            counts: Arc::default(),
        };
        let timeouts = (options.wait_timeout, options.lock_timeout);
        let permits = (Arc::new(FairQueue::new(8)), Arc::new(FairQueue::with_share(4, 1)));
        CommitQueue::new(committer, permits, timeouts)
    }

    /// Begins a commit that has a transaction for itself.
    async fn begin<'q>(
        queue: &'q CommitQueue,
        id: &str,
    ) -> BoxFuture<'q, Result<WrittenVersions, StoreError>> {
        let mut begun = queue.commit(put(id)).boxed();
        assert!((&mut begun).now_or_never().is_none());
        while !queue.shared.lock()[&own("acme")].queued.is_empty() {
            tokio::task::yield_now().await;
        }
        begun
    }

    fn kind(outcome: Result<WrittenVersions, StoreError>) -> Option<PostgresErrorKind> {
        match outcome {
            Err(StoreError::Unavailable(source)) => {
                source.downcast_ref::<PostgresError>().map(PostgresError::kind)
            }
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_waits_for_those_before_it_for_a_limited_time() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let mut begun = begin(&queue, "a").await;
        assert_eq!(kind(queue.commit(put("b")).await), Some(PostgresErrorKind::Busy));
        assert!(queue.shared.lock()[&own("acme")].queued.is_empty(), "it is never applied");
        assert!((&mut begun).now_or_never().is_none(), "a transaction that has begun has its own timeouts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_transaction_begins_for_many_commits() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let _begun = begin(&queue, "a").await;
        let mut waiting = Vec::new();
        let mut transactions = Vec::new();
        for n in 0..MIN_COMMITS_BESIDE_TRANSACTION {
            let mut commit = Box::pin(queue.commit(put(&n.to_string())));
            assert!((&mut commit).now_or_never().is_none());
            waiting.push(commit);
            transactions.push(queue.shared.lock()[&own("acme")].transactions);
        }
        assert_eq!(transactions.pop(), Some(MAX_TRANSACTIONS_ALONE));
        assert!(transactions.iter().all(|count| *count == 1), "few commits share the next one");
        assert_eq!(max_transactions(2, MAX_QUEUED_PER_COMPANY), 1, "beside another company");
    }

    #[tokio::test(start_paused = true)]
    async fn meters_wait_neither_for_other_companies_nor_for_the_companys_own_records() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let meter_of = |company: &str| QueueOwner { company: company.to_owned(), is_of_platform: true };
        let count = |company: &str| {
            let meters = Collection::of_platform("budgetMeters").and_then(|meters| meters.within(company));
            let key = meters.and_then(|meters| meters.key("runs")).expect("a key");
            vec![Write::Put { key, value: RawValue::NULL.to_owned().into(), precondition: Precondition::Any }]
        };
        let commit = |writes: Vec<Write>| {
            let mut commit = queue.commit(writes).boxed();
            assert!((&mut commit).now_or_never().is_none());
            commit
        };
        let has_begun = async |owner: QueueOwner| {
            while !queue.shared.lock()[&owner].queued.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let _begun = begin(&queue, "a").await;
        let _own = commit(put("b"));
        let _count = commit(count("acme"));
        has_begun(meter_of("acme")).await;
        let _waiting = [commit(count("acme")), commit(count("acme"))];
        let _other = commit(count("small"));
        has_begun(meter_of("small")).await;
        let queued = |owner: QueueOwner| queue.shared.lock()[&owner].queued.len();
        assert_eq!((queued(own("acme")), queued(meter_of("acme"))), (1, 2), "each waits for its own");
    }

    #[tokio::test(start_paused = true)]
    async fn commits_of_a_failed_transaction_are_tried_again_for_a_limited_time() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let (batch, receivers): (Vec<_>, Vec<_>) = ["a", "b", "c"].map(queued).into_iter().unzip();
        let fault = PostgresError::from_kind(PostgresErrorKind::Full);
        queue.shared.run_each(batch, &fault, QUEUE_TIMEOUT, QUEUE_TIMEOUT).await;
        let kinds = receivers.into_iter().map(|mut receiver| kind(receiver.try_recv().expect("an answer")));
        let [full, unreachable] = [PostgresErrorKind::Full, PostgresErrorKind::Unreachable].map(Some);
        assert_eq!(kinds.collect::<Vec<_>>(), [unreachable, full, full]);
    }

    #[tokio::test(start_paused = true)]
    async fn commits_that_wait_for_locks_share_transactions_for_a_limited_time() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let shared = &queue.shared;
        let (batch, mut receivers): (Vec<_>, Vec<_>) = ["a", "b", "c"].map(queued).into_iter().unzip();
        assert!(shared.add_blocked(&own("acme"), batch), "the first ones start the wait");
        assert_eq!(shared.max_lock_wait(&own("acme")), MAX_LOCK_WAIT_BESIDE_HELD);
        let (later, mut later_receiver) = queued("d");
        assert!(!shared.add_blocked(&own("acme"), vec![later]), "those that wait do so together");
        drop(receivers.remove(0));
        let ids = |commits: &[QueuedCommit]| -> Vec<String> {
            commits.iter().map(|commit| commit.writes[0].key().id().to_owned()).collect()
        };
        let batch = shared.next_blocked(&own("acme"));
        assert_eq!(ids(&batch), ["b", "c", "d"], "the caller of the first one has gone");
        assert!(shared.next_blocked(&own("acme")).is_empty());
        assert!(shared.lock().is_empty(), "idle companies are forgotten");
        assert_eq!(shared.max_lock_wait(&own("acme")), MAX_LOCK_WAIT);
        tokio::time::advance(QUEUE_TIMEOUT).await;
        assert!(!shared.add_blocked(&own("acme"), batch), "none waits any longer");
        assert_eq!(kind(later_receiver.try_recv().expect("an answer")), Some(PostgresErrorKind::Locked));
        assert!(shared.lock().is_empty());
    }
}
