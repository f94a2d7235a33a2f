//! State that every service has.

use crate::cors::Origins;
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
}
