//! The built-in tools, one file per domain.
//!
//! The tools are thin: their logic is in [`workspace`](crate::workspace), and the JSON Schemas of their definitions are
//! generated from the types of their arguments and results. `docs/tools.md` lists them.
//!
//! - A tool takes the identity that it works for from the [`ExecutionContext`], never from its arguments. Unknown
//!   arguments are ignored.
//! - An object of another user is reported like one that does not exist.
//! - A widget visitor may use the tools named in the role's `widgetTools`, and reaches only the visitor's own objects
//!   and those opened for visitors.
//! - Objects are read with their version. A change that names an outdated version is a conflict.
//!
//! [`ExecutionContext`]: agent_core::tool::ExecutionContext

use std::sync::Arc;

use crate::records::Records;
use crate::roles::{RoleStore, TOOL_NAMES};
use crate::workspace::WorkspaceError;
use agent_core::tool::{LocalToolRegistry, ToolError};

mod builtin;
mod documents;
mod epics;
mod memories;
mod messenger;
mod metrics;
mod notifications;
mod page;
mod plans;
mod scheduled;
mod schema;
mod services;
mod todos;

pub use scheduled::SCHEDULE_TOOL;
pub use services::ToolServices;

use builtin::Stores;

/// Built-in tools whose effect is one commit to the store of the records.
const TRANSACTIONAL_TOOLS: [&str; 10] = [
    "appendDoc",
    "createDoc",
    "createTodo",
    "deleteTodo",
    "readNotifications",
    "recordMetric",
    "remember",
    "sendNotification",
    "updatePlan",
    "updateTodo",
];
/// Built-in tools that pass their idempotency key on to a service that honours it.
const KEYED_TOOLS: [&str; 1] = [SCHEDULE_TOOL];

/// Returns true if the name belongs to a built-in tool.
pub fn is_built_in(name: &str) -> bool {
    TOOL_NAMES.contains(&name)
}

/// Returns true for a built-in tool whose call may be repeated with the same idempotency key after an interruption: the
/// tool's commit includes the record of the call, or the external service recognizes the key. For
/// [`JournaledTools`](crate::journal::JournaledTools).
pub fn is_repeatable(name: &str) -> bool {
    TRANSACTIONAL_TOOLS.contains(&name) || KEYED_TOOLS.contains(&name)
}

/// Creates all built-in tools over `records`, for the agents in `roles`.
/// [`allowed_tools`](agent_core::allowed_tools::allowed_tools) selects those that an agent may use.
pub fn builtin_tools(
    records: Arc<dyn Records>,
    roles: Arc<dyn RoleStore>,
    reach: ToolServices,
) -> LocalToolRegistry {
    build_tools(Stores::new(records, roles, reach))
}

fn build_tools(stores: Stores) -> LocalToolRegistry {
    let stores = Arc::new(stores);
    let domains = [
        todos::add,
        documents::add,
        plans::add,
        metrics::add,
        notifications::add,
        messenger::add,
        memories::add,
        epics::add,
        scheduled::add,
    ];
    domains.into_iter().fold(LocalToolRegistry::new(), |tools, add| add(tools, &stores))
}

impl From<WorkspaceError> for ToolError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::Invalid { .. } => Self::InvalidArguments(error.to_string()),
            WorkspaceError::NotFound { .. } => Self::NotFound(error.to_string()),
            WorkspaceError::Changed { .. } => Self::Conflict(error.to_string()),
            WorkspaceError::NoTodoList
            | WorkspaceError::Full { .. }
            | WorkspaceError::UploadsExceeded { .. }
            | WorkspaceError::Forbidden { .. }
            | WorkspaceError::Uploaded { .. } => Self::Unavailable(error.to_string()),
            WorkspaceError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests;
