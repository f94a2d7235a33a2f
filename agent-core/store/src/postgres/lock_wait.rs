//! Limits of waits for locks that other transactions hold.

use std::time::Duration;

/// Maximum time for which a transaction waits for a lock before it makes room for commits that do not need it. Transactions
/// of other processes that change the same rows end sooner.
pub(super) const MAX_LOCK_WAIT: Duration = Duration::from_millis(200);
/// The same while commits of the company wait for locks that are known to be held.
pub(super) const MAX_LOCK_WAIT_BESIDE_HELD: Duration = Duration::from_millis(50);
