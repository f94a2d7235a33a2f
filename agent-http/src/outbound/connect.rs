//! From a request to a connection that carries it: an idle one, or a new one.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use agent_core::error::Failure;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::connection::Connection;
use super::failure;
use super::pool::{Origin, Pool};
use super::request::Segments;
use super::resolve::Resolver;

/// What a connection reads from and writes to.
pub(super) type Io = MaybeHttpsStream<TokioIo<TcpStream>>;

/// After how much silence the kernel asks whether the other side is still there, and how often.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
#[error("the connection cannot be made")]
pub(super) struct ConnectError(#[source] Box<dyn Error + Send + Sync>);

/// Makes connections, and keeps them while they are idle. Clones share the idle ones.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    https: HttpsConnector<HttpConnector<Resolver>>,
    timeout: Duration,
    pool: Arc<Pool>,
}

impl Connector {
    pub(super) fn new(
        resolver: Resolver,
        tls: Arc<rustls::ClientConfig>,
        timeout: Duration,
        pool: Arc<Pool>,
    ) -> Self {
        let mut http = HttpConnector::new_with_resolver(resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeout));
        http.set_keepalive(Some(KEEPALIVE));
        http.set_keepalive_interval(Some(KEEPALIVE));
        http.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        Self { https: HttpsConnector::from((http, tls)), timeout, pool }
    }

    /// Sends a request to the origin of `uri`, and gives its response head with the connection.
    ///
    /// Idle connections are tried as long as they hand the request back unsent, which is how one that
    /// the other side has closed in the meantime shows itself. What was sent is not sent again.
    pub(super) async fn send(
        mut self,
        uri: Uri,
        mut request: Request<Segments>,
    ) -> Result<(Connection, Response<Incoming>), Failure> {
        let origin = Origin::of(&uri);
        while let Some(mut connection) = self.pool.take(&origin) {
            match connection.send(request).await {
                Ok(response) => return Ok((connection, response)),
                Err(mut unsent) => match unsent.take_message() {
                    Some(again) => request = again,
                    None => return Err(failure::send(unsent.into_error())),
                },
            }
        }
        let io = self.connect(uri).await.map_err(failure::connect)?;
        let mut connection =
            Connection::open(io, origin, Arc::downgrade(&self.pool)).await.map_err(failure::send)?;
        match connection.send(request).await {
            Ok(response) => Ok((connection, response)),
            Err(unsent) => Err(failure::send(unsent.into_error())),
        }
    }

    async fn connect(&mut self, uri: Uri) -> Result<Io, ConnectError> {
        match tokio::time::timeout(self.timeout, self.https.call(uri)).await {
            Ok(connected) => connected.map_err(ConnectError),
            Err(elapsed) => Err(ConnectError(elapsed.into())),
        }
    }
}
