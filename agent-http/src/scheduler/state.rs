//! Shared state of the scheduler's HTTP routes, and their credential.

use std::sync::Arc;

use http::request;

use super::counts::JobCountCache;
use super::worker::Worker;
use crate::auth::BearerAuth;
use crate::endpoint::{Authenticate, CredentialClass};
use crate::error::HttpError;
use crate::state::{ServiceBase, ServiceState};

/// Shared state of the scheduler's HTTP routes.
pub struct Scheduler {
    /// The delivery worker; also tracks the jobs that this process has claimed.
    pub worker: Arc<Worker>,
    /// Cached job counts for `/health` and `/metrics`.
    pub counts: JobCountCache,
    /// Kind of the job store, as `/health` reports it.
    pub store_kind: &'static str,
    /// Checks that a request bears `PULSE_SECRET`.
    pub auth: BearerAuth,
    /// State and limits of all endpoints.
    pub base: ServiceBase,
}

impl ServiceState for Scheduler {
    fn base(&self) -> &ServiceBase {
        &self.base
    }
}

/// `PULSE_SECRET` as bearer token.
#[derive(Clone, Copy)]
pub(super) struct PulseSecret;

impl Authenticate<Scheduler> for PulseSecret {
    const CLASS: CredentialClass = CredentialClass::PulseSecret;
    type Verified = ();

    async fn authenticate(self, scheduler: &Scheduler, head: &request::Parts) -> Result<(), HttpError> {
        Ok(scheduler.auth.check(&head.headers)?)
    }
}
