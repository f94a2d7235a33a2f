//! Transactions that commit writes of records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_platform::records::{StoreError, Write};

use super::batch::{Batch, WrittenVersions};
use super::changed_records::ChangedRecords;
use super::feed::ChangeTracker;
use super::locked_keys::{HeldLocks, LockPolicy, LockedKeys};
use crate::counters::AtomicCounters;
use crate::postgres::error::{OperationError, PostgresError, PostgresErrorKind};
use crate::postgres::session::{Session, SessionPool};

/// Outcome of one of the commits of a transaction.
#[derive(Debug)]
pub(super) enum CommitOutcome {
    /// The commit succeeded, or was rejected because of the data.
    Decided(Result<WrittenVersions, StoreError>),
    /// The commit was left out, since another transaction holds a lock that it needs.
    Locked,
}

/// Commits writes of records.
pub(in crate::postgres) struct Committer {
    pub(in crate::postgres) sessions: SessionPool,
    pub(in crate::postgres) tracker: Arc<ChangeTracker>,
    /// Name of this process in the change feed.
    pub(in crate::postgres) origin: String,
    pub(in crate::postgres) counts: Arc<AtomicCounters>,
}

impl Committer {
    /// Commits several lists of writes in one transaction, each as a whole or not at all.
    ///
    /// # Errors
    /// An error of the database, after which nothing is committed. After a lost connection or a timeout during the
    /// commit the outcome is unknown.
    pub(super) async fn commit(
        &self,
        commits: &[&[Write]],
        policy: LockPolicy,
    ) -> Result<Vec<CommitOutcome>, PostgresError> {
        let keys = LockedKeys::of(commits);
        let (session, (mut batch, held_locks)) = self.lock_and_read(commits, &keys, policy).await?;
        let outcomes: Vec<_> = commits
            .iter()
            .map(|writes| match held_locks.conflict_with(writes) {
                true => CommitOutcome::Locked,
                false => CommitOutcome::Decided(batch.apply(writes)),
            })
            .collect();
        let changes = ChangedRecords::of(&batch);
        if changes.is_empty() {
            return session.rollback().await.map(|()| outcomes);
        }
        let _in_progress = self.tracker.begin_commit(changes.slots());
        match changes.write(&session, &self.origin).await {
            Ok(()) => {
                session.release(Ok(())).await.map_err(OperationError::into_error)?;
                let is_committed =
                    |outcome: &&CommitOutcome| matches!(outcome, CommitOutcome::Decided(Ok(_)));
                let committed = outcomes.iter().filter(is_committed).count();
                self.counts.commits.fetch_add(committed as u64, Ordering::Relaxed);
                self.counts.transactions.fetch_add(1, Ordering::Relaxed);
                Ok(outcomes)
            }
            Err(error) => {
                if !error.leaves_session_usable() {
                    self.tracker.record_unknown_outcome();
                }
                session
                    .release(Err(OperationError::from(error)))
                    .await
                    .map(|()| outcomes)
                    .map_err(OperationError::into_error)
            }
        }
    }

    /// Begins a transaction, locks the keys and reads their records. Begins again on another connection if the
    /// connection was lost, as all idle ones are by a restart of the server.
    async fn lock_and_read(
        &self,
        commits: &[&[Write]],
        keys: &LockedKeys<'_>,
        policy: LockPolicy,
    ) -> Result<(Session, (Batch, HeldLocks)), PostgresError> {
        let mut remaining_retries = self.sessions.max_size();
        loop {
            let mut session = self.sessions.get().await?;
            match keys.lock_and_read(&mut session, commits, policy).await {
                Ok(read) => return Ok((session, read)),
                Err(error) if error.kind() == PostgresErrorKind::Unreachable && remaining_retries > 0 => {
                    remaining_retries -= 1;
                }
                Err(error) => {
                    let failed = session.release(Err(OperationError::from(error))).await;
                    return failed.map_err(OperationError::into_error);
                }
            }
        }
    }
}
