//! Name resolution for supplied addresses: what is not allowed never becomes a connection.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::address::AllowList;

/// How many names are resolved at a time. A look-up holds a thread until the system's resolver gives
/// up, also when nobody waits for it any more, and supplied names must not take all of them.
const MAX_LOOKUPS: usize = 32;

/// Resolves by the system's resolver, and refuses a name of which any address is refused.
#[derive(Debug)]
pub(super) struct CheckedResolver {
    allow: Arc<AllowList>,
    lookups: Arc<Semaphore>,
}

impl CheckedResolver {
    pub(super) fn new(allow: Arc<AllowList>) -> Self {
        Self { allow, lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (allow, lookups) = (self.allow.clone(), self.lookups.clone());
        Box::pin(async move {
            let permit = lookups.acquire_owned().await?;
            let name = name.as_str().to_owned();
            let lookup = tokio::task::spawn_blocking(move || {
                let addresses = look_up(&name);
                drop(permit);
                (name, addresses)
            });
            let (name, addresses) = lookup.await?;
            let addresses = addresses?;
            allow.check_resolved(&name, &addresses)?;
            Ok::<_, Box<dyn Error + Send + Sync>>(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn look_up(name: &str) -> io::Result<Vec<SocketAddr>> {
    // The port is a placeholder: the connector puts in the one of the URL.
    Ok((name, 0).to_socket_addrs()?.collect())
}
