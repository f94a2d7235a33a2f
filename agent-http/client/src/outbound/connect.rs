//! Acquires a connection for a request: an idle one from the pool, or a new one.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agent_core::error::AgentError;
use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

use super::agent_error;
use super::body::Segments;
use super::connect_error::ConnectError;
use super::connection::{BoxedIo, Connection};
use super::network::Network;
use super::pool::{Pool, PoolKey};
use super::pooled::PooledConnection;
use super::resolve::Resolver;
use crate::relay::RelayOptions;

/// Opens connections and pools the idle ones. Clones share the pool.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    https: HttpsConnector<Dialer>,
    timeout: Duration,
    pool: Arc<Pool>,
    relay: RelayOptions,
}

impl Connector {
    pub(super) fn new(
        dialer: Dialer,
        tls: Arc<rustls::ClientConfig>,
        timeout: Duration,
        pool: Arc<Pool>,
        relay: RelayOptions,
    ) -> Self {
        Self { https: HttpsConnector::from((dialer, tls)), timeout, pool, relay }
    }

    /// Sends a request to `origin`, and returns the connection and the response head.
    ///
    /// Idle connections are tried until one sends the request: a connection that the remote side has closed returns the request
    /// unsent. A request that was sent is never sent again, and none is sent after `deadline`, such as by a process that was
    /// stopped meanwhile.
    pub(super) async fn send(
        &self,
        (uri, origin): (&Uri, &Arc<str>),
        mut request: Request<Segments>,
        deadline: Option<Instant>,
    ) -> Result<(PooledConnection, Response<Incoming>), AgentError> {
        let origin = PoolKey::for_current_runtime(origin);
        while let Some(mut connection) = self.pool.take(&origin) {
            check_deadline(deadline)?;
            match connection.send(request).await {
                Ok(response) => return Ok((self.with_pool(connection, origin), response)),
                Err(mut unsent) => match unsent.take_message() {
                    Some(again) => request = again,
                    None => return Err(agent_error::from_send_error(unsent.into_error())),
                },
            }
        }
        let io = self.connect(uri.clone(), deadline).await.map_err(agent_error::from_connect_error)?;
        let mut connection = Connection::open(io, self.relay).await.map_err(agent_error::from_send_error)?;
        check_deadline(deadline)?;
        match connection.send(request).await {
            Ok(response) => Ok((self.with_pool(connection, origin), response)),
            Err(unsent) => Err(agent_error::from_send_error(unsent.into_error())),
        }
    }

    fn with_pool(&self, connection: Connection, origin: PoolKey) -> PooledConnection {
        PooledConnection { connection, origin, pool: Arc::downgrade(&self.pool) }
    }

    /// Opens a connection, until `deadline` at most: the failure of a request without a connection says that it was not sent.
    async fn connect(&self, uri: Uri, deadline: Option<Instant>) -> Result<BoxedIo, ConnectError> {
        // Not a duration until the deadline, which could end after the request was given up.
        let connect_by = Instant::now().checked_add(self.timeout).into_iter().chain(deadline).min();
        let connecting = self.https.clone().call(uri);
        let connected = match connect_by {
            Some(time) => tokio::time::timeout_at(time, connecting).await,
            None => Ok(connecting.await),
        };
        match connected {
            Ok(Ok(MaybeHttpsStream::Http(stream))) => Ok(Box::new(stream)),
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(ConnectError(error)),
            Err(elapsed) => Err(ConnectError(elapsed.into())),
        }
    }
}

fn check_deadline(deadline: Option<Instant>) -> Result<(), AgentError> {
    match deadline {
        Some(deadline) if Instant::now() >= deadline => Err(agent_error::from_connect_error(ConnectError(
            io::Error::from(io::ErrorKind::TimedOut).into(),
        ))),
        _ => Ok(()),
    }
}

/// Opens TCP connections only to the addresses that its resolver returns: a name is looked up once, and not again after
/// the check.
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
            let addresses = resolver.resolve(&uri).await?;
            Ok(TokioIo::new(network.connect(addresses, timeout).await?))
        })
    }
}
