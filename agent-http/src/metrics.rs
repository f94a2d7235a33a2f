//! Metrics of a service, exported by `GET /metrics` in Prometheus's text format.
//!
//! Every label has a bounded set of values: the route pattern instead of the path, the supported methods, the numeric
//! status. Counting takes a read lock and an addition; only a scrape iterates over all metrics.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body::Body as _;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::body::{Body, ResponseBody, full};
use crate::service::HttpService;

/// Content type of OpenMetrics text, which Prometheus supports since 2.5.
const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Route label of requests that match no route.
const UNMATCHED_ROUTE: &str = "unmatched";

/// Metrics of a service.
#[derive(Debug)]
pub struct Metrics {
    /// Locked to register and to scrape, but not to count.
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    in_flight: Gauge,
    streams: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: &'static str,
    status: u32,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("agentd");
        let (requests, in_flight, streams) = (Family::default(), Gauge::default(), Gauge::default());
        registry.register("http_requests", "Number of completed HTTP requests", requests.clone());
        registry.register(
            "http_requests_in_flight",
            "Number of HTTP requests in progress",
            in_flight.clone(),
        );
        registry.register(
            "http_streams_in_flight",
            "Number of response streams in progress",
            streams.clone(),
        );
        registry.register(
            "build",
            "Build information",
            Info::new(vec![("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        );
        registry.register_collector(Box::new(Uptime(Instant::now())));
        Self { registry: Mutex::new(registry), requests, in_flight, streams }
    }
}

impl Metrics {
    /// Registers additional metrics; `register` must use unique names.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        // A registry is consistent after each registration, so that a poisoned lock can be used.
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Encodes all metrics as text.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &registry) {
            // Writing to a string does not fail, so the error comes from a collector.
            let _ = write!(text, "# {error}\n# EOF\n");
        }
        text
    }

    /// Returns the response to `GET /metrics`.
    pub fn response(&self) -> Response<ResponseBody> {
        let mut response = Response::new(full(self.encode()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_CONTENT_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

#[derive(Debug)]
struct Uptime(Instant);

impl Collector for Uptime {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let seconds = ConstGauge::new(self.0.elapsed().as_secs_f64());
        let kind = seconds.metric_type();
        seconds.encode(encoder.encode_descriptor(
            "uptime_seconds",
            "Time since the process started",
            None,
            kind,
        )?)
    }
}

/// Request extension that records the matched route.
#[derive(Debug, Clone, Default)]
pub(crate) struct MatchedRoute(Arc<OnceLock<&'static str>>);

impl MatchedRoute {
    /// Records the route pattern.
    pub(crate) fn record(&self, pattern: &'static str) {
        // A request has one route; a second call would record the same.
        let _ = self.0.set(pattern);
    }
}

/// Response extension that counts the exchange as in flight until the server has dropped the body.
#[derive(Clone)]
pub(crate) struct InFlightMetric {
    _counted: Arc<InFlightCount>,
}

struct InFlightCount {
    metrics: Arc<Metrics>,
    streams: bool,
}

impl Drop for InFlightCount {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        if self.streams {
            self.metrics.streams.dec();
        }
    }
}

/// Wraps `inner` in a service that counts its requests.
pub(crate) fn count_requests<S: HttpService>(metrics: Arc<Metrics>, inner: S) -> MetricsService<S> {
    MetricsService { metrics, inner }
}

/// Service returned by [`count_requests`].
#[derive(Debug, Clone)]
pub(crate) struct MetricsService<S> {
    metrics: Arc<Metrics>,
    inner: S,
}

impl<S: HttpService> tower_service::Service<Request<Body>> for MetricsService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = MetricsFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let route = MatchedRoute::default();
        request.extensions_mut().insert(route.clone());
        let method = method_label(request.method());
        self.metrics.in_flight.inc();
        let counted = InFlightCount { metrics: self.metrics.clone(), streams: false };
        MetricsFuture { inner: self.inner.call(request), route, method, counted: Some(counted) }
    }
}

pin_project_lite::pin_project! {
    /// Response future of a [`MetricsService`].
    pub(crate) struct MetricsFuture<F> {
        #[pin]
        inner: F,
        route: MatchedRoute,
        method: &'static str,
        counted: Option<InFlightCount>,
    }
}

impl<F, E> Future for MetricsFuture<F>
where
    F: Future<Output = Result<Response<ResponseBody>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut response = ready!(this.inner.poll(cx))?;
        if let Some(mut counted) = this.counted.take() {
            let route = this.route.0.get().copied().unwrap_or(UNMATCHED_ROUTE);
            let status = response.status().as_u16().into();
            let labels = RequestLabels { method: this.method, route, status };
            counted.metrics.requests.get_or_create(&labels).inc();
            counted.streams = response.body().size_hint().exact().is_none();
            if counted.streams {
                counted.metrics.streams.inc();
            }
            response.extensions_mut().insert(InFlightMetric { _counted: Arc::new(counted) });
        }
        Poll::Ready(Ok(response))
    }
}

/// Returns the method label. Clients can send arbitrary methods, so methods without routes share one label.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;
    use crate::body::streaming;
    use crate::endpoint::{Route, RouteTable};
    use crate::service::service_fn;

    #[tokio::test]
    async fn requests_are_counted_by_their_routes_pattern() {
        let metrics = Arc::new(Metrics::default());
        let routes = Arc::new(RouteTable::new([Route::new(Method::GET, "/things/{id}", ())]));
        let service = service_fn(move |request: Request<Body>| {
            let routes = routes.clone();
            async move {
                let (_, params) = routes.find(&request)?;
                Ok(Response::new(match params.get("id")? {
                    "stream" => streaming(futures_util::stream::pending::<Result<_, std::io::Error>>()),
                    _ => full("one"),
                }))
            }
        });
        let service = count_requests(metrics.clone(), service);
        let ask = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            service.clone().oneshot(request)
        };
        for (method, path) in [
            ("GET", "/things/1"),
            ("GET", "/things/2"),
            ("DELETE", "/things/1"),
            ("PATCH", "/things/1"),
            ("BREW", "/pot?x"),
        ] {
            drop(ask(method, path).await.unwrap());
        }
        let stream = ask("GET", "/things/stream").await.unwrap();
        let text = metrics.encode();
        for line in [
            "agentd_http_requests_total{method=\"GET\",route=\"/things/{id}\",status=\"200\"} 3\n",
            "agentd_http_requests_total{method=\"DELETE\",route=\"unmatched\",status=\"405\"} 1\n",
            "agentd_http_requests_total{method=\"PATCH\",route=\"unmatched\",status=\"405\"} 1\n",
            "agentd_http_requests_total{method=\"other\",route=\"unmatched\",status=\"404\"} 1\n",
            "agentd_http_requests_in_flight 1\n",
            "agentd_http_streams_in_flight 1\n",
            "agentd_uptime_seconds ",
            "agentd_build_info{version=\"",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        drop(stream);
        assert!(metrics.encode().contains("agentd_http_streams_in_flight 0\n"));
        assert!(metrics.encode().contains("agentd_http_requests_in_flight 0\n"));
    }
}
