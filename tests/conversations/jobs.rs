//! Turns of scheduled jobs, which are kept in threads of the job's user.

use agent_core::tool::ExecutionContext;
use agent_platform::workspace::{Notification, send_notification};
use jiff::Timestamp;
use reqwest::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ConversationApp, everyone};
use crate::pulse::{deliver_callback, delivery, expect_json};
use crate::support::server::{self, PULSE_SECRET, session_token};
use crate::support::vendor::{Step, Vendor, answer, delta, finish, stream_head, tool_calls};
use crate::support::{expect_problem, poll_until};

/// Starts an application that takes callbacks. `role` changes the content of the agent `a1`.
async fn start(role: impl FnOnce(&mut Value)) -> ConversationApp {
    start_with(role, &[]).await
}

async fn start_with(role: impl FnOnce(&mut Value), more: &[(&str, &str)]) -> ConversationApp {
    let vendor = Vendor::start().await;
    let mut all = everyone(&vendor.base_url());
    role(&mut all["agents"][0]["content"]);
    let stores = server::stores(&all).await;
    let settings = [
        ("PULSE_URL", "http://127.0.0.1:9"),
        ("PULSE_SECRET", PULSE_SECRET),
        ("PROACTIVE_TIMEOUT_MS", "2000"),
    ];
    let app = server::app_with_stores(stores.clone(), &[&settings, more].concat()).await;
    ConversationApp { vendor, app, stores }
}

fn question(message: &str) -> Value {
    json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1", "message": message,
        "todoListId": "l1"})
}

impl ConversationApp {
    async fn deliver(&self, payload: Value, job: &str, occurrence: u64) -> Response {
        deliver_callback(&self.app, &delivery(payload, job, occurrence)).await
    }

    async fn done(&self, payload: Value, job: &str, occurrence: u64) {
        let answer = expect_json(self.deliver(payload, job, occurrence).await, 200).await;
        assert_eq!(answer["status"], "done");
    }

    /// Returns the user's notifications, the newest first.
    async fn notifications(&self) -> Vec<Value> {
        let notifications = crate::pulse::notifications(&self.stores).await;
        notifications.iter().map(|notification| serde_json::to_value(notification).expect("JSON")).collect()
    }
}

fn entry(role: &str, text: &str) -> (String, String) {
    (role.to_owned(), text.to_owned())
}

#[tokio::test]
async fn occurrences_are_new_roots_in_the_thread_of_their_job() {
    let test = start(|_| {}).await;
    test.vendor.on("m", [answer(&["It rains."]), answer(&["The sun shines."]), answer(&["Mostly."])]);
    test.done(question("How is the weather?"), "j1", 1).await;
    let first = [entry("user", "How is the weather?"), entry("assistant", "It rains.")];
    assert_eq!(test.path("job:j1").await, first);
    test.done(question("How is the weather?"), "j1", 2).await;
    let second = [entry("user", "How is the weather?"), entry("assistant", "The sun shines.")];
    assert_eq!(test.path("job:j1").await, second);
    assert_eq!(test.prompt(), [entry("user", "How is the weather?")], "no prompt grows");

    let thread = test.get("/api/threads/job:j1?messages=none").await;
    assert_eq!((&thread["origin"], &thread["status"]), (&json!("job"), &json!("idle")));
    let runs = test.get("/api/runs?threadId=job:j1&kind=job").await["runs"].clone();
    let latest = &runs[0];
    assert_eq!(latest["trigger"], json!({"kind": "job", "jobId": "j1", "occurrence": 2}));
    assert_eq!((latest["id"].as_str(), latest["state"].as_str()), (Some("j1:2"), Some("completed")));
    let notifications = test.notifications().await;
    assert_eq!(
        (&notifications[0]["threadId"], &notifications[0]["runId"]),
        (&json!("job:j1"), &json!("j1:2"))
    );
    assert_eq!(notifications[0]["text"], "The sun shines.");

    // The user goes on below the latest occurrence.
    test.say("job:j1", "All day?").await;
    let [user, assistant] = second;
    assert_eq!(test.prompt(), [user, assistant, entry("user", "All day?")]);
}

#[tokio::test]
async fn notifications_are_deleted_with_what_they_quote() {
    let test = start(|_| {}).await;
    test.vendor.on("m", [answer(&["One."]), answer(&["Two."]), answer(&["Three."])]);
    for (job, occurrence) in [("j1", 1), ("j1", 2), ("j2", 1)] {
        test.done(question("Report"), job, occurrence).await;
    }
    let texts = async || {
        let notifications = test.notifications().await;
        notifications.iter().map(|found| found["text"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts().await, ["Three.", "Two.", "One."]);
    let tree = test.get("/api/threads/job:j1?messages=tree").await;
    let nodes = tree["nodes"].as_array().expect("nodes");
    let first = nodes.iter().find(|node| node["message"]["content"] == "One.").expect("the first answer");
    let path = format!("/api/threads/job:j1/messages/{}", first["id"].as_str().expect("an id"));
    assert_eq!(test.call("DELETE", &path, None).await.0, 204);
    assert_eq!(texts().await, ["Three.", "Two."], "only the notification of the message's run is deleted");
    assert_eq!(test.call("DELETE", "/api/threads/job:j1", None).await.0, 204);
    assert_eq!(texts().await, ["Three."]);
    assert_eq!(test.call("DELETE", "/api/threads?agentId=a1", None).await.0, 200);
    assert_eq!(texts().await, [""; 0]);
}

#[tokio::test]
async fn notifications_sent_with_a_run_token_are_deleted_with_the_thread() {
    let test = start(|_| {}).await;
    test.vendor.on("m", [answer(&["One."]), answer(&["Two."])]);
    for job in ["j1", "j2"] {
        test.done(question("Report"), job, 1).await;
    }
    for Notification { text, run_id, .. } in crate::pulse::notifications(&test.stores).await {
        // The token does not name the thread.
        let context = ExecutionContext {
            user_id: "u1".into(),
            company_id: "c1".into(),
            agent_id: "a1".into(),
            run_id: run_id.expect("a run"),
            can_suspend: true,
            ..ExecutionContext::default()
        };
        let title = text.expect("an answer");
        let sent = send_notification(&*test.stores.records, &context, &title, None, Timestamp::now()).await;
        assert_eq!(sent.expect("sent").thread_id, None);
    }
    assert_eq!(test.notifications().await.len(), 4);
    assert_eq!(test.call("DELETE", "/api/threads/job:j1", None).await.0, 204);
    let left = crate::pulse::notifications(&test.stores).await;
    let mut left: Vec<_> = left.into_iter().map(|found| (found.title, found.text)).collect();
    left.sort();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&("Two.".to_owned(), None)), "{left:?}");
}

#[tokio::test]
async fn a_job_may_name_a_thread_of_its_user() {
    let test = start(|_| {}).await;
    test.vendor.on("m", [answer(&["Hello."]), answer(&["It rains."])]);
    test.say("t", "Hi").await;
    let mut payload = question("How is the weather?");
    payload["threadId"] = json!("t");
    test.done(payload.clone(), "j1", 1).await;
    assert_eq!(test.path("t").await, [entry("user", "How is the weather?"), entry("assistant", "It rains.")]);
    assert_eq!(test.get("/api/threads/t?messages=tree").await["nodes"].as_array().map(Vec::len), Some(4));

    // A thread of another agent, and an id that no thread has.
    let mut other = payload.clone();
    other["agentId"] = json!("a2");
    let problem = expect_problem(test.deliver(other, "j2", 1).await, 400, "INVALID_REQUEST").await;
    assert!(problem["detail"].as_str().expect("text").contains("threadId"), "{problem}");
    payload["threadId"] = json!("x".repeat(129));
    expect_problem(test.deliver(payload.clone(), "j3", 1).await, 400, "INVALID_REQUEST").await;
    let body = json!({"payload": payload, "delayMs": 60_000});
    let (status, problem) = test.call("POST", "/api/pulse/jobs", Some(body)).await;
    assert_eq!((status, &problem["code"]), (400, &json!("INVALID_REQUEST")), "{problem}");
}

#[tokio::test]
async fn each_attempt_is_a_run_and_no_tool_is_called_twice() {
    let test = start(|_| {}).await;
    let call = tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#)]);
    test.vendor.on("m", [call, vec![Step::Stall], vec![Step::Reset], answer(&["Done."])]);
    expect_problem(test.deliver(question("Buy milk"), "j1", 1).await, 504, "BACKEND_TIMEOUT").await;
    assert_eq!(test.deliver(question("Buy milk"), "j1", 1).await.status(), 502);
    test.done(question("Buy milk"), "j1", 1).await;
    let runs = test.get("/api/runs?threadId=job:j1").await["runs"].clone();
    let states: Vec<_> = runs.as_array().expect("runs").iter().map(|run| run["state"].clone()).collect();
    assert_eq!(states, ["completed", "failed", "cancelled"]);
    assert_eq!(runs[2]["id"], "j1:1");
    let created = test.path("job:j1").await;
    assert_eq!(created.first(), Some(&entry("user", "Buy milk")));
    assert_eq!(created.last(), Some(&entry("assistant", "Done.")));
    let todos = crate::pulse::todo_titles(&test.stores).await;
    assert_eq!(todos.iter().filter(|title| *title == "Milk").count(), 1, "{todos:?}");
}

#[tokio::test]
async fn a_call_that_breaks_off_leaves_no_text_in_the_thread() {
    let test = start_with(|_| {}, &[("MODEL_ATTEMPTS", "2")]).await;
    let lost = vec![stream_head(), delta(json!({"content": "Lost"})), Step::Reset];
    let call = tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#)]);
    test.vendor.on("m", [lost.clone(), call, lost, answer(&["Done."])]);
    test.done(question("Buy milk"), "j1", 1).await;
    let path = test.path("job:j1").await;
    assert_eq!(path.last(), Some(&entry("assistant", "Done.")), "{path:?}");
    let log = test.app.request("GET", "/api/runs/j1:1/events").bearer_auth(session_token("u1", "c1"));
    let log = log.send().await.expect("an answer").text().await.expect("a whole body");
    assert!(log.contains("modelAttempt") && !log.contains("Lost"), "{log}");
    assert_eq!(test.notifications().await[0]["text"], "Done.");
    let todos = crate::pulse::todo_titles(&test.stores).await;
    assert_eq!(todos.iter().filter(|title| *title == "Milk").count(), 1, "{todos:?}");
    assert_eq!(test.vendor.received_bodies("m").len(), 4);
}

#[tokio::test]
async fn a_busy_thread_delays_an_occurrence() {
    let test = start(|_| {}).await;
    let stalled = vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall];
    test.vendor.on("m", [stalled, answer(&["It rains."])]);
    let body = json!({"threadId": "t", "message": "Hi", "background": true, "agentId": "a1"});
    let (status, run) = test.call("POST", "/api/agent/chat", Some(body)).await;
    assert_eq!(status, 202, "{run}");
    let mut payload = question("How is the weather?");
    payload["threadId"] = json!("t");
    let response = test.deliver(payload.clone(), "j1", 1).await;
    assert!(response.headers().contains_key("retry-after"));
    expect_problem(response, 409, "THREAD_BUSY").await;
    let path = format!("/api/runs/{}/cancel", run["runId"].as_str().expect("an id"));
    let cancel = async {
        let fetch = async || test.get("/api/threads/t?messages=none").await;
        let is_queued = |thread: &Value| thread["queuedRunIds"].as_array().is_some_and(|ids| ids.len() == 1);
        poll_until(fetch, is_queued).await;
        test.call("POST", &path, None).await
    };
    // The occurrence begins when the user's run is over.
    let ((), (status, _)) = tokio::join!(test.done(payload, "j1", 1), cancel);
    assert_eq!(status, 200);
    assert_eq!(test.path("t").await, [entry("user", "How is the weather?"), entry("assistant", "It rains.")]);
    let runs = test.get("/api/runs?threadId=t&kind=job").await["runs"].clone();
    let states: Vec<_> = runs.as_array().expect("runs").iter().map(|run| run["state"].clone()).collect();
    assert_eq!(states, ["completed", "failed"], "the first attempt has waited for too long");
}

#[tokio::test]
async fn a_full_queue_delays_an_occurrence() {
    let test = start(|_| {}).await;
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), Step::Until(gate.subscribe())];
    steps.extend(finish("stop"));
    test.vendor.on("m", [steps, answer(&["Done."])]);
    let mut runs = Vec::new();
    for at in 0..9 {
        let body = json!({"agentId": "a1", "threadId": "t", "runId": format!("r{at}"), "message": "Hi",
            "background": true, "onBusy": "queue"});
        let (status, run) = test.call("POST", "/api/agent/chat", Some(body)).await;
        assert_eq!(status, 202, "{run}");
        runs.push(run["state"].clone());
    }
    assert_eq!((&runs[0], &runs[8]), (&json!("running"), &json!("queued")));
    let mut payload = question("How is the weather?");
    payload["threadId"] = json!("t");
    let response = test.deliver(payload.clone(), "j1", 1).await;
    assert!(response.headers().contains_key("retry-after"));
    expect_problem(response, 429, "QUEUE_FULL").await;
    gate.send_replace(true);
    test.ended_run("r8").await;
    // The scheduler delivers it again.
    test.done(payload, "j1", 1).await;
    assert_eq!(test.path("t").await, [entry("user", "How is the weather?"), entry("assistant", "Done.")]);
}

#[tokio::test]
async fn a_job_that_waits_for_approval_completes_and_notifies_its_user() {
    let approvals = json!([{"tools": ["createTodo"], "unattended": "wait", "message": "Add it?"}]);
    let test = start(|content| content["approvals"] = approvals).await;
    let call = tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#)]);
    test.vendor.on("m", [call, answer(&["It is on the list."])]);
    test.done(question("Buy milk"), "j1", 1).await;
    let notifications = test.notifications().await;
    assert_eq!(
        (&notifications[0]["text"], &notifications[0]["threadId"]),
        (&json!("Add it?"), &json!("job:j1"))
    );
    // The next occurrence waits, too, and does not count as an attempt.
    let response = test.deliver(question("Buy milk"), "j1", 2).await;
    assert_eq!(response.headers()["retry-after"], "60");
    expect_problem(response, 409, "INTERRUPTS_OPEN").await;
    let approvals = test.get("/api/approvals?state=open").await;
    let id = approvals["approvals"][0]["id"].as_str().expect("an id").to_owned();
    let decision = Some(json!({"decision": "approve"}));
    assert_eq!(test.call("POST", &format!("/api/approvals/{id}"), decision).await.0, 200);
    let runs = test.get("/api/runs?threadId=job:j1&kind=approval").await["runs"].clone();
    test.ended_run(runs[0]["id"].as_str().expect("an id")).await;
    assert_eq!(test.path("job:j1").await.last(), Some(&entry("assistant", "It is on the list.")));
}

#[tokio::test]
async fn a_tool_job_whose_call_needs_approval_is_not_attempted_again() {
    for unattended in ["deny", "wait"] {
        let approvals = json!([{"tools": ["createTodo"], "unattended": unattended}]);
        let test = start(|content| content["approvals"] = approvals).await;
        let payload = json!({"kind": "tool", "userId": "u1", "companyId": "c1", "agentId": "a1",
            "toolId": "createTodo", "todoListId": "l1", "arguments": {"title": "Milk"}});
        let response = test.deliver(payload, "j1", 1).await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().expect("text").contains("approval"), "{problem}");
    }
}

#[tokio::test]
async fn runs_that_are_not_stored_have_no_thread() {
    let test = start(|content| content["conversations"] = json!({"store": false})).await;
    test.vendor.on("m", [answer(&["It rains."])]);
    test.done(question("How is the weather?"), "j1", 1).await;
    assert_eq!(test.call("GET", "/api/threads/job:j1", None).await.0, 404);
    let notifications = test.notifications().await;
    assert_eq!(
        (&notifications[0]["text"], &notifications[0]["threadId"]),
        (&json!("It rains."), &Value::Null)
    );
}
