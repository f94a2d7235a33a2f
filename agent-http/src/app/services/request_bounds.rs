//! Bounds on requests that hold connections or memory for long.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_core::request::Principal;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};

use super::anonymous::AnonymousBodies;
use super::bundle_downloads::BundleDownloads;
use super::connection_shares::{
    COMPANY, COMPANY_CLIENTS, COMPANY_REQUESTS, COMPANY_TOOL_CALLS, COMPANY_VISITORS, ConnectionShare,
    VISITOR_REQUESTS,
};
use super::response_readers::ResponseReaders;
use crate::connection_permit::ConnectionPermit;
use crate::error::HttpError;
use crate::exchange_permit::ExchangePermit;
use crate::state::RequestSender;

/// `Retry-After` of a request that is refused.
const RETRY_AFTER: Duration = Duration::from_secs(3);

/// Bounds on requests that hold connections or memory for long.
#[derive(Debug)]
pub struct RequestBounds {
    /// Bodies that are read before their sender is authenticated.
    pub(in crate::app) anonymous_bodies: AnonymousBodies,
    /// Connections on which an authenticated request is in progress, until its response is written. Each of the kinds below
    /// has a separate share, so that one kind leaves room to others; this is the bound of all kinds together.
    connections: Arc<CompanyPermits>,
    /// Connections among them that are not used by the tool server.
    run_connections: Arc<CompanyPermits>,
    /// Connections among the latter that are not used by callbacks.
    client_connections: Arc<CompanyPermits>,
    /// Those of visitors among the clients'.
    visitor_connections: Arc<CompanyPermits>,
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
        let permits = |share: ConnectionShare| CompanyPermits::new(usize::MAX, share.of(connections));
        let within = |outer: &Arc<CompanyPermits>, share: ConnectionShare| {
            CompanyPermits::within(outer, usize::MAX, share.of(connections))
        };
        let all = permits(COMPANY);
        let run_share = COMPANY.of(connections) - COMPANY_TOOL_CALLS.of(connections);
        let of_runs = CompanyPermits::within(&all, usize::MAX, run_share.max(1));
        let of_clients = within(&of_runs, COMPANY_CLIENTS);
        Self {
            anonymous_bodies: AnonymousBodies::new(connections),
            visitor_connections: within(&of_clients, COMPANY_VISITORS),
            client_connections: of_clients,
            run_connections: of_runs,
            connections: all,
            requests: permits(COMPANY_REQUESTS),
            visitor_requests: permits(VISITOR_REQUESTS),
            readers: ResponseReaders::new(connections),
            bundle_downloads: BundleDownloads::default(),
        }
    }

    /// Counts a connection as one of a client until the response is written, or the connection ends.
    ///
    /// # Errors
    /// 429 if the company, or its visitors, have as many connections in use as they may have.
    pub(in crate::app) fn admit_client(
        &self,
        connection: &ConnectionPermit,
        sender: RequestSender<'_>,
    ) -> Result<(), HttpError> {
        let permits = if sender.is_visitor { &self.visitor_connections } else { &self.client_connections };
        acquire_connection(connection, permits, sender.company_id)
    }

    /// Counts a connection of a callback, as [`admit_client`](Self::admit_client) does that of a client.
    ///
    /// # Errors
    /// 429 if the company has as many connections in use for its clients and callbacks as it may have.
    pub(in crate::app) fn admit_callback(
        &self,
        connection: &ConnectionPermit,
        company_id: &CompanyId,
    ) -> Result<(), HttpError> {
        acquire_connection(connection, &self.run_connections, company_id)
    }

    /// Counts a connection to the tool server, as [`admit_client`](Self::admit_client) does that of a client.
    ///
    /// # Errors
    /// 429 if the company has as many connections in use as it may have.
    pub(in crate::app) fn admit_call(
        &self,
        connection: &ConnectionPermit,
        company_id: &CompanyId,
    ) -> Result<(), HttpError> {
        acquire_connection(connection, &self.connections, company_id)
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

    /// Admits a request whose connection counts already. `is_query` is true for one without a body and an effect, which is
    /// refused only if its response is large.
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

fn acquire_connection(
    connection: &ConnectionPermit,
    permits: &Arc<CompanyPermits>,
    company_id: &CompanyId,
) -> Result<(), HttpError> {
    match connection.acquire(permits, company_id) {
        true => Ok(()),
        false => Err(HttpError::rate_limited(Some(RETRY_AFTER))
            .with_detail("the company has reached its limit of connections for requests and streams")),
    }
}

fn too_many_requests() -> HttpError {
    let error = HttpError::rate_limited(Some(RETRY_AFTER));
    error.with_detail("too many requests of the company are sending their bodies or reading their responses")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use agent_core::tool::Caller;

    use super::*;
    use crate::endpoint::LimitedBody;
    use crate::serve::Peer;

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
        assert_eq!((visitors.len(), admit_all(Caller::Session).len()), (2, 8));
        drop(visitors);
        assert_eq!(admit_all(Caller::Widget).len(), 2);
    }

    /// Bodies without a credential that a tenant sends from many addresses.
    fn anonymous_bodies(bounds: &RequestBounds) -> usize {
        let admit = |number: u32| {
            let (mut head, ()) = http::Request::new(()).into_parts();
            head.extensions.insert(Peer((Ipv4Addr::from(number), 1).into()));
            bounds.anonymous_bodies.admit(&head, LimitedBody::empty()).map(|(_, permit)| permit).ok()
        };
        (1..).map_while(admit).collect::<Vec<_>>().len()
    }

    /// Connections that `acquire` counts, until one is refused.
    fn connections_of(acquire: impl Fn(&ConnectionPermit) -> Result<(), HttpError>) -> Vec<ConnectionPermit> {
        let connect = || Some(ConnectionPermit::default()).filter(|connection| acquire(connection).is_ok());
        std::iter::from_fn(connect).collect()
    }

    #[test]
    fn callbacks_leave_connections_to_the_tool_calls_of_their_runs() {
        let company_id = CompanyId::from("c1");
        let sender = RequestSender { company_id: &company_id, is_visitor: false };
        for limit in (16..=300).chain([1_000, 10_000]) {
            let bounds = RequestBounds::new(limit);
            let clients = connections_of(|connection| bounds.admit_client(connection, sender));
            let callbacks = connections_of(|connection| bounds.admit_callback(connection, &company_id));
            assert!(limit < 32 || !callbacks.is_empty(), "clients leave none to callbacks, {limit}");
            drop((clients, callbacks));
            let callbacks = connections_of(|connection| bounds.admit_callback(connection, &company_id));
            let calls = connections_of(|connection| bounds.admit_call(connection, &company_id));
            assert!(!callbacks.is_empty() && !calls.is_empty(), "callbacks leave none to calls, {limit}");
        }
    }

    #[test]
    fn one_tenant_leaves_connections_to_others_at_each_limit() {
        for limit in (16..=300).chain([400, 512, 1_000, 1_023, 1_024, 1_025, 2_000, 4_096, 10_000, 65_537]) {
            let bounds = RequestBounds::new(limit);
            let company_id = CompanyId::from("c1");
            let client = |is_visitor| RequestSender { company_id: &company_id, is_visitor };
            let visitors = connections_of(|connection| bounds.admit_client(connection, client(true)));
            let users = connections_of(|connection| bounds.admit_client(connection, client(false)));
            let calls = connections_of(|connection| bounds.admit_call(connection, &company_id));
            for (name, held) in [("visitors", &visitors), ("users", &users), ("calls", &calls)] {
                assert!(!held.is_empty(), "the others leave none to {name}, {limit}");
            }
            let held = visitors.len() + users.len() + calls.len() + anonymous_bodies(&bounds);
            // Permits that are not reserved for addresses with few connections.
            let common = limit - (limit / 16).min(64);
            assert!(held < common as usize, "{held} of {common}, {limit}");
            let (connection, other) = (ConnectionPermit::default(), CompanyId::from("c2"));
            assert!(bounds.admit_call(&connection, &other).is_ok(), "{limit}");
        }
    }
}
