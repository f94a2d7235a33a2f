//! The part of a call that all embedding APIs share: requests, limits and failures.

use std::borrow::Cow;
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;
use agent_retrieval::embed::{EmbedError, EmbedRole, EmbedderId, Embeddings, Prefixes};
use bytes::Bytes;
use http::StatusCode;

use super::EmbeddingServer;
use super::dimensions::Dimensions;
use crate::models::vendor_error::{VendorError, read_body};
use crate::outbound::{LazyTarget, OutboundResponse, UrlTrust, join_path, status_failure};

/// Maximum number of bytes of texts in one request. Servers limit the tokens of a request, OpenAI's to 300,000.
const MAX_REQUEST_TEXT_BYTES: usize = 256 << 10;
/// Bytes of an answer beside its vectors, and for each component of a vector as an indented JSON number.
const ANSWER_OVERHEAD_BYTES: usize = 64 << 10;
const COMPONENT_BYTES: usize = 32;
/// Maximum number of components of a vector before the model's number is known.
const MAX_DIMENSIONS: usize = 8192;

/// The API of a kind of server.
pub(super) trait Protocol: Send + Sync {
    /// Returns the body of a request.
    fn body(&self, texts: &[Cow<'_, str>]) -> Vec<u8>;

    /// Parses an answer for a number of texts.
    fn parse(&self, answer: &[u8], texts: usize) -> Result<Embeddings, EmbedError>;
}

/// An embedding model at a URL.
pub(super) struct Endpoint {
    target: LazyTarget,
    key: Option<Secret>,
    id: EmbedderId,
    prefixes: Prefixes,
    max_batch: usize,
    timeout: Duration,
    dimensions: Dimensions,
}

impl Endpoint {
    /// Creates the endpoint of a server at a path below its base URL. The key is kept only if it is bound to that URL.
    pub(super) fn new(
        server: &EmbeddingServer,
        provider: &str,
        path: &[&str],
        max_batch: usize,
    ) -> Result<Self, AgentError> {
        let url = join_path(&server.base_url, path)?;
        let prefixes = Prefixes::of_model(&server.model);
        Ok(Self {
            key: server.key.as_ref().and_then(|key| key.for_url(&url)).cloned(),
            target: LazyTarget::new(server.outbound.clone(), url, UrlTrust::Operator),
            id: EmbedderId::of_model(provider, &server.model, server.dimensions, &prefixes),
            prefixes,
            max_batch,
            timeout: server.timeout,
            dimensions: Dimensions::new(server.dimensions),
        })
    }

    pub(super) fn id(&self) -> &EmbedderId {
        &self.id
    }

    pub(super) fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Embeds texts, in as many requests as their sizes need.
    pub(super) async fn embed(
        &self,
        protocol: &dyn Protocol,
        texts: &[&str],
        role: EmbedRole,
    ) -> Result<Embeddings, EmbedError> {
        if texts.len() > self.max_batch {
            return Err(EmbedError::batch_too_large(texts.len(), self.max_batch));
        }
        let texts: Vec<Cow<'_, str>> = texts.iter().map(|text| self.prefixes.apply(text, role)).collect();
        let call = async {
            let mut embeddings = Embeddings::default();
            for request in split(&texts)? {
                embeddings.append(self.send(protocol, request).await?)?;
            }
            Ok(embeddings)
        };
        let late = || EmbedError::unavailable(format!("no answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, call).await.unwrap_or_else(|_| Err(late()))
    }

    async fn send(&self, protocol: &dyn Protocol, texts: &[Cow<'_, str>]) -> Result<Embeddings, EmbedError> {
        let target = self.target.target().map_err(transport_error)?;
        let request =
            target.post_json(self.key.as_ref(), "application/json", Bytes::from(protocol.body(texts)));
        let request = request.map_err(transport_error)?.header_timeout(self.timeout);
        let response = request.send().await.map_err(transport_error)?;
        if !response.status.is_success() {
            return Err(status_error(response).await);
        }
        if response.is_page() || response.is_encoded() {
            let found = if response.is_page() { "a web page" } else { "compressed data" };
            return Err(EmbedError::InvalidAnswer(format!("{found} in place of JSON")));
        }
        let dimensions = self.dimensions.known().unwrap_or(MAX_DIMENSIONS);
        let max_bytes = ANSWER_OVERHEAD_BYTES + texts.len() * dimensions * COMPONENT_BYTES;
        let answer = response.read_limited(max_bytes, self.timeout).await.map_err(|failure| {
            if failure.kind() == AgentErrorKind::OutputTooLarge {
                self.dimensions.forget();
            }
            transport_error(failure)
        })?;
        let embeddings = protocol.parse(&answer, texts.len())?;
        self.dimensions.check(&embeddings)?;
        Ok(embeddings)
    }
}

/// Parses the JSON of an answer. Serde's message is left out because it would quote the answer.
pub(super) fn parse_json<'a, T: serde::Deserialize<'a>>(answer: &'a [u8]) -> Result<T, EmbedError> {
    serde_json::from_slice(answer).map_err(|error| {
        EmbedError::InvalidAnswer(format!("not JSON of the expected form ({:?} error)", error.classify()))
    })
}

/// Splits texts into requests of at most [`MAX_REQUEST_TEXT_BYTES`].
fn split<'a>(texts: &'a [Cow<'a, str>]) -> Result<Vec<&'a [Cow<'a, str>]>, EmbedError> {
    let mut requests = Vec::new();
    let (mut first, mut bytes) = (0, 0);
    for (position, text) in texts.iter().enumerate() {
        if text.len() > MAX_REQUEST_TEXT_BYTES {
            let message =
                format!("a text of {} bytes, of which {MAX_REQUEST_TEXT_BYTES} are sent", text.len());
            return Err(EmbedError::Rejected(message));
        }
        if bytes + text.len() > MAX_REQUEST_TEXT_BYTES {
            requests.push(&texts[first..position]);
            (first, bytes) = (position, 0);
        }
        bytes += text.len();
    }
    if first < texts.len() {
        requests.push(&texts[first..]);
    }
    Ok(requests)
}

/// Maps a failure of the outbound client. Its messages contain neither addresses nor text from the server.
fn transport_error(failure: AgentError) -> EmbedError {
    let message = failure.message().to_owned();
    match failure.kind() {
        AgentErrorKind::OutputTooLarge => EmbedError::InvalidAnswer(message),
        _ => EmbedError::Unavailable { message, retry_after: failure.retry_after() },
    }
}

/// Maps an unsuccessful response. Only the statuses of a request that is malformed or too large are about its texts; wrong
/// credentials and an unknown path or model are failures of the account or the server, which a repair ends.
async fn status_error(response: OutboundResponse) -> EmbedError {
    let status = response.status;
    let failure = status_failure(status, &response.headers);
    let error = VendorError::from_body(&read_body(response.into_stream()).await);
    let message = match error.overflow() {
        Some(_) => "a text is longer than the model reads".to_owned(),
        None => format!("{} ({})", failure.message(), error.describe()),
    };
    match status {
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
            EmbedError::Rejected(message)
        }
        _ => EmbedError::Unavailable { message, retry_after: failure.retry_after() },
    }
}
