//! Inspection of an agent's own tools for its owner: states, comparison with a tool server's list, and pins.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::role::{OwnTool, RoleBlock, grouped_name};
use agent_core::tool::{ExecutionContext, ToolError, ToolSpec};
use serde::Serialize;
use serde_json::json;

use super::fingerprint::fingerprint;
use super::pins::{AgentPins, ServerPins, ToolStatus};
use super::registry::{OwnToolKind, OwnToolRegistry};
use super::server_calls::{ServerCalls, fingerprints};
use super::settings::list_names;
use super::tool_server::{ToolDefinition, ToolServer};
use super::{MAX_DEFINITION_BYTES, parse_http_tools, parse_servers};
use crate::records::StoreError;

/// A tool that a role defines.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnToolReport {
    /// Name under which the tool is offered.
    pub name: String,
    /// Kind of its definition.
    pub source: ToolSource,
    /// The tool server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// Fingerprint of the definition in use; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// State of the tool.
    pub status: ToolStatus,
}

/// Source of a tool's definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolSource {
    /// The platform.
    BuiltIn,
    /// An HTTP tool of the role.
    Http,
    /// An operation of an OpenAPI document of the role.
    OpenApi,
    /// A tool server of the role.
    ToolServer,
}

/// Comparison of a tool server's list of tools with its pins.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Discovery {
    /// Id of the server.
    pub server_id: String,
    /// `ok`, or `unreachable` if the server has not answered.
    pub status: ToolStatus,
    /// Reason why there is no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The tools that the server has, those that the role names and those that are pinned, by their names.
    pub tools: Vec<DiscoveredTool>,
}

/// A tool of a tool server.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredTool {
    /// Name at the server.
    pub name: String,
    /// Name under which the tool is offered to the model.
    pub offered_as: String,
    /// True if the role names the tool, so that it can be pinned.
    pub is_allowed: bool,
    /// State of the tool.
    pub status: ToolStatus,
    /// Fingerprint of the server's definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The server's definition, unless it cannot be pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<ToolDefinition>,
    /// The pinned definition, if the server's is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<ToolDefinition>,
    /// Reason why the definition cannot be pinned. The schema of a tool that the role does not name is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Error of an inspection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectionError {
    /// The role has no valid server of this id.
    #[error("{}", unknown_server(.known))]
    UnknownServer {
        /// Ids of the role's valid servers.
        known: Vec<String>,
    },
    /// A tool cannot be pinned. The message follows the tool's name.
    #[error("{tool} {message}")]
    NotPinnable {
        /// Name of the tool at the server.
        tool: String,
        /// Description.
        message: String,
    },
    /// The server's definition is not the one that was accepted.
    #[error("the definition of {0} has changed: read the list again")]
    Changed(String),
    /// The server did not answer.
    #[error("{0}")]
    Unreachable(String),
    /// A call of the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn unknown_server(known: &[String]) -> String {
    match known {
        [] => "is not the id of a tool server: the agent has none".to_owned(),
        known => format!("is not the id of a tool server of the agent, which has {}", list_names(known)),
    }
}

impl From<ToolError> for InspectionError {
    fn from(error: ToolError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// Returns the fingerprint of a tool as it is offered.
pub fn spec_fingerprint(spec: &ToolSpec) -> String {
    let schema: serde_json::Value = serde_json::from_str(spec.input_schema.get()).unwrap_or_default();
    fingerprint(&json!({"name": spec.name, "description": spec.description, "inputSchema": schema,
        "annotations": spec.annotations}))
}

impl OwnToolRegistry {
    /// Returns the tools that the role of the context's agent defines, by their names, as they were at the latest
    /// comparison. Sends nothing.
    ///
    /// # Errors
    /// A call of the store failed.
    pub async fn report(&self, role: &RoleBlock) -> Result<Vec<OwnToolReport>, StoreError> {
        let own = &role.content.own_tools;
        let compiled: Vec<String> = own.open_api.iter().flat_map(OwnTool::names).collect();
        let http = parse_http_tools(own).into_iter().map(|tool| OwnToolReport {
            name: tool.spec.name.clone(),
            source: match compiled.contains(&tool.spec.name) {
                true => ToolSource::OpenApi,
                false => ToolSource::Http,
            },
            server_id: None,
            fingerprint: Some(spec_fingerprint(&tool.spec)),
            status: ToolStatus::Ok,
        });
        let mut all: Vec<_> = http.collect();
        let Some(calls) = &self.server_calls else { return Ok(all) };
        let pins = load_pins(calls, &role.company_id, &role.id).await?;
        for server in parse_servers(&role.content.own_tools) {
            let pins = pins.of(&server);
            all.extend(server.tools.iter().map(|name| {
                let pinned = pins.and_then(|pins| pins.tools.get(name));
                let observed = pins.and_then(|pins| pins.observed.get(name)).copied();
                OwnToolReport {
                    name: server.offered_name(name),
                    source: ToolSource::ToolServer,
                    server_id: Some(server.id.clone()),
                    fingerprint: pinned.map(ToolDefinition::fingerprint),
                    status: match pinned {
                        Some(_) => observed.unwrap_or(ToolStatus::Ok),
                        None => ToolStatus::New,
                    },
                }
            }));
        }
        all.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(all)
    }

    /// Lists the tools of a server of `role`, and compares them with the pins.
    ///
    /// # Errors
    /// The role has no such server, or a call of the store failed.
    pub async fn discover(
        &self,
        role: &RoleBlock,
        context: &ExecutionContext,
        server_id: &str,
    ) -> Result<Discovery, InspectionError> {
        let (calls, server) = self.server(role, server_id)?;
        let pins = load_pins(calls, &role.company_id, &role.id).await?;
        let pins = pins.of(&server).cloned().unwrap_or_default();
        let (live, error) = match calls.list(&server, context).await {
            Ok(live) => (Some(live), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let live_fingerprints = live.as_deref().map(fingerprints);
        calls.observe(context, &server, live_fingerprints.as_ref()).await;
        let status = if live.is_some() { ToolStatus::Ok } else { ToolStatus::Unreachable };
        let tools = compare(&server, &pins, live.as_deref(), live_fingerprints.as_ref());
        Ok(Discovery { server_id: server.id.clone(), status, error, tools })
    }

    /// Pins the definitions of a server of `role` whose fingerprints are given, by the tools' names at the server. Tools
    /// that are not named are no longer pinned.
    ///
    /// # Errors
    /// [`InspectionError`]; nothing is pinned then.
    pub async fn pin(
        &self,
        role: &RoleBlock,
        context: &ExecutionContext,
        server_id: &str,
        accepted: &BTreeMap<String, String>,
    ) -> Result<(), InspectionError> {
        let (calls, server) = self.server(role, server_id)?;
        let mut pinned = BTreeMap::new();
        let live = match accepted.is_empty() {
            true => Vec::new(),
            false => calls.list(&server, context).await?,
        };
        let live_fingerprints = fingerprints(&live);
        for (name, fingerprint) in accepted {
            let not_pinnable = |message: String| InspectionError::NotPinnable { tool: name.clone(), message };
            if !server.tools.contains(name) {
                let names = list_names(&server.tools);
                return Err(not_pinnable(format!("is not a tool that the role names: {names}")));
            }
            let definition = live.iter().find(|tool| tool.name == *name);
            let definition = definition.ok_or_else(|| {
                let is_live = |name: &&String| live_fingerprints.contains_key(*name);
                let names = list_names(server.tools.iter().filter(is_live));
                let names = if names.is_empty() { "none".to_owned() } else { names };
                not_pinnable(format!(
                    "is not a tool of the server; of the tools that the role names, the server has: {names}"
                ))
            })?;
            if live_fingerprints.get(name) != Some(fingerprint) {
                return Err(InspectionError::Changed(name.clone()));
            }
            if let Some(fault) = definition.fault() {
                return Err(not_pinnable(fault));
            }
            pinned.insert(name.clone(), definition.clone());
        }
        let others = self.other_definition_bytes(calls, role, &server).await?;
        let bytes = others + pinned.values().map(ToolDefinition::bytes).sum::<usize>();
        if bytes > MAX_DEFINITION_BYTES {
            let message = format!(
                "makes {bytes} bytes of definitions; the limit of an agent is {MAX_DEFINITION_BYTES}"
            );
            let tool = pinned.into_keys().next_back().unwrap_or_default();
            return Err(InspectionError::NotPinnable { tool, message });
        }
        let pins = ServerPins::new(&server.url, pinned);
        let servers = parse_servers(&role.content.own_tools);
        Ok(calls.pins.replace((&role.company_id, &role.id), &servers, (&server.id, pins)).await?)
    }

    /// Deletes the pins of an agent, which must not apply to a new one of the same id.
    ///
    /// # Errors
    /// A call of the store failed.
    pub async fn delete_pins(&self, company_id: &CompanyId, agent_id: &AgentId) -> Result<(), StoreError> {
        match &self.server_calls {
            Some(calls) => calls.pins.delete(company_id, agent_id).await,
            None => Ok(()),
        }
    }

    fn server(&self, role: &RoleBlock, id: &str) -> Result<(&ServerCalls, Arc<ToolServer>), InspectionError> {
        let servers = parse_servers(&role.content.own_tools);
        let found = servers.iter().find(|server| server.id == id).cloned();
        let (Some(calls), Some(server)) = (&self.server_calls, found) else {
            let known = servers.iter().map(|server| server.id.clone()).collect();
            return Err(InspectionError::UnknownServer { known });
        };
        Ok((calls, server))
    }

    /// Returns the size of the definitions of all own tools that are not of this server.
    async fn other_definition_bytes(
        &self,
        calls: &ServerCalls,
        role: &RoleBlock,
        server: &ToolServer,
    ) -> Result<usize, StoreError> {
        let pins = load_pins(calls, &role.company_id, &role.id).await?;
        let all = self.build(&role.content.own_tools, &pins);
        let is_other = |kind: &&OwnToolKind| match kind {
            OwnToolKind::Http(_) => true,
            OwnToolKind::Server(tool) => tool.server.id != server.id,
        };
        Ok(all.iter().filter(is_other).map(OwnToolKind::definition_bytes).sum())
    }
}

async fn load_pins(
    calls: &ServerCalls,
    company_id: &CompanyId,
    agent_id: &AgentId,
) -> Result<AgentPins, StoreError> {
    Ok(calls.pins.load(company_id, agent_id).await?.map(|record| record.value).unwrap_or_default())
}

fn compare(
    server: &ToolServer,
    pins: &ServerPins,
    live: Option<&[ToolDefinition]>,
    live_fingerprints: Option<&BTreeMap<String, String>>,
) -> Vec<DiscoveredTool> {
    let definitions = live.unwrap_or_default();
    let mut names: Vec<&String> = definitions.iter().map(|tool| &tool.name).collect();
    names.extend(server.tools.iter().chain(pins.tools.keys()));
    names.sort();
    names.dedup();
    let compared = pins.compare(live_fingerprints);
    let tool = |name: &String| {
        let definition = definitions.iter().find(|tool| tool.name == *name);
        let status = match compared.get(name) {
            Some(status) => *status,
            None if live.is_none() => ToolStatus::Unreachable,
            None if definition.is_none() => ToolStatus::Gone,
            None => ToolStatus::New,
        };
        let is_allowed = server.tools.contains(name);
        // A server may list many tools. Only the schemas of those that can be pinned are compiled.
        let fault = definition.and_then(|definition| match is_allowed {
            true => definition.fault(),
            false => definition.size_fault(),
        });
        DiscoveredTool {
            name: name.clone(),
            offered_as: grouped_name(&server.id, name),
            is_allowed,
            status,
            fingerprint: live_fingerprints.and_then(|all| all.get(name)).cloned(),
            definition: definition.filter(|_| fault.is_none()).cloned(),
            pinned: pins.tools.get(name).filter(|_| status != ToolStatus::Ok).cloned(),
            fault,
        }
    };
    names.into_iter().map(tool).collect()
}
