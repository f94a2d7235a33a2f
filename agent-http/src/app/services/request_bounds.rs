//! Bounds on requests that hold connections or memory for long.

use std::sync::Arc;
use std::time::Duration;

use agent_platform::company_permits::{CompanyPermit, CompanyPermits};

use super::anonymous::AnonymousBodies;
use super::bundle_downloads::BundleDownloads;
use super::response_readers::ResponseReaders;
use crate::error::HttpError;
use crate::state::BodySender;

/// Divisor of the maximum number of connections: the bodies of one company that are being read, without those of visitors.
const COMPANY_BODY_SHARE: u32 = 4;
/// Divisor of the maximum number of connections: the bodies of the visitors of one company that are being read.
const VISITOR_BODY_SHARE: u32 = 8;
/// `Retry-After` of a request whose body is refused.
const BODY_RETRY_AFTER: Duration = Duration::from_secs(3);

/// Bounds on requests that hold connections or memory for long.
#[derive(Debug)]
pub struct RequestBounds {
    /// Bodies that are read before their sender is authenticated.
    pub(in crate::app) anonymous_bodies: AnonymousBodies,
    /// Bodies of companies that are being read, without those of visitors.
    bodies: Arc<CompanyPermits>,
    /// Bodies of visitors that are being read. Visitors are not known to the company, so they take no room from its users.
    visitor_bodies: Arc<CompanyPermits>,
    /// Readers of runs' logs and of downloads.
    pub(in crate::app) readers: ResponseReaders,
    /// Bundles of runs that are in memory.
    pub(in crate::app) bundle_downloads: BundleDownloads,
}

impl RequestBounds {
    /// Creates the bounds of a server with at most `connections` connections.
    #[must_use]
    pub fn new(connections: u32) -> Self {
        let share = |divisor: u32| CompanyPermits::new(usize::MAX, (connections / divisor).max(1) as usize);
        Self {
            anonymous_bodies: AnonymousBodies::new(connections),
            bodies: share(COMPANY_BODY_SHARE),
            visitor_bodies: share(VISITOR_BODY_SHARE),
            readers: ResponseReaders::new(connections),
            bundle_downloads: BundleDownloads::default(),
        }
    }

    /// Returns the permit to hold while a body is read.
    ///
    /// # Errors
    /// 429 if the company, or its visitors, have as many bodies as they may have.
    pub(in crate::app) fn admit_body(&self, sender: BodySender<'_>) -> Result<CompanyPermit, HttpError> {
        let bodies = if sender.is_visitor { &self.visitor_bodies } else { &self.bodies };
        bodies.try_acquire(sender.company_id).ok_or_else(|| {
            let error = HttpError::rate_limited(Some(BODY_RETRY_AFTER));
            error.with_detail("too many requests of the company are sending their bodies")
        })
    }
}

#[cfg(test)]
mod tests {
    use agent_core::ids::CompanyId;

    use super::*;

    #[test]
    fn bodies_of_visitors_take_no_room_from_users_of_the_company() {
        let bounds = RequestBounds::new(16);
        let company_id = CompanyId::from("c1");
        let admit_all = |is_visitor| {
            let sender = BodySender { company_id: &company_id, is_visitor };
            std::iter::from_fn(|| bounds.admit_body(sender).ok()).collect::<Vec<_>>()
        };
        let visitors = admit_all(true);
        let users = admit_all(false);
        assert_eq!((visitors.len(), users.len()), (2, 4));
        drop(visitors);
        assert_eq!(admit_all(true).len(), 2);
    }
}
