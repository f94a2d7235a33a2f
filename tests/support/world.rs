//! A world whose names have the addresses that a test gives them, and whose public addresses are all one server.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_http::outbound::Network;
use async_trait::async_trait;
use tokio::net::TcpStream;

/// Where TLS would be spoken, which the server that stands for the world does not.
const TLS: [u16; 2] = [443, 8443];

/// What services reach in place of the Internet. Loopback is itself.
#[derive(Debug)]
pub struct World {
    names: HashMap<String, Vec<IpAddr>>,
    elsewhere: SocketAddr,
    connected: Mutex<Vec<String>>,
}

impl World {
    /// Names with their addresses, which are separated by blanks, and the server that every connection ends at that
    /// is not to loopback; those for TLS are refused.
    pub fn new(names: &[(&str, &str)], elsewhere: SocketAddr) -> Arc<Self> {
        let addresses =
            |list: &str| list.split(' ').map(|address| address.parse().expect("an address")).collect();
        let names = names.iter().map(|(name, list)| ((*name).to_owned(), addresses(list)));
        Arc::new(Self { names: names.collect(), elsewhere, connected: Mutex::default() })
    }

    /// What connections were made to since this was last asked: all addresses of each, separated by blanks.
    pub fn connected(&self) -> Vec<String> {
        std::mem::take(&mut self.connected.lock().expect("unpoisoned"))
    }
}

#[async_trait]
impl Network for World {
    fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
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
        if addresses.iter().all(|address| TLS.contains(&address.port())) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        TcpStream::connect(self.elsewhere).await
    }
}
