//! Tools that an identity may use, and errors of the server.

use std::collections::BTreeSet;

use agent_core::tool::ExecutionContext;
use rmcp::model::ErrorData;

/// The tools that an identity may use, and the execution context of its calls.
#[derive(Default)]
pub(super) struct ToolAccess {
    pub(super) names: BTreeSet<String>,
    pub(super) context: ExecutionContext,
}

impl ToolAccess {
    pub(super) fn allows(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

/// Returns the error for a defect or a store failure, and logs the cause.
pub(super) fn failed(error: &dyn std::error::Error) -> ErrorData {
    tracing::error!(error = %error, source = error.source(), "the tool server failed");
    ErrorData::internal_error("the server failed", None)
}
