//! Jobs that were claimed, as they were written.
//!
//! A job that was claimed is read again when it has been delivered, by the same process and as that has written it,
//! mostly. Its texts are compared and need not be parsed then, which would be the dearest part of a step. Whatever
//! another process has made of the row, or a transaction that was rolled back has not: other texts are parsed.

use std::cell::RefCell;
use std::collections::HashMap;

use agent_core::job::{Job, MAX_CLAIM};

/// How many jobs are kept. Where there are more, all are forgotten.
const MAX_JOBS: usize = MAX_CLAIM;
/// The bytes of the longest texts that are kept: of jobs as they usually are, many times over.
const MAX_BYTES: usize = 8 * 1024;

/// Jobs by the numbers of their rows.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct HeldJobs(RefCell<HashMap<i64, Held>>);

#[derive(Debug)]
struct Held {
    body: String,
    progress: String,
    job: Job,
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
        jobs.insert(rowid, Held { body, progress, job: job.clone() });
    }

    /// Gives the job of a row, and its body, if it was written as these texts, and forgets it.
    pub(super) fn take(&self, rowid: i64, body: &str, progress: Option<&str>) -> Option<(Job, String)> {
        let held = self.0.borrow_mut().remove(&rowid)?;
        let as_written = held.body == body && Some(held.progress.as_str()) == progress;
        as_written.then_some((held.job, held.body))
    }
}
