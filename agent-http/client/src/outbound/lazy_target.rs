//! A target that is created at its first use.

use std::sync::OnceLock;

use agent_core::error::AgentError;
use url::Url;

use super::target::Target;
use super::{OutboundClient, UrlTrust};

/// A URL whose [`Target`] is created at its first use and cached. A refusal is not cached: it is decided at each use.
pub(crate) struct LazyTarget {
    outbound: OutboundClient,
    pub(crate) url: Url,
    trust: UrlTrust,
    target: OnceLock<Target>,
}

impl LazyTarget {
    pub(crate) fn new(outbound: OutboundClient, url: Url, trust: UrlTrust) -> Self {
        Self { outbound, url, trust, target: OnceLock::new() }
    }

    /// Returns the target, creating it at the first call.
    ///
    /// # Errors
    /// See [`OutboundClient::target`].
    pub(crate) fn target(&self) -> Result<&Target, AgentError> {
        if let Some(target) = self.target.get() {
            return Ok(target);
        }
        let target = self.outbound.target(&self.url, self.trust)?;
        Ok(self.target.get_or_init(|| target))
    }
}
