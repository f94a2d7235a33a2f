//! From a request to a connection that carries it: an idle one, or a new one.

use std::error::Error;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agent_core::error::Failure;
use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::connection::Connection;
use super::failure;
use super::network::Network;
use super::pool::{Origin, Pool};
use super::request::Segments;
use super::resolve::Resolver;
use super::target::Address;

/// What a connection reads from and writes to, boxed since the state of TLS is far larger than a bare socket, and
/// is there as long as the connection.
pub(super) type Io = Box<dyn Stream>;

pub(super) trait Stream: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Stream for T {}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
#[error("the connection cannot be made")]
pub(super) struct ConnectError(#[source] Box<dyn Error + Send + Sync>);

/// Makes connections, and keeps them while they are idle. Clones share the idle ones.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    https: HttpsConnector<Dialer>,
    timeout: Duration,
    pool: Arc<Pool>,
}

impl Connector {
    pub(super) fn new(
        dialer: Dialer,
        tls: Arc<rustls::ClientConfig>,
        timeout: Duration,
        pool: Arc<Pool>,
    ) -> Self {
        Self { https: HttpsConnector::from((dialer, tls)), timeout, pool }
    }

    /// Sends a request to the origin of `address`, and gives its response head with the connection.
    ///
    /// Idle connections are tried as long as they hand the request back unsent, which is how one that
    /// the other side has closed in the meantime shows itself. What was sent is not sent again.
    pub(super) async fn send(
        &self,
        address: &Address,
        mut request: Request<Segments>,
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        let origin = Origin::here(&address.origin);
        while let Some(mut connection) = self.pool.take(&origin) {
            match connection.send(request).await {
                Ok(response) => return Ok((connection, response)),
                Err(mut unsent) => match unsent.take_message() {
                    Some(again) => request = again,
                    None => return Err(failure::send(unsent.into_error())),
                },
            }
        }
        let io = self.connect(address.uri.clone()).await.map_err(failure::connect)?;
        let mut connection =
            Connection::open(io, origin, Arc::downgrade(&self.pool)).await.map_err(failure::send)?;
        match connection.send(request).await {
            Ok(response) => Ok((connection, response)),
            Err(unsent) => Err(failure::send(unsent.into_error())),
        }
    }

    async fn connect(&self, uri: Uri) -> Result<Io, ConnectError> {
        match tokio::time::timeout(self.timeout, self.https.clone().call(uri)).await {
            Ok(Ok(MaybeHttpsStream::Http(stream))) => Ok(Box::new(stream)),
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(ConnectError(error)),
            Err(elapsed) => Err(ConnectError(elapsed.into())),
        }
    }
}

/// Opens TCP connections to the addresses that its resolver lets through, and to no others: a name is looked up
/// once, and nothing after the check looks it up again.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    pub(super) resolver: Resolver,
    pub(super) network: Arc<dyn Network>,
    pub(super) timeout: Duration,
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { resolver, network, timeout } = self.clone();
        Box::pin(async move {
            let addresses = resolver.addresses(&uri).await?;
            Ok(TokioIo::new(network.connect(addresses, timeout).await?))
        })
    }
}
