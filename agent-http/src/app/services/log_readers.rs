//! Bounds on the readers of runs' logs.

use std::sync::Arc;

use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};

use crate::error::{Code, HttpError};

/// Divisor of the maximum number of connections: the readers of one company.
const COMPANY_SHARE: u32 = 2;

/// Divisor of the maximum number of connections: what the readers of all companies leave to other requests.
const FREE_SHARE: u32 = 4;

/// Counts the clients that read logs of runs, of all companies and of each.
///
/// A reader of a live run holds its connection as long as the run lasts, and a run may have many of them.
#[derive(Debug)]
pub(in crate::app) struct LogReaders(Arc<CompanyPermits>);

impl LogReaders {
    /// Creates the bounds of a server with at most `connections` connections.
    pub(super) fn new(connections: u32) -> Self {
        let total = (connections - connections / FREE_SHARE).max(1) as usize;
        let of_company = (connections / COMPANY_SHARE).max(1) as usize;
        Self(CompanyPermits::new(total, of_company))
    }

    /// Returns the permit to hold while a log is read.
    ///
    /// # Errors
    /// 429 if the company, or all companies together, have as many readers as they may have.
    pub(in crate::app) fn admit(&self, company_id: &CompanyId) -> Result<CompanyPermit, HttpError> {
        self.0.try_acquire(company_id).ok_or_else(|| {
            HttpError::new(
                Code::RateLimited,
                "too many logs of runs are being read, of the company or in all",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_company_has_half_of_the_connections_and_all_together_leave_a_quarter() {
        let readers = LogReaders::new(16);
        let admit = |company: &str| readers.admit(&company.into());
        let mut permits: Vec<_> = std::iter::from_fn(|| admit("one").ok()).collect();
        assert_eq!(permits.len(), 8);
        permits.extend(std::iter::from_fn(|| admit("two").ok()));
        assert_eq!(permits.len(), 12);
        assert_eq!(admit("three").expect_err("all are taken").code(), Code::RateLimited);
        permits.truncate(7);
        assert!(admit("one").is_ok() && admit("three").is_ok());
        assert!(LogReaders::new(1).admit(&"one".into()).is_ok());
    }
}
