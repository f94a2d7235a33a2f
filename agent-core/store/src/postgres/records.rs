//! Reads, commits and change feed of records.

mod batch;
mod changed_records;
mod commit;
mod commit_queue;
mod feed;
mod key_columns;
mod locked_keys;
pub(super) mod rows;

pub(super) use commit::Committer;
pub(super) use commit_queue::CommitQueue;
pub(super) use feed::{ChangeTracker, Poller};
