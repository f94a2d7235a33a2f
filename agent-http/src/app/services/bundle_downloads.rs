//! Bounds on the bundles of runs that are in memory.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};

use crate::error::HttpError;

/// Maximum number of bundles that are made or sent at once. Each has the run's log in memory, several times while it is made.
const MAX_BUNDLES: usize = 8;
/// Maximum number of these of one company.
const MAX_BUNDLES_PER_COMPANY: usize = 2;
/// `Retry-After` of a request that is refused because of other requests.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Counts the bundles of runs that are made or sent, of all companies and of each.
#[derive(Debug)]
pub(in crate::app) struct BundleDownloads(Arc<CompanyPermits>);

impl Default for BundleDownloads {
    fn default() -> Self {
        Self(CompanyPermits::new(MAX_BUNDLES, MAX_BUNDLES_PER_COMPANY))
    }
}

impl BundleDownloads {
    /// Returns the permit to hold until the bundle has been sent.
    ///
    /// # Errors
    /// 429 if too many bundles are being made or sent, of the company or in total.
    pub(in crate::app) fn admit(&self, company_id: &CompanyId) -> Result<CompanyPermit, HttpError> {
        self.0.try_acquire(company_id).ok_or_else(|| {
            let error = HttpError::rate_limited(Some(RETRY_AFTER));
            error.with_detail("too many bundles of runs are in progress")
        })
    }
}
