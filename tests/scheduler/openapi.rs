//! Schemathesis tests of the scheduler.

use crate::support::schemathesis;
use crate::support::server::PULSE_SECRET;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_routes_answer_as_they_are_described() {
    let bench = super::open().await;
    schemathesis::run(&bench.scheduler, PULSE_SECRET, &["scheduler"], 10).await;
}
