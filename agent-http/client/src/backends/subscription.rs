//! Models of users' own subscriptions. The application calls them through the proxy route of the operator's agent
//! runtime, and runs the tool loop itself.
//!
//! A request of the Responses API is wrapped as `{"accessToken","accountId","body"}`. The tokens belong to the user of
//! the run. They are looked up when the request is sent, so that `prepare` stays pure and a preview shows the request
//! without them.

use std::borrow::Cow;
use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::SubscriptionConnector;
use agent_core::secret::Secret;
use agent_core::tool::{Caller, ExecutionContext};
use agent_platform::coding::{AccessToken, CodingTokens, SubscriptionLimits};
use agent_platform::content_notes::{ContentNotes, request_for_model};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::HeaderMap;
use serde_json::json;
use sha2::{Digest, Sha256};
use url::Url;

use crate::models::responses::{Account, AnswerContext, ResponsesProtocol, blocked_by_proxy};
use crate::models::{ModelLimits, ModelSpec, TenantModel};
use crate::outbound::{LazyTarget, OutboundClient, OutboundResponse, UrlTrust, join_path, status_failure};
use crate::problem::{PROBLEM_JSON, ProblemDetails};

/// Name of the provider in usage and in the log.
const PROVIDER: &str = "subscription";
/// The envelope up to the body, as it is prepared: with empty tokens.
const EMPTY_ENVELOPE: &str = r#"{"accessToken":"","accountId":"","body":"#;
/// Length of the vendor's cache key for a conversation's prefix, in hexadecimal digits.
const CACHE_KEY_LENGTH: usize = 32;

/// Model source for `SubscriptionConnector` containers.
#[derive(Clone)]
pub struct SubscriptionModels {
    /// HTTP client for the calls.
    pub outbound: OutboundClient,
    /// Access to the users' subscriptions, or the name of the setting that is missing for it.
    pub access: Result<SubscriptionAccess, &'static str>,
    /// Limits on the models' tokens.
    pub limits: ModelLimits,
    /// True if runs that no user is waiting for, such as runs of jobs, may use the user's subscription.
    pub allows_unattended: bool,
}

impl std::fmt::Debug for SubscriptionModels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionModels").finish_non_exhaustive()
    }
}

/// Access to the users' subscriptions.
#[derive(Clone)]
pub struct SubscriptionAccess {
    /// The base URL of the operator's own runtime, `RUNTIME_URL`.
    pub runtime: Url,
    /// The runtime's shared secret, `RUNTIME_SECRET`; it is sent to no other address.
    pub secret: Option<Secret>,
    /// The users' tokens.
    pub tokens: CodingTokens,
}

impl std::fmt::Debug for SubscriptionAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionAccess").finish_non_exhaustive()
    }
}

impl SubscriptionModels {
    fn build(
        &self,
        settings: &SubscriptionConnector,
        context: ExecutionContext,
    ) -> Result<Arc<dyn Model>, AgentError> {
        let access = self.access.clone().map_err(|setting| {
            AgentError::new(AgentErrorKind::NotConfigured, format!("{setting} is not configured"))
        })?;
        let endpoint = join_path(&access.runtime, &["coding-chat"])?;
        let model = ModelSpec::new(settings.model.as_deref().unwrap_or_default().trim())
            .with_limits(self.limits.with_role(settings.token_limits))
            .with_reasoning_effort(settings.reasoning_effort.as_deref());
        // The vendor rejects a request without instructions.
        let agent = context.agent_name.as_deref().unwrap_or(&context.agent_id);
        let tokens = access.tokens.clone();
        let (company_id, user_id) = (context.company_id.clone(), context.user_id.clone());
        let protocol = ResponsesProtocol::new(PROVIDER, Account::Subscription, model, endpoint.as_str())
            .with_instructions(settings.instructions.as_deref().filter(|text| !text.trim().is_empty()))
            .with_default_instructions(format!("You are {agent}."))
            .with_prompt_cache_key(cache_key(&context))
            .with_limit_handler(move |limits| tokens.update_limits(&company_id, &user_id, limits));
        let endpoint = Arc::new(LazyTarget::new(self.outbound.clone(), endpoint, UrlTrust::Operator));
        Ok(Arc::new(SubscriptionModel { endpoint, access, protocol, context }))
    }

    /// Checks that the run may use the subscription of the user on whose behalf it is.
    fn check_caller(&self, caller: Caller) -> Result<(), AgentError> {
        let sign_in_required = |message| Err(AgentError::new(AgentErrorKind::SignInRequired, message));
        match caller {
            Caller::Session | Caller::Legacy => Ok(()),
            Caller::Proactive | Caller::Api if self.allows_unattended => Ok(()),
            Caller::Proactive | Caller::Api => sign_in_required(
                "the agent uses its user's own subscription, which unattended runs may not use",
            ),
            _ => sign_in_required("the agent uses its user's own subscription, which visitors do not have"),
        }
    }
}

impl ModelSource<SubscriptionConnector> for SubscriptionModels {
    fn model(&self, settings: &SubscriptionConnector) -> Result<Arc<dyn Model>, AgentError> {
        self.build(settings, ExecutionContext::default())
    }

    fn model_for_run(
        &self,
        settings: &SubscriptionConnector,
        context: &ExecutionContext,
    ) -> Result<Arc<dyn Model>, AgentError> {
        self.check_caller(context.caller)?;
        let model = self.build(settings, context.clone())?;
        Ok(Arc::new(TenantModel::new(model, &context.company_id)))
    }
}

/// Returns the key of a conversation's cached prefix. It identifies no one to the vendor.
fn cache_key(context: &ExecutionContext) -> String {
    let ExecutionContext { company_id, user_id, agent_id, thread_id, .. } = context;
    let mut hasher = Sha256::new();
    for part in [company_id.as_str(), user_id.as_str(), agent_id.as_str(), thread_id.as_str()] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut key = hex::encode(hasher.finalize());
    key.truncate(CACHE_KEY_LENGTH);
    key
}

/// A subscription's model in one run.
#[derive(Clone)]
struct SubscriptionModel {
    endpoint: Arc<LazyTarget>,
    access: SubscriptionAccess,
    protocol: ResponsesProtocol,
    context: ExecutionContext,
}

#[async_trait]
impl Model for SubscriptionModel {
    /// Returns the information on the model. Media are always supported: [`prepare`](Self::prepare) refuses those of the latest
    /// user message that the model does not support, and replaces earlier ones by notes.
    fn info(&self) -> ModelInfo {
        ModelInfo { supports_media: true, ..self.protocol.info() }
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let supported = request_for_model(request, &self.protocol.info())?;
        let request = &*supported;
        let mut body = Payload::builder(request.prompt.text_len() * 9 / 8 + 4096);
        body.raw(r#"{"accessToken":"#).secret("").raw(r#","accountId":"#).secret("").raw(r#","body":"#);
        self.protocol.push_body(request, &mut body)?;
        body.raw("}");
        if matches!(supported, Cow::Owned(_)) {
            body.attach(ContentNotes);
        }
        Ok(body.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let call = SubscriptionCall {
            model: self.clone(),
            context: AnswerContext::of(&payload),
            body: payload.into_bytes(),
        };
        let ExecutionContext { company_id, user_id, .. } = &self.context;
        let token = self.access.tokens.access(company_id, user_id).await?;
        let generation = token.generation;
        match call.send(&token).await {
            Ok(answer) => Ok(call.retry_if_rejected(answer, generation)),
            Err(error) if error.kind() == AgentErrorKind::SignInRequired => call.send_again(generation).await,
            Err(error) => Err(error),
        }
    }
}

/// A call of the model, which is repeated once with a new token if the vendor rejects the first.
struct SubscriptionCall {
    model: SubscriptionModel,
    context: AnswerContext,
    /// The request with empty tokens.
    body: Bytes,
}

impl SubscriptionCall {
    async fn send(&self, token: &AccessToken) -> Result<ModelStream, AgentError> {
        let SubscriptionModel { endpoint, access, protocol, context } = &self.model;
        let account = token.account_id.as_ref().map_or("", |account| account.expose());
        let envelope = format!(
            r#"{{"accessToken":{},"accountId":{},"body":"#,
            json!(token.token.expose()),
            json!(account)
        );
        let body = vec![Bytes::from(envelope), self.body.slice(EMPTY_ENVELOPE.len()..)];
        let request = endpoint.target()?.post_json(access.secret.as_ref(), "text/event-stream", body)?;
        let response = request.send().await?;
        access.tokens.record_limits(&context.company_id, &context.user_id, limits_of(&response.headers));
        if response.media_type() == PROBLEM_JSON {
            return Err(runtime_error(response).await);
        }
        protocol.decode(response, self.context.clone()).await
    }

    /// Repeats the call with a newer token, since the vendor has rejected the token of `generation`.
    async fn send_again(&self, generation: u64) -> Result<ModelStream, AgentError> {
        let ExecutionContext { company_id, user_id, .. } = &self.model.context;
        let token = self.model.access.tokens.refresh_after_rejection(company_id, user_id, generation).await?;
        self.send(&token).await
    }

    /// Returns the events of `answer`. If its first one is a rejection of the token of `generation`, the call is repeated.
    fn retry_if_rejected(self, mut answer: ModelStream, generation: u64) -> ModelStream {
        let events = async move {
            match answer.next().await {
                Some(Err(error)) if error.kind() == AgentErrorKind::SignInRequired => {
                    self.send_again(generation).await
                }
                Some(first) => Ok(stream::iter([first]).chain(answer).boxed()),
                None => Ok(answer),
            }
        };
        stream::once(events).try_flatten().boxed()
    }
}

fn limits_of(headers: &HeaderMap) -> SubscriptionLimits {
    SubscriptionLimits::from_headers(|name| headers.get(name)?.to_str().ok())
}

/// Maps an error response of the runtime itself. Those of the vendor have another media type.
async fn runtime_error(response: OutboundResponse) -> AgentError {
    let status_error = status_failure(response.status, &response.headers);
    let Some(ProblemDetails { code: Some(code), .. }) = ProblemDetails::read(response).await else {
        return status_error;
    };
    let (kind, message) = match AgentErrorKind::from_code(&code) {
        Some(kind @ AgentErrorKind::NotConfigured) => {
            (kind, "CODING_API_URL is not configured in the agent runtime")
        }
        Some(kind @ AgentErrorKind::Unreachable) => (kind, "the agent runtime could not reach the model"),
        Some(kind @ AgentErrorKind::Timeout) => (kind, "the model did not answer in time"),
        // The runtime names a delay for this reason alone.
        Some(AgentErrorKind::Failed) if status_error.retry_after().is_some() => return blocked_by_proxy(),
        Some(kind @ AgentErrorKind::Failed) => {
            (kind, "the agent runtime could not read the response of the model's server")
        }
        Some(kind @ AgentErrorKind::ShuttingDown) => (kind, "the agent runtime is shutting down; try again"),
        _ => return status_error.with_source(format!("the agent runtime returned {}", plain_code(&code))),
    };
    AgentError::new(kind, message).with_source(format!("the agent runtime returned {}", kind.code()))
}

/// Returns a code for the log, if it consists of a code's characters.
fn plain_code(code: &str) -> &str {
    let is_code = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    if code.len() <= 64 && code.bytes().all(is_code) { code } else { "an unknown code" }
}
