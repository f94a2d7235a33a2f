//! The application service: chat and management endpoints for agents.

mod agent_tools;
mod agents;
mod anonymous;
mod answer;
mod approvals;
mod assignments;
mod assistants;
mod attachment;
mod budgets;
mod capabilities;
mod catalog;
mod chat;
mod coding;
mod console;
mod conversation;
mod credential;
mod cron;
mod debug;
mod document_contents;
mod document_indexes;
mod document_uploads;
mod document_versions;
mod documents;
mod due;
mod endpoints;
mod feedback;
mod files;
mod mcp;
mod memories;
mod openai;
mod openai_docs;
mod ownership;
mod providers;
mod pulse;
mod rate_limits;
mod reader_access;
mod resource;
mod retrieve;
mod role_preview;
mod run_bundle;
mod run_docs;
mod run_events;
mod runs;
mod thread_docs;
mod thread_export;
mod thread_messages;
mod thread_view;
mod threads;
mod tokens;
mod turns;
mod upload_checks;
mod usage;
mod usage_docs;
mod widget;

use std::sync::Arc;

use crate::auth::Authenticator;
use crate::endpoint;
use crate::service::HttpService;
use crate::state::{ServiceBase, ServiceState};
use crate::stream::StreamLimits;
use agent_core::turn::Platform;
use agent_platform::catalog::Catalog;
use agent_platform::compaction::Compaction;
use agent_platform::layers::DocumentsLayer;
use agent_platform::own_tools::OwnToolRegistry;
use agent_platform::records::Records;
use agent_platform::roles::RoleStore;
use agent_platform::run_registry::RunRegistry;
use agent_platform::token::Tokens;

pub use anonymous::AnonymousBodies;
pub use coding::{CodingLink, CodingLinkConfig};
pub use console::{ConsoleService, console_link};
pub use conversation::{ApprovedCalls, ConversationService, RunSettings};
pub use document_uploads::DocumentUploads;
pub(crate) use endpoints::endpoints;
pub use mcp::McpEndpoint;
pub use providers::ProviderService;
pub use pulse::{SchedulerLink, SchedulerLinkConfig};
pub use rate_limits::RateLimits;
pub use resource::ResourceQuotas;
pub use usage::UsageService;

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
    pub rate_limits: RateLimits,
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
    /// Bounds on bodies that are read before their sender is authenticated.
    pub anonymous_bodies: AnonymousBodies,
    /// The MCP server for agents' tools.
    pub tools: McpEndpoint,
    /// The scheduler client, and the state of the scheduler's callback.
    pub pulse: SchedulerLink,
    /// Users' sign-ins to their own subscriptions.
    pub coding: CodingLink,
    /// Limits on response streams.
    pub stream: StreamLimits,
    /// State and limits of all endpoints.
    pub base: ServiceBase,
}

impl ServiceState for App {
    fn base(&self) -> &ServiceBase {
        &self.base
    }
}

/// Creates the application's HTTP service.
pub fn service(app: Arc<App>) -> impl HttpService {
    let parts = endpoints::OptionalParts {
        conversations: app.conversations.is_on(),
        console: app.console.is_some(),
        widget: app.has_widget,
    };
    let table = endpoints::enabled(parts);
    endpoint::service(app, table, &[crate::mcp::CORS_HEADERS, openai::CORS_HEADERS], openai::error_format)
}

/// Runs the application's background work: jobs, expired records, and runs of ended processes. Runs until the future is
/// dropped.
pub async fn run_maintenance(app: Arc<App>) {
    tokio::join!(
        pulse::run_maintenance(app.clone()),
        app.conversations.run_upkeep(),
        conversation::sweep_threads(&app),
        conversation::sweep_summaries(&app),
        conversation::sweep_approvals(&app),
        app.usage.run_upkeep(),
        app.usage.settle_lost_calls(&*app.pulse.inventory)
    );
}
