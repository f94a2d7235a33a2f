//! Conformance suite for the records of [`coding`](crate::coding): sign-ins and tokens of several processes that share
//! a store.

mod fixture;
mod refresh;
mod sign_in;

use std::sync::Arc;

use crate::records::Inventory;
use crate::spawner::Spawner;

use fixture::CodingFixture;

/// Runs the suite against stores from `make`, which must return an empty one at every call. `spawner` runs the tasks.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn coding(make: impl AsyncFn() -> Arc<dyn Inventory>, spawner: Arc<dyn Spawner>) {
    let fixture = async || CodingFixture::new(make().await, spawner.clone());
    sign_in::a_sign_in_is_completed_once(&fixture().await).await;
    sign_in::ten_at_once_are_one(&fixture().await).await;
    sign_in::an_hour_has_ten_sign_ins(&fixture().await).await;
    sign_in::a_cancelled_sign_in_gets_no_tokens(&fixture().await).await;
    sign_in::an_erased_sign_in_gets_no_tokens(&fixture().await).await;
    sign_in::a_crash_during_a_poll_does_not_end_the_sign_in(&fixture().await).await;
    sign_in::a_sign_in_survives_a_rotation(&fixture().await).await;
    sign_in::old_sign_ins_are_deleted(&fixture().await).await;
    refresh::a_crash_does_not_end_the_sign_in(&fixture).await;
    refresh::a_stopped_process_overwrites_nothing(&fixture().await).await;
    refresh::late_tokens_save_a_sign_in(&fixture().await).await;
    refresh::a_sign_out_wins(&fixture().await).await;
    refresh::a_new_sign_in_wins(&fixture().await).await;
    refresh::secrets_are_rotated(&fixture().await).await;
}

/// Refreshes tokens at the moment of their expiry in three processes of a store at once, with 64 runs each, for a number
/// of rounds. The processes use the real time.
///
/// # Panics
/// If a round refreshes more than once, or a run fails.
pub async fn coding_refreshes(
    make: impl AsyncFn() -> Arc<dyn Inventory>,
    spawner: Arc<dyn Spawner>,
    rounds: usize,
) {
    refresh::concurrent_callers_refresh_once(make().await, spawner, rounds).await;
}

/// Polls for sign-ins at three processes of a store at once, until the issuer was called this many times.
///
/// # Panics
/// If the issuer is polled too soon or too late, or a sign-in is exchanged for tokens twice.
pub async fn coding_polls(
    make: impl AsyncFn() -> Arc<dyn Inventory>,
    spawner: Arc<dyn Spawner>,
    polls: usize,
) {
    sign_in::polls_are_claimed_once(&CodingFixture::new(make().await, spawner), polls).await;
}
