//! Tests of the client against hand-written HTTP servers on loopback.

mod names;

use std::error::Error;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::error::AgentErrorKind;
use agent_core::secret::Secret;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use http::header;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

/// Timeout for events that must happen.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves one connection with `script`; returns the server's URL, and a handle for the script's result.
async fn serve<F, T>(script: impl FnOnce(TcpStream) -> F + Send + 'static) -> (Url, JoinHandle<T>)
where
    F: Future<Output = T> + Send,
    T: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/path?token=s3cret", listener.local_addr().unwrap())).unwrap();
    let served = tokio::spawn(async move { script(listener.accept().await.unwrap().0).await });
    (url, served)
}

/// Answers one request with `answer` and keeps the connection until the client closes it.
async fn serve_answer(answer: &'static str) -> Url {
    let script = async move |mut stream: TcpStream| {
        read_request(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        closed(stream).await;
    };
    serve(script).await.0
}

/// Reads a request with its body, if it has a `Content-Length`.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = String::new();
    let is_complete = |request: &str| {
        let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        body.len() >= length.map_or(0, |length| length.parse().unwrap())
    };
    while !is_complete(&request) {
        let mut buffer = [0; 1024];
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the request ended after {request:?}");
        request.push_str(str::from_utf8(&buffer[..read]).unwrap());
    }
    request
}

/// Waits until the remote side closes or resets the connection.
async fn closed(mut stream: TcpStream) {
    while let Ok(1..) = stream.read(&mut [0; 1024]).await {}
}

fn outbound(allow: &str) -> OutboundClient {
    OutboundClient::new(OutboundConfig { allow: allow.parse().unwrap(), ..OutboundConfig::default() })
        .unwrap()
}

async fn send(url: &Url) -> Result<OutboundResponse, AgentError> {
    outbound("").post(url, UrlTrust::Operator)?.send().await
}

async fn failure_kind(url: &Url) -> AgentErrorKind {
    send(url).await.expect_err("the request must fail").kind()
}

async fn text(response: OutboundResponse) -> String {
    let body = response.read_limited(1024, TEST_TIMEOUT).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn sends_headers_and_a_body_in_pieces() {
    let (url, served) = serve(async |mut stream: TcpStream| {
        let request = read_request(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 201 Created\r\nx-answer: yes\r\ncontent-length: 2\r\n\r\nok")
            .await
            .unwrap();
        request
    })
    .await;
    let pieces = ["{\"a\":", "", "1", "}"].map(|piece| Bytes::from_static(piece.as_bytes())).to_vec();
    let request = outbound("").post(&url, UrlTrust::Operator).unwrap();
    let request = request
        .header(header::CONTENT_TYPE, "application/json".parse().unwrap())
        .bearer(&Secret::new("sk-1"))
        .unwrap()
        .secret_header("X-Api-Key", &Secret::new("key-2"))
        .unwrap()
        .body(pieces);
    assert_eq!(format!("{request:?}"), "OutboundRequest { method: POST, .. }");
    let response = request.send().await.unwrap();
    assert_eq!((response.status.as_u16(), &response.headers["x-answer"]), (201, &"yes".parse().unwrap()));
    assert_eq!(text(response).await, "ok");
    let request = served.await.unwrap();
    let agent = format!("user-agent: agentd/{}", env!("CARGO_PKG_VERSION"));
    for line in [
        "POST /path?token=s3cret HTTP/1.1",
        "content-type: application/json",
        "authorization: Bearer sk-1",
        "x-api-key: key-2",
        "content-length: 7",
        &agent,
    ] {
        assert!(request.lines().any(|l| l == line), "{line} in {request}");
    }
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
    assert!(!request.contains("transfer-encoding"), "{request}");
}

#[tokio::test]
async fn refuses_headers_that_are_not_the_callers_to_set() {
    let url = Url::parse("http://example.com/").unwrap();
    let cases = [
        ("Host", "x"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("connection", "close"),
        ("two words", "x"),
        ("", "x"),
        ("x-key", "line\r\nbreak"),
    ];
    for (name, value) in cases {
        let request = outbound("").post(&url, UrlTrust::Operator).unwrap();
        let failure = request.secret_header(name, &Secret::new(value)).unwrap_err();
        assert_eq!(failure.kind(), AgentErrorKind::InvalidRequest, "{name}");
    }
    let request = outbound("").post(&url, UrlTrust::Operator).unwrap();
    let failure = request.bearer(&Secret::new("s3cret\n")).unwrap_err();
    assert!(!format!("{failure} {failure:?}").contains("s3cret"));
}

#[tokio::test]
async fn follows_no_redirect() {
    let elsewhere = serve_answer("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let (url, _) = serve(async move |mut stream: TcpStream| {
        read_request(&mut stream).await;
        let answer = format!("HTTP/1.1 307 T\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        closed(stream).await;
    })
    .await;
    let failure = send(&url).await.unwrap_err();
    assert_eq!(failure.kind(), AgentErrorKind::Failed);
    assert_eq!(
        failure.to_string(),
        "the upstream service returned a redirect, which is not followed (HTTP 307)"
    );
}

#[tokio::test]
async fn hands_other_statuses_to_the_caller() {
    let url = serve_answer("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nslow").await;
    let response = send(&url).await.unwrap();
    let failure = status_failure(response.status, &response.headers);
    assert_eq!(failure.kind(), AgentErrorKind::RateLimited);
    assert_eq!(failure.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(text(response).await, "slow");
}

#[tokio::test]
async fn supplied_addresses_reach_no_loopback_unless_listed() {
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let cases = [
        ("127.0.0.1", "", false),
        ("127.0.0.1", "127.0.0.1:1, localhost", false),
        ("127.0.0.1", "127.0.0.0/8", true),
        ("127.0.0.1", "127.0.0.1:PORT", true),
        // These are names, so that the resolver decides.
        ("localhost", "", false),
        ("localhost", "10.0.0.0/8, localhost:1, 127.0.0.1:PORT", false),
        ("localhost", "127.0.0.0/8, ::1", true),
        ("localhost", "localhost", true),
        ("localhost", "localhost:PORT", true),
    ];
    for (host, allow, reached) in cases {
        let mut url = serve_answer(OK).await;
        let allow = allow.replace("PORT", &url.port().unwrap().to_string());
        url.set_host(Some(host)).unwrap();
        let sent = async { outbound(&allow).post(&url, UrlTrust::Supplied)?.send().await }.await;
        match sent {
            Ok(response) => {
                assert_eq!((reached, text(response).await.as_str()), (true, "ok"), "{host} {allow}")
            }
            Err(failure) => {
                assert_eq!(
                    (reached, failure.kind()),
                    (false, AgentErrorKind::Blocked),
                    "{host} {allow} {failure:?}"
                );
                assert!(failure.source().unwrap().is::<AddressError>(), "{host}");
            }
        }
    }
}

#[tokio::test]
async fn keeps_connections_for_the_next_request() {
    let (url, served) = serve(async |mut stream: TcpStream| {
        for answer in ["one", "two"] {
            read_request(&mut stream).await;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{answer}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let outbound = outbound("");
    for expected in ["one", "two"] {
        let response = outbound.post(&url, UrlTrust::Operator).unwrap().send().await.unwrap();
        assert_eq!(text(response).await, expected);
    }
    served.await.unwrap();
}

#[tokio::test]
async fn missing_answers_are_classified() {
    let (url, _) = serve(async |mut stream: TcpStream| {
        read_request(&mut stream).await;
    })
    .await;
    assert_eq!(failure_kind(&url).await, AgentErrorKind::Unreachable, "closed without an answer");

    let vacant = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = Url::parse(&format!("http://{vacant}/")).unwrap();
    assert_eq!(failure_kind(&url).await, AgentErrorKind::Unreachable, "refused");

    let url = Url::parse("http://no-such-host.invalid/").unwrap();
    assert_eq!(failure_kind(&url).await, AgentErrorKind::Unreachable, "unresolvable");

    let url = serve_answer("220 mail.example ESMTP\r\n\r\n").await;
    assert_eq!(failure_kind(&url).await, AgentErrorKind::Failed, "not HTTP");

    let (mut url, _) = serve(async |mut stream: TcpStream| {
        let _hello = stream.read(&mut [0; 1024]).await;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    })
    .await;
    url.set_scheme("https").unwrap();
    assert_eq!(failure_kind(&url).await, AgentErrorKind::Unreachable, "no TLS");
}

#[tokio::test]
async fn speaks_tls_to_the_authorities_it_trusts() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let authority = certified.cert.der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![authority.clone()], key)
        .unwrap();
    let server = Arc::new(server);
    for (extra_roots, trusted) in [(vec![authority], true), (vec![], false)] {
        let server = server.clone();
        let (mut url, _) = serve(async move |stream: TcpStream| {
            tokio::task::spawn_blocking(move || answer_by_tls(stream, server)).await.unwrap()
        })
        .await;
        url.set_scheme("https").unwrap();
        url.set_host(Some("localhost")).unwrap();
        let outbound =
            OutboundClient::new(OutboundConfig { extra_roots, ..OutboundConfig::default() }).unwrap();
        match outbound.get(&url, UrlTrust::Operator).unwrap().send().await {
            Ok(response) => assert_eq!((trusted, text(response).await.as_str()), (true, "ok")),
            Err(failure) => assert_eq!((trusted, failure.kind()), (false, AgentErrorKind::Unreachable)),
        }
    }
}

/// Answers one request; a handshake that the client aborts is not an error of the server.
fn answer_by_tls(stream: TcpStream, config: Arc<rustls::ServerConfig>) -> std::io::Result<()> {
    use std::io::{Read, Write};
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    let connection = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut tls = rustls::StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tls.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    tls.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
    tls.flush()
}

#[tokio::test]
async fn header_and_connect_timeouts_are_applied() {
    let short = Duration::from_millis(50);
    let (arrived, has_arrived) = oneshot::channel();
    let (url, served) = serve(async move |mut stream: TcpStream| {
        read_request(&mut stream).await;
        arrived.send(()).unwrap();
        closed(stream).await;
    })
    .await;
    // Enough for the request to arrive on a loaded machine; the rest of the time passes at once.
    let request = outbound("").post(&url, UrlTrust::Operator).unwrap().header_timeout(TEST_TIMEOUT);
    let sending = tokio::spawn(request.send());
    has_arrived.await.unwrap();
    tokio::time::pause();
    let failure = sending.await.unwrap().unwrap_err();
    tokio::time::resume();
    assert_eq!((failure.kind(), was_sent(&failure)), (AgentErrorKind::Timeout, true));
    tokio::time::timeout(TEST_TIMEOUT, served).await.expect("the connection is closed").unwrap();

    let (mut url, _) = serve(closed).await;
    url.set_scheme("https").unwrap();
    let config = OutboundConfig { connect_timeout: short, ..OutboundConfig::default() };
    let request = OutboundClient::new(config).unwrap().post(&url, UrlTrust::Operator).unwrap();
    let sent = tokio::time::timeout(TEST_TIMEOUT, request.send()).await.unwrap();
    assert_eq!(sent.unwrap_err().kind(), AgentErrorKind::Timeout, "a handshake that never comes");

    // Before the head can come, the connection must be there.
    let (mut url, _) = serve(closed).await;
    url.set_scheme("https").unwrap();
    let request = outbound("").post(&url, UrlTrust::Operator).unwrap().header_timeout(short);
    let sent = tokio::time::timeout(TEST_TIMEOUT, request.send()).await.unwrap();
    let failure = sent.unwrap_err();
    assert_eq!((failure.kind(), was_sent(&failure)), (AgentErrorKind::Timeout, false));
}

#[tokio::test]
async fn broken_bodies_are_classified() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhead";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhead\r\n";
    let cases = [
        (LENGTH, "", false, AgentErrorKind::Truncated),
        (CHUNKED, "", false, AgentErrorKind::Truncated),
        (CHUNKED, "10\r\nhalf", false, AgentErrorKind::Truncated),
        (CHUNKED, "no number\r\n", false, AgentErrorKind::Failed),
        (LENGTH, "", true, AgentErrorKind::Failed),
        (CHUNKED, "", true, AgentErrorKind::Failed),
    ];
    for (head, tail, reset, expected) in cases {
        // The server resets only after the reader has read, because a reset discards unread data.
        let (read, was_read) = oneshot::channel::<()>();
        let (url, served) = serve(async move |mut stream: TcpStream| {
            read_request(&mut stream).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            was_read.await.unwrap();
            stream.write_all(tail.as_bytes()).await.unwrap();
            if reset {
                stream.set_zero_linger().unwrap();
            }
        })
        .await;
        let mut body = send(&url).await.unwrap().into_stream();
        assert_eq!(body.next().await.unwrap().unwrap(), "head");
        read.send(()).unwrap();
        served.await.unwrap();
        let failure = loop {
            match body.next().await.expect("the stream tells of the break") {
                Ok(chunk) => assert_eq!(chunk, "half"),
                Err(failure) => break failure,
            }
        };
        assert_eq!(failure.kind(), expected, "{head:?} {tail:?} {reset} {failure:?}");
        assert!(body.next().await.is_none(), "the failure is the last item");
    }
}

#[tokio::test]
async fn received_chunks_are_read_without_waiting() {
    let url = serve_answer(concat!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n4\r\nfour\r\n0\r\n\r\n"
    ))
    .await;
    let mut body = send(&url).await.unwrap().into_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), "one");
    for chunk in ["two", "three", "four"] {
        let read = body.next().now_or_never().expect("it has arrived");
        assert_eq!(read.unwrap().unwrap(), chunk);
    }
    assert!(body.next().now_or_never().expect("the end has arrived").is_none());
}

#[tokio::test]
async fn an_idle_connection_is_dropped_before_the_servers_timeout() {
    for (announced, connections) in [("timeout=1", 2), ("timeout=0", 2), ("timeout=60", 1), ("max=9", 1)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = accepted.clone();
        tokio::spawn(async move {
            loop {
                let mut stream = listener.accept().await.unwrap().0;
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    loop {
                        read_request(&mut stream).await;
                        let answer = format!("HTTP/1.1 204 No Content\r\nkeep-alive: {announced}\r\n\r\n");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        let outbound = outbound("");
        for _ in 0..2 {
            outbound.post(&url, UrlTrust::Operator).unwrap().send().await.unwrap();
        }
        assert_eq!(accepted.load(Ordering::Relaxed), connections, "{announced}");
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let (closed, was_closed) = oneshot::channel();
    tokio::spawn(async move {
        let mut closed = Some(closed);
        for answer in ["one", "two"] {
            let mut stream = listener.accept().await.unwrap().0;
            read_request(&mut stream).await;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{answer}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            drop(stream);
            closed.take().map(|closed| closed.send(()));
        }
    });
    let outbound = outbound("");
    let first = outbound.post(&url, UrlTrust::Operator).unwrap().send().await.unwrap();
    assert_eq!(text(first).await, "one");
    was_closed.await.unwrap();
    let request = outbound.post(&url, UrlTrust::Operator).unwrap().body(Bytes::from_static(b"again"));
    assert_eq!(text(request.send().await.unwrap()).await, "two");
}

#[tokio::test]
async fn dropping_closes_the_connection() {
    let (url, served) = serve(async |mut stream: TcpStream| {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n").await.unwrap();
        closed(stream).await;
    })
    .await;
    let outbound = outbound("");
    let mut body = outbound.post(&url, UrlTrust::Operator).unwrap().send().await.unwrap().into_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), "x");
    assert!(!served.is_finished());
    drop(body);
    tokio::time::timeout(TEST_TIMEOUT, served).await.expect("the connection is closed").unwrap();

    let (arrived, has_arrived) = oneshot::channel();
    let (url, served) = serve(async move |mut stream: TcpStream| {
        read_request(&mut stream).await;
        arrived.send(()).unwrap();
        closed(stream).await;
    })
    .await;
    let sending = tokio::spawn(outbound.post(&url, UrlTrust::Operator).unwrap().send());
    has_arrived.await.unwrap();
    sending.abort();
    tokio::time::timeout(TEST_TIMEOUT, served).await.expect("the connection is closed").unwrap();
}

#[tokio::test]
async fn reads_no_more_than_the_limit() {
    let cases = [
        ("content-length: 4\r\n\r\nfour", 4, Ok("four")),
        ("transfer-encoding: chunked\r\n\r\n2\r\nfo\r\n2\r\nur\r\n0\r\n\r\n", 4, Ok("four")),
        ("transfer-encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\ntrailer: x\r\n\r\n", 9, Ok("four")),
        ("content-length: 0\r\n\r\n", 0, Ok("")),
        // Refused by its `Content-Length`: no body is sent.
        ("content-length: 5\r\n\r\n", 4, Err(AgentErrorKind::OutputTooLarge)),
        ("transfer-encoding: chunked\r\n\r\n4\r\nfour\r\n1\r\n!\r\n", 4, Err(AgentErrorKind::OutputTooLarge)),
        ("content-length: 5\r\n\r\nfour", 5, Err(AgentErrorKind::Timeout)),
    ];
    for (answer, limit, expected) in cases {
        let (url, _) = serve(async move |mut stream: TcpStream| {
            read_request(&mut stream).await;
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{answer}").as_bytes()).await.unwrap();
            closed(stream).await;
        })
        .await;
        let patience =
            if expected == Err(AgentErrorKind::Timeout) { Duration::from_millis(50) } else { TEST_TIMEOUT };
        let read = send(&url).await.unwrap().read_limited(limit, patience).await;
        assert_eq!(read.map_err(|failure| failure.kind()), expected.map(Bytes::from), "{answer:?}");
    }
}

#[tokio::test]
async fn failures_show_no_url_and_no_answer() {
    let (refused, _) = serve(async |_| ()).await;
    let reset = serve_answer("s3cret of the other side\r\n\r\n").await;
    for url in [refused, reset] {
        let failure = send(&url).await.unwrap_err();
        let mut shown = format!("{failure} {failure:?}");
        let mut cause = failure.source();
        while let Some(error) = cause {
            shown.push_str(&format!(" {error} {error:?}"));
            cause = error.source();
        }
        assert!(!shown.contains("s3cret") && !shown.contains("/path"), "{shown}");
    }
}

/// The environment of this process cannot be changed safely while tests run, so the test spawns itself with proxies in
/// its environment.
#[tokio::test]
async fn takes_no_proxy_from_the_environment() {
    const TARGET: &str = "AGENT_HTTP_TEST_TARGET";
    if let Ok(target) = std::env::var(TARGET) {
        let response = send(&Url::parse(&target).unwrap()).await.unwrap();
        assert_eq!(text(response).await, "direct");
        return;
    }
    let target = serve_answer("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\ndirect").await;
    let proxy = serve_answer("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nproxied").await;
    let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
    itself.args(["--exact", "outbound::tests::takes_no_proxy_from_the_environment"]);
    itself.env(TARGET, target.as_str()).env_remove("NO_PROXY").env_remove("no_proxy");
    for variable in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        itself.env(variable, proxy.origin().ascii_serialization());
    }
    let output = tokio::task::spawn_blocking(move || itself.output().unwrap()).await.unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
}
