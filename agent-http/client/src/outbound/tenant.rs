//! Tenants on whose behalf requests are sent.

use std::future::Future;
use std::sync::Arc;

use http::header::HeaderName;

/// Header of a request to the operator's own runtime that names the company on whose behalf the application sends it. The value
/// is percent-encoded as in a form; the runtime only compares it.
pub const COMPANY_HEADER: HeaderName = HeaderName::from_static("x-company-id");

tokio::task_local! {
    /// Tenant of the requests that the current task sends.
    static TENANT: Arc<str>;
}

/// Attributes the requests that `requests` sends to a tenant: its company, or its user where the company is not known.
///
/// A tenant has a share of the lookups of supplied names. Requests without a tenant have one share together. Tasks that
/// the future spawns are not attributed.
pub fn for_tenant<F: Future>(tenant: &str, requests: F) -> impl Future<Output = F::Output> + use<F> {
    TENANT.scope(tenant.into(), requests)
}

/// Calls `work` on behalf of a tenant, as [`for_tenant`] polls a future.
pub fn in_tenant<T>(tenant: Arc<str>, work: impl FnOnce() -> T) -> T {
    TENANT.sync_scope(tenant, work)
}

/// Returns the tenant of the current task; an empty one if there is none.
pub fn current_tenant() -> Arc<str> {
    TENANT.try_with(Arc::clone).unwrap_or_default()
}
