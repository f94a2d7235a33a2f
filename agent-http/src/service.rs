//! HTTP services: the trait that the server runs, and handler functions as services.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};

use crate::body::{Body, ResponseBody};
use crate::error::HttpError;
use crate::request_id::RequestId;

/// Service that the server runs: an infallible [`tower_service::Service`] from requests to responses.
///
/// It is implemented for every matching `Service`, so that layers of tower and tower-http compose with it, and is not
/// meant to be implemented by hand. All connections share one service, which is cloned for each request.
pub trait HttpService:
    tower_service::Service<
        Request<Body>,
        Response = Response<ResponseBody>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> HttpService for S where
    S: tower_service::Service<
            Request<Body>,
            Response = Response<ResponseBody>,
            Error = Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static
{
}

/// Result of a handler.
pub type HandlerResult = Result<Response<ResponseBody>, HttpError>;

/// Converts an async handler function into a service, which turns its errors into responses.
///
/// Layers such as CORS wrap this service, so that problem responses pass through them too and browsers can read them:
///
/// ```no_run
/// # async fn run(listener: tokio::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
/// use agent_http::{cors, error::HttpError, serve, service::service_fn, shutdown::Shutdown};
/// use tower::Layer;
///
/// let app = service_fn(|_request| async { Err(HttpError::not_found()) });
/// let origins = cors::parse_origins("https://app.example")?;
/// let app = cors::layer(origins, |path| path == "/api/agent/chat", &[cors::ProtocolHeaders::default()]).layer(app);
/// serve::serve(listener, app, serve::ServeLimits::default(), Shutdown::default()).await?;
/// # Ok(())
/// # }
/// ```
pub fn service_fn<F, Fut>(handler: F) -> HandlerService<F>
where
    F: Fn(Request<Body>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    HandlerService(handler)
}

/// Service returned by [`service_fn`].
#[derive(Clone, Copy, Debug)]
pub struct HandlerService<F>(F);

impl<F, Fut> tower_service::Service<Request<Body>> for HandlerService<F>
where
    F: Fn(Request<Body>) -> Fut,
    Fut: Future<Output = HandlerResult>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = HandlerFuture<Fut>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> HandlerFuture<Fut> {
        let id =
            request.extensions().get().cloned().unwrap_or_else(|| RequestId::from_headers(request.headers()));
        HandlerFuture { handler: (self.0)(request), id }
    }
}

pin_project_lite::pin_project! {
    /// Response future of a [`HandlerService`].
    #[derive(Debug)]
    pub struct HandlerFuture<Fut> {
        #[pin]
        handler: Fut,
        id: RequestId,
    }
}

impl<Fut: Future<Output = HandlerResult>> Future for HandlerFuture<Fut> {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let id = &*this.id;
        this.handler.poll(cx).map(|handled| Ok(handled.unwrap_or_else(|error| error.into_response(id))))
    }
}
