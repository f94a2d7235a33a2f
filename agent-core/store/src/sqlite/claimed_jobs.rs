//! Cache of claimed jobs as they were last written.
//!
//! A claimed job is usually changed next by the same process, when its delivery has ended, and its row is
//! unchanged until then. Finding, reading and parsing the row would be the most expensive part of that step.
//! Instead, the row is updated on the condition that it still has the cached content. If another process has
//! changed it, or the transaction that wrote it was rolled back, the condition fails and the row is read.

use std::cell::RefCell;
use std::collections::HashMap;

use agent_core::ids::JobId;
use agent_jobs::job::{Job, MAX_JOBS_PER_CLAIM};

/// Maximum number of cached jobs. The cache is cleared when it is full.
const MAX_CACHED_JOBS: usize = MAX_JOBS_PER_CLAIM;
/// Maximum size of a cached job in bytes, many times that of a typical job.
const MAX_CACHED_JOB_BYTES: usize = 8 * 1024;

/// Cache of claimed jobs by id.
#[derive(Debug, Default)]
pub(super) struct ClaimedJobCache(RefCell<HashMap<JobId, ClaimedJob>>);

/// A job and the columns that it was parsed from.
#[derive(Debug)]
pub(super) struct ClaimedJob {
    pub(super) rowid: i64,
    pub(super) body: String,
    pub(super) progress: String,
    pub(super) job: Job,
}

impl ClaimedJobCache {
    /// Caches a job that was written with these column values, if it is being delivered.
    pub(super) fn insert(&self, rowid: i64, body: String, progress: String, job: &Job) {
        if !job.is_delivering() || body.len() + progress.len() > MAX_CACHED_JOB_BYTES {
            return;
        }
        let mut jobs = self.0.borrow_mut();
        if jobs.len() >= MAX_CACHED_JOBS {
            jobs.clear();
        }
        jobs.insert(job.id.clone(), ClaimedJob { rowid, body, progress, job: job.clone() });
    }

    /// Removes and returns the job with this id.
    pub(super) fn take(&self, id: &str) -> Option<ClaimedJob> {
        self.0.borrow_mut().remove(id)
    }
}
