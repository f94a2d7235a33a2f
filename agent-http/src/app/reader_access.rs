//! Right of an attached client to a run's events, which is checked again while the client is attached.

use std::sync::Arc;
use std::time::Duration;

use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::conversation::{Conversations, Run, RunKey};
use http::request;
use tokio::time::Instant;

use super::App;
use super::threads::OwnConversations;
use crate::auth::AuthError;
use crate::request::Query;

/// Time between two checks. A client that has lost its right is detached after it.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Right of an attached client.
pub(super) struct ReaderAccess {
    app: Arc<App>,
    store: Arc<dyn Conversations>,
    key: RunKey,
    /// Head of a visitor's request, with the token.
    visitor: Option<request::Parts>,
    next_check: Instant,
}

impl ReaderAccess {
    /// Creates the right of a client that has it now.
    pub(super) fn new(
        conversations: &OwnConversations,
        principal: &Principal,
        head: request::Parts,
        run: &Run,
    ) -> Self {
        Self {
            app: conversations.app.clone(),
            store: conversations.store.clone(),
            key: RunKey { owner: conversations.owner.clone(), id: run.id.clone() },
            visitor: (principal.caller == Caller::Widget).then_some(head),
            next_check: Instant::now() + CHECK_INTERVAL,
        }
    }

    /// Waits until the client has lost its right: the visitor's token is revoked or has expired, the run is deleted, or
    /// it is live and its agent is deleted. A failed check does not count.
    pub(super) async fn wait_until_lost(&mut self) {
        loop {
            tokio::time::sleep_until(self.next_check).await;
            let is_lost = self.is_lost().await;
            self.next_check = Instant::now() + CHECK_INTERVAL;
            if is_lost {
                return;
            }
        }
    }

    async fn is_lost(&self) -> bool {
        if let Some(head) = &self.visitor {
            let result = self.app.auth.authenticate(head, &Query::from_uri(&head.uri)).await;
            if result.is_err_and(|error| !matches!(error, AuthError::Store(_))) {
                return true;
            }
        }
        match self.store.run(&self.key.owner, &self.key.id).await {
            Ok(None) => true,
            Ok(Some(run)) if run.state.is_live() => {
                let role = self.app.roles.role(&self.key.owner.company, &run.agent_id).await;
                matches!(role, Ok(None))
            }
            Ok(Some(_)) | Err(_) => false,
        }
    }
}
