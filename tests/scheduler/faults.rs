//! Schedulers that are killed, suspended or out of disk space, and databases that become unavailable: acknowledged
//! jobs are delivered, and each occurrence takes effect once.

mod kill;
mod load;
mod outage;
mod room;
mod takeover;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::payload;
use crate::support::cluster::Cluster;

/// A temporary database.
enum TestDatabase {
    Sqlite(TempDir),
    Postgres(Box<Cluster>),
}

impl TestDatabase {
    fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().expect("a folder"))
    }

    fn postgres() -> Self {
        // Blocks this thread for about a second; no other task needs it meanwhile.
        Self::Postgres(Box::new(Cluster::start()))
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite://{}", folder.path().join("scheduler.db").display()),
            Self::Postgres(cluster) => cluster.url("postgres"),
        }
    }
}

/// Returns a job for `agent` that is due at once.
fn due_job(agent: &str) -> Value {
    // A process that is killed, or stopped for longer than its lease, uses up no attempt.
    json!({"payload": payload(agent), "delayMs": 0, "maxAttempts": 1})
}
