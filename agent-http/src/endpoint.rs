//! Endpoints of a service: one table of method, path, credential class, limits, description and handler.
//!
//! A service lists its [`Endpoint`]s once. [`service`] routes, authenticates and handles requests by the table, and
//! [`openapi`](crate::openapi) describes the table's operations. The credential class is a parameter of every
//! constructor, and its type decides what the handler gets: the session's principal, for example.

mod context;
mod credential;
mod operation;
mod route;
mod schemas;

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Method, Request};
use serde_json::Value;
use tower::Layer;

use crate::body::Body;
use crate::connection_permit::ConnectionPermit;
use crate::cors::{self, ProtocolHeaders};
use crate::error::ErrorFormat;
use crate::exchange_permit::ExchangePermit;
use crate::metrics;
use crate::request::BodyLimits;
use crate::request_trace::RequestTrace;
use crate::service::{HandlerResult, HttpService, service_fn};
use crate::state::ServiceState;

pub(crate) use context::{LimitedBody, RequestContext};
pub(crate) use credential::{Authenticate, CredentialClass, Public};
pub(crate) use operation::{Operation, string_schema};
pub(crate) use route::{Params, PathSet, Route, RouteTable};
pub(crate) use schemas::{Schemas, openai_error_response, problem_response};

/// Function that describes an endpoint as an OpenAPI operation.
pub(crate) type DescribeFn = fn(&mut Schemas) -> Operation;

/// Handler of an endpoint, which authenticates the request first. Boxed, so that the future of a request is not as
/// large as that of the service's largest handler.
type Handler<S> = Box<dyn Fn(RequestContext<S>) -> BoxFuture<'static, HandlerResult> + Send + Sync>;

/// Async function that handles the requests of an endpoint. `V` is the result of the credential's verification.
pub(crate) trait HandlerFn<S, V>: Copy + Send + Sync + 'static {
    /// Handles a request.
    fn call(
        self,
        context: RequestContext<S>,
        verified: V,
    ) -> impl Future<Output = HandlerResult> + Send + 'static;
}

impl<S, V, F, Fut> HandlerFn<S, V> for F
where
    F: Fn(RequestContext<S>, V) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'static,
{
    fn call(
        self,
        context: RequestContext<S>,
        verified: V,
    ) -> impl Future<Output = HandlerResult> + Send + 'static {
        self(context, verified)
    }
}

/// Limit on the size of an endpoint's bodies.
enum BodySizeLimit<S> {
    /// The lower one of this size in bytes and the service's limit.
    AtMost(usize),
    /// A limit from the state, which replaces the service's limit.
    FromState(fn(&S) -> usize),
}

/// Endpoint of a service with the state `S`.
///
/// A path is a pattern; see [`Route`].
pub(crate) struct Endpoint<S> {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) class: CredentialClass,
    describe: DescribeFn,
    handler: Handler<S>,
    body_size: BodySizeLimit<S>,
    answers_head: bool,
    is_open_to_any_origin: bool,
}

impl<S: ServiceState> Endpoint<S> {
    /// Creates a `GET` endpoint.
    pub(crate) fn get<C: Authenticate<S>>(
        path: &'static str,
        credential: C,
        handler: impl HandlerFn<S, C::Verified>,
        describe: DescribeFn,
    ) -> Self {
        Self::new(Method::GET, path, credential, handler, describe)
    }

    /// Creates a `POST` endpoint.
    pub(crate) fn post<C: Authenticate<S>>(
        path: &'static str,
        credential: C,
        handler: impl HandlerFn<S, C::Verified>,
        describe: DescribeFn,
    ) -> Self {
        Self::new(Method::POST, path, credential, handler, describe)
    }

    /// Creates a `PUT` endpoint.
    pub(crate) fn put<C: Authenticate<S>>(
        path: &'static str,
        credential: C,
        handler: impl HandlerFn<S, C::Verified>,
        describe: DescribeFn,
    ) -> Self {
        Self::new(Method::PUT, path, credential, handler, describe)
    }

    /// Creates a `PATCH` endpoint.
    pub(crate) fn patch<C: Authenticate<S>>(
        path: &'static str,
        credential: C,
        handler: impl HandlerFn<S, C::Verified>,
        describe: DescribeFn,
    ) -> Self {
        Self::new(Method::PATCH, path, credential, handler, describe)
    }

    /// Creates a `DELETE` endpoint.
    pub(crate) fn delete<C: Authenticate<S>>(
        path: &'static str,
        credential: C,
        handler: impl HandlerFn<S, C::Verified>,
        describe: DescribeFn,
    ) -> Self {
        Self::new(Method::DELETE, path, credential, handler, describe)
    }

    /// Creates an endpoint.
    pub(crate) fn new<C: Authenticate<S>>(
        method: Method,
        path: &'static str,
        credential: C,
        handler: impl HandlerFn<S, C::Verified>,
        describe: DescribeFn,
    ) -> Self {
        let handler: Handler<S> = Box::new(move |mut context| {
            Box::pin(async move {
                let verified = credential.authenticate(&context.state, &context.head).await?;
                if C::is_authenticated(&verified) {
                    ConnectionPermit::of(&context.head).mark_authenticated();
                }
                let is_query = context.head.method.is_safe() && context.body.is_empty();
                let mut permit = match C::sender(&verified) {
                    Some(sender) => {
                        let connection = ConnectionPermit::of(&context.head);
                        context.state.admit_exchange(&connection, sender, is_query)?
                    }
                    None => None,
                };
                if C::AWAITS_WORK {
                    let (of_body, of_response) = permit.map(ExchangePermit::split_around_work).unzip();
                    context.body.hold(of_body.flatten());
                    permit = of_response;
                }
                if C::CLASS.may_continue_trace() {
                    RequestTrace::of(&context.head).continue_headers(&context.head.headers);
                }
                let response = handler.call(context, verified).await?;
                match permit {
                    Some(permit) => permit.hold(response),
                    None => Ok(response),
                }
            })
        });
        Self {
            method,
            path,
            class: C::CLASS,
            describe,
            handler,
            body_size: BodySizeLimit::AtMost(usize::MAX),
            answers_head: true,
            is_open_to_any_origin: false,
        }
    }

    /// Limits the body to `bytes`, if the service's own limit is not lower.
    pub(crate) fn max_body_bytes(self, bytes: usize) -> Self {
        Self { body_size: BodySizeLimit::AtMost(bytes), ..self }
    }

    /// Replaces the service's limit on the body's size by one in bytes from the state, which may be higher.
    pub(crate) fn own_body_limit(self, limit: fn(&S) -> usize) -> Self {
        Self { body_size: BodySizeLimit::FromState(limit), ..self }
    }

    /// Excludes `HEAD`: for a `GET` whose handler has side effects.
    pub(crate) fn without_head(self) -> Self {
        Self { answers_head: false, ..self }
    }

    /// Answers a CORS preflight from any origin. The handler checks the origin of the request itself.
    pub(crate) fn open_to_any_origin(self) -> Self {
        Self { is_open_to_any_origin: true, ..self }
    }

    /// Returns the OpenAPI operation object.
    pub(crate) fn operation(&self, schemas: &mut Schemas) -> Value {
        (self.describe)(schemas).into_object(self.path, self.class)
    }

    fn into_route(self) -> Route<Self> {
        let (method, path, answers_head) = (self.method.clone(), self.path, self.answers_head);
        let route = Route::new(method, path, self);
        if answers_head { route } else { route.without_head() }
    }

    fn run(
        &self,
        state: Arc<S>,
        params: Params,
        request: Request<Body>,
    ) -> BoxFuture<'static, HandlerResult> {
        let (head, body) = request.into_parts();
        let base = state.base();
        let bytes = match self.body_size {
            BodySizeLimit::AtMost(bytes) => base.body.bytes.min(bytes),
            BodySizeLimit::FromState(limit) => limit(&state),
        };
        let limits = BodyLimits { bytes, ..base.body.clone() };
        let body = LimitedBody { body, limits, json_depth: base.json_depth, _permit: None };
        (self.handler)(RequestContext { state, head, params, body })
    }
}

/// Creates the HTTP service of a table of endpoints. `headers` are the headers of the protocols that its endpoints speak, and
/// `error_format` is the format of errors at a path.
///
/// # Panics
///
/// Panics if a path is malformed, or if two endpoints answer the same requests. Tables are part of the program, so
/// either is a bug.
pub(crate) fn service<S: ServiceState>(
    state: Arc<S>,
    endpoints: Vec<Endpoint<S>>,
    headers: &'static [ProtocolHeaders],
    error_format: fn(&str) -> ErrorFormat,
) -> impl HttpService {
    let open = endpoints.iter().filter(|endpoint| endpoint.is_open_to_any_origin);
    let open = Arc::new(PathSet::new(open.map(|endpoint| endpoint.path)));
    let is_open = move |path: &str| open.contains(path);
    let cors = cors::layer(state.base().origins.clone(), is_open, headers);
    let metrics = state.base().health.metrics().clone();
    let table = Arc::new(RouteTable::new(endpoints.into_iter().map(Endpoint::into_route)));
    let service = service_fn(move |request: Request<Body>| {
        let format = error_format(request.uri().path());
        let handled = handle(state.clone(), table.clone(), request);
        async move { handled.await.map_err(|error| error.with_format(format)) }
    });
    metrics::count_requests(metrics, cors.layer(service))
}

async fn handle<S: ServiceState>(
    state: Arc<S>,
    table: Arc<RouteTable<Endpoint<S>>>,
    request: Request<Body>,
) -> HandlerResult {
    if let Some(connection) = request.extensions().get::<ConnectionPermit>() {
        connection.begin_request();
    }
    let (endpoint, params) = table.find(&request)?;
    endpoint.run(state, params, request).await
}
