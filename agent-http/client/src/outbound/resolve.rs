//! Resolves a URI to the addresses that a connection may be made to.

use std::collections::HashMap;
use std::error::Error;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::Uri;
use http::uri::Scheme;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::address::AllowList;
use super::network::Network;
use super::tenant::current_tenant;

/// Maximum number of concurrent lookups of supplied names. A lookup holds a blocking thread until the system's resolver
/// returns, even if its request was cancelled, and supplied names must not occupy all of them: a tokio runtime has 512.
const MAX_CONCURRENT_LOOKUPS: usize = 256;
/// Maximum number of concurrent lookups of one tenant, so that a tenant whose name servers do not answer does not block other
/// tenants.
const MAX_LOOKUPS_PER_TENANT: usize = 64;
/// Maximum number of these below one domain, of all tenants together.
const MAX_LOOKUPS_PER_DOMAIN: usize = 16;
/// Maximum number of a tenant's concurrent lookups below one domain, so that a domain blocks neither the tenant's other domains
/// nor other tenants: names of several owners are below one such as `co.uk`.
const MAX_TENANT_LOOKUPS_PER_DOMAIN: usize = 4;
/// Maximum number of tracked domains or tenants; beyond it, entries without a lookup are removed.
const MAX_IDLE_KEYS: usize = 1024;

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

/// Permits of lookups: of all, of each tenant, below each domain, and of each tenant below each domain.
#[derive(Debug)]
struct LookupPermits {
    all: Arc<Semaphore>,
    by_tenant: KeyedPermits<Arc<str>>,
    by_domain: KeyedPermits<Box<str>>,
    by_tenant_and_domain: KeyedPermits<(Arc<str>, Box<str>)>,
}

impl LookupPermits {
    fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_CONCURRENT_LOOKUPS)),
            by_tenant: KeyedPermits::new(MAX_LOOKUPS_PER_TENANT),
            by_domain: KeyedPermits::new(MAX_LOOKUPS_PER_DOMAIN),
            by_tenant_and_domain: KeyedPermits::new(MAX_TENANT_LOOKUPS_PER_DOMAIN),
        }
    }

    /// Waits for the permits of a lookup. The permit with the narrowest scope is acquired first, so that lookups that wait for a
    /// domain hold few of the tenant's permits and none of the process's.
    async fn acquire(
        &self,
        tenant: &Arc<str>,
        name: &str,
    ) -> Result<[OwnedSemaphorePermit; 4], AcquireError> {
        let domain: Box<str> = domain(name).into();
        let narrowest = self.by_tenant_and_domain.of((tenant.clone(), domain.clone()));
        Ok([
            narrowest.acquire_owned().await?,
            self.by_tenant.of(tenant.clone()).acquire_owned().await?,
            self.by_domain.of(domain).acquire_owned().await?,
            self.all.clone().acquire_owned().await?,
        ])
    }
}

/// A number of permits for each key.
#[derive(Debug)]
struct KeyedPermits<K> {
    size: usize,
    /// The permits of a key exist while a lookup has or awaits one.
    by_key: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl<K: Eq + Hash> KeyedPermits<K> {
    fn new(size: usize) -> Self {
        Self { size, by_key: Mutex::new(HashMap::new()) }
    }

    fn of(&self, key: K) -> Arc<Semaphore> {
        // No code panics while it holds the lock.
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = by_key.get(&key).and_then(Weak::upgrade) {
            return permits;
        }
        if by_key.len() >= MAX_IDLE_KEYS {
            by_key.retain(|_, permits| permits.strong_count() > 0);
        }
        let permits = Arc::new(Semaphore::new(self.size));
        by_key.insert(key, Arc::downgrade(&permits));
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
            Some(check) => Some(check.lookup_permits.acquire(&current_tenant(), &name).await?),
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
    use futures_util::FutureExt;

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
    async fn keys_without_lookups_are_forgotten() {
        let permits = LookupPermits::new();
        let acquire =
            async |tenant: &str, name: &str| permits.acquire(&tenant.into(), name).await.expect("permits");
        let held = acquire("held", "a.held.example").await;
        for number in 0..2 * MAX_IDLE_KEYS {
            drop(acquire(&format!("c{number}"), &format!("{number}.example")).await);
        }
        let by_domain = permits.by_domain.by_key.lock().expect("unpoisoned");
        assert!(by_domain.len() <= MAX_IDLE_KEYS + 1 && by_domain.contains_key("held.example"));
        let by_tenant = permits.by_tenant.by_key.lock().expect("unpoisoned");
        assert!(by_tenant.len() <= MAX_IDLE_KEYS + 1 && by_tenant.contains_key("held"));
        assert!(permits.by_tenant_and_domain.by_key.lock().expect("unpoisoned").len() <= MAX_IDLE_KEYS + 1);
        drop(held);
    }

    #[tokio::test]
    async fn a_domain_of_many_tenants_leaves_room_for_others() {
        let permits = LookupPermits::new();
        let acquire = async |tenant: usize, name: &str| {
            permits.acquire(&Arc::from(format!("c{tenant}")), name).await.expect("permits")
        };
        let mut held = Vec::new();
        for number in 0..MAX_LOOKUPS_PER_DOMAIN {
            held.push(acquire(number, "api.vendor.example").await);
        }
        assert!(acquire(99, "api.vendor.example").now_or_never().is_none());
        assert!(acquire(99, "other.example").now_or_never().is_some());
        held.pop();
        assert!(acquire(99, "api.vendor.example").now_or_never().is_some());
    }
}
