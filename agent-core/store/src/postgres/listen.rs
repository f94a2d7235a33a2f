//! Listener for notifications from other processes that a job has become the earliest.

use std::pin::pin;
use std::time::Duration;

use agent_jobs::job::WakeSignal;
use agent_platform::backoff::Backoff;
use futures_util::future::{Either, select};
use futures_util::stream::{BoxStream, StreamExt, poll_fn};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client};

use super::address::Address;
use super::error::{PostgresError, PostgresErrorKind};
use super::jobs::Sender;

/// Pauses before attempts to reconnect.
const RECONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));

/// Background task with its own connection. Dropping the value aborts the task.
pub(super) struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Listener {
    /// Starts listening. Sends the signal for each notification whose sender is not `own`, and after each
    /// reconnection, because notifications may have been missed.
    pub(super) async fn start(
        address: Address,
        limit: Duration,
        own: Sender,
        signal: WakeSignal,
    ) -> Result<Self, PostgresError> {
        let mut connection = ListenConnection::open(&address, limit, own.channel).await?;
        let listen = async move {
            loop {
                let error = connection.forward_notifications(&own.name, &signal).await;
                tracing::warn!(error = error.display_with_source(), "the LISTEN connection was lost");
                connection = ListenConnection::reconnect(&address, limit, own.channel).await;
                tracing::info!("the LISTEN connection was restored");
                signal.notify();
            }
        };
        Ok(Self(tokio::spawn(listen)))
    }
}

/// A connection that listens.
struct ListenConnection {
    // Kept alive, because the server closes the connection when the client is dropped.
    _client: Client,
    messages: BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>,
}

impl ListenConnection {
    /// Connects and subscribes to `channel`. The payload of a notification is the sender's name.
    async fn open(address: &Address, limit: Duration, channel: &str) -> Result<Self, PostgresError> {
        let listen = format!("LISTEN {channel}");
        let open = async {
            let (client, mut connection) = address.config.connect(address.tls.clone()).await?;
            let mut messages = poll_fn(move |cx| connection.poll_message(cx)).boxed();
            {
                let mut listen = pin!(client.batch_execute(&listen));
                // The connection makes progress only while it is polled for messages.
                loop {
                    match select(&mut listen, messages.next()).await {
                        Either::Left((listening, _)) => break listening?,
                        Either::Right((Some(message), _)) => drop(message?),
                        Either::Right((None, _)) => {
                            return Err(PostgresError::from_kind(PostgresErrorKind::Unreachable));
                        }
                    }
                }
            }
            Ok(Self { _client: client, messages })
        };
        timeout(limit, open)
            .await
            .unwrap_or_else(|_| Err(PostgresError::from_kind(PostgresErrorKind::Unreachable)))
    }

    async fn reconnect(address: &Address, limit: Duration, channel: &str) -> Self {
        let mut backoff = RECONNECT_BACKOFF;
        loop {
            sleep(backoff.next_pause()).await;
            match Self::open(address, limit, channel).await {
                Ok(connection) => return connection,
                Err(error) => {
                    tracing::debug!(
                        error = error.display_with_source(),
                        "the LISTEN connection cannot be opened"
                    )
                }
            }
        }
    }

    /// Sends the signal for each notification until the connection is lost, and returns the error.
    async fn forward_notifications(&mut self, own: &str, signal: &WakeSignal) -> PostgresError {
        while let Some(message) = self.messages.next().await {
            match message {
                Ok(AsyncMessage::Notification(notification)) if notification.payload() != own => {
                    signal.notify()
                }
                Ok(_) => {}
                Err(error) => return error.into(),
            }
        }
        PostgresError::from_kind(PostgresErrorKind::Unreachable)
    }
}
