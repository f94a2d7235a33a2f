//! Address of a client.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Socket address of the client, in each request's extensions.
///
/// Behind a reverse proxy it is the proxy's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// Returns the address that identifies the client; for IPv6 the first 64 bits, since a single client usually has
    /// all addresses below them.
    pub(crate) fn network(self) -> IpAddr {
        match self.0.ip().to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address @ IpAddr::V4(_) => address,
        }
    }
}
