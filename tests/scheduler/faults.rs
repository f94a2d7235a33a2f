//! Schedulers that are killed, put to sleep and run out of room, and databases that go away under them: what was
//! acknowledged is delivered, and each occurrence's effect is made once.

mod kill;
mod load;
mod outage;
mod room;
mod takeover;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::payload;
use crate::support::cluster::Cluster;

/// A database of a test's own.
enum Place {
    Sqlite(TempDir),
    Postgres(Box<Cluster>),
}

impl Place {
    fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().expect("a folder"))
    }

    fn postgres() -> Self {
        // It takes a second, in which nobody waits for this thread.
        Self::Postgres(Box::new(Cluster::start()))
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite://{}", folder.path().join("scheduler.db").display()),
            Self::Postgres(cluster) => cluster.url("postgres"),
        }
    }
}

/// A job for an agent that is due at once.
fn now(agent: &str) -> Value {
    json!({"payload": payload(agent), "delayMs": 0})
}
