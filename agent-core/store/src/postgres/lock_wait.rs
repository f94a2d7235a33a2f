//! Waits of transactions for locks that other transactions hold.

use std::time::Duration;

use tokio::time::Instant;

use super::error::{PostgresError, PostgresErrorKind};
use super::fair_queue::{FairQueue, Permit};

/// Maximum time for which a transaction waits for a lock before it makes room for commits that do not need it. Transactions
/// of other processes that change the same rows end sooner.
pub(super) const MAX_LOCK_WAIT: Duration = Duration::from_millis(200);
/// Maximum time for which a transaction waits for a lock while commits of the company wait for locks that are held.
pub(super) const MAX_CONTENDED_LOCK_WAIT: Duration = Duration::from_millis(50);

/// Permits of a store's transactions to use a connection.
#[derive(Clone, Copy)]
pub(super) struct LockQueues<'s> {
    /// Permits of all transactions.
    pub(super) all: &'s FairQueue,
    /// Additional permits of transactions that wait for locks that are known to be held.
    pub(super) blocked: &'s FairQueue,
    /// Time limit of waiting for a permit.
    pub(super) wait_timeout: Duration,
    /// Time for which a transaction is repeated while its locks are held.
    pub(super) lock_timeout: Duration,
}

/// Attempts at a transaction, which is repeated while other transactions hold locks that it needs. It holds no connection
/// between two attempts, and later attempts are queued round-robin with other companies' attempts.
pub(super) struct LockAttempts<'s> {
    queues: LockQueues<'s>,
    /// Company of the transaction; `None` for one of the process itself, which needs no permit of the first queue.
    company: Option<&'s str>,
    /// Permits of the attempt under way.
    permits: Vec<Permit>,
    /// Time from which a held lock fails the transaction; `None` until one was found to be held.
    blocked_until: Option<Instant>,
}

impl<'s> LockAttempts<'s> {
    pub(super) fn new(queues: LockQueues<'s>, company: Option<&'s str>) -> Self {
        Self { queues, company, permits: Vec::new(), blocked_until: None }
    }

    /// Limits the attempts to one.
    pub(super) fn with_single_attempt(self) -> Self {
        Self { blocked_until: Some(Instant::now()), ..self }
    }

    /// Waits for the permits of the next attempt, and returns those of the last one.
    pub(super) async fn acquire_permits(&mut self) -> Result<(), PostgresError> {
        let queues = self.queues;
        self.permits.clear();
        if let Some(until) = self.blocked_until {
            let limit = until.saturating_duration_since(Instant::now());
            let permit = queues.blocked.acquire(self.company.unwrap_or_default(), limit).await;
            self.permits.push(permit.map_err(|_| PostgresError::from_kind(PostgresErrorKind::Locked))?);
        }
        if let Some(company) = self.company {
            self.permits.push(queues.all.acquire(company, queues.wait_timeout).await?);
        }
        Ok(())
    }

    /// Returns the maximum time for which a statement of the next attempt waits for a lock, as the setting `lock_timeout` has
    /// it.
    pub(super) fn lock_timeout(&self) -> String {
        let is_beside_held =
            self.blocked_until.is_none() && self.queues.blocked.is_used_by(self.company.unwrap_or_default());
        let limit = if is_beside_held { MAX_CONTENDED_LOCK_WAIT } else { MAX_LOCK_WAIT };
        format!("{}ms", limit.min(self.queues.lock_timeout).as_millis().max(1))
    }

    /// Returns true if an attempt failed because of a held lock and another one may be made. The server has reported it, so
    /// the attempt had no effect.
    pub(super) fn is_repeated_after(&mut self, error: &PostgresError) -> bool {
        if error.kind() != PostgresErrorKind::Locked {
            return false;
        }
        let now = Instant::now();
        now < *self.blocked_until.get_or_insert(now + self.queues.lock_timeout)
    }
}
