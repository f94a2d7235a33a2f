//! Two replicas on one database: takeover of jobs from a suspended or killed replica.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Place, now};
use crate::support::process::Process;
use crate::support::vendor::{Step, Vendor, plain};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_takes_over_on_sqlite() {
    let place = Place::sqlite();
    one_that_sleeps_past_its_lease_changes_nothing(&place).await;
    the_jobs_of_one_that_is_killed_are_delivered_by_the_other(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_takes_over_on_postgres() {
    let place = Place::postgres();
    one_that_sleeps_past_its_lease_changes_nothing(&place).await;
    the_jobs_of_one_that_is_killed_are_delivered_by_the_other(&place).await;
}

fn callback(vendor: &Vendor) -> String {
    format!("http://{}/callback", vendor.address)
}

/// Returns a response that is sent when the gate opens.
fn gated(status: &str) -> (watch::Sender<bool>, Vec<Step>) {
    let (gate, opened) = watch::channel(false);
    let mut steps = vec![Step::Until(opened)];
    steps.extend(plain(status, "", "{}"));
    (gate, steps)
}

/// Time after which a suspended replica is assumed to hold a database lock, so that the other replica cannot take
/// over.
const ASLEEP: Duration = Duration::from_secs(8);
const TRIES: usize = 3;

async fn one_that_sleeps_past_its_lease_changes_nothing(place: &Place) {
    let vendor = Vendor::start().await;
    for attempt in 0..TRIES {
        let agent = format!("held-{attempt}");
        let first = Process::start(&place.url(), &callback(&vendor), &[]).await;
        // If the suspended replica's outcome were recorded, the job would be discarded.
        let (sleepers, rejected) = gated("422 Nope");
        let (others, accepted) = gated("200 OK");
        vendor.on(&agent, [rejected, accepted]);
        let id = first.job(&now(&agent)).await;
        vendor.until_received(&agent, 1).await;
        first.sleeps(true).await;
        let second = Process::start_with(&[], &place.url(), &callback(&vendor), &[]).await;
        let taken_over = tokio::time::timeout(ASLEEP, vendor.until_received(&agent, 2)).await;
        if taken_over.is_err() && attempt + 1 < TRIES {
            // The replica was suspended within a transaction, whose lock the other replica cannot break.
            first.kill().await;
            continue;
        }
        taken_over.expect("the other one takes it over");
        sleepers.send_replace(true);
        first.sleeps(false).await;
        late(&first).await;
        let job = second.get(&format!("/jobs/{id}")).await;
        assert_eq!((&job["state"], &job["attempt"]), (&json!("running"), &json!(2)), "{job}");
        others.send_replace(true);
        let job = second.until_state(&id, "completed").await;
        let statuses: Vec<&Value> =
            job["attempts"].as_array().expect("attempts").iter().map(|attempt| &attempt["status"]).collect();
        assert_eq!(statuses, [&Value::Null, &json!(200)], "{job}");
        let deliveries = vendor.received_for(&agent);
        let of = |name: &str| deliveries.iter().map(|delivery| delivery[name].clone()).collect::<Vec<_>>();
        assert_eq!(of("attempt"), [json!(1), json!(2)]);
        assert_eq!(of("occurrence"), [json!(1), json!(1)], "it is the same message");
        return;
    }
}

/// Waits until a replica has recorded that its claim was lost or stale.
async fn late(replica: &Process) {
    let told = ["lost", "stale"].map(|word| format!("agentd_job_deliveries_total{{outcome=\"{word}\"}} 1\n"));
    let sees = |metrics: &String| told.iter().any(|line| metrics.contains(line));
    crate::support::until(|| replica.metrics(), sees).await;
}

async fn the_jobs_of_one_that_is_killed_are_delivered_by_the_other(place: &Place) {
    const JOBS: usize = 20;
    let vendor = Vendor::start().await;
    let (gate, held) = gated("200 OK");
    vendor.on("held", [held]);
    let first = Process::start(&place.url(), &callback(&vendor), &[]).await;
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        ids.push(first.job(&now("held")).await);
    }
    vendor.until_received("held", JOBS).await;
    let second = Process::start(&place.url(), &callback(&vendor), &[]).await;
    for _ in 0..JOBS {
        ids.push(second.job(&now("held")).await);
    }
    vendor.until_received("held", 2 * JOBS).await;
    let had = first.get("/health").await["delivering"].as_u64().expect("a number");
    assert!(had >= JOBS as u64, "{had}");
    first.kill().await;
    gate.send_replace(true);
    let mut again = 0;
    for id in &ids {
        let job = second.until_state(id, "completed").await;
        again += job["attempt"].as_u64().expect("a number") - 1;
    }
    assert_eq!(again, had, "what the killed one had in hand came a second time, and nothing else");
    let mut occurrences: Vec<(String, u64)> = vendor
        .received_for("held")
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
