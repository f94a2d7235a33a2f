//! A session with a tool server of an older revision, and the calls in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::tool::{Progress, ToolError, ToolOutput};
use agent_platform::own_tools::CallMeta;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, JsonObject,
    PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerResult, Tool,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions, RequestHandle,
    RunningService, ServiceError,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc, watch};

use super::errors;
use super::exchange::Exchange;
use super::http_client::HttpClient;
use super::message::{ListedTools, forward_progress, implementation};
use crate::{meta, output};

/// Maximum number of unread progress reports per call; further reports are dropped.
const MAX_PENDING_REPORTS: usize = 64;
/// Timeout for sending a cancellation or the end of a session to the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// An open session; dropping the last reference ends it.
pub(super) struct SessionConnection {
    service: RunningService<RoleClient, NotificationRouter>,
    /// Dropping the sender stops this session's pending requests.
    _open: watch::Sender<()>,
}

impl SessionConnection {
    /// Initializes a session.
    ///
    /// The error is a message for the model.
    pub(super) async fn open(
        exchange: Exchange,
        max_calls: usize,
        list_changes: Arc<AtomicU64>,
    ) -> Result<Arc<Self>, Arc<str>> {
        let (open, closed) = watch::channel(());
        let http = HttpClient::new(exchange, closed);
        let transport = StreamableHttpClientTransport::with_client(http.clone(), transport_config(max_calls));
        let router = NotificationRouter { reports: Arc::default(), list_changes };
        let service = router
            .serve_with_lifecycle(transport, ClientLifecycleMode::Initialize)
            .await
            .map_err(|error| http.failure().unwrap_or_else(|| errors::connect_error(&error)))?;
        Ok(Arc::new(Self { service, _open: open }))
    }

    pub(super) fn is_open(&self) -> bool {
        !self.service.is_closed() && !self.service.is_transport_closed()
    }

    /// Calls a tool. Dropping the future cancels the call at the server.
    pub(super) async fn call(
        self: Arc<Self>,
        name: &str,
        arguments: JsonObject,
        meta: CallMeta<'_>,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        let (mut call, mut reports) = self.send(params, meta).await.map_err(unavailable)?;
        let answer = loop {
            tokio::select! {
                biased;
                Some(report) = reports.recv() => forward_progress(&report, progress),
                answer = call.answer() => break answer,
            }
        };
        call.mark_answered().await;
        read_tool_result(answer.map_err(|error| errors::call_error(&error))?)
    }

    /// Lists the server's tools.
    pub(super) async fn list_tools(&self) -> Result<Vec<Tool>, ToolError> {
        let (mut tools, mut cursor) = (ListedTools::default(), None);
        loop {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = self.service.list_tools(Some(params)).await.map_err(unavailable)?;
            // Servers of these revisions mark the end by an empty cursor, too, which is one of the next page since 2026-07-28.
            let next_cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            cursor = tools.add_page(page.tools, next_cursor).map_err(errors::unavailable)?;
            if cursor.is_none() {
                return Ok(tools.into_tools());
            }
        }
    }

    async fn send(
        self: Arc<Self>,
        params: CallToolRequestParams,
        call: CallMeta<'_>,
    ) -> Result<(PendingCall, mpsc::Receiver<ProgressNotificationParam>), ServiceError> {
        let request = CallToolRequest::new(params);
        let mut options = PeerRequestOptions::no_options();
        if call.idempotency_key.is_some() || call.trace.is_some() {
            meta::set_call_meta(options.meta.get_or_insert_default(), call);
        }
        let (reporter, reports) = mpsc::channel(MAX_PENDING_REPORTS);
        // Locked while sending, so that no progress report arrives before its receiver is registered.
        let mut readers = self.service.service().reports.lock().await;
        let sending = self.service.send_cancellable_request(ClientRequest::CallToolRequest(request), options);
        let handle = sending.await?;
        readers.insert(handle.progress_token.clone(), reporter);
        drop(readers);
        Ok((PendingCall { session: self, handle: Some(handle) }, reports))
    }

    async fn remove_report_channel(&self, token: &ProgressToken) {
        self.service.service().reports.lock().await.remove(token);
    }
}

fn read_tool_result(result: ServerResult) -> Result<ToolOutput, ToolError> {
    let known = match result {
        ServerResult::CallToolResult(result) => Some(output::to_tool_output(result)),
        ServerResult::InputRequiredResult(_) => return Err(errors::unavailable(errors::INPUT_REQUIRED)),
        ServerResult::CustomResult(result) => output::to_known_output(result.0),
        _ => None,
    };
    known.ok_or_else(|| ToolError::OutcomeUnknown(errors::NOT_A_TOOL_RESULT.to_owned()))
}

/// Returns the error of a request that has no effect.
fn unavailable(error: ServiceError) -> ToolError {
    errors::unavailable(&errors::format_service_error(&error))
}

fn transport_config(max_calls: usize) -> StreamableHttpClientTransportConfig {
    // Only the transport knows the URL, so that `rmcp` cannot log it.
    let mut config = StreamableHttpClientTransportConfig::with_uri("")
        .max_concurrent_requests(max_calls)
        .control_request_timeout(CLOSE_TIMEOUT);
    config.retry_config = Arc::new(NeverRetry::default());
    config
}

/// A call that the server is processing. Dropping it before its answer cancels the call.
struct PendingCall {
    session: Arc<SessionConnection>,
    handle: Option<RequestHandle<RoleClient>>,
}

impl PendingCall {
    /// Waits for the answer. Cancellation safe.
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        let Some(handle) = &mut self.handle else { return Err(ServiceError::TransportClosed) };
        (&mut handle.rx).await.unwrap_or(Err(ServiceError::TransportClosed))
    }

    /// Marks the call as answered, so that dropping it does not send a cancellation.
    async fn mark_answered(mut self) {
        if let Some(handle) = self.handle.take() {
            self.session.remove_report_channel(&handle.progress_token).await;
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let (Some(handle), Ok(runtime)) = (self.handle.take(), Handle::try_current()) else { return };
        let session = self.session.clone();
        runtime.spawn(async move {
            session.remove_report_channel(&handle.progress_token).await;
            let cancel = handle.cancel(Some("the caller cancelled the call".to_owned()));
            // A server that cannot be reached notices the end of the connection.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, cancel).await;
        });
    }
}

/// `rmcp` client handler: routes progress notifications to their calls, counts changes of the list of tools, and offers the
/// server no capabilities.
#[derive(Clone)]
struct NotificationRouter {
    reports: Arc<Mutex<HashMap<ProgressToken, mpsc::Sender<ProgressNotificationParam>>>>,
    list_changes: Arc<AtomicU64>,
}

impl ClientHandler for NotificationRouter {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), implementation())
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        if let Some(reader) = self.reports.lock().await.get(&params.progress_token) {
            let _ = reader.try_send(params);
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changes.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_with_content_of_an_unknown_kind_is_read() {
        let read = |result| read_tool_result(serde_json::from_value(result).expect("a result"));
        let content = json!([{"type": "text", "text": "a"}, {"type": "video"}]);
        let expected = "a\n[content of the kind video, which is not understood, omitted]";
        assert_eq!(read(json!({"content": content})).expect("a result").text, expected);
        assert!(matches!(read(json!({"content": 7})), Err(ToolError::OutcomeUnknown(_))));
    }
}
