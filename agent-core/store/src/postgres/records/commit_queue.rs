//! Queue of commits: those of one company that wait share a transaction.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_platform::records::{StoreError, Write};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

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
}

#[derive(Default)]
struct CompanyQueue {
    transactions: usize,
    queued: VecDeque<QueuedCommit>,
}

struct QueuedCommit {
    writes: Vec<Write>,
    answer: oneshot::Sender<Result<WrittenVersions, StoreError>>,
}

impl CommitQueue {
    /// Creates a queue whose transactions run on the current runtime.
    pub(in crate::postgres) fn new(
        committer: Committer,
        permits: Arc<FairQueue>,
        wait_timeout: Duration,
    ) -> Self {
        let (runtime, companies) = (Handle::current(), Mutex::default());
        Self { shared: Arc::new(Shared { committer, permits, wait_timeout, runtime, companies }) }
    }

    /// Commits writes, atomically. If the caller is cancelled, they are applied as a whole or not at all.
    pub(in crate::postgres) async fn commit(
        &self,
        writes: Vec<Write>,
    ) -> Result<WrittenVersions, StoreError> {
        let company = owner(&writes);
        let (answer, answered) = oneshot::channel();
        let must_start = {
            let mut companies = self.shared.lock();
            let count = companies.len() + usize::from(!companies.contains_key(&company));
            let queue = companies.entry(company.clone()).or_default();
            if queue.queued.len() >= MAX_QUEUED_PER_COMPANY {
                return Err(StoreError::unavailable(PostgresError::from_kind(PostgresErrorKind::Busy)));
            }
            queue.queued.push_back(QueuedCommit { writes, answer });
            let must_start = queue.transactions < max_transactions(count);
            queue.transactions += usize::from(must_start);
            must_start
        };
        if must_start {
            self.shared.runtime.spawn(run_transactions(self.shared.clone(), company));
        }
        let lost = |_| StoreError::unavailable(PostgresError::from_kind(PostgresErrorKind::Unreachable));
        answered.await.map_err(lost)?
    }
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

    async fn run(&self, company: &str, batch: Vec<QueuedCommit>) {
        let permit = match self.permits.acquire(company, self.wait_timeout).await {
            Ok(permit) => permit,
            Err(fault) => return respond_with_fault(batch, &fault),
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
                for (writes, answer) in commits.into_iter().zip(answers) {
                    let outcome = self.committer.commit(std::slice::from_ref(&writes)).await;
                    let outcome = outcome.map_err(StoreError::unavailable);
                    let _ = answer.send(outcome.and_then(|mut outcomes| outcomes.remove(0)));
                }
            }
            Err(fault) => {
                let queued = commits.into_iter().zip(answers);
                let batch = queued.map(|(writes, answer)| QueuedCommit { writes, answer }).collect();
                respond_with_fault(batch, &fault);
            }
        }
    }
}

fn respond_with_fault(batch: Vec<QueuedCommit>, fault: &PostgresError) {
    for QueuedCommit { answer, .. } in batch {
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
