//! Turns whose runs are stored.

use std::sync::Arc;
use std::time::Duration;

use agent_core::request::{Principal, TurnRequest};
use agent_core::role::ConversationSettings;
use agent_platform::conversation::{Conversations, RunTrigger, ThreadKey};
use agent_platform::history::ThreadFields;

use super::starting_client::StartingClient;

/// A turn whose run is stored.
#[derive(Clone)]
pub(in super::super) struct StoredTurn {
    pub(super) store: Arc<dyn Conversations>,
    pub(super) fields: ThreadFields,
    /// Cause of the run, if the request does not contain it.
    pub(super) trigger: Option<RunTrigger>,
    /// Settings of the agent's role.
    pub(super) settings: ConversationSettings,
    /// Maximum time in the thread's queue; `None` for a client's request, since the client may leave.
    pub(super) max_wait: Option<Duration>,
    /// The client that waits for the start of the run, if any.
    pub(super) client: StartingClient,
    /// True if the thread has an id that was made for this turn, so that no lookup is needed.
    pub(super) is_new_thread: bool,
}

impl StoredTurn {
    /// Sets that the thread's id was made for this turn.
    #[must_use]
    pub(in super::super) fn with_new_thread(self, is_new_thread: bool) -> Self {
        Self { is_new_thread, ..self }
    }
}

pub(super) fn thread_key(principal: &Principal, turn: &TurnRequest) -> ThreadKey {
    ThreadKey::new(principal.company_id.clone(), principal.user_id.clone(), turn.thread_id.clone())
}
