//! Decisions, and results of the client's calls, after which a run still waits for decisions: they are stored, and so is a run
//! that ends with the open interrupts, which the client gets again.

use std::sync::Arc;
use std::task::{Context, Poll};

use agent_core::event::{Event, EventStream, RunEnd, RunIds, RunOutcome, SourceEvent};
use agent_core::ids::RunId;
use agent_core::request::Principal;
use agent_platform::conversation::{
    ChangeRunRequest, ChangedRun, ChunkWriter, ConversationError, Decision, LogEnd, NewNode,
    ReissueInterruptsRequest, Run, RunChange, RunKey, RunTriggerKind, ThreadOwner,
};
use agent_platform::spawner::Spawner;
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, stream};

use super::super::App;
use super::stored_turn::StoredTurn;
use crate::error::HttpError;
use crate::stream::{DisconnectOutcome, RunRecorder, RunSource};

impl StoredTurn {
    /// Stores results of the client's calls in a run that waits for decisions. Returns the run as it is then.
    ///
    /// # Errors
    /// [`ConversationError::ThreadFull`], and those of the store.
    pub(super) async fn store_results(
        &self,
        app: &App,
        owner: &ThreadOwner,
        waiting: Run,
        results: Vec<NewNode>,
    ) -> Result<Run, ConversationError> {
        if results.is_empty() {
            return Ok(waiting);
        }
        let (now, key) = (app.conversations.now(), RunKey { owner: owner.clone(), id: waiting.id });
        let change = RunChange::AddResults(results);
        Ok(self.store.change_run(ChangeRunRequest { run: key, change, now }).await?.run.at(now))
    }

    /// Stores decisions about calls of a run that waits for others, too. Returns the run as it is then.
    ///
    /// # Errors
    /// Errors of [`Approval::decide`](agent_platform::conversation::Approval::decide) and of the store.
    pub(super) async fn store_decisions(
        &self,
        app: &App,
        owner: &ThreadOwner,
        waiting: Run,
        decisions: &[Decision],
    ) -> Result<Run, ConversationError> {
        let (now, mut waiting) = (app.conversations.now(), waiting);
        for decision in decisions {
            let key = RunKey { owner: owner.clone(), id: waiting.id.clone() };
            let change = RunChange::Decide(decision.clone());
            let ChangedRun { run, is_changed } =
                self.store.change_run(ChangeRunRequest { run: key, change, now }).await?;
            let decided = run.approvals.iter().find(|approval| approval.id == decision.approval);
            if let Some(approval) = decided.filter(|_| is_changed) {
                app.record_decision(owner, approval, decision);
            }
            waiting = run;
        }
        Ok(waiting.at(now))
    }

    /// Stores a run that ends at once with the open interrupts of `waiting`, which is still the run that waits, and returns its
    /// events.
    ///
    /// # Errors
    /// 409 for an id that another run has; errors of the store.
    pub(super) async fn reissue_interrupts(
        &self,
        app: &App,
        principal: &Principal,
        ids: RunIds,
        waiting: &Run,
    ) -> Result<(RunSource, Box<dyn RunRecorder>), HttpError> {
        let interrupts = waiting.open_interrupts().into_iter().cloned().collect();
        let pending_tool_call_ids = waiting.pending_calls().to_vec();
        let outcome = RunOutcome::Interrupt { interrupts, pending_tool_call_ids };
        let clock = app.conversations.clock();
        let reissue = ReissueInterruptsRequest {
            run_id: ids.run_id.clone(),
            trigger: self.trigger.clone().unwrap_or_else(|| RunTriggerKind::Resume.into()),
            process: app.conversations.process.clone(),
            outcome: outcome.clone(),
            log: LogEnd { until: Some(clock.log_until), ..whole_log(&ids, &outcome) },
        };
        let owner = ThreadOwner::new(principal.company_id.clone(), principal.user_id.clone());
        let run = RunKey { owner, id: waiting.id.clone() };
        let change = RunChange::ReissueInterrupts(Box::new(reissue));
        self.store.change_run(ChangeRunRequest { run, change, now: clock.now }).await?;
        let end = RunEnd::Finished { result: None, outcome: Some(outcome), usage: Vec::new() };
        let events = EventStream::new(ids, stream::iter([Ok(SourceEvent::End(end))]));
        let events = events.for_audience(principal.caller.audience());
        Ok((events.into(), Box::new(ReplayRecorder { turn_id: waiting.turn_id.clone() })))
    }
}

/// Returns the log of a run that has no events but its beginning and this end.
fn whole_log(ids: &RunIds, outcome: &RunOutcome) -> LogEnd {
    let RunIds { thread_id, run_id } = ids.clone();
    let mut log = ChunkWriter::default();
    log.push(&Event::RunStarted { thread_id: thread_id.clone(), run_id: run_id.clone() });
    let outcome = Some(outcome.clone());
    log.push(&Event::RunFinished { thread_id, run_id, result: None, outcome, usage: Vec::new() });
    LogEnd { chunks: log.take().into_iter().collect(), ..LogEnd::default() }
}

/// Recorder of a run whose events are stored already, or are stored by the task that has the run.
pub(super) struct ReplayRecorder {
    pub(super) turn_id: RunId,
}

impl RunRecorder for ReplayRecorder {
    fn turn_id(&self) -> Option<RunId> {
        Some(self.turn_id.clone())
    }

    fn record(&mut self, _: &Event) {}

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn finish(&mut self, terminal: Event) -> BoxFuture<'static, Event> {
        ready(terminal).boxed()
    }

    fn poll_stop(&mut self, _: &mut Context<'_>) -> Poll<RunEnd> {
        Poll::Pending
    }

    fn client_disconnected(&mut self) -> DisconnectOutcome {
        DisconnectOutcome::Continue
    }

    fn spawner(&self) -> Option<Arc<dyn Spawner>> {
        None
    }
}
