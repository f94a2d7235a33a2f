//! Helpers that the layers' tests share.

use std::sync::Arc;
use std::time::SystemTime;

use agent_core::context::TurnInput;
use agent_core::prompt::Fragment;
use agent_core::tool::ExecutionContext;
use serde_json::Value;

/// Builds a turn of an agent with this role, at the epoch.
pub(super) fn turn(role: Value) -> TurnInput {
    TurnInput {
        role: Arc::new(serde_json::from_value(role).expect("a role")),
        context: ExecutionContext::default(),
        request: Arc::default(),
        now: SystemTime::UNIX_EPOCH,
    }
}

/// Formats fragments as text for comparison.
pub(super) fn shown(fragments: &[Fragment]) -> String {
    fragments
        .iter()
        .map(|f| format!("[{}/{:?}] {}\n{}\n", f.source, f.stability, f.id, f.part.text()))
        .collect()
}
