//! Validation of `Host` and `Origin` (the specification's protection against DNS rebinding).
//!
//! A page whose name was rebound to this machine sends its own name in `Host` and its own origin in `Origin`; clients
//! other than browsers send no `Origin`. So the host must be configured by the operator, and the origin must be listed
//! by the operator or be this server's own.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use url::Url;

use super::admission::AdmissionError;

/// Loopback host names.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Validates `Host` and `Origin` of requests.
#[derive(Debug, Clone)]
pub struct HostGuard {
    /// Lower-case host names without ports; IPv6 addresses in brackets.
    hosts: BTreeSet<String>,
    /// This server's own origins and those that the operator allows, serialized as browsers do.
    origins: BTreeSet<String>,
}

impl HostGuard {
    /// Creates the validator for a server that listens on `bound` with the public URL `public_url`, and allows its own
    /// origins and `origins`.
    ///
    /// `origins` are serialized as browsers do. A server that listens on loopback accepts the loopback names too, with
    /// any port.
    pub fn new(public_url: &Url, bound: SocketAddr, origins: impl IntoIterator<Item = String>) -> Self {
        let mut guard = Self::local(bound, origins);
        guard.hosts.extend(public_url.host_str().map(str::to_ascii_lowercase));
        guard.origins.insert(public_url.origin().ascii_serialization());
        guard
    }

    /// Creates the validator for a server that listens on `bound` and has no public URL.
    pub fn local(bound: SocketAddr, origins: impl IntoIterator<Item = String>) -> Self {
        let mut hosts = BTreeSet::new();
        let mut origins: BTreeSet<String> = origins.into_iter().collect();
        if bound.ip().is_loopback() {
            hosts.extend(LOOPBACK.map(str::to_owned));
            origins.extend(LOOPBACK.map(|name| format!("http://{name}:{}", bound.port())));
        } else if !bound.ip().is_unspecified() {
            hosts.insert(match bound {
                SocketAddr::V4(address) => address.ip().to_string(),
                SocketAddr::V6(address) => format!("[{}]", address.ip()),
            });
        }
        Self { hosts, origins }
    }

    /// Checks `Host` and `Origin`.
    ///
    /// # Errors
    ///
    /// [`AdmissionError::UnknownHost`] or [`AdmissionError::UnknownOrigin`].
    pub fn check(&self, headers: &HeaderMap) -> Result<(), AdmissionError> {
        let host = single(headers.get_all(HOST).iter()).and_then(name);
        if !host.is_some_and(|host| self.hosts.contains(&host)) {
            return Err(AdmissionError::UnknownHost);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        if !origins.all(|origin| self.is_known(origin)) {
            return Err(AdmissionError::UnknownOrigin);
        }
        Ok(())
    }

    fn is_known(&self, origin: &HeaderValue) -> bool {
        origin.to_str().is_ok_and(|origin| self.origins.contains(origin))
    }
}

fn single<'h>(mut values: impl Iterator<Item = &'h HeaderValue>) -> Option<&'h HeaderValue> {
    values.next().filter(|_| values.next().is_none())
}

/// Returns the name in a `Host` header, without its port.
fn name(host: &HeaderValue) -> Option<String> {
    let authority: Authority = host.to_str().ok()?.parse().ok()?;
    // A `Host` header must not contain user info.
    (!authority.as_str().contains('@')).then(|| authority.host().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_guard(public_url: &str, bound: &str) -> HostGuard {
        let origins = ["https://app.example".to_owned()];
        HostGuard::new(&public_url.parse().expect("an address"), bound.parse().expect("an address"), origins)
    }

    #[test]
    fn only_configured_hosts_and_origins_are_accepted() {
        let public = host_guard("https://Agents.example:8443/x", "0.0.0.0:3000");
        let local = host_guard("http://127.0.0.1:3000/", "127.0.0.1:3000");
        let private = host_guard("https://agents.example/", "10.0.0.7:3000");
        let cases: &[(&HostGuard, &[&str], &[&str], bool)] = &[
            (&public, &["agents.example:8443"], &[], true),
            (&public, &["AGENTS.example"], &["https://app.example"], true),
            (&public, &["agents.example"], &["https://agents.example:8443"], true),
            (&public, &["agents.example"], &["https://agents.example"], false),
            (&public, &["agents.example"], &["https://app.example", "https://evil.example"], false),
            (&public, &["agents.example"], &["null"], false),
            (&public, &["agents.example"], &[""], false),
            (&public, &["localhost:3000"], &[], false),
            (&public, &["agents.example.evil.example"], &[], false),
            (&public, &["agents.example", "evil.example"], &[], false),
            (&public, &["agents.example@evil.example"], &[], false),
            (&public, &["evil.example@agents.example"], &[], false),
            (&public, &[""], &[], false),
            (&public, &[], &[], false),
            (&local, &["localhost:3000"], &["http://localhost:3000"], true),
            (&local, &["[::1]:9"], &["http://127.0.0.1:3000"], true),
            (&local, &["127.0.0.1"], &["http://127.0.0.1:3001"], false),
            (&local, &["127.0.0.1.evil.example:3000"], &[], false),
            (&local, &["evil.example:3000"], &[], false),
            (&local, &["localhost:3000"], &["http://evil.example"], false),
            (&private, &["10.0.0.7:3000"], &[], true),
            (&private, &["10.0.0.8:3000"], &[], false),
        ];
        for (host_guard, hosts, origins, is_allowed) in cases {
            let header = |name: http::HeaderName, values: &[&str]| {
                values.iter().map(|value| (name.clone(), value.parse().expect("a value"))).collect::<Vec<_>>()
            };
            let headers: HeaderMap = header(HOST, hosts).into_iter().chain(header(ORIGIN, origins)).collect();
            assert_eq!(host_guard.check(&headers).is_ok(), *is_allowed, "{hosts:?} {origins:?}");
        }
    }
}
