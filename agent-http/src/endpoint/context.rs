//! Requests as handlers receive them.

use std::sync::Arc;
use std::time::Duration;

use agent_platform::company_permits::CompanyPermit;
use bytes::Bytes;
use http::{HeaderMap, Request, request};
use serde::de::DeserializeOwned;

use super::Params;
use crate::body::Body;
use crate::error::HttpError;
use crate::request::{BodyLimits, parse_json, read_body, read_json_bytes};

/// A routed and authenticated request, and the state of its service.
pub(crate) struct RequestContext<S> {
    /// State of the service.
    pub(crate) state: Arc<S>,
    /// Head of the request.
    pub(crate) head: request::Parts,
    /// Path parameters.
    pub(crate) params: Params,
    /// Body, unread.
    pub(crate) body: LimitedBody,
}

impl<S> RequestContext<S> {
    /// Converts into a plain request without the endpoint's limits; the reader of its body applies its own.
    pub(crate) fn into_request(self) -> Request<Body> {
        Request::from_parts(self.head, self.body.body)
    }
}

/// An unread body with the endpoint's limits.
pub(crate) struct LimitedBody {
    pub(super) body: Body,
    pub(super) limits: BodyLimits,
    pub(super) json_depth: usize,
    /// Permit of the sender's company that is held until the body has been read or dropped, of a request that then waits for a
    /// run or an extraction.
    pub(super) _permit: Option<CompanyPermit>,
}

impl LimitedBody {
    /// Returns an empty body.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self { body: Body::empty(), limits: BodyLimits::default(), json_depth: 1, _permit: None }
    }

    /// Returns true if the request has no body.
    pub(super) fn is_empty(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }

    /// Holds a permit until the body has been read or dropped.
    pub(super) fn hold(&mut self, permit: Option<CompanyPermit>) {
        self._permit = permit;
    }

    /// Shortens the timeouts to at most `idle` between two chunks and `total` for the whole body.
    pub(crate) fn with_timeouts(mut self, idle: Duration, total: Duration) -> Self {
        self.limits.idle = self.limits.idle.min(idle);
        self.limits.total = self.limits.total.min(total);
        self
    }

    /// Reads the whole body without parsing it. `headers` are its request's headers.
    ///
    /// # Errors
    /// Same as [`read_json_bytes`].
    pub(crate) async fn read_json_bytes(self, headers: &HeaderMap) -> Result<Bytes, HttpError> {
        read_json_bytes(headers, self.body, &self.limits).await
    }

    /// Reads the whole body of any content type. `headers` are its request's headers.
    ///
    /// # Errors
    /// Same as [`read_body`].
    pub(crate) async fn read_bytes(self, headers: &HeaderMap) -> Result<Bytes, HttpError> {
        read_body(headers, self.body, &self.limits).await
    }

    /// Reads the whole body and parses it as JSON. `headers` are its request's headers.
    ///
    /// # Errors
    /// Same as [`read_json_bytes`] and [`parse_json`].
    pub(crate) async fn read_json<T: DeserializeOwned>(self, headers: &HeaderMap) -> Result<T, HttpError> {
        Ok(self.read_json_with_bytes(headers).await?.0)
    }

    /// Reads the whole body, and returns it parsed as JSON and as it was sent. `headers` are those of its request.
    ///
    /// # Errors
    /// Same as [`read_json`](Self::read_json).
    pub(crate) async fn read_json_with_bytes<T: DeserializeOwned>(
        self,
        headers: &HeaderMap,
    ) -> Result<(T, Bytes), HttpError> {
        let json_depth = self.json_depth;
        let bytes = self.read_json_bytes(headers).await?;
        Ok((parse_json(&bytes, json_depth)?, bytes))
    }
}
