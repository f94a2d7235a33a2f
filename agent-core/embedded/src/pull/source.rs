//! Transport of a download, implemented by the embedder.

use std::error::Error;
use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

/// Error of a transport.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Transport that reads a file from a URL.
///
/// Redirects, proxies, TLS and timeouts are the implementation's. A response must not wait indefinitely: a stalled
/// connection ends with an error, after which the download is resumed by another call.
#[async_trait]
pub trait WeightSource: Send + Sync {
    /// Requests the bytes of the file at `url` from offset `from` on.
    ///
    /// # Errors
    /// [`FetchError`]. Dropping the future or the returned stream cancels the request.
    async fn fetch(&self, url: &str, from: u64) -> Result<FetchedBytes, FetchError>;
}

/// Response to a request for a file's bytes.
pub struct FetchedBytes {
    /// Offset of the first byte in the file: the requested one, or 0 from a server that sends whole files only.
    pub start: u64,
    /// The bytes up to the end of the file. An error means that the connection broke off.
    pub bytes: BoxStream<'static, Result<Bytes, BoxError>>,
}

impl fmt::Debug for FetchedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchedBytes").field("start", &self.start).finish_non_exhaustive()
    }
}

/// Error of a request for a file's bytes.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No response arrived.
    #[error("the server cannot be reached")]
    Unreachable(#[source] BoxError),
    /// The response has an unexpected status or range; the text says which.
    #[error("the server answered {0}")]
    UnexpectedResponse(String),
}
