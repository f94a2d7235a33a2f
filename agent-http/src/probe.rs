//! Health: whether the process lives, whether it may be sent traffic, and what it is.
//!
//! None of these routes asks for a credential, so none says anything that a stranger should not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::metrics::Metrics;
use crate::request::{self, Handled};
use crate::serve::full;

/// The routes of every service's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `GET /livez`: the process answers.
    Live,
    /// `GET /readyz`: it may be sent traffic; 503 while it drains.
    Ready,
    /// `GET /health`: what it is.
    Health,
    /// `GET /metrics`: what it has counted.
    Metrics,
}

/// The lines that a service adds to its table of routes.
pub fn routes<H>(handler: impl Fn(Route) -> H) -> [request::Route<H>; 4] {
    [
        ("/livez", Route::Live),
        ("/readyz", Route::Ready),
        ("/health", Route::Health),
        ("/metrics", Route::Metrics),
    ]
    .map(|(path, route)| request::Route::new(Method::GET, path, handler(route)))
}

/// A service's state as its probes tell it.
pub struct Probe {
    started: Instant,
    draining: AtomicBool,
    extra: Value,
    metrics: Arc<Metrics>,
}

impl Probe {
    /// A service that is ready. `extra` is an object whose members `/health` shows.
    pub fn new(extra: Value) -> Self {
        Self { started: Instant::now(), draining: AtomicBool::new(false), extra, metrics: Arc::default() }
    }

    /// Says from now on that no new traffic should come.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// What the service counts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Answers one of the [routes](Route).
    pub fn answer(&self, route: Route) -> Handled {
        self.answer_with(route, json!({}))
    }

    /// The same, with members that `/health` shows beside its own, and may show in place of them. A `status`
    /// other than `ok` makes it a 503.
    pub fn answer_with(&self, route: Route, now: Value) -> Handled {
        if route == Route::Metrics {
            return Ok(self.metrics.answer());
        }
        let draining = self.draining.load(Ordering::Relaxed);
        let (mut status, mut body) = match route {
            Route::Ready if draining => (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "draining"})),
            _ => (StatusCode::OK, json!({"status": "ok"})),
        };
        if route == Route::Health {
            body["version"] = env!("CARGO_PKG_VERSION").into();
            body["uptimeMs"] = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).into();
            for extra in [&self.extra, &now].into_iter().filter_map(Value::as_object) {
                body.as_object_mut().expect("it was made as an object").extend(extra.clone());
            }
            if body["status"] != "ok" {
                status = StatusCode::SERVICE_UNAVAILABLE;
            }
        }
        let mut response = Response::new(full(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }
}
