//! Runs whose clients disconnect while they start.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_core::request::{Principal, TurnRequest};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tracing::Instrument;

use super::super::App;
use super::starting_client::StartingClient;
use super::stored_turn::StoredTurn;
use crate::app::services::ChosenRunId;
use crate::error::HttpError;
use crate::stream::{self, RunRecorder, RunSource};

type Started = Result<(RunSource, Box<dyn RunRecorder>), HttpError>;

impl StoredTurn {
    /// Starts the run for a client, as [`start`](Self::start) does. If the future is dropped, the client has disconnected: the start
    /// continues in a separate task, and the run as one whose client disconnects later.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(in super::super) async fn start_for_client(
        self,
        app: &Arc<App>,
        principal: &Principal,
        turn: TurnRequest,
        chosen_id: Option<ChosenRunId>,
    ) -> Started {
        let (presence, client) = watch::channel(());
        let stored_turn = Self { client: StartingClient::new(client), ..self };
        let start = {
            let (app, principal) = (app.clone(), principal.clone());
            async move { stored_turn.start(&app, &principal, turn, chosen_id).await }
        };
        StartingRun { start: Some(start.boxed()), presence: Some(presence), app: app.clone() }.await
    }
}

/// A run that starts while its client waits for it.
struct StartingRun {
    /// The start; `None` once it has ended.
    start: Option<BoxFuture<'static, Started>>,
    /// Dropped when the client disconnects.
    presence: Option<watch::Sender<()>>,
    app: Arc<App>,
}

impl Future for StartingRun {
    type Output = Started;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Started> {
        let Some(start) = &mut self.start else { return Poll::Pending };
        let started = ready!(start.poll_unpin(cx));
        self.start = None;
        Poll::Ready(started)
    }
}

impl Drop for StartingRun {
    fn drop(&mut self) {
        let Some(start) = self.start.take() else { return };
        self.presence = None;
        let app = self.app.clone();
        let task = async move {
            // The client has disconnected, so the error of a run that cannot begin is dropped.
            if let Ok((events, recorder)) = start.await {
                stream::run_detached(events, recorder, &app.stream);
            }
        };
        self.app.conversations.spawner.spawn(task.in_current_span().boxed());
    }
}
