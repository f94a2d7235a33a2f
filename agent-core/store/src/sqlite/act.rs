//! Write operations and their queue entries.

use agent_platform::records::{Key, StoreError, Write};
use futures_channel::oneshot;
use rusqlite::Connection;

use super::fault::Halt;
use super::freshness::Freshness;
use super::jobs::HeldJobs;
use super::rows::Rows;

/// A write operation, applied within a transaction as a whole or not at all.
pub(super) trait Act: Send + 'static {
    /// Result for the caller.
    type Done: Send;

    /// Returns the approximate number of bytes that the operation stores.
    fn bytes(&self) -> usize;

    /// Applies the operation. Called again in the next transaction if this one is rolled back because of
    /// another operation.
    fn act(&self, stage: &mut Stage<'_>) -> Result<Self::Done, Halt>;
}

/// Context of an operation within a transaction.
pub(super) struct Stage<'t> {
    pub(super) connection: &'t Connection,
    pub(super) held: &'t HeldJobs,
    pub(super) now_ms: u64,
    pub(super) changes: Changes,
    freshness: &'t Freshness,
}

/// Changes that operations have made.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// True if the transaction has something to commit.
    pub(super) any: bool,
    /// Last record version that was assigned, in any collection.
    pub(super) version: u64,
    /// Cache slots of the changed records and collections.
    pub(super) slots: Vec<usize>,
    /// True if another job has become the earliest.
    pub(super) wakes: bool,
}

impl<'t> Stage<'t> {
    pub(super) fn new(
        connection: &'t Connection,
        held: &'t HeldJobs,
        now_ms: u64,
        version: u64,
        freshness: &'t Freshness,
    ) -> Self {
        let changes = Changes { version, ..Changes::default() };
        Self { connection, held, now_ms, changes, freshness }
    }

    /// Records the change of a record.
    fn changed(&mut self, key: &Key) {
        self.changes.any = true;
        self.changes.slots.extend([self.freshness.slot(key), self.freshness.slot(key.collection())]);
    }
}

/// Versions that were put or removed, one per write.
pub(super) type Versions = Vec<Option<u64>>;

impl Act for Vec<Write> {
    type Done = Versions;

    fn bytes(&self) -> usize {
        let of = |write: &Write| match write {
            Write::Put { value, .. } => value.get().len(),
            Write::Delete { .. } => 0,
        };
        self.iter().map(of).sum()
    }

    fn act(&self, stage: &mut Stage<'_>) -> Result<Versions, Halt> {
        let mut versions = Versions::with_capacity(self.len());
        for write in self {
            let rows = Rows(stage.connection);
            let version = rows.apply(write, &mut stage.changes.version, stage.now_ms)?;
            if version.is_some() {
                stage.changed(write.key());
            }
            versions.push(version);
        }
        Ok(versions)
    }
}

/// A queued write operation and its caller, independent of the result type.
pub(super) trait Asked: Send {
    /// Returns true if the caller still waits for the result.
    fn is_wanted(&self) -> bool;

    fn bytes(&self) -> usize;

    fn act(&mut self, stage: &mut Stage<'_>) -> Result<(), Halt>;

    /// Sends the outcome to the caller, after the commit is on disk or has failed.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// Result that the caller receives.
pub(super) type Answer<T> = Result<T, StoreError>;

pub(super) struct Asking<A: Act> {
    pub(super) act: A,
    done: Option<A::Done>,
    answer: oneshot::Sender<Answer<A::Done>>,
}

impl<A: Act> Asking<A> {
    pub(super) fn new(act: A) -> (Box<Self>, oneshot::Receiver<Answer<A::Done>>) {
        let (answer, answered) = oneshot::channel();
        (Box::new(Self { act, done: None, answer }), answered)
    }
}

impl<A: Act> Asked for Asking<A> {
    fn is_wanted(&self) -> bool {
        !self.answer.is_canceled()
    }

    fn bytes(&self) -> usize {
        self.act.bytes()
    }

    fn act(&mut self, stage: &mut Stage<'_>) -> Result<(), Halt> {
        self.done = Some(self.act.act(stage)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let answer = match (outcome, self.done) {
            (Ok(()), Some(done)) => Ok(done),
            (Err(error), _) => Err(error),
            // Dropping the sender tells the caller that there is no result.
            (Ok(()), None) => return,
        };
        // Fails only if the caller was cancelled.
        let _ = self.answer.send(answer);
    }
}
