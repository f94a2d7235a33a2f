//! Decisions of a chat request about the tool calls that its thread waits with, and the run that continues after the
//! last decision.

use std::sync::Arc;

use agent_core::message::{Message, Role};
use agent_core::request::{Principal, TurnRequest};
use agent_platform::conversation::{
    ApprovalState, ConversationError, Decision, DecisionRoute, LoadedThread, MergeInput, NewNode, NodeId,
    NodeRole, ParentChoice, Run, RunTriggerKind, merge,
};

use super::super::App;
use super::begin_error::BeginError;
use super::stored_turn::{StoredTurn, thread_key};

impl StoredTurn {
    /// Returns the request's decisions about the calls of a waiting run, without decisions that are already stored.
    ///
    /// # Errors
    /// [`BeginError::StillWaiting`] if others decide about the calls that remain, or the request has results of the client's
    /// calls alone; [`ConversationError::InterruptsOpen`] if calls remain otherwise; [`ConversationError::ApprovalExpired`] for a
    /// decision that comes too late; 400 for arguments that do not conform to the tool's schema.
    pub(super) async fn decisions(
        &self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
        loaded: &LoadedThread,
        run: &Run,
    ) -> Result<Vec<Decision>, BeginError> {
        let key = thread_key(principal, turn);
        let (owner, now) = (key.thread_owner(), app.conversations.now());
        let mut run = run.clone();
        let (mut decisions, mut has_decided) = (Vec::new(), false);
        for entry in &self.fields.resume {
            let approval = run.approvals.iter_mut().find(|approval| approval.id == entry.interrupt_id);
            let Some(approval) = approval else {
                tracing::warn!(run_id = %run.id, "a decision about an unknown interrupt is ignored");
                continue;
            };
            if !app.may_decide(principal, &owner, approval).await.map_err(BeginError::Request)? {
                continue;
            }
            app.check_verdict(principal, approval, &entry.verdict).await.map_err(BeginError::Request)?;
            let decision = Decision {
                approval: approval.id.clone(),
                verdict: entry.verdict.clone(),
                by: principal.user_id.clone(),
                via: DecisionRoute::Chat,
            };
            let is_open = approval.state == ApprovalState::Open;
            approval.decide(&decision, now)?;
            has_decided = true;
            decisions.extend(is_open.then_some(decision));
        }
        let run = run.at(now);
        if !run.is_undecided() {
            return Ok(decisions);
        }
        let mut awaits_caller = false;
        for approval in run.approvals.iter().filter(|approval| approval.state == ApprovalState::Open) {
            awaits_caller |=
                app.may_decide(principal, &owner, approval).await.map_err(BeginError::Request)?;
        }
        let placed = self.place(turn, loaded, Some(&run), &key)?;
        let (results, other): (Vec<NewNode>, Vec<NewNode>) =
            placed.nodes.into_iter().partition(|node| node.message.role() == NodeRole::Tool);
        let is_complete = match self.fields.resume.is_empty() {
            true => !results.is_empty(),
            false => !awaits_caller && (has_decided || !results.is_empty()),
        };
        // Messages are stored with the run that follows the last decision.
        match is_complete && other.is_empty() {
            true => Err(BeginError::StillWaiting { run: Box::new(run), decisions, results }),
            false => Err(ConversationError::InterruptsOpen { run: Box::new(run) }.into()),
        }
    }
}

/// Returns the messages of a request that are new after the calls of `run`, whose last node is `last`: results of the client's
/// calls, and what the owner says besides. `input` is the request with the thread's tree.
///
/// # Errors
/// Errors of [`merge`].
pub(super) fn new_messages(
    run: &Run,
    last: &NodeId,
    input: MergeInput<'_>,
) -> Result<Vec<Arc<Message>>, ConversationError> {
    let messages = input.messages.clone();
    let pending = run.pending_calls();
    let is_result = |message: &&Arc<Message>| {
        let call = message.tool_call_id.as_deref().filter(|_| message.role == Role::Tool);
        call.is_some_and(|call| pending.iter().any(|id| **id == *call))
    };
    let mut results: Vec<Arc<Message>> = Vec::new();
    for result in messages.iter().filter(is_result) {
        if results.iter().all(|known| known.tool_call_id != result.tool_call_id) {
            results.push(Arc::clone(result));
        }
    }
    let count = count_new_user_messages(last, input)?;
    results.extend_from_slice(&messages[messages.len() - count..]);
    Ok(results)
}

/// Returns the number of user messages at the end of a request that are new below `last`. A client that resends its history
/// without ids, and without the calls that wait, ends it with the message that the run has answered.
fn count_new_user_messages(last: &NodeId, input: MergeInput<'_>) -> Result<usize, ConversationError> {
    let count = input.messages.iter().rev().take_while(|message| message.role == Role::User).count();
    if count == 0 {
        return Ok(0);
    }
    let merged = merge(MergeInput { head: Some(last.clone()), parent: ParentChoice::Unspecified, ..input })?;
    // An unknown list would be a new root.
    let is_placed = !merged.path.is_empty() && merged.trigger != RunTriggerKind::Edit;
    let new_count = merged.nodes.iter().filter(|node| node.message.role() == NodeRole::User).count();
    Ok(if is_placed { count.min(new_count) } else { count })
}
