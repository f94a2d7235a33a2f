//! The one guarded HTTP client: all that this program sends to others goes through here.
//!
//! Addresses come from two kinds of people. What the operator configured is trusted; what a role or a
//! request brings along is [`Trust::Supplied`], and reaches public addresses and the operator's
//! [`AllowList`] alone. A supplied URL with an IP address is decided before anything is sent. A supplied
//! URL with a name goes to a connector whose resolver checks every address that the name has; the
//! connection is made to the addresses that were checked, so that a second look-up cannot answer
//! differently. Connections are pooled apart, so that a supplied URL is never served by a connection that
//! was opened without the check; one that is kept stays with the address that was checked for it, whatever
//! its name has come to stand for.
//!
//! For every request: no redirect is followed (a 3xx is a failure), no proxy is taken from the
//! environment, a URL with user info is refused, HTTP/1.1 with `TCP_NODELAY` and keep-alive. Bodies are
//! not decompressed. A connection has no task of its own: whoever waits for the response or reads its
//! body drives it, so that what arrives is in their hands without a switch of tasks. Connecting and the
//! response head have time-outs; the body's silence is watched by whoever reads it.
//!
//! TLS is rustls with the ring provider and the Mozilla roots that are compiled in, so that it needs
//! no certificate store on the machine; an operator's own authorities come in by the configuration.
//!
//! Failures say publicly what kind of thing went wrong; the cause is for the log. Neither holds a path,
//! a query, a header, or anything that the other side wrote.

mod address;
mod connect;
mod connection;
mod failure;
mod network;
mod pool;
mod request;
mod resolve;
mod response;
mod target;

use std::sync::Arc;
use std::time::Duration;

use agent_core::error::Failure;
use agent_core::secret::Secret;
use http::header::InvalidHeaderValue;
use http::{HeaderValue, Method};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use url::Url;

pub use address::{AddressError, AllowError, AllowList, is_public};
pub use failure::{retry_after, status_failure};
pub use network::{Network, SystemNetwork};
pub use request::{OutboundBody, OutboundRequest};
pub use response::{BodyStream, OutboundResponse};
pub(crate) use target::Endpoint;
pub use target::Target;

use address::Route;
use connect::{Connector, Dialer};
use pool::Pool;
use resolve::Resolver;

/// Who named an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The operator, by configuration: reached wherever it is.
    Operator,
    /// A role or a request: reached where it is public or allowed.
    Supplied,
}

/// How the client behaves; `..Default::default()` fills in what is not named.
#[derive(Debug, Clone)]
pub struct OutboundConfig {
    /// What supplied addresses may reach although it is not public (`OUTBOUND_ALLOW`); nothing.
    pub allow: AllowList,
    /// For resolving, connecting and the TLS handshake together; 5 s.
    pub connect_timeout: Duration,
    /// From [`OutboundRequest::send`] to the response head; 60 s. A request may have its own.
    pub header_timeout: Duration,
    /// How many idle connections are kept for a host; 512, since what answers a role is often one host, and
    /// streams that end together begin together again.
    pub max_idle_per_host: usize,
    /// How long an idle connection is kept; 30 s.
    pub idle_timeout: Duration,
    /// The `User-Agent`; `agentd/` and the version.
    pub user_agent: String,
    /// Certificate authorities that are trusted beside the public ones; none.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// How names are looked up and connections made; the machine's own way.
    pub network: Arc<dyn Network>,
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
        }
    }
}

/// Why the client could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboundError {
    /// The TLS set-up failed, for instance by a certificate authority that cannot be read.
    #[error("the TLS configuration of outbound requests is unusable")]
    Tls(#[from] rustls::Error),
    /// The HTTP client refused its settings, for instance a user agent that is no header value.
    #[error("the HTTP client's configuration is unusable")]
    Client(#[from] InvalidHeaderValue),
}

/// The guarded client. Clones share its pools.
#[derive(Debug, Clone)]
pub struct Outbound {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    allow: Arc<AllowList>,
    /// Resolves freely: the operator's targets, and hosts that the operator listed.
    open: Connector,
    /// Refuses names that resolve to what is neither public nor in a listed network.
    filtered: Connector,
    header_timeout: Duration,
    user_agent: HeaderValue,
}

impl Outbound {
    /// Makes the client. Nothing is connected or resolved yet.
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
            Connector::new(dialer, tls.clone(), timeout, pool)
        };
        let open = connector(Resolver::open(network.clone()));
        let filtered = connector(Resolver::checked(network.clone(), allow.clone()));
        let header_timeout = config.header_timeout;
        Ok(Self { inner: Arc::new(Inner { allow, open, filtered, header_timeout, user_agent }) })
    }

    /// Starts a `POST` to `url`; see [`Self::request`].
    pub fn post(&self, url: &Url, trust: Trust) -> Result<OutboundRequest, Failure> {
        self.request(Method::POST, url, trust)
    }

    /// Starts a `POST` of JSON to `url`, with a bearer where there is one, asking for `accept`; see
    /// [`Self::request`] and [`OutboundRequest::bearer`].
    pub fn post_json(
        &self,
        url: &Url,
        trust: Trust,
        bearer: Option<&Secret>,
        accept: &'static str,
        body: impl Into<OutboundBody>,
    ) -> Result<OutboundRequest, Failure> {
        self.target(url, trust)?.post_json(bearer, accept, body)
    }

    /// Starts a `GET` of `url`; see [`Self::request`].
    pub fn get(&self, url: &Url, trust: Trust) -> Result<OutboundRequest, Failure> {
        self.request(Method::GET, url, trust)
    }

    /// Starts a request. Nothing is sent before [`OutboundRequest::send`].
    ///
    /// # Errors
    /// As [`Self::target`].
    pub fn request(&self, method: Method, url: &Url, trust: Trust) -> Result<OutboundRequest, Failure> {
        Ok(self.target(url, trust)?.request(method))
    }

    /// Where `url` leads, for who sends many requests there.
    ///
    /// # Errors
    /// An address that can be refused as it stands is refused here, as
    /// [`Blocked`](agent_core::error::FailureKind::Blocked); one that depends on what its name
    /// resolves to is refused, by the same kind, when a request is sent.
    pub fn target(&self, url: &Url, trust: Trust) -> Result<Target, Failure> {
        let connector = match self.inner.allow.route(url, trust).map_err(failure::blocked)? {
            Route::Open => &self.inner.open,
            Route::Filtered => &self.inner.filtered,
        };
        let uri = url.as_str().parse().map_err(failure::unsendable)?;
        let Inner { user_agent, header_timeout, .. } = &*self.inner;
        Target::new(connector.clone(), uri, user_agent.clone(), *header_timeout)
    }
}

/// The beginning of an HTTP client with this module's TLS and nothing else of its guards, for what the
/// operator fetches by hand.
///
/// # Errors
/// The TLS set-up failed.
pub fn tls_client_builder() -> Result<reqwest::ClientBuilder, OutboundError> {
    Ok(reqwest::Client::builder().tls_backend_preconfigured(tls_config(&[])?))
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
