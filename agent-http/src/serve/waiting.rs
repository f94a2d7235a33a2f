//! Connections that were accepted at the limit and wait for a slot.
//!
//! Their sockets are looked at without reading from them, so that health probes among them can be answered at once.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::Peer;

/// Paths of the health probes: liveness, readiness and status.
pub(crate) const PROBE_PATHS: [&str; 3] = ["/livez", "/readyz", "/health"];

/// Maximum number of connections that wait for a slot. A further one replaces one of them.
const MAX_WAITING: usize = 128;

/// Maximum size of a probe's request head. A larger head is not recognized, and its connection waits.
const MAX_PROBE_HEAD_BYTES: usize = 1024;

/// Response to a request on a waiting connection that is replaced by another one, or that still waits when the server stops.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Maximum number of reads that discard the input of a connection before it is refused.
const MAX_DISCARDED_READS: usize = 16;

/// Waiting connections in the order of their arrival; at most [`MAX_WAITING`].
#[derive(Debug, Default)]
pub(super) struct WaitingConnections {
    connections: VecDeque<WaitingConnection>,
}

#[derive(Debug)]
pub(super) struct WaitingConnection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    first_request: FirstRequest,
}

/// First bytes of a waiting connection's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstRequest {
    /// None have arrived.
    Missing,
    /// The whole head of a probe's request without a body.
    Probe,
    Other,
}

impl WaitingConnections {
    /// Adds a connection. At the maximum, it replaces the oldest of the address that has the most.
    pub(super) fn push(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.connections.len() >= MAX_WAITING
            && let Some(replaced) = self.oldest_of_largest_address()
            && let Some(connection) = self.connections.remove(replaced)
        {
            tracing::debug!(peer = %connection.peer, "a waiting connection is replaced by another one");
            connection.refuse();
        }
        self.connections.push_back(WaitingConnection { stream, peer, first_request: FirstRequest::Missing });
    }

    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Removes and returns the connection that has waited for the longest time.
    pub(super) fn take_oldest(&mut self) -> Option<WaitingConnection> {
        self.connections.pop_front()
    }

    /// Removes and returns the oldest connection whose address satisfies the condition.
    pub(super) fn take_from_address(
        &mut self,
        is_accepted: impl Fn(IpAddr) -> bool,
    ) -> Option<WaitingConnection> {
        // If all are from one address, the condition is evaluated once.
        let mut rejected = None;
        let found = self.connections.iter().position(|connection| {
            let address = connection.network();
            let is_found = rejected != Some(address) && is_accepted(address);
            if !is_found {
                rejected = Some(address);
            }
            is_found
        })?;
        self.connections.remove(found)
    }

    /// Removes and returns the oldest connection with a probe.
    pub(super) fn take_probe(&mut self) -> Option<WaitingConnection> {
        let is_probe = |connection: &WaitingConnection| connection.first_request == FirstRequest::Probe;
        let found = self.connections.iter().position(is_probe)?;
        self.connections.remove(found)
    }

    /// Closes all connections. Requests that have started are answered before.
    pub(super) fn refuse_all(self) {
        self.connections.into_iter().for_each(WaitingConnection::refuse);
    }

    /// Waits until the first bytes of a connection have arrived, or a connection without input has ended.
    ///
    /// Cancel safe: nothing is read from a socket.
    pub(super) async fn wait_for_input(&mut self) {
        poll_fn(|cx| self.poll_input(cx)).await;
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut is_changed = false;
        let mut bytes = [0; MAX_PROBE_HEAD_BYTES];
        self.connections.retain_mut(|connection| {
            if connection.first_request != FirstRequest::Missing {
                return true;
            }
            let mut head = ReadBuf::new(&mut bytes);
            let peeked = connection.stream.poll_peek(cx, &mut head);
            is_changed |= peeked.is_ready();
            match peeked {
                Poll::Pending => true,
                Poll::Ready(Ok(1..)) => {
                    let is_probe = is_probe(head.filled());
                    connection.first_request =
                        if is_probe { FirstRequest::Probe } else { FirstRequest::Other };
                    true
                }
                Poll::Ready(_) => false,
            }
        });
        if is_changed { Poll::Ready(()) } else { Poll::Pending }
    }

    fn oldest_of_largest_address(&self) -> Option<usize> {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for connection in &self.connections {
            *counts.entry(connection.network()).or_default() += 1;
        }
        let largest = counts.values().copied().max()?;
        self.connections.iter().position(|connection| counts.get(&connection.network()) == Some(&largest))
    }
}

impl WaitingConnection {
    fn network(&self) -> IpAddr {
        Peer(self.peer).network()
    }

    /// Closes the connection. If a request has started, it is answered before.
    fn refuse(self) {
        let socket = SockRef::from(&self.stream);
        // If input is left, the kernel resets the connection, which can destroy the response.
        let mut discarded = [0; 4096];
        let mut has_request = false;
        for _ in 0..MAX_DISCARDED_READS {
            if !matches!((&*socket).read(&mut discarded), Ok(1..)) {
                break;
            }
            has_request = true;
        }
        if has_request {
            // The response is smaller than any send buffer, and nothing was sent before.
            let _ = socket.send(REFUSAL);
        }
    }
}

/// Returns true if the bytes are one whole request head of a probe that announces no body.
///
/// Such a request is answered without waiting for the client.
fn is_probe(bytes: &[u8]) -> bool {
    let Some(head) = std::str::from_utf8(bytes).ok().and_then(|head| head.strip_suffix("\r\n\r\n")) else {
        return false;
    };
    let mut lines = head.split("\r\n");
    let mut request_line = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (request_line.next(), request_line.next().unwrap_or_default());
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let announces_body = |line: &str| {
        let name = line.split_once(':').map_or(line, |(name, _)| name);
        ["content-length", "transfer-encoding"].iter().any(|header| name.eq_ignore_ascii_case(header))
    };
    // hyper takes a bare line feed for the end of a line as well.
    let has_other_lines = head.split("\r\n").any(|line| line.contains('\n'));
    matches!(method, Some("GET" | "HEAD"))
        && !has_other_lines
        && PROBE_PATHS.contains(&path)
        && lines.all(|line| !line.is_empty() && !announces_body(line))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_probe_is_a_whole_head_without_a_body() {
        for head in [
            "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
            "HEAD /readyz HTTP/1.1\r\nHost: a\r\nUser-Agent: kube-probe/1.33\r\n\r\n",
            "GET /health?verbose HTTP/1.0\r\n\r\n",
        ] {
            assert!(is_probe(head.as_bytes()), "{head:?}");
        }
        for head in [
            "",
            "GET /livez",
            "GET /livez HTTP/1.1\r\nHost: a\r\n",
            "GET /livez/x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST /livez HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
            "GET /livez HTTP/1.1\r\nHost: a\nContent-Length: 5\r\n\r\n",
            "GET /livez HTTP/1.1\r\nHost: a\r\nTRANSFER-ENCODING: chunked\r\n\r\n",
            "GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert!(!is_probe(head.as_bytes()), "{head:?}");
        }
        assert!(!is_probe(b"GET /livez HTTP/1.1\r\nX: \xff\r\n\r\n"));
    }

    /// Returns the client's and the server's stream of a connection.
    async fn connect(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.expect("connected"), accepted.expect("accepted").0)
    }

    #[tokio::test]
    async fn a_probe_overtakes_the_connections_before_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut waiting = WaitingConnections::default();
        let peers: [SocketAddr; 3] =
            ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"].map(|peer| peer.parse().expect("an address"));
        let mut clients = Vec::new();
        for peer in peers {
            let (client, stream) = connect(&listener).await;
            waiting.push(stream, peer);
            clients.push(client);
        }
        clients[1].write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
        waiting.wait_for_input().await;
        assert!(waiting.take_probe().is_none());
        clients[2].write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
        waiting.wait_for_input().await;
        let probe = waiting.take_probe().expect("the whole head has arrived");
        assert_eq!(probe.peer, peers[2]);
        let from_second = waiting.take_from_address(|address| address == peers[1].ip()).expect("it waits");
        assert_eq!(from_second.peer, peers[1]);
        // A client that leaves without a request does not wait.
        drop(clients);
        waiting.wait_for_input().await;
        assert!(waiting.is_empty());
    }

    #[tokio::test]
    async fn at_the_maximum_the_oldest_of_the_address_with_the_most_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut waiting = WaitingConnections::default();
        let (small, large): (SocketAddr, SocketAddr) =
            ("192.0.2.1:1".parse().expect("an address"), "192.0.2.2:1".parse().expect("an address"));
        let mut clients = Vec::new();
        for peer in std::iter::once(small).chain(std::iter::repeat_n(large, MAX_WAITING - 1)) {
            let (client, stream) = connect(&listener).await;
            waiting.push(stream, peer);
            clients.push(client);
        }
        let evaluated = Cell::new(0);
        let reject = |_: IpAddr| {
            evaluated.set(evaluated.get() + 1);
            false
        };
        assert!(waiting.take_from_address(reject).is_none());
        assert_eq!(evaluated.get(), 2, "once for each address");
        // The request has not been seen yet.
        clients[1].write_all(b"POST / HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
        waiting.connections[1].stream.readable().await.expect("arrived");
        let (mut later, stream) = connect(&listener).await;
        waiting.push(stream, small);
        assert_eq!(waiting.len(), MAX_WAITING);
        let mut answer = String::new();
        clients[1].read_to_string(&mut answer).await.expect("closed in order");
        assert_eq!(answer.as_bytes(), REFUSAL);
        // The next one has sent nothing, and is closed without a response.
        let (_last, stream) = connect(&listener).await;
        waiting.push(stream, small);
        answer.clear();
        clients[2].read_to_string(&mut answer).await.expect("closed in order");
        assert_eq!(answer, "");
        assert_eq!(waiting.take_oldest().expect("it waits").peer, small);
        // The one that came later is still open.
        later.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
        waiting.wait_for_input().await;
        assert_eq!(waiting.take_probe().expect("a probe").peer, small);
    }
}
