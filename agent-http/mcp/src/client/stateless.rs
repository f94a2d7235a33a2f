//! Client of revision 2026-07-28, which has no sessions: each request is one HTTP exchange, which nothing outlives.
//!
//! `rmcp` has the messages' types. Its client service is not used, because a run would pay for a task, channels and a
//! connection state that a single exchange does not need.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use agent_core::error::AgentError;
use agent_core::tool::{Progress, ToolError, ToolOutput};
use agent_platform::exact_json;
use agent_platform::own_tools::CallMeta;
use http::{HeaderName, HeaderValue, StatusCode};
use rmcp::model::{
    CallToolResult, ClientCapabilities, DiscoverResult, ErrorCode, ErrorData, InputRequiredResult,
    JsonObject, JsonRpcVersion2_0, ProgressNotificationParam, ProgressToken, ProtocolVersion, RequestId,
    RequestMetaObject, Tool,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::errors::{self, AnswerError, failed};
use super::exchange::{self, Answer, Exchange};
use super::message::{ListedTools, forward_progress, implementation, is_same_id};
use super::param_headers::header_value;
use crate::{meta as call_meta, output};

/// The revision of this client, and its text.
const VERSION: ProtocolVersion = ProtocolVersion::V_2026_07_28;
const VERSION_TEXT: &str = "2026-07-28";
/// Time after which a server that has not answered `server/discover` counts as one of an older revision.
const DISCOVER_TIMEOUT: Duration = Duration::from_secs(10);

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The part of `_meta` that all requests share: revision, name and capabilities of this client.
static CLIENT_META: LazyLock<RequestMetaObject> = LazyLock::new(|| {
    RequestMetaObject::with_client_context(VERSION, implementation(), ClientCapabilities::default())
});

/// Client of one run.
pub(super) struct StatelessClient {
    exchange: Exchange,
    /// Permits for concurrent calls.
    calls: Semaphore,
    next_id: AtomicI64,
}

/// Error of a request.
pub(super) enum ExchangeError {
    /// The server has sent a JSON-RPC error.
    Rpc { status: StatusCode, error: ErrorData },
    /// The server has sent an unsuccessful HTTP status and no JSON-RPC error.
    Status { status: StatusCode, failure: AgentError },
    /// The exchange failed, or its response cannot be read.
    Failed(AnswerError),
    /// The answer is to another request.
    Unanswered,
}

impl From<AnswerError> for ExchangeError {
    fn from(error: AnswerError) -> Self {
        Self::Failed(error)
    }
}

impl From<AgentError> for ExchangeError {
    fn from(failure: AgentError) -> Self {
        Self::Failed(failure.into())
    }
}

impl ExchangeError {
    /// Returns the message for the model.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Rpc { error, .. } => errors::format_rpc_error(error),
            Self::Status { failure, .. } => errors::format_failure(failure),
            Self::Failed(error) => errors::format_failure(&error.failure),
            Self::Unanswered => errors::NO_RESPONSE.to_owned(),
        }
    }

    /// Returns the error of a call.
    pub(super) fn into_tool_error(self) -> ToolError {
        let may_have_run = match &self {
            Self::Failed(error) => error.may_have_run,
            Self::Unanswered => true,
            Self::Status { status, failure } => errors::may_have_run(*status, failure),
            Self::Rpc { .. } => false,
        };
        errors::tool_error(self.message(), may_have_run)
    }

    /// Returns true if the server may have rejected the request because it does not support the revision. Such a server
    /// has not processed the request.
    pub(super) fn may_reject_revision(&self) -> bool {
        match self {
            Self::Rpc { error, .. } if error.code == ErrorCode::INVALID_PARAMS => false,
            Self::Rpc { error, .. } if is_unsupported(error.code) => true,
            Self::Rpc { status, .. } | Self::Status { status, .. } => is_rejection(*status),
            Self::Failed(_) | Self::Unanswered => false,
        }
    }
}

fn is_unsupported(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::METHOD_NOT_FOUND | ErrorCode::UNSUPPORTED_PROTOCOL_VERSION)
}

/// Returns true for the statuses with which servers of older revisions reject a request without a session, or with an
/// unknown revision.
fn is_rejection(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}

#[derive(Serialize)]
struct RpcRequest<'a, P> {
    jsonrpc: JsonRpcVersion2_0,
    id: &'a RequestId,
    method: &'static str,
    params: P,
}

#[derive(Serialize)]
struct DiscoverParams<'a> {
    #[serde(rename = "_meta")]
    meta: &'a RequestMetaObject,
}

#[derive(Serialize)]
struct ListParams<'a> {
    #[serde(rename = "_meta")]
    meta: &'a RequestMetaObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a str>,
}

/// One page of the list of tools.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolPage {
    tools: Vec<Tool>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct CallParams<'a> {
    #[serde(rename = "_meta")]
    meta: &'a RequestMetaObject,
    name: &'a str,
    arguments: &'a JsonObject,
}

/// A message of the server whose content is not parsed yet. `rmcp`'s type tries every result of the protocol in turn.
#[derive(Deserialize)]
struct ServerMessage<'a> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: JsonRpcVersion2_0,
    id: Option<RequestId>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorData>,
}

impl<'a> ServerMessage<'a> {
    /// Returns the answer to the request `id`, if the message is one. An error without an identifier is taken as one.
    fn answer_to(self, id: &RequestId) -> Option<Result<&'a RawValue, ErrorData>> {
        match (self.result, self.error) {
            (Some(result), _) => self.id.is_some_and(|other| is_same_id(&other, id)).then_some(Ok(result)),
            (None, Some(error)) => self.id.is_none_or(|other| is_same_id(&other, id)).then_some(Err(error)),
            (None, None) => None,
        }
    }
}

impl StatelessClient {
    pub(super) fn new(exchange: Exchange, max_calls: usize) -> Self {
        let calls = Semaphore::new(max_calls.min(Semaphore::MAX_PERMITS));
        Self { exchange, calls, next_id: AtomicI64::new(1) }
    }

    /// Sends `server/discover`. Returns `None` if the server does not support the revision. Every rejection except one
    /// of the credentials has this meaning, since servers of older revisions reject the unknown request in various
    /// ways, or not at all.
    pub(super) async fn discover(&self) -> Result<Option<DiscoverResult>, ExchangeError> {
        let (id, params) = (self.new_id(), DiscoverParams { meta: &CLIENT_META });
        let request = RpcRequest { jsonrpc: JsonRpcVersion2_0, id: &id, method: "server/discover", params };
        let read_result = |result: &RawValue| serde_json::from_str::<DiscoverResult>(result.get()).ok();
        let discovery = self.send(&request, Vec::new(), |_| (), read_result);
        let Ok(response) = timeout(DISCOVER_TIMEOUT, discovery).await else {
            return Ok(None);
        };
        match response {
            Ok(result) => Ok(result.filter(|result| result.supported_versions.contains(&VERSION))),
            Err(ExchangeError::Rpc { .. }) => Ok(None),
            Err(ExchangeError::Status { status, .. })
                if status.is_client_error() && !exchange::rejects_credentials(status) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the server's tools.
    pub(super) async fn list_tools(&self) -> Result<Result<Vec<Tool>, ToolError>, ExchangeError> {
        let (mut tools, mut cursor) = (ListedTools::default(), None::<String>);
        let read_page = |result: &RawValue| serde_json::from_str::<ToolPage>(result.get()).ok();
        loop {
            let id = self.new_id();
            let params = ListParams { meta: &CLIENT_META, cursor: cursor.as_deref() };
            let request = RpcRequest { jsonrpc: JsonRpcVersion2_0, id: &id, method: "tools/list", params };
            let Some(page) = self.send(&request, Vec::new(), |_| (), read_page).await? else {
                return Ok(Err(errors::unavailable(errors::NOT_A_TOOL_LIST)));
            };
            match tools.add_page(page.tools, page.next_cursor) {
                Ok(None) => return Ok(Ok(tools.into_tools())),
                Ok(next_cursor) => cursor = next_cursor,
                Err(message) => return Ok(Err(errors::unavailable(message))),
            }
        }
    }

    /// Calls a tool. Dropping the future cancels the call at the server, by the end of its connection.
    pub(super) async fn call(
        &self,
        (name, param_headers): (&str, Vec<(HeaderName, HeaderValue)>),
        arguments: &JsonObject,
        call: CallMeta<'_>,
        progress: &dyn Progress,
    ) -> Result<Result<ToolOutput, ToolError>, ExchangeError> {
        let permit = self.calls.acquire().await;
        let _permit = permit.map_err(|_| AnswerError::not_run(failed("the run has ended")))?;
        let id = self.new_id();
        let token = ProgressToken(id.clone());
        let mut meta = CLIENT_META.clone();
        meta.set_progress_token(token.clone());
        call_meta::set_call_meta(&mut meta, call);
        let params = CallParams { meta: &meta, name, arguments };
        let request = RpcRequest { jsonrpc: JsonRpcVersion2_0, id: &id, method: "tools/call", params };
        let forward = |report: ProgressNotificationParam| {
            if report.progress_token == token {
                forward_progress(&report, progress);
            }
        };
        let name_header = header_value(name).map(|value| (NAME, value));
        let headers = param_headers.into_iter().chain(name_header).collect();
        self.send(&request, headers, forward, read_tool_result).await
    }

    fn new_id(&self) -> RequestId {
        RequestId::Number(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a request, and returns its result as read by `read`.
    async fn send<T>(
        &self,
        request: &RpcRequest<'_, impl Serialize>,
        headers: Vec<(HeaderName, HeaderValue)>,
        mut on_progress: impl FnMut(ProgressNotificationParam),
        read: impl Fn(&RawValue) -> T,
    ) -> Result<T, ExchangeError> {
        let deadline = self.exchange.deadline();
        let body = exact_json::to_vec(request);
        let body = body.map_err(|_| AnswerError::not_run(failed(errors::NOT_SERIALIZABLE)))?;
        let mut response =
            self.exchange.post(None, headers.into_iter().chain(common_headers(request.method)), body).await?;
        let status = response.status;
        if let Some(failure) = response.status_error.take() {
            return Err(match exchange::read_error(response).await {
                Some(error) => ExchangeError::Rpc { status, error },
                None => ExchangeError::Status { status, failure },
            });
        }
        let as_answer = |answer: Result<&RawValue, ErrorData>| {
            answer.map(&read).map_err(|error| ExchangeError::Rpc { status, error })
        };
        match exchange::read_answer(response, deadline).await? {
            Answer::Json(body) => {
                let message: ServerMessage<'_> =
                    serde_json::from_slice(&body).map_err(|_| failed(errors::NOT_JSON_RPC))?;
                if message.method.is_none() && message.result.is_none() && message.error.is_none() {
                    return Err(failed(errors::NOT_JSON_RPC).into());
                }
                let answer = message.answer_to(request.id);
                as_answer(answer.ok_or_else(|| failed(errors::OTHER_REQUEST))?)
            }
            Answer::Events(mut events) => loop {
                let event = events.next().await?;
                // Data that is not a message is skipped: the answer may still follow.
                let data = event.data.unwrap_or_default();
                let Ok(message) = serde_json::from_str::<ServerMessage<'_>>(&data) else { continue };
                match message.method.as_deref() {
                    None => {
                        return as_answer(message.answer_to(request.id).ok_or(ExchangeError::Unanswered)?);
                    }
                    Some("notifications/progress") => {
                        let report = message.params.map(|params| serde_json::from_str(params.get()));
                        report.and_then(Result::ok).map(&mut on_progress);
                    }
                    Some(_) => {}
                }
            },
        }
    }
}

/// Returns the headers that repeat the revision and the method of a request's body.
fn common_headers(method: &'static str) -> [(HeaderName, HeaderValue); 2] {
    let version = HeaderValue::from_static(VERSION_TEXT);
    [(PROTOCOL_VERSION, version), (METHOD, HeaderValue::from_static(method))]
}

fn read_tool_result(result: &RawValue) -> Result<ToolOutput, ToolError> {
    let result = result.get();
    match serde_json::from_str::<CallToolResult>(result) {
        Ok(mut known) => {
            // Its numbers are read once more, with their digits.
            let exact = known.structured_content.as_ref().and_then(|_| exact_json::read(result).ok());
            if let Some(structured) = exact.as_ref().and_then(|exact| exact.get("structuredContent")) {
                known.structured_content = Some(structured.clone());
            }
            Ok(output::to_tool_output(known))
        }
        Err(_) if serde_json::from_str::<InputRequiredResult>(result).is_ok() => {
            Err(errors::unavailable(errors::INPUT_REQUIRED))
        }
        Err(_) => {
            let known = serde_json::from_str(result).ok().and_then(output::to_known_output);
            known.ok_or_else(|| ToolError::OutcomeUnknown(errors::NOT_A_TOOL_RESULT.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_of_the_revision_are_recognized() {
        let rpc =
            |status, code| ExchangeError::Rpc { status, error: ErrorData::new(ErrorCode(code), "no", None) };
        let status = |status| ExchangeError::Status { status, failure: failed("no") };
        for (error, expected) in [
            (rpc(StatusCode::OK, -32601), true),
            (rpc(StatusCode::OK, -32022), true),
            (rpc(StatusCode::BAD_REQUEST, -32000), true),
            (rpc(StatusCode::OK, -32000), false),
            (rpc(StatusCode::BAD_REQUEST, -32602), false),
            (status(StatusCode::NOT_FOUND), true),
            (status(StatusCode::UNAUTHORIZED), false),
            (status(StatusCode::TOO_MANY_REQUESTS), false),
            (status(StatusCode::BAD_GATEWAY), false),
            (failed("no").into(), false),
            (ExchangeError::Unanswered, false),
        ] {
            assert_eq!(error.may_reject_revision(), expected, "{}", error.message());
        }
    }
    #[test]
    fn a_result_is_read_as_far_as_it_is_known() {
        let read = |result: &str| read_tool_result(serde_json::from_str(result).expect("JSON"));
        let output =
            read(r#"{"resultType":"complete","content":[{"type":"text","text":"a"},{"type":"video"}]}"#);
        let expected = "a\n[content of the kind video, which is not understood, omitted]";
        assert_eq!(output.expect("a result").text, expected);
        let numbers = r#"{"content":[],"structuredContent":{"id":123456789012345678901234}}"#;
        let output = read(numbers).expect("a result");
        assert_eq!(output.text, r#"{"id":123456789012345678901234}"#);
        assert!(output.structured.expect("structured content")["id"].is_number());
        for other in ["{}", r#"{"content":7}"#, r#"{"content":[{"type":"video"}],"resultType":"task"}"#] {
            assert!(matches!(read(other), Err(ToolError::OutcomeUnknown(_))), "{other}");
        }
    }
}
