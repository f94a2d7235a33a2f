//! Messages of a prompt in a thread, for previews: loaded and merged as for a run, and not stored.

use agent_core::request::{Principal, TurnRequest};

use super::super::App;
use super::stored_turn::StoredTurn;
use super::turn::ThreadRequest;
use crate::error::HttpError;

/// Sets the messages of a previewed turn to those that its run would have in its thread, with the contexts of former
/// turns. A turn whose run would not begin now, since the thread has a run or waits for decisions, keeps its own.
///
/// # Errors
/// Errors of the store.
pub(in super::super) async fn load_preview_messages(
    app: &App,
    principal: &Principal,
    turn: &mut TurnRequest,
    request: Option<ThreadRequest>,
) -> Result<(), HttpError> {
    let Some(request) = request.filter(|_| !turn.messages.is_empty()) else { return Ok(()) };
    let request = request.without_background();
    let Some(stored_turn) = StoredTurn::open(app, principal, turn, request).await? else { return Ok(()) };
    turn.is_stored = true;
    if let Some(messages) = stored_turn.messages(app, principal, turn).await? {
        turn.messages = messages;
    }
    Ok(())
}
