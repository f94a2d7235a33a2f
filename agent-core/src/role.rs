//! Role blocks: who an agent is, what it may use, and which backend answers for it.
//!
//! The shapes are the ones that operators write into workspace files. Secrets are of type
//! [`Secret`]: they can be read by the code that sends them and are masked everywhere else.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::records::StoreError;

/// An agent's role: its content and the containers below it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
    /// The tools that an agent has to begin with; absent is the base set.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(flatten)]
    pub agent_server: AgentServer,
}

/// A piece of the prompt: text alone, or text with a title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CouncilMember {
    /// Its name.
    pub name: String,
    /// What it is good at.
    #[serde(default)]
    pub expertise: String,
}

/// Where retrieved fragments go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RagPlacement {
    /// At the end of the system prompt.
    #[default]
    SystemPrompt,
    /// Before the latest user message, which keeps the provider's prompt cache.
    LatestTurn,
}

/// The seven fields that name an agent runtime and its model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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

/// The wire form: a name and, if there is anything to say, a content.
#[derive(Serialize, Deserialize)]
struct ContainerForm<C> {
    name: String,
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    content: Option<C>,
}

impl<'de> Deserialize<'de> for Container {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn content<T: DeserializeOwned, E: serde::de::Error>(name: &str, value: Value) -> Result<T, E> {
            serde_json::from_value(value).map_err(|error| E::custom(format!("{name}: {error}")))
        }
        let ContainerForm { name, content: value } = ContainerForm::<Value>::deserialize(deserializer)?;
        let value = value.unwrap_or_else(|| Value::Object(Map::new()));
        Ok(match name.as_str() {
            "AgentServer" => Self::AgentServer(content(&name, value)?),
            "WorkflowConnector" => Self::WorkflowConnector(content(&name, value)?),
            "EmbeddedAI" => Self::EmbeddedAi(content(&name, value)?),
            "SubscriptionConnector" => Self::SubscriptionConnector(content(&name, value)?),
            _ => Self::Other { name, content: value },
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
            ContainerForm { name: name.to_owned(), content: Some(content) }.serialize(serializer)
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

/// A workflow engine's webhook.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowConnector {
    /// Where the payload is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_url: Option<String>,
    /// How the webhook knows us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<WebhookAuth>,
}

/// How a webhook knows us.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum WebhookAuth {
    /// Not at all.
    None,
    /// RFC 7617.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A header of one's own.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: Secret,
    },
    /// A signed token.
    Jwt {
        /// The signing secret.
        secret: Secret,
    },
}

/// The model behind an `EmbeddedAI` container.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionConnector {
    /// The model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// A string that is shown to nobody: `Debug` and serialisation give `***`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the code that sends it to where it was meant to go.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// Where roles come from.
///
/// The contract, held by `conformance::role_store`: an agent of another company is as absent as one
/// that never was; what was put is what is got, secrets included.
#[async_trait]
pub trait RoleStore: Send + Sync + 'static {
    /// The role of `agent_id`, if the company has it.
    async fn role(&self, company_id: &str, agent_id: &str) -> Result<Option<Arc<RoleBlock>>, StoreError>;

    /// Saves a role under its own id and company. An id that another company holds
    /// is [`StoreError::Taken`].
    async fn put_role(&self, role: RoleBlock) -> Result<(), StoreError>;
}
