//! Permits of a request in progress.

use super::agent_limits;
use super::sessions::SessionUse;

/// Permits that a request holds while it is processed. They travel in the request's extensions to its handler and are
/// released when the handler is done, even if the client has disconnected.
pub(super) struct RequestPermits {
    pub(super) _permit: Option<agent_limits::Permit>,
    pub(super) session: Option<SessionUse>,
}
