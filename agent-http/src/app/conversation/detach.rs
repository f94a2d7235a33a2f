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
    /// Starts the run for a client, as [`start`](Self::start) does. One that goes on without its client is started in a task
    /// of its own, so that it does so even if the client leaves before the backend has accepted it.
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
            // Without a receiver the run is dropped here, and with one that is dropped itself, there.
            let _ = sender.send(started.map(|run| StartedRun { run: Some(run), app }));
        });
        let mut started = started.await.map_err(HttpError::internal)??;
        Ok(started.run.take().expect("the run is taken once"))
    }
}

/// A run that goes on without a client if nobody takes it.
struct StartedRun {
    run: Option<(RunSource, Box<dyn RunRecorder>)>,
    app: Arc<App>,
}

impl Drop for StartedRun {
    fn drop(&mut self) {
        if let Some((events, recorder)) = self.run.take() {
            stream::run_detached(events, recorder, &self.app.stream);
        }
    }
}
