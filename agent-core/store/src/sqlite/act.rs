//! What the writer does for its callers.

use agent_platform::records::{Key, StoreError, Write};
use futures_channel::oneshot;
use rusqlite::Connection;

use super::fault::Halt;
use super::freshness::Freshness;
use super::jobs::HeldJobs;
use super::rows::Rows;

/// Something that is done within a transaction, as a whole or not at all.
pub(super) trait Act: Send + 'static {
    /// What its caller gets.
    type Done: Send;

    /// About how many bytes it stores.
    fn bytes(&self) -> usize;

    /// Does it. Where a transaction has come to nothing for another's sake, it is done again in the next.
    fn act(&self, stage: &mut Stage<'_>) -> Result<Self::Done, Halt>;
}

/// What an act works on.
pub(super) struct Stage<'t> {
    pub(super) connection: &'t Connection,
    pub(super) held: &'t HeldJobs,
    pub(super) now_ms: u64,
    pub(super) changes: Changes,
    freshness: &'t Freshness,
}

/// What an act has changed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Whether there is anything to be stored.
    pub(super) any: bool,
    /// The version that was given last, to whichever record.
    pub(super) version: u64,
    /// Where what was read of records is noted as changed.
    pub(super) slots: Vec<usize>,
    /// Whether another job is the earliest now.
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

    /// Notes that a record is different.
    fn changed(&mut self, key: &Key) {
        self.changes.any = true;
        self.changes.slots.extend([self.freshness.slot(key), self.freshness.slot(key.collection())]);
    }
}

/// For each write, the version that was put or removed.
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

/// An act and its caller, who waits, whatever the act gives.
pub(super) trait Asked: Send {
    /// Whether the caller is still there.
    fn is_wanted(&self) -> bool;

    fn bytes(&self) -> usize;

    fn act(&mut self, stage: &mut Stage<'_>) -> Result<(), Halt>;

    /// Tells the caller, once what was done is on the disk, or why it is not.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// What a caller gets.
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
            // The caller sees that nobody answers.
            (Ok(()), None) => return,
        };
        // Nobody needs the answer who has gone meanwhile.
        let _ = self.answer.send(answer);
    }
}
