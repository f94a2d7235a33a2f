//! Permit of a connection that a company uses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};
use http::request;

/// Permit of a company that a connection holds from the authentication of a request until the response is written. Clones are
/// of the same connection.
///
/// Whatever a request waits for, and however small its response is: a client that does not read keeps the connection in use
/// once the kernel's buffers are full. Requests of one connection hold one permit, also if they are pipelined.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionPermit(Arc<Mutex<ConnectionState>>);

#[derive(Debug, Default)]
struct ConnectionState {
    company_permit: Option<CompanyPermit>,
    is_refused: bool,
    /// True while the latest request is of a sender that is not authenticated.
    is_anonymous: bool,
}

impl ConnectionPermit {
    /// Returns the permit of a request's connection, which the server has put into the request's extensions. Without a server, it ends
    /// with the return value.
    pub(crate) fn of(head: &request::Parts) -> Self {
        head.extensions.get().cloned().unwrap_or_default()
    }

    /// Acquires one of the permits for the company, unless the connection holds one. Returns false if there is none; the
    /// connection then keeps what it holds for an earlier request.
    pub(crate) fn acquire(&self, permits: &Arc<CompanyPermits>, company_id: &CompanyId) -> bool {
        let mut state = self.lock();
        let is_held = state.company_permit.as_ref().is_some_and(|permit| {
            let (held_permits, holder) = permit.origin();
            Arc::ptr_eq(held_permits, permits) && holder == company_id
        });
        if is_held {
            return true;
        }
        let permit = permits.try_acquire(company_id);
        state.is_refused = permit.is_none();
        if permit.is_some() {
            state.company_permit = permit;
        }
        !state.is_refused
    }

    /// Returns true if the latest request was refused. The connection is closed after its response: it holds no permit for it, and
    /// responses to many such requests, if they are not read, would keep it in use.
    pub(crate) fn is_refused(&self) -> bool {
        self.lock().is_refused
    }

    /// Records that a request was read whose sender is not authenticated yet.
    pub(crate) fn begin_request(&self) {
        self.lock().is_anonymous = true;
    }

    /// Records that the sender of the latest request is authenticated.
    pub(crate) fn mark_authenticated(&self) {
        self.lock().is_anonymous = false;
    }

    /// Returns true if the sender of the latest request is not authenticated: no limit of a company or of an operator's secret counts
    /// the connection.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.lock().is_anonymous
    }

    /// Returns true if the sender of the latest request is not authenticated, and the connection holds no permit for an earlier one.
    pub(crate) fn is_uncounted(&self) -> bool {
        let state = self.lock();
        state.is_anonymous && state.company_permit.is_none()
    }

    /// Releases what the connection holds: all responses are written, or the connection has ended.
    pub(crate) fn release(&self) {
        self.lock().company_permit = None;
    }

    /// Locks the permit. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_of_each_request_is_authenticated_anew() {
        let connection = ConnectionPermit::default();
        assert!(!connection.is_anonymous(), "a service without credentials");
        connection.begin_request();
        assert!(connection.clone().is_anonymous());
        connection.mark_authenticated();
        assert!(!connection.is_anonymous());
        connection.begin_request();
        assert!(connection.is_anonymous());
    }

    #[test]
    fn a_connection_holds_one_permit_until_its_responses_are_written() {
        let permits = CompanyPermits::new(usize::MAX, 2);
        let (first, second, third) =
            (ConnectionPermit::default(), ConnectionPermit::default(), ConnectionPermit::default());
        let (one, other) = (CompanyId::from("one"), CompanyId::from("other"));
        assert!(
            first.acquire(&permits, &one) && first.clone().acquire(&permits, &one),
            "a pipelined request"
        );
        assert!(second.acquire(&permits, &one) && !third.acquire(&permits, &one));
        for connection in [&first, &third] {
            assert!(!connection.is_uncounted());
            connection.begin_request();
        }
        assert!(third.is_uncounted() && !first.is_uncounted(), "its response is not written yet");
        assert!(third.is_refused() && !second.is_refused());
        assert!(third.acquire(&permits, &other) && !third.acquire(&permits, &one));
        first.release();
        assert!(first.acquire(&permits, &one), "a refused request holds no permit");
        assert!(second.acquire(&permits, &other), "a request of another company follows");
        assert!(!first.acquire(&permits, &other), "the refusal has not released that of the other company");
        assert!(third.acquire(&permits, &one));
        for connection in [first, second, third] {
            connection.release();
        }
        assert!(permits.try_acquire_many(&one, 2).is_some() && permits.try_acquire_many(&other, 2).is_some());
    }
}
