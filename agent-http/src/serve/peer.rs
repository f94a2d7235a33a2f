//! Address of a client.

use std::net::SocketAddr;

/// Socket address of the client, in each request's extensions.
///
/// Behind a reverse proxy it is the proxy's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);
