//! Client of one issuer.

use std::sync::Arc;

use agent_core::clock::Clock;

use super::IssuerConfig;
use crate::outbound::OutboundClient;

/// Client of one issuer.
#[derive(Clone)]
pub struct DeviceAuthClient {
    pub(super) outbound: OutboundClient,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) config: Arc<IssuerConfig>,
}

impl std::fmt::Debug for DeviceAuthClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceAuthClient").finish_non_exhaustive()
    }
}

impl DeviceAuthClient {
    /// Creates a client. Nothing is sent yet.
    pub fn new(outbound: OutboundClient, clock: Arc<dyn Clock>, config: IssuerConfig) -> Self {
        Self { outbound, clock, config: config.into() }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &IssuerConfig {
        &self.config
    }
}
