//! Request parsing: request ids, bounded bodies, JSON, query parameters and routing.
//!
//! Invalid input becomes an [`HttpError`] that names the field and the fault, and never repeats submitted values: a
//! body may contain a secret, and problem responses end up in logs and screenshots.

mod body;
mod id;
mod json;
mod query;
mod route;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};

use crate::error::HttpError;
use crate::serve::{Body, ResponseBody};

pub use body::{BodyLimits, read_body, read_json, read_json_bytes};
pub use id::RequestId;
pub use json::{MAX_JSON_DEPTH, parse_json};
pub(crate) use json::{is_deeper_than, redact_serde_message, truncate_chars};
pub use query::Query;
pub use route::{Params, Route, RouteLookup, RouteTable};

/// Result of a handler.
pub type HandlerResult = Result<Response<ResponseBody>, HttpError>;

/// Converts an async handler function into a service, which turns its errors into responses.
///
/// Layers such as CORS wrap this service, so that problem responses pass through them too and browsers can read them:
///
/// ```no_run
/// # async fn run(listener: tokio::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
/// use agent_http::{cors, error::HttpError, request, serve};
/// use tower::Layer;
///
/// let app = request::service(|_request| async { Err(HttpError::not_found()) });
/// let origins = cors::parse_origins("https://app.example")?;
/// let app = cors::layer(origins, &["/api/agent/chat"]).layer(app);
/// serve::serve(listener, app, serve::ServeLimits::default(), std::future::pending()).await?;
/// # Ok(())
/// # }
/// ```
pub fn service<F, Fut>(handler: F) -> HandlerService<F>
where
    F: Fn(Request<Body>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    HandlerService(handler)
}

/// Service returned by [`service`].
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
