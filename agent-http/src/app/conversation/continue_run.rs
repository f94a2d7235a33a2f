//! Continuation of a run whose calls have all been decided.

use std::sync::Arc;

use agent_core::ids::TraceContext;
use agent_core::request::{Principal, TurnRequest};
use agent_core::tool::Caller;
use agent_platform::conversation::{OnDisconnect, RequestFormat, Run, RunState, RunTriggerKind, ThreadOwner};
use agent_platform::history::ThreadFields;

use super::super::App;
use super::starting_client::StartingClient;
use super::stored_turn::StoredTurn;
use crate::error::HttpError;
use crate::stream;

/// Continues, in the background, a run whose calls have all been decided by the routes of approvals. The new run belongs
/// to `trace`.
///
/// # Errors
/// Errors of a chat in the thread; the run is then continued by the thread's next message.
pub(in super::super) async fn continue_run(
    app: &Arc<App>,
    owner: &ThreadOwner,
    run: &Run,
    trace: TraceContext,
) -> Result<(), HttpError> {
    if run.state != RunState::Waiting || run.clone().at(app.conversations.now()).is_undecided() {
        return Ok(());
    }
    let store = app.conversations.store().cloned().ok_or_else(HttpError::not_found)?;
    // A visitor's run continues with a visitor's permissions, even if a session has decided.
    let caller = if owner.is_visitor() { Caller::Widget } else { Caller::Session };
    let agent_id = owner.is_visitor().then(|| run.agent_id.clone());
    let principal = Principal::new(owner.owner.clone(), owner.company.clone(), caller);
    let principal = Principal { agent_id, ..principal };
    let turn = TurnRequest {
        thread_id: run.thread_id.clone(),
        trace: Some(trace),
        ..TurnRequest::new(run.agent_id.clone(), Vec::new())
    };
    let fields = ThreadFields {
        format: RequestFormat::Message,
        on_disconnect: Some(OnDisconnect::Continue),
        is_background: true,
        ..ThreadFields::default()
    };
    // The turn refuses an agent that does not exist.
    let role = app.roles.role(&owner.company, &run.agent_id).await?;
    let settings = role.and_then(|role| role.content.conversations).unwrap_or_default();
    let stored_turn = StoredTurn {
        store,
        fields,
        trigger: Some(RunTriggerKind::Approval.into()),
        settings,
        max_wait: None,
        client: StartingClient::default(),
        is_new_thread: false,
    };
    let (events, recorder) = stored_turn.start(app, &principal, turn, None).await?;
    stream::run_detached(events, recorder, &app.stream);
    Ok(())
}
