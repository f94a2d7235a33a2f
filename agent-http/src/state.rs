//! State that every service has.

use agent_core::ids::CompanyId;
use agent_core::request::Principal;
use agent_core::tool::Caller;

use crate::connection_permit::ConnectionPermit;
use crate::cors::Origins;
use crate::error::HttpError;
use crate::exchange_permit::ExchangePermit;
use crate::health::HealthState;
use crate::request::BodyLimits;

/// State and limits that all endpoints of a service share.
pub struct ServiceBase {
    /// Limits on request bodies.
    pub body: BodyLimits,
    /// Maximum nesting depth of a request's JSON.
    pub json_depth: usize,
    /// State of the health endpoints, with the metrics.
    pub health: HealthState,
    /// Exact origins whose pages may send requests with credentials (CORS).
    pub origins: Origins,
}

/// State of a service: its own, and the base that all services have.
pub(crate) trait ServiceState: Send + Sync + 'static {
    /// Returns the base.
    fn base(&self) -> &ServiceBase;

    /// Admits a request on a connection. `is_query` is true for one without a body and an effect. Returns the permit of its
    /// response; `None` if the service does not count requests.
    ///
    /// # Errors
    /// 429 if the company, or its visitors, have too many requests in progress.
    fn admit_exchange(
        &self,
        _connection: &ConnectionPermit,
        _sender: RequestSender<'_>,
        _is_query: bool,
    ) -> Result<Option<ExchangePermit>, HttpError> {
        Ok(None)
    }
}

/// Authenticated sender of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSender<'s> {
    /// Company of the sender.
    pub(crate) company_id: &'s CompanyId,
    /// True for a visitor of a page: each client that opens the page gets the credential.
    pub(crate) is_visitor: bool,
}

impl<'s> RequestSender<'s> {
    /// Returns the sender with a principal.
    pub(crate) fn of(principal: &'s Principal) -> Self {
        Self { company_id: &principal.company_id, is_visitor: principal.caller == Caller::Widget }
    }
}
