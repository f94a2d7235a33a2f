//! Schemathesis tests of the application's management routes.

use super::open;
use crate::support::schemathesis;
use crate::support::server::session_token;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_routes_answer_as_they_are_described() {
    let bench = open().await;
    schemathesis::run(&bench.app, &session_token("u1", "c1"), &["agents", "documents", "health"], 30).await;
}
