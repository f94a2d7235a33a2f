//! Tool registry that adds the tools which an agent's role defines.

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::{RoleBlock, RoleSource};
use agent_core::secret::Secret;
use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::definition::HttpTool;
use super::redact::Redactor;
use super::request::FilledRequest;
use super::template::ArgumentError;
use super::{HttpToolClient, HttpToolRequest, answer, parse_valid, schema};

/// Number of agents whose parsed tools are cached; the least used are evicted.
const MAX_CACHED_AGENTS: usize = 1_000;
/// Limit on a response's body, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Limit on a request's body, in bytes.
const MAX_REQUEST_BYTES: usize = 256 * 1024;

/// A [`ToolRegistry`] with the tools of another one, and those that the agent's role defines. A tool of the other one
/// hides a role's of the same name.
pub struct OwnToolRegistry {
    tools: Arc<dyn ToolRegistry>,
    roles: Arc<dyn RoleSource>,
    http: Arc<dyn HttpToolClient>,
    clock: Arc<dyn Clock>,
    parsed: Cache<(CompanyId, AgentId), ParsedRole>,
}

/// The tools of a role, as long as the role is the same object.
#[derive(Clone)]
struct ParsedRole {
    role: Arc<RoleBlock>,
    tools: Arc<[Arc<HttpTool>]>,
}

impl OwnToolRegistry {
    /// Adds the tools of `roles` to `tools`; they are called by `http`.
    pub fn new(
        tools: Arc<dyn ToolRegistry>,
        roles: Arc<dyn RoleSource>,
        http: Arc<dyn HttpToolClient>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { tools, roles, http, clock, parsed: Cache::new(MAX_CACHED_AGENTS) }
    }

    /// Returns the tools that the role of the context's agent defines.
    async fn own_tools(&self, context: &ExecutionContext) -> Result<Arc<[Arc<HttpTool>]>, ToolError> {
        let (company_id, agent_id) = (&context.company_id, &context.agent_id);
        let found = self.roles.role(company_id, agent_id).await?;
        let Some(role) = found.filter(|role| !role.content.own_tools.http_tools.is_empty()) else {
            return Ok(Arc::new([]));
        };
        let key = (company_id.clone(), agent_id.clone());
        if let Some(parsed) = self.parsed.get(&key).filter(|parsed| Arc::ptr_eq(&parsed.role, &role)) {
            return Ok(parsed.tools);
        }
        let tools: Arc<[_]> = parse_valid(&role.content.own_tools).into();
        self.parsed.insert(key, ParsedRole { role, tools: tools.clone() });
        Ok(tools)
    }

    async fn call_http(
        &self,
        tool: &HttpTool,
        context: &ExecutionContext,
        arguments: Value,
    ) -> Result<ToolOutput, ToolError> {
        let mut redactor = Redactor::default();
        let request = self.request(tool, context, arguments, &mut redactor)?;
        let first = self.http.send(&request).await;
        let sent = match first {
            Err(error) if error.is_transient && (!error.was_sent || tool.is_idempotent()) => {
                self.http.send(&request).await
            }
            sent => sent,
        };
        match sent {
            Ok(response) => Ok(answer::output(&tool.result, response, &redactor)),
            Err(error) if error.was_sent && error.is_outcome_unknown && !tool.is_idempotent() => {
                let text = format!("{error}; the call may or may not have taken effect");
                Err(ToolError::OutcomeUnknown(text))
            }
            Err(error) => Err(ToolError::Unavailable(error.message)),
        }
    }

    /// Builds the request of a call.
    fn request(
        &self,
        tool: &HttpTool,
        context: &ExecutionContext,
        arguments: Value,
        redactor: &mut Redactor,
    ) -> Result<HttpToolRequest, ToolError> {
        let arguments = if arguments.is_null() { Value::Object(Map::new()) } else { arguments };
        if let Some(fault) = schema::fault(&tool.validator, &arguments) {
            return Err(ToolError::InvalidArguments(fault));
        }
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::InvalidArguments("they must be a JSON object".to_owned()));
        };
        let invalid = |ArgumentError { argument, message }| {
            ToolError::InvalidArguments(format!("/{argument}: {message}"))
        };
        let FilledRequest { url, headers, body } = tool.request.fill(&arguments).map_err(invalid)?;
        let body = body.map(|body| body.to_string().into_bytes());
        if body.as_ref().is_some_and(|body| body.len() > MAX_REQUEST_BYTES) {
            let text = format!("they make a request of more than {MAX_REQUEST_BYTES} bytes");
            return Err(ToolError::InvalidArguments(text));
        }
        let key = idempotency_key(context);
        let mut headers: Vec<_> =
            headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
        headers.push(("Idempotency-Key".to_owned(), Secret::new(key.clone())));
        if tool.is_signed {
            let now = self.clock.now();
            headers.push(tool.credential.identity(&tool.spec.name, (context, &key), now, redactor)?);
        }
        headers.extend(tool.credential.header(redactor)?);
        let HttpTool { request, timeout, .. } = tool;
        Ok(HttpToolRequest {
            method: request.method,
            url,
            headers,
            body,
            timeout: *timeout,
            max_response_bytes: MAX_RESPONSE_BYTES,
        })
    }
}

/// Returns the key of a call for its receiver: equal if the same call is repeated, and never equal for two users, who may
/// choose the ids of their runs.
fn idempotency_key(context: &ExecutionContext) -> String {
    let Some(key) = &context.idempotency_key else { return agent_core::new_id() };
    let mut hash = Sha256::new();
    for part in [&*context.company_id, &*context.user_id, &*context.agent_id, key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize()[..16])
}

#[async_trait]
impl ToolRegistry for OwnToolRegistry {
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        let mut specs = self.tools.list(context).await?;
        let own = self.own_tools(context).await?;
        if own.is_empty() {
            return Ok(specs);
        }
        let others: Vec<_> = own
            .iter()
            .filter(|tool| specs.iter().all(|spec| spec.name != tool.spec.name))
            .map(|tool| tool.spec.clone())
            .collect();
        specs.extend(others);
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(specs)
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let others = self.tools.list(context).await?;
        if others.iter().any(|spec| spec.name == name) {
            return self.tools.call(context, name, arguments, progress).await;
        }
        let own = self.own_tools(context).await?;
        match own.iter().find(|tool| tool.spec.name == name) {
            Some(tool) => self.call_http(tool, context, arguments).await,
            None => self.tools.call(context, name, arguments, progress).await,
        }
    }
}
