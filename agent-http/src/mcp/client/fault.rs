//! What a model is told when a tool server fails.

use std::error::Error;
use std::sync::Arc;

use agent_core::error::Failure;
use agent_core::tool::ToolError;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, RequestId, ServerJsonRpcMessage};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;

/// Marks an error that this side has found in an answer, among those that servers send.
const OURS: ErrorCode = ErrorCode(-32_099);

/// A failure of the exchange that `id` waits for, as the answer to it.
pub(super) fn as_answer(failure: &Failure, id: RequestId) -> ServerJsonRpcMessage {
    let error = ErrorData::new(OURS, failure.message().to_owned(), None);
    ServerJsonRpcMessage::Error(JsonRpcError::new(Some(id), error))
}

pub(super) fn unavailable(what: &str) -> ToolError {
    ToolError::Unavailable(what.to_owned())
}

/// Why a call has no result.
pub(super) fn of_call(error: ServiceError) -> ToolError {
    let text = match &error {
        ServiceError::McpError(data) => of_answer(data),
        ServiceError::TransportSend(sent) => of_exchange(sent.error.as_ref()),
        ServiceError::TransportClosed => "the tool server gave no answer to the call".to_owned(),
        ServiceError::UnexpectedResponse => "the tool server's answer is no tool result".to_owned(),
        _ => "the tool server failed".to_owned(),
    };
    ToolError::Unavailable(text)
}

/// Why there is no connection.
pub(super) fn of_greeting(error: &ClientInitializeError) -> Arc<str> {
    let text = match error {
        ClientInitializeError::TransportError { error, .. } => of_exchange(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => return of_greeting(fallback),
        ClientInitializeError::JsonRpcError(data) => of_answer(data),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "the tool server speaks no known revision of the protocol".to_owned()
        }
        ClientInitializeError::ConnectionClosed(_) => "the tool server gave no usable answer".to_owned(),
        _ => "the tool server's answer makes no sense".to_owned(),
    };
    text.into()
}

/// An error in an answer: the server's own, or one that this side has put in its place.
fn of_answer(data: &ErrorData) -> String {
    if data.code == OURS {
        return format!("the tool server failed: {}", data.message);
    }
    format!("the tool server refuses: {} ({})", data.message, data.code.0)
}

fn of_exchange(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<StreamableHttpError<Failure>>() {
        Some(StreamableHttpError::Client(failure)) => {
            format!("the tool server failed: {}", failure.message())
        }
        Some(StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_)) => {
            "the tool server has forgotten the session and opens no other".to_owned()
        }
        Some(StreamableHttpError::SessionRecoveryTimeout) => {
            "the tool server has forgotten the session, and the call may have run".to_owned()
        }
        _ => "the connection to the tool server was lost".to_owned(),
    }
}
