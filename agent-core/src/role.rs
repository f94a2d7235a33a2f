//! Role blocks: who an agent is, what it may use, and which backend answers for it.
//!
//! The shapes are the ones that operators write into workspace files. Secrets are of type
//! [`Secret`]: they can be read by the code that sends them and are masked everywhere else.
//! [`RoleStore`] is where roles are kept, and [`RecordRoles`] keeps them in any
//! [`Records`](crate::records::Records), secrets apart and sealed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::records::{List, Page, Precondition, Record, StoreError};

mod records;
mod rotation;
mod secrets;

pub use records::RecordRoles;
pub(crate) use records::{ROLES, RoleKeys, Stored, as_found};
pub use rotation::Rotated;
pub use secrets::merge_secrets;
pub(crate) use secrets::places;

/// An agent's role: its content and the containers below it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoleBlock {
    /// The agent's identifier.
    pub id: String,
    /// The agent's name.
    #[serde(default)]
    pub name: String,
    /// The user who owns the agent.
    #[serde(default)]
    pub owner_id: String,
    /// The company that the agent belongs to.
    pub company_id: String,
    /// Who the agent is.
    #[serde(default)]
    pub content: RoleContent,
    /// The containers, which name backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Container>,
}

/// Who an agent is and what it may use.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleContent {
    /// The operator's own system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Free-form settings that the prompt shows to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_config: Option<Value>,
    /// How the agent speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personality: Option<String>,
    /// Named pieces of the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompt_blocks: Vec<PromptBlock>,
    /// What the agent must and must not do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// The documents whose text is part of the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub document_ids: Vec<String>,
    /// The folder of the agent's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_folder: Option<String>,
    /// The council that the agent sits on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub council: Option<Council>,
    /// The tools that an agent has to begin with; absent is the base set. Where a file gives a word in
    /// place of names, `base` is the base set and `none` is no tool.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "preset")]
    #[schemars(schema_with = "preset_schema")]
    pub mcp_preset: Option<Vec<String>>,
    /// Tools beside the preset.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The tools that a widget's visitors may have called; none by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub widget_tools: Vec<String>,
    /// Whether fragments of the agent's documents are retrieved for each turn.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_auto_rag: bool,
    /// The documents to retrieve from; empty is `document_ids`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rag_document_ids: Vec<String>,
    /// Where retrieved fragments go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rag_placement: Option<RagPlacement>,
    /// The messenger bot's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messenger_token: Option<Secret>,
    /// The agent runtime that answers, where the role itself names one.
    #[serde(flatten, deserialize_with = "agent_server")]
    pub agent_server: AgentServer,
}

fn preset<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected an array of tool names, \"base\" or \"none\"")]
    enum Form {
        Names(Vec<String>),
        Word(Word),
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Base,
        None,
    }
    Ok(match Option::deserialize(deserializer)? {
        None | Some(Form::Word(Word::Base)) => None,
        Some(Form::Word(Word::None)) => Some(Vec::new()),
        Some(Form::Names(names)) => Some(names),
    })
}

fn preset_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [
        {"type": "array", "items": {"type": "string"}},
        {"enum": ["base", "none"]},
        {"type": "null"},
    ]})
}

/// Flattened fields are read apart from the others, so a fault among them must name its field itself.
fn agent_server<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AgentServer, D::Error> {
    serde_path_to_error::deserialize(deserializer).map_err(D::Error::custom)
}

/// A piece of the prompt: text alone, or text with a title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PromptBlock {
    /// Text.
    Text(String),
    /// Text under a title.
    Titled {
        /// The title.
        #[serde(default, alias = "name", alias = "id")]
        title: String,
        /// The text.
        #[serde(alias = "content")]
        text: String,
    },
}

/// The other agents whom this one consults, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Council {
    /// What the model is told about the council.
    Text(String),
    /// Members and what the model is told.
    Members {
        /// What the council is for.
        #[serde(default)]
        purpose: String,
        /// Who sits on it.
        #[serde(default)]
        members: Vec<CouncilMember>,
    },
}

/// A member of a council.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CouncilMember {
    /// Its name.
    pub name: String,
    /// What it is good at.
    #[serde(default)]
    pub expertise: String,
}

/// Where retrieved fragments go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RagPlacement {
    /// At the end of the system prompt.
    #[default]
    SystemPrompt,
    /// Before the latest user message, which keeps the provider's prompt cache.
    LatestTurn,
}

/// The seven fields that name an agent runtime and its model.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentServer {
    /// The runtime's base address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_url: Option<String>,
    /// The provider that the runtime shall use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_provider: Option<String>,
    /// The model's name at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_model: Option<String>,
    /// Whether the model shall think aloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_enable_thinking: Option<bool>,
    /// Cuts the allowed tools down to these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_tools: Option<Vec<String>>,
    /// The address of a local model runtime, sent as `baseUrl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_local_url: Option<String>,
    /// The key of a hosted provider, sent as `apiKey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_api_key: Option<Secret>,
}

/// A module below a role, by name.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Container {
    /// A remote agent runtime.
    AgentServer(Box<AgentServer>),
    /// A workflow automation engine.
    WorkflowConnector(Box<WorkflowConnector>),
    /// A model in the application's own process or called from it.
    EmbeddedAi(EmbeddedAi),
    /// A subscription coding model.
    SubscriptionConnector(SubscriptionConnector),
    /// A module that this version does not know; it matches nothing and is kept as it is.
    Other {
        /// Its name.
        name: String,
        /// Its content.
        content: Value,
    },
}

impl Container {
    /// The name that it stands under in a workspace file.
    pub fn name(&self) -> &str {
        match self {
            Self::AgentServer(_) => "AgentServer",
            Self::WorkflowConnector(_) => "WorkflowConnector",
            Self::EmbeddedAi(_) => "EmbeddedAI",
            Self::SubscriptionConnector(_) => "SubscriptionConnector",
            Self::Other { name, .. } => name,
        }
    }
}

impl<'de> Deserialize<'de> for Container {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Container {
            name: String,
        }
        #[derive(Deserialize)]
        struct Content<T> {
            #[serde(default = "Option::default")]
            content: Option<T>,
        }
        // The name says how to read the content and may come after it, so the whole is kept first;
        // a fault in it must then name its field itself.
        fn content<T: DeserializeOwned + Default, E: serde::de::Error>(container: Value) -> Result<T, E> {
            let read: Result<Content<T>, _> = serde_path_to_error::deserialize(container);
            Ok(read.map_err(E::custom)?.content.unwrap_or_default())
        }
        let container = Value::deserialize(deserializer)?;
        let Container { name } = Container::deserialize(&container).map_err(D::Error::custom)?;
        Ok(match name.as_str() {
            "AgentServer" => Self::AgentServer(content(container)?),
            "WorkflowConnector" => Self::WorkflowConnector(content(container)?),
            "EmbeddedAI" => Self::EmbeddedAi(content(container)?),
            "SubscriptionConnector" => Self::SubscriptionConnector(content(container)?),
            _ => Self::Other { content: Value::Object(content(container)?), name },
        })
    }
}

impl Serialize for Container {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fn form<C: Serialize, S: Serializer>(
            name: &str,
            content: C,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            let mut form = serializer.serialize_struct("Container", 2)?;
            form.serialize_field("name", name)?;
            form.serialize_field("content", &content)?;
            form.end()
        }
        match self {
            Self::AgentServer(content) => form(self.name(), content, serializer),
            Self::WorkflowConnector(content) => form(self.name(), content, serializer),
            Self::EmbeddedAi(content) => form(self.name(), content, serializer),
            Self::SubscriptionConnector(content) => form(self.name(), content, serializer),
            Self::Other { name, content } => form(name, content, serializer),
        }
    }
}

impl JsonSchema for Container {
    fn schema_name() -> Cow<'static, str> {
        "Container".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let known = [
            ("AgentServer", generator.subschema_for::<Option<AgentServer>>()),
            ("WorkflowConnector", generator.subschema_for::<Option<WorkflowConnector>>()),
            ("EmbeddedAI", generator.subschema_for::<Option<EmbeddedAi>>()),
            ("SubscriptionConnector", generator.subschema_for::<Option<SubscriptionConnector>>()),
        ];
        let names = known.each_ref().map(|(name, _)| *name);
        let form = |name: Value, content: Value| json!({"type": "object", "required": ["name"], "properties": {"name": name, "content": content}});
        let known = known.map(|(name, content)| form(json!({"const": name}), content.to_value()));
        let other =
            form(json!({"type": "string", "not": {"enum": names}}), json!({"type": ["object", "null"]}));
        let forms: Vec<Value> = known.into_iter().chain([other]).collect();
        json_schema!({"description": "A module below a role, by name.", "oneOf": forms})
    }
}

/// A workflow engine's webhook.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowConnector {
    /// Where the payload is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_url: Option<String>,
    /// How the webhook knows us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<WebhookAuth>,
}

/// How a webhook knows us. What is secret in it may be left out of a role that is saved, as any secret.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum WebhookAuth {
    /// Not at all.
    None,
    /// RFC 7617.
    Basic {
        /// The user.
        user: String,
        /// The password.
        #[serde(skip_serializing_if = "Option::is_none")]
        password: Option<Secret>,
    },
    /// A header of one's own.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<Secret>,
    },
    /// A signed token.
    Jwt {
        /// The signing secret.
        #[serde(skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
}

/// The model behind an `EmbeddedAI` container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EmbeddedAi {
    /// `auto` (the default), `local`, `openai` or `ollama`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model's name at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The provider's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
}

/// A subscription coding model.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionConnector {
    /// The model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A string that is shown to nobody: `Debug` and serialisation give [`Secret::MASK`].
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// What stands in a secret's place wherever it is shown. In a role that is saved it stands for the
    /// secret that is there already, so that what was shown can be sent back.
    pub const MASK: &str = "***";

    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// What stands in a secret's place.
    pub fn mask() -> Self {
        Self::new(Self::MASK)
    }

    /// Whether this is no secret but what stands in its place.
    pub fn is_mask(&self) -> bool {
        self.0 == Self::MASK
    }

    /// The secret itself, for the code that sends it to where it was meant to go.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::MASK)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The reader's own message would quote what stands there.
        String::deserialize(deserializer).map(Self).map_err(|_| D::Error::custom("expected a string"))
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A secret. It is shown as `***`. Where a role is saved, one that is absent or `***` stays \
                            as it is, and an empty one is cleared.",
            "type": "string",
        })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(Self::MASK)
    }
}

/// Where roles come from and are kept.
///
/// The contract, held by `conformance::role_store`:
///
/// - an agent of another company is as absent as one that never was, and so is one whose id none can have;
/// - an agent's id is unique among all companies;
/// - a role is replaced whole, its secrets by the rule of [`merge_secrets`], and the next read gives it;
/// - a write whose precondition does not hold changes nothing;
/// - secrets are given by [`role`](Self::role) alone, to the code that sends them.
#[async_trait]
pub trait RoleStore: Send + Sync + 'static {
    /// The role of `agent_id` with its secrets, if the company has it.
    ///
    /// # Errors
    /// [`StoreError::Sealed`] and [`StoreError::NotConfigured`] where a secret of it cannot be opened.
    async fn role(&self, company_id: &str, agent_id: &str) -> Result<Option<Arc<RoleBlock>>, StoreError>;

    /// The role of `agent_id` as it may be shown, its secrets masked, with the version that
    /// [`put_role`](Self::put_role) gave for it.
    async fn masked_role(
        &self,
        company_id: &str,
        agent_id: &str,
    ) -> Result<Option<Record<RoleBlock>>, StoreError>;

    /// One page of a company's roles by the bytes of their ids, as they may be shown.
    async fn masked_roles(&self, company_id: &str, list: &List) -> Result<Page<RoleBlock>, StoreError>;

    /// Saves a role under its own id and company, and gives its version. Of its secrets, those that are
    /// absent or masked stay as they are; see [`merge_secrets`].
    ///
    /// # Errors
    /// [`StoreError::Taken`] where another company has the id, [`StoreError::Conflict`] where the
    /// precondition does not hold, [`StoreError::Invalid`] for an id that no agent can have,
    /// [`StoreError::NotConfigured`] for a secret where there is no key to seal it with.
    async fn put_role(&self, role: RoleBlock, precondition: Precondition) -> Result<u64, StoreError>;

    /// Removes a role with its secrets and says whether there was one. Its id is free again. What the
    /// agent has made, such as its memory, stays.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] where the precondition does not hold.
    async fn delete_role(
        &self,
        company_id: &str,
        agent_id: &str,
        precondition: Precondition,
    ) -> Result<bool, StoreError>;
}

#[cfg(test)]
mod tests;
