//! Resolves a URI to the addresses that a connection may be made to.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use tokio::sync::Semaphore;

use super::address::AllowList;
use super::network::Network;

/// Maximum number of concurrent lookups of supplied names. A lookup holds a blocking thread until the system's resolver
/// returns, even if its request was cancelled, and supplied names must not occupy all of them.
const MAX_CONCURRENT_LOOKUPS: usize = 32;

/// Resolves the addresses of a URI and applies the address policy, if there is one.
#[derive(Debug, Clone)]
pub(super) struct Resolver {
    network: Arc<dyn Network>,
    check: Option<AddressFilter>,
}

/// The address policy of a filtered resolver: one refused address refuses the target.
#[derive(Debug, Clone)]
struct AddressFilter {
    allow: Arc<AllowList>,
    lookup_permits: Arc<Semaphore>,
}

impl Resolver {
    /// Returns a resolver that checks no addresses.
    pub(super) fn unchecked(network: Arc<dyn Network>) -> Self {
        Self { network, check: None }
    }

    /// Returns a resolver that lets only public addresses and those in `allow` pass.
    pub(super) fn checked(network: Arc<dyn Network>, allow: Arc<AllowList>) -> Self {
        Self {
            network,
            check: Some(AddressFilter {
                allow,
                lookup_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)),
            }),
        }
    }

    /// Returns the addresses to connect to, at least one. A literal address in the URI is checked like the addresses of
    /// a name, so that every address connected to has been checked here, regardless of how it was written.
    pub(super) async fn resolve(&self, uri: &Uri) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let host = uri.host().unwrap_or_default();
        let outright = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let mut addresses = match outright {
            Ok(address) => vec![SocketAddr::new(address, 0)],
            Err(_) => self.look_up(host.to_owned()).await?,
        };
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
        }
        if let Some(check) = &self.check {
            check.allow.check_resolved(host, &addresses)?;
        }
        let port = uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 });
        addresses.iter_mut().for_each(|address| address.set_port(port));
        Ok(addresses)
    }

    async fn look_up(&self, name: String) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let permit = match &self.check {
            Some(check) => Some(check.lookup_permits.clone().acquire_owned().await?),
            None => None,
        };
        let network = self.network.clone();
        let lookup = tokio::task::spawn_blocking(move || {
            let addresses = network.lookup_host(&name);
            drop(permit);
            addresses
        });
        Ok(lookup.await??)
    }
}
