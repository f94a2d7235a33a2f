//! Name resolution and TCP connect, with the address policy applied between the two.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec::IntoIter;

use async_trait::async_trait;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::net::TcpStream;
use tower_service::Service;

/// TCP keep-alive: idle time before the first probe, and interval between probes.
const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const TCP_KEEPALIVE_RETRIES: u32 = 3;

/// Network access of the client: name resolution and TCP connect. [`SystemNetwork`] is the default; other
/// implementations may resolve names differently, or fake the network in a test.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Resolves a name to all of its addresses. Their ports are ignored. May block: it runs on a blocking thread.
    ///
    /// # Errors
    /// The name has no address, or the resolver failed.
    fn lookup_host(&self, name: &str) -> io::Result<Vec<SocketAddr>>;

    /// Connects to one of `addresses`, which have passed the address policy, and never to another address.
    ///
    /// # Errors
    /// None of the addresses accepts a connection within `timeout`.
    async fn connect(&self, addresses: Vec<SocketAddr>, timeout: Duration) -> io::Result<TcpStream>;
}

/// The system's resolver and TCP. Addresses of both families are tried in parallel (RFC 8305, happy eyeballs).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNetwork;

#[async_trait]
impl Network for SystemNetwork {
    fn lookup_host(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        Ok((name, 0).to_socket_addrs()?.collect())
    }

    async fn connect(&self, addresses: Vec<SocketAddr>, timeout: Duration) -> io::Result<TcpStream> {
        let mut http = HttpConnector::new_with_resolver(FixedResolver(addresses));
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeout));
        http.set_keepalive(Some(TCP_KEEPALIVE_INTERVAL));
        http.set_keepalive_interval(Some(TCP_KEEPALIVE_INTERVAL));
        http.set_keepalive_retries(Some(TCP_KEEPALIVE_RETRIES));
        // `HttpConnector` takes a name rather than addresses. This one has no port, so that the ports of the addresses
        // apply.
        let connected = http.call(Uri::from_static("http://checked.invalid/")).await;
        connected.map(|io| io.into_inner()).map_err(io::Error::other)
    }
}

/// A resolver that returns a fixed list of addresses that have already been checked.
#[derive(Debug, Clone)]
struct FixedResolver(Vec<SocketAddr>);

impl Service<Name> for FixedResolver {
    type Response = IntoIter<SocketAddr>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok(self.0.clone().into_iter()))
    }
}
