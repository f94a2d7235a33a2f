//! Decisions of a chat request about the tool calls that its thread waits with, and the run that continues after the
//! last decision.

use agent_core::message::{Message, Role};
use agent_core::request::Principal;
use agent_platform::conversation::{ConversationError, Decision, DecisionRoute, Run, ThreadKey};

use super::super::App;
use super::begin_error::BeginError;
use super::kept_turn::KeptTurn;

impl KeptTurn {
    /// Returns the decisions of the request about the calls of a run that waits.
    ///
    /// # Errors
    /// [`ConversationError::InterruptsOpen`] if calls remain without a decision, [`ConversationError::ApprovalExpired`]
    /// for one that comes too late; 400 for arguments that do not conform to the tool's schema.
    pub(super) async fn decisions(
        &self,
        app: &App,
        principal: &Principal,
        key: &ThreadKey,
        run: &Run,
    ) -> Result<Vec<Decision>, BeginError> {
        let (owner, now) = (key.thread_owner(), app.conversations.now());
        let mut run = run.clone();
        let mut decisions = Vec::new();
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
            approval.decide(&decision, now)?;
            decisions.push(decision);
        }
        let run = run.at(now);
        match run.is_undecided() {
            true => Err(ConversationError::InterruptsOpen { run: Box::new(run) }.into()),
            false => Ok(decisions),
        }
    }
}

/// Returns the messages of a request that are new after the calls of `run`: results of the client's calls, and what the
/// owner says besides.
pub(super) fn new_messages(run: &Run, messages: &[Message]) -> Vec<Message> {
    let pending = run.pending_calls();
    let is_result = |message: &&Message| {
        let call = message.tool_call_id.as_deref().filter(|_| message.role == Role::Tool);
        call.is_some_and(|call| pending.iter().any(|id| **id == *call))
    };
    let mut results: Vec<Message> = Vec::new();
    for result in messages.iter().filter(is_result) {
        if results.iter().all(|known| known.tool_call_id != result.tool_call_id) {
            results.push(result.clone());
        }
    }
    let user_count = messages.iter().rev().take_while(|message| message.role == Role::User).count();
    results.extend_from_slice(&messages[messages.len() - user_count..]);
    results
}
