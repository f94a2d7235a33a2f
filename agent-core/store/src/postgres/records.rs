//! Reads, commits and change feed of records.

mod batch;
mod commit;
mod commit_queue;
mod feed;
pub(super) mod rows;

pub(super) use commit::Committer;
pub(super) use commit_queue::CommitQueue;
pub(super) use feed::{ChangeTracker, Poller};
