//! State that every service has.

use agent_core::ids::CompanyId;
use agent_platform::company_permits::CompanyPermit;

use crate::cors::Origins;
use crate::error::HttpError;
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

    /// Admits the body of a company's request. Returns the permit to hold until it has been read; `None` if the service does
    /// not count bodies.
    ///
    /// # Errors
    /// 429 if too many bodies of the company are being read.
    fn admit_body(&self, _company_id: &CompanyId) -> Result<Option<CompanyPermit>, HttpError> {
        Ok(None)
    }
}
