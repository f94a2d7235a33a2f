//! Checked targets of outbound requests.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_core::error::Failure;
use agent_core::secret::Secret;
use http::{HeaderValue, Method, Uri, header};
use url::Url;

use super::connect::Connector;
use super::failure;
use super::request::{OutboundBody, OutboundRequest};
use super::{Outbound, Trust};

/// A URL that has passed the address policy, parsed once for any number of requests. Clones share it.
#[derive(Clone)]
pub struct Target(Arc<Address>);

pub(super) struct Address {
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
    ) -> Result<Self, Failure> {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let origin = format!("{}://{authority}", uri.scheme_str().unwrap_or_default()).into();
        let host = HeaderValue::try_from(authority).map_err(failure::unsendable)?;
        let path = match uri.path_and_query() {
            Some(path) => Uri::from(path.clone()),
            None => Uri::default(),
        };
        Ok(Self(Arc::new(Address { connector, uri, origin, path, host, user_agent, header_timeout })))
    }

    pub(super) fn address(&self) -> &Address {
        &self.0
    }

    /// Creates a request. Nothing is sent before [`OutboundRequest::send`].
    pub fn request(&self, method: Method) -> OutboundRequest {
        OutboundRequest::new(self.clone(), method)
    }

    /// Creates a `POST` request with a JSON body, an optional bearer token and the `Accept` header `accept`.
    ///
    /// # Errors
    /// See [`OutboundRequest::bearer`].
    pub fn post_json(
        &self,
        bearer: Option<&Secret>,
        accept: &'static str,
        body: impl Into<OutboundBody>,
    ) -> Result<OutboundRequest, Failure> {
        let request = self
            .request(Method::POST)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(header::ACCEPT, HeaderValue::from_static(accept))
            .body(body);
        match bearer {
            Some(secret) => request.bearer(secret),
            None => Ok(request),
        }
    }
}

/// A URL whose [`Target`] is created at its first use and cached. A refusal is not cached: it is decided at each use.
pub(crate) struct Endpoint {
    outbound: Outbound,
    pub(crate) url: Url,
    trust: Trust,
    target: OnceLock<Target>,
}

impl Endpoint {
    pub(crate) fn new(outbound: Outbound, url: Url, trust: Trust) -> Self {
        Self { outbound, url, trust, target: OnceLock::new() }
    }

    /// Returns the target, creating it at the first call.
    ///
    /// # Errors
    /// See [`Outbound::target`].
    pub(crate) fn target(&self) -> Result<&Target, Failure> {
        if let Some(target) = self.target.get() {
            return Ok(target);
        }
        let target = self.outbound.target(&self.url, self.trust)?;
        Ok(self.target.get_or_init(|| target))
    }
}

impl fmt::Debug for Target {
    /// Hides the address, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}
