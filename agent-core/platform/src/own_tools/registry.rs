//! Tool registry that adds the tools which an agent's role defines.

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_core::ids::{AgentId, RunId, UserId};
use agent_core::role::{OwnTools, RoleBlock, RoleSource};
use agent_core::secret::Secret;
use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use async_trait::async_trait;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::changes::ToolChanges;
use super::definition::HttpTool;
use super::file_parts::{FileError, FileReader, FormFiles, ToolFiles};
use super::limits::MAX_REQUEST_BYTES;
use super::pins::{AgentPins, PinStore, StoredPins};
use super::redact::Redactor;
use super::request::FilledRequest;
use super::server_calls::{ServerCalls, ToolServerClient};
use super::template::ArgumentError;
use super::tool_server::ServerTool;
use super::{HttpToolClient, HttpToolRequest, MAX_DEFINITION_BYTES, answer, parse_http_tools, parse_servers};
use crate::company_cache::CompanyCache;
use crate::exact_json::exact_arguments;
use crate::records::Records;
use crate::run_table::{OpenRun, RunTable, table_key};
use crate::trace::trace_headers;

/// Maximum number of agents whose parsed tools are cached.
const MAX_CACHED_AGENTS: usize = 1_000;
/// Maximum length of the path of an argument in an error, in bytes: it may have a name that the model has chosen.
const MAX_ARGUMENT_PATH_BYTES: usize = 500;
/// Limit on a response's body, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// A [`ToolRegistry`] that adds the tools of the agent's role to those of another registry. A tool of the other one hides a
/// role's of the same name.
pub struct OwnToolRegistry {
    tools: Arc<dyn ToolRegistry>,
    roles: Arc<dyn RoleSource>,
    http: Arc<dyn HttpToolClient>,
    clock: Arc<dyn Clock>,
    pub(super) server_calls: Option<ServerCalls>,
    files: Option<FileReader>,
    parsed: CompanyCache<AgentId, ParsedRole>,
    /// Roles of previews, by their runs.
    previewed: Arc<RunTable<RoleBlock>>,
}

impl std::fmt::Debug for OwnToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnToolRegistry").finish_non_exhaustive()
    }
}

/// The tools of a role, as long as the role is the same object and its pins are of the same version.
#[derive(Clone)]
struct ParsedRole {
    role: Arc<RoleBlock>,
    pins_version: Option<u64>,
    tools: Arc<[OwnToolKind]>,
}

/// A tool that a role defines.
#[derive(Clone)]
pub(super) enum OwnToolKind {
    Http(Arc<HttpTool>),
    Server(Arc<ServerTool>),
}

impl OwnToolKind {
    fn spec(&self) -> &Arc<ToolSpec> {
        match self {
            Self::Http(tool) => &tool.spec,
            Self::Server(tool) => &tool.spec,
        }
    }

    /// Returns the size of the definition as the model receives it, in bytes.
    pub(super) fn definition_bytes(&self) -> usize {
        let ToolSpec { name, description, input_schema, .. } = &**self.spec();
        name.len() + description.len() + input_schema.get().len()
    }
}

/// Guard that replaces the stored role of an agent by a preview's role until it is dropped.
pub struct PreviewedRole {
    _run: OpenRun<RoleBlock>,
}

impl std::fmt::Debug for PreviewedRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreviewedRole").finish_non_exhaustive()
    }
}

impl OwnToolRegistry {
    /// Adds the tools of `roles` to `tools`; they are called by `http`.
    pub fn new(
        tools: Arc<dyn ToolRegistry>,
        roles: Arc<dyn RoleSource>,
        http: Arc<dyn HttpToolClient>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let parsed = CompanyCache::new(MAX_CACHED_AGENTS);
        Self { tools, roles, http, clock, server_calls: None, files: None, parsed, previewed: Arc::default() }
    }

    /// Adds the tools of roles' tool servers, which `client` reaches and whose pins are in `records`.
    pub fn with_tool_servers(self, client: Arc<dyn ToolServerClient>, records: Arc<dyn Records>) -> Self {
        let calls = ServerCalls::new(client, PinStore(records), self.clock.clone());
        Self { server_calls: Some(calls), ..self }
    }

    /// Sends the stored files of users that calls name. Without it, such a call is refused.
    pub fn with_files(self, files: Arc<dyn ToolFiles>) -> Self {
        Self { files: Some(FileReader::new(files)), ..self }
    }

    /// Returns the reports of tools at tool servers that are not called.
    pub fn tool_changes(&self) -> ToolChanges {
        self.server_calls.as_ref().map(|calls| calls.changes.clone()).unwrap_or_default()
    }

    /// Uses `role` in place of the stored one in a user's run, a preview, until the returned value is dropped.
    pub fn preview_role(&self, user_id: UserId, run_id: RunId, role: Arc<RoleBlock>) -> PreviewedRole {
        PreviewedRole { _run: self.previewed.open((role.company_id.clone(), user_id, run_id), role) }
    }

    fn previewed_role(&self, context: &ExecutionContext) -> Option<Arc<RoleBlock>> {
        self.previewed.find(&table_key(context)).filter(|role| role.id == context.agent_id)
    }

    /// Returns the tools that the role of the context's agent defines.
    async fn own_tools(&self, context: &ExecutionContext) -> Result<Arc<[OwnToolKind]>, ToolError> {
        let (company_id, agent_id) = (&context.company_id, &context.agent_id);
        let previewed = self.previewed_role(context);
        let is_preview = previewed.is_some();
        let found = match previewed {
            Some(role) => Some(role),
            None => self.roles.role(company_id, agent_id).await?,
        };
        let is_defined = |own: &OwnTools| {
            [&own.http_tools, &own.open_api, &own.tool_servers].into_iter().any(|tools| !tools.is_empty())
        };
        let Some(role) = found.filter(|role| is_defined(&role.content.own_tools)) else {
            return Ok(Arc::default());
        };
        let pins = match &self.server_calls {
            Some(calls) if !role.content.own_tools.tool_servers.is_empty() => {
                calls.pins.stored(company_id, agent_id).await?
            }
            _ => None,
        };
        let pins_version = pins.as_ref().map(StoredPins::version);
        let is_current =
            |parsed: &ParsedRole| Arc::ptr_eq(&parsed.role, &role) && parsed.pins_version == pins_version;
        if let Some(parsed) = self.parsed.get(company_id, agent_id).filter(is_current) {
            return Ok(parsed.tools);
        }
        let pins = pins.map(StoredPins::parse).transpose()?.unwrap_or_default();
        let tools: Arc<[_]> = self.build(&role.content.own_tools, &pins).into();
        if !is_preview {
            let parsed = ParsedRole { role, pins_version, tools: tools.clone() };
            self.parsed.insert(company_id, agent_id.clone(), parsed, 1);
        }
        Ok(tools)
    }

    /// Returns the tools of a role that pass the checks, in the order of their names; of several with one name, the first.
    pub(super) fn build(&self, own: &OwnTools, pins: &AgentPins) -> Vec<OwnToolKind> {
        let mut all: Vec<_> = parse_http_tools(own).into_iter().map(OwnToolKind::Http).collect();
        for server in parse_servers(own) {
            let Some(pins) = pins.of(&server) else { continue };
            let pinned = server.tools.iter().filter_map(|name| pins.tools.get(name));
            all.extend(pinned.filter_map(|definition| match ServerTool::new(&server, definition) {
                Ok(tool) => Some(OwnToolKind::Server(Arc::new(tool))),
                Err(fault) => {
                    tracing::warn!(?fault, "a pinned tool is invalid and is not offered");
                    None
                }
            }));
        }
        all.sort_by(|left, right| left.spec().name.cmp(&right.spec().name));
        all.dedup_by(|later, earlier| later.spec().name == earlier.spec().name);
        let mut bytes = 0;
        all.retain(|tool| {
            bytes += tool.definition_bytes();
            bytes <= MAX_DEFINITION_BYTES
        });
        all
    }

    async fn call_http(
        &self,
        tool: &HttpTool,
        context: &ExecutionContext,
        arguments: Value,
    ) -> Result<ToolOutput, ToolError> {
        let mut redactor = Redactor::default();
        let arguments = tool.schema.check(arguments).map_err(ToolError::InvalidArguments)?;
        let arguments = exact_arguments(arguments, context);
        // The memory of the files is counted until the last request has been sent.
        let files = self.read_files(tool, context, &arguments).await?;
        let request = self.request(tool, context, (&arguments, &files), &mut redactor)?;
        let first = self.http.send(&request).await;
        let sent = match first {
            Err(error) if error.is_transient && (!error.was_sent || tool.is_idempotent()) => {
                self.http.send(&request).await
            }
            sent => sent,
        };
        match sent {
            Ok(response) => match answer::output(&tool.result, response, &redactor) {
                Err(message) if !tool.is_idempotent() => Err(outcome_unknown(&message)),
                output => Ok(output.unwrap_or_else(ToolOutput::error)),
            },
            Err(error) if error.was_sent && !tool.is_idempotent() => Err(outcome_unknown(&error.message)),
            Err(error) => Err(ToolError::Unavailable(error.message)),
        }
    }

    /// Reads the stored files that the arguments of a call name.
    async fn read_files(
        &self,
        tool: &HttpTool,
        context: &ExecutionContext,
        arguments: &Map<String, Value>,
    ) -> Result<FormFiles, ToolError> {
        let references = tool.request.file_references(arguments).map_err(invalid_argument)?;
        match &self.files {
            _ if references.is_empty() => Ok(FormFiles::default()),
            None => Err(ToolError::Unavailable("there are no stored files here".to_owned())),
            Some(files) => files.read(context, &references).await.map_err(|error| match error {
                FileError::Argument(error) => invalid_argument(error),
                FileError::Tool(error) => error,
            }),
        }
    }

    /// Builds the request of a call.
    fn request(
        &self,
        tool: &HttpTool,
        context: &ExecutionContext,
        (arguments, files): (&Map<String, Value>, &FormFiles),
        redactor: &mut Redactor,
    ) -> Result<HttpToolRequest, ToolError> {
        let FilledRequest { url, headers, body } =
            tool.request.fill(arguments, files).map_err(invalid_argument)?;
        if body.as_ref().is_some_and(|body| body.own_bytes() > MAX_REQUEST_BYTES) {
            let text = format!("they make a request of more than {MAX_REQUEST_BYTES} bytes");
            return Err(ToolError::InvalidArguments(text));
        }
        let (content_type, body) = body.map(|body| (body.content_type, body.pieces)).unzip();
        let key = idempotency_key(context);
        let mut headers: Vec<_> =
            headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
        headers.push(("Idempotency-Key".to_owned(), Secret::new(key.clone())));
        let trace = trace_headers(context.trace.as_ref());
        headers.extend(trace.map(|(name, value)| (name.to_owned(), Secret::new(value))));
        if tool.is_signed {
            let now = self.clock.now();
            headers.push(tool.credential.identity(&tool.spec.name, (context, Some(&key)), now, redactor)?);
        }
        headers.extend(tool.credential.header(redactor)?);
        let secret_query = tool.credential.query()?;
        let HttpTool { request, timeout, .. } = tool;
        Ok(HttpToolRequest {
            company_id: context.company_id.clone(),
            method: request.method,
            url,
            secret_query,
            headers,
            body,
            content_type: content_type.unwrap_or_default(),
            timeout: *timeout,
            max_response_bytes: MAX_RESPONSE_BYTES,
        })
    }
}

fn invalid_argument(ArgumentError { argument, message }: ArgumentError) -> ToolError {
    let path = &argument[..argument.floor_char_boundary(MAX_ARGUMENT_PATH_BYTES)];
    ToolError::InvalidArguments(format!("/{path}: {message}"))
}

/// Returns the error of a call that was sent and has no result.
fn outcome_unknown(message: &str) -> ToolError {
    ToolError::OutcomeUnknown(format!("{message}; {}", answer::OUTCOME_UNKNOWN))
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
        let added: Vec<_> = own
            .iter()
            .map(OwnToolKind::spec)
            .filter(|own| specs.iter().all(|spec| spec.name != own.name))
            .cloned()
            .collect();
        specs.extend(added);
        specs.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(specs)
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let own = self.own_tools(context).await?;
        let own = own.iter().find(|tool| tool.spec().name == name);
        // The other registry's tools are listed only if one of them may hide a tool of the role.
        let own = match own {
            Some(own) if self.tools.list(context).await?.iter().all(|spec| spec.name != name) => own,
            _ => return self.tools.call(context, name, arguments, progress).await,
        };
        match (own, &self.server_calls) {
            (OwnToolKind::Http(tool), _) => self.call_http(tool, context, arguments).await,
            (OwnToolKind::Server(tool), Some(calls)) => {
                let key = idempotency_key(context);
                calls.call(tool, (context, &key), arguments, progress).await
            }
            (OwnToolKind::Server(_), None) => Err(ToolError::Unknown(name.to_owned())),
        }
    }
}
