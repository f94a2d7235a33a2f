//! [`ToolChanges`]: reports of tools that were not called since their definitions are not the pinned ones.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::backend::{Backend, BackendCapabilities, PreparedRequest, Turn};
use agent_core::error::AgentError;
use agent_core::event::{Event, EventObserver, EventStream};
use agent_core::tool::{Caller, ExecutionContext};
use async_trait::async_trait;
use serde_json::json;

use super::pins::ToolStatus;
use super::tool_server::ServerTool;
use crate::run_table::{OpenRun, RunTable, table_key};

/// Reports of the runs whose streams this process sends.
#[derive(Clone, Default)]
pub struct ToolChanges {
    runs: Arc<RunTable<Mutex<RunChanges>>>,
}

impl std::fmt::Debug for ToolChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolChanges").finish_non_exhaustive()
    }
}

/// Reports of one run, at most one for each tool.
#[derive(Default)]
struct RunChanges {
    reported: BTreeSet<String>,
    pending: VecDeque<Event>,
}

impl ToolChanges {
    /// Adds a report to the stream of the context's run, if this process sends it.
    pub(super) fn report(&self, context: &ExecutionContext, tool: &ServerTool, status: ToolStatus) {
        let Some(run) = self.runs.find(&table_key(context)) else { return };
        let mut run = lock(&run);
        if run.reported.insert(tool.spec.name.clone()) {
            let value = json!({
                "kind": "toolChanged", "tool": tool.spec.name, "serverId": tool.server.id, "status": status,
            });
            run.pending.push_back(Event::Custom { name: "agent.debug".to_owned(), value });
        }
    }

    /// Begins the collection of reports for the context's run, and returns the observer that adds them to its stream; `None`
    /// for a visitor's run, which has no reports.
    pub fn observer(&self, context: &ExecutionContext) -> Option<Box<dyn EventObserver>> {
        if context.caller == Caller::Widget {
            return None;
        }
        Some(Box::new(ChangeObserver(self.runs.open(table_key(context), Arc::default()))))
    }
}

/// Locks a mutex. No code panics while holding one of this module, so the data behind a poisoned one is intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends the reports of a run before the results of the calls. Dropping it ends their collection.
struct ChangeObserver(OpenRun<Mutex<RunChanges>>);

impl EventObserver for ChangeObserver {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        matches!(event, Event::ToolCallResult { .. }).then(|| lock(&self.0).pending.pop_front()).flatten()
    }
}

/// A [`Backend`] whose streams have `agent.debug` events of the kind `toolChanged`, except those of visitors.
pub struct ReportedToolChanges<B> {
    backend: B,
    changes: ToolChanges,
}

impl<B> std::fmt::Debug for ReportedToolChanges<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReportedToolChanges").finish_non_exhaustive()
    }
}

impl<B: Backend> ReportedToolChanges<B> {
    /// Wraps a backend.
    pub fn new(backend: B, changes: ToolChanges) -> Self {
        Self { backend, changes }
    }
}

#[async_trait]
impl<B: Backend> Backend for ReportedToolChanges<B> {
    type Settings = B::Settings;

    fn capabilities(&self, settings: &B::Settings) -> Result<BackendCapabilities, AgentError> {
        self.backend.capabilities(settings)
    }

    fn prepare(&self, settings: &B::Settings, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        self.backend.prepare(settings, turn)
    }

    async fn start(
        &self,
        settings: &B::Settings,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        let observer = self.changes.observer(&prepared.turn.context);
        let events = self.backend.start(settings, prepared).await?;
        Ok(match observer {
            Some(observer) => events.with_observer(observer),
            None => events,
        })
    }
}
