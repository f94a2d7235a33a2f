//! [`UsageObserver`]: receiver of the ends of calls and runs.

use std::time::Duration;

use agent_core::select::BackendKind;

use super::entry::UsageEntry;

/// Receiver of the ends of calls and runs, such as the process's metrics.
pub trait UsageObserver: Send + Sync + 'static {
    /// Receives the end of a call of a model. `provider` is the built-in provider whose API was called; that of the entry
    /// may be the identifier of a company's.
    fn on_model_call(&self, entry: &UsageEntry, provider: &str);

    /// Receives the end of a call of a tool; `tool` is the name of a tool that exists.
    fn on_tool_call(&self, tool: &str, outcome: &'static str);

    /// Receives the end of a run. The default does nothing.
    fn on_run_end(&self, _run: &RunSummary<'_>) {}

    /// Receives the rejection of a run or a call by a limit; `kind` is that of its subject. The default does nothing.
    fn on_budget_refusal(&self, _kind: &'static str, _unit: &'static str) {}
}

/// A run that a backend has accepted and that has ended.
#[derive(Debug, Clone, Copy)]
pub struct RunSummary<'a> {
    /// Kind of the backend.
    pub backend: BackendKind,
    /// Kind of the caller, as in the ledger.
    pub caller: &'static str,
    /// `ok`, `cancelled`, or the code of the error.
    pub outcome: &'a str,
    /// Time since the run was admitted.
    pub duration: Duration,
    /// Time until the first text, reasoning or tool call, if there was any.
    pub first_content: Option<Duration>,
}
