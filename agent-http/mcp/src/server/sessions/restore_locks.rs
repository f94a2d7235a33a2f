//! Locks of sessions that are being restored.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// Number of locks for restoring sessions: at most this many are restored at a time.
const RESTORE_LOCKS: usize = 64;

/// Locks that prevent concurrent requests from restoring the same session twice. Sessions share them by hash.
pub(super) struct RestoreLocks {
    locks: [Mutex<()>; RESTORE_LOCKS],
    hasher: RandomState,
}

impl Default for RestoreLocks {
    fn default() -> Self {
        Self { locks: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }
}

impl RestoreLocks {
    /// Waits until no other request restores the session.
    pub(super) async fn lock(&self, public_id: &str) -> MutexGuard<'_, ()> {
        let hash = self.hasher.hash_one(public_id);
        let index = usize::try_from(hash % RESTORE_LOCKS as u64).unwrap_or_default();
        self.locks[index].lock().await
    }
}
