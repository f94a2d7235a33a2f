//! A plain TCP server that answers each HTTP request with steps, in place of an external system.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::TEST_TIMEOUT;

/// One action of the server on a connection.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sends bytes unchanged.
    Send(Vec<u8>),
    /// Sends the same bytes repeatedly, with a pause after each, until the client disconnects.
    Drip(Vec<u8>, Duration),
    /// Waits before the next step.
    Pause(Duration),
    /// Sends nothing until the client disconnects.
    Stall,
    /// Sends nothing until the gate opens.
    Until(watch::Receiver<bool>),
    /// Resets the connection.
    Reset,
    /// Closes the connection in order.
    Close,
}

/// A request as received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Request line and headers, unparsed.
    pub head: String,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// Returns the body, parsed as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the request's body is JSON")
    }

    /// Returns the request target.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// The server; stops when dropped.
pub struct ScriptServer {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    request_count: watch::Receiver<usize>,
    disconnects: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

impl ScriptServer {
    /// Starts a server on a free port. `respond` returns the response to each request.
    pub async fn start(respond: impl Fn(ReceivedRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let connections = Arc::<AtomicUsize>::default();
        let (request_counter, request_count) = watch::channel(0);
        let (disconnect_counter, disconnects) = watch::channel(0);
        let task = tokio::spawn({
            let (respond, connections) = (Arc::new(respond), connections.clone());
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    // Without Nagle's algorithm, bytes written before a reset are sent rather than discarded.
                    let _ = stream.set_nodelay(true);
                    connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(serve(
                        stream,
                        respond.clone(),
                        request_counter.clone(),
                        disconnect_counter.clone(),
                    ));
                }
            }
        });
        Self { address, connections, request_count, disconnects, task }
    }

    /// Returns the number of connections accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of requests received, which changes after their responses have been chosen.
    pub fn request_count(&self) -> watch::Receiver<usize> {
        self.request_count.clone()
    }

    /// Returns the number of clients that disconnected during a response.
    pub fn disconnects(&self) -> watch::Receiver<usize> {
        self.disconnects.clone()
    }

    /// Waits until `is_enough` holds, which is checked after each request.
    pub async fn wait_for_requests(&self, is_enough: impl Fn() -> bool) {
        let mut request_count = self.request_count();
        let waited = tokio::time::timeout(TEST_TIMEOUT, request_count.wait_for(|_| is_enough())).await;
        waited.expect("the requests arrive in time").expect("the server runs");
    }

    /// Waits until `count` clients have disconnected during a response.
    pub async fn wait_for_disconnects(&self, count: usize) {
        let mut disconnects = self.disconnects();
        let waited =
            tokio::time::timeout(TEST_TIMEOUT, disconnects.wait_for(|disconnects| *disconnects >= count))
                .await;
        waited.expect("the clients leave in time").expect("the server runs");
    }
}

impl Drop for ScriptServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    respond: Arc<impl Fn(ReceivedRequest) -> Vec<Step> + Send + Sync + 'static>,
    request_counter: watch::Sender<usize>,
    disconnect_counter: watch::Sender<usize>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let steps = respond(request);
        request_counter.send_modify(|request_count| *request_count += 1);
        for step in steps {
            match perform_step(step, &mut stream).await {
                ConnectionState::Open => {}
                ConnectionState::ClosedByServer => return,
                ConnectionState::ClosedByClient => {
                    disconnect_counter.send_modify(|disconnects| *disconnects += 1);
                    return;
                }
            }
        }
    }
}

/// State of the connection after a step.
pub enum ConnectionState {
    /// The connection is open; the next step may run.
    Open,
    /// The server has closed the connection.
    ClosedByServer,
    /// The client has closed the connection.
    ClosedByClient,
}

/// Performs one step.
pub async fn perform_step(step: Step, stream: &mut TcpStream) -> ConnectionState {
    match step {
        Step::Send(bytes) => match stream.write_all(&bytes).await {
            Ok(()) => ConnectionState::Open,
            Err(_) => ConnectionState::ClosedByClient,
        },
        Step::Stall => {
            // The read ends when the client disconnects.
            let mut byte = [0];
            let _ = stream.read(&mut byte).await;
            ConnectionState::ClosedByClient
        }
        Step::Until(mut gate) => match gate.wait_for(|open| *open).await {
            Ok(_) => ConnectionState::Open,
            Err(_) => ConnectionState::ClosedByServer,
        },
        Step::Drip(bytes, pause) => {
            let mut byte = [0];
            loop {
                if stream.write_all(&bytes).await.is_err() {
                    return ConnectionState::ClosedByClient;
                }
                if tokio::time::timeout(pause, stream.read(&mut byte)).await.is_ok() {
                    return ConnectionState::ClosedByClient;
                }
            }
        }
        Step::Pause(pause) => {
            let mut byte = [0];
            match tokio::time::timeout(pause, stream.read(&mut byte)).await {
                Ok(_) => ConnectionState::ClosedByClient,
                Err(_) => ConnectionState::Open,
            }
        }
        Step::Reset => {
            let _ = stream.set_zero_linger();
            ConnectionState::ClosedByServer
        }
        Step::Close => {
            let _ = stream.shutdown().await;
            ConnectionState::ClosedByServer
        }
    }
}

/// Reads the next request of a connection; `buffer` holds bytes already read. Returns `None` at the end of the
/// connection.
pub async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<ReceivedRequest> {
    let head_end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned))
        .and_then(|value| value.trim().parse::<usize>().ok())
        .unwrap_or(0);
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let next_request = buffer.split_off(head_end + length);
    let body = buffer.split_off(head_end);
    *buffer = next_request;
    Some(ReceivedRequest { head, body })
}
