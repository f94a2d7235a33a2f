//! Tests over real sockets with raw bytes, since client libraries do not send most of these requests.

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
use crate::error::HttpError;
use crate::request::{self, BodyLimits};
use crate::request_id::RequestId;
use crate::service::{HandlerResult, service_fn};
use crate::stream::{Framing, StreamLimits};

/// Test timeout: far longer than any step takes, and shorter than the default timeouts, which must not end a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(8);

/// `errno` of a process without free file descriptors.
const EMFILE: i32 = 24;

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

async fn is_dropped(flag: &mut mpsc::UnboundedReceiver<()>) {
    timeout(TEST_TIMEOUT, flag.recv()).await.expect("it is dropped").expect("a flag");
}

#[tokio::test]
async fn an_exchange_carries_its_id_and_keeps_the_connection() {
    let server = TestServer::start(ServeLimits::default(), |request| async move {
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
    let server = TestServer::start(ServeLimits::default(), hello).await;
    for (head, status) in cases {
        let answer = server.exchange(&head).await;
        let actual_status = answer.strip_prefix("HTTP/1.").and_then(|answer| answer.split(' ').nth(1));
        assert_eq!(actual_status, Some(status.to_string().as_str()), "{head:.80?}: {answer:?}");
    }
    assert_eq!(server.exchange("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, "", "HTTP/2 is not spoken");
}

#[tokio::test]
async fn a_refused_target_is_a_problem_with_the_request_id() {
    let server = TestServer::start(ServeLimits::default(), hello).await;
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
    let limits = ServeLimits { head_bytes: 200, ..ServeLimits::default() };
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
    let limits = ServeLimits { head_read: Duration::from_millis(500), ..ServeLimits::default() };
    let server = TestServer::start(limits, hello).await;

    assert_eq!(server.exchange("").await, "", "silent from the start");
    assert_eq!(server.exchange("GET / HTTP/1.1\r\nHost: a\r\n").await, "", "half a head");
    let answer = server.exchange(get("/")).await;
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
    let limits = ServeLimits { connections: 1, ..ServeLimits::default() };
    let server = TestServer::start(limits, hello).await;
    let mut first = server.connect().await;
    first.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut first, "hello").await;

    let mut second = server.connect().await;
    second.write_all(closing("/").as_bytes()).await.expect("sent");
    let early = timeout(Duration::from_millis(100), second.readable()).await;
    assert!(early.is_err(), "the second connection is not served beside the first");
    drop(first);
    assert!(read_to_end(&mut second).await.ends_with("hello"));
}

#[tokio::test]
async fn a_request_that_waits_for_a_slot_at_shutdown_is_answered() {
    let limits = ServeLimits { connections: 1, ..ServeLimits::default() };
    let server = TestServer::start(limits, |request: Request<Body>| async move {
        if request.uri().path() == "/held" {
            std::future::pending::<()>().await;
        }
        hello(request).await
    })
    .await;
    let mut held = server.connect().await;
    held.write_all(closing("/held").as_bytes()).await.expect("sent");
    let mut waiting = server.connect().await;
    waiting.write_all(closing("/").as_bytes()).await.expect("sent");
    // Connections are accepted in order: once a probe is answered, the one before it waits.
    assert!(server.exchange(get("/livez")).await.ends_with("hello"));
    server.stop();
    let answer = read_to_end(&mut waiting).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    server.shutdown.end();
    assert!(read_to_end(&mut held).await.starts_with("HTTP/1.1 503 "));
    server.ended().await;
}

#[tokio::test]
async fn a_client_that_goes_drops_the_handler() {
    // A pipelined request, an unread body and a half-closed connection each keep hyper from reading the socket.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let cases = [get("/"), get("/") + &get("/"), get("/") + "\r\n", format!("{post}hello"), post.to_owned()];
    for (case, half) in cases.iter().flat_map(|case| [(case, false), (case, true)]) {
        let (flag, mut dropped) = drop_flag();
        let (entered, mut entries) = mpsc::unbounded_channel();
        let server = TestServer::start(ServeLimits::default(), move |request| {
            let (flag, entered) = (flag(), entered.clone());
            async move {
                drop(request);
                entered.send(()).expect("the test waits");
                std::future::pending::<()>().await;
                drop(flag);
                hello(Request::default()).await
            }
        })
        .await;
        let mut client = server.connect().await;
        client.write_all(case.as_bytes()).await.expect("sent");
        timeout(TEST_TIMEOUT, entries.recv()).await.expect("the handler runs");
        assert!(dropped.try_recv().is_err(), "{case:?}: it waits");
        if half {
            client.shutdown().await.expect("half closed");
        } else {
            drop(client);
        }
        is_dropped(&mut dropped).await;
    }
}

#[tokio::test]
async fn a_client_that_goes_drops_the_response_body() {
    for pipelined in [false, true] {
        let (flag, mut dropped) = drop_flag();
        let server = TestServer::start(ServeLimits::default(), move |_| {
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
        let mut client = server.connect().await;
        client.write_all(get("/").repeat(1 + usize::from(pipelined)).as_bytes()).await.expect("sent");
        read_until(&mut client, "first\r\n").await;
        assert!(dropped.try_recv().is_err(), "it waits");
        drop(client);
        is_dropped(&mut dropped).await;
    }
}

fn endless(kept: impl Send + 'static) -> ResponseBody {
    let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
    streaming(stream::repeat_with(move || {
        let _ = &kept;
        Ok::<_, Infallible>(chunk.clone())
    }))
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let limits = ServeLimits { write_stall: Duration::from_millis(200), ..ServeLimits::default() };
    let (flag, mut dropped) = drop_flag();
    let server = TestServer::start(limits, move |_| {
        let flag = flag();
        async move { Ok(Response::new(endless(flag))) }
    })
    .await;
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    is_dropped(&mut dropped).await;
    // The connection was open until then: the client reads what the socket buffered, and then the close.
    let mut read = Vec::new();
    let _ = timeout(TEST_TIMEOUT, client.read_to_end(&mut read)).await.expect("the server closes");
    assert!(read.starts_with(b"HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_dropped() {
    let limits = ServeLimits { write_stall: Duration::from_millis(1500), ..ServeLimits::default() };
    let server = TestServer::start(limits, |_| async { Ok(Response::new(endless(()))) }).await;
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    let mut scrap = vec![0; 8 * 1024 * 1024];
    // Each pause is a sixth of the limit; together they are longer.
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        timeout(TEST_TIMEOUT, client.read_exact(&mut scrap))
            .await
            .expect("more comes")
            .expect("the connection stands");
    }
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_server_lives() {
    let server = TestServer::start(ServeLimits::default(), |request| async move {
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

#[tokio::test]
async fn a_failed_body_is_not_a_whole_one() {
    let (go, gate) = tokio::sync::watch::channel(false);
    let server = TestServer::start(ServeLimits::default(), move |_| {
        let mut gate = gate.clone();
        async move {
            let broken = stream::once(async move {
                gate.wait_for(|open| *open).await.expect("a gate");
                Err(io::Error::other("broken"))
            });
            let part = stream::iter([Ok(Bytes::from_static(b"part"))]);
            Ok(Response::new(streaming(Box::pin(part.chain(broken)))))
        }
    })
    .await;
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut client, "\r\n\r\n4\r\npart\r\n").await;
    go.send(true).expect("the body waits");
    assert_eq!(read_to_end(&mut client).await, "", "no last chunk");
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_still_sends() {
    let server = TestServer::start(ServeLimits::default(), |request| async move {
        let (head, body) = request.into_parts();
        let limits = BodyLimits { bytes: 1024, ..BodyLimits::default() };
        request::read_body(&head.headers, body, &limits).await?;
        hello(Request::default()).await
    })
    .await;
    for head in ["Content-Length: 8388608", "Transfer-Encoding: chunked"] {
        let mut client = server.connect().await;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n");
        client.write_all(head.as_bytes()).await.expect("sent");
        let chunk = ["800000\r\n", &"x".repeat(8 * 1024 * 1024)].concat();
        client.write_all(chunk.as_bytes()).await.expect("the whole body is taken");
        let answer = read_to_end(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_finishes_the_running() {
    let (entered, mut entries) = mpsc::unbounded_channel();
    let (go, gate) = tokio::sync::watch::channel(false);
    let server = TestServer::start(ServeLimits::default(), move |request| {
        let (entered, mut gate) = (entered.clone(), gate.clone());
        async move {
            if request.uri().path() == "/wait" {
                entered.send(()).expect("the test waits");
                gate.wait_for(|open| *open).await.expect("a gate");
            }
            hello(request).await
        }
    })
    .await;
    let mut silent = server.connect().await;
    let mut idle = server.connect().await;
    idle.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut idle, "hello").await;
    let mut running = server.connect().await;
    running.write_all(get("/wait").as_bytes()).await.expect("sent");
    timeout(TEST_TIMEOUT, entries.recv()).await.expect("the handler runs");

    server.stop();
    assert_eq!(read_to_end(&mut silent).await, "");
    assert_eq!(read_to_end(&mut idle).await, "");
    TcpStream::connect(server.address).await.expect_err("nothing is accepted any more");
    go.send(true).expect("the handler waits");
    let answer = read_to_end(&mut running).await;
    assert!(answer.ends_with("hello") && answer.contains("connection: close"), "{answer}");
    server.ended().await;
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

#[tokio::test]
async fn a_handler_that_outlives_the_drain_is_answered_by_a_problem() {
    let limits = ServeLimits { drain: Duration::from_millis(100), ..ServeLimits::default() };
    let (server, mut client, mut dropped) = with_a_running_handler(limits).await;
    server.stop();
    server.ended().await;
    assert!(dropped.try_recv().is_ok(), "the server does not end before its handlers");
    let answer = read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("connection: close"), "{answer}");
    assert!(answer.contains("\"code\":\"SERVER_SHUTTING_DOWN\""), "{answer}");
}

#[tokio::test]
async fn a_second_signal_ends_the_drain() {
    // The drain and the lame-duck time are longer than the test's timeout.
    let long = Duration::from_secs(600);
    let limits = ServeLimits { drain: long, lame_duck: long, ..ServeLimits::default() };
    let (server, mut client, mut dropped) = with_a_running_handler(limits).await;
    server.stop();
    server.shutdown.end();
    server.ended().await;
    assert!(dropped.try_recv().is_ok(), "the server does not end before its handlers");
    assert!(read_to_end(&mut client).await.starts_with("HTTP/1.1 503 "));
}

#[tokio::test]
async fn a_body_that_does_not_end_is_cut_after_the_drain() {
    let limits = ServeLimits { drain: Duration::ZERO, ..ServeLimits::default() };
    let (flag, mut dropped) = drop_flag();
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
    let mut client = server.connect().await;
    client.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut client, "first\r\n").await;
    server.stop();
    server.ended().await;
    assert!(dropped.try_recv().is_ok(), "the body is dropped");
    assert_eq!(read_to_end(&mut client).await, "", "no last chunk");
}

#[tokio::test]
async fn requests_are_served_in_the_lame_duck_time() {
    let limits = ServeLimits { lame_duck: Duration::from_secs(600), ..ServeLimits::default() };
    let server = TestServer::start(limits, hello).await;
    server.stop();
    assert!(server.exchange(closing("/")).await.ends_with("hello"), "a new connection");
    let mut kept = server.connect().await;
    kept.write_all(get("/").as_bytes()).await.expect("sent");
    read_until(&mut kept, "hello").await;
    server.shutdown.end();
    assert_eq!(read_to_end(&mut kept).await, "");
    server.ended().await;
}

#[tokio::test]
async fn dropping_the_server_drops_its_connections() {
    let (server, mut client, mut dropped) = with_a_running_handler(ServeLimits::default()).await;
    server.task.abort();
    is_dropped(&mut dropped).await;
    assert_eq!(read_to_end(&mut client).await, "");
}

/// Source whose accepts always fail.
struct BrokenListener(AtomicUsize);

impl Accept for std::sync::Arc<BrokenListener> {
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(EMFILE))
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_accept_do_not_make_a_busy_loop() {
    let source = std::sync::Arc::new(BrokenListener(AtomicUsize::new(0)));
    let shutdown = Shutdown::default();
    let serving =
        accept::run(source.clone(), service_fn(hello), ServeLimits::default(), None, shutdown.clone());
    let after_a_minute = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        shutdown.begin();
    };
    tokio::join!(serving, after_a_minute);
    let calls = source.0.load(Ordering::Relaxed);
    assert!((50..100).contains(&calls), "{calls} in a minute, which should be about one a second");
}

/// Source that fails once per stored error and then accepts.
struct Failing {
    errors: Mutex<Vec<io::Error>>,
    calls: AtomicUsize,
    listener: TcpListener,
}

impl Accept for std::sync::Arc<Failing> {
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let error = self.errors.lock().expect("not poisoned").pop();
        match error {
            Some(error) => Err(error),
            None => self.listener.accept().await,
        }
    }
}

#[tokio::test]
async fn errors_of_accept_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let errors = vec![
        io::Error::from_raw_os_error(EMFILE),
        io::ErrorKind::ConnectionAborted.into(),
        io::Error::from_raw_os_error(EMFILE),
    ];
    let source =
        std::sync::Arc::new(Failing { errors: Mutex::new(errors), calls: AtomicUsize::new(0), listener });
    let service = service_fn(hello);
    let serving = accept::run(source.clone(), service, ServeLimits::default(), None, Shutdown::default());
    let task = tokio::spawn(serving);
    let mut client = TcpStream::connect(address).await.expect("a connection");
    client.write_all(closing("/").as_bytes()).await.expect("sent");
    assert!(read_to_end(&mut client).await.ends_with("hello"));
    // One call for each error, one for the client, and one that waits.
    assert_eq!(source.calls.load(Ordering::Relaxed), 5);
    task.abort();
}

#[tokio::test]
async fn errors_pass_the_exit_under_the_requests_id() {
    let server = TestServer::start(ServeLimits::default(), |_| async { Err(HttpError::not_found()) }).await;
    let answer =
        server.exchange("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: r\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("\"requestId\":\"r\""), "{answer}");
}

/// Log output of the current thread, which in these tests is all of it.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let writer = move || log.clone();
        let format = tracing_subscriber::fmt().with_writer(writer).with_ansi(false);
        tracing::subscriber::set_default(format.with_max_level(tracing::Level::TRACE).finish())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("text")
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn each_exchange_has_a_line_in_the_log_and_no_query() {
    let log = Log::default();
    let _guard = log.start();
    let server = TestServer::start(ServeLimits::default(), |request| async move {
        match request.uri().path() {
            "/fault" => Err(HttpError::internal(io::Error::other("the cause"))),
            _ => hello(request).await,
        }
    })
    .await;
    for path in ["/whole?token=hunter2", "/fault"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: r1\r\nConnection: close\r\n\r\n");
        server.exchange(head).await;
    }
    let (cut, client, mut dropped) = with_a_running_handler(ServeLimits::default()).await;
    drop(client);
    is_dropped(&mut dropped).await;
    cut.stop_and_end().await;

    let text = log.text();
    for line in [
        "request{id=\"r1\"}: agent_http::serve::exchange: answered method=GET path=\"/whole\" status=200 complete=true",
        "request{id=\"r1\"}: agent_http::error: request failed code=\"INTERNAL\"",
        "cause=\"the cause\"",
        "answered method=GET path=\"/fault\" status=500 complete=true",
        "answered method=GET path=\"/\" complete=false",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn what_a_body_logs_while_it_is_made_stands_under_its_request() {
    let log = Log::default();
    let _guard = log.start();
    let server = TestServer::start(ServeLimits::default(), |request| async move {
        let late = stream::once(tokio::task::yield_now());
        if request.uri().path() == "/run" {
            let ids = RunIds { thread_id: "t".into(), run_id: "r".into() };
            let run = late.map(|()| Err(AgentError::new(AgentErrorKind::Failed, "no answer")));
            return crate::stream::run_response(
                Framing::Ndjson,
                EventStream::new(ids, run),
                None,
                &StreamLimits::default(),
            )
            .await;
        }
        let body = late.map(|()| {
            tracing::info!("a piece is made");
            Ok::<_, io::Error>(Bytes::from_static(b"piece"))
        });
        Ok(Response::new(streaming(body)))
    })
    .await;
    for path in ["run", "other"] {
        let head =
            format!("GET /{path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {path}\r\nConnection: close\r\n\r\n");
        server.exchange(head).await;
    }
    let text = log.text();
    for (id, message) in [("run", "run failed"), ("other", "a piece is made")] {
        let line = text.lines().find(|line| line.contains(message)).expect(message);
        assert!(line.contains(&format!("request{{id=\"{id}\"}}: ")), "{line}");
    }
}
