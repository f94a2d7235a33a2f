//! Two replicas on one database: takeover of jobs from a suspended or killed replica.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{TestDatabase, due_job};
use crate::support::process::SchedulerProcess;
use crate::support::vendor::{Step, Vendor, json_response};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_takes_over_on_sqlite() {
    let database = TestDatabase::sqlite();
    a_replica_that_is_suspended_past_its_lease_changes_nothing(&database).await;
    the_jobs_of_a_killed_replica_are_delivered_by_the_other(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_takes_over_on_postgres() {
    let database = TestDatabase::postgres();
    a_replica_that_is_suspended_past_its_lease_changes_nothing(&database).await;
    the_jobs_of_a_killed_replica_are_delivered_by_the_other(&database).await;
}

fn callback(vendor: &Vendor) -> String {
    format!("http://{}/callback", vendor.address)
}

/// Returns a response that is sent when the gate opens.
fn gated_response(status: &str) -> (watch::Sender<bool>, Vec<Step>) {
    let (gate, opened) = watch::channel(false);
    let mut steps = vec![Step::Until(opened)];
    steps.extend(json_response(status, "", "{}"));
    (gate, steps)
}

/// Settings of the replicas, one of which is suspended past its lease.
const SETTINGS: [(&str, &str); 1] = [("SCHEDULER_LEASE_MS", "3000")];
/// Settings of the replicas, one of which is killed. A loaded machine does not keep the other replica from extending its leases.
const LONG_LEASE: [(&str, &str); 1] = [("SCHEDULER_LEASE_MS", "12000")];
/// Time after which a suspended replica is assumed to hold a database lock, so that the other replica cannot take
/// over.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(12);
const MAX_ATTEMPTS: usize = 3;

async fn a_replica_that_is_suspended_past_its_lease_changes_nothing(database: &TestDatabase) {
    let vendor = Vendor::start().await;
    for attempt in 0..MAX_ATTEMPTS {
        let agent = format!("held-{attempt}");
        let first = SchedulerProcess::start(&database.url(), &callback(&vendor), &SETTINGS).await;
        // If the suspended replica's outcome were recorded, the job would be discarded.
        let (sleepers, rejected) = gated_response("422 Nope");
        let (others, accepted) = gated_response("200 OK");
        vendor.on(&agent, [rejected, accepted]);
        let id = first.create_job(&due_job(&agent)).await;
        vendor.wait_for_requests(&agent, 1).await;
        first.set_suspended(true).await;
        let second = SchedulerProcess::start_with(&[], &database.url(), &callback(&vendor), &SETTINGS).await;
        if attempt + 1 < MAX_ATTEMPTS {
            let taken_over =
                tokio::time::timeout(TAKEOVER_TIMEOUT, vendor.wait_for_requests(&agent, 2)).await;
            if taken_over.is_err() {
                // The replica was suspended within a transaction, whose lock the other replica cannot break.
                first.kill().await;
                continue;
            }
        }
        vendor.wait_for_requests(&agent, 2).await;
        sleepers.send_replace(true);
        first.set_suspended(false).await;
        wait_for_lost_claim(&first).await;
        let job = second.get(&format!("/jobs/{id}")).await;
        assert_eq!((&job["state"], &job["attempt"]), (&json!("running"), &json!(1)), "{job}");
        others.send_replace(true);
        let job = second.wait_for_state(&id, "completed").await;
        let statuses: Vec<&Value> =
            job["attempts"].as_array().expect("attempts").iter().map(|attempt| &attempt["status"]).collect();
        assert_eq!(statuses, [&Value::Null, &json!(200)], "{job}");
        let deliveries = vendor.received_bodies(&agent);
        let of = |name: &str| deliveries.iter().map(|delivery| delivery[name].clone()).collect::<Vec<_>>();
        assert_eq!(of("attempt"), [json!(1), json!(1)], "a lost delivery uses up no attempt");
        assert_eq!(of("occurrence"), [json!(1), json!(1)], "it is the same message");
        return;
    }
}

/// Waits until a replica has recorded that its claim was lost or stale.
async fn wait_for_lost_claim(replica: &SchedulerProcess) {
    let expected_lines =
        ["lost", "stale"].map(|word| format!("agentd_job_deliveries_total{{outcome=\"{word}\"}} 1\n"));
    let sees = |metrics: &String| expected_lines.iter().any(|line| metrics.contains(line));
    crate::support::poll_until(|| replica.metrics(), sees).await;
}

async fn the_jobs_of_a_killed_replica_are_delivered_by_the_other(database: &TestDatabase) {
    const JOBS: usize = 20;
    let vendor = Vendor::start().await;
    let (gate, held) = gated_response("200 OK");
    vendor.on("held", [held]);
    let first = SchedulerProcess::start(&database.url(), &callback(&vendor), &LONG_LEASE).await;
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        ids.push(first.create_job(&due_job("held")).await);
    }
    vendor.wait_for_requests("held", JOBS).await;
    let second = SchedulerProcess::start(&database.url(), &callback(&vendor), &LONG_LEASE).await;
    for _ in 0..JOBS {
        ids.push(second.create_job(&due_job("held")).await);
    }
    vendor.wait_for_requests("held", 2 * JOBS).await;
    let had = first.get("/health").await["delivering"].as_u64().expect("a number");
    assert!(had >= JOBS as u64, "{had}");
    first.kill().await;
    gate.send_replace(true);
    let mut repeated = 0;
    for id in &ids {
        let job = second.wait_for_state(id, "completed").await;
        repeated += job["attempts"].as_array().expect("attempts").len() as u64 - 1;
    }
    assert_eq!(repeated, had, "only the deliveries of the killed replica are repeated");
    let mut occurrences: Vec<(String, u64)> = vendor
        .received_bodies("held")
        .iter()
        .map(|delivery| {
            let id = delivery["jobId"].as_str().expect("an id").to_owned();
            (id, delivery["occurrence"].as_u64().expect("a number"))
        })
        .collect();
    occurrences.sort();
    occurrences.dedup();
    assert_eq!(occurrences.len(), ids.len(), "who remembers ids has each effect once");
}
