//! An application that is killed within a turn of a job, and the schedule of the next tries.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::support::free_port;
use crate::support::process::{AppProcess, SchedulerProcess};
use crate::support::vendor::{Step, Vendor, answer};

const DATA_SECRET: (&str, &str) = ("DATA_SECRET", "data-secret-canary");
/// Settings of the application. A thread's run that was killed ends after a second.
const SETTINGS: [(&str, &str); 3] =
    [DATA_SECRET, ("OUTBOUND_ALLOW", "127.0.0.0/8"), ("RUN_LEASE_MS", "1000")];
/// Longest delay of the try after a failed first one, and the rounding of two times to milliseconds.
const FIRST_DELAY: Duration = Duration::from_millis(1_002);
/// Longest time from the application's restart to the next try.
const NEXT_TRY_LIMIT: Duration = Duration::from_secs(5);

fn parse_time(time: &Value) -> Timestamp {
    time.as_str().expect("a time").parse().expect("RFC 3339")
}

/// Checks the stored times instead of the times at which attempts begin, since a busy process may begin them late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_applications_turn_is_due_within_seconds_of_its_restart() {
    let vendor = Vendor::start().await;
    vendor.on("m", [vec![Step::Stall], answer(&["All is well."])]);
    let folder = tempfile::tempdir().expect("a folder");
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let (app_url, port) = (url("app.db"), free_port());
    let stores = Stores::open(&server::app_config(&[("DATABASE_URL", &app_url), DATA_SECRET])).await;
    let stores = stores.expect("the store opens");
    stores.import("the test", &workspace(&vendor.base_url()).to_string()).await.expect("imported");
    drop(stores);
    let callback = format!("http://127.0.0.1:{port}/api/pulse/callback");
    let app = AppProcess::start(&app_url, port, &SETTINGS).await;
    let scheduler = SchedulerProcess::start(&url("scheduler.db"), &callback, &[]).await;
    let payload = json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1",
        "message": "How are the plants?"});
    let id = scheduler.create_job(&json!({"payload": payload, "delayMs": 0, "maxAttempts": 1})).await;
    vendor.wait_for_requests("m", 1).await;
    app.kill().await;

    let path = format!("/jobs/{id}");
    let failed = scheduler.poll_until(&path, |job| job["state"] == "retryable").await;
    let first = &failed["attempts"][0];
    assert!(first["error"].is_string(), "{failed}");
    assert_eq!(failed["attempt"], 0, "the process has ended, which uses up no attempt: {failed}");
    if failed["attempts"].as_array().is_some_and(|attempts| attempts.len() == 1) {
        let delay = parse_time(&failed["executeAt"]).duration_since(parse_time(&first["endedAt"]));
        let delay = Duration::try_from(delay).expect("the next try comes later");
        assert!(delay <= FIRST_DELAY, "the next try waits {delay:?}: {failed}");
    }
    // Tries that fail while the application starts would each double the delay, however long a busy machine takes.
    scheduler.set_suspended(true).await;
    let app = AppProcess::start(&app_url, port, &SETTINGS).await;
    scheduler.set_suspended(false).await;
    let done = scheduler
        .poll_until(&path, |job| {
            let latest = Timestamp::now() + NEXT_TRY_LIMIT;
            assert!(parse_time(&job["executeAt"]) <= latest, "the next try is due after {latest}: {job}");
            job["state"] == "completed"
        })
        .await;
    let attempts = done["attempts"].as_array().expect("a list");
    assert!(attempts.len() >= 2, "{done}");
    assert_eq!(attempts.last().expect("one")["status"], 200, "{done}");
    assert_eq!(vendor.received_bodies("m").len(), 2, "the turn ran once more");
    scheduler.kill().await;
    app.kill().await;
    let stores = Stores::open(&server::app_config(&[("DATABASE_URL", &app_url), DATA_SECRET])).await;
    let notifications = notification_texts(&stores.expect("the store opens")).await;
    assert_eq!(notifications.len(), 1, "{notifications:?}");
    assert!(notifications[0].1.ends_with("All is well."), "{notifications:?}");
}
