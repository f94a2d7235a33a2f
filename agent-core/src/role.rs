//! Role blocks: an agent's prompt, tools and backends.
//!
//! The shapes are the ones that operators write into workspace files. Secrets are of type [`Secret`]: the code that
//! sends them can read them, and they are masked everywhere else. A turn reads roles through [`RoleSource`].

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::ids::{AgentId, CompanyId, UserId};
use crate::secret::Secret;
use crate::store_error::StoreError;

mod approval;
mod conversations;
mod fallback;
mod objects;
mod own_tools;
mod response_format;
#[cfg(feature = "schemars")]
mod schema;

pub use approval::{ApprovalRule, Approver, ToolHint, UnattendedCalls};
pub use conversations::{ClientTools, ConversationSettings, OnBusy, OnDisconnect};
pub use fallback::{FallbackModel, RetrySettings, TokenLimits};
pub use own_tools::{OwnTool, OwnTools, ToolAuth, grouped_name};
pub use response_format::{ResponseFormat, ResponseKind};

/// An agent's role: its content and its containers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoleBlock {
    /// The agent's identifier.
    pub id: AgentId,
    /// The agent's name.
    #[serde(default)]
    pub name: String,
    /// The user who owns the agent.
    #[serde(default)]
    pub owner_id: UserId,
    /// The company that the agent belongs to.
    pub company_id: CompanyId,
    /// The agent's prompt, tools and backend.
    #[serde(default)]
    pub content: RoleContent,
    /// Modules below the role, which name backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Container>,
}

/// An agent's prompt, tools and backend.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RoleContent {
    /// The operator's system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Free-form settings that the prompt shows to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_config: Option<Value>,
    /// The agent's manner of speaking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub personality: Option<String>,
    /// Text blocks of the prompt, with or without a title.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompt_blocks: Vec<PromptBlock>,
    /// Rules that the agent must follow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Identifiers of the documents whose text is part of the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub document_ids: Vec<String>,
    /// The folder of the agent's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_folder: Option<String>,
    /// Owner of the entries of the agent's memory; absent means `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_scope: Option<MemoryScope>,
    /// The other agents that this agent may consult.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub council: Option<Council>,
    /// Names of the tools that the agent starts with; absent means the base set. In place of names, a workspace file
    /// may have `base` for the base set or `none` for no tools.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_preset")]
    #[cfg_attr(feature = "schemars", schemars(schema_with = "schema::deserialize_preset"))]
    pub mcp_preset: Option<Vec<String>>,
    /// Names of further tools in addition to the preset.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Names of the tools that a widget's visitors may use; none by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub widget_tools: Vec<String>,
    /// Tools of the agent's own.
    #[serde(flatten, deserialize_with = "deserialize_flattened")]
    pub own_tools: OwnTools,
    /// Rules by which tool calls wait for a person's approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRule>,
    /// Enables the retrieval of fragments of the agent's documents for each turn.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_auto_rag: bool,
    /// Identifiers of the documents to retrieve from; if empty, those in the prompt (`documentIds`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rag_document_ids: Vec<String>,
    /// Placement of retrieved fragments in the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rag_placement: Option<RagPlacement>,
    /// Shows a widget's visitors the titles and pages of the documents that an answer cites.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub show_sources: bool,
    /// Shortening of long conversations, by names of settings. No secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Map<String, Value>>,
    /// Limits on the model's tokens, for the backends that this platform sends prompts to.
    #[serde(flatten, deserialize_with = "deserialize_flattened")]
    pub token_limits: TokenLimits,
    /// The messenger bot's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messenger_token: Option<Secret>,
    /// The agent runtime that answers, if the role names one itself.
    #[serde(flatten, deserialize_with = "deserialize_flattened")]
    pub agent_server: AgentServer,
    /// Storage of the agent's conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversations: Option<ConversationSettings>,
}

fn deserialize_preset<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
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

/// Deserializes flattened fields. Unlike the others', their errors must name the field themselves.
fn deserialize_flattened<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    serde_path_to_error::deserialize(deserializer).map_err(D::Error::custom)
}

/// A text block of the prompt, with or without a title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum PromptBlock {
    /// Text without a title.
    Text(String),
    /// Text below a title.
    Titled {
        /// The title.
        #[serde(default, alias = "name", alias = "id")]
        title: String,
        /// The text.
        #[serde(alias = "content")]
        text: String,
    },
}

/// The other agents that this agent may consult, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Council {
    /// Description of the council in the prompt, as text.
    Text(String),
    /// Description of the council by its members.
    Members {
        /// Purpose of the council.
        #[serde(default)]
        purpose: String,
        /// Members of the council.
        #[serde(default)]
        members: Vec<CouncilMember>,
    },
}

/// A member of a council.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CouncilMember {
    /// The member's name.
    pub name: String,
    /// The member's field of expertise.
    #[serde(default)]
    pub expertise: String,
}

/// Owner of the entries of an agent's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum MemoryScope {
    /// Each user has separate entries, which no other user's prompt contains.
    #[default]
    User,
    /// All users of the company share the entries.
    Company,
}

/// Placement of retrieved fragments in the prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum RagPlacement {
    /// At the end of the system prompt.
    #[default]
    SystemPrompt,
    /// Before the latest user message, which keeps the vendor's prompt cache valid.
    LatestTurn,
}

/// Agent runtime and model: the seven `agentServer*` fields, model parameters and fallbacks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AgentServer {
    /// Base URL of the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_url: Option<String>,
    /// Name of the provider that the runtime uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_provider: Option<String>,
    /// Name of the model at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_model: Option<String>,
    /// Enables the model's reasoning output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_enable_thinking: Option<bool>,
    /// Restricts the allowed tools to these names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_tools: Option<Vec<String>>,
    /// URL of a local model runtime, sent as `baseUrl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_local_url: Option<String>,
    /// API key of a hosted provider, sent as `apiKey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_server_api_key: Option<Secret>,
    /// Parameters of the model's calls by their names, such as `temperature`. No secrets.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Prices in dollars for a million tokens: `input`, `cachedInput`, `cacheWrite` and `output`. No secrets.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub prices: Box<Map<String, Value>>,
    /// Limits on the calls of the runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySettings>,
    /// Agent servers for the runs that this one fails to begin. They inherit neither address nor key, and have no fallbacks of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<AgentServer>,
    /// Time in milliseconds in which a fallback's first content must arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_content_ms: Option<NonZeroU32>,
    /// Limits of the role, which the selection sets.
    #[serde(skip)]
    pub token_limits: TokenLimits,
}

/// A module below a role, by name.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "name", content = "content")]
pub enum Container {
    /// A remote agent runtime.
    AgentServer(Box<AgentServer>),
    /// A workflow automation engine.
    WorkflowConnector(Box<WorkflowConnector>),
    /// A model in the application's own process or called from it.
    #[serde(rename = "EmbeddedAI")]
    EmbeddedAi(EmbeddedAi),
    /// A subscription coding model.
    SubscriptionConnector(SubscriptionConnector),
    /// A module of another name, stored unchanged. It selects the backend that the embedder has registered for the name, if any.
    #[serde(untagged)]
    Other {
        /// The module's name.
        name: String,
        /// The module's content.
        content: Value,
    },
}

impl Container {
    /// Returns the container's name in a workspace file.
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
        struct Named<T> {
            name: String,
            #[serde(default = "Option::default")]
            content: Option<T>,
        }
        // The name decides the content's type and may follow it, so the value is buffered; its errors name their field.
        fn content<T: DeserializeOwned + Default, E: serde::de::Error>(container: &Value) -> Result<T, E> {
            let parsed: Result<Named<T>, _> = serde_path_to_error::deserialize(container);
            Ok(parsed.map_err(E::custom)?.content.unwrap_or_default())
        }
        let named = Value::Object(Map::deserialize(deserializer)?);
        let parsed: Named<IgnoredAny> = serde_path_to_error::deserialize(&named).map_err(D::Error::custom)?;
        let container = match parsed.name.as_str() {
            "AgentServer" => Self::AgentServer(content(&named)?),
            "WorkflowConnector" => Self::WorkflowConnector(content(&named)?),
            "EmbeddedAI" => Self::EmbeddedAi(content(&named)?),
            "SubscriptionConnector" => Self::SubscriptionConnector(content(&named)?),
            _ => Self::Other { content: Value::Object(content(&named)?), name: parsed.name },
        };
        objects::check_objects(&named, &container).map(|()| container)
    }
}

/// A workflow engine's webhook.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowConnector {
    /// URL to which the payload is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_url: Option<String>,
    /// Authentication at the webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<WebhookAuth>,
}

/// Authentication of the platform at a webhook. Secrets may be omitted when a role is saved, like all secrets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum WebhookAuth {
    /// No authentication.
    None,
    /// HTTP basic authentication (RFC 7617).
    Basic {
        /// The user name.
        user: String,
        /// The password.
        #[serde(skip_serializing_if = "Option::is_none")]
        password: Option<Secret>,
    },
    /// A custom header.
    Header {
        /// The header's name.
        name: String,
        /// The header's value.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<Secret>,
    },
    /// A signed JSON Web Token (RFC 7519).
    Jwt {
        /// The signing secret.
        #[serde(skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
}

/// The model behind an `EmbeddedAI` container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct EmbeddedAi {
    /// `auto` (the default), `anthropic`, `local`, `openai`, `openai-responses`, `ollama`, or the id of a company's provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Name of the model at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// URL of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// API key of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// Enables or disables the model's reasoning; absent leaves the model's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// Level of the model's reasoning in the provider's terms, such as `low`. It overrides `enableThinking`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Parameters of the model's calls by their names, such as `temperature`. No secrets.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Prices in dollars for a million tokens: `input`, `cachedInput`, `cacheWrite` and `output`. No secrets.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub prices: Box<Map<String, Value>>,
    /// Format of the answers, of this model and of its fallbacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Arc<ResponseFormat>>,
    /// Limits on the repetition of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySettings>,
    /// Models for the calls that this one fails to answer, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<FallbackModel>,
    /// Entry of the company's provider for the model, which the platform sets with type, address and key of the provider.
    #[serde(skip)]
    pub company_model: Option<Arc<Map<String, Value>>>,
    /// Limits of the role, which the selection sets.
    #[serde(skip)]
    pub token_limits: TokenLimits,
}

/// A subscription coding model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionConnector {
    /// The model's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Text sent as the request's instructions, for a vendor that accepts only its own; the system prompt follows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Enables or disables the model's reasoning; absent leaves the model's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_thinking: Option<bool>,
    /// Level of the model's reasoning in the provider's terms, such as `low`. It overrides `enableThinking`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Limits of the role, which the selection sets.
    #[serde(skip)]
    pub token_limits: TokenLimits,
}

/// Looks up the role that a turn runs with.
#[async_trait]
pub trait RoleSource: Send + Sync + 'static {
    /// Returns the role of `agent_id` with its secrets, if the company has it. An agent of another company is absent.
    ///
    /// # Errors
    /// Errors of the store, among them [`StoreError::UnreadableSecret`] and [`StoreError::NotConfigured`].
    async fn role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Arc<RoleBlock>>, StoreError>;
}

/// A fixed set of roles in memory.
#[derive(Debug, Default, Clone)]
pub struct StaticRoles(BTreeMap<(CompanyId, AgentId), Arc<RoleBlock>>);

impl StaticRoles {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a role; it replaces one of the same company and id.
    pub fn with_role(mut self, role: RoleBlock) -> Self {
        self.0.insert((role.company_id.clone(), role.id.clone()), Arc::new(role));
        self
    }
}

#[async_trait]
impl RoleSource for StaticRoles {
    async fn role(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
    ) -> Result<Option<Arc<RoleBlock>>, StoreError> {
        Ok(self.0.get(&(company_id.clone(), agent_id.clone())).cloned())
    }
}

#[cfg(test)]
mod tests;
