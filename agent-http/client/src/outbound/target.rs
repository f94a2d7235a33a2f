//! Checked targets of outbound requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_core::error::AgentError;
use http::{HeaderValue, Uri};

use super::agent_error;
use super::connect::Connector;

/// A URL that has passed the address policy, parsed once for any number of requests. Clones share it.
#[derive(Clone)]
pub struct Target(Arc<TargetParts>);

pub(super) struct TargetParts {
    pub(super) connector: Connector,
    pub(super) uri: Uri,
    /// Scheme, host and port: the connection-pool key.
    pub(super) origin: Arc<str>,
    /// Request target in origin form (RFC 9112 section 3.2.1): path and query.
    pub(super) path: Uri,
    pub(super) host: HeaderValue,
    pub(super) user_agent: HeaderValue,
    pub(super) header_timeout: Duration,
}

impl Target {
    /// Creates a target from an absolute URI, serialized as by the URL standard.
    pub(super) fn new(
        connector: Connector,
        uri: Uri,
        user_agent: HeaderValue,
        header_timeout: Duration,
    ) -> Result<Self, AgentError> {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let origin = format!("{}://{authority}", uri.scheme_str().unwrap_or_default()).into();
        let host = HeaderValue::try_from(authority).map_err(agent_error::unsendable)?;
        let path = match uri.path_and_query() {
            Some(path) => Uri::from(path.clone()),
            None => Uri::default(),
        };
        Ok(Self(Arc::new(TargetParts { connector, uri, origin, path, host, user_agent, header_timeout })))
    }

    pub(super) fn parts(&self) -> &TargetParts {
        &self.0
    }
}

impl fmt::Debug for Target {
    /// Hides the address, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}
