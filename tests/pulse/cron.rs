//! Cron fallback: runs due occurrences, and none that the scheduler has delivered or will deliver.

use super::*;
use crate::support::expect_problem;

const NOWHERE: &str = "http://127.0.0.1:9/v1";

async fn cron(app: &Server, secret: &str, query: &str) -> Response {
    let request = app.request("GET", &format!("/api/cron{query}")).bearer_auth(secret);
    request.send().await.expect("an answer")
}

/// Starts a scheduler whose callback URL has no listener, and an application with a due assignment.
async fn start_with_due_assignment() -> (Server, Server, Stores, Value) {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, &format!("http://127.0.0.1:{}/callback", free_port()), &[]).await;
    let stores = server::stores(&workspace(NOWHERE)).await;
    let app = app(&stores, &scheduler.url(""), 0, &[]).await;
    let assignment = json!({"toolId": "createTodo", "arguments": {"title": "Due"}, "todoListId": "l1",
        "schedule": {"enabled": true, "executeAt": "2026-01-01T00:00:00Z"}});
    let path = "/api/agents/a1/assignments/s1";
    let made = expect_json(ask(&app, OWNER, "PUT", path, Some(&assignment)).await, 201).await;
    (app, scheduler, stores, made)
}

#[tokio::test]
async fn it_is_for_whoever_has_its_secret() {
    let app = server::app(&workspace(NOWHERE), &[]).await;
    let told = expect_problem(cron(&app, CRON_SECRET, "").await, 503, "NOT_CONFIGURED").await;
    assert!(told["detail"].as_str().expect("text").contains("CRON_SECRET"));
    let (app, _) = app_without_scheduler(NOWHERE, &[]).await;
    expect_problem(cron(&app, "guess-0123456789abcdef", "?run=true").await, 401, "UNAUTHENTICATED").await;
    let status = expect_json(cron(&app, CRON_SECRET, "").await, 200).await;
    assert_eq!(status, json!({"status": "ok", "canonicalScheduler": "pulse"}));
    let nothing = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await;
    assert_eq!((&nothing["run"]["source"], &nothing["run"]["due"]), (&json!("memory"), &json!(0)));
}

#[tokio::test]
async fn what_the_scheduler_cannot_deliver_is_run_once() {
    let (app, scheduler, stores, _) = start_with_due_assignment().await;
    let look = || request_scheduler(&scheduler, "GET", "/jobs", None);
    poll_until(look, |jobs| jobs["jobs"][0]["state"] == "retryable").await;
    let run = async || expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    // An occurrence that the scheduler is delivering at this moment does not count as due.
    let first = poll_until(&run, |run| run["due"] == 1).await;
    assert_eq!((&first["source"], &first["done"]), (&json!("scheduler"), &json!(1)));
    let again = poll_until(&run, |run| run["due"] == 1).await;
    assert_eq!((&again["done"], &again["doneBefore"]), (&json!(0), &json!(1)));
    assert_eq!(todo_titles(&stores).await, ["Due"]);
}

#[tokio::test]
async fn where_the_scheduler_is_gone_what_is_remembered_is_run_under_its_key() {
    let (app, scheduler, stores, made) = start_with_due_assignment().await;
    scheduler.stop();
    scheduler.stopped().await;
    let run = async || expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    let first = run().await;
    assert_eq!((&first["source"], &first["done"]), (&json!("memory"), &json!(1)));
    assert_eq!(run().await["due"], 0);
    assert_eq!(todo_titles(&stores).await, ["Due"]);
    // The scheduler returns and delivers the same occurrence.
    let mut payload = create_todo("Due");
    payload["assignmentId"] = "s1".into();
    let job = made["sync"]["jobId"].as_str().expect("an id");
    let called = expect_json(deliver_callback(&app, &delivery(payload, job, 1)).await, 200).await;
    assert_eq!(called["status"], "doneBefore");
    assert_eq!(todo_titles(&stores).await, ["Due"]);
}
