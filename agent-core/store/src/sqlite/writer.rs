//! The one thread that writes.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use agent_core::clock::Clock;
use agent_core::records::{StoreError, Write};
use async_channel::{Receiver, Sender};
use futures_channel::oneshot;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::fault::{Fault, Halt};
use super::freshness::Freshness;
use super::rows::{Rows, to_millis};
use super::{Counts, SqliteOptions, schema};

/// How many commits share a transaction at most.
const GROUP_COMMITS: usize = 256;
/// How many bytes of values a transaction has before no further commit is added to it.
const GROUP_BYTES: usize = 8 << 20;

/// How often more commits are looked for, giving way in between, where more came together the last time:
/// some microseconds, beside the milliseconds of a disk.
const LOOKS: usize = 100;

/// For each write, the version that was put or removed.
type Versions = Vec<Option<u64>>;

/// A bounded queue of commits, and the thread that takes from it. Dropped, it ends once the queue is empty
/// and the file is closed.
pub(super) struct Writers {
    queue: Sender<Commit>,
    thread: Option<JoinHandle<()>>,
}

struct Commit {
    writes: Vec<Write>,
    answer: oneshot::Sender<Result<Versions, StoreError>>,
}

impl Commit {
    fn bytes(&self) -> usize {
        let of = |write: &Write| match write {
            Write::Put { value, .. } => value.get().len(),
            Write::Delete { .. } => 0,
        };
        self.writes.iter().map(of).sum()
    }
}

impl Writers {
    pub(super) fn start(
        connection: Connection,
        options: &SqliteOptions,
        freshness: Arc<Freshness>,
        counts: Arc<Counts>,
    ) -> io::Result<Self> {
        let (queue, commits) = async_channel::bounded(options.queue.max(1));
        let mut writer = Writer { connection, clock: Arc::clone(&options.clock), freshness, counts };
        let thread = thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            let mut usual = 1;
            while let Ok(first) = commits.recv_blocking() {
                let group = gather(first, &commits, usual);
                usual = group.len();
                writer.commit(group);
            }
        })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Does these writes, and returns once they are on the disk.
    pub(super) async fn commit(&self, writes: Vec<Write>) -> Result<Versions, StoreError> {
        let (answer, answered) = oneshot::channel();
        let closed = || StoreError::unavailable(Fault::closed());
        self.queue.send(Commit { writes, answer }).await.map_err(|_| closed())?;
        answered.await.unwrap_or_else(|oneshot::Canceled| Err(closed()))
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // One that has panicked has ended as well.
            let _ = thread.join();
        }
    }
}

/// Takes what waits, within the bounds of one transaction. Those who were answered together come back
/// together, but not at the same moment: a group smaller than the last one is waited for a little.
fn gather(first: Commit, commits: &Receiver<Commit>, usual: usize) -> Vec<Commit> {
    let mut bytes = first.bytes();
    let mut group = vec![first];
    let mut looks = LOOKS;
    while group.len() < GROUP_COMMITS && bytes < GROUP_BYTES {
        if let Ok(next) = commits.try_recv() {
            bytes += next.bytes();
            group.push(next);
        } else if group.len() < usual && looks > 0 {
            looks -= 1;
            thread::yield_now();
        } else {
            break;
        }
    }
    group
}

struct Writer {
    connection: Connection,
    clock: Arc<dyn Clock>,
    freshness: Arc<Freshness>,
    counts: Arc<Counts>,
}

/// Why nothing of a transaction has happened.
enum Failure {
    /// A write of some commit brought the database to fail, such as by filling the disk.
    Write(Fault),
    /// The transaction did not begin, or could not be committed.
    Transaction(Fault),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Transaction(error.into())
    }
}

impl Writer {
    /// Does the commits of a group in one transaction, and answers each.
    fn commit(&mut self, mut group: Vec<Commit>) {
        // Who has gone was promised nothing.
        group.retain(|commit| !commit.answer.is_canceled());
        match self.transact(&group) {
            Ok(outcomes) => {
                for (commit, outcome) in group.into_iter().zip(outcomes) {
                    let _ = commit.answer.send(outcome);
                }
            }
            // The others shall not suffer for one of them.
            Err(Failure::Write(_)) if group.len() > 1 => {
                for commit in group {
                    self.commit(vec![commit]);
                }
            }
            Err(Failure::Write(fault) | Failure::Transaction(fault)) => {
                for commit in group {
                    let _ = commit.answer.send(Err(StoreError::unavailable(fault.clone())));
                }
            }
        }
    }

    fn transact(&mut self, group: &[Commit]) -> Result<Vec<Result<Versions, StoreError>>, Failure> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let begun = self.freshness.now();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let first = schema::last_version(&transaction)?;
        self.freshness.observe(first, begun);

        let now_ms = to_millis(self.clock.now());
        let mut version = first;
        let mut outcomes = Vec::with_capacity(group.len());
        for commit in group {
            match apart(&transaction, &commit.writes, version, now_ms) {
                Ok((versions, last)) => {
                    version = last;
                    outcomes.push(Ok(versions));
                }
                Err(Halt::Refused(error)) => outcomes.push(Err(error)),
                Err(Halt::Failed(fault)) => return Err(Failure::Write(fault)),
            }
        }

        let changed = |outcome: &Result<Versions, _>| {
            outcome.as_ref().is_ok_and(|versions| versions.iter().any(Option::is_some))
        };
        let commits = outcomes.iter().filter(|outcome| changed(outcome)).count();
        if commits == 0 {
            transaction.rollback()?;
            return Ok(outcomes);
        }
        // What only removes is a change as well.
        let version = version.max(first + 1);
        schema::set_last_version(&transaction, version).map_err(|error| Failure::Write(error.into()))?;

        let slots = slots(&self.freshness, group, &outcomes);
        self.freshness.committing(&slots, version);
        if let Err(error) = transaction.commit() {
            self.freshness.failed(&slots);
            return Err(error.into());
        }
        self.freshness.committed(&slots, version);
        self.counts.commits.fetch_add(commits as u64, Ordering::Relaxed);
        self.counts.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }
}

/// Of all that is changed, each once.
fn slots(freshness: &Freshness, group: &[Commit], outcomes: &[Result<Versions, StoreError>]) -> Vec<usize> {
    let done = group.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_ok());
    let keys = done.flat_map(|(commit, _)| commit.writes.iter().map(Write::key));
    let slots = keys.flat_map(|key| [freshness.slot(key), freshness.slot(key.collection())]);
    slots.collect::<BTreeSet<usize>>().into_iter().collect()
}

/// Does all the writes or none, and gives their versions and the last version then.
fn apart(
    transaction: &Transaction<'_>,
    writes: &[Write],
    mut version: u64,
    now_ms: u64,
) -> Result<(Versions, u64), Halt> {
    let run = |sql| transaction.prepare_cached(sql)?.execute(()).map(drop);
    run("SAVEPOINT one")?;
    let rows = Rows(transaction);
    let done: Result<Versions, Halt> =
        writes.iter().map(|write| rows.apply(write, &mut version, now_ms)).collect();
    if let Err(Halt::Refused(_)) = done {
        run("ROLLBACK TO one")?;
    }
    if !matches!(done, Err(Halt::Failed(_))) {
        run("RELEASE one")?;
    }
    Ok((done?, version))
}

#[cfg(test)]
mod tests {
    use agent_core::clock::SystemClock;
    use agent_core::records::{Key, Precondition};
    use serde_json::value::RawValue;

    use super::*;
    use crate::sqlite::{FaultKind, file};

    fn put(id: &str) -> (Commit, oneshot::Receiver<Result<Versions, StoreError>>) {
        let key = Key::new("company", "things", id).expect("a key");
        let value = RawValue::from_string("1".to_owned()).expect("JSON").into();
        let (answer, answered) = oneshot::channel();
        let writes = vec![Write::Put { key, value, precondition: Precondition::Any }];
        (Commit { writes, answer }, answered)
    }

    #[test]
    fn a_transaction_that_cannot_be_committed_is_nobodys() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SqliteOptions::default();
        let (connection, version) = file::open(&folder.path().join("app.db"), &options).expect("open");
        let clock = Arc::new(SystemClock);
        let freshness = Arc::new(Freshness::new(clock.clone(), version));
        let mut writer = Writer { connection, clock, freshness, counts: Arc::default() };
        writer.connection.commit_hook(Some(|| true)).expect("a hook that turns commits into rollbacks");
        let (group, mut answers): (Vec<_>, Vec<_>) = ["a", "b"].map(put).into_iter().unzip();
        writer.commit(group);
        for answer in &mut answers {
            let Ok(Some(Err(StoreError::Unavailable(source)))) = answer.try_recv() else {
                panic!("nothing was stored, and everybody is told")
            };
            assert_eq!(source.downcast_ref::<Fault>().expect("a fault").kind(), FaultKind::Failed);
        }
        assert_eq!(schema::last_version(&writer.connection).expect("read"), 0);

        writer.connection.commit_hook(None::<fn() -> bool>).expect("no hook");
        let (commit, mut answer) = put("a");
        let stamp = writer.freshness.stamp(commit.writes[0].key()).expect("what failed keeps no slot odd");
        writer.commit(vec![commit]);
        assert!(matches!(answer.try_recv(), Ok(Some(Ok(versions))) if versions == [Some(1)]));
        assert!(!writer.freshness.holds(stamp));
    }
}
