//! One request/response exchange: its request id, span and access-log line, and the error responses for malformed
//! targets and panics.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use agent_client::keep_alive::KEEP_ALIVE;
use agent_client::relay::RelayOptions;
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tower::ServiceExt;
use tracing::{Instrument, Span};

use super::Peer;
use super::eviction::Evictable;
use super::target::check_target;
use super::waiting::PROBE_PATHS;
use crate::body::{Body, BodyError, EntersSpan, ResponseBody};
use crate::error::HttpError;
use crate::metrics::InFlightMetric;
use crate::request::truncate_chars;
use crate::request_id::RequestId;
use crate::request_trace::RequestTrace;
use crate::service::HttpService;
use crate::shutdown::{Shutdown, shutting_down};

/// Maximum length of a logged path, in characters; longer paths are truncated.
const MAX_LOGGED_PATH_CHARS: usize = 256;

/// hyper service of one connection.
pub(super) struct ExchangeService<S> {
    /// Shared by all connections, since layers can make it large.
    service: Arc<S>,
    peer: SocketAddr,
    unread: Arc<AtomicBool>,
    /// Value of the `Keep-Alive` response header, which announces the idle timeout.
    keep_alive: Option<HeaderValue>,
    defers_log: bool,
    shutdown: Shutdown,
    evictable: Arc<Evictable>,
}

impl<S> ExchangeService<S> {
    pub(super) fn new(
        service: Arc<S>,
        peer: SocketAddr,
        unread: Arc<AtomicBool>,
        keep_alive: Option<HeaderValue>,
        relay: &RelayOptions,
        shutdown: Shutdown,
        evictable: Arc<Evictable>,
    ) -> Self {
        let defers_log = relay.deferred_access_log;
        Self { service, peer, unread, keep_alive, defers_log, shutdown, evictable }
    }
}

impl<S: HttpService> hyper::service::Service<Request<Incoming>> for ExchangeService<S> {
    type Response = Response<ObservedBody>;
    type Error = Infallible;
    // hyper reserves room for a future of this type for the lifetime of the connection. Boxing it per exchange frees
    // the handler's state when its response begins, so that a stream does not keep it.
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.evictable.begin_exchange();
        let mut request = request.map(|incoming| Body::from_connection(incoming, self.unread.clone()));
        request.extensions_mut().insert(self.evictable.connection_permit().clone());
        let (unread, keep_alive) = (self.unread.clone(), self.keep_alive.clone());
        let evictable = self.evictable.clone();
        let exchange =
            exchange(request, S::clone(&self.service), self.peer, self.defers_log, self.shutdown.clone());
        let exchange = exchange.map(move |mut response| {
            let is_refused = evictable.connection_permit().is_refused();
            response.body_mut().evictable = Some(evictable);
            // hyper closes a connection whose request body was not read to its end, without announcing it. Without
            // `Connection: close` the client would send its next request into the closing connection.
            if is_refused || unread.load(Ordering::Relaxed) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            if let Some(keep_alive) = keep_alive.filter(|_| !response.headers().contains_key(CONNECTION)) {
                response.headers_mut().insert(KEEP_ALIVE, keep_alive);
            }
            Ok(response)
        });
        Box::pin(exchange)
    }
}

async fn exchange<S: HttpService>(
    mut request: Request<Body>,
    service: S,
    peer: SocketAddr,
    defers_log: bool,
    shutdown: Shutdown,
) -> Response<ObservedBody> {
    let id = RequestId::from_headers(request.headers());
    let span = tracing::info_span!("request", id = id.as_str());
    let trace = RequestTrace::default();
    let mut access = AccessLogEntry::new(&request, span.clone(), trace.clone());

    let checked = span.in_scope(|| check_target(&request));
    let mut response = match checked {
        Ok(()) => {
            request.extensions_mut().insert(id.clone());
            request.extensions_mut().insert(Peer(peer));
            request.extensions_mut().insert(trace);
            let answer = AssertUnwindSafe(async move { service.oneshot(request).await });
            let answer = answer.catch_unwind().instrument(span.clone());
            match shutdown.run_until_ending(answer).await {
                Some(Ok(Ok(response))) => response,
                Some(Ok(Err(never))) => match never {},
                Some(Err(panic)) => {
                    span.in_scope(|| HttpError::internal(PanicError::from(panic)).into_response(&id))
                }
                None => span.in_scope(|| HttpError::from(shutting_down()).into_response(&id)),
            }
        }
        Err(error) => {
            // The next request on a connection with a malformed target may be smuggled (RFC 9112 section 11.2), so it
            // closes.
            let mut response = span.in_scope(|| error.into_response(&id));
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response
        }
    };
    response.headers_mut().insert(RequestId::HEADER, id.into());
    access.status = Some(response.status());
    access.in_flight = response.extensions_mut().remove();
    let enters_span = response.extensions_mut().remove::<EntersSpan>().is_some();
    response.map(|inner| ObservedBody {
        inner,
        enters_span,
        access: Some(access),
        defers_log,
        evictable: None,
    })
}

#[derive(Debug, thiserror::Error)]
#[error("the service panicked: {0}")]
struct PanicError(String);

impl From<Box<dyn Any + Send>> for PanicError {
    fn from(payload: Box<dyn Any + Send>) -> Self {
        let message = match payload.downcast::<String>() {
            Ok(message) => *message,
            Err(payload) => (*payload.downcast::<&str>().unwrap_or(Box::new("no message"))).to_owned(),
        };
        Self(message)
    }
}

/// Response body that is polled in its request's span. The access-log line is written after it is dropped.
pub(super) struct ObservedBody {
    inner: ResponseBody,
    enters_span: bool,
    /// `Some` until drop.
    access: Option<AccessLogEntry>,
    defers_log: bool,
    /// Entry of the connection, which is notified of the drop.
    evictable: Option<Arc<Evictable>>,
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let Some(access) = &mut this.access else { return Poll::Ready(None) };
        let mut poll = || Pin::new(&mut this.inner).poll_frame(cx);
        let frame = ready!(if this.enters_span { poll() } else { access.span.in_scope(poll) });
        match &frame {
            None => access.complete = true,
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                access.span.in_scope(|| tracing::warn!(%error, "the response body failed"));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        use http_body::Body as _;
        if let Some(evictable) = &self.evictable {
            evictable.end_response();
        }
        let Some(mut access) = self.access.take() else { return };
        // hyper does not poll a body to its end if the body already reports `is_end_stream`.
        access.complete |= self.inner.is_end_stream();
        access.in_flight = None;
        if !self.defers_log {
            return;
        }
        // hyper drops a body before it writes the last bytes. Deferring the log line to a task keeps those bytes from
        // waiting for the log. Without a runtime the line is written here.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { drop(access) });
        }
    }
}

/// Path of the metrics, which monitoring reads every few seconds.
const METRICS_PATH: &str = "/metrics";

/// Access-log entry, written on drop, so that an exchange that the client has cancelled is logged too.
struct AccessLogEntry {
    span: Span,
    trace: RequestTrace,
    method: Method,
    /// Path without the query, which may contain tokens.
    path: String,
    started: Instant,
    /// `None` until there is a response.
    status: Option<StatusCode>,
    /// True if the whole response body was handed to hyper.
    complete: bool,
    /// Guard of the in-flight metric, held until the body is dropped.
    in_flight: Option<InFlightMetric>,
}

impl AccessLogEntry {
    fn new(request: &Request<Body>, span: Span, trace: RequestTrace) -> Self {
        Self {
            span,
            trace,
            method: request.method().clone(),
            path: truncate_chars(request.uri().path(), MAX_LOGGED_PATH_CHARS).to_owned(),
            started: Instant::now(),
            status: None,
            complete: request.method() == Method::HEAD,
            in_flight: None,
        }
    }
}

/// Writes an access-log entry at the level of the macro.
macro_rules! write_entry {
    ($level:ident, $entry:ident) => {
        tracing::$level!(
            parent: &$entry.span,
            method = %$entry.method,
            path = $entry.path,
            status = $entry.status.map(|status| status.as_u16()),
            complete = $entry.complete,
            duration_ms = $entry.started.elapsed().as_millis() as u64,
            trace_id = $entry.trace.id(),
            "answered",
        )
    };
}

impl Drop for AccessLogEntry {
    fn drop(&mut self) {
        if is_routine(&self.path, self.status) {
            write_entry!(debug, self);
        } else {
            write_entry!(info, self);
        }
    }
}

/// Returns true for a successful probe or read of the metrics, which repeat every few seconds.
fn is_routine(path: &str, status: Option<StatusCode>) -> bool {
    let is_repeated = PROBE_PATHS.contains(&path) || path == METRICS_PATH;
    is_repeated && status.is_some_and(|status| status.is_success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_routine_while_they_succeed() {
        for (path, status, expected) in [
            ("/livez", Some(StatusCode::OK), true),
            ("/readyz", Some(StatusCode::OK), true),
            ("/metrics", Some(StatusCode::OK), true),
            ("/readyz", Some(StatusCode::SERVICE_UNAVAILABLE), false),
            ("/health", None, false),
            ("/api/agent/chat", Some(StatusCode::OK), false),
        ] {
            assert_eq!(is_routine(path, status), expected, "{path} {status:?}");
        }
    }
}
