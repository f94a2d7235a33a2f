//! A connection in use, with the pool to which it returns.

use std::sync::Weak;

use super::connection::Connection;
use super::pool::{Pool, PoolKey};

/// A connection in use. Dropping it closes it.
#[derive(Debug)]
pub(super) struct PooledConnection {
    pub(super) connection: Connection,
    pub(super) origin: PoolKey,
    /// Weak, because the pool owns its idle connections.
    pub(super) pool: Weak<Pool>,
}

impl PooledConnection {
    /// Returns the connection to the pool if it can take another request; closes it otherwise.
    pub(super) fn return_to_pool(self) {
        let Self { mut connection, origin, pool } = self;
        if !connection.is_reusable() {
            return;
        }
        if let Some(pool) = pool.upgrade() {
            connection.clear_waker();
            pool.put(origin, connection);
        }
    }
}
