//! Work of requests outside of the tasks that serve connections.

use agent_platform::company_permits::CompanyPermit;
use tokio::task::spawn_blocking;

use crate::error::HttpError;

/// Runs work that takes processor time, and returns its result with the permit. If the request is cancelled, the work continues,
/// and the permit of what it has in memory is held until its end.
///
/// # Errors
/// Internal error if the work panics.
pub(in crate::app) async fn run_blocking<T: Send + 'static>(
    permit: CompanyPermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, CompanyPermit), HttpError> {
    spawn_blocking(move || (work(), permit)).await.map_err(HttpError::internal)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use agent_platform::company_permits::CompanyPermits;
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_work_of_a_cancelled_request_holds_its_permit_to_its_end() {
        let permits = CompanyPermits::new(usize::MAX, 1);
        let acquire = || permits.try_acquire(&"c".into());
        let (gate, opened) = mpsc::channel::<()>();
        let work = run_blocking(acquire().expect("a permit"), move || opened.recv());
        assert!(work.now_or_never().is_none(), "it is cancelled while it runs");
        assert!(acquire().is_none());
        drop(gate);
        while acquire().is_none() {
            tokio::task::yield_now().await;
        }
        let (result, permit) = run_blocking(acquire().expect("a permit"), || 7).await.expect("it ends");
        assert!(result == 7 && acquire().is_none());
        drop(permit);
        assert!(acquire().is_some());
    }
}
