//! The messenger's bot API.

use std::time::Duration;

use agent_client::outbound::OutboundClient;
use url::Url;

/// Messenger bot API that the operator has configured.
#[derive(Debug, Clone)]
pub struct BotApi {
    /// Client that sends the calls.
    pub outbound: OutboundClient,
    /// Base URL of the API, `MESSENGER_API_URL`.
    pub base_url: Url,
    /// Maximum time from a response's head to its end.
    pub answer_timeout: Duration,
}
