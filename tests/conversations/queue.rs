//! Messages that wait for the run of their thread.

use agent_platform::conversation::ThreadKey;
use agentd::stores::Stores;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::approvals::resume_entry;
use super::logs::read_until;
use super::stores::{config, start as start_process};
use super::{ConversationApp, call_as, dialogue, everyone, gated, get};
use crate::processes::TestDatabase;
use crate::support::cluster::Cluster;
use crate::support::server::{INTERNAL_SECRET, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, tool_calls};
use crate::support::{client, expect_problem, parse_run, poll_until, text_of};

fn body(run: &str, message: &str, fields: Value) -> Value {
    let mut body =
        json!({"agentId": "a1", "threadId": "t", "message": message, "runId": run, "onBusy": "queue"});
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    body
}

async fn queue(app: &Server, run: &str, message: &str, fields: Value) -> reqwest::Response {
    let response = app.chat(&body(run, message, fields)).await;
    assert_eq!(response.status(), 200, "the head comes at once");
    response
}

async fn events(response: reqwest::Response) -> Vec<Value> {
    parse_run(&response.text().await.expect("a whole body"))
}

/// An application whose thread `t` has the run `r1`, which says "Partly" until the gate opens.
async fn with_a_run() -> (ConversationApp, reqwest::Response, watch::Sender<bool>) {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body("r1", "Hello", json!({}))).await;
    read_until(&mut first, "Partly").await;
    (test, first, gate)
}

async fn a_hundred_are_answered_in_order(database: TestDatabase) {
    let vendor = Vendor::start().await;
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    stores
        .import("the test", &everyone(&vendor.base_url()).to_string())
        .await
        .expect("the workspace is imported");
    let apps = [start_process(&database).await, start_process(&database).await];
    let (held, gate) = gated();
    let answers: Vec<String> = (0..8).map(|n| format!("Answer {n}.")).collect();
    vendor.on("m", std::iter::once(held).chain(answers.iter().map(|text| answer(&[text]))));
    let mut first = apps[0].chat(&body("r", "First", json!({}))).await;
    let received_text = read_until(&mut first, "Partly").await;
    let posts = (0..99).map(|n| {
        let (app, run) = (&apps[n % 2], format!("r{n}"));
        async move { (run.clone(), app.chat(&body(&run, &format!("Say {run}"), json!({}))).await) }
    });
    let mut queued = Vec::new();
    for (run, response) in join_all(posts).await {
        match response.status().as_u16() {
            200 => queued.push((run, response)),
            _ => {
                assert!(response.headers().contains_key("retry-after"));
                expect_problem(response, 429, "QUEUE_FULL").await;
            }
        }
    }
    assert_eq!(queued.len(), 8);
    let thread = get(&apps[1], "/api/threads/t?messages=none").await;
    assert_eq!((&thread["activeRunId"], &thread["status"]), (&json!("r"), &json!("running")));
    let order: Vec<String> = serde_json::from_value(thread["queuedRunIds"].clone()).expect("ids");
    assert_eq!(vendor.received_bodies("m").len(), 1, "one run at a time");
    gate.send_replace(true);
    let last = parse_run(&format!("{received_text}{}", first.text().await.expect("a whole body")));
    assert_eq!(last.last().expect("an end")["type"], "RUN_FINISHED");
    let mut expected = vec!["First".to_owned(), "Partly and wholly.".to_owned()];
    for (at, run) in order.iter().enumerate() {
        let position = queued.iter().position(|(id, _)| id == run).expect("it is queued");
        let events = events(queued.swap_remove(position).1).await;
        assert_eq!(text_of(&events), answers[at], "{run} in order of arrival");
        let event = events.iter().find(|event| event["name"] == "agent.thread").expect("the thread");
        assert!(event["value"]["queuedMs"].is_u64(), "{event}");
        expected.extend([format!("Say {run}"), answers[at].clone()]);
    }
    let nodes = get(&apps[0], "/api/threads/t").await["nodes"].clone();
    let texts: Vec<String> = nodes
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| node["message"]["content"].as_str().expect("text").to_owned())
        .collect();
    assert_eq!(texts, expected);
    let runs = get(&apps[0], "/api/runs?threadId=t").await["runs"].clone();
    let mut times: Vec<(&str, &str)> = runs
        .as_array()
        .expect("runs")
        .iter()
        .map(|run| (run["startedAt"].as_str().expect("a time"), run["endedAt"].as_str().expect("a time")))
        .collect();
    times.sort_unstable();
    assert_eq!(times.len(), 9, "the refused ones are not stored");
    assert!(times.windows(2).all(|two| two[0].1 <= two[1].0), "runs of a thread do not overlap: {times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_are_answered_in_order_in_sqlite() {
    a_hundred_are_answered_in_order(TestDatabase::Sqlite(TempDir::new().expect("a folder"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_are_answered_in_order_in_postgres() {
    a_hundred_are_answered_in_order(TestDatabase::Postgres(Cluster::start())).await;
}

#[tokio::test]
async fn queued_runs_are_cancelled_by_any_process() {
    let (test, first, _gate) = with_a_run().await;
    let other = test.another_process().await;
    let second = queue(&test.app, "r2", "Two", json!({})).await;
    let third = queue(&other, "r3", "Three", json!({})).await;
    let run = get(&test.app, "/api/runs/r3").await;
    assert_eq!(
        (&run["state"], &run["startedAt"], &run["attached"]),
        (&json!("queued"), &Value::Null, &json!(0))
    );
    let (status, run) = test.call("POST", "/api/runs/r3/cancel", None).await;
    assert_eq!((status, &run["state"]), (200, &json!("queued")), "at once: {run}");
    let third = events(third).await;
    let names: Vec<_> = third.iter().map(|event| event["type"].clone()).collect();
    assert_eq!(names, ["RUN_STARTED", "RUN_FINISHED"]);
    assert_eq!(third[1]["outcome"]["type"], "cancelled");
    let run = test.ended_run("r3").await;
    assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("requested")));
    let (status, thread) =
        call_as(&other, &session_token("u1", "c1"), "POST", "/api/threads/t/cancel", None).await;
    assert_eq!((status, &thread["queuedRunIds"]), (200, &json!(["r2"])));
    for (response, id) in [(second, "r2"), (first, "r1")] {
        assert!(response.text().await.expect("it ends").contains("cancelled"));
        assert_eq!(test.ended_run(id).await["reason"], "requested");
    }
    assert_eq!(test.vendor.received_bodies("m").len(), 1, "no queued run has begun");
    let thread = test.get("/api/threads/t").await;
    assert_eq!((&thread["status"], &thread["queuedRunIds"]), (&json!("idle"), &Value::Null));
    assert_eq!(thread["messageCount"], 2, "a run that has not begun adds no message");
}

#[tokio::test]
async fn a_queued_run_may_outlive_its_client() {
    let (test, first, gate) = with_a_run().await;
    drop(queue(&test.app, "r2", "Two", json!({})).await);
    let run = test.ended_run("r2").await;
    assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("disconnected")));
    test.vendor.on("m", [answer(&["Third."]), answer(&["Fourth."])]);
    drop(queue(&test.app, "r3", "Three", json!({"onDisconnect": "continue"})).await);
    let (status, accepted) =
        test.call("POST", "/api/agent/chat", Some(body("r4", "Four", json!({"background": true})))).await;
    assert_eq!((status, &accepted["state"]), (202, &json!("queued")), "{accepted}");
    gate.send_replace(true);
    first.text().await.expect("it ends");
    assert_eq!(test.ended_run("r3").await["state"], "completed");
    assert_eq!(test.ended_run("r4").await["state"], "completed");
    let expected = ["Hello", "Partly and wholly.", "Three", "Third.", "Four", "Fourth."];
    assert_eq!(test.path("t").await, dialogue(&expected));
}

#[tokio::test]
async fn a_queued_run_is_attached_to_in_any_process() {
    let (test, first, gate) = with_a_run().await;
    let other = test.another_process().await;
    test.vendor.on("m", [answer(&["Second."])]);
    let second = queue(&test.app, "r2", "Two", json!({})).await;
    let attach = async |app: &Server| {
        let request = app.request("GET", "/api/runs/r2/events").bearer_auth(session_token("u1", "c1"));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        response
    };
    let (here, there) = (attach(&test.app).await, attach(&other).await);
    assert_eq!(test.get("/api/runs/r2").await["attached"], 2, "the run's own client, and one reader here");
    gate.send_replace(true);
    first.text().await.expect("it ends");
    let text = second.text().await.expect("a whole body");
    assert_eq!(text_of(&parse_run(&text)), "Second.");
    assert_eq!(here.text().await.expect("a whole body"), text);
    assert_eq!(there.text().await.expect("a whole body"), text);
}

#[tokio::test]
async fn conversations_from_a_client_follow_the_answer_they_waited_for() {
    let (test, first, gate) = with_a_run().await;
    test.vendor.on("m", [answer(&["Second."]), answer(&["Third."])]);
    let message = |id: &str, text: &str| json!({"id": id, "role": "user", "content": text});
    let sent = |run: &str, messages: Value| {
        json!({"threadId": "t", "runId": run, "messages": messages, "onBusy": "queue", "state": {}, "tools": [],
            "context": [], "forwardedProps": {"agentId": "a1"}})
    };
    let hello = json!({"role": "user", "content": "Hello"});
    let two = test.app.chat(&sent("r2", json!([hello, message("m2", "Two")]))).await;
    let three =
        test.app.chat(&sent("r3", json!([hello, message("m2", "Two"), message("m3", "Three")]))).await;
    gate.send_replace(true);
    first.text().await.expect("it ends");
    assert_eq!(text_of(&events(two).await), "Second.");
    assert_eq!(text_of(&events(three).await), "Third.");
    let expected = ["Hello", "Partly and wholly.", "Two", "Second.", "Three", "Third."];
    assert_eq!(test.path("t").await, dialogue(&expected));
    assert_eq!(
        test.prompt(),
        dialogue(&expected[..5]),
        "the prompt has the messages that were added meanwhile"
    );
}

#[tokio::test]
async fn a_refusal_after_the_head_is_an_event() {
    let test = super::approvals::start(json!({})).await;
    let gate = watch::Sender::new(false);
    let mut steps = tool_calls(&[("c1", "createTodo", &json!({"title": "Milk"}).to_string())]);
    steps.insert(1, Step::Until(gate.subscribe()));
    test.vendor.on("m", [steps, answer(&["It is there."])]);
    let first = test.app.chat(&body("r1", "Buy milk", json!({}))).await;
    test.vendor.wait_for_requests("m", 1).await;
    let second = queue(&test.app, "r2", "And eggs", json!({})).await;
    let session = session_token("u1", "c1");
    let object = body("r3", "And bread", json!({"format": "json"}));
    let (object, ()) = tokio::join!(test.app.chat_as(&session, "?format=json", &object), async {
        let fetch = async || test.get("/api/threads/t?messages=none").await;
        poll_until(fetch, |thread| thread["queuedRunIds"] == json!(["r2", "r3"])).await;
        gate.send_replace(true);
    });
    let first = events(first).await;
    let interrupt = &first.last().expect("an end")["outcome"]["interrupts"][0];
    let refused = events(second).await;
    let last = refused.last().expect("an end");
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("INTERRUPTS_OPEN")));
    assert_eq!(test.ended_run("r2").await["state"], "failed");
    let problem = expect_problem(object, 409, "INTERRUPTS_OPEN").await;
    assert_eq!(problem["runId"], "r1", "a response without a head has the whole refusal");
    // A thread that waits for decisions has no run to wait for.
    expect_problem(test.app.chat(&body("r4", "Hello?", json!({}))).await, 409, "INTERRUPTS_OPEN").await;
    let resume = resume_entry(interrupt, json!({"approved": true}));
    let turn = test
        .continue_turn(json!({"threadId": "t", "messages": [], "resume": resume, "onBusy": "queue"}))
        .await;
    assert_eq!(text_of(&turn.events), "It is there.");
}

#[tokio::test]
async fn a_deleted_thread_has_no_queue() {
    let (test, first, _gate) = with_a_run().await;
    let other = test.another_process().await;
    let here = queue(&test.app, "r2", "Two", json!({})).await;
    let there = queue(&other, "r3", "Three", json!({})).await;
    assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
    for response in [here, there, first] {
        assert!(response.text().await.expect("it ends").contains("\"cancelled\""));
    }
    assert_eq!(test.call("GET", "/api/runs/r2", None).await.0, 404);
    test.vendor.on("m", [answer(&["Anew."])]);
    assert_eq!(text_of(&test.say("t", "Hello").await.events), "Anew.");
}

#[tokio::test]
async fn a_message_may_interrupt_the_run_and_the_queue() {
    let (test, first, _gate) = with_a_run().await;
    let other = test.another_process().await;
    test.vendor.on("m", [answer(&["Now."])]);
    let queued =
        [queue(&test.app, "r2", "Two", json!({})).await, queue(&other, "r3", "Three", json!({})).await];
    let now = test.chat(json!({"threadId": "t", "message": "Now", "onBusy": "interrupt"})).await;
    assert_eq!(text_of(&now.events), "Now.");
    for response in queued.into_iter().chain([first]) {
        assert!(response.text().await.expect("it ends").contains("\"cancelled\""));
    }
    for id in ["r1", "r2", "r3"] {
        assert_eq!(test.ended_run(id).await["reason"], "displaced", "{id}");
    }
    assert_eq!(test.prompt(), dialogue(&["Hello", "Partly", "Now"]));
}

#[tokio::test]
async fn no_queued_run_begins_while_the_service_drains() {
    let (test, first, gate) = with_a_run().await;
    let second = queue(&test.app, "r2", "Two", json!({})).await;
    let other = test.another_process().await;
    test.app.stop();
    let last = events(second).await.pop().expect("an end");
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("SERVER_SHUTTING_DOWN")));
    gate.send_replace(true);
    first.text().await.expect("it ends");
    assert_eq!(get(&other, "/api/runs/r1").await["state"], "completed", "the active runs may finish");
    assert_eq!(get(&other, "/api/runs/r2").await["state"], "interrupted");
    assert_eq!(get(&other, "/api/threads/t").await["status"], "idle");
}

/// Sends a message for user `u1`, as the operator's own program.
async fn call_proactively(app: &Server, run: &str, message: &str) -> reqwest::Response {
    let body = json!({"agentId": "a1", "threadId": "t", "runId": run, "message": message, "userId": "u1",
        "companyId": "c1"});
    let request = client().post(app.url("/api/agent/chat")).bearer_auth(INTERNAL_SECRET);
    request.header("x-proactive-trigger", "digest").json(&body).send().await.expect("an answer")
}

#[tokio::test]
async fn proactive_calls_wait_for_the_user_s_run() {
    let (test, first, gate) = with_a_run().await;
    let other = test.another_process().await;
    let answers: Vec<String> = (0..8).map(|at| format!("Answer {at}.")).collect();
    test.vendor.on("m", answers.iter().map(|text| answer(&[text])));
    let mut waiting = Vec::new();
    for at in 0..8 {
        let app = [&test.app, &other][at % 2];
        let response = call_proactively(app, &format!("p{at}"), &format!("Say {at}")).await;
        assert_eq!(response.status(), 200, "the head comes at once");
        waiting.push(response);
    }
    for app in [&test.app, &other] {
        let refused = call_proactively(app, "p8", "Say 8").await;
        assert!(refused.headers().contains_key("retry-after"));
        expect_problem(refused, 429, "QUEUE_FULL").await;
    }
    let runs: Vec<String> = (0..8).map(|at| format!("p{at}")).collect();
    assert_eq!(test.get("/api/threads/t?messages=none").await["queuedRunIds"], json!(runs));
    assert_eq!(test.get("/api/runs/p0").await["state"], "queued");
    assert_eq!(test.vendor.received_bodies("m").len(), 1, "they wait");
    gate.send_replace(true);
    first.text().await.expect("it ends");
    let mut expected = vec!["Hello".to_owned(), "Partly and wholly.".to_owned()];
    for (at, response) in waiting.into_iter().enumerate() {
        assert_eq!(text_of(&events(response).await), answers[at]);
        expected.extend([format!("Say {at}"), answers[at].clone()]);
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(test.path("t").await, dialogue(&expected));
    let run = test.get("/api/runs/p0").await;
    assert_eq!(
        (&run["state"], &run["trigger"]),
        (&json!("completed"), &json!({"kind": "proactive", "reason": "digest"}))
    );
    // The refused run has left no record, and its id can be used.
    assert_eq!(test.call("GET", "/api/runs/p8", None).await.0, 404);
    test.vendor.on("m", [answer(&["Answer 8."])]);
    let later = call_proactively(&test.app, "p8", "Say 8").await;
    assert_eq!(text_of(&events(later).await), "Answer 8.");
}

#[tokio::test]
async fn a_message_without_a_run_and_a_parent_is_refused_while_the_thread_has_a_run() {
    let (test, first, gate) = with_a_run().await;
    let note = |text: &str| json!({"messages": [{"role": "user", "content": text}]});
    let request = test.app.request("POST", "/api/threads/t/messages").bearer_auth(session_token("u1", "c1"));
    let response = request.json(&note("Too early")).send().await.expect("an answer");
    assert_eq!(response.headers()["retry-after"], "2");
    let problem = expect_problem(response, 409, "THREAD_BUSY").await;
    assert_eq!(problem["activeRunId"], "r1");
    assert_eq!(test.path("t").await, dialogue(&["Hello"]), "nothing is stored");
    // A named parent is another branch by the client's choice. The answer is shown when it is complete.
    let root = json!({"messages": [{"role": "user", "content": "Elsewhere"}], "parentId": null});
    assert_eq!(test.call("POST", "/api/threads/t/messages", Some(root)).await.0, 201);
    gate.send_replace(true);
    first.text().await.expect("a whole body");
    assert_eq!(test.path("t").await, dialogue(&["Hello", "Partly and wholly."]));
    assert_eq!(test.call("POST", "/api/threads/t/messages", Some(note("Noted"))).await.0, 201);
    assert_eq!(test.path("t").await, dialogue(&["Hello", "Partly and wholly.", "Noted"]));
}

#[tokio::test]
async fn a_queued_run_is_cancelled_although_its_deleted_thread_is_created_again() {
    let (test, _first, _gate) = with_a_run().await;
    let second = queue(&test.app, "r2", "Second", json!({})).await;
    // By another program, which does not know the runs of this process.
    let deleted = test.stores.conversations.delete(&ThreadKey::new("c1", "u1", "t")).await;
    assert!(deleted.expect("deleted").is_some(), "there is a thread");
    let create = json!({"id": "t", "agentId": "a1"});
    assert_eq!(test.call("POST", "/api/threads", Some(create)).await.0, 201);
    let events = events(second).await;
    let end = events.last().expect("an end");
    assert_eq!(
        (&end["type"], &end["outcome"]),
        (&json!("RUN_FINISHED"), &json!({"type": "cancelled"})),
        "{end}"
    );
    assert_eq!(test.get("/api/threads/t").await["nodes"], json!([]));
}
