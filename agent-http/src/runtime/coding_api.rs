//! The model API of a coding subscription.

use std::time::Duration;

use agent_client::outbound::OutboundClient;
use http::header::HeaderValue;
use url::Url;

use crate::stream::StreamLimits;

/// Model API of a coding subscription that the operator has configured.
#[derive(Debug, Clone)]
pub struct CodingApi {
    /// Client that sends the requests.
    pub outbound: OutboundClient,
    /// Address of the API, `CODING_API_URL`.
    pub url: Url,
    /// Name of this program in the header `originator`.
    pub originator: HeaderValue,
    /// Maximum size of a request body in bytes.
    pub max_body_bytes: usize,
    /// Limits of the streamed response.
    pub stream: StreamLimits,
    /// Maximum time from the head of a response that is not streamed to its end.
    pub answer_timeout: Duration,
}
