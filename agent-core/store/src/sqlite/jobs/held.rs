//! Jobs that were claimed, as they were written.
//!
//! A job that was claimed is changed again when it has been delivered, by the same process and as that has written it,
//! mostly. It need not be looked for, read and parsed then, which would be the dearest part of a step: the row is
//! changed on the condition that it is as it was written. Whatever another process has made of it, or a transaction
//! that was rolled back has not, the condition fails, and the row is read.

use std::cell::RefCell;
use std::collections::HashMap;

use agent_core::job::{Job, MAX_CLAIM};

/// How many jobs are kept. Where there are more, all are forgotten.
const MAX_JOBS: usize = MAX_CLAIM;
/// The bytes of the longest texts that are kept: of jobs as they usually are, many times over.
const MAX_BYTES: usize = 8 * 1024;

/// Jobs by their ids.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct HeldJobs(RefCell<HashMap<String, Held>>);

/// A job, and the columns that it is made of.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) rowid: i64,
    pub(super) body: String,
    pub(super) progress: String,
    pub(super) job: Job,
}

impl HeldJobs {
    /// Keeps a job that was written as these texts, if somebody delivers it.
    pub(super) fn keep(&self, rowid: i64, body: String, progress: String, job: &Job) {
        if !job.is_delivering() || body.len() + progress.len() > MAX_BYTES {
            return;
        }
        let mut jobs = self.0.borrow_mut();
        if jobs.len() >= MAX_JOBS {
            jobs.clear();
        }
        jobs.insert(job.id.clone(), Held { rowid, body, progress, job: job.clone() });
    }

    /// Gives a job of this id, and forgets it.
    pub(super) fn take(&self, id: &str) -> Option<Held> {
        self.0.borrow_mut().remove(id)
    }
}
