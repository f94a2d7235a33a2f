//! Bounds on requests that hold connections or memory for long.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};

use super::anonymous::AnonymousBodies;
use super::bundle_downloads::BundleDownloads;
use super::response_readers::ResponseReaders;
use crate::error::HttpError;

/// Divisor of the maximum number of connections: the bodies of one company that are being read.
const COMPANY_BODY_SHARE: u32 = 4;
/// `Retry-After` of a request whose body is refused.
const BODY_RETRY_AFTER: Duration = Duration::from_secs(3);

/// Bounds on requests that hold connections or memory for long.
#[derive(Debug)]
pub struct RequestBounds {
    /// Bodies that are read before their sender is authenticated.
    pub(in crate::app) anonymous_bodies: AnonymousBodies,
    /// Bodies of companies that are being read.
    bodies: Arc<CompanyPermits>,
    /// Readers of runs' logs and of downloads.
    pub(in crate::app) readers: ResponseReaders,
    /// Bundles of runs that are in memory.
    pub(in crate::app) bundle_downloads: BundleDownloads,
}

impl RequestBounds {
    /// Creates the bounds of a server with at most `connections` connections.
    #[must_use]
    pub fn new(connections: u32) -> Self {
        Self {
            anonymous_bodies: AnonymousBodies::new(connections),
            bodies: CompanyPermits::new(usize::MAX, (connections / COMPANY_BODY_SHARE).max(1) as usize),
            readers: ResponseReaders::new(connections),
            bundle_downloads: BundleDownloads::default(),
        }
    }

    /// Returns the permit to hold while a body of the company is read.
    ///
    /// # Errors
    /// 429 if the company has as many bodies as it may have.
    pub(in crate::app) fn admit_body(&self, company_id: &CompanyId) -> Result<CompanyPermit, HttpError> {
        self.bodies.try_acquire(company_id).ok_or_else(|| {
            let error = HttpError::rate_limited(Some(BODY_RETRY_AFTER));
            error.with_detail("too many requests of the company are sending their bodies")
        })
    }
}
