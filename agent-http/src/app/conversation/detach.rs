//! Runs that go on without the client that has asked for them.

use std::sync::Arc;

use agent_core::request::{Principal, TurnRequest};
use agent_platform::conversation::OnDisconnect;
use tokio::sync::oneshot;

use super::super::App;
use super::turn::KeptTurn;
use crate::error::HttpError;
use crate::stream::{self, RunRecorder, RunSource};

impl KeptTurn {
    /// Starts the run for a client, as [`start`](Self::start) does. One that goes on without its client is started in a task of its
    /// own, so that it does so even if the client leaves before the backend has accepted it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(in super::super) async fn start_for_client(
        self,
        app: &Arc<App>,
        principal: &Principal,
        turn: TurnRequest,
        is_new_id: bool,
    ) -> Result<(RunSource, Box<dyn RunRecorder>), HttpError> {
        if self.fields.on_disconnect != Some(OnDisconnect::Continue) {
            return self.start(app, principal, turn, is_new_id).await;
        }
        let (sender, started) = oneshot::channel();
        let (app, principal) = (app.clone(), principal.clone());
        tokio::spawn(async move {
            let started = self.start(&app, &principal, turn, is_new_id).await;
            if let Err(Ok((events, recorder))) = sender.send(started) {
                stream::run_detached(events, recorder, &app.stream);
            }
        });
        started.await.unwrap_or_else(|error| Err(HttpError::internal(error)))
    }
}
