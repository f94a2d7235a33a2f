//! Connections without a request that hold all places. They come from another address of the loopback network, all of
//! which Linux assigns to the host.

use std::net::{IpAddr, SocketAddr};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::control::ControlledVendor;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::Vendor;
use crate::support::{
    TEST_TIMEOUT, client_builder, exchange, parse_run, read_until, read_until_closed, text_of, workspace,
};

const SILENT_ADDRESS: [u8; 4] = [127, 0, 0, 2];
const PLACES: usize = 48;
/// Connections without a request that an address keeps at the limit: a sixteenth of the places.
const SHARE: usize = 3;
/// The time-out is far longer than the tests wait, so it frees no place.
const SETTINGS: [(&str, &str); 2] = [("MAX_CONNECTIONS", "48"), ("HEADER_TIMEOUT_MS", "600000")];

async fn connect_silently(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((SILENT_ADDRESS, 0))).expect("an address of the loopback network");
    let connected = tokio::time::timeout(TEST_TIMEOUT, socket.connect(server.address)).await;
    connected.expect("the backlog has room").expect("it listens")
}

fn get(server: &Server, path: &str, connection: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: {connection}\r\n\r\n", server.address)
}

/// Checks that a request on the connection is answered, after which the connection is kept.
async fn assert_answered(stream: &mut TcpStream, server: &Server) {
    stream.write_all(get(server, "/livez", "keep-alive").as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    let reading = async {
        while !answer.ends_with(br#"{"status":"ok"}"#) {
            let read = stream.read_buf(&mut answer).await.expect("the connection stands");
            assert_ne!(read, 0, "the connection is closed");
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, reading).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
}

#[tokio::test]
async fn silent_connections_of_an_address_leave_room_for_others() {
    let vendor = Vendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "m"), &SETTINGS).await;
    let mut silent = Vec::new();
    for _ in 0..PLACES {
        silent.push(connect_silently(&app).await);
    }
    for path in ["/health", "/livez", "/readyz"] {
        let answer = exchange(app.address, get(&app, path, "close")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    let message = json!({"agentId": "a1", "message": "Hello"});
    let chat = tokio::time::timeout(TEST_TIMEOUT, app.chat(&message)).await.expect("an answer");
    let events = parse_run(&chat.text().await.expect("a body"));
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    // The oldest made room, and the latest was not touched.
    assert_eq!(read_until_closed(&mut silent[0]).await, "");
    assert_answered(&mut silent[PLACES - 1], &app).await;
}

/// With several threads, connections of one address lie on all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn connections_with_a_request_are_not_closed_for_others() {
    let vendor = ControlledVendor::start().await;
    let app = server::app(&workspace(&vendor.base_url(), "held"), &SETTINGS).await;
    // The oldest connections of the address: a stream, and one that is idle after its request.
    let client = client_builder().local_address(IpAddr::from(SILENT_ADDRESS)).build().expect("a client");
    let chat = client.post(app.url("/api/agent/chat")).bearer_auth(session_token("u1", "c1"));
    let chat = chat.json(&json!({"agentId": "a1", "message": "Hello"}));
    let mut response = chat.send().await.expect("an answer");
    let mut body = read_until(&mut response, "first").await;
    let mut idle = connect_silently(&app).await;
    assert_answered(&mut idle, &app).await;
    let mut silent = Vec::new();
    for _ in 2..PLACES {
        silent.push(connect_silently(&app).await);
    }

    let mut others = Vec::new();
    for _ in SHARE..silent.len() {
        let mut other = TcpStream::connect(app.address).await.expect("it listens");
        assert_answered(&mut other, &app).await;
        others.push(other);
    }
    for closed in &mut silent[..PLACES - 2 - SHARE] {
        assert_eq!(read_until_closed(closed).await, "");
    }
    // The address has only its share now, so the next client waits until a place is free.
    let mut waiting = TcpStream::connect(app.address).await.expect("it listens");
    drop(others.pop());
    assert_answered(&mut waiting, &app).await;
    for kept in &mut silent[PLACES - 2 - SHARE..] {
        assert_answered(kept, &app).await;
    }
    assert_answered(&mut idle, &app).await;
    vendor.release();
    while let Some(chunk) = response.chunk().await.expect("the stream is not cut") {
        body.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
    }
    assert_eq!(text_of(&parse_run(&body)), "first last");
}
