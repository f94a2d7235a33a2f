//! `rmcp` handler of one session or request: applies timeouts and cancellation, writes the audit log, and calls the
//! features with the caller's identity.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join;
use http::request;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam,
    CompleteRequestParams, CompleteResult, ContentBlock, CustomRequest, CustomResult, DiscoverResult,
    ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use tokio::time;

use super::audit::{AuditLog, AuditOutcome};
use super::changes::{ChangeNotifier, MAX_SUBSCRIBED_URIS, WatchGuard};
use super::features::{CallContext, Features};
use super::identity::Identity;
use super::permits::ArgumentsText;
use super::progress::progress_channel;
use super::report;
use crate::meta;

/// Supported protocol versions; the last one has no sessions.
const SUPPORTED_VERSIONS: &[ProtocolVersion] =
    &[ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// Time for which clients may keep the result of `server/discover`, in milliseconds. It changes with the program only.
const DISCOVERY_TTL_MS: u64 = 600_000;

/// Methods that `rmcp` passes on as custom requests if it cannot parse their parameters.
const METHODS: [&str; 8] = [
    "completion/complete",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "tools/call",
    "tools/list",
];

/// Further such methods, which exist only in versions with sessions.
const SESSION_METHODS: [&str; 2] = ["resources/subscribe", "resources/unsubscribe"];

fn method_not_found() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "the server does not support this method", None)
}

/// State shared by all handlers.
pub(super) struct HandlerState {
    pub(super) features: Arc<dyn Features>,
    pub(super) changes: Arc<ChangeNotifier>,
    pub(super) audit: AuditLog,
    /// Timeout of one request.
    pub(super) timeout: Duration,
}

/// Handles one session, or one request without a session.
pub(super) struct McpHandler {
    shared: Arc<HandlerState>,
    identity: Arc<Identity>,
    /// The session's registration for change notifications.
    watch: OnceLock<WatchGuard>,
}

impl McpHandler {
    pub(super) fn new(shared: Arc<HandlerState>, identity: Arc<Identity>) -> Self {
        Self { shared, identity, watch: OnceLock::new() }
    }

    fn features(&self) -> &dyn Features {
        &*self.shared.features
    }

    async fn run_bounded<T>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, RequestError> {
        self.shared.run_bounded(context.ct.cancelled(), work).await
    }

    /// Returns the requested resources that the client can see. The others are accepted too, and their updates are never
    /// sent.
    async fn find_visible_uris(
        &self,
        requested: &SubscriptionFilter,
        cancelled: impl Future<Output = ()>,
    ) -> Result<HashSet<String>, RequestError> {
        let find_visible = async {
            let mut uris = HashSet::new();
            for uri in requested.resource_subscriptions.iter().flatten().take(MAX_SUBSCRIBED_URIS) {
                if self.features().has_resource(&self.identity, uri).await? {
                    uris.insert(uri.clone());
                }
            }
            Ok::<_, ErrorData>(uris)
        };
        self.shared.run_bounded(cancelled, find_visible).await
    }
}

impl HandlerState {
    /// Runs `work` until it is done, cancelled or timed out.
    async fn run_bounded<T>(
        &self,
        cancelled: impl Future<Output = ()>,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, RequestError> {
        tokio::select! {
            biased;
            () = cancelled => Err(RequestError::Cancelled),
            result = time::timeout(self.timeout, work) => match result {
                Ok(result) => result.map_err(RequestError::Refused),
                Err(_) => Err(RequestError::TimedOut(self.timeout)),
            },
        }
    }

    /// Calls a tool: applies the timeout, and writes the audit log and the report to the run's event stream.
    pub(super) async fn call_tool(
        &self,
        identity: &Identity,
        call: CallToolRequestParams,
        client: &CallContext<'_>,
        cancelled: impl Future<Output = ()>,
    ) -> Result<CallToolResponse, ErrorData> {
        let entry = self.audit.start_entry(&identity.context, &identity.id, &call.name);
        let report = identity.calls.as_ref().map(|calls| report::begin_report(calls, &call));
        let outcome = self.run_bounded(cancelled, self.features.call_tool(identity, call, client)).await;
        entry.record_outcome(match &outcome {
            Ok(CallToolResponse::Complete(result)) if result.is_error == Some(true) => {
                AuditOutcome::ToolError
            }
            Ok(_) => AuditOutcome::Ok,
            Err(RequestError::Cancelled) => AuditOutcome::Cancelled,
            Err(RequestError::TimedOut(_)) => AuditOutcome::TimedOut,
            Err(RequestError::Refused(error)) if error.code == ErrorCode::INTERNAL_ERROR => {
                AuditOutcome::Failed
            }
            Err(RequestError::Refused(_)) => AuditOutcome::Refused,
        });
        let answer = match outcome {
            // A tool error rather than a protocol error, so that the model can continue without the result, or ask for
            // less.
            Err(RequestError::TimedOut(limit)) => {
                let message = format!("the tool call timed out after {} ms", limit.as_millis());
                Ok(CallToolResult::error(vec![ContentBlock::text(message)]).into())
            }
            outcome => outcome.map_err(ErrorData::from),
        };
        if let Some(report) = report {
            report.finish(|| report::report_result(&answer));
        }
        answer
    }
}

/// Reason why a request has no result.
enum RequestError {
    Cancelled,
    TimedOut(Duration),
    Refused(ErrorData),
}

impl From<RequestError> for ErrorData {
    fn from(error: RequestError) -> Self {
        match error {
            // Never sent: a cancelled request gets no answer.
            RequestError::Cancelled => Self::internal_error("the request was cancelled", None),
            RequestError::TimedOut(limit) => {
                Self::internal_error(format!("the request timed out after {} ms", limit.as_millis()), None)
            }
            RequestError::Refused(error) => error,
        }
    }
}

fn cursor(page: Option<&PaginatedRequestParams>) -> Option<&str> {
    page.and_then(|page| page.cursor.as_deref())
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        self.features().info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(SUPPORTED_VERSIONS)
    }

    /// Returns the server's description. Clients may share and cache it, since it is the same for every caller.
    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let result = DiscoverResult::from_server_info(SUPPORTED_VERSIONS.to_vec(), self.get_info());
        Ok(result.with_ttl_ms(DISCOVERY_TTL_MS).with_cache_scope(CacheScope::Public))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.features().tool(name)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.watch.get_or_init(|| self.shared.changes.watch_session(&self.identity, context.peer));
    }

    async fn on_cancelled(&self, _: CancelledNotificationParam, _: NotificationContext<RoleServer>) {}

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let list = self.features().list_tools(&self.identity, cursor(page.as_ref()));
        Ok(self.run_bounded(&context, list).await?)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let client_capabilities = context.client_capabilities();
        let (idempotency_key, trace) = (meta::idempotency_key(&context.meta), meta::trace(&context.meta));
        let head = context.extensions.get::<request::Parts>();
        let arguments = head.and_then(|head| head.extensions.get::<ArgumentsText>());
        let arguments_text = arguments.map(|ArgumentsText(text)| text.clone());
        let (progress, send_reports) = progress_channel(&context);
        let call_future = async {
            let client = CallContext {
                client_capabilities,
                idempotency_key,
                trace,
                arguments_text,
                progress: &*progress,
            };
            let result = self.shared.call_tool(&self.identity, call, &client, context.ct.cancelled()).await;
            drop(progress);
            result
        };
        let (result, ()) = join(call_future, send_reports).await;
        result
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let list = self.features().list_resources(&self.identity, cursor(page.as_ref()));
        Ok(self.run_bounded(&context, list).await?)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(self.run_bounded(&context, self.features().list_resource_templates(&self.identity)).await?)
    }

    async fn read_resource(
        &self,
        read: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(self.run_bounded(&context, self.features().read_resource(&self.identity, read)).await?)
    }

    async fn subscribe(
        &self,
        subscribe: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let Some(watch) = self.watch.get() else {
            return Err(ErrorData::invalid_request("a subscription requires a session", None));
        };
        if !self.run_bounded(&context, self.features().has_resource(&self.identity, &subscribe.uri)).await? {
            let data = serde_json::json!({"uri": subscribe.uri});
            return Err(ErrorData::resource_not_found("resource not found", Some(data)));
        }
        let is_added = watch.subscribe(subscribe.uri);
        is_added.then_some(()).ok_or_else(|| {
            ErrorData::invalid_request("the session's limit of subscriptions is reached", None)
        })
    }

    async fn unsubscribe(
        &self,
        unsubscribe: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if let Some(watch) = self.watch.get() {
            watch.unsubscribe(&unsubscribe.uri);
        }
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let uris = self.find_visible_uris(context.accepted(), context.cancelled()).await?;
        let _watch = self.shared.changes.watch_subscription(&self.identity, context.sink().clone(), uris);
        context.cancelled().await;
        Ok(())
    }

    async fn list_prompts(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let list = self.features().list_prompts(&self.identity, cursor(page.as_ref()));
        Ok(self.run_bounded(&context, list).await?)
    }

    async fn get_prompt(
        &self,
        get: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(self.run_bounded(&context, self.features().get_prompt(&self.identity, get)).await?)
    }

    async fn complete(
        &self,
        complete: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(self.run_bounded(&context, self.features().complete(&self.identity, complete)).await?)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        let has_sessions =
            context.protocol_version().is_none_or(|version| version < ProtocolVersion::V_2026_07_28);
        if METHODS.contains(&method) || (has_sessions && SESSION_METHODS.contains(&method)) {
            return Err(ErrorData::invalid_params("the parameters are invalid for the method", None));
        }
        Err(method_not_found())
    }

    /// Returns the error of an unknown method: log messages are not sent to clients, and the capability is not announced.
    #[expect(deprecated, reason = "clients of older revisions send the request")]
    async fn set_level(
        &self,
        _: rmcp::model::SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Err(method_not_found())
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use agent_core::tool::ExecutionContext;
    use agent_platform::memory::MemoryRecords;
    use async_trait::async_trait;

    use super::*;

    /// Resource whose store is unavailable.
    const UNAVAILABLE: &str = "document://unavailable";

    /// Features of a store that does not answer, except for [`UNAVAILABLE`].
    struct StalledFeatures;

    #[async_trait]
    impl Features for StalledFeatures {
        fn info(&self) -> ServerConfig {
            ServerConfig::default()
        }

        async fn list_tools(&self, _: &Identity, _: Option<&str>) -> Result<ListToolsResult, ErrorData> {
            pending().await
        }

        async fn call_tool(
            &self,
            _: &Identity,
            _: CallToolRequestParams,
            _: &CallContext<'_>,
        ) -> Result<CallToolResponse, ErrorData> {
            pending().await
        }

        async fn list_resources(
            &self,
            _: &Identity,
            _: Option<&str>,
        ) -> Result<ListResourcesResult, ErrorData> {
            pending().await
        }

        async fn list_resource_templates(
            &self,
            _: &Identity,
        ) -> Result<ListResourceTemplatesResult, ErrorData> {
            pending().await
        }

        async fn read_resource(
            &self,
            _: &Identity,
            _: ReadResourceRequestParams,
        ) -> Result<ReadResourceResponse, ErrorData> {
            pending().await
        }

        async fn has_resource(&self, _: &Identity, uri: &str) -> Result<bool, ErrorData> {
            if uri == UNAVAILABLE {
                return Err(ErrorData::internal_error("the store is unavailable", None));
            }
            pending().await
        }

        async fn list_prompts(&self, _: &Identity, _: Option<&str>) -> Result<ListPromptsResult, ErrorData> {
            pending().await
        }

        async fn get_prompt(
            &self,
            _: &Identity,
            _: GetPromptRequestParams,
        ) -> Result<GetPromptResponse, ErrorData> {
            pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_check_of_a_subscription_s_resources_may_fail() {
        const TIMEOUT: Duration = Duration::from_secs(1);
        let shared = HandlerState {
            features: Arc::new(StalledFeatures),
            changes: Arc::default(),
            audit: AuditLog::new(Arc::new(MemoryRecords::default())),
            timeout: TIMEOUT,
        };
        let identity = Identity { id: "t1".to_owned(), context: ExecutionContext::default(), calls: None };
        let handler = McpHandler::new(Arc::new(shared), Arc::new(identity));
        let filter = SubscriptionFilter::builder().resource_subscription("document://a").build();

        let found = time::timeout(2 * TIMEOUT, handler.find_visible_uris(&filter, pending())).await;
        assert!(matches!(found, Ok(Err(RequestError::TimedOut(_)))), "the request's own timeout");
        let found = handler.find_visible_uris(&filter, async {}).await;
        assert!(matches!(found, Err(RequestError::Cancelled)), "the client has cancelled");
        let filter = SubscriptionFilter::builder().resource_subscription(UNAVAILABLE).build();
        let found = handler.find_visible_uris(&filter, pending()).await;
        assert!(
            matches!(found, Err(RequestError::Refused(_))),
            "a resource that cannot be read is no absent one"
        );
    }
}
