//! Backend for workflow webhooks: one request for both of n8n's triggers, and a decoder for every form of their
//! answers.
//!
//! The chat trigger reads `action`, `sessionId` and `chatInput`; a workflow behind the webhook trigger finds these and
//! all other fields in its body. The form of the response is detected from its content, since n8n sends streams and
//! single answers with the same media type: see the submodules.

mod answer;
mod auth;
mod error;
mod line;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use agent_core::backend::{Backend, BackendCapabilities, PreparedRequest, Turn};
use agent_core::error::AgentError;
use agent_core::event::EventStream;
use agent_core::message::Role;
use agent_core::payload::{Payload, PayloadBuilder, PromptSection};
use agent_core::prompt::{Dialect, Prompt};
use agent_core::role::WorkflowConnector;
use answer::AnswerFormat;
use async_trait::async_trait;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use serde::Serialize;
use stream::{MAX_WHOLE_BYTES, WorkflowEvents};
use url::Url;

use super::{DEFAULT_REMOTE_BUDGET, push_mcp_server_url, push_optional_member};
use crate::outbound::{OutboundClient, UrlTrust, for_tenant, parse_supplied_url};

/// Maximum time to read the body of a response that has a `Content-Length`.
const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Extra buffer capacity for a request body beside its cached parts, in bytes.
const BODY_HEADROOM: usize = 4096;

/// `Accept` header: the forms in which a workflow may answer.
const ACCEPTED_MEDIA_TYPES: &str = "application/json, application/x-ndjson, text/plain";

/// Backend that sends turns to the webhooks that roles name.
pub struct WorkflowBackend {
    /// The guarded HTTP client. Webhook URLs come from roles, so they are supplied URLs.
    pub outbound: OutboundClient,
    /// The application's public base URL, which the tool server's URL is derived from.
    pub public_url: Url,
    /// Lifetime of the run token: a workflow may continue calling tools after it has answered.
    pub run_token_ttl: Duration,
}

impl std::fmt::Debug for WorkflowBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkflowBackend").finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for WorkflowBackend {
    type Settings = WorkflowConnector;

    fn capabilities(&self, _: &WorkflowConnector) -> Result<BackendCapabilities, AgentError> {
        Ok(BackendCapabilities {
            run_token_ttl: Some(self.run_token_ttl),
            // n8n streams only model text, so tool calls must be added by the platform.
            reports_tool_calls: false,
            ..BackendCapabilities::new(DEFAULT_REMOTE_BUDGET)
        })
    }

    fn prepare(&self, _: &WorkflowConnector, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        let payload = self.payload(&turn)?;
        Ok(PreparedRequest { payload, turn })
    }

    async fn start(
        &self,
        settings: &WorkflowConnector,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        let PreparedRequest { payload, turn } = prepared;
        let url = parse_supplied_url("webhookUrl", settings.webhook_url.as_deref().unwrap_or_default())?;
        let request = self.outbound.post_json(
            &url,
            UrlTrust::Supplied,
            None,
            ACCEPTED_MEDIA_TYPES,
            payload.into_bytes(),
        )?;
        let request = request.continue_trace(turn.context.trace.as_ref());
        let request = auth::authorize(request, settings.auth.as_ref(), &url, &turn.context)?;
        let response = for_tenant(&turn.context.company_id, request.send()).await?;
        if !response.status.is_success() {
            return Err(error::from_status(response.status, &response.headers));
        }
        if response.status == StatusCode::NO_CONTENT {
            return Err(error::empty());
        }
        if let Some(token) = &turn.run_token {
            token.keep_until_expiry();
        }
        let declared_format = AnswerFormat::from_media_type(&response.media_type())?;
        // A stream has no length. A body with a length is read before the run begins, so that an invalid answer becomes
        // an HTTP status rather than a run error.
        let events = if response.headers.contains_key(CONTENT_LENGTH) {
            let relay = response.body.relay();
            let body = response.read_limited(MAX_WHOLE_BYTES, RESPONSE_BODY_TIMEOUT).await?;
            WorkflowEvents::whole(body, declared_format, relay)?
        } else {
            WorkflowEvents::new(response.into_stream(), declared_format)
        };
        Ok(EventStream::new(turn.run.clone(), events))
    }
}

impl WorkflowBackend {
    fn payload(&self, turn: &Turn) -> Result<Payload, AgentError> {
        let context = &turn.context;
        let mut body = Payload::builder(turn.prompt.json_len(Dialect::AgUi) + BODY_HEADROOM);
        body.section(PromptSection::System);
        body.raw(r#"{"action":"sendMessage","sessionId":"#).secret(&context.thread_id);
        body.raw(r#","chatInput":"#).json(&chat_input(&turn.prompt));
        body.raw(r#","roleData":"#);
        push_role_data(turn, &mut body);
        body.raw(r#","agentId":"#).json(&context.agent_id);
        push_optional_member(&mut body, "todoListBlockId", context.todo_list_id.as_ref());
        body.raw(r#","mcpServerUrl":"#);
        push_mcp_server_url(&self.public_url, turn, &mut body)?;
        push_optional_member(&mut body, "ragContext", rag_context(&turn.prompt).as_ref());
        body.raw(r#","messages":["#);
        turn.prompt.push_messages_json(Dialect::AgUi, body.buffer());
        body.raw("]}");
        Ok(body.finish())
    }
}

/// Appends the role data that a workflow may know: neither secrets nor containers.
fn push_role_data(turn: &Turn, body: &mut PayloadBuilder) {
    #[derive(Serialize)]
    struct Document<'a> {
        id: &'a str,
    }
    let (role, content) = (&turn.role, &turn.role.content);
    body.raw(r#"{"agentId":"#).json(&role.id).raw(r#","name":"#).json(&role.name);
    body.raw(r#","finalSystemPrompt":"#);
    turn.prompt.push_system_json(body.buffer());
    push_optional_member(body, "systemPrompt", content.system_prompt.as_ref());
    push_optional_member(
        body,
        "agentConfig",
        content.agent_config.as_ref().filter(|config| !config.is_null()),
    );
    body.raw(r#","rules":"#).json(&content.rules);
    let documents: Vec<_> = content.document_ids.iter().map(|id| Document { id }).collect();
    body.raw(r#","docs":"#).json(&documents);
    push_optional_member(body, "memoryFolder", content.memory_folder.as_ref());
    body.raw("}");
}

/// Returns the retrieved fragments as one text, which the workflow adds to its model's prompt.
fn rag_context(prompt: &Prompt) -> Option<String> {
    let texts: Vec<&str> = prompt.detached_fragments().iter().map(|fragment| fragment.part.text()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// Returns the latest user message without added context. If it is empty, as in a proactive turn, returns the turn's
/// context instead, because an agent node in n8n rejects empty input.
fn chat_input(prompt: &Prompt) -> String {
    let user_text = prompt.latest_user_text().unwrap_or_default();
    if !user_text.trim().is_empty() {
        return user_text.into_owned();
    }
    let mut text = String::new();
    if let Some(message) = prompt.messages().iter().rev().find(|message| message.role() == Role::User) {
        message.push_text(&mut text);
    }
    text
}

#[cfg(test)]
mod tests;
