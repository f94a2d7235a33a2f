//! Queue of commits: waiting commits of one company share a transaction. Commits to the platform's records about a company,
//! such as its meters, run in separate transactions. These do not wait for the transactions of other companies, and not for the
//! company's large ones.
//!
//! A transaction waits for locks of other transactions for a short time, and then continues without the commits that need
//! them. These commits share separate transactions, which wait for the locks.
//!
//! While all connections are taken, a small transaction that gets one also runs the commits of other companies that wait, if they
//! are few. Such a shared transaction waits for no lock: a commit that needs a held lock, and all commits after an error, run in
//! transactions of their own companies. So no company's commit delays another company's, or makes it fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_platform::records::{StoreError, Write};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::batch::WrittenVersions;
use super::commit::{CommitOutcome, Committer};
use super::locked_keys::LockPolicy;
use crate::postgres::error::{PostgresError, PostgresErrorKind};
use crate::postgres::fair_queue::{FairQueue, Permit};
use crate::postgres::lock_wait::{MAX_CONTENDED_LOCK_WAIT, MAX_LOCK_WAIT};

mod queues;

use queues::{QueueOwner, QueuedCommit, Queues, TransactionBatch};

/// Maximum time for which a commit waits for earlier transactions, and for which the commits of a failed transaction are retried
/// one by one: some may wait for locks until they fail.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(15);

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
    queues: Mutex<Queues>,
    /// Number of the next commit.
    next_number: AtomicU64,
}

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
        let (outcome_sender, mut receiver) = oneshot::channel();
        let number = self.shared.next_number.fetch_add(1, Ordering::Relaxed);
        let queued = QueuedCommit { number, since: Instant::now(), writes, outcome_sender };
        let must_start = self.shared.lock().push(&owner, queued).ok_or_else(busy)?;
        if must_start {
            self.shared.start_transactions(owner.clone());
        }
        let received = match timeout(QUEUE_TIMEOUT, &mut receiver).await {
            Ok(received) => received,
            Err(_) if self.shared.lock().remove(&owner, number) => return Err(busy()),
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

impl Shared {
    /// Locks the queues. No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_transactions(self: &Arc<Self>, owner: QueueOwner) {
        self.runtime.spawn(run_transactions(self.clone(), owner));
    }

    fn start_blocked(self: &Arc<Self>, owner: QueueOwner) {
        self.runtime.spawn(run_blocked(self.clone(), owner));
    }

    /// Returns the maximum time for which a transaction of the owner's commits waits for a lock.
    fn max_lock_wait(&self, owner: &QueueOwner) -> Duration {
        let limit = if self.lock().is_waiting(owner) { MAX_CONTENDED_LOCK_WAIT } else { MAX_LOCK_WAIT };
        limit.min(self.lock_timeout)
    }

    /// Runs a transaction, which holds a permit. The commits whose locks are held wait for them apart.
    async fn run(self: &Arc<Self>, owner: &QueueOwner, batch: TransactionBatch, permit: Permit) {
        let own = match batch.others.is_empty() {
            true => batch.own,
            false => self.run_shared(batch).await,
        };
        if own.is_empty() {
            return;
        }
        let blocked = self.run_batch(own, self.max_lock_wait(owner)).await;
        drop(permit);
        if self.add_blocked(owner, blocked) {
            self.start_blocked(owner.clone());
        }
    }

    /// Runs a transaction of several owners' commits, which waits for no lock, so that none delays another. Commits that need a
    /// held lock, and all commits after an error that another owner may have caused, run in transactions of their own owners.
    /// Returns these commits of the transaction's owner.
    async fn run_shared(self: &Arc<Self>, batch: TransactionBatch) -> Vec<QueuedCommit> {
        let (owners, shares): (Vec<_>, Vec<_>) = batch.others.into_iter().unzip();
        let counts: Vec<usize> =
            std::iter::once(batch.own.len()).chain(shares.iter().map(Vec::len)).collect();
        let commits: Vec<_> = batch.own.into_iter().chain(shares.into_iter().flatten()).collect();
        let timeout = MAX_CONTENDED_LOCK_WAIT.min(self.lock_timeout);
        let outcome = self.commit(&commits, LockPolicy { timeout, skips_held: true }).await;
        let mut commits = commits.into_iter();
        let mut parts = counts.into_iter().map(|count| commits.by_ref().take(count).collect::<Vec<_>>());
        let mut left_out: Vec<Vec<QueuedCommit>> = match outcome {
            Ok(outcomes) => {
                let mut outcomes = outcomes.into_iter();
                let respond_to_part = |part: Vec<QueuedCommit>| {
                    let outcomes = outcomes.by_ref().take(part.len()).collect();
                    respond(part, outcomes)
                };
                parts.map(respond_to_part).collect()
            }
            Err(error) if error.has_no_effect() => parts.collect(),
            Err(error) => {
                parts.by_ref().for_each(|part| respond_with_error(part, &error));
                owners.iter().map(|_| Vec::new()).chain([Vec::new()]).collect()
            }
        };
        let own = left_out.remove(0);
        for (owner, left_out) in owners.iter().zip(left_out) {
            self.end_share(owner, left_out);
        }
        own
    }

    /// Ends the part of an owner in the transaction of another.
    fn end_share(self: &Arc<Self>, owner: &QueueOwner, left_out: Vec<QueuedCommit>) {
        let left_out = without_expired(left_out);
        let must_start = self.lock().end_share(owner, left_out);
        if must_start {
            self.start_transactions(owner.clone());
        }
    }

    /// Commits what needs no lock that is held for longer than `timeout`, and returns the rest.
    async fn run_batch(&self, batch: Vec<QueuedCommit>, timeout: Duration) -> Vec<QueuedCommit> {
        let is_locked = |outcome: &Result<Vec<CommitOutcome>, PostgresError>| {
            outcome.as_ref().is_err_and(|error| error.kind() == PostgresErrorKind::Locked)
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
            // The error may be of one of them only.
            Err(error) if batch.len() > 1 && error.has_no_effect() => {
                self.run_each(batch, &error, self.lock_timeout, QUEUE_TIMEOUT).await;
            }
            Err(error) => respond_with_error(batch, &error),
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

    /// Runs the commits of a transaction that had no effect one by one; each may wait for a lock for `timeout`. Those
    /// that would begin after `limit` get the error of the transaction.
    async fn run_each(
        &self,
        batch: Vec<QueuedCommit>,
        error: &PostgresError,
        timeout: Duration,
        limit: Duration,
    ) {
        let policy = LockPolicy { timeout, skips_held: false };
        let deadline = Instant::now() + limit;
        for queued in batch {
            if Instant::now() >= deadline {
                respond_with_error([queued], error);
                continue;
            }
            let batch = vec![queued];
            match self.commit(&batch, policy).await {
                // It is not left out.
                Ok(outcomes) => drop(respond(batch, outcomes)),
                Err(error) => respond_with_error(batch, &error),
            }
        }
    }

    /// Adds commits that wait for locks. Returns true if the caller must start [`run_blocked`].
    fn add_blocked(&self, owner: &QueueOwner, blocked: Vec<QueuedCommit>) -> bool {
        let blocked = without_expired(blocked);
        !blocked.is_empty() && self.lock().add_blocked(owner, blocked)
    }
}

/// Returns the commits that have not waited for [`QUEUE_TIMEOUT`] yet. The others fail, since their callers no longer remove them
/// from the queue.
fn without_expired(commits: Vec<QueuedCommit>) -> Vec<QueuedCommit> {
    let (expired, rest): (Vec<_>, Vec<_>) =
        commits.into_iter().partition(|queued| queued.since.elapsed() >= QUEUE_TIMEOUT);
    respond_with_error(expired, &PostgresError::from_kind(PostgresErrorKind::Locked));
    rest
}

/// Sends the outcomes of a transaction's commits to their callers, and returns the commits that it has left out.
fn respond(batch: Vec<QueuedCommit>, outcomes: Vec<CommitOutcome>) -> Vec<QueuedCommit> {
    let mut blocked = Vec::new();
    for (queued, outcome) in batch.into_iter().zip(outcomes) {
        match outcome {
            CommitOutcome::Decided(outcome) => {
                // Fails only if the caller was cancelled.
                let _ = queued.outcome_sender.send(outcome);
            }
            CommitOutcome::Locked => blocked.push(queued),
        }
    }
    blocked
}

fn respond_with_error(batch: impl IntoIterator<Item = QueuedCommit>, error: &PostgresError) {
    for queued in batch {
        let _ = queued.outcome_sender.send(Err(StoreError::unavailable(error.clone())));
    }
}

/// Runs transactions that wait for locks, until no commit of the owner needs them. Writes that wait for too long fail.
async fn run_blocked(shared: Arc<Shared>, owner: QueueOwner) {
    loop {
        let batch = shared.lock().next_blocked(&owner);
        if batch.is_empty() {
            return;
        }
        let Ok(_blocked) = shared.blocked.acquire(&owner.company, shared.wait_timeout).await else {
            respond_with_error(batch, &PostgresError::from_kind(PostgresErrorKind::Locked));
            continue;
        };
        match shared.permits.acquire(&owner.company, shared.wait_timeout).await {
            Ok(_permit) => {
                let blocked = shared.run_batch(batch, shared.lock_timeout).await;
                // Locks that other processes hold for a moment were left out too.
                let error = PostgresError::from_kind(PostgresErrorKind::Locked);
                let timeout = MAX_LOCK_WAIT.min(shared.lock_timeout);
                shared.run_each(blocked, &error, timeout, shared.lock_timeout).await;
            }
            Err(error) => respond_with_error(batch, &error),
        }
    }
}

/// Runs transactions of an owner until its queue is empty.
async fn run_transactions(shared: Arc<Shared>, owner: QueueOwner) {
    loop {
        let is_needed = shared.lock().begin_wait(&owner);
        if !is_needed {
            return;
        }
        let began = Instant::now();
        match shared.permits.acquire(&owner.company, shared.wait_timeout).await {
            Ok(permit) => {
                let batch = shared.lock().next_batch(&owner);
                shared.run(&owner, batch, permit).await;
            }
            Err(error) => {
                let expired = shared.lock().take_expired(&owner, began);
                respond_with_error(expired, &error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use agent_platform::records::{Collection, Key, Precondition};
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use serde_json::value::RawValue;

    use super::queues::{
        MAX_QUEUED_PER_COMPANY, MAX_TRANSACTIONS_ALONE, MIN_COMMITS_FOR_SECOND_TRANSACTION, max_transactions,
    };
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
        let (outcome_sender, receiver) = oneshot::channel();
        (QueuedCommit { number: 0, since: Instant::now(), writes: put(id), outcome_sender }, receiver)
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
        while !queue.shared.lock().owners[&own("acme")].queued.is_empty() {
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
        assert!(
            queue.shared.lock().owners[&own("acme")].queued.is_empty(),
            "a commit that timed out is never applied"
        );
        assert!((&mut begun).now_or_never().is_none(), "a transaction that has begun has its own timeouts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_transaction_begins_for_many_commits() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let _begun = begin(&queue, "a").await;
        let mut waiting = Vec::new();
        let mut transactions = Vec::new();
        for n in 0..MIN_COMMITS_FOR_SECOND_TRANSACTION {
            let mut commit = Box::pin(queue.commit(put(&n.to_string())));
            assert!((&mut commit).now_or_never().is_none());
            waiting.push(commit);
            transactions.push(queue.shared.lock().owners[&own("acme")].transactions);
        }
        assert_eq!(transactions.pop(), Some(MAX_TRANSACTIONS_ALONE));
        assert!(transactions.iter().all(|count| *count == 1), "few commits share the next transaction");
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
            while !queue.shared.lock().owners[&owner].queued.is_empty() {
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
        let queued = |owner: QueueOwner| queue.shared.lock().owners[&owner].queued.len();
        assert_eq!((queued(own("acme")), queued(meter_of("acme"))), (1, 2), "each waits for its own");
    }

    #[tokio::test(start_paused = true)]
    async fn commits_of_a_failed_transaction_are_tried_again_for_a_limited_time() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let (batch, receivers): (Vec<_>, Vec<_>) = ["a", "b", "c"].map(queued).into_iter().unzip();
        let error = PostgresError::from_kind(PostgresErrorKind::Full);
        queue.shared.run_each(batch, &error, QUEUE_TIMEOUT, QUEUE_TIMEOUT).await;
        let kinds = receivers.into_iter().map(|mut receiver| kind(receiver.try_recv().expect("an outcome")));
        let [full, unreachable] = [PostgresErrorKind::Full, PostgresErrorKind::Unreachable].map(Some);
        assert_eq!(kinds.collect::<Vec<_>>(), [unreachable, full, full]);
    }

    #[tokio::test(start_paused = true)]
    async fn commits_that_wait_for_locks_share_transactions_for_a_limited_time() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let shared = &queue.shared;
        let (batch, mut receivers): (Vec<_>, Vec<_>) = ["a", "b", "c"].map(queued).into_iter().unzip();
        assert!(shared.add_blocked(&own("acme"), batch), "the first commits start the wait");
        assert_eq!(shared.max_lock_wait(&own("acme")), MAX_CONTENDED_LOCK_WAIT);
        let (later, mut later_receiver) = queued("d");
        assert!(!shared.add_blocked(&own("acme"), vec![later]), "commits of a blocked company wait together");
        drop(receivers.remove(0));
        let ids = |commits: &[QueuedCommit]| -> Vec<String> {
            commits.iter().map(|commit| commit.writes[0].key().id().to_owned()).collect()
        };
        let batch = shared.lock().next_blocked(&own("acme"));
        assert_eq!(ids(&batch), ["b", "c", "d"], "the caller of the first one has gone");
        assert!(shared.lock().next_blocked(&own("acme")).is_empty());
        assert!(shared.lock().owners.is_empty(), "idle companies are forgotten");
        assert_eq!(shared.max_lock_wait(&own("acme")), MAX_LOCK_WAIT);
        tokio::time::advance(QUEUE_TIMEOUT).await;
        assert!(!shared.add_blocked(&own("acme"), batch), "no commit waits any longer");
        assert_eq!(kind(later_receiver.try_recv().expect("an outcome")), Some(PostgresErrorKind::Locked));
        assert!(shared.lock().owners.is_empty());
    }
}
