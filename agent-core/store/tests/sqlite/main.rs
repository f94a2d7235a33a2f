//! Tests of the SQLite store: the conformance suite, and implementation details.
#![cfg(feature = "sqlite")]

mod backup;
mod cache;
mod contract;
#[path = "../support/conversation.rs"]
mod conversation;
mod conversations;
#[path = "../support/damaged.rs"]
mod damaged;
#[path = "../support/damaged_runs.rs"]
mod damaged_runs;
mod golden;
mod group;
mod jobs;
mod kill;
mod kill_jobs;
mod migrate;
mod open;
mod refusals;
#[path = "../support/usage.rs"]
mod usage;

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::message::SharedJson;
use agent_platform::records::{Collection, Key, Precondition, StoreError, Write};
use agent_store::sqlite::{SqliteError, SqliteOptions, SqliteStore};
use tempfile::TempDir;

/// Temporary folder for a store; deleted on drop.
struct TempStore(TempDir);

impl TempStore {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("app.db")
    }

    fn store(&self, options: SqliteOptions) -> SqliteStore {
        SqliteStore::open(self.file(), options).expect("open")
    }
}

fn uncached() -> SqliteOptions {
    SqliteOptions { cache_bytes: 0, ..SqliteOptions::default() }
}

/// Returns options with a short lock timeout.
fn impatient() -> SqliteOptions {
    SqliteOptions { busy_timeout: Duration::from_millis(50), ..SqliteOptions::default() }
}

fn things() -> Collection {
    Collection::new("company", "things").expect("a collection")
}

fn key(id: &str) -> Key {
    things().key(id).expect("a key")
}

fn json(text: &str) -> SharedJson {
    serde_json::value::RawValue::from_string(text.to_owned()).expect("JSON").into()
}

fn put(id: &str, text: &str, precondition: Precondition) -> Write {
    Write::Put { key: key(id), value: json(text), precondition }
}

/// Opens a connection as another process would.
fn other(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).expect("a connection")
}

/// Returns the fault of a failed operation.
fn fault<T: std::fmt::Debug>(result: Result<T, StoreError>) -> SqliteError {
    match result {
        Err(StoreError::Unavailable(source)) => {
            source.downcast_ref::<SqliteError>().expect("a fault").clone()
        }
        other => panic!("the store is unavailable, and not {other:?}"),
    }
}
