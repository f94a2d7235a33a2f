//! Validation of a request's `Host` and target (RFC 9112 sections 3.2 and 3.2.2).
//!
//! hyper accepts requests without `Host`, with several, and with one that contradicts an absolute target. Two parties
//! that resolve such a request differently can be exploited (request smuggling), so all are rejected.

use http::header::HOST;
use http::uri::Authority;
use http::{Request, Version};

use crate::error::HttpError;

pub(super) fn check_target<B>(request: &Request<B>) -> Result<(), HttpError> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(HttpError::invalid("Host", "is given more than once"));
    }
    let Some(host) = host else {
        // HTTP/1.0 has no Host, and simple health checks still use it.
        return match request.version() {
            Version::HTTP_10 => Ok(()),
            _ => Err(HttpError::invalid("Host", "is missing")),
        };
    };
    let host = Authority::try_from(host.as_bytes())
        .ok()
        .filter(is_plain)
        .ok_or_else(|| HttpError::invalid("Host", "is not a host with an optional port"))?;
    match request.uri().authority() {
        Some(target) if !same_authority(target, &host) => {
            Err(HttpError::invalid("Host", "differs from the request target"))
        }
        _ => Ok(()),
    }
}

/// Returns true for a host with an optional numeric port. `Authority` also parses user names and any port.
fn is_plain(authority: &Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host());
    let has_valid_port = port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some());
    !authority.host().is_empty() && has_valid_port
}

fn same_authority(left: &Authority, right: &Authority) -> bool {
    let port = |authority: &Authority| authority.port_u16().unwrap_or(80);
    left.host().eq_ignore_ascii_case(right.host()) && port(left) == port(right)
}
