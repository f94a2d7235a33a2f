//! Typical job payloads, and HTTP/1.1 messages with `content-length` on keep-alive connections.

use std::net::SocketAddr;
use std::time::Duration;

use agent_jobs::job::JobPayload;
use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a message in bytes.
const MAX_MESSAGE: usize = 64 * 1024;

/// Returns the payload of the `n`th job, spread over `companies` companies.
pub fn payload(n: usize, companies: usize) -> JobPayload {
    let arguments =
        serde_json::json!({"title": format!("Call customer {n} back"), "priority": "high", "list": n});
    JobPayload {
        arguments: arguments.as_object().cloned(),
        timezone: Some("Europe/Berlin".to_owned()),
        ..JobPayload::for_tool(
            format!("company-{}", n % companies),
            format!("user-{}", n % 1000),
            "assistant",
            "addTodo",
        )
    }
}

/// A keep-alive connection to a service.
#[derive(Debug)]
pub struct HttpConnection {
    stream: TcpStream,
    inbox: BytesMut,
}

impl HttpConnection {
    /// Connects with `TCP_NODELAY`.
    ///
    /// # Errors
    /// The connection was refused.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, inbox: BytesMut::with_capacity(16 * 1024) })
    }

    /// Sends a request and returns the whole response.
    ///
    /// # Errors
    /// The response has another status or no length, or timed out.
    pub async fn call(&mut self, request: &[u8], status: u16) -> Result<BytesMut> {
        let exchange = async {
            self.stream.write_all(request).await?;
            read(&mut self.stream, &mut self.inbox).await?.context("closed instead of an answer")
        };
        let message = timeout(RESPONSE_TIMEOUT, exchange).await.context("no answer")??;
        let expected = format!("HTTP/1.1 {status} ");
        ensure!(
            message.starts_with(expected.as_bytes()),
            "not {status}: {}",
            String::from_utf8_lossy(&message)
        );
        Ok(message)
    }
}

/// Reads the next message of a connection, head and body; `None` if the peer has closed the connection between
/// messages.
///
/// # Errors
/// The connection ended within a message, or the message is too long or has no length.
pub async fn read(stream: &mut TcpStream, inbox: &mut BytesMut) -> Result<Option<BytesMut>> {
    loop {
        if let Some(length) = length(inbox)?
            && inbox.len() >= length
        {
            return Ok(Some(inbox.split_to(length)));
        }
        ensure!(inbox.len() < MAX_MESSAGE, "a message is too long");
        if stream.read_buf(inbox).await? == 0 {
            ensure!(!inbox.has_remaining(), "closed within a message");
            return Ok(None);
        }
    }
}

/// Returns the body of a message returned by [`read`].
pub fn body(message: &[u8]) -> &[u8] {
    head_length(message).map_or(&[], |head| &message[head..])
}

fn head_length(message: &[u8]) -> Option<usize> {
    memmem::find(message, b"\r\n\r\n").map(|end| end + 4)
}

/// Returns the length of the first message, once its head is complete.
fn length(inbox: &[u8]) -> Result<Option<usize>> {
    let Some(head) = head_length(inbox) else { return Ok(None) };
    for line in inbox[..head].split(|byte| *byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        if line[..colon].eq_ignore_ascii_case(b"content-length") {
            return Ok(Some(head + std::str::from_utf8(&line[colon + 1..])?.trim().parse::<usize>()?));
        }
    }
    bail!("a message has no length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_their_length_says() {
        for (bytes, expected) in [
            ("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}POST", Some(40)),
            ("HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", Some(37)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", None),
        ] {
            assert_eq!(length(bytes.as_bytes()).unwrap(), expected, "{bytes}");
        }
        assert!(length(b"HTTP/1.1 200 OK\r\nallow: GET\r\n\r\n").is_err());
        assert_eq!(body(b"POST / HTTP/1.1\r\n\r\n{}"), b"{}");
    }
}
