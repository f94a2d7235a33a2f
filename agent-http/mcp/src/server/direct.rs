//! Fast path for `tools/call` of revision 2026-07-28, the request of every tool call that an agent runtime makes.
//!
//! `rmcp` starts a task with channels for each request, and parses it by trying each method of the protocol in turn. A
//! request that states everything in the plainest form is recognized here and handled by the task that has read it. Any
//! other request, among them all invalid ones, is left to `rmcp`, whose response to a recognized request would be the
//! same.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use agent_core::ids::TraceContext;
use agent_core::tool::{NoProgress, Progress};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ErrorCode, ErrorData, JsonObject,
    ProgressNotification, ProgressNotificationParam, ProgressToken, ProtocolVersion, RequestId,
    RequestMetaObject, ServerJsonRpcMessage, ServerNotification,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::features::{CallContext, Features};
use super::handler::HandlerState;
use super::identity::Identity;
use super::permits::RequestPermits;
use super::progress::ProgressSender;
use crate::meta;

pub(super) const CALL_METHOD: &str = "tools/call";
const VERSION: &str = "2026-07-28";
/// Start of a header value in Base64.
const ENCODED: &str = "=?";
/// Maximum number of messages that the client has not read yet.
const MAX_PENDING_MESSAGES: usize = 16;

type RmcpResponse = Response<BoxBody<Bytes, Infallible>>;
type Calling = Pin<Box<dyn Future<Output = Result<CallToolResponse, ErrorData>> + Send>>;

/// A recognized request.
pub(super) struct DirectCall {
    call: CallToolRequestParams,
    client_capabilities: ClientCapabilities,
    progress_token: Option<ProgressToken>,
    idempotency_key: Option<String>,
    trace: Option<TraceContext>,
    arguments_text: Option<Arc<str>>,
}

/// A request's body. Members that are not listed, such as answers to questions of the tool, are not supported here.
#[derive(Deserialize)]
struct CallRequest<'a> {
    method: String,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    #[serde(rename = "_meta")]
    meta: RequestMetaObject,
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl DirectCall {
    /// Recognizes a request whose head and body agree.
    pub(super) fn parse(headers: &HeaderMap, body: &[u8], features: &dyn Features) -> Option<Self> {
        if header(headers, "mcp-protocol-version")? != VERSION
            || header(headers, "mcp-method")? != CALL_METHOD
        {
            return None;
        }
        let name =
            header(headers, "mcp-name").filter(|name| !name.is_empty() && !name.starts_with(ENCODED))?;
        let repeats_arguments = headers.keys().any(|name| name.as_str().starts_with("mcp-param-"));
        let CallRequest { method, params } = serde_json::from_slice(body).ok()?;
        if repeats_arguments || method != CALL_METHOD || params.name != name || features.tool(name).is_some()
        {
            return None;
        }
        params.meta.protocol_version().filter(|version| *version == ProtocolVersion::V_2026_07_28)?;
        let client_capabilities = params.meta.client_capabilities()?;
        // Without the extension, a tool's answer is never a task.
        if client_capabilities.supports_tasks() {
            return None;
        }
        let mut call = CallToolRequestParams::new(params.name);
        let arguments_text = params.arguments.map(RawValue::get);
        call.arguments = arguments_text.map(serde_json::from_str::<JsonObject>).transpose().ok()?;
        let arguments_text = arguments_text.map(Arc::from);
        let progress_token = params.meta.get_progress_token();
        let (idempotency_key, trace) = (meta::idempotency_key(&params.meta), meta::trace(&params.meta));
        Some(Self { call, client_capabilities, progress_token, idempotency_key, trace, arguments_text })
    }

    /// Calls the tool. Dropping the future, or the body of the response, cancels the call.
    pub(super) async fn run(
        self,
        id: RequestId,
        shared: Arc<HandlerState>,
        identity: Arc<Identity>,
        stop: CancellationToken,
        permits: RequestPermits,
    ) -> RmcpResponse {
        let Self { call, client_capabilities, progress_token, idempotency_key, trace, arguments_text } = self;
        let (sender, mut reports) = progress_token.map(ProgressSender::channel).unzip();
        let mut call_future: Calling = Box::pin(async move {
            let _permits = permits;
            let progress: &dyn Progress = sender.as_ref().map_or(&NoProgress, |sender| sender);
            let client_capabilities = Some(client_capabilities);
            let client =
                CallContext { client_capabilities, idempotency_key, trace, arguments_text, progress };
            shared.call_tool(&identity, call, &client, stop.cancelled()).await
        });
        let Some(reports) = &mut reports else { return single(&response_message(id, call_future.await)) };
        tokio::select! {
            biased;
            result = &mut call_future => {
                let answer_message = response_message(id, result);
                match reports.try_recv() {
                    Err(_) => single(&answer_message),
                    Ok(first) => {
                        let mut messages = vec![notification(first)];
                        while let Ok(report) = reports.try_recv() {
                            messages.push(notification(report));
                        }
                        messages.push(answer_message);
                        events(stream::iter(messages.into_iter().map(|message| event(&message))))
                    }
                }
            }
            Some(first) = reports.recv() => {
                let (sender, mut receiver) = mpsc::channel(MAX_PENDING_MESSAGES);
                let reports = std::mem::replace(reports, mpsc::channel(1).1);
                tokio::spawn(forward(id, first, reports, call_future, sender));
                events(stream::poll_fn(move |cx| receiver.poll_recv(cx)))
            }
        }
    }
}

/// Returns the value of a header that occurs once.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Sends reports and then the answer of a call, until the client disconnects.
async fn forward(
    id: RequestId,
    first: ProgressNotificationParam,
    mut reports: mpsc::Receiver<ProgressNotificationParam>,
    mut call_future: Calling,
    sender: mpsc::Sender<Bytes>,
) {
    let send = async |message| sender.send(event(&message)).await.is_ok();
    let send_messages = async {
        let mut is_open = send(notification(first)).await;
        let answer_message = loop {
            if !is_open {
                return;
            }
            tokio::select! {
                biased;
                Some(report) = reports.recv() => is_open = send(notification(report)).await,
                result = &mut call_future => break response_message(id, result),
            }
        };
        while let Ok(report) = reports.try_recv() {
            send(notification(report)).await;
        }
        send(answer_message).await;
    };
    tokio::select! {
        biased;
        () = send_messages => {}
        () = sender.closed() => {}
    }
}

fn notification(report: ProgressNotificationParam) -> ServerJsonRpcMessage {
    let notification = ProgressNotification::new(report);
    ServerJsonRpcMessage::notification(ServerNotification::ProgressNotification(notification))
}

fn response_message(id: RequestId, result: Result<CallToolResponse, ErrorData>) -> ServerJsonRpcMessage {
    match result {
        Ok(response) => ServerJsonRpcMessage::response(response.into(), id),
        Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
    }
}

/// Returns the HTTP status of an answer that is the whole response.
fn status(answer: &ServerJsonRpcMessage) -> StatusCode {
    let ServerJsonRpcMessage::Error(error) = answer else { return StatusCode::OK };
    match error.error.code {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

fn single(answer: &ServerJsonRpcMessage) -> RmcpResponse {
    let mut response = Response::new(Full::new(json(answer).into()).boxed());
    *response.status_mut() = status(answer);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn events(events: impl stream::Stream<Item = Bytes> + Send + Sync + 'static) -> RmcpResponse {
    let frames = stream::StreamExt::map(events, |event| Ok::<_, Infallible>(Frame::data(event)));
    let mut response = Response::new(StreamBody::new(frames).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn event(message: &ServerJsonRpcMessage) -> Bytes {
    [b"data: ", json(message).as_slice(), b"\n\n"].concat().into()
}

fn json(message: &ServerJsonRpcMessage) -> Vec<u8> {
    serde_json::to_vec(message).expect("a message serialises")
}
