//! A long stream through `POST /coding-chat`: in pieces of several sizes, and to a client that does not read.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Response;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{RUNTIME_SECRET, runtime};
use crate::support::env_number;
use crate::support::server::Server;
use crate::support::vendor::read_request;

/// Size of the streams in bytes.
const LONG: usize = 50_000_000;
/// Environment variable with the size of the streams in pieces of one and of seven bytes, each of which costs more than
/// its bytes.
const SMALL_PIECES_BYTES: &str = "CODING_SMALL_PIECES_BYTES";
const DEFAULT_SMALL_PIECES_BYTES: usize = 500_000;

/// Size at which encoded pieces are written.
const WRITE_BYTES: usize = 256 * 1024;

/// Time without progress after which a write counts as blocked.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// Limit of the bytes that the runtime and the HTTP client hold for a client that does not read, without those in the
/// sockets, whose buffers the kernel lets grow to some 30 MiB.
const MAX_HELD_BYTES: usize = 2 << 20;

/// Returns the bytes of the long stream: events with a number each, so that a lost, repeated or moved byte is found, and
/// with characters that a relay of lines or texts would change.
fn content() -> Arc<[u8]> {
    let mut bytes = Vec::with_capacity(LONG + 100);
    for number in 0.. {
        if bytes.len() >= LONG {
            break;
        }
        bytes.extend_from_slice(
            format!("data: {{\"number\":{number},\"delta\":\"tok\u{fc}\"}}\r\n\n\r\0").as_bytes(),
        );
        bytes.push(number as u8);
    }
    bytes.truncate(LONG);
    bytes.into()
}

/// Serves one response with the first `size` bytes of `content`, each HTTP chunk with `piece` of them. The second value
/// is the number of bytes written when the writing is blocked for the first time, else 0.
async fn serve(content: Arc<[u8]>, size: usize, piece: usize) -> (SocketAddr, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    let (blocking, blocked) = watch::channel(0);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        read_request(&mut stream, &mut Vec::new()).await.expect("a request");
        send(&mut stream, &content[..size], piece, &blocking).await.expect("it reads");
    });
    (address, blocked)
}

async fn send(
    stream: &mut TcpStream,
    content: &[u8],
    piece: usize,
    blocked: &watch::Sender<usize>,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let (mut buffer, mut written) = (head.as_bytes().to_vec(), 0);
    for piece in content.chunks(piece) {
        write!(buffer, "{:x}\r\n", piece.len())?;
        buffer.extend_from_slice(piece);
        buffer.extend_from_slice(b"\r\n");
        if buffer.len() >= WRITE_BYTES {
            let mut remaining_bytes = &buffer[..];
            while !remaining_bytes.is_empty() {
                let count = match tokio::time::timeout(BLOCKED_AFTER, stream.write(remaining_bytes)).await {
                    Ok(count) => count?,
                    Err(_) => {
                        blocked.send_if_modified(|at| *at == 0 && std::mem::replace(at, written) == 0);
                        stream.write(remaining_bytes).await?
                    }
                };
                (remaining_bytes, written) = (&remaining_bytes[count..], written + count);
            }
            buffer.clear();
        }
    }
    buffer.extend_from_slice(b"0\r\n\r\n");
    stream.write_all(&buffer).await
}

/// Returns the bytes that wait in the sockets of the connections to `ports`, at both of their ends.
fn in_sockets(ports: [u16; 2]) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of the kernel's connections");
    let pair = |field: &str| {
        let (first, second) = field.split_once(':').expect("two values");
        (
            usize::from_str_radix(first, 16).expect("hexadecimal"),
            usize::from_str_radix(second, 16).expect("hexadecimal"),
        )
    };
    let queued = table.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, remote, (sent, received)) = (pair(fields[1]).1, pair(fields[2]).1, pair(fields[4]));
        if ports.iter().any(|port| [local, remote].contains(&usize::from(*port))) {
            sent + received
        } else {
            0
        }
    });
    queued.sum()
}

/// Calls the API at `address` through a runtime, which stops when dropped.
async fn call(address: SocketAddr) -> (Server, Response) {
    let api = format!("http://{address}/");
    let runtime = runtime(&[("CODING_API_URL", &api)]).await;
    let call = json!({"accessToken": "a", "body": {"stream": true, "store": false}});
    let request = runtime.request("POST", "/coding-chat").bearer_auth(RUNTIME_SECRET).json(&call);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    (runtime, response)
}

/// Reads a response to its end and compares it with `content`.
async fn expect_content(response: Response, content: &[u8], what: &str) {
    let mut body = response.bytes_stream();
    let mut received = 0;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.expect("readable");
        let expected = content.get(received..received + chunk.len());
        assert!(expected.is_some_and(|bytes| *bytes == chunk), "other bytes after {received}, {what}");
        received += chunk.len();
    }
    assert_eq!(received, content.len(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_in_pieces_of_any_size_has_the_same_bytes() {
    let content = content();
    let small = env_number(SMALL_PIECES_BYTES, DEFAULT_SMALL_PIECES_BYTES).min(LONG);
    for (size, piece) in [(small, 1), (small, 7), (LONG, 8191), (LONG, 1 << 20)] {
        let (address, _) = serve(content.clone(), size, piece).await;
        let (_runtime, response) = call(address).await;
        expect_content(response, &content[..size], &format!("by {piece}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_the_stream_up() {
    let content = content();
    let (address, mut blocked) = serve(content.clone(), LONG, 8191).await;
    let (runtime, response) = call(address).await;
    let written = *blocked.wait_for(|written| *written > 0).await.expect("the writing is blocked");
    let held = written.saturating_sub(in_sockets([address.port(), runtime.address.port()]));
    assert!(held < MAX_HELD_BYTES, "{held} of {written} bytes are held");
    expect_content(response, &content, "after a pause").await;
}
