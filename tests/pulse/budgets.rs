//! Jobs whose budget is spent: they are not run, and come again when the budget begins anew, each at a time of its own.

use std::collections::BTreeSet;

use agent_core::clock::SystemClock;
use agent_platform::records::Precondition;
use agent_platform::usage::{Budget, BudgetKind, BudgetOptions, Budgets};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::support::expect_problem;
use crate::support::vendor::Vendor;

const JOBS: usize = 24;
/// Longest time for which the scheduler waits because it was asked to, and by which it extends that time, with the time that
/// an answer may take.
const MAX_WAIT: SignedDuration = SignedDuration::from_hours(24);
const MAX_SPREAD: SignedDuration = SignedDuration::from_secs(90);

/// Forbids the company to spend anything this month.
async fn forbid_spending(stores: &Stores) {
    let spawner = Arc::new(|task| drop(tokio::spawn(task)));
    let (records, usage) = (stores.records.clone(), stores.usage.clone());
    let budgets = Budgets::new(records, usage, Arc::new(SystemClock), spawner, BudgetOptions::default());
    let body = json!({"limits": [{"unit": "tokens", "amount": 0, "window": "month"}]});
    let budget = Budget::read(BudgetKind::Company, body.as_object().expect("an object")).expect("valid");
    let subject = (BudgetKind::Company, "c1");
    budgets.put(&"c1".into(), subject, &budget, Precondition::Any).await.expect("written");
}

fn question() -> Value {
    json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1", "message": "What is new?"})
}

#[tokio::test]
async fn jobs_whose_budget_is_spent_do_not_come_together_when_it_begins_anew() {
    let vendor = Vendor::start().await;
    let bench = open(&vendor.base_url(), &[]).await;
    forbid_spending(&bench.stores).await;
    let refused = deliver_callback(&bench.app, &delivery(question(), "j1", 1)).await;
    let wait: u64 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    let problem = expect_problem(refused, 402, "BUDGET_EXCEEDED").await;
    let resets_at: Timestamp = problem["budget"]["resetsAt"].as_str().expect("text").parse().expect("a time");
    assert!(wait > 0 && wait.abs_diff(seconds_until(resets_at)) <= 30, "{wait}: {problem}");

    let began = Timestamp::now();
    let create = async |_| {
        let job = json!({"payload": question(), "delayMs": 0});
        let created = request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&job)).await;
        created["jobId"].as_str().expect("an id").to_owned()
    };
    let ids = join_all((0..JOBS).map(create)).await;
    let mut seconds = BTreeSet::new();
    for id in ids {
        let path = format!("/jobs/{id}");
        let look = async || request_scheduler(&bench.scheduler, "GET", &path, None).await;
        let job = poll_until(look, |job| job["state"] == "retryable").await;
        let due: Timestamp = job["executeAt"].as_str().expect("text").parse().expect("a time");
        let earliest = resets_at.min(began + MAX_WAIT);
        let latest = resets_at.min(Timestamp::now() + MAX_WAIT) + MAX_SPREAD;
        assert!((earliest..=latest).contains(&due), "{due} is not within {earliest} and {latest}: {job}");
        seconds.insert(due.as_second());
    }
    // All of them were asked to wait for the same time.
    assert!(seconds.len() >= 5, "{JOBS} jobs come in {} seconds", seconds.len());
    assert!(vendor.received().is_empty(), "no model was called");
}

fn seconds_until(time: Timestamp) -> u64 {
    u64::try_from(time.duration_since(Timestamp::now()).as_secs()).unwrap_or_default()
}
