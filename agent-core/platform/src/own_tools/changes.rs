//! [`ToolChanges`]: reports of tools that were not called since their definitions are not the pinned ones.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::backend::{Backend, BackendCapabilities, PreparedRequest, Turn};
use agent_core::error::AgentError;
use agent_core::event::{Event, EventObserver, EventStream};
use agent_core::ids::{CompanyId, RunId, UserId};
use agent_core::tool::{Caller, ExecutionContext};
use async_trait::async_trait;
use serde_json::json;

use super::pins::ToolStatus;
use super::tool_server::ServerTool;

/// Reports of the runs whose streams this process sends.
#[derive(Clone, Default)]
pub struct ToolChanges {
    runs: Arc<Mutex<HashMap<ReportKey, Arc<Mutex<RunChanges>>>>>,
}

/// Company, user and run.
type ReportKey = (CompanyId, UserId, RunId);

/// Reports of one run, of which each tool has at most one.
#[derive(Default)]
struct RunChanges {
    reported: BTreeSet<String>,
    pending: VecDeque<Event>,
}

impl ToolChanges {
    /// Adds a report to the stream of the context's run, if this process sends it.
    pub(super) fn report(&self, context: &ExecutionContext, tool: &ServerTool, status: ToolStatus) {
        let Some(run) = lock(&self.runs).get(&report_key(context)).cloned() else { return };
        let mut run = lock(&run);
        if run.reported.insert(tool.spec.name.clone()) {
            let value = json!({
                "kind": "toolChanged", "tool": tool.spec.name, "serverId": tool.server.id, "status": status,
            });
            run.pending.push_back(Event::Custom { name: "agent.debug".to_owned(), value });
        }
    }

    fn observe(&self, context: &ExecutionContext) -> ChangeObserver {
        let (key, run) = (report_key(context), Arc::default());
        lock(&self.runs).insert(key.clone(), Arc::clone(&run));
        ChangeObserver { key, run, changes: self.clone() }
    }
}

/// Locks a mutex. No code panics while holding one of this module, so the data behind a poisoned one is intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn report_key(context: &ExecutionContext) -> ReportKey {
    (context.company_id.clone(), context.user_id.clone(), context.run_id.clone())
}

/// Sends the reports of a run before the results of the calls. Dropping it ends their collection.
struct ChangeObserver {
    key: ReportKey,
    run: Arc<Mutex<RunChanges>>,
    changes: ToolChanges,
}

impl EventObserver for ChangeObserver {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        matches!(event, Event::ToolCallResult { .. }).then(|| lock(&self.run).pending.pop_front()).flatten()
    }
}

impl Drop for ChangeObserver {
    fn drop(&mut self) {
        let mut runs = lock(&self.changes.runs);
        // A later attempt at the same run has reports of its own.
        if runs.get(&self.key).is_some_and(|run| Arc::ptr_eq(run, &self.run)) {
            runs.remove(&self.key);
        }
    }
}

/// A [`Backend`] whose streams have `agent.debug` events of the kind `toolChanged`, except those of visitors.
pub struct ReportedToolChanges<B> {
    backend: B,
    changes: ToolChanges,
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
        let context = &prepared.turn.context;
        let observer = (context.caller != Caller::Widget).then(|| Box::new(self.changes.observe(context)));
        let events = self.backend.start(settings, prepared).await?;
        Ok(match observer {
            Some(observer) => events.with_observer(observer),
            None => events,
        })
    }
}
