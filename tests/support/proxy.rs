//! A reverse proxy without affinity: round robin over the processes that answer `/readyz` with 200.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Interval of the checks of `/readyz`.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

type ProxyBody = Either<Incoming, Full<Bytes>>;

/// The proxy; stops when dropped. Only attempts to connect are repeated, at the next process.
pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<ProxyState>,
    tasks: JoinSet<()>,
}

struct ProxyState {
    processes: Vec<Backend>,
    next: AtomicUsize,
    responses: AtomicUsize,
    /// Requests that were answered 5xx, with the status.
    server_errors: Mutex<Vec<String>>,
}

struct Backend {
    address: SocketAddr,
    is_ready: AtomicBool,
}

impl Proxy {
    /// Starts a proxy of processes, none of which is ready before its first check.
    pub async fn start(processes: impl IntoIterator<Item = SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let backend = |address| Backend { address, is_ready: AtomicBool::new(false) };
        let state = Arc::new(ProxyState {
            processes: processes.into_iter().map(backend).collect(),
            next: AtomicUsize::new(0),
            responses: AtomicUsize::new(0),
            server_errors: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for position in 0..state.processes.len() {
            tasks.spawn(check_repeatedly(state.clone(), position));
        }
        tasks.spawn(accept(listener, state.clone()));
        Self { address, state, tasks }
    }

    /// Returns true if the process is in use.
    pub fn is_ready(&self, position: usize) -> bool {
        self.state.processes[position].is_ready.load(Ordering::Relaxed)
    }

    /// Returns the number of responses.
    pub fn responses(&self) -> usize {
        self.state.responses.load(Ordering::Relaxed)
    }

    /// Returns the requests that were answered 5xx, each with its status.
    pub fn server_errors(&self) -> Vec<String> {
        self.state.server_errors.lock().expect("unpoisoned").clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.abort_all();
    }
}

async fn check_repeatedly(state: Arc<ProxyState>, position: usize) {
    let process = &state.processes[position];
    loop {
        let request = Request::get("/readyz").header("host", "proxy").body(Full::default());
        let checked = match connect(process.address).await {
            Some(mut sender) => sender.send_request(request.expect("a request")).await.ok(),
            None => None,
        };
        let is_ready = checked.is_some_and(|response| response.status() == StatusCode::OK);
        process.is_ready.store(is_ready, Ordering::Relaxed);
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

async fn accept(listener: TcpListener, state: Arc<ProxyState>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        // With Nagle's algorithm, each event waits until the client has acknowledged the one before, up to 40 ms.
        let _ = stream.set_nodelay(true);
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| forward(state.clone(), request));
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client that leaves, or a process that cuts its response, ends the connection.
            let _ = served.await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(
    state: Arc<ProxyState>,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Infallible> {
    let request_line = format!("{} {}", request.method(), request.uri());
    let response = match try_forward(&state, request).await {
        Ok(response) => response.map(Either::Left),
        Err(reason) => {
            let body = Either::Right(Full::from(reason));
            Response::builder().status(StatusCode::BAD_GATEWAY).body(body).expect("a response")
        }
    };
    state.responses.fetch_add(1, Ordering::Relaxed);
    if response.status().is_server_error() {
        let mut errors = state.server_errors.lock().expect("unpoisoned");
        errors.push(format!("{request_line}: {}", response.status()));
    }
    Ok(response)
}

async fn try_forward(
    state: &ProxyState,
    request: Request<Incoming>,
) -> Result<Response<Incoming>, &'static str> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| "the request is cut short")?.to_bytes();
    head.headers.insert("connection", HeaderValue::from_static("close"));
    // Each process is tried twice: one that is replaced may have become ready.
    for _ in 0..2 * state.processes.len() {
        let turn = state.next.fetch_add(1, Ordering::Relaxed);
        let process = &state.processes[turn % state.processes.len()];
        if !process.is_ready.load(Ordering::Relaxed) {
            continue;
        }
        let Some(mut sender) = connect(process.address).await else {
            process.is_ready.store(false, Ordering::Relaxed);
            continue;
        };
        let request = Request::from_parts(head, Full::new(body));
        return sender.send_request(request).await.map_err(|_| "the process closed the connection");
    }
    Err("no process is ready")
}

async fn connect(address: SocketAddr) -> Option<hyper::client::conn::http1::SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await.ok()?;
    let _ = stream.set_nodelay(true);
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(async move { drop(connection.await) });
    Some(sender)
}
