//! Timeout of network operations that tolerates a process that was stopped.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;

/// Awaits `future` for `limit` at most; `None` after that time.
///
/// When a process continues after it was stopped (`SIGSTOP`), the runtime's wait for sockets is interrupted, and timers end
/// before any socket is read. So the future is polled once more after the runtime has examined its sockets: an answer
/// that has arrived meanwhile counts.
pub(super) async fn timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match tokio::time::timeout(limit, &mut future).await {
        Ok(output) => Some(output),
        Err(_) => {
            tokio::task::yield_now().await;
            future.now_or_never()
        }
    }
}
