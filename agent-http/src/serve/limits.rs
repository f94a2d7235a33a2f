//! Limits of a server.

use std::time::Duration;

use agent_client::relay::RelayOptions;

/// Limits and optimizations of a server. Every limit is finite; [`Default`] has the documented values.
#[derive(Clone, Debug)]
pub struct ServeLimits {
    /// Maximum number of open connections; 10,000. Further clients wait, or replace idle connections. A sixteenth of the
    /// maximum, at most 64, is reserved for addresses with few connections. Beyond the maximum, up to 16 health probes are
    /// answered and up to 128 connections wait.
    pub connections: u32,
    /// Timeout for reading a request head, counted from when the connection is ready for one; 10 s. It closes silent
    /// connections, clients that send heads slowly, and idle keep-alive connections.
    pub head_read: Duration,
    /// Maximum size of a request head in bytes, request line included; 64 KiB. A larger head is answered with 431.
    pub head_bytes: usize,
    /// Maximum time without progress while there is data to write; 30 s. The connection is then dropped. For a response to a request
    /// whose sender is not authenticated, the maximum time until all is written, from the first write that had to wait.
    pub write_stall: Duration,
    /// Time from the shutdown signal in which new requests are still accepted, so that load balancers learn of it from
    /// `/readyz`; 0.
    pub lame_duck: Duration,
    /// Time that running exchanges have to finish after [`lame_duck`](Self::lame_duck); 10 s. Runs are ended with an
    /// error shortly before, see [`FINAL_EVENT_TIMEOUT`](super::FINAL_EVENT_TIMEOUT). The rest is dropped then.
    pub drain: Duration,
    /// Optimizations of responses that stream. Default: the build's optimizations.
    pub relay: RelayOptions,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head_read: Duration::from_secs(10),
            head_bytes: 64 * 1024,
            write_stall: Duration::from_secs(30),
            lame_duck: Duration::ZERO,
            drain: Duration::from_secs(10),
            relay: RelayOptions::default(),
        }
    }
}
