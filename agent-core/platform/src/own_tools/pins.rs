//! Pinned definitions of the tools of tool servers, in one record per agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId};
use serde::{Deserialize, Serialize};
use url::Url;

use super::tool_server::{ToolDefinition, ToolServer};
use crate::records::{Collection, Key, Precondition, Record, Records, RecordsExt, StoreError};

/// Name of the collection of pins.
const TOOL_PINS: &str = "toolPins";

/// State of a tool of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolStatus {
    /// The tool can be called: it is not at a tool server, or its definition was the pinned one at the latest comparison.
    Ok,
    /// The tool is not pinned, so it is not offered.
    New,
    /// The server's definition is not the pinned one, so the tool is not called.
    Changed,
    /// The server does not have the tool.
    Gone,
    /// The server did not answer.
    Unreachable,
}

/// The pins of an agent, by the ids of its servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentPins {
    pub(super) servers: BTreeMap<String, ServerPins>,
}

/// The pins of one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ServerPins {
    /// Address of the server whose definitions are pinned. Those of another address are not used.
    pub(super) url: String,
    /// Pinned definitions by the tools' names at the server.
    pub(super) tools: BTreeMap<String, ToolDefinition>,
    /// States of pinned tools at the latest comparison, other than [`ToolStatus::Ok`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) observed: BTreeMap<String, ToolStatus>,
}

impl AgentPins {
    /// Returns the pins of a server, if they are of its address.
    pub(super) fn of(&self, server: &ToolServer) -> Option<&ServerPins> {
        self.servers.get(&server.id).filter(|pins| pins.url == server.url.as_str())
    }
}

impl ServerPins {
    pub(super) fn new(url: &Url, tools: BTreeMap<String, ToolDefinition>) -> Self {
        Self { url: url.to_string(), tools, observed: BTreeMap::new() }
    }

    /// Returns the state of each pinned tool; `live` has the server's fingerprints, `None` if it did not answer.
    pub(super) fn compare(&self, live: Option<&BTreeMap<String, String>>) -> BTreeMap<String, ToolStatus> {
        let status = |(name, pinned): (&String, &ToolDefinition)| {
            let status = match live.map(|live| live.get(name)) {
                None => ToolStatus::Unreachable,
                Some(None) => ToolStatus::Gone,
                Some(Some(fingerprint)) if *fingerprint == pinned.fingerprint() => ToolStatus::Ok,
                Some(Some(_)) => ToolStatus::Changed,
            };
            (name.clone(), status)
        };
        self.tools.iter().map(status).collect()
    }
}

/// The record of an agent's pins, which is parsed if its version is not the known one.
pub(super) struct StoredPins {
    collection: Collection,
    record: Record,
}

impl StoredPins {
    pub(super) fn version(&self) -> u64 {
        self.record.version
    }

    /// Parses the pins.
    ///
    /// # Errors
    /// [`StoreError::Malformed`].
    pub(super) fn parse(self) -> Result<AgentPins, StoreError> {
        Ok(self.record.parse(&self.collection)?.value)
    }
}

/// Store of pins.
#[derive(Clone)]
pub(super) struct PinStore(pub(super) Arc<dyn Records>);

impl PinStore {
    fn key(company_id: &CompanyId, agent_id: &AgentId) -> Result<Key, StoreError> {
        Key::new(company_id, TOOL_PINS, agent_id.as_str())
    }

    /// Returns the agent's pins and the version of their record, if there is one.
    pub(super) async fn load(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Record<AgentPins>>, StoreError> {
        self.0.get_as(&Self::key(company_id, agent_id)?).await
    }

    /// Returns the record of the agent's pins as it is stored, if there is one.
    pub(super) async fn stored(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<StoredPins>, StoreError> {
        let key = Self::key(company_id, agent_id)?;
        let record = self.0.get(&key).await?;
        Ok(record.map(|record| StoredPins { collection: key.collection().clone(), record }))
    }

    /// Replaces the pins of a server, and deletes those of ids that `servers` does not have.
    pub(super) async fn replace(
        &self,
        (company_id, agent_id): (&CompanyId, &AgentId),
        servers: &[Arc<ToolServer>],
        (server_id, pins): (&str, ServerPins),
    ) -> Result<(), StoreError> {
        let key = Self::key(company_id, agent_id)?;
        let change = |found: Option<Record<AgentPins>>| {
            let mut all = found.map(|record| record.value).unwrap_or_default();
            all.servers.retain(|id, _| servers.iter().any(|server| server.id == *id));
            all.servers.insert(server_id.to_owned(), pins.clone());
            Ok::<_, StoreError>(all)
        };
        self.0.update(&key, change).await.map(drop)
    }

    /// Writes the states of a server's tools, unless its pins have changed since they were compared.
    pub(super) async fn observe(
        &self,
        (company_id, agent_id): (&CompanyId, &AgentId),
        server_id: &str,
        compared: &ServerPins,
        observed: BTreeMap<String, ToolStatus>,
    ) -> Result<(), StoreError> {
        let observed: BTreeMap<_, _> =
            observed.into_iter().filter(|(_, status)| *status != ToolStatus::Ok).collect();
        if observed == compared.observed {
            return Ok(());
        }
        let Some(Record { version, mut value, .. }) = self.load(company_id, agent_id).await? else {
            return Ok(());
        };
        match value.servers.get_mut(server_id) {
            Some(pins) if pins.url == compared.url && pins.tools == compared.tools => {
                pins.observed = observed;
            }
            _ => return Ok(()),
        }
        let key = Self::key(company_id, agent_id)?;
        match self.0.put_as(&key, &value, Precondition::Version(version)).await {
            // Another run has compared too.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes the pins of an agent.
    pub(super) async fn delete(&self, company_id: &CompanyId, agent_id: &AgentId) -> Result<(), StoreError> {
        self.0.delete(&Self::key(company_id, agent_id)?, Precondition::Any).await.map(drop)
    }
}
