//! Connections of one address that hold the slots: silent ones, idle ones, and ones with exchanges in progress.
//! Clients have several addresses of the loopback network, all of which Linux assigns to the host.

use std::net::{IpAddr, SocketAddr};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::control::ControlledVendor;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::Vendor;
use crate::support::{
    TEST_TIMEOUT, client_builder, parse_run, read_until, read_until_closed, text_of, workspace,
};

/// Address whose connections hold the slots.
const HOLDER: [u8; 4] = [127, 0, 0, 2];
const THIRD_ADDRESS: [u8; 4] = [127, 0, 0, 3];
const SLOTS: usize = 48;
/// Idle connections of an address beyond which these are closed first: a sixteenth of the slots.
const SHARE: usize = 3;
/// Slots that are kept for addresses without a connection: a sixteenth.
const KEPT: usize = 3;
/// The time-out is far longer than the tests wait, so it frees no slot.
const SETTINGS: [(&str, &str); 2] = [("MAX_CONNECTIONS", "48"), ("HEADER_TIMEOUT_MS", "600000")];

async fn connect_from(address: [u8; 4], server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((address, 0))).expect("an address of the loopback network");
    let connected = tokio::time::timeout(TEST_TIMEOUT, socket.connect(server.address)).await;
    connected.expect("the backlog has room").expect("it listens")
}

fn get(server: &Server, path: &str, connection: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: {connection}\r\n\r\n", server.address)
}

/// Requests a path that does not exist, and returns true if the connection is kept after the response, or false if it
/// was closed before.
async fn is_answered(stream: &mut TcpStream, server: &Server) -> bool {
    // The path is none of a health probe, which would be answered without a slot.
    if stream.write_all(get(server, "/nothing", "keep-alive").as_bytes()).await.is_err() {
        return false;
    }
    let mut answer = Vec::new();
    let reading = async {
        while !answer.ends_with(b"}") {
            if !matches!(stream.read_buf(&mut answer).await, Ok(1..)) {
                return false;
            }
        }
        true
    };
    let is_complete = tokio::time::timeout(TEST_TIMEOUT, reading).await.expect("an answer, or the end");
    assert!(!is_complete || answer.starts_with(b"HTTP/1.1 404 "), "{}", answer.escape_ascii());
    is_complete
}

async fn assert_answered(stream: &mut TcpStream, server: &Server) {
    assert!(is_answered(stream, server).await, "the connection is closed");
}

/// Checks that probes from the address are answered. They close their connections.
async fn assert_probes_answered(address: [u8; 4], server: &Server) {
    for path in ["/health", "/livez", "/readyz"] {
        let mut probe = connect_from(address, server).await;
        probe.write_all(get(server, path, "close").as_bytes()).await.expect("it reads");
        let answer = read_until_closed(&mut probe).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
}

/// Number of companies whose users send bodies, so that none reaches its own limit.
const COMPANIES: usize = 8;

/// Sends the head of a chat request with a credential, but no body. `number` selects its company.
async fn begin_body(address: [u8; 4], server: &Server, number: usize) -> TcpStream {
    let mut stream = connect_from(address, server).await;
    let head = format!(
        "POST /api/agent/chat HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\nexpect: 100-continue\r\n\r\n",
        server.address,
        session_token("u1", &format!("c{}", number % COMPANIES))
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream
}

/// Waits until the server asks for the body, so that the exchange is in progress.
async fn assert_continued(stream: &mut TcpStream) {
    let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut answer = vec![0; expected.len()];
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_exact(&mut answer)).await;
    read.expect("an answer").expect("the connection stands");
    assert_eq!(answer.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[tokio::test]
async fn silent_connections_of_an_address_leave_room_for_others() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), &SETTINGS).await;
    let mut silent = Vec::new();
    for _ in 0..SLOTS {
        silent.push(connect_from(HOLDER, &app).await);
    }
    assert_probes_answered([127, 0, 0, 1], &app).await;
    let message = json!({"agentId": "a1", "message": "Hello"});
    let chat = tokio::time::timeout(TEST_TIMEOUT, app.chat(&message)).await.expect("an answer");
    let events = parse_run(&chat.text().await.expect("a body"));
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    // The oldest made room, and the latest was not touched.
    assert_eq!(read_until_closed(&mut silent[0]).await, "");
    assert_answered(&mut silent[SLOTS - 1], &app).await;
}

#[tokio::test]
async fn idle_connections_of_an_address_leave_room_for_others() {
    let app = server::app(&workspace("http://unused.example/v1", "m"), &SETTINGS).await;
    let mut idle = Vec::new();
    for _ in 0..SLOTS {
        let mut connection = connect_from(HOLDER, &app).await;
        assert_answered(&mut connection, &app).await;
        idle.push(connection);
    }
    // The last connections found no slot, as some are kept for other addresses, and replaced the longest idle ones of their address.
    idle = answered(idle, &app).await;
    assert_eq!(idle.len(), SLOTS - KEPT);
    assert_probes_answered(THIRD_ADDRESS, &app).await;

    // They send requests from time to time, so no time-out ends them. Another client may still have more connections
    // than slots are kept.
    let mut others = Vec::new();
    for _ in 0..3 * KEPT {
        let mut other = connect_from(THIRD_ADDRESS, &app).await;
        assert_answered(&mut other, &app).await;
        others.push(other);
        idle = answered(idle, &app).await;
    }
    assert_eq!(answered(others, &app).await.len(), 3 * KEPT);
    assert!(idle.len() >= SLOTS - 4 * KEPT, "no more are closed than others need: {}", idle.len());
}

/// Sends a request on each connection, and returns the connections that are kept.
async fn answered(connections: Vec<TcpStream>, server: &Server) -> Vec<TcpStream> {
    let mut kept = Vec::new();
    for mut connection in connections {
        if is_answered(&mut connection, server).await {
            kept.push(connection);
        }
    }
    kept
}

#[tokio::test]
async fn exchanges_of_an_address_leave_room_for_others() {
    let vendor = Vendor::start().await;
    let settings = [&SETTINGS[..], &[("BODY_IDLE_MS", "600000"), ("BODY_TOTAL_MS", "600000")]].concat();
    let app = server::app(&workspace(&vendor.base_url(), "m"), &settings).await;
    let (mut bodies, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..SLOTS - KEPT {
        let mut body = begin_body(HOLDER, &app, number).await;
        assert_continued(&mut body).await;
        bodies.push(body);
    }
    for number in 0..2 * KEPT {
        waiting.push(begin_body(HOLDER, &app, number).await);
    }
    // Probes need no slot, also from the address that holds them.
    assert_probes_answered(HOLDER, &app).await;
    let message = json!({"agentId": "a1", "message": "Hello"});
    let chat = tokio::time::timeout(TEST_TIMEOUT, app.chat(&message)).await.expect("an answer");
    let events = parse_run(&chat.text().await.expect("a body"));
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    // The others wait in the order of their arrival.
    drop(bodies.pop());
    assert_continued(&mut waiting[0]).await;
}

/// With several threads, connections of one address lie on all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn exchanges_are_not_closed_for_others() {
    let vendor = ControlledVendor::start().await;
    let settings = [&SETTINGS[..], &[("BODY_IDLE_MS", "600000"), ("BODY_TOTAL_MS", "600000")]].concat();
    let app = server::app(&workspace(&vendor.base_url(), "held"), &settings).await;
    // The oldest connection of the address is a stream.
    let client = client_builder().local_address(IpAddr::from(HOLDER)).build().expect("a client");
    let chat = client.post(app.url("/api/agent/chat")).bearer_auth(session_token("u1", "c1"));
    let chat = chat.json(&json!({"agentId": "a1", "message": "Hello"}));
    let mut response = chat.send().await.expect("an answer");
    let mut body = read_until(&mut response, "first").await;
    let mut silent = Vec::new();
    for _ in 1..SLOTS - KEPT {
        silent.push(connect_from(HOLDER, &app).await);
    }

    // The first one gets a kept slot.
    let mut others = Vec::new();
    for number in SHARE..=silent.len() {
        let mut other = begin_body([127, 0, 0, 1], &app, number).await;
        assert_continued(&mut other).await;
        others.push(other);
    }
    let closed = silent.len() - SHARE;
    for connection in &mut silent[..closed] {
        assert_eq!(read_until_closed(connection).await, "");
    }
    // The address has only its share now. For further clients, the longest idle of all are closed.
    for kept in &mut silent[closed..] {
        let mut other = begin_body([127, 0, 0, 1], &app, others.len()).await;
        assert_continued(&mut other).await;
        others.push(other);
        assert_eq!(read_until_closed(kept).await, "");
    }
    // None is idle now, so the next client waits until a slot is free, unless its address has no connection.
    let mut waiting = begin_body([127, 0, 0, 1], &app, 0).await;
    let mut third = connect_from(THIRD_ADDRESS, &app).await;
    assert_answered(&mut third, &app).await;
    drop(others.pop());
    assert_continued(&mut waiting).await;
    assert_answered(&mut third, &app).await;
    vendor.release();
    while let Some(chunk) = response.chunk().await.expect("the stream is not cut") {
        body.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
    }
    assert_eq!(text_of(&parse_run(&body)), "first last");
}

#[tokio::test]
async fn silent_connections_of_many_addresses_leave_room_for_others() {
    let app = server::app(&workspace("http://unused.example/v1", "m"), &SETTINGS).await;
    let mut silent = Vec::new();
    for number in 0..SLOTS {
        let number = u8::try_from(number + 1).expect("few");
        silent.push(connect_from([127, 0, 1, number], &app).await);
    }
    let mut other = connect_from([127, 0, 0, 1], &app).await;
    assert_answered(&mut other, &app).await;
    assert_eq!(read_until_closed(&mut silent[0]).await, "");
    // The last connections have kept slots, which are not the other client's.
    assert_answered(&mut silent[SLOTS - 1], &app).await;
}

#[tokio::test]
async fn further_clients_wait_for_a_free_connection() {
    let vendor = ControlledVendor::start().await;
    let settings = [&SETTINGS[..], &[("BODY_IDLE_MS", "600000"), ("BODY_TOTAL_MS", "600000")]].concat();
    let app = server::app(&workspace(&vendor.base_url(), "held"), &settings).await;
    let response = app.chat(&json!({"agentId": "a1", "message": "Hello"})).await;
    assert_eq!(response.status(), 200);
    let mut bodies = Vec::new();
    for number in 1..SLOTS - KEPT {
        let mut body = begin_body([127, 0, 0, 1], &app, number).await;
        assert_continued(&mut body).await;
        bodies.push(body);
    }
    let mut waiting = connect_from([127, 0, 0, 1], &app).await;
    waiting.write_all(get(&app, "/nothing", "close").as_bytes()).await.expect("it is accepted");
    // Probes do not wait. They are accepted later, so that the connection would have been answered before them.
    assert_probes_answered([127, 0, 0, 1], &app).await;
    let early = waiting.try_read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(early, Err(std::io::ErrorKind::WouldBlock), "there is no slot for a further connection");
    vendor.release();
    assert!(response.text().await.expect("a whole body").contains("RUN_FINISHED"));
    let answer = read_until_closed(&mut waiting).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
