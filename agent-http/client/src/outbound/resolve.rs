//! Resolves a URI to the addresses that a connection may be made to.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::Uri;
use http::uri::Scheme;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::address::AllowList;
use super::network::Network;

/// Maximum number of concurrent lookups of supplied names. A lookup holds a blocking thread until the system's resolver
/// returns, even if its request was cancelled, and supplied names must not occupy all of them.
const MAX_CONCURRENT_LOOKUPS: usize = 64;
/// Maximum number of these below one domain, so that one whose name servers do not answer does not stop all others.
const MAX_LOOKUPS_PER_DOMAIN: usize = 4;
/// Number of domains beyond which those without a lookup are forgotten.
const MAX_IDLE_DOMAINS: usize = 1024;

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
    lookup_permits: Arc<LookupPermits>,
}

/// Permits of lookups: of all, and of those below each domain.
#[derive(Debug)]
struct LookupPermits {
    all: Arc<Semaphore>,
    /// The permits of a domain exist while a lookup has or awaits one.
    by_domain: Mutex<HashMap<Box<str>, Weak<Semaphore>>>,
}

impl LookupPermits {
    fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)), by_domain: Mutex::default() }
    }

    /// Waits for the permits of a lookup.
    async fn acquire(&self, name: &str) -> Result<[OwnedSemaphorePermit; 2], AcquireError> {
        let of_domain = self.of_domain(domain(name)).acquire_owned().await?;
        Ok([of_domain, self.all.clone().acquire_owned().await?])
    }

    fn of_domain(&self, domain: &str) -> Arc<Semaphore> {
        // No code panics while it holds the lock.
        let mut by_domain = self.by_domain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = by_domain.get(domain).and_then(Weak::upgrade) {
            return permits;
        }
        if by_domain.len() >= MAX_IDLE_DOMAINS {
            by_domain.retain(|_, permits| permits.strong_count() > 0);
        }
        let permits = Arc::new(Semaphore::new(MAX_LOOKUPS_PER_DOMAIN));
        by_domain.insert(domain.into(), Arc::downgrade(&permits));
        permits
    }
}

/// Returns the domain that a name's lookups are counted for: its last two labels.
fn domain(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    name.rmatch_indices('.').nth(1).map_or(name, |(dot, _)| &name[dot + 1..])
}

impl Resolver {
    /// Returns a resolver that checks no addresses.
    pub(super) fn unchecked(network: Arc<dyn Network>) -> Self {
        Self { network, check: None }
    }

    /// Returns a resolver that lets only public addresses and those in `allow` pass.
    pub(super) fn checked(network: Arc<dyn Network>, allow: Arc<AllowList>) -> Self {
        Self { network, check: Some(AddressFilter { allow, lookup_permits: Arc::new(LookupPermits::new()) }) }
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
        let permits = match &self.check {
            Some(check) => Some(check.lookup_permits.acquire(&name).await?),
            None => None,
        };
        let network = self.network.clone();
        let lookup = tokio::task::spawn_blocking(move || {
            let addresses = network.lookup_host(&name);
            drop(permits);
            addresses
        });
        Ok(lookup.await??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_below_a_domain_share_their_lookups() {
        for (name, expected) in [
            ("ollama", "ollama"),
            ("vendor.example", "vendor.example"),
            ("a.b.vendor.example.", "vendor.example"),
            ("", ""),
        ] {
            assert_eq!(domain(name), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn domains_without_lookups_are_forgotten() {
        let permits = LookupPermits::new();
        let held = permits.acquire("a.held.example").await.expect("a permit");
        for number in 0..2 * MAX_IDLE_DOMAINS {
            drop(permits.acquire(&format!("{number}.example")).await.expect("a permit"));
        }
        let by_domain = permits.by_domain.lock().expect("unpoisoned");
        assert!(by_domain.len() <= MAX_IDLE_DOMAINS + 1 && by_domain.contains_key("held.example"));
        drop(held);
    }
}
