//! Looking names up and connecting, with the address policy between the two.

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

/// After how much silence the kernel asks whether the other side is still there, and how often.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;

/// What the client reaches the world by. [`SystemNetwork`] is the machine's own; another one may look names up in
/// a way of its own, or stand in for the world in a test.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// All addresses of a name. Their ports do not count. It may block, for it has a thread to itself.
    ///
    /// # Errors
    /// The name has none, or nobody can tell.
    fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>>;

    /// A connection to one of `addresses`, which have passed the policy, and to nowhere else.
    ///
    /// # Errors
    /// None of them answers in time.
    async fn connect(&self, addresses: Vec<SocketAddr>, timeout: Duration) -> io::Result<TcpStream>;
}

/// The system's resolver and TCP. Addresses of both families are tried side by side (RFC 8305).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNetwork;

#[async_trait]
impl Network for SystemNetwork {
    fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        Ok((name, 0).to_socket_addrs()?.collect())
    }

    async fn connect(&self, addresses: Vec<SocketAddr>, timeout: Duration) -> io::Result<TcpStream> {
        let mut http = HttpConnector::new_with_resolver(Checked(addresses));
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeout));
        http.set_keepalive(Some(KEEPALIVE));
        http.set_keepalive_interval(Some(KEEPALIVE));
        http.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        // The connector takes a name and no addresses. This one has no port, so that those of the addresses count.
        let connected = http.call(Uri::from_static("http://checked.invalid/")).await;
        connected.map(|io| io.into_inner()).map_err(io::Error::other)
    }
}

/// A resolver that has its answer already.
#[derive(Debug, Clone)]
struct Checked(Vec<SocketAddr>);

impl Service<Name> for Checked {
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
