//! Composition of the agents' tools: the built-in ones, their MCP server, and the approvals that their calls wait for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_client::clock::TokioClock;
use agent_client::http_tools::OutboundHttpTools;
use agent_client::outbound::OutboundClient;
use agent_core::tool::ToolRegistry;
use agent_http::app::{ApprovedCalls, ConversationService, LeasedTools, McpEndpoint};
use agent_http::tool_servers::OutboundToolServers;
use agent_mcp::client::DiscoveryCache;
use agent_mcp::server::{AgentLimits, HostGuard, LegacyQuery, McpAuthenticator, McpServer, McpServerLimits};
use agent_platform::approval_tools::ApprovalTools;
use agent_platform::journal::{JournaledTools, Journals};
use agent_platform::own_tools::OwnToolRegistry;
use agent_platform::scheduled_calls::ScheduledCallTools;
use agent_platform::token::Tokens;
use agent_platform::tool_files::RecordToolFiles;
use agent_platform::tools::{self, ToolServices};
use agent_platform::usage::{MeteredTools, UsageRecorder};
use agent_platform::users::RecordUsers;

use crate::config::AppConfig;
use crate::stores::Stores;

/// Maximum time that an MCP stream stays open after its token has become invalid.
const TOKEN_RECHECK_INTERVAL: Duration = Duration::from_secs(15);

/// The agents' tools in their three forms.
pub(super) struct AgentTools {
    /// The MCP server.
    pub(super) endpoint: McpEndpoint,
    /// Tools whose calls wait for approval by the rules of roles and the floors of companies.
    pub(super) guarded: Arc<dyn ToolRegistry>,
    /// Execution of calls that people have approved.
    pub(super) approved: ApprovedCalls,
}

/// Builds the MCP server over `tools`, which will be reached at `bound`, and the tools of runs.
pub(super) fn agent_tools(
    config: &AppConfig,
    bound: SocketAddr,
    stores: &Stores,
    tokens: Arc<Tokens>,
    (tools, conversations): (Arc<dyn ToolRegistry>, &Arc<ConversationService>),
) -> AgentTools {
    let (server, mcp) = (&config.server, &config.mcp);
    let timeout = server.tool_loop.tool_timeout;
    let host_guard = HostGuard::new(&config.public_url(bound), bound, server.origins.clone());
    let legacy = mcp.legacy_query.then(|| LegacyQuery::new(stores.roles.clone(), stores.records.clone()));
    let limits = McpServerLimits {
        json_depth: server.json_depth,
        timeout,
        per_agent: AgentLimits { concurrency: mcp.concurrency, per_minute: mcp.per_minute, wait: timeout },
        connections: server.serve.connections,
        token_recheck_interval: TOKEN_RECHECK_INTERVAL,
    };
    let (roles, records) = (stores.roles.clone(), stores.records.clone());
    let authority = McpAuthenticator::new(tokens, legacy);
    let server = McpServer::for_agents(
        host_guard,
        authority,
        roles.clone(),
        records,
        with_checks(stores, conversations, tools.clone()),
        limits,
    )
    .with_sealed_sessions(roles.sealer().clone());
    let observed = server.wrap_tools(tools);
    AgentTools {
        guarded: with_checks(stores, conversations, observed.clone()),
        approved: ApprovedCalls {
            tools: observed,
            users: Arc::new(RecordUsers::new(stores.records.clone())),
            clock: Arc::new(TokioClock),
            limits: config.server.tool_loop,
        },
        endpoint: McpEndpoint { server, roles },
    }
}

/// Creates the built-in tools and those of roles, whose effects happen once in an occurrence of a job; and the registry of
/// the roles' tools.
pub(super) fn builtin_tools(
    stores: &Stores,
    services: ToolServices,
    (outbound, journals): (&OutboundClient, &Arc<Journals>),
    usage: &UsageRecorder,
) -> (Arc<dyn ToolRegistry>, Arc<OwnToolRegistry>) {
    let tools = Arc::new(tools::builtin_tools(stores.records.clone(), stores.roles.clone(), services));
    let http = Arc::new(OutboundHttpTools { outbound: outbound.clone() });
    let servers = OutboundToolServers { outbound: outbound.clone(), discoveries: DiscoveryCache::default() };
    let registry = OwnToolRegistry::new(tools, stores.roles.clone(), http, Arc::new(TokioClock))
        .with_tool_servers(Arc::new(servers), stores.records.clone())
        .with_files(Arc::new(RecordToolFiles(stores.records.clone())));
    let registry = Arc::new(registry);
    let tools = Arc::new(ScheduledCallTools::new(registry.clone()));
    let tools = Arc::new(MeteredTools::new(tools, usage.clone()));
    (Arc::new(JournaledTools::new(tools, journals.clone(), tools::is_repeatable)), registry)
}

/// Returns the tools with calls that wait for approval by the rules of roles and the floors of companies, and are refused once
/// another process has ended their run.
fn with_checks(
    stores: &Stores,
    conversations: &Arc<ConversationService>,
    tools: Arc<dyn ToolRegistry>,
) -> Arc<dyn ToolRegistry> {
    let tools = Arc::new(LeasedTools::new(tools, conversations.clone()));
    let (roles, records) = (stores.roles.clone(), stores.records.clone());
    Arc::new(ApprovalTools::new(tools, roles, records, Arc::new(TokioClock)))
}
