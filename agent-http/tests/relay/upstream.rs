//! Upstream server on loopback that sends a generated answer in generated chunks.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

use crate::answers::Answer;

/// Number of times that the server yields in a pause, so that the client reads what was sent and waits.
const PAUSE_YIELDS: usize = 8;

/// The server. It answers the first request with the case's answer and the others, which follow tool calls, with the
/// protocol's shortest one. It stops on drop.
pub(crate) struct Upstream {
    pub(crate) url: Url,
    server: JoinHandle<()>,
}

impl Upstream {
    pub(crate) async fn serve(answer: &Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (answer, answered) = (answer.clone(), AtomicBool::new(false));
        let server = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                read_request(&mut stream).await;
                let answer = match answered.swap(true, Ordering::Relaxed) {
                    false => answer.clone(),
                    true => answer.protocol.shortest_answer(),
                };
                // The client may have closed the connection, which it does after an error in the answer.
                let _ = send(&mut stream, &answer).await;
            }
        });
        Self { url: Url::parse(&format!("http://{address}/")).expect("a URL"), server }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn send(stream: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let kind = answer.protocol.media_type();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut remaining_bytes = &answer.body[..];
    let mut cuts = answer.cuts.iter().cycle();
    while !remaining_bytes.is_empty() {
        let (size, pauses) =
            cuts.next().map_or((remaining_bytes.len(), false), |cut| (cut.bytes, cut.pauses));
        let (chunk, after) = remaining_bytes.split_at(size.clamp(1, remaining_bytes.len()));
        remaining_bytes = after;
        stream.write_all(&[format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat()).await?;
        if pauses {
            for _ in 0..PAUSE_YIELDS {
                tokio::task::yield_now().await;
            }
        }
    }
    if answer.is_complete {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    stream.shutdown().await
}

/// Reads a request with a body of `Content-Length` bytes, so that closing does not reset the connection.
async fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_none_or(|length| length.parse() == Ok(body.len())) {
                return;
            }
        }
        if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
            return;
        }
    }
}
