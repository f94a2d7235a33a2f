//! MCP requests: their bodies, errors and CORS headers, for the server in [`agent_mcp`].

use agent_core::tool::{Caller, ExecutionContext};
use agent_mcp::headers;
use agent_mcp::server::{AdmissionError, AuditError, McpServer};
use agent_platform::records::StoreError;
use bytes::Bytes;
use http::{Method, Request};

use crate::body::Body;
use crate::cors::ProtocolHeaders;
use crate::error::{Code, HttpError};
use crate::request::{BodyLimits, read_json_bytes};
use crate::request_trace::RequestTrace;
use crate::service::HandlerResult;
use crate::state::RequestSender;

/// Header names of MCP clients in browsers, for the CORS layer.
pub(crate) const CORS_HEADERS: ProtocolHeaders =
    ProtocolHeaders { request: headers::REQUEST_HEADERS, response: headers::RESPONSE_HEADERS };

/// Handles a request to the server's URL; the method must be GET, POST or DELETE. The body is read within `limits`, and
/// only after the head was accepted.
///
/// # Errors
///
/// 403 for a foreign `Host` or `Origin`; 400, 401 or 403 for an ambiguous, missing or mismatched credential; 406 for an
/// unsupported `Accept`; 408, 413 or 415 for a body that cannot be read; 503 if the store is unavailable.
pub async fn handle(server: &McpServer, limits: &BodyLimits, request: Request<Body>) -> HandlerResult {
    handle_admitted(server, limits, request, |_| Ok(())).await
}

/// Handles a request as [`handle`] does. `admit` returns the permit that is held while the body is read, or refuses the request.
pub(crate) async fn handle_admitted<P>(
    server: &McpServer,
    limits: &BodyLimits,
    request: Request<Body>,
    admit: impl FnOnce(RequestSender<'_>) -> Result<P, HttpError>,
) -> HandlerResult {
    let (head, body) = request.into_parts();
    let authorized = server.authorize(&head).await?;
    if authorized.is_authenticated() {
        RequestTrace::of(&head).continue_headers(&head.headers);
    }
    let ExecutionContext { company_id, caller, .. } = authorized.context();
    let permit = admit(RequestSender { company_id, is_visitor: *caller == Caller::Widget })?;
    let body = match head.method {
        Method::POST => read_json_bytes(&head.headers, body, limits).await?,
        _ => Bytes::new(),
    };
    drop(permit);
    Ok(authorized.respond(head, body).await)
}

impl From<AdmissionError> for HttpError {
    fn from(error: AdmissionError) -> Self {
        let detail = error.to_string();
        match error {
            AdmissionError::UnknownHost
            | AdmissionError::UnknownOrigin
            | AdmissionError::ParameterMismatch(_) => Self::forbidden(detail),
            AdmissionError::RepeatedParameter(_) => Self::new(Code::InvalidRequest, detail),
            AdmissionError::AmbiguousCredentials => Self::new(Code::AmbiguousCredentials, detail),
            AdmissionError::InvalidToken => Self::invalid_token(detail),
            AdmissionError::Unauthenticated(_) => Self::unauthenticated(detail),
            AdmissionError::NotAcceptable => Self::new(Code::NotAcceptable, detail),
            AdmissionError::Store(error @ StoreError::Unavailable(_)) => error.into(),
            error => Self::internal(error),
        }
    }
}

impl From<AuditError> for HttpError {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::InvalidCursor => Self::new(Code::InvalidRequest, error.to_string()),
            AuditError::Store(error @ StoreError::Unavailable(_)) => error.into(),
            error => Self::internal(error),
        }
    }
}
