//! Write operations and their queue entries.

use agent_platform::records::{Key, StoreError, Write};
use futures_channel::oneshot;
use rusqlite::Connection;

use super::claimed_jobs::ClaimedJobCache;
use super::error::WriteError;
use super::rows::RecordTable;
use crate::round_robin::Cancellable;
use crate::slots::SlotTable;

/// A write operation, applied within a transaction as a whole or not at all.
pub(super) trait WriteOp: Send + 'static {
    /// Result for the caller.
    type Output: Send;

    /// Returns the approximate number of bytes that the operation stores.
    fn bytes(&self) -> usize;

    /// Applies the operation. Called again in the next transaction if this one is rolled back because of
    /// another operation.
    fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<Self::Output, WriteError>;
}

/// Context of an operation within a transaction.
pub(super) struct WriteBatch<'t> {
    pub(super) connection: &'t Connection,
    pub(super) claimed: &'t ClaimedJobCache,
    pub(super) now_ms: u64,
    pub(super) changes: Changes,
}

/// Changes that operations have made.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// True if the transaction has something to commit.
    pub(super) has_changes: bool,
    /// Last record version that was assigned, in any collection.
    pub(super) version: u64,
    /// Cache slots of the changed records and collections.
    pub(super) slots: Vec<usize>,
    /// True if another job has become the earliest.
    pub(super) is_earliest_changed: bool,
}

impl<'t> WriteBatch<'t> {
    pub(super) fn new(
        connection: &'t Connection,
        claimed: &'t ClaimedJobCache,
        now_ms: u64,
        version: u64,
    ) -> Self {
        let changes = Changes { version, ..Changes::default() };
        Self { connection, claimed, now_ms, changes }
    }

    /// Records the change of a record.
    fn record_change(&mut self, key: &Key) {
        self.changes.has_changes = true;
        self.changes.slots.extend([SlotTable::slot(key), SlotTable::slot(key.collection())]);
    }
}

/// Versions that were put or removed, one per write.
pub(super) type WrittenVersions = Vec<Option<u64>>;

impl WriteOp for Vec<Write> {
    type Output = WrittenVersions;

    fn bytes(&self) -> usize {
        let of = |write: &Write| match write {
            Write::Put { value, .. } => value.get().len(),
            Write::Delete { .. } | Write::Check { .. } | Write::Increment { .. } => 0,
        };
        self.iter().map(of).sum()
    }

    fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<WrittenVersions, WriteError> {
        let mut versions = WrittenVersions::with_capacity(self.len());
        for write in self {
            let rows = RecordTable(batch.connection);
            let version = rows.apply(write, &mut batch.changes.version, batch.now_ms)?;
            if version.is_some() && !matches!(write, Write::Check { .. }) {
                batch.record_change(write.key());
            }
            versions.push(version);
        }
        Ok(versions)
    }
}

/// A queued write operation and its caller, independent of the result type.
pub(super) trait QueuedWrite: Cancellable + Send {
    fn bytes(&self) -> usize;

    fn apply(&mut self, batch: &mut WriteBatch<'_>) -> Result<(), WriteError>;

    /// Sends the outcome to the caller, after the commit is on disk or has failed.
    fn respond(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// Result that the caller receives.
pub(super) type WriteResult<T> = Result<T, StoreError>;

pub(super) struct PendingWrite<A: WriteOp> {
    pub(super) op: A,
    /// Set once the operation has been applied.
    output: Option<A::Output>,
    answer: oneshot::Sender<WriteResult<A::Output>>,
}

impl<A: WriteOp> PendingWrite<A> {
    pub(super) fn new(op: A) -> (Box<Self>, oneshot::Receiver<WriteResult<A::Output>>) {
        let (answer, receiver) = oneshot::channel();
        (Box::new(Self { op, output: None, answer }), receiver)
    }
}

impl<A: WriteOp> Cancellable for PendingWrite<A> {
    fn is_caller_waiting(&self) -> bool {
        !self.answer.is_canceled()
    }
}

impl<A: WriteOp> QueuedWrite for PendingWrite<A> {
    fn bytes(&self) -> usize {
        self.op.bytes()
    }

    fn apply(&mut self, batch: &mut WriteBatch<'_>) -> Result<(), WriteError> {
        self.output = Some(self.op.apply(batch)?);
        Ok(())
    }

    fn respond(self: Box<Self>, outcome: Result<(), StoreError>) {
        let answer = match (outcome, self.output) {
            (Ok(()), Some(output)) => Ok(output),
            (Err(error), _) => Err(error),
            // Dropping the sender tells the caller that there is no result.
            (Ok(()), None) => return,
        };
        // Fails only if the caller was cancelled.
        let _ = self.answer.send(answer);
    }
}
