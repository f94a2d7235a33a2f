//! Bounds on the bodies of requests whose sender is not known yet.
//!
//! A widget token may be in the body of a chat request, so such a body is read before its sender is authenticated. A
//! client that sends it slowly holds a connection for that time. These bounds keep most connections for others, health
//! probes included, regardless of the number of such clients.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::request;

use super::connection_shares::{ANONYMOUS, ANONYMOUS_OF_ADDRESS};
use crate::endpoint::LimitedBody;
use crate::error::HttpError;
use crate::serve::Peer;

/// Maximum time between two chunks of an anonymous body, if `BODY_IDLE_MS` is not shorter.
const MAX_IDLE: Duration = Duration::from_secs(3);

/// Maximum time for an anonymous body, if `BODY_TOTAL_MS` is not shorter.
const MAX_TOTAL_TIME: Duration = Duration::from_secs(15);

/// `Retry-After` of a refused request: the time after which a stalled body is aborted.
const RETRY_AFTER: Duration = MAX_IDLE;

/// Counts the anonymous bodies that are being read, in total and per client address.
#[derive(Debug)]
pub(in crate::app) struct AnonymousBodies {
    max_total: usize,
    max_per_address: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    /// Only addresses with a body in progress, so that `max_total` bounds the map.
    by_address: HashMap<IpAddr, usize>,
}

impl AnonymousBodies {
    /// Creates the bounds of a server with at most `connections` connections.
    pub(super) fn new(connections: u32) -> Self {
        let (max_total, max_per_address) = (ANONYMOUS.of(connections), ANONYMOUS_OF_ADDRESS.of(connections));
        Self { max_total, max_per_address, counts: Mutex::default() }
    }

    /// Admits the body of the request with `head`: returns it with shorter timeouts, and the permit to hold while it
    /// is read.
    ///
    /// # Errors
    ///
    /// 429 if too many anonymous bodies are being read, in total or from the request's address.
    pub(in crate::app) fn admit(
        &self,
        head: &request::Parts,
        body: LimitedBody,
    ) -> Result<(LimitedBody, AnonymousBodyPermit<'_>), HttpError> {
        let address =
            head.extensions.get::<Peer>().copied().map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), Peer::network);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let address_count = counts.by_address.get(&address).copied().unwrap_or_default();
        if counts.total >= self.max_total || address_count >= self.max_per_address {
            return Err(HttpError::rate_limited(Some(RETRY_AFTER)).with_detail(
                "too many requests without a credential in the head are in progress; send the widget token in X-Widget-Token",
            ));
        }
        counts.total += 1;
        counts.by_address.insert(address, address_count + 1);
        Ok((body.with_timeouts(MAX_IDLE, MAX_TOTAL_TIME), AnonymousBodyPermit { bodies: self, address }))
    }
}

/// Permit to read one anonymous body; it is released on drop.
#[derive(Debug)]
pub(in crate::app) struct AnonymousBodyPermit<'b> {
    bodies: &'b AnonymousBodies,
    address: IpAddr,
}

impl Drop for AnonymousBodyPermit<'_> {
    fn drop(&mut self) {
        let mut counts = self.bodies.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        let address_count = counts.by_address.remove(&self.address).unwrap_or_default();
        if address_count > 1 {
            counts.by_address.insert(self.address, address_count - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::error::Code;

    fn admit<'b>(bodies: &'b AnonymousBodies, address: &str) -> Result<AnonymousBodyPermit<'b>, Code> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.extensions.insert(Peer(address.parse().expect("an address")));
        bodies.admit(&head, LimitedBody::empty()).map(|(_, permit)| permit).map_err(|error| error.code())
    }

    #[test]
    fn an_address_has_a_share_and_all_together_have_one() {
        let bodies = AnonymousBodies::new(32);
        let mut held = vec![
            admit(&bodies, "192.0.2.1:1").expect("the first"),
            admit(&bodies, "192.0.2.1:2").expect("the second"),
        ];
        assert_eq!(admit(&bodies, "192.0.2.1:3").expect_err("its share is used up"), Code::RateLimited);
        assert!(admit(&bodies, "[::ffff:192.0.2.1]:4").is_err(), "the same address");
        held.push(admit(&bodies, "[2001:db8::1]:1").expect("another address"));
        held.push(admit(&bodies, "[2001:db8::2]:1").expect("the same network"));
        assert!(admit(&bodies, "[2001:db8::3]:1").is_err());
        for i in 1..=4 {
            held.push(admit(&bodies, &format!("198.51.100.{i}:1")).expect("another address"));
        }
        assert!(admit(&bodies, "203.0.113.1:1").is_err(), "a quarter of all connections");
        held.clear();
        assert!(bodies.counts.lock().expect("counts").by_address.is_empty());
        admit(&bodies, "192.0.2.1:5").expect("room again");
    }
}
