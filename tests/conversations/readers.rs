//! Clients that read a run slowly or not at all: they delay no other client, and are cut off in time.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use super::ConversationApp;
use super::logs::{body, open_log, read_log, read_until};
use crate::support::server::session_token;
use crate::support::vendor::{Step, delta, finish, stream_head};
use crate::support::{TEST_TIMEOUT, parse_run, poll_until, text_of};

/// Number of pieces of the answer, and bytes of a piece: together more than the buffers of a connection hold.
const PIECES: usize = 640;
const PIECE_BYTES: usize = 16 << 10;
const ANSWER_BYTES: usize = PIECES * PIECE_BYTES;

/// Size of the buffer in which a slow client receives.
const RECEIVE_BYTES: u32 = 4 << 10;

/// Limits that the answer does not reach, and a short patience with clients that read nothing.
const SETTINGS: [(&str, &str); 3] =
    [("OUTPUT_LIMIT_BYTES", "16777216"), ("RUN_OUTPUT_LIMIT_BYTES", "33554432"), ("WRITE_STALL_MS", "1000")];

/// An answer that says "Partly", the rest when the first gate opens, and ends when the second one does.
struct LongAnswer {
    begin: watch::Sender<bool>,
    end: watch::Sender<bool>,
}

impl LongAnswer {
    fn of(test: &ConversationApp) -> Self {
        let long = Self { begin: watch::Sender::new(false), end: watch::Sender::new(false) };
        let mut steps = vec![stream_head(), delta(json!({"content": "Partly"}))];
        steps.push(Step::Until(long.begin.subscribe()));
        steps.extend((0..PIECES).map(|_| delta(json!({"content": "x".repeat(PIECE_BYTES)}))));
        steps.push(Step::Until(long.end.subscribe()));
        steps.extend(finish("stop"));
        test.vendor.on("m", [steps]);
        long
    }
}

/// Sends a request by HTTP/1.0, whose response is not chunked, over a connection that receives little at once.
async fn send_slowly(test: &ConversationApp, method: &str, path: &str, body: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(RECEIVE_BYTES).expect("a small buffer");
    let mut stream = socket.connect(test.app.address).await.expect("the application listens");
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: a\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        session_token("u1", "c1"),
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("it reads");
    stream
}

async fn wait_for_attached(test: &ConversationApp, count: u32) {
    let attached = async || test.get("/api/runs/r1").await["attached"].clone();
    poll_until(attached, |attached| *attached == count).await;
}

/// Reads a response until it has the whole answer, and calls `between` after each part.
async fn read_answer(response: &mut reqwest::Response, mut between: impl AsyncFnMut()) -> String {
    let mut read = Vec::new();
    while read.len() < ANSWER_BYTES {
        read.extend(response.chunk().await.expect("it reads").expect("it goes on"));
        between().await;
    }
    String::from_utf8(read).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_delays_no_other_reader() {
    let test = ConversationApp::start_with(&SETTINGS[..2]).await;
    let answer = LongAnswer::of(&test);
    let mut first = test.app.chat(&body(json!({}))).await;
    let mut received_text = read_until(&mut first, "Partly").await;
    let mut slow = send_slowly(&test, "GET", "/api/runs/r1/events", "").await;
    let mut fast = open_log(&test.app, "").await;
    let mut fast_shown = read_until(&mut fast, "Partly").await;
    wait_for_attached(&test, 3).await;
    answer.begin.send_replace(true);
    let mut received_bytes = Vec::new();
    let read_byte = async || received_bytes.push(slow.read_u8().await.expect("a byte"));
    received_text.push_str(&read_answer(&mut first, read_byte).await);
    fast_shown.push_str(&read_answer(&mut fast, async || {}).await);
    assert!(received_bytes.len() < ANSWER_BYTES / 100, "{} bytes were read slowly", received_bytes.len());
    answer.end.send_replace(true);
    received_text.push_str(&first.text().await.expect("a whole body"));
    fast_shown.push_str(&fast.text().await.expect("a whole body"));
    assert_eq!(test.ended_run("r1").await["state"], "completed");
    assert_eq!(text_of(&parse_run(&received_text)).len(), "Partly".len() + ANSWER_BYTES);
    assert!(fast_shown == received_text, "another reader has the same");
    // The slow reader still gets what it has not read, from memory and from the store.
    let later_text =
        tokio::time::timeout(TEST_TIMEOUT, slow.read_to_end(&mut received_bytes)).await.expect("it ends");
    later_text.expect("it is not cut");
    let response = String::from_utf8(received_bytes).expect("UTF-8");
    let (head, log) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(" 200 "), "{head}");
    assert!(
        log == received_text,
        "the slow reader has the same {} bytes: {}",
        received_text.len(),
        log.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_reads_nothing_is_disconnected_and_the_run_continues() {
    let test = ConversationApp::start_with(&SETTINGS).await;
    let answer = LongAnswer::of(&test);
    let mut first = test.app.chat(&body(json!({}))).await;
    let mut received_text = read_until(&mut first, "Partly").await;
    let mut idle = send_slowly(&test, "GET", "/api/runs/r1/events", "").await;
    wait_for_attached(&test, 2).await;
    answer.begin.send_replace(true);
    received_text.push_str(&read_answer(&mut first, async || {}).await);
    wait_for_attached(&test, 1).await;
    answer.end.send_replace(true);
    received_text.push_str(&first.text().await.expect("a whole body"));
    parse_run(&received_text);
    assert_eq!(test.ended_run("r1").await["state"], "completed");
    let mut received_bytes = Vec::new();
    // The connection may be reset.
    let _ = tokio::time::timeout(TEST_TIMEOUT, idle.read_to_end(&mut received_bytes))
        .await
        .expect("it is closed");
    assert!(received_bytes.len() < ANSWER_BYTES, "{} bytes have been sent", received_bytes.len());
    // It may attach again after the last whole line, and has the rest.
    let text = String::from_utf8_lossy(&received_bytes);
    let lines = text.split_once("\r\n\r\n").map_or(0, |(_, log)| log.matches('\n').count());
    let query = if lines == 0 { String::new() } else { format!("?after={}", lines - 1) };
    let later_text: String = received_text.split_inclusive('\n').skip(lines).collect();
    assert!(read_log(&test.app, &query).await == later_text, "from event {lines} on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_counts_as_gone() {
    for (on_disconnect, state) in [("continue", "completed"), ("cancel", "cancelled")] {
        let test = ConversationApp::start_with(&SETTINGS).await;
        let answer = LongAnswer::of(&test);
        let request_body = body(json!({ "onDisconnect": on_disconnect })).to_string();
        let client = send_slowly(&test, "POST", "/api/agent/chat", &request_body).await;
        answer.begin.send_replace(true);
        if state == "completed" {
            test.vendor.wait_for_requests("m", 1).await;
            let fetch = async || test.call("GET", "/api/runs/r1", None).await.1;
            let run = poll_until(fetch, |run| run["attached"] == 0).await;
            assert_eq!(run["state"], "running", "the run continues without its client");
            answer.end.send_replace(true);
        }
        let run = test.ended_run("r1").await;
        assert_eq!(run["state"], state, "{run}");
        if state == "completed" {
            assert_eq!(
                text_of(&parse_run(&read_log(&test.app, "").await)).len(),
                "Partly".len() + ANSWER_BYTES
            );
        } else {
            assert_eq!(run["reason"], "disconnected");
        }
        drop(client);
    }
}
