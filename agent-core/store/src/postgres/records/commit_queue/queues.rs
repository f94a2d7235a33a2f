//! Commits that wait for transactions, by their owners.

use std::collections::{HashMap, VecDeque};

use agent_platform::records::{StoreError, Write};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::owner::owner_of_keys;
use crate::postgres::records::batch::WrittenVersions;

/// Maximum number of transactions of one company at a time while no other company commits and many commits wait.
pub(super) const MAX_TRANSACTIONS_ALONE: usize = 2;
/// Minimum number of waiting commits for which a company has more than one transaction at a time. Fewer cost the server less
/// if they share the next transaction than if they have one of their own at once.
pub(super) const MIN_COMMITS_FOR_SECOND_TRANSACTION: usize = 32;
/// Maximum number of commits of one company that wait.
pub(super) const MAX_QUEUED_PER_COMPANY: usize = 4096;
/// Maximum size of a transaction. A commit that exceeds it has a separate transaction.
const MAX_TRANSACTION: CommitSize = CommitSize { commits: 256, writes: 256, bytes: 1 << 20 };
/// Maximum size of one owner's commits in a transaction that several owners share, so that no owner delays the others.
const MAX_OWNER_SHARE: CommitSize = CommitSize { commits: 8, writes: 32, bytes: 16 << 10 };
/// Maximum size of a transaction that owners share. If its process is suspended, it holds the locks of all of them until the server
/// ends it.
const MAX_SHARED_TRANSACTION: CommitSize = CommitSize { commits: 32, writes: 96, bytes: 64 << 10 };

/// Owner of the commits that share transactions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct QueueOwner {
    /// The company that the commits are counted for; empty for the platform.
    pub(super) company: String,
    /// True if they change records of the platform alone.
    pub(super) is_of_platform: bool,
}

impl QueueOwner {
    pub(super) fn of(writes: &[Write]) -> Self {
        let is_of_platform = writes.iter().all(|write| write.key().company().is_empty());
        Self { company: owner_of_keys(writes.iter().map(Write::key)), is_of_platform }
    }
}

/// Commit that waits.
pub(super) struct QueuedCommit {
    pub(super) number: u64,
    pub(super) since: Instant,
    pub(super) writes: Vec<Write>,
    pub(super) outcome_sender: OutcomeSender,
}

/// Sender of the outcome of a queued commit.
pub(super) type OutcomeSender = oneshot::Sender<Result<WrittenVersions, StoreError>>;

/// Size of commits.
#[derive(Debug, Clone, Copy, Default)]
struct CommitSize {
    commits: usize,
    writes: usize,
    bytes: usize,
}

impl CommitSize {
    fn of<'c>(commits: impl IntoIterator<Item = &'c QueuedCommit>) -> Self {
        let sizes = commits.into_iter().map(|queued| Self {
            commits: 1,
            writes: queued.writes.len(),
            bytes: queued.writes.iter().map(value_bytes).sum(),
        });
        sizes.fold(Self::default(), Self::plus)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            commits: self.commits + other.commits,
            writes: self.writes + other.writes,
            bytes: self.bytes + other.bytes,
        }
    }

    fn fits(self, limit: Self) -> bool {
        self.commits <= limit.commits && self.writes <= limit.writes && self.bytes <= limit.bytes
    }
}

fn value_bytes(write: &Write) -> usize {
    match write {
        Write::Put { value, .. } => value.get().len(),
        Write::Delete { .. } | Write::Check { .. } | Write::Increment { .. } => 0,
    }
}

/// Commits of a transaction.
#[derive(Default)]
pub(super) struct TransactionBatch {
    /// Commits of the owner whose transaction it is.
    pub(super) own: Vec<QueuedCommit>,
    /// Commits of other owners that share the transaction.
    pub(super) others: Vec<(QueueOwner, Vec<QueuedCommit>)>,
}

/// Queue of an owner's commits.
#[derive(Default)]
pub(super) struct CompanyQueue {
    pub(super) transactions: usize,
    pub(super) queued: VecDeque<QueuedCommit>,
    /// Commits that were left out of a transaction, since they need locks that others hold.
    pub(super) blocked: VecDeque<QueuedCommit>,
    /// True while some of them wait for their locks.
    is_waiting: bool,
    /// True while a transaction of another owner has commits of this one.
    is_in_shared: bool,
    /// True if the next transaction must not be shared: a shared transaction has left out commits that need locks of other
    /// transactions.
    must_be_alone: bool,
}

impl CompanyQueue {
    fn is_idle(&self) -> bool {
        let is_unused = self.transactions == 0 && !self.is_in_shared && !self.is_waiting;
        is_unused && self.queued.is_empty() && self.blocked.is_empty()
    }

    /// Returns the size of the waiting commits, if they are few and may share a transaction of another owner.
    fn share(&self) -> Option<CommitSize> {
        let is_held = self.is_waiting || self.must_be_alone || !self.blocked.is_empty();
        if self.is_in_shared || is_held || self.queued.len() > MAX_OWNER_SHARE.commits {
            return None;
        }
        let size = CommitSize::of(&self.queued);
        (size.commits > 0 && size.fits(MAX_OWNER_SHARE)).then_some(size)
    }
}

/// Queues of all owners.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) owners: HashMap<QueueOwner, CompanyQueue>,
    /// Owners whose transactions wait for a connection, in their order.
    waiting: VecDeque<QueueOwner>,
}

impl Queues {
    /// Adds a commit. Returns true if the caller must start a transaction; `None` if too many wait.
    pub(super) fn push(&mut self, owner: &QueueOwner, queued: QueuedCommit) -> Option<bool> {
        let count = self.owners.len() + usize::from(!self.owners.contains_key(owner));
        let queue = self.owners.entry(owner.clone()).or_default();
        if queue.queued.len() + queue.blocked.len() >= MAX_QUEUED_PER_COMPANY {
            return None;
        }
        queue.queued.push_back(queued);
        let has_room = queue.transactions < max_transactions(count, queue.queued.len());
        // At its end, the shared transaction starts one of the owner's own.
        let must_start = has_room && !queue.is_in_shared;
        queue.transactions += usize::from(must_start);
        Some(must_start)
    }

    /// Records that a transaction of an owner waits for a connection. Returns false if the owner needs no further transaction,
    /// which ends.
    pub(super) fn begin_wait(&mut self, owner: &QueueOwner) -> bool {
        let count = self.owners.len();
        let Some(queue) = self.owners.get_mut(owner) else { return false };
        let has_room = queue.transactions <= max_transactions(count, queue.queued.len());
        if has_room && !queue.is_in_shared && !queue.queued.is_empty() {
            self.waiting.push_back(owner.clone());
            return true;
        }
        queue.transactions -= 1;
        if queue.is_idle() {
            self.owners.remove(owner);
        }
        false
    }

    /// Takes the commits of an owner's transaction, which has got a connection. If it is small, it takes along the few commits of
    /// owners whose transactions still wait.
    pub(super) fn next_batch(&mut self, owner: &QueueOwner) -> TransactionBatch {
        self.end_wait(owner);
        let queue = self.owners.get_mut(owner).filter(|queue| !queue.is_in_shared);
        let Some(queue) = queue else { return TransactionBatch::default() };
        let own = next_batch(&mut queue.queued);
        let is_alone = std::mem::take(&mut queue.must_be_alone) || own.is_empty();
        let size = CommitSize::of(&own);
        let others =
            if is_alone || !size.fits(MAX_OWNER_SHARE) { Vec::new() } else { self.take_shares(size) };
        TransactionBatch { own, others }
    }

    /// Takes the commits of an owner's transaction that got no connection, if they have waited since `began` or longer. The
    /// others wait with the next transaction.
    pub(super) fn take_expired(&mut self, owner: &QueueOwner, began: Instant) -> Vec<QueuedCommit> {
        self.end_wait(owner);
        let queue = self.owners.get_mut(owner).filter(|queue| !queue.is_in_shared);
        let Some(queue) = queue else { return Vec::new() };
        let count = queue.queued.iter().take_while(|queued| queued.since <= began).count();
        queue.queued.drain(..count).collect()
    }

    /// Ends the wait of an owner's transaction for a connection.
    fn end_wait(&mut self, owner: &QueueOwner) {
        if let Some(position) = self.waiting.iter().position(|waiting| waiting == owner) {
            self.waiting.remove(position);
        }
    }

    /// Takes the commits of owners whose transactions wait, as far as they fit into a transaction that has `size` already.
    fn take_shares(&mut self, mut size: CommitSize) -> Vec<(QueueOwner, Vec<QueuedCommit>)> {
        let mut shares = Vec::new();
        while let Some(owner) = self.waiting.pop_front() {
            let Some(queue) = self.owners.get_mut(&owner) else { continue };
            // The others have transactions of their own alone.
            let Some(share) = queue.share() else { continue };
            size = size.plus(share);
            if !size.fits(MAX_SHARED_TRANSACTION) {
                self.waiting.push_front(owner);
                break;
            }
            queue.is_in_shared = true;
            let commits =
                queue.queued.drain(..).filter(|queued| !queued.outcome_sender.is_closed()).collect();
            shares.push((owner, commits));
        }
        shares
    }

    /// Ends the part of an owner in the transaction of another. Commits that were left out get a separate transaction.
    /// Returns true if the caller must start one.
    pub(super) fn end_share(&mut self, owner: &QueueOwner, left_out: Vec<QueuedCommit>) -> bool {
        let queue = self.owners.entry(owner.clone()).or_default();
        queue.is_in_shared = false;
        queue.must_be_alone |= !left_out.is_empty();
        left_out.into_iter().rev().for_each(|queued| queue.queued.push_front(queued));
        let must_start = queue.transactions == 0 && !queue.queued.is_empty();
        queue.transactions += usize::from(must_start);
        if queue.is_idle() {
            self.owners.remove(owner);
        }
        must_start
    }

    /// Returns true while commits of the owner wait for locks that are held.
    pub(super) fn is_waiting(&self, owner: &QueueOwner) -> bool {
        self.owners.get(owner).is_some_and(|queue| queue.is_waiting)
    }

    /// Adds commits that wait for locks. Returns true if the caller must start their transactions.
    pub(super) fn add_blocked(&mut self, owner: &QueueOwner, blocked: Vec<QueuedCommit>) -> bool {
        let queue = self.owners.entry(owner.clone()).or_default();
        queue.blocked.extend(blocked);
        !std::mem::replace(&mut queue.is_waiting, true)
    }

    /// Takes the commits that wait for their locks next. If there are none, the caller must end.
    pub(super) fn next_blocked(&mut self, owner: &QueueOwner) -> Vec<QueuedCommit> {
        let Some(queue) = self.owners.get_mut(owner) else { return Vec::new() };
        let batch = next_batch(&mut queue.blocked);
        queue.is_waiting = !batch.is_empty();
        if queue.is_idle() {
            self.owners.remove(owner);
        }
        batch
    }

    /// Removes a commit from its owner's queues. Returns false if a transaction has taken it.
    pub(super) fn remove(&mut self, owner: &QueueOwner, number: u64) -> bool {
        let Some(queue) = self.owners.get_mut(owner) else { return false };
        [&mut queue.queued, &mut queue.blocked].into_iter().any(|commits| {
            let position = commits.iter().position(|queued| queued.number == number);
            position.is_some_and(|position| commits.remove(position).is_some())
        })
    }
}

/// Returns the maximum number of concurrent transactions of a queue with `queued` waiting commits, while `queues` commit. It is
/// one while other companies commit, so that a company with many commits gets no more of the server's time than they do.
pub(super) const fn max_transactions(queues: usize, queued: usize) -> usize {
    if queues > 1 || queued < MIN_COMMITS_FOR_SECOND_TRANSACTION { 1 } else { MAX_TRANSACTIONS_ALONE }
}

/// Takes commits for a transaction from the front of a queue.
fn next_batch(queue: &mut VecDeque<QueuedCommit>) -> Vec<QueuedCommit> {
    let (mut batch, mut size) = (Vec::new(), CommitSize::default());
    while let Some(next) = queue.front() {
        if next.outcome_sender.is_closed() {
            queue.pop_front();
            continue;
        }
        size = size.plus(CommitSize::of([next]));
        if !batch.is_empty() && !size.fits(MAX_TRANSACTION) {
            break;
        }
        batch.extend(queue.pop_front());
    }
    batch
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_platform::records::{Key, Precondition};
    use serde_json::value::RawValue;

    use super::*;

    type Receiver = oneshot::Receiver<Result<WrittenVersions, StoreError>>;

    fn own(company: &str) -> QueueOwner {
        QueueOwner { company: company.to_owned(), is_of_platform: false }
    }

    fn commit(company: &str, id: &str, value: &str) -> (QueuedCommit, Receiver) {
        let (outcome_sender, receiver) = oneshot::channel();
        let key = Key::new(company, "things", id).expect("a key");
        let value = RawValue::from_string(value.to_owned()).expect("JSON").into();
        let writes = vec![Write::Put { key, value, precondition: Precondition::Any }];
        (QueuedCommit { number: 0, since: Instant::now(), writes, outcome_sender }, receiver)
    }

    /// Adds commits, whose transaction begins to wait for a connection. Returns the receivers of the answers.
    fn add(queues: &mut Queues, company: &str, ids: &[&str]) -> Vec<Receiver> {
        let add = |id: &&str| {
            let (queued, receiver) = commit(company, id, "1");
            if queues.push(&own(company), queued).expect("there is room") {
                assert!(queues.begin_wait(&own(company)));
            }
            receiver
        };
        ids.iter().map(add).collect()
    }

    fn ids(commits: &[QueuedCommit]) -> Vec<&str> {
        commits.iter().map(|queued| queued.writes[0].key().id()).collect()
    }

    fn shares(batch: &TransactionBatch) -> Vec<(&str, Vec<&str>)> {
        batch.others.iter().map(|(owner, commits)| (owner.company.as_str(), ids(commits))).collect()
    }

    #[tokio::test]
    async fn few_commits_of_owners_that_wait_share_a_transaction() {
        let mut queues = Queues::default();
        let _receivers = [
            add(&mut queues, "a", &["1"]),
            add(&mut queues, "b", &["2", "3"]),
            add(&mut queues, "many", &["1", "2", "3", "4", "5", "6", "7", "8", "9"]),
            add(&mut queues, "c", &["4"]),
        ];
        let (queued, _receiver) = commit("long", "1", &format!("\"{}\"", "x".repeat(MAX_OWNER_SHARE.bytes)));
        assert_eq!(queues.push(&own("long"), queued), Some(true));
        assert!(queues.begin_wait(&own("long")));
        let batch = queues.next_batch(&own("a"));
        assert_eq!(
            (ids(&batch.own), shares(&batch)),
            (vec!["1"], vec![("b", vec!["2", "3"]), ("c", vec!["4"])])
        );
        // A transaction with many or long commits takes no others along, and a commit is taken only once.
        let _receivers = add(&mut queues, "d", &["1"]);
        for (company, count) in [("many", 9), ("long", 1), ("b", 0)] {
            let batch = queues.next_batch(&own(company));
            assert_eq!((batch.own.len(), batch.others.len()), (count, 0), "{company}");
        }
        assert!(!queues.begin_wait(&own("b")), "its commits are in a transaction");
    }

    #[tokio::test(start_paused = true)]
    async fn commits_that_have_just_come_outlast_the_wait_of_a_transaction_for_a_connection() {
        let mut queues = Queues::default();
        let mut receivers = add(&mut queues, "a", &["1", "2"]);
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        receivers.extend(add(&mut queues, "a", &["3"]));
        assert_eq!(ids(&queues.take_expired(&own("a"), began)), ["1", "2"]);
        assert!(queues.begin_wait(&own("a")), "the transaction of the third one");
        assert_eq!(ids(&queues.next_batch(&own("a")).own), ["3"]);
        assert!(!queues.begin_wait(&own("a")));
        assert!(queues.owners.is_empty() && queues.waiting.is_empty());
    }

    #[tokio::test]
    async fn commits_left_out_of_a_shared_transaction_get_their_own() {
        let mut queues = Queues::default();
        let mut receivers = vec![add(&mut queues, "a", &["1"]), add(&mut queues, "b", &["1", "2"])];
        let mut batch = queues.next_batch(&own("a"));
        let (owner, mut commits) = batch.others.pop().expect("a share");
        // Commits that are added in the meantime wait for the end of the shared transaction, even if a connection is free.
        receivers.push(add(&mut queues, "b", &["3"]));
        assert!(queues.next_batch(&own("b")).own.is_empty());
        assert!(!queues.begin_wait(&own("b")));
        receivers.push(add(&mut queues, "b", &["4"]));
        assert!(queues.end_share(&owner, commits.split_off(1)), "no transaction of its own waits");
        assert!(queues.begin_wait(&owner));
        receivers.push(add(&mut queues, "c", &["1"]));
        let batch = queues.next_batch(&owner);
        assert_eq!(
            (ids(&batch.own), shares(&batch)),
            (vec!["2", "3", "4"], vec![]),
            "a transaction with long commits takes no other company's commits"
        );
        assert_eq!(ids(&queues.next_batch(&own("c")).own), ["1"]);
        for company in ["a", "b", "c"] {
            assert!(!queues.begin_wait(&own(company)));
        }
        assert!(queues.owners.is_empty() && queues.waiting.is_empty(), "idle owners are forgotten");
    }

    #[tokio::test]
    async fn a_shared_transaction_has_a_limit() {
        let mut queues = Queues::default();
        let companies: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let _receivers: Vec<_> =
            companies.iter().map(|company| add(&mut queues, company, &["1", "2"])).collect();
        let mut taken = Vec::new();
        for company in &companies {
            let batch = queues.next_batch(&own(company));
            let count =
                batch.own.len() + batch.others.iter().map(|(_, commits)| commits.len()).sum::<usize>();
            assert!(count <= MAX_SHARED_TRANSACTION.commits);
            taken.push(count);
            for (owner, _) in &batch.others {
                assert!(!queues.end_share(owner, Vec::new()), "nothing is left");
            }
        }
        assert_eq!(taken.iter().sum::<usize>(), 200, "each once");
        assert_eq!(taken.iter().filter(|count| **count > 0).count(), 7);
    }

    #[tokio::test]
    async fn owners_with_held_locks_share_no_transaction() {
        let mut queues = Queues::default();
        let _receivers = [add(&mut queues, "a", &["1"]), add(&mut queues, "b", &["1"])];
        let (blocked, _receiver) = commit("b", "2", "1");
        assert!(queues.add_blocked(&own("b"), vec![blocked]));
        assert!(queues.next_batch(&own("a")).others.is_empty());
        assert_eq!(queues.next_blocked(&own("b")).len(), 1);
        assert!(queues.is_waiting(&own("b")));
    }
}
