//! Transactions that write an owner's conversations, and their waits for locks that other transactions hold.

use std::time::Duration;

use agent_platform::conversation::{ConversationError, ThreadOwner};

use super::tables::{ConversationTables, TableError};
use crate::conversation_row::RowError;
use crate::postgres::error::{OperationError, PostgresErrorKind};
use crate::postgres::fair_queue::Permit;
use crate::postgres::lock_wait::{LockAttempts, MAX_LOCK_WAIT};
use crate::postgres::{PostgresError, PostgresRecords};

/// Locks an owner's conversations until the end of the transaction. The seed keeps the locks apart from those of records. The
/// first expression sets the timeout of each lock of the transaction, without a separate statement.
const LOCK_OWNER: &str = "
    SELECT CASE
        WHEN set_config('lock_timeout', $2, true) IS NULL THEN NULL
        ELSE pg_advisory_xact_lock(hashtextextended($1, 7))
    END";

/// A write of an owner's conversations: a transaction that is repeated while other transactions hold locks that it needs.
pub(super) struct OwnerWrite<'s> {
    store: &'s PostgresRecords,
    /// Name of the owner's lock.
    lock_name: String,
    attempts: LockAttempts<'s>,
    /// Permit of the owner, of whose writes this process runs one at a time.
    _permit: Permit,
}

impl<'s> OwnerWrite<'s> {
    /// Waits until a write of the owner may begin.
    pub(super) async fn new(
        store: &'s PostgresRecords,
        owner: &'s ThreadOwner,
    ) -> Result<Self, ConversationError> {
        Self::wait_for_permit(store, owner, store.wait_timeout, PostgresErrorKind::Busy).await
    }

    /// Waits until a write may begin that fails if a lock is not free within a short time, since the writes of other owners
    /// wait for it.
    pub(super) async fn new_for_one_attempt(
        store: &'s PostgresRecords,
        owner: &'s ThreadOwner,
    ) -> Result<Self, ConversationError> {
        let limit = MAX_LOCK_WAIT.min(store.lock_timeout);
        let write = Self::wait_for_permit(store, owner, limit, PostgresErrorKind::Locked).await?;
        Ok(Self { attempts: write.attempts.with_single_attempt(), ..write })
    }

    /// Waits until a write may begin, for at most `limit`, after which `kind` is that of the error.
    async fn wait_for_permit(
        store: &'s PostgresRecords,
        owner: &'s ThreadOwner,
        limit: Duration,
        kind: PostgresErrorKind,
    ) -> Result<Self, ConversationError> {
        // The server rejects NUL. An owner with one has nothing, which the write finds.
        let lock_name = format!("{}\u{1f}{}", owner.company, owner.owner).replace('\0', "\u{1e}");
        let permit = store.owners.acquire(&lock_name, limit).await;
        let permit = permit.map_err(|_| failed(PostgresError::from_kind(kind)))?;
        let attempts = LockAttempts::new(store.lock_queues(), Some(owner.company.as_str()));
        Ok(Self { store, lock_name, attempts, _permit: permit })
    }

    /// Begins a transaction that has the owner's conversations for itself.
    pub(super) async fn begin(&mut self) -> Result<ConversationTables, ConversationError> {
        loop {
            if let Some(tables) = self.try_begin().await.map_err(failed)? {
                return Ok(tables);
            }
        }
    }

    /// Begins a transaction; returns `None` if another one holds the lock. Begins again on another connection if the
    /// connection was lost, as all idle ones are by a restart of the server.
    async fn try_begin(&mut self) -> Result<Option<ConversationTables>, PostgresError> {
        self.attempts.acquire_permits().await?;
        let lock_timeout = self.attempts.lock_timeout();
        let store = self.store;
        let mut remaining_retries = store.sessions.max_size();
        loop {
            let session = store.sessions.get().await?;
            match session.begin(&[(LOCK_OWNER, &[&self.lock_name, &lock_timeout])]).await {
                Ok(_) => return Ok(Some(ConversationTables(session))),
                Err(error) if error.kind() == PostgresErrorKind::Unreachable && remaining_retries > 0 => {
                    remaining_retries -= 1;
                }
                Err(error) => {
                    let is_repeated = self.attempts.is_repeated_after(&error);
                    let released = session.release(Err(OperationError::from(error))).await;
                    return if is_repeated { Ok(None) } else { released.map_err(OperationError::into_error) };
                }
            }
        }
    }

    /// Commits a transaction, or rolls it back after an error. Returns `None` if the write must be repeated, since another
    /// transaction holds a lock that it needs.
    pub(super) async fn finish<T>(
        &mut self,
        tables: ConversationTables,
        result: Result<T, TableError>,
    ) -> Option<Result<T, ConversationError>> {
        let session = tables.0;
        let outcome = match result {
            Ok(output) => {
                let committed = session.commit(&[]).await.map_err(OperationError::from);
                session.release(committed.map(|_| output)).await
            }
            Err(RowError::Rejected(error)) => {
                return Some(session.rollback().await.map_err(failed).and(Err(error)));
            }
            Err(RowError::Failed(error)) => {
                let is_repeated = self.attempts.is_repeated_after(&error);
                let released = session.release(Err(OperationError::from(error))).await;
                if is_repeated {
                    return None;
                }
                released
            }
        };
        Some(outcome.map_err(rejected))
    }
}

fn failed(error: PostgresError) -> ConversationError {
    rejected(OperationError::from(error))
}

fn rejected(error: OperationError) -> ConversationError {
    ConversationError::Store(error.into())
}
