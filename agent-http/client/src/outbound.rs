//! The guarded HTTP client through which this program sends every outbound request.
//!
//! URLs come from two sources. A URL that the operator configured is trusted; a URL from a role or a request is
//! [`UrlTrust::Supplied`] and reaches only public addresses and entries of the operator's [`AllowList`]. A supplied URL
//! with an IP address is decided before anything is sent. A supplied URL with a host name goes to a connector whose
//! resolver checks every address of the name. The connection is made to a checked address, so that DNS rebinding cannot
//! change the target between check and connect. Trusted and supplied URLs have separate connection pools, so that a
//! supplied URL never uses a connection that was opened without the check. A pooled connection keeps its checked
//! address, even if its name resolves differently later.
//!
//! Requests use HTTP/1.1 with `TCP_NODELAY` and keep-alive. No redirect is followed (a 3xx is a failure), no proxy is taken
//! from the environment, and a URL with user info is refused. Bodies are not decompressed. The task that awaits the response
//! or reads its body also drives the connection, which saves a task switch per read. Connecting and the response head have
//! timeouts; the reader of the body is responsible for an idle timeout.
//!
//! TLS is rustls with the ring provider and the compiled-in Mozilla roots, so that no certificate store on the machine
//! is needed; the operator's own certificate authorities are added by the configuration.
//!
//! The public message of a failure names only its category; its source is for the log. Neither contains a path, a
//! query, a header, or any text from the remote side.

mod address;
mod agent_error;
mod body;
mod connect;
mod connect_error;
mod connection;
mod lazy_target;
mod network;
mod pool;
mod pooled;
mod request;
mod resolve;
mod response;
mod target;
mod tenant;
mod timeout;
mod url_text;
mod url_trust;

use std::sync::Arc;
use std::time::Duration;

use agent_core::error::AgentError;
use agent_core::secret::Secret;
use http::header::InvalidHeaderValue;
use http::{HeaderValue, Method};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use url::Url;

pub use address::{AddressError, AllowList, AllowListError};

pub(crate) use agent_error::MAX_RETRY_AFTER;
pub use agent_error::{retry_after, status_failure, was_sent};
pub use body::OutboundBody;
pub(crate) use lazy_target::LazyTarget;
pub use network::{Network, SystemNetwork};
pub use request::OutboundRequest;
pub(crate) use response::media_type;
pub use response::{BodyStream, OutboundResponse};
pub use target::Target;
pub use tenant::{COMPANY_HEADER, current_tenant, for_tenant, in_tenant};
pub use url_text::{join_path, parse_supplied_url};
pub use url_trust::UrlTrust;

use address::AddressCheck;
use connect::{Connector, Dialer};
use pool::Pool;
use resolve::Resolver;

use crate::relay::RelayOptions;

/// Configuration of the client; `..Default::default()` fills in the fields that are not named.
#[derive(Debug, Clone)]
pub struct OutboundConfig {
    /// Non-public targets that supplied URLs may reach (`OUTBOUND_ALLOW`). Default: none.
    pub allow: AllowList,
    /// Timeout for name resolution, connect and TLS handshake together. Default: 5 s.
    pub connect_timeout: Duration,
    /// Timeout from [`OutboundRequest::send`] to the response head. Default: 60 s. A request may set its own.
    pub header_timeout: Duration,
    /// Maximum number of idle connections per origin. Default: 512, because all roles are often served by one host, and
    /// streams that end together tend to start together again.
    pub max_idle_per_host: usize,
    /// Maximum time that a connection stays idle in the pool. Default: 30 s.
    pub idle_timeout: Duration,
    /// Value of the `User-Agent` header. Default: `agentd/` and the version.
    pub user_agent: String,
    /// Certificate authorities trusted in addition to the public ones. Default: none.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Name resolution and TCP connect. Default: [`SystemNetwork`].
    pub network: Arc<dyn Network>,
    /// Optimizations of streams that are passed on. Default: the build's optimizations.
    pub relay: RelayOptions,
}

impl Default for OutboundConfig {
    fn default() -> Self {
        Self {
            allow: AllowList::default(),
            connect_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(60),
            max_idle_per_host: 512,
            idle_timeout: Duration::from_secs(30),
            user_agent: concat!("agentd/", env!("CARGO_PKG_VERSION")).to_owned(),
            extra_roots: Vec::new(),
            network: Arc::new(SystemNetwork),
            relay: RelayOptions::default(),
        }
    }
}

/// Error while building the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboundError {
    /// The TLS set-up failed, for instance because a certificate authority cannot be parsed.
    #[error("the TLS configuration for outbound requests is invalid")]
    Tls(#[from] rustls::Error),
    /// A setting of the HTTP client is invalid, for instance a user agent that is not a valid header value.
    #[error("the HTTP client's configuration is invalid")]
    Client(#[from] InvalidHeaderValue),
}

/// The guarded HTTP client. Clones share its connection pools.
#[derive(Debug, Clone)]
pub struct OutboundClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    allow: Arc<AllowList>,
    /// Connector without an address check: operator-configured targets and allow-listed hosts.
    unchecked: Connector,
    /// Connector that refuses names with an address that is neither public nor in an allow-listed network.
    checked: Connector,
    header_timeout: Duration,
    user_agent: HeaderValue,
}

impl OutboundClient {
    /// Creates the client. Nothing is connected or resolved yet.
    pub fn new(config: OutboundConfig) -> Result<Self, OutboundError> {
        let mut tls = tls_config(&config.extra_roots)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = Arc::new(tls);
        let user_agent = HeaderValue::try_from(&config.user_agent)?;
        let allow = Arc::new(config.allow);
        let (network, timeout) = (config.network, config.connect_timeout);
        let connector = |resolver| {
            let dialer = Dialer { resolver, network: network.clone(), timeout };
            let pool = Pool::new(config.max_idle_per_host, config.idle_timeout);
            Connector::new(dialer, tls.clone(), timeout, pool, config.relay)
        };
        let open = connector(Resolver::unchecked(network.clone()));
        let filtered = connector(Resolver::checked(network.clone(), allow.clone()));
        let header_timeout = config.header_timeout;
        Ok(Self {
            inner: Arc::new(Inner { allow, unchecked: open, checked: filtered, header_timeout, user_agent }),
        })
    }

    /// Creates a `POST` request to `url`; see [`Self::request`].
    pub fn post(&self, url: &Url, trust: UrlTrust) -> Result<OutboundRequest, AgentError> {
        self.request(Method::POST, url, trust)
    }

    /// Creates a `POST` request with a JSON body, an optional bearer token and the `Accept` header `accept`; see
    /// [`Self::request`] and [`OutboundRequest::bearer`].
    pub fn post_json(
        &self,
        url: &Url,
        trust: UrlTrust,
        bearer: Option<&Secret>,
        accept: &'static str,
        body: impl Into<OutboundBody>,
    ) -> Result<OutboundRequest, AgentError> {
        self.target(url, trust)?.post_json(bearer, accept, body)
    }

    /// Creates a `GET` request to `url`; see [`Self::request`].
    pub fn get(&self, url: &Url, trust: UrlTrust) -> Result<OutboundRequest, AgentError> {
        self.request(Method::GET, url, trust)
    }

    /// Creates a request. Nothing is sent before [`OutboundRequest::send`].
    ///
    /// # Errors
    /// See [`Self::target`].
    pub fn request(&self, method: Method, url: &Url, trust: UrlTrust) -> Result<OutboundRequest, AgentError> {
        Ok(self.target(url, trust)?.request(method))
    }

    /// Returns the checked target of `url`, for callers that send many requests to it.
    ///
    /// # Errors
    /// A URL that can be refused without resolving its name is refused here, as
    /// [`Blocked`](agent_core::error::AgentErrorKind::Blocked). A URL whose name resolves to a refused address fails
    /// with the same kind when a request is sent.
    pub fn target(&self, url: &Url, trust: UrlTrust) -> Result<Target, AgentError> {
        let connector = match self.inner.allow.check_url(url, trust).map_err(agent_error::blocked)? {
            AddressCheck::Unchecked => &self.inner.unchecked,
            AddressCheck::CheckResolved => &self.inner.checked,
        };
        let uri = url.as_str().parse().map_err(agent_error::unsendable)?;
        let Inner { user_agent, header_timeout, .. } = &*self.inner;
        Target::new(connector.clone(), uri, user_agent.clone(), *header_timeout)
    }
}

/// Returns the TLS configuration of a client without [`OutboundConfig::extra_roots`], for another HTTP client.
///
/// # Errors
/// The TLS set-up failed.
pub fn default_tls_config() -> Result<rustls::ClientConfig, OutboundError> {
    Ok(tls_config(&[])?)
}

fn tls_config(extra_roots: &[CertificateDer<'static>]) -> Result<rustls::ClientConfig, rustls::Error> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in extra_roots {
        roots.add(root.clone())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests;
