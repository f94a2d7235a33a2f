//! Test server on loopback that writes raw HTTP, since HTTP libraries cannot produce many of the faulty responses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

use crate::outbound::{OutboundClient, OutboundConfig};

/// Action of the server after its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterResponse {
    /// Closes the connection.
    Close,
    /// Waits until the client closes the connection.
    Hold,
}

/// Test server that records the requests and answers each. It stops on drop.
pub(crate) struct LoopbackServer {
    pub(crate) url: Url,
    requests: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
    server: JoinHandle<()>,
}

impl LoopbackServer {
    /// Starts a server that sends the same response to every request.
    pub(crate) async fn respond_with(answer: impl Into<Vec<u8>>, then: AfterResponse) -> Self {
        let answer = answer.into();
        Self::respond_by(move |_| answer.clone(), then).await
    }

    /// Starts a server whose response is made from the request, head and body.
    pub(crate) async fn respond_by(
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
        then: AfterResponse,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (requests, open) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
        let (received, count, answer) = (requests.clone(), open.clone(), Arc::new(answer));
        let server = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (received, count, answer) = (received.clone(), count.clone(), answer.clone());
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    if let Some(request) = read_request(&mut stream).await {
                        let response = answer(&request);
                        received.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                        // A client that has disconnected is detected by the read below.
                        let _ = stream.write_all(&response).await;
                        if then == AfterResponse::Hold {
                            while let Ok(1..) = stream.read(&mut [0; 1024]).await {}
                        }
                        let _ = stream.shutdown().await;
                    }
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let url = Url::parse(&format!("http://{address}/v1")).expect("an address");
        Self { url, requests, open, server }
    }

    /// Returns the requests so far, head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the path of each request so far, with its authorization, or `-` if it has none.
    pub(crate) fn paths_and_authorizations(&self) -> Vec<String> {
        let show = |request: String| {
            let path = request.split(' ').nth(1).unwrap_or_default();
            let key = request.lines().find_map(|line| line.strip_prefix("authorization: "));
            [path, key.unwrap_or("-")].join(" ")
        };
        self.requests().into_iter().map(show).collect()
    }

    /// Returns a function that counts the open connections.
    pub(crate) fn open(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let open = self.open.clone();
        move || open.load(Ordering::SeqCst)
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Reads a request with a body of `Content-Length` bytes; `None` if the connection closes before.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .is_none_or(|length| length.parse() == Ok(body.len()))
        {
            return Some(text.into_owned());
        }
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}

/// Returns a response with this status and type, its body in chunks of `size` bytes. Without `end` it is incomplete.
pub(crate) fn chunked_response(status: &str, kind: &str, body: &[u8], size: usize, end: bool) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let mut answer = head.into_bytes();
    for chunk in body.chunks(size) {
        answer.extend(format!("{:x}\r\n", chunk.len()).bytes());
        answer.extend(chunk);
        answer.extend(b"\r\n");
    }
    if end {
        answer.extend(b"0\r\n\r\n");
    }
    answer
}

/// Returns an outbound client that is allowed to reach these hosts.
pub(crate) fn outbound_client(allow: &str) -> OutboundClient {
    let allow = allow.parse().expect("an allow list");
    OutboundClient::new(OutboundConfig { allow, ..OutboundConfig::default() }).expect("a client")
}
