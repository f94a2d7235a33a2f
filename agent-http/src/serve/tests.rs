//! Tests over real sockets with raw bytes, since client libraries do not send most of these requests.

mod accept_errors;
mod bodies;
mod request_log;
mod shutdown;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{EventStream, RunIds};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::accept::Accept;
use super::*;
use crate::body::{Body, ResponseBody, full, streaming};
use crate::connection_permit::ConnectionPermit;
use crate::error::HttpError;
use crate::request::{self, BodyLimits};
use crate::request_id::RequestId;
use crate::service::{HandlerResult, service_fn};
use crate::stream::{Framing, StreamLimits};

/// Test timeout: far longer than any step takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the default limits with timeouts that are longer than [`TEST_TIMEOUT`], so that they end no test.
fn patient_limits() -> ServeLimits {
    let patient = 10 * TEST_TIMEOUT;
    ServeLimits { head_read: patient, write_stall: patient, drain: patient, ..ServeLimits::default() }
}

/// Test server that shuts down on `stop`; its task is aborted with the test's runtime.
struct TestServer {
    address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl TestServer {
    async fn start<F, Fut>(limits: ServeLimits, handler: F) -> Self
    where
        F: Fn(Request<Body>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shutdown = Shutdown::default();
        let serving = serve(listener, service_fn(handler), limits, shutdown.clone());
        let task = tokio::spawn(async { serving.await.expect("serving") });
        Self { address, shutdown, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Sends `bytes` and returns everything that the server sends until it closes the connection.
    async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.expect("sent");
        read_to_end(&mut stream).await
    }

    fn stop(&self) {
        self.shutdown.begin();
    }

    async fn stop_and_end(self) {
        self.stop();
        self.ended().await;
    }

    async fn ended(self) {
        timeout(TEST_TIMEOUT, self.task).await.expect("the server ends").expect("it does not panic");
    }
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    timeout(TEST_TIMEOUT, stream.read_to_end(&mut read)).await.expect("the server closes").expect("readable");
    String::from_utf8(read).expect("text")
}

/// Reads until the input ends with `end`.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        while !read.ends_with(end.as_bytes()) {
            assert_ne!(stream.read_buf(&mut read).await.expect("readable"), 0, "closed before {end:?}");
        }
    };
    timeout(TEST_TIMEOUT, reading).await.unwrap_or_else(|_| panic!("{end:?} does not come"));
    String::from_utf8(read).expect("text")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn closing(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

async fn hello(_: Request<Body>) -> HandlerResult {
    Ok(Response::new(full("hello")))
}

/// Sends a message when it is dropped.
struct DropFlag(mpsc::UnboundedSender<()>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn drop_flag() -> (impl Fn() -> DropFlag + Clone + Send + Sync, mpsc::UnboundedReceiver<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (move || DropFlag(sender.clone()), receiver)
}

/// Starts a server whose bodies begin with `first` and do not end, and returns the flag of the dropped ones.
async fn with_endless_bodies(limits: ServeLimits) -> (TestServer, mpsc::UnboundedReceiver<()>) {
    let (flag, dropped) = drop_flag();
    let server = TestServer::start(limits, move |_| {
        let flag = flag();
        async move {
            let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]);
            let body = first.chain(stream::pending()).inspect(move |_| {
                let _ = &flag;
            });
            Ok(Response::new(streaming(body)))
        }
    })
    .await;
    (server, dropped)
}

async fn is_dropped(flag: &mut mpsc::UnboundedReceiver<()>) {
    timeout(TEST_TIMEOUT, flag.recv()).await.expect("it is dropped").expect("a flag");
}

#[tokio::test]
async fn an_exchange_carries_its_id_and_keeps_the_connection() {
    let server = TestServer::start(patient_limits(), |request| async move {
        assert!(request.extensions().get::<Peer>().is_some());
        let id = request.extensions().get::<RequestId>().expect("an id").as_str().to_owned();
        Ok(Response::new(full(id)))
    })
    .await;
    let mut stream = server.connect().await;
    for id in ["first", "second"] {
        let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {id}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let answer = read_until(&mut stream, &format!("\r\n\r\n{id}")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains(&format!("x-request-id: {id}\r\n")), "{answer}");
    }
}

#[tokio::test]
async fn heads_are_checked() {
    let long = "x".repeat(70 * 1024);
    let many = "X-A: b\r\n".repeat(200);
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(), 200),
        ("GET / HTTP/1.1\r\nHost: a:80\r\nConnection: close\r\n\r\n".into(), 200),
        ("GET / HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n".into(), 200),
        ("GET / HTTP/1.0\r\n\r\n".into(), 200),
        ("GET http://a/ HTTP/1.1\r\nHost: A:80\r\nConnection: close\r\n\r\n".into(), 200),
        ("GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".into(), 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: user@a\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a:port\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), 400),
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n".into(), 400),
        ("GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET http://a/ HTTP/1.1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\u{0}: b\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n".into(), 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(), 400),
        ("GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n".into(), 400),
        ("\u{16}\u{3}\u{1} hello\r\n\r\n".into(), 400),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 431),
    ];
    let server = TestServer::start(patient_limits(), hello).await;
    for (head, status) in cases {
        let answer = server.exchange(&head).await;
        let actual_status = answer.strip_prefix("HTTP/1.").and_then(|answer| answer.split(' ').nth(1));
        assert_eq!(actual_status, Some(status.to_string().as_str()), "{head:.80?}: {answer:?}");
    }
    assert_eq!(server.exchange("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, "", "HTTP/2 is not spoken");
}

#[tokio::test]
async fn a_refused_target_is_a_problem_with_the_request_id() {
    let server = TestServer::start(patient_limits(), hello).await;
    let answer = server.exchange("GET / HTTP/1.1\r\nX-Request-Id: req-9\r\n\r\n").await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    let problem: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(problem["code"], "INVALID_REQUEST");
    assert_eq!(problem["requestId"], "req-9");
    assert_eq!(problem["detail"], "Host is missing");
}

#[tokio::test]
async fn the_head_limit_is_a_setting() {
    let limits = ServeLimits { head_bytes: 200, ..patient_limits() };
    let server = TestServer::start(limits, hello).await;
    for (length, status) in [(100, 200), (200, 431)] {
        let padding = "x".repeat(length);
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: {padding}\r\n\r\n");
        let answer = server.exchange(head).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[tokio::test]
async fn silent_slow_and_idle_connections_are_closed() {
    // Long enough for the request that is answered, also on a loaded machine.
    let limits = ServeLimits { head_read: Duration::from_secs(2), ..patient_limits() };
    let server = TestServer::start(limits, hello).await;

    let (silent, half, answer) = tokio::join!(
        server.exchange(""),
        server.exchange("GET / HTTP/1.1\r\nHost: a\r\n"),
        server.exchange(get("/"))
    );
    assert_eq!((silent.as_str(), half.as_str()), ("", ""), "silent from the start, and half a head");
    assert!(answer.ends_with("hello"), "answered, then idle: {answer}");

    let mut trickling = server.connect().await;
    trickling.write_all(b"GET / HTTP/1.1\r\nX: ").await.expect("sent");
    let trickle = async {
        // Single bytes do not reset the timeout. The server's close makes a write fail.
        while trickling.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, trickle).await.expect("a trickling head is cut");
}

#[tokio::test]
async fn answers_say_how_long_an_idle_connection_is_kept() {
    let server = TestServer::start(ServeLimits::default(), hello).await;
    let mut stream = server.connect().await;
    stream.write_all(get("/").as_bytes()).await.expect("sent");
    let kept = read_until(&mut stream, "hello").await;
    assert!(kept.contains("\r\nkeep-alive: timeout=10\r\n"), "{kept}");
    let ended = server.exchange(closing("/")).await;
    assert!(ended.ends_with("hello"), "{ended}");
    // hyper announces a closing connection itself, and that takes precedence.
    assert!(ended.contains("\r\nconnection: close\r\n"), "{ended}");
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_a_slot() {
    let limits = ServeLimits { connections: 1, ..patient_limits() };
    let (entered, mut entries) = mpsc::unbounded_channel();
    let server = TestServer::start(limits, move |request| {
        let entered = entered.clone();
        async move {
            if request.uri().path() == "/wait" {
                entered.send(()).expect("the test waits");
                std::future::pending::<()>().await;
            }
            hello(request).await
        }
    })
    .await;
    let mut idle = server.connect().await;
    idle.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut idle, "hello").await;
    let mut first = server.connect().await;
    first.write_all(get("/wait").as_bytes()).await.expect("sent");
    assert_eq!(read_to_end(&mut idle).await, "", "it makes room");
    timeout(TEST_TIMEOUT, entries.recv()).await.expect("the handler runs");

    let mut second = server.connect().await;
    second.write_all(closing("/").as_bytes()).await.expect("sent");
    // Connections are accepted in their order, and a probe needs no slot. Its response comes after the second connection
    // would have been served.
    assert!(server.exchange(closing("/livez")).await.ends_with("hello"));
    let early = second.try_read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(early, Err(io::ErrorKind::WouldBlock), "the second connection is not served beside the first");
    drop(first);
    assert!(read_to_end(&mut second).await.ends_with("hello"));
}

#[tokio::test]
async fn an_unread_response_makes_room_unless_its_sender_is_authenticated() {
    for is_authenticated in [false, true] {
        let limits = ServeLimits { connections: 1, ..ServeLimits::default() };
        let server = TestServer::start(limits, move |request| async move {
            if request.uri().path() != "/large" {
                return hello(request).await;
            }
            let permit = request.extensions().get::<ConnectionPermit>().expect("the connection's");
            permit.begin_request();
            if is_authenticated {
                permit.mark_authenticated();
            }
            // More than the kernel's buffers have.
            Ok(Response::new(full(vec![b'x'; 32 << 20])))
        })
        .await;
        let mut unread = server.connect().await;
        unread.write_all(get("/large").as_bytes()).await.expect("sent");
        unread.read_u8().await.expect("it begins");
        let mut next = server.connect().await;
        next.write_all(closing("/").as_bytes()).await.expect("sent");
        if is_authenticated {
            let early = timeout(Duration::from_millis(100), next.readable()).await;
            assert!(early.is_err(), "the response is not cut");
            drop(unread);
        }
        assert!(read_to_end(&mut next).await.ends_with("hello"));
    }
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_server_continues() {
    let server = TestServer::start(patient_limits(), |request| async move {
        match request.uri().path() {
            "/panic" => panic!("a secret"),
            "/body" => Ok(Response::new(streaming(stream::poll_fn(
                |_| -> std::task::Poll<Option<Result<Bytes, Infallible>>> { panic!("in the body") },
            )))),
            _ => hello(request).await,
        }
    })
    .await;
    let mut stream = server.connect().await;
    stream.write_all(get("/panic").as_bytes()).await.expect("sent");
    let answer = read_until(&mut stream, "}").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.contains("\"code\":\"INTERNAL\""), "{answer}");
    assert!(!answer.contains("secret"), "{answer}");
    stream.write_all(get("/").as_bytes()).await.expect("the connection stands");
    read_until(&mut stream, "hello").await;

    server.exchange(get("/body")).await;
    assert!(server.exchange(closing("/")).await.ends_with("hello"));
}

/// Starts a server whose handlers never return, with a client whose request is being handled.
async fn with_a_running_handler(limits: ServeLimits) -> (TestServer, TcpStream, mpsc::UnboundedReceiver<()>) {
    let (flag, dropped) = drop_flag();
    let (entered, mut entries) = mpsc::unbounded_channel();
    let server = TestServer::start(limits, move |_| {
        let (flag, entered) = (flag(), entered.clone());
        async move {
            entered.send(()).expect("the test waits");
            std::future::pending::<()>().await;
            drop(flag);
            hello(Request::default()).await
        }
    })
    .await;
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    timeout(TEST_TIMEOUT, entries.recv()).await.expect("the handler runs");
    (server, client, dropped)
}
