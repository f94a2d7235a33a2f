//! A fake network: names resolve to addresses chosen by the test, and every public address leads to one server.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client::outbound::Network;
use async_trait::async_trait;
use tokio::net::TcpStream;

/// Ports for TLS, which the server behind the fake network does not speak; connections to them are refused.
const TLS_PORTS: [u16; 2] = [443, 8443];

/// A fake network in place of the Internet. Loopback addresses are connected to directly.
#[derive(Debug)]
pub struct FakeNetwork {
    names: HashMap<String, Vec<IpAddr>>,
    elsewhere: SocketAddr,
    connected: Mutex<Vec<String>>,
}

impl FakeNetwork {
    /// Creates a network from names with their addresses, separated by spaces. Connections to other than loopback
    /// addresses go to `elsewhere`, except those to a TLS port, which are refused.
    pub fn new(names: &[(&str, &str)], elsewhere: SocketAddr) -> Arc<Self> {
        let addresses =
            |list: &str| list.split(' ').map(|address| address.parse().expect("an address")).collect();
        let names = names.iter().map(|(name, list)| ((*name).to_owned(), addresses(list)));
        Arc::new(Self { names: names.collect(), elsewhere, connected: Mutex::default() })
    }

    /// Takes the connections made since the last call: all addresses of each, separated by spaces.
    pub fn take_connections(&self) -> Vec<String> {
        std::mem::take(&mut self.connected.lock().expect("unpoisoned"))
    }
}

#[async_trait]
impl Network for FakeNetwork {
    fn lookup_host(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let addresses = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect())
    }

    async fn connect(&self, addresses: Vec<SocketAddr>, _: Duration) -> io::Result<TcpStream> {
        let shown: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        self.connected.lock().expect("unpoisoned").push(shown.join(" "));
        if addresses.iter().all(|address| address.ip().is_loopback()) {
            return TcpStream::connect(&*addresses).await;
        }
        if addresses.iter().all(|address| TLS_PORTS.contains(&address.port())) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        TcpStream::connect(self.elsewhere).await
    }
}
