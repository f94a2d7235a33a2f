//! Execution of tool calls that people have approved.

use std::sync::Arc;

use agent_core::clock::Clock;
use agent_core::tool::ToolRegistry;
use agent_core::tool_loop::LoopLimits;
use agent_core::users::UserDirectory;

/// Execution of approved calls.
pub struct ApprovedCalls {
    /// The agents' tools, whose calls need no further approval.
    pub tools: Arc<dyn ToolRegistry>,
    /// Source of users' settings, as turns have it.
    pub users: Arc<dyn UserDirectory>,
    /// Clock for the timeouts of calls.
    pub clock: Arc<dyn Clock>,
    /// Limits of a call and its result.
    pub limits: LoopLimits,
}
