//! The client that waits for the start of a run.

use tokio::sync::watch;

/// The client that waits for the start of a run; by default one that does not leave.
#[derive(Debug, Clone, Default)]
pub(super) struct StartingClient(Option<watch::Receiver<()>>);

impl StartingClient {
    /// Creates a client that leaves when the sender of `presence` is dropped.
    pub(super) fn new(presence: watch::Receiver<()>) -> Self {
        Self(Some(presence))
    }

    /// Waits until the client has disconnected.
    pub(super) async fn wait_until_left(&self) {
        let Some(mut presence) = self.0.clone() else { return std::future::pending().await };
        while presence.changed().await.is_ok() {}
    }
}
