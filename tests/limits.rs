//! Connection limits and time-outs, and graceful shutdown.

mod bodies;
mod downloads;
mod shares;
#[cfg(target_os = "linux")]
mod slots;
mod unsent;

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::control::ControlledVendor;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::Vendor;
use crate::support::{
    self, TEST_TIMEOUT, client, exchange, parse_run, read_until, read_until_closed, text_of, workspace,
};

const CHAT: &str = "/api/agent/chat";

#[tokio::test]
async fn running_requests_may_finish_when_the_service_stops() {
    let vendor = ControlledVendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "held"), &[]).await;
    let mut response = app.chat(&json!({"agentId": "a1", "message": "Hello"})).await;
    let mut body = read_until(&mut response, "first").await;
    // On shutdown, a connection with a partial request head counts as active, an idle one does not.
    let mut idle = TcpStream::connect(app.address).await.expect("the application listens");
    idle.write_all(format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", app.address).as_bytes())
        .await
        .expect("it reads");
    let mut livez = [0; 12];
    idle.read_exact(&mut livez).await.expect("an answer");
    let mut begun = TcpStream::connect(app.address).await.expect("the application listens");
    begun.write_all(b"GET /readyz HTTP/1.1\r\n").await.expect("it reads");
    // Connections are accepted in order: once a later one is answered, the earlier request head has been read.
    exchange(
        app.address,
        format!("GET /livez HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", app.address),
    )
    .await;

    app.stop();
    assert!(
        read_until_closed(&mut idle).await.ends_with(r#"{"status":"ok"}"#),
        "an idle connection is closed"
    );
    let refused = async {
        while TcpStream::connect(app.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, refused).await.expect("new connections are refused");
    begun.write_all(format!("host: {}\r\n\r\n", app.address).as_bytes()).await.expect("it reads");
    let ready = read_until_closed(&mut begun).await;
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    assert!(ready.ends_with(r#"{"status":"draining"}"#), "{ready}");

    vendor.release();
    while let Some(chunk) = response.chunk().await.expect("the stream is not cut") {
        body.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
    }
    let events = parse_run(&body);
    assert_eq!(text_of(&events), "first last");
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    tokio::time::timeout(TEST_TIMEOUT, app.stopped()).await.expect("the application stops");
}

#[tokio::test]
async fn readiness_fails_before_the_listener_closes() {
    // Longer than the test: only the second signal ends it.
    let settings = [("LAME_DUCK_MS", "600000")];
    let app = server::app(&workspace("http://unused.example/v1", "m"), &settings).await;
    let runtime = server::runtime(&settings).await;
    for server in [app, runtime] {
        let get = async |path: &str| {
            // A new client opens a new connection.
            let response = server.request("GET", path).send().await.expect("it listens");
            (response.status().as_u16(), response.text().await.expect("a body"))
        };
        assert_eq!(get("/readyz").await, (200, r#"{"status":"ok"}"#.to_owned()));
        server.stop();
        assert_eq!(get("/readyz").await, (503, r#"{"status":"draining"}"#.to_owned()));
        assert_eq!(get("/livez").await, (200, r#"{"status":"ok"}"#.to_owned()));
        server.end();
        let address = server.address;
        tokio::time::timeout(TEST_TIMEOUT, server.stopped()).await.expect("a second signal ends it at once");
        TcpStream::connect(address).await.expect_err("nothing is accepted any more");
    }
}

#[tokio::test]
async fn silent_and_idle_connections_are_closed() {
    let settings = [("HEADER_TIMEOUT_MS", "1000")];
    let app = server::app(&workspace("http://unused.example/v1", "m"), &settings).await;
    let runtime = server::runtime(&settings).await;
    tokio::join!(
        // No bytes, part of a head, and a complete exchange followed by silence.
        assert_closed_by_timeout(&app, ""),
        assert_closed_by_timeout(&runtime, ""),
        assert_closed_by_timeout(&app, "GET /livez HTTP/1.1\r\nhost:"),
        assert_closed_by_timeout(&runtime, "GET /livez HTTP/1.1\r\nhost:"),
        assert_idle_connection_closed(&app),
        assert_idle_connection_closed(&runtime),
        assert_slow_head_times_out(&app),
        assert_slow_head_times_out(&runtime),
    );
}

async fn assert_closed_by_timeout(server: &Server, request: &str) {
    let answer = exchange(server.address, request).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{request:?}: {answer}");
}

async fn assert_idle_connection_closed(server: &Server) {
    let request = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let answer = exchange(server.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
}

/// Checks that a head sent in small pieces gets no more time than one that never arrives.
async fn assert_slow_head_times_out(server: &Server) {
    let mut slow = TcpStream::connect(server.address).await.expect("it listens");
    slow.write_all(b"GET /livez HTTP/1.1\r\n").await.expect("it reads");
    let (mut read, mut write) = slow.into_split();
    let drip = tokio::spawn(async move {
        while write.write_all(b"a: b\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(TEST_TIMEOUT, read.read_to_end(&mut answer)).await;
    // The connection may be reset, because the client's bytes are still in flight.
    let _ = closed.expect("a head that never ends is given up");
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", answer.escape_ascii());
    drip.abort();
}

#[tokio::test]
async fn slow_bodies_without_a_credential_leave_room_for_others() {
    let vendor = Vendor::start().await;
    // An address has a sixteenth of the connections.
    let app = server::app(&workspace(&vendor.base_url(), "m"), &[("MAX_CONNECTIONS", "48")]).await;
    let head = |path: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n",
            app.address
        )
    };
    let mut held = Vec::new();
    let refused = support::poll_until(
        async || {
            let mut stalled = TcpStream::connect(app.address).await.expect("it listens");
            stalled.write_all(head(CHAT, 100).as_bytes()).await.expect("it reads");
            held.push(stalled);
            exchange(app.address, head(CHAT, 2) + "{}").await
        },
        |answer| !answer.starts_with("HTTP/1.1 401 "),
    )
    .await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("\r\nretry-after: 3\r\n"), "{refused}");
    assert!(held.len() >= 3, "{}", held.len());

    assert_eq!(app.request("GET", "/readyz").send().await.expect("an answer").status(), 200);
    let chat = app.chat(&json!({"agentId": "a1", "message": "Hello"})).await;
    let events = parse_run(&chat.text().await.expect("a body"));
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    // A preview's credential is in the head, so its body is not read without one.
    let preview = exchange(app.address, head("/api/svcchat/previewPrompt", 100)).await;
    assert!(preview.starts_with("HTTP/1.1 401 "), "{preview}");
}

#[tokio::test]
async fn a_stream_outlives_the_head_s_time_out() {
    let vendor = ControlledVendor::start().await;
    let settings = [("HEADER_TIMEOUT_MS", "500"), ("BODY_IDLE_MS", "500")];
    let app = server::app(&workspace(&vendor.base_url(), "held"), &settings).await;
    let mut response = app.chat(&json!({"agentId": "a1", "message": "Hello"})).await;
    let mut body = read_until(&mut response, "first").await;
    // This connection is opened later and closed by the time-out, so the time-out has expired for the first one as
    // well.
    exchange(app.address, "").await;
    vendor.release();
    while let Some(chunk) = response.chunk().await.expect("the stream is not cut") {
        body.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
    }
    assert_eq!(text_of(&parse_run(&body)), "first last");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let app = server::app(&workspace("http://unused.example/v1", "m"), &[("HEAD_LIMIT_BYTES", "8192")]).await;
    let request = client().get(app.url("/livez")).header("x-padding", "x".repeat(10_000));
    assert_eq!(request.send().await.expect("an answer").status(), 431);
    let request = client().get(app.url("/livez")).header("x-padding", "x".repeat(6_000));
    assert_eq!(request.send().await.expect("an answer").status(), 200);
}

#[tokio::test]
async fn a_connection_that_will_be_closed_is_announced_as_such() {
    let app = server::app(&workspace("http://unused.example/v1", "m"), &[]).await;
    let host = app.address;
    // Refused by the head alone, before the body has arrived.
    for (status, head) in [
        (404, "POST /nothing HTTP/1.1\r\ncontent-length: 10".to_owned()),
        (401, "POST /api/agent/chat HTTP/1.1\r\ncontent-length: 10".to_owned()),
        (
            413,
            format!(
                "POST /api/agent/chat HTTP/1.1\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
                 content-length: 9999999",
                session_token("u1", "c1")
            ),
        ),
    ] {
        let answer = exchange(host, format!("{head}\r\nhost: {host}\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_runtime_handles_the_signal_of_a_write_beyond_the_file_size_limit() {
    const SIGXFSZ: u32 = 25;
    let _runtime = server::runtime(&[]).await;
    let is_handled = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("it can be read");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        let mask = u64::from_str_radix(mask.trim(), 16).expect("hexadecimal");
        mask & (1 << (SIGXFSZ - 1)) != 0
    };
    support::poll_until(async || is_handled(), |is_handled| *is_handled).await;
}
