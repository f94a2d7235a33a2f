//! A long stream through `POST /coding-chat`, in pieces of several sizes.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::{RUNTIME_SECRET, runtime};
use crate::support::vendor::read_request;

/// Size of the streams in bytes: a long one, and one in pieces so small that each costs more than its bytes.
const LONG: usize = 50_000_000;
const SHORT: usize = 5_000_000;

/// Size at which encoded pieces are written.
const WRITE_BYTES: usize = 256 * 1024;

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

/// Serves one response with the first `size` bytes of `content`, each HTTP chunk with `piece` of them.
async fn serve(content: Arc<[u8]>, size: usize, piece: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        read_request(&mut stream, &mut Vec::new()).await.expect("a request");
        send(&mut stream, &content[..size], piece).await.expect("it reads");
    });
    address
}

async fn send(stream: &mut TcpStream, content: &[u8], piece: usize) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut buffer = head.as_bytes().to_vec();
    for piece in content.chunks(piece) {
        write!(buffer, "{:x}\r\n", piece.len())?;
        buffer.extend_from_slice(piece);
        buffer.extend_from_slice(b"\r\n");
        if buffer.len() >= WRITE_BYTES {
            stream.write_all(&buffer).await?;
            buffer.clear();
        }
    }
    buffer.extend_from_slice(b"0\r\n\r\n");
    stream.write_all(&buffer).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_in_pieces_of_any_size_has_the_same_bytes() {
    let content = content();
    for (size, piece) in [(SHORT, 1), (LONG, 7), (LONG, 8191), (LONG, 1 << 20)] {
        let api = format!("http://{}/", serve(content.clone(), size, piece).await);
        let runtime = runtime(&[("CODING_API_URL", &api)]).await;
        let call = json!({"accessToken": "a", "body": {"stream": true, "store": false}});
        let request = runtime.request("POST", "/coding-chat").bearer_auth(RUNTIME_SECRET).json(&call);
        let told = request.send().await.expect("an answer");
        assert_eq!(told.status(), 200);
        let mut body = told.bytes_stream();
        let mut received = 0;
        while let Some(chunk) = body.next().await {
            let chunk = chunk.expect("readable");
            let expected = content.get(received..received + chunk.len());
            assert!(
                expected.is_some_and(|bytes| *bytes == chunk),
                "other bytes after {received}, by {piece}"
            );
            received += chunk.len();
        }
        assert_eq!(received, size, "by {piece}");
    }
}
