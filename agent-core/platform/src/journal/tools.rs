//! Tool registry that records the calls of occurrences.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::entry::{JournalEntry, call_digest};
use super::records::claim_lost;
use super::{Journals, OpenCall, RunJournal, lock};
use agent_core::tool::{ExecutionContext, Progress, ToolError, ToolOutput, ToolRegistry, ToolSpec};
use agent_jobs::job::JobKind;

use crate::records::StoreError;

/// Result of a repeated call whose effect is recorded and whose result is not.
const COMMITTED_TEXT: &str = "The call took effect in an earlier attempt, and its result was lost. Do not repeat it; \
                              read the current state if it is needed.";
/// Error of a repeated call whose outcome is unknown.
const UNKNOWN_TEXT: &str = "the outcome is unknown: an earlier attempt was interrupted during this call, which may or \
                            may not have taken effect; it was not repeated";

/// A [`ToolRegistry`] that journals the calls of job occurrences and forwards all other calls.
pub struct JournaledTools {
    tools: Arc<dyn ToolRegistry>,
    journals: Arc<Journals>,
    is_repeatable: fn(&str) -> bool,
}

impl std::fmt::Debug for JournaledTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournaledTools").finish_non_exhaustive()
    }
}

impl JournaledTools {
    /// Wraps a registry. `is_repeatable` returns true for further tools that may be called again with the same idempotency key,
    /// besides those whose annotations say that a repeated call is harmless.
    pub fn new(
        tools: Arc<dyn ToolRegistry>,
        journals: Arc<Journals>,
        is_repeatable: fn(&str) -> bool,
    ) -> Self {
        Self { tools, journals, is_repeatable }
    }

    /// Returns true if an interrupted call of the tool may be made again.
    async fn may_repeat(&self, context: &ExecutionContext, name: &str) -> Result<bool, ToolError> {
        if (self.is_repeatable)(name) {
            return Ok(true);
        }
        let specs = self.tools.list(context).await?;
        let spec = specs.iter().find(|spec| spec.name == name);
        let hints = spec.and_then(|spec| spec.annotations).unwrap_or_default();
        Ok(hints.read_only_hint || hints.idempotent_hint)
    }

    async fn call_once(
        &self,
        journal: &Arc<RunJournal>,
        step: CallStep,
        (context, name, arguments): (&ExecutionContext, &str, Value),
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let may_repeat = self.may_repeat(context, name).await?;
        match journal.read(&step.entry).await? {
            Some(JournalEntry::Returned { text, structured, is_error }) => {
                return Ok(ToolOutput { text, structured, is_error, ..ToolOutput::default() });
            }
            Some(JournalEntry::Committed) => return Ok(ToolOutput::text(COMMITTED_TEXT)),
            Some(JournalEntry::Begun) if !may_repeat => {
                return Err(ToolError::OutcomeUnknown(UNKNOWN_TEXT.to_owned()));
            }
            _ => {}
        }
        if !may_repeat {
            journal.write(&step.entry, &JournalEntry::Begun).await.map_err(tool_error)?;
        }
        let context = ExecutionContext { idempotency_key: Some(step.key.clone()), ..context.clone() };
        let open = OpenCallGuard::new(journal, &step);
        let called = self.tools.call(&context, name, arguments, progress).await;
        drop(open);
        if let Err(error) = journal.record_outcome(&step.entry, &called, may_repeat).await {
            // An unrecorded outcome is unknown to the next attempt; this one continues with it.
            tracing::warn!(%error, tool = name, "the outcome of a tool call cannot be recorded");
        }
        called
    }
}

/// Position of a call in the run: the name of its entry, and its idempotency key.
struct CallStep {
    entry: String,
    key: String,
}

impl RunJournal {
    /// Returns the position of a call. A tool loop numbers its calls by round and index, in the idempotency key; a tool job
    /// makes one call; calls from outside are numbered among those with the same name and arguments.
    fn call_step(&self, context: &ExecutionContext, name: &str, arguments: &Value) -> CallStep {
        let run = &*self.run_id;
        if self.kind == JobKind::Tool {
            return CallStep { entry: "call".to_owned(), key: run.to_owned() };
        }
        let digest = call_digest(name, arguments);
        let numbered = context.idempotency_key.as_deref().and_then(|key| {
            // The loop's keys begin with the id of the attempt's run.
            let (round, index) = key.strip_prefix(&*context.run_id)?.strip_prefix('/')?.split_once('/')?;
            Some((round.parse::<u16>().ok()?, index.parse::<u16>().ok()?))
        });
        let position = match numbered {
            Some((round, index)) => format!("{round}.{index}"),
            None => {
                let mut counts = lock(&self.unnumbered_calls);
                let count = counts.entry(digest.clone()).or_default();
                *count += 1;
                format!("x.{count}")
            }
        };
        // With the digest, since a loop elsewhere may make another call at the same position when it is repeated.
        CallStep { key: format!("{run}/{position}/{digest}"), entry: format!("{position}.{digest}") }
    }

    /// Records the outcome of a call. That of a tool job's call is the state of its occurrence; only a failure that is
    /// certain is recorded here, so that the call may be made again.
    async fn record_outcome(
        &self,
        entry: &str,
        called: &Result<ToolOutput, ToolError>,
        may_repeat: bool,
    ) -> Result<(), StoreError> {
        match (self.kind, called) {
            (_, Err(ToolError::OutcomeUnknown(_)))
            | (JobKind::Tool, Ok(ToolOutput { is_error: false, .. })) => Ok(()),
            (JobKind::Tool, _) if may_repeat => Ok(()),
            (JobKind::Tool, _) => self.remove(entry).await,
            (JobKind::Agent, Ok(output)) => self.write(entry, &JournalEntry::returned(output)).await,
            (JobKind::Agent, Err(error)) => {
                let output = ToolOutput::error(error.to_string());
                self.write(entry, &JournalEntry::returned(&output)).await
            }
        }
    }
}

/// Entry of a call in the table of open ones; removed on drop.
struct OpenCallGuard<'j> {
    journal: &'j RunJournal,
    key: &'j str,
}

impl<'j> OpenCallGuard<'j> {
    fn new(journal: &'j Arc<RunJournal>, step: &'j CallStep) -> Self {
        let call = OpenCall { journal: journal.clone(), name: step.entry.clone() };
        lock(&journal.open_calls).insert(step.key.clone(), Arc::new(call));
        Self { journal, key: &step.key }
    }
}

impl Drop for OpenCallGuard<'_> {
    fn drop(&mut self) {
        lock(&self.journal.open_calls).remove(self.key);
    }
}

/// Converts an error of a write under the claim.
fn tool_error(error: StoreError) -> ToolError {
    match error {
        StoreError::Conflict { .. } => claim_lost().into(),
        error => error.into(),
    }
}

#[async_trait]
impl ToolRegistry for JournaledTools {
    async fn list(&self, context: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        self.tools.list(context).await
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        arguments: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let Some(journal) = self.journals.find(context) else {
            return self.tools.call(context, name, arguments, progress).await;
        };
        let step = journal.call_step(context, name, &arguments);
        self.call_once(&journal, step, (context, name, arguments), progress).await
    }
}
