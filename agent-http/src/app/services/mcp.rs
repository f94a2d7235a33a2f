//! The MCP server for agents' tools.

use std::sync::Arc;

use agent_mcp::server::McpServer;
use agent_platform::roles::RoleStore;

/// The MCP server for agents' tools, and the agents' owners.
pub struct McpEndpoint {
    /// The MCP server.
    pub server: McpServer,
    /// The store of agents (roles).
    pub roles: Arc<dyn RoleStore>,
}
