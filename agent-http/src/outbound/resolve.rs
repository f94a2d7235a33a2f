//! Name resolution: what is not allowed to a supplied address never becomes a connection.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::Semaphore;
use tower_service::Service;

use super::address::AllowList;

/// How many names are resolved at a time. A look-up holds a thread until the system's resolver gives
/// up, also when nobody waits for it any more, and supplied names must not take all of them.
const MAX_LOOKUPS: usize = 32;

/// Resolves by the system's resolver.
#[derive(Debug, Clone)]
pub(super) struct Resolver {
    check: Option<Check>,
}

/// What refuses a name of which any address is refused.
#[derive(Debug, Clone)]
struct Check {
    allow: Arc<AllowList>,
    lookups: Arc<Semaphore>,
}

impl Resolver {
    /// Resolves whatever is asked for.
    pub(super) fn open() -> Self {
        Self { check: None }
    }

    /// Resolves what `allow` and the public Internet have.
    pub(super) fn checked(allow: Arc<AllowList>) -> Self {
        Self { check: Some(Check { allow, lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }) }
    }
}

impl Service<Name> for Resolver {
    type Response = IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let check = self.check.clone();
        Box::pin(async move {
            let permit = match &check {
                Some(check) => Some(check.lookups.clone().acquire_owned().await?),
                None => None,
            };
            let lookup = tokio::task::spawn_blocking(move || {
                let addresses = look_up(name.as_str());
                drop(permit);
                (name, addresses)
            });
            let (name, addresses) = lookup.await?;
            let addresses = addresses?;
            if let Some(check) = check {
                check.allow.check_resolved(name.as_str(), &addresses)?;
            }
            Ok(addresses.into_iter())
        })
    }
}

fn look_up(name: &str) -> io::Result<Vec<SocketAddr>> {
    // The port is a placeholder: the connector puts in the one of the URL.
    Ok((name, 0).to_socket_addrs()?.collect())
}
