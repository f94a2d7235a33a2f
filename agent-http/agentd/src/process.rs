//! Limits of the operating system on the process: open descriptors, and the size of files.

use agent_http::serve::ServeLimits;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// Descriptors for all that is not a connection below the limit: 256 for standard streams, databases, listeners and
/// timers, and 144 for connections beyond the limit, which wait for a slot or carry a health probe.
const RESERVED_DESCRIPTORS: u64 = 400;

/// Descriptors of a connection to a service that calls another one: for the connection and for the upstream request.
pub(crate) const DESCRIPTORS_PER_RELAY: u64 = 2;

/// Descriptors of a connection to a service that answers by itself.
pub(crate) const DESCRIPTORS_PER_CONNECTION: u64 = 1;

/// Raises the soft limit on descriptors to the hard one, and lowers `limits.connections` to the number of connections
/// for which the descriptors suffice, with a warning.
///
/// Without it, a server at its connection limit would fail to accept connections, or to call its backends, instead of
/// letting further clients wait.
pub(crate) fn fit_connections(limits: &ServeLimits, descriptors_each: u64) -> ServeLimits {
    let mut limits = limits.clone();
    let Some(descriptors) = raise_descriptor_limit() else { return limits };
    let reachable = reachable_connections(descriptors, descriptors_each);
    if reachable < limits.connections {
        tracing::warn!(
            descriptors,
            max_connections = limits.connections,
            reachable,
            "MAX_CONNECTIONS is lowered: the process may not open enough descriptors; raise its limit (ulimit -n)"
        );
        limits.connections = reachable;
    }
    limits
}

/// Returns the number of connections for which `descriptors` suffice; at least one.
fn reachable_connections(descriptors: u64, descriptors_each: u64) -> u32 {
    let reachable = descriptors.saturating_sub(RESERVED_DESCRIPTORS) / descriptors_each;
    u32::try_from(reachable).unwrap_or(u32::MAX).max(1)
}

/// Returns the limit on descriptors after raising it; `None` if the system has no limit.
fn raise_descriptor_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current?;
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "failed to raise the limit on open descriptors");
            Some(current)
        }
    }
}

/// Makes a write beyond the process's limit on the size of files fail, like one on a full disk. By default the system
/// ends the process by `SIGXFSZ`. Requires a tokio runtime.
pub(crate) fn ignore_file_size_signal() {
    // A handler stays installed for the lifetime of the process, also after its stream is dropped.
    if let Err(error) = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())) {
        tracing::warn!(%error, "failed to handle SIGXFSZ: a write beyond the file size limit ends the process");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_the_descriptors() {
        for (descriptors, each, expected) in [
            (1024, 2, 312),
            (1024, 1, 624),
            (20_400, 2, 10_000),
            (100, 2, 1),
            (0, 1, 1),
            (u64::MAX, 1, u32::MAX),
        ] {
            assert_eq!(reachable_connections(descriptors, each), expected, "{descriptors}");
        }
    }

    #[test]
    fn a_limit_is_only_lowered() {
        let configured = ServeLimits { connections: 1, ..ServeLimits::default() };
        assert_eq!(fit_connections(&configured, 2).connections, 1);
        let all = ServeLimits { connections: u32::MAX, ..ServeLimits::default() };
        let descriptors = raise_descriptor_limit();
        let expected = descriptors.map_or(u32::MAX, |descriptors| reachable_connections(descriptors, 2));
        assert_eq!(fit_connections(&all, 2).connections, expected);
    }
}
