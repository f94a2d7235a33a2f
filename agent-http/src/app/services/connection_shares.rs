//! Shares of the connections that kinds of requests, and the requests of a company, hold at most.

/// Number of parts of the maximum number of connections.
const PARTS: u64 = 32;

/// Parts of the maximum number of connections. One tenant can hold those of [`COMPANY`] and [`ANONYMOUS`] together. The
/// remaining parts are more than the server reserves for addresses with few connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionShare(u64);

/// Connections of one company with an exchange in progress.
pub(super) const COMPANY: ConnectionShare = ConnectionShare(20);
/// Part of these connections for the tool server only, so that clients and callbacks, which wait for runs, leave room for the
/// tool calls of these runs.
pub(super) const COMPANY_TOOL_CALLS: ConnectionShare = ConnectionShare(1);
/// Part of these connections for clients, without the tool server's and callbacks, so that open streams leave room for jobs.
/// With fewer than 32 connections, only the tool server's may be left, and callbacks wait.
pub(super) const COMPANY_CLIENTS: ConnectionShare = ConnectionShare(18);
/// Part of the clients' connections for the visitors of one company.
pub(super) const COMPANY_VISITORS: ConnectionShare = ConnectionShare(12);
/// Requests of one company that send their bodies or have an effect, except by visitors.
pub(super) const COMPANY_REQUESTS: ConnectionShare = ConnectionShare(8);
/// The same requests by the visitors of one company.
pub(super) const VISITOR_REQUESTS: ConnectionShare = ConnectionShare(4);
/// Readers of logs, downloads and large responses of one company.
pub(super) const COMPANY_READERS: ConnectionShare = ConnectionShare(16);
/// The same of all companies together.
pub(super) const ALL_READERS: ConnectionShare = ConnectionShare(24);
/// Bodies whose sender is not authenticated yet.
pub(super) const ANONYMOUS: ConnectionShare = ConnectionShare(8);
/// Those from one client address among them.
pub(super) const ANONYMOUS_OF_ADDRESS: ConnectionShare = ConnectionShare(2);

impl ConnectionShare {
    /// Returns the share of a server with at most `connections` connections, rounded down, and at least one.
    pub(super) fn of(self, connections: u32) -> usize {
        let share = u64::from(connections) * self.0 / PARTS;
        usize::try_from(share.max(1)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_never_empty() {
        let shares =
            |connections| [COMPANY, COMPANY_READERS, ANONYMOUS_OF_ADDRESS].map(|share| share.of(connections));
        assert_eq!(shares(16), [10, 8, 1]);
        assert_eq!(shares(31), [19, 15, 1]);
        assert_eq!(shares(0), [1, 1, 1]);
        assert_eq!(shares(u32::MAX), [2_684_354_559, 2_147_483_647, 268_435_455]);
    }
}
