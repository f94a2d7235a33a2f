//! Bounds on requests that hold connections or memory for long.

use std::sync::Arc;
use std::time::Duration;

use agent_core::request::Principal;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};

use super::anonymous::AnonymousBodies;
use super::bundle_downloads::BundleDownloads;
use super::response_readers::ResponseReaders;
use crate::error::HttpError;
use crate::exchange_permit::ExchangePermit;
use crate::state::RequestSender;

/// Divisor of the maximum number of connections, and the number of its parts that the requests, readers and downloads of one
/// company do not have together. The tool server's and runs have other bounds.
const CONNECTION_PARTS: u32 = 16;
const FREE_PARTS: u32 = 7;
/// Divisor of the maximum number of connections: the requests of one company in progress, without those of visitors.
const COMPANY_SHARE: u32 = 4;
/// Divisor of the maximum number of connections: the requests of the visitors of one company in progress.
const VISITOR_SHARE: u32 = 8;
/// `Retry-After` of a request that is refused.
const RETRY_AFTER: Duration = Duration::from_secs(3);

/// Bounds on requests that hold connections or memory for long.
#[derive(Debug)]
pub struct RequestBounds {
    /// Bodies that are read before their sender is authenticated.
    pub(in crate::app) anonymous_bodies: AnonymousBodies,
    /// Requests with a body or an effect, without those of visitors: from their authentication until their response begins, or
    /// until it is sent if it is whole and large. Those that wait for a run or an extraction are not counted between their body
    /// and their response.
    requests: Arc<CompanyPermits>,
    /// The same of visitors, who are not known to the company, so that they take no room from its users; and their large
    /// responses to other requests.
    visitor_requests: Arc<CompanyPermits>,
    /// Readers of runs' logs, of downloads and of users' large responses.
    pub(in crate::app) readers: ResponseReaders,
    /// Bundles of runs that are in memory.
    pub(in crate::app) bundle_downloads: BundleDownloads,
}

impl RequestBounds {
    /// Creates the bounds of a server with at most `connections` connections.
    #[must_use]
    pub fn new(connections: u32) -> Self {
        let of_company = connections - (connections / CONNECTION_PARTS) * FREE_PARTS;
        let all = CompanyPermits::new(usize::MAX, of_company.max(1) as usize);
        let share =
            |divisor: u32| CompanyPermits::within(&all, usize::MAX, (connections / divisor).max(1) as usize);
        Self {
            anonymous_bodies: AnonymousBodies::new(connections),
            requests: share(COMPANY_SHARE),
            visitor_requests: share(VISITOR_SHARE),
            readers: ResponseReaders::new(connections, &all),
            bundle_downloads: BundleDownloads::default(),
        }
    }

    /// Returns the permit of a download of threads; see [`hold_while_read`](super::hold_while_read). One of a visitor is among the
    /// visitors' requests.
    ///
    /// # Errors
    /// 429 if the company, its visitors or all companies together have as many as they may have.
    pub(in crate::app) fn admit_thread_download(
        &self,
        principal: &Principal,
    ) -> Result<CompanyPermit, HttpError> {
        let RequestSender { company_id, is_visitor } = RequestSender::of(principal);
        match is_visitor {
            true => self.visitor_requests.try_acquire(company_id).ok_or_else(too_many_requests),
            false => self.readers.admit_download(company_id),
        }
    }

    /// Admits a request. `is_query` is true for one without a body and an effect, which is refused only if its response is large.
    ///
    /// # Errors
    /// 429 if the company, or its visitors, have as many requests in progress as they may have.
    pub(in crate::app) fn admit_exchange(
        &self,
        sender: RequestSender<'_>,
        is_query: bool,
    ) -> Result<ExchangePermit, HttpError> {
        let RequestSender { company_id, is_visitor } = sender;
        let requests = if is_visitor { &self.visitor_requests } else { &self.requests };
        match (is_query, is_visitor) {
            (true, false) => Ok(self.readers.permit_of_query(company_id)),
            (true, true) => {
                let (permits, company_id) = (requests.clone(), company_id.clone());
                Ok(ExchangePermit::ForResponse { permits, company_id, refusal: too_many_requests })
            }
            (false, _) => {
                let permit = requests.try_acquire(company_id).ok_or_else(too_many_requests)?;
                Ok(ExchangePermit::Held(permit))
            }
        }
    }
}

fn too_many_requests() -> HttpError {
    let error = HttpError::rate_limited(Some(RETRY_AFTER));
    error.with_detail("too many requests of the company are sending their bodies or reading their responses")
}

#[cfg(test)]
mod tests {
    use agent_core::ids::CompanyId;
    use agent_core::tool::Caller;

    use super::*;

    #[test]
    fn requests_of_visitors_take_no_room_from_users_of_the_company() {
        let bounds = RequestBounds::new(16);
        let company_id = CompanyId::from("c1");
        let admit_all = |is_visitor| {
            let sender = RequestSender { company_id: &company_id, is_visitor };
            std::iter::from_fn(|| bounds.admit_exchange(sender, false).ok()).collect::<Vec<_>>()
        };
        let visitors = admit_all(true);
        let users = admit_all(false);
        assert_eq!((visitors.len(), users.len()), (2, 4));
        drop(visitors);
        assert_eq!(admit_all(true).len(), 2);
    }

    #[test]
    fn downloads_of_visitors_take_no_room_from_those_of_users() {
        let bounds = RequestBounds::new(16);
        let admit_all = |caller: Caller| {
            let principal = Principal::new("u", "c1", caller);
            std::iter::from_fn(|| bounds.admit_thread_download(&principal).ok()).collect::<Vec<_>>()
        };
        let visitors = admit_all(Caller::Widget);
        assert_eq!((visitors.len(), admit_all(Caller::Session).len()), (2, 7));
        drop(visitors);
        assert_eq!(admit_all(Caller::Session).len(), 8);
    }

    #[test]
    fn the_kinds_of_requests_of_a_company_leave_connections_to_others() {
        let bounds = RequestBounds::new(32);
        let admit = |company: &str, is_visitor| {
            let company_id = CompanyId::from(company);
            bounds.admit_exchange(RequestSender { company_id: &company_id, is_visitor }, false).ok()
        };
        let download = |company: &str| bounds.readers.admit_download(&company.into()).ok();
        let downloads: Vec<_> = std::iter::from_fn(|| download("c1")).collect();
        let requests: Vec<_> = std::iter::from_fn(|| admit("c1", false)).collect();
        assert_eq!((downloads.len(), requests.len()), (16, 2));
        assert!(admit("c1", true).is_none() && admit("c2", false).is_some() && download("c2").is_some());
    }
}
