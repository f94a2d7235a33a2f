//! Decisions, and results of the client's calls, that leave calls open about which others decide: they are stored, and the
//! client gets the interrupts of the others again.

use std::sync::Arc;
use std::task::{Context, Poll};

use agent_core::event::{Audience, Event, EventStream, RunEnd, RunIds, RunOutcome, SourceEvent};
use agent_core::ids::RunId;
use agent_platform::conversation::{
    ChangeRun, ChangedRun, ConversationError, Decision, NewNode, Run, RunChange, RunKey, ThreadOwner,
};
use agent_platform::spawner::Spawner;
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, stream};

use super::super::App;
use super::kept_turn::KeptTurn;
use crate::stream::{Departure, RunRecorder, RunSource};

impl KeptTurn {
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
        Ok(self.store.change_run(ChangeRun { run: key, change, now }).await?.run.at(now))
    }

    /// Stores decisions about calls of a run that waits for others, too. Returns the run as it is then.
    ///
    /// # Errors
    /// Those of [`Approval::decide`](agent_platform::conversation::Approval::decide) and of the store.
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
                self.store.change_run(ChangeRun { run: key, change, now }).await?;
            let decided = run.approvals.iter().find(|approval| approval.id == decision.approval);
            if let Some(approval) = decided.filter(|_| is_changed) {
                app.record_decision(owner, approval, decision);
            }
            waiting = run;
        }
        Ok(waiting.at(now))
    }
}

/// Returns a run that ends at once with the open interrupts of `waiting`. It is not kept: `waiting` is the run that waits.
pub(super) fn ask_again(waiting: &Run, ids: RunIds, audience: Audience) -> (RunSource, Box<dyn RunRecorder>) {
    let interrupts = waiting.open_interrupts().into_iter().cloned().collect();
    let pending_tool_call_ids = waiting.pending_calls().to_vec();
    let outcome = Some(RunOutcome::Interrupt { interrupts, pending_tool_call_ids });
    let end = RunEnd::Finished { result: None, outcome, usage: Vec::new() };
    let events = EventStream::new(ids, stream::iter([Ok(SourceEvent::End(end))])).for_audience(audience);
    (events.into(), Box::new(UnkeptRun { turn_id: waiting.turn_id.clone() }))
}

/// Recorder of a run that is not kept, in a turn of a thread.
struct UnkeptRun {
    turn_id: RunId,
}

impl RunRecorder for UnkeptRun {
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

    fn leave(&mut self) -> Departure {
        Departure::GoOn
    }

    fn spawner(&self) -> Option<Arc<dyn Spawner>> {
        None
    }
}
