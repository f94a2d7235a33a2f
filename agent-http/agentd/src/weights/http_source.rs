//! HTTP transport of the weights' download.
//!
//! Unlike the services' outbound client, it follows redirects and uses the proxies of the environment. This is safe
//! because an operator starts the download, the addresses are compiled in, and the result is checked against a
//! compiled-in checksum.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent_embedded::pull::{BoxError, FetchError, FetchedBytes, WeightSource};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::{CONTENT_RANGE, HOST, LOCATION, PROXY_AUTHORIZATION, RANGE, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tower_service::Service;
use url::Url;

/// Maximum number of redirects that one request follows.
const MAX_REDIRECTS: usize = 5;

/// Timeout for name resolution, connect, proxy and TLS handshakes together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the response head, and for each read of the body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP/1.1 client for one file at a time. Each request has a separate connection.
pub(super) struct HttpSource {
    tls: Arc<rustls::ClientConfig>,
    connector: HttpsConnector<HttpConnector>,
    proxies: Matcher,
    read_timeout: Duration,
}

/// Plain or TLS connection, with or without a proxy in between.
trait IoStream: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> IoStream for T {}

impl HttpSource {
    /// Creates a client. `proxies` decides per URL whether a proxy is used; `http://` and `https://` proxies are
    /// supported.
    pub(super) fn new(tls: rustls::ClientConfig, proxies: Matcher) -> Self {
        let tls = Arc::new(tls);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Self {
            connector: HttpsConnector::from((tcp, Arc::clone(&tls))),
            tls,
            proxies,
            read_timeout: READ_TIMEOUT,
        }
    }

    /// Sends a GET request to `uri`.
    async fn get(&self, uri: &Uri, from: u64) -> Result<Response<Incoming>, BoxError> {
        let mut request = Request::get(uri.clone())
            .header(HOST, host_header(uri)?)
            .header(USER_AGENT, concat!("agentd/", env!("CARGO_PKG_VERSION")));
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        let mut request = request.body(Empty::<Bytes>::new())?;
        let proxy = self.proxies.intercept(uri);
        match &proxy {
            // A proxy reads the target of a plain request from the absolute form of its URI.
            Some(proxy) if !is_https(uri) => {
                if let Some(credentials) = proxy.basic_auth() {
                    request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
                }
            }
            _ => *request.uri_mut() = origin_form(uri)?,
        }
        let io = within(CONNECT_TIMEOUT, self.connect(uri, proxy)).await?;
        let (mut sender, connection) = http1::handshake(io).await?;
        // Ends with the response body. Its error reaches the request or the body.
        tokio::spawn(connection);
        within(self.read_timeout, sender.send_request(request)).await
    }

    /// Connects to the server of `uri`, or to its proxy.
    async fn connect(&self, uri: &Uri, proxy: Option<Intercept>) -> Result<Box<dyn IoStream>, BoxError> {
        let mut connector = self.connector.clone();
        match proxy {
            None => Ok(Box::new(connector.call(uri.clone()).await?)),
            Some(proxy) if !is_https(uri) => Ok(Box::new(connector.call(proxy.uri().clone()).await?)),
            Some(proxy) => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
                if let Some(credentials) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(credentials.clone());
                }
                let mut connector = HttpsConnector::from((tunnel, Arc::clone(&self.tls)));
                Ok(Box::new(connector.call(uri.clone()).await?))
            }
        }
    }
}

#[async_trait]
impl WeightSource for HttpSource {
    async fn fetch(&self, url: &str, from: u64) -> Result<FetchedBytes, FetchError> {
        let mut url = Url::parse(url).map_err(unreachable)?;
        for _ in 0..=MAX_REDIRECTS {
            let uri: Uri = url.as_str().parse().map_err(unreachable)?;
            let response = self.get(&uri, from).await.map_err(FetchError::Unreachable)?;
            if !response.status().is_redirection() {
                return Ok(FetchedBytes {
                    start: start(&response, from)?,
                    bytes: body(response, self.read_timeout),
                });
            }
            url = redirect_target(&url, &response)?;
        }
        Err(FetchError::UnexpectedResponse(format!("more than {MAX_REDIRECTS} redirects")))
    }
}

/// Returns the offset at which the body begins.
fn start(response: &Response<Incoming>, from: u64) -> Result<u64, FetchError> {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    match response.status() {
        StatusCode::OK => Ok(0),
        StatusCode::PARTIAL_CONTENT
            if range.is_some_and(|range| range.starts_with(&format!("bytes {from}-"))) =>
        {
            Ok(from)
        }
        status => {
            let answer = format!("{status} to a request for the bytes from {from} on");
            Err(FetchError::UnexpectedResponse(answer))
        }
    }
}

/// Returns the chunks of the body. A read that takes longer than `timeout` ends them with an error.
fn body(response: Response<Incoming>, timeout: Duration) -> BoxStream<'static, Result<Bytes, BoxError>> {
    let chunks = stream::try_unfold(response.into_body(), move |mut body| async move {
        while let Some(frame) = within(timeout, async { body.frame().await.transpose() }).await? {
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some((bytes, body)));
            }
        }
        Ok(None)
    });
    chunks.boxed()
}

fn redirect_target(url: &Url, response: &Response<Incoming>) -> Result<Url, FetchError> {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| url.join(location).ok());
    target.ok_or_else(|| {
        FetchError::UnexpectedResponse(format!("{} without a usable location", response.status()))
    })
}

/// Runs `step` with a timeout.
async fn within<T, E: Into<BoxError>>(
    timeout: Duration,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    match tokio::time::timeout(timeout, step).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(format!("no progress within {timeout:?}").into()),
    }
}

fn unreachable(error: impl Into<BoxError>) -> FetchError {
    FetchError::Unreachable(error.into())
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&http::uri::Scheme::HTTPS)
}

fn host_header(uri: &Uri) -> Result<HeaderValue, BoxError> {
    let host = uri.host().ok_or("the URL has no host")?;
    Ok(HeaderValue::try_from(uri.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))?)
}

/// Returns the path and query of a URI, the form that an origin server expects.
fn origin_form(uri: &Uri) -> Result<Uri, BoxError> {
    Ok(uri.path_and_query().map_or("/", |path| path.as_str()).parse()?)
}

#[cfg(test)]
mod tests;
