//! Decisions of a chat request about the tool calls that its thread waits with, and the run that continues after the
//! last decision.

use std::sync::Arc;

use agent_core::message::{Message, Role};
use agent_core::request::{Principal, TurnRequest};
use agent_core::tool::Caller;
use agent_platform::conversation::{
    ConversationError, Decision, DecisionRoute, Envelope, OnDisconnect, Run, RunState, RunTriggerKind,
    ThreadKey, ThreadOwner,
};
use agent_platform::history::ThreadFields;

use super::super::App;
use super::detach::StartingClient;
use super::turn::{BeginError, KeptTurn};
use crate::error::HttpError;
use crate::stream;

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
            let found = run.approvals.iter_mut().find(|approval| approval.id == entry.interrupt_id);
            let Some(approval) = found else {
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
        if results.iter().all(|found| found.tool_call_id != result.tool_call_id) {
            results.push(result.clone());
        }
    }
    let said = messages.iter().rev().take_while(|message| message.role == Role::User).count();
    results.extend_from_slice(&messages[messages.len() - said..]);
    results
}

/// Continues a run in the background, whose calls have all been decided by the routes of approvals.
///
/// # Errors
/// Those of a chat in the thread; the run is then continued by the thread's next message.
pub(in super::super) async fn continue_run(
    app: &Arc<App>,
    owner: &ThreadOwner,
    run: &Run,
) -> Result<(), HttpError> {
    if run.state != RunState::Waiting || run.clone().at(app.conversations.now()).is_undecided() {
        return Ok(());
    }
    let store = app.conversations.store().cloned().ok_or_else(HttpError::not_found)?;
    // A visitor's run does not wait.
    let principal = Principal::new(owner.owner.clone(), owner.company.clone(), Caller::Session);
    let turn = TurnRequest {
        thread_id: run.thread_id.clone(),
        ..TurnRequest::new(run.agent_id.clone(), Vec::new())
    };
    let fields = ThreadFields {
        envelope: Envelope::Message,
        on_disconnect: Some(OnDisconnect::Continue),
        is_background: true,
        ..ThreadFields::default()
    };
    // The turn refuses an agent that does not exist.
    let role = app.roles.role(&owner.company, &run.agent_id).await?;
    let settings = role.and_then(|role| role.content.conversations).unwrap_or_default();
    let turn_kept = KeptTurn {
        store,
        fields,
        trigger: Some(RunTriggerKind::Approval.into()),
        settings,
        max_wait: None,
        client: StartingClient::default(),
    };
    let (events, recorder) = turn_kept.start(app, &principal, turn, true).await?;
    stream::run_detached(events, recorder, &app.stream);
    Ok(())
}
