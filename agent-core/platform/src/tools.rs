//! The built-in tools, a file a domain, and who may use which.
//!
//! The tools are thin: what they do is in [`workspace`](crate::workspace), and what they take and give is
//! in their types, which the JSON Schemas in their definitions are made of. `docs/tools.md` lists them.
//!
//! - A tool reads whom it works for from its [`ExecutionContext`], never from its arguments. What
//!   arguments say beside a tool's own fields is ignored.
//! - A thing that is somebody else's is answered word for word as one that is not there.
//! - A visitor of a widget may use what the role names in `widgetTools`, and even of that reaches only
//!   what is the visitor's own or was named for visitors.
//! - What is read has a version. Who gives it with a change is told where somebody else was faster.
//!
//! [`ExecutionContext`]: agent_core::tool::ExecutionContext

use std::sync::Arc;

use crate::messenger::Messenger;
use crate::pulse::Pulse;
use crate::records::Records;
use crate::roles::RoleStore;
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
mod todos;

use builtin::Stores;

/// Optional services of built-in tools besides the records. A tool whose service is absent returns an error that says
/// so.
#[derive(Clone, Default)]
pub struct ToolServices {
    /// Sends messages through the agents' messenger bots.
    pub messenger: Option<Arc<dyn Messenger>>,
    /// Schedules later tool calls.
    pub pulse: Option<Arc<dyn Pulse>>,
}

/// Creates all built-in tools over `records`, for the agents in `roles`. [`allowed_tools`](agent_core::allowed_tools::allowed_tools) selects those that an agent may
/// use.
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
            WorkspaceError::NoTodoList | WorkspaceError::Full { .. } => Self::Unavailable(error.to_string()),
            WorkspaceError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests;
