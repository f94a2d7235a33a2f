//! Bounds on the readers of runs' logs.

use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};

use crate::error::{Code, HttpError};

/// Divisor of the maximum number of connections: the readers of one company.
const COMPANY_SHARE: u32 = 2;

/// Divisor of the maximum number of connections: what the readers of all companies leave to other requests.
const FREE_SHARE: u32 = 4;

/// Maximum number of logs that are collected to a single object in memory, of all companies and of one.
const MAX_COLLECTED: usize = 256;
const MAX_COMPANY_COLLECTED: usize = MAX_COLLECTED / 4;

/// Counts the clients that read logs of runs, of all companies and of each.
///
/// A reader of a live run holds its connection as long as the run lasts, and a run may have many of them. One that gets a
/// single object has the run's output in memory as well.
#[derive(Debug)]
pub(in crate::app) struct LogReaders {
    readers: Arc<CompanyPermits>,
    collected: Arc<CompanyPermits>,
}

/// Permit of a reader, released on drop.
#[derive(Debug)]
pub(in crate::app) struct LogReaderPermit {
    _reader: CompanyPermit,
    _collected: Option<CompanyPermit>,
}

impl LogReaders {
    /// Creates the bounds of a server with at most `connections` connections.
    pub(super) fn new(connections: u32) -> Self {
        let total = (connections - connections / FREE_SHARE).max(1) as usize;
        let of_company = (connections / COMPANY_SHARE).max(1) as usize;
        Self {
            readers: CompanyPermits::new(total, of_company),
            collected: CompanyPermits::new(MAX_COLLECTED, MAX_COMPANY_COLLECTED),
        }
    }

    /// Returns the permit to hold while a log is read. `is_collected` is true for a single object.
    ///
    /// # Errors
    /// 429 if the company, or all companies together, have as many readers as they may have.
    pub(in crate::app) fn admit(
        &self,
        company_id: &CompanyId,
        is_collected: bool,
    ) -> Result<LogReaderPermit, HttpError> {
        let acquire =
            |permits: &Arc<CompanyPermits>| permits.try_acquire(company_id).ok_or_else(too_many_readers);
        Ok(LogReaderPermit {
            _reader: acquire(&self.readers)?,
            _collected: is_collected.then(|| acquire(&self.collected)).transpose()?,
        })
    }
}

fn too_many_readers() -> HttpError {
    HttpError::new(Code::RateLimited, "too many run logs are being read, by the company or in total")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_company_has_half_of_the_connections_and_all_together_leave_a_quarter() {
        let readers = LogReaders::new(16);
        let admit = |company: &str| readers.admit(&company.into(), false);
        let mut permits: Vec<_> = std::iter::from_fn(|| admit("one").ok()).collect();
        assert_eq!(permits.len(), 8);
        permits.extend(std::iter::from_fn(|| admit("two").ok()));
        assert_eq!(permits.len(), 12);
        assert_eq!(admit("three").expect_err("all are taken").code(), Code::RateLimited);
        permits.truncate(7);
        assert!(admit("one").is_ok() && admit("three").is_ok());
        assert!(LogReaders::new(1).admit(&"one".into(), true).is_ok());
    }

    #[test]
    fn a_company_collects_few_logs_and_reads_others_meanwhile() {
        let readers = LogReaders::new(10_000);
        let admit = |company: &str, is_collected| readers.admit(&company.into(), is_collected).ok();
        let permits: Vec<_> = std::iter::from_fn(|| admit("one", true)).collect();
        assert_eq!(permits.len(), MAX_COMPANY_COLLECTED);
        assert!(admit("one", false).is_some() && admit("two", true).is_some());
        drop(permits);
        assert!(admit("one", true).is_some());
    }
}
