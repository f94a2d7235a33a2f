//! Shared state of the application's HTTP routes.

use std::sync::Arc;

use agent_core::turn::Platform;
use agent_platform::catalog::Catalog;
use agent_platform::compaction::Compaction;
use agent_platform::layers::DocumentsLayer;
use agent_platform::own_tools::OwnToolRegistry;
use agent_platform::records::Records;
use agent_platform::roles::RoleStore;
use agent_platform::run_registry::RunRegistry;
use agent_platform::token::Tokens;

use super::services::{
    ApprovedCalls, ConsoleService, ConversationService, DocumentUploads, McpEndpoint, ProviderService,
    RateLimiter, RequestBounds, ResourceQuotas, SchedulerConnection, SubscriptionService, UsageService,
};
use crate::auth::Authenticator;
use crate::connection_permit::ConnectionPermit;
use crate::error::HttpError;
use crate::exchange_permit::ExchangePermit;
use crate::state::{RequestSender, ServiceBase, ServiceState};
use crate::stream::StreamLimits;

/// Shared state of the application's HTTP routes.
pub struct App {
    /// Runs chat turns.
    pub platform: Platform,
    /// The store of agents (roles).
    pub roles: Arc<dyn RoleStore>,
    /// The store of all other records.
    pub records: Arc<dyn Records>,
    /// The context layer of documents, whose retrieval can be shown without a turn.
    pub documents: DocumentsLayer,
    /// Widget, MCP and API tokens.
    pub tokens: Arc<Tokens>,
    /// Authenticates requests.
    pub auth: Authenticator,
    /// The console, unless it is switched off.
    pub console: Option<ConsoleService>,
    /// Serves the chat widget.
    pub has_widget: bool,
    /// Conversations that are kept, and the runs in them.
    pub conversations: Arc<ConversationService>,
    /// Execution of tool calls that people have approved.
    pub approved_calls: ApprovedCalls,
    /// Run ids that have been used.
    pub runs: RunRegistry,
    /// Rate limits of widget tokens and sessions.
    pub rate_limiter: RateLimiter,
    /// Usage of models and tools.
    pub usage: UsageService,
    /// Summaries of long conversations.
    pub compaction: Compaction,
    /// The tools that roles define.
    pub own_tool_registry: Arc<OwnToolRegistry>,
    /// Names of the embedder's own tools, which roles may name besides the built-in ones.
    pub own_tools: Vec<String>,
    /// The companies' providers of models.
    pub providers: ProviderService,
    /// Maximum numbers of a company's resources.
    pub quotas: ResourceQuotas,
    /// Models with their limits and prices.
    pub catalog: Arc<Catalog>,
    /// Uploads of documents, and the extraction of their texts.
    pub uploads: DocumentUploads,
    /// Bounds on requests that hold connections or memory for long.
    pub bounds: RequestBounds,
    /// The MCP server for agents' tools.
    pub tools: McpEndpoint,
    /// The scheduler client, and the state of the scheduler's callback.
    pub pulse: SchedulerConnection,
    /// Users' sign-ins to their own subscriptions.
    pub coding: SubscriptionService,
    /// Limits on response streams.
    pub stream: StreamLimits,
    /// State and limits of all endpoints.
    pub base: ServiceBase,
}

impl ServiceState for App {
    fn base(&self) -> &ServiceBase {
        &self.base
    }

    fn admit_exchange(
        &self,
        connection: &ConnectionPermit,
        sender: RequestSender<'_>,
        is_query: bool,
    ) -> Result<Option<ExchangePermit>, HttpError> {
        self.bounds.admit_client(connection, sender)?;
        self.bounds.admit_exchange(sender, is_query).map(Some)
    }
}
