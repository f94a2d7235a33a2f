//! Queue of commits: those of one company that wait share a transaction.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_platform::records::{StoreError, Write};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::batch::WrittenVersions;
use super::commit::Committer;
use crate::postgres::fair_queue::FairQueue;
use crate::postgres::fault::{PostgresError, PostgresErrorKind};

/// Maximum number of transactions of one company at a time while no other company commits.
const MAX_TRANSACTIONS_ALONE: usize = 2;
/// Maximum number of transactions of one company at a time while others commit, so that a company with many commits takes
/// no more of the server's time than others.
const MAX_TRANSACTIONS_BESIDE_OTHERS: usize = 1;
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
    wait_timeout: Duration,
    /// Runtime of the transactions. A commit is not cut short by the end of its caller.
    runtime: Handle,
    companies: Mutex<HashMap<String, CompanyQueue>>,
    /// Number of the next commit.
    next_number: AtomicU64,
}

#[derive(Default)]
struct CompanyQueue {
    transactions: usize,
    queued: VecDeque<QueuedCommit>,
}

struct QueuedCommit {
    number: u64,
    writes: Vec<Write>,
    answer: Answer,
}

type Answer = oneshot::Sender<Result<WrittenVersions, StoreError>>;

impl CommitQueue {
    /// Creates a queue whose transactions run on the current runtime.
    pub(in crate::postgres) fn new(
        committer: Committer,
        permits: Arc<FairQueue>,
        wait_timeout: Duration,
    ) -> Self {
        let (runtime, companies, next_number) = (Handle::current(), Mutex::default(), AtomicU64::default());
        Self {
            shared: Arc::new(Shared { committer, permits, wait_timeout, runtime, companies, next_number }),
        }
    }

    /// Commits writes, atomically. If the caller is cancelled, they are applied as a whole or not at all.
    pub(in crate::postgres) async fn commit(
        &self,
        writes: Vec<Write>,
    ) -> Result<WrittenVersions, StoreError> {
        let company = owner(&writes);
        let (answer, mut receiver) = oneshot::channel();
        let number = self.shared.next_number.fetch_add(1, Ordering::Relaxed);
        let must_start = {
            let mut companies = self.shared.lock();
            let count = companies.len() + usize::from(!companies.contains_key(&company));
            let queue = companies.entry(company.clone()).or_default();
            if queue.queued.len() >= MAX_QUEUED_PER_COMPANY {
                return Err(busy());
            }
            queue.queued.push_back(QueuedCommit { number, writes, answer });
            let must_start = queue.transactions < max_transactions(count);
            queue.transactions += usize::from(must_start);
            must_start
        };
        if must_start {
            self.shared.runtime.spawn(run_transactions(self.shared.clone(), company.clone()));
        }
        let received = match timeout(QUEUE_TIMEOUT, &mut receiver).await {
            Ok(received) => received,
            Err(_) if self.shared.remove(&company, number) => return Err(busy()),
            // Its own transaction has timeouts.
            Err(_) => receiver.await,
        };
        let lost = |_| StoreError::unavailable(PostgresError::from_kind(PostgresErrorKind::Unreachable));
        received.map_err(lost)?
    }
}

fn busy() -> StoreError {
    StoreError::unavailable(PostgresError::from_kind(PostgresErrorKind::Busy))
}

/// Returns the maximum number of transactions of one company while so many commit.
const fn max_transactions(companies: usize) -> usize {
    if companies > 1 { MAX_TRANSACTIONS_BESIDE_OTHERS } else { MAX_TRANSACTIONS_ALONE }
}

/// Returns the company that a commit is counted for; the platform's own if it changes no company's records.
fn owner(writes: &[Write]) -> String {
    let companies = writes.iter().map(|write| write.key().company());
    companies.max_by_key(|company| !company.is_empty()).unwrap_or_default().to_owned()
}

impl Shared {
    /// Locks the queues. No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, CompanyQueue>> {
        self.companies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the commits of the company's next transaction. If there are none, the caller must start no further one.
    fn next_batch(&self, company: &str) -> Vec<QueuedCommit> {
        let mut companies = self.lock();
        let count = companies.len();
        let Some(queue) = companies.get_mut(company) else { return Vec::new() };
        let has_room = queue.transactions <= max_transactions(count);
        let batch = if has_room { queue.next_batch() } else { Vec::new() };
        if batch.is_empty() {
            queue.transactions -= 1;
            if queue.transactions == 0 {
                companies.remove(company);
            }
        }
        batch
    }

    /// Removes a commit from its company's queue. Returns false if a transaction has taken it.
    fn remove(&self, company: &str, number: u64) -> bool {
        let mut companies = self.lock();
        let Some(queue) = companies.get_mut(company) else { return false };
        let position = queue.queued.iter().position(|queued| queued.number == number);
        position.is_some_and(|position| queue.queued.remove(position).is_some())
    }

    async fn run(&self, company: &str, batch: Vec<QueuedCommit>) {
        let permit = match self.permits.acquire(company, self.wait_timeout).await {
            Ok(permit) => permit,
            Err(fault) => return respond_with_fault(batch.into_iter().map(|queued| queued.answer), &fault),
        };
        let (commits, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|queued| (queued.writes, queued.answer)).unzip();
        match self.committer.commit(&commits).await {
            Ok(outcomes) => {
                drop(permit);
                for (answer, outcome) in answers.into_iter().zip(outcomes) {
                    // Fails only if the caller was cancelled.
                    let _ = answer.send(outcome);
                }
            }
            // The fault may be of one of them only.
            Err(fault) if commits.len() > 1 && fault.has_no_effect() => {
                self.run_each(commits, answers, &fault).await;
            }
            Err(fault) => respond_with_fault(answers, &fault),
        }
    }

    /// Runs the commits of a transaction that had no effect one by one. Those that would begin after [`QUEUE_TIMEOUT`] get
    /// the fault of the transaction, since each of them may wait for a lock as it did.
    async fn run_each(&self, commits: Vec<Vec<Write>>, answers: Vec<Answer>, fault: &PostgresError) {
        let deadline = Instant::now() + QUEUE_TIMEOUT;
        for (writes, answer) in commits.into_iter().zip(answers) {
            let outcome = match Instant::now() < deadline {
                true => self.committer.commit(std::slice::from_ref(&writes)).await,
                false => Err(fault.clone()),
            };
            let outcome = outcome.map_err(StoreError::unavailable);
            let _ = answer.send(outcome.and_then(|mut outcomes| outcomes.remove(0)));
        }
    }
}

fn respond_with_fault(answers: impl IntoIterator<Item = Answer>, fault: &PostgresError) {
    for answer in answers {
        let _ = answer.send(Err(StoreError::unavailable(fault.clone())));
    }
}

/// Runs transactions of a company until its queue is empty.
async fn run_transactions(shared: Arc<Shared>, company: String) {
    loop {
        let batch = shared.next_batch(&company);
        if batch.is_empty() {
            return;
        }
        shared.run(&company, batch).await;
    }
}

impl CompanyQueue {
    fn next_batch(&mut self) -> Vec<QueuedCommit> {
        let (mut batch, mut writes, mut bytes) = (Vec::new(), 0, 0);
        while let Some(next) = self.queued.front() {
            if next.answer.is_closed() {
                self.queued.pop_front();
                continue;
            }
            writes += next.writes.len();
            bytes += next.writes.iter().map(value_bytes).sum::<usize>();
            let is_full =
                batch.len() >= MAX_BATCH_COMMITS || writes > MAX_BATCH_WRITES || bytes > MAX_BATCH_BYTES;
            if is_full && !batch.is_empty() {
                break;
            }
            batch.extend(self.queued.pop_front());
        }
        batch
    }
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

    use agent_platform::records::{Key, Precondition};
    use futures_util::FutureExt;
    use serde_json::value::RawValue;

    use super::*;
    use crate::postgres::PostgresOptions;
    use crate::postgres::records::ChangeTracker;
    use crate::postgres::session::SessionPool;

    fn put(id: &str) -> Vec<Write> {
        let key = Key::new("acme", "things", id).expect("a key");
        vec![Write::Put { key, value: RawValue::NULL.to_owned().into(), precondition: Precondition::Any }]
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
        CommitQueue::new(committer, Arc::new(FairQueue::new(8)), options.wait_timeout)
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
        let mut begun = ["a", "b"].map(|id| Box::pin(queue.commit(put(id))));
        for commit in &mut begun {
            assert!(commit.now_or_never().is_none());
            while !queue.shared.lock()["acme"].queued.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(kind(queue.commit(put("c")).await), Some(PostgresErrorKind::Busy));
        assert!(queue.shared.lock()["acme"].queued.is_empty(), "it is never applied");
        for commit in &mut begun {
            assert!(commit.now_or_never().is_none(), "a transaction that has begun has its own timeouts");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn commits_of_a_failed_transaction_are_tried_again_for_a_limited_time() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = queue(&server);
        let (answers, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        let locked = PostgresError::from_kind(PostgresErrorKind::Locked);
        queue.shared.run_each(["a", "b", "c"].map(put).into(), answers, &locked).await;
        let kinds = receivers.into_iter().map(|mut receiver| kind(receiver.try_recv().expect("an answer")));
        let [locked, unreachable] = [PostgresErrorKind::Locked, PostgresErrorKind::Unreachable].map(Some);
        assert_eq!(kinds.collect::<Vec<_>>(), [unreachable, locked, locked]);
    }
}
