//! Decisions that are made at the same time, or while others are still missing.

use super::*;

/// Number of rounds of a race.
const ROUNDS: usize = 6;

/// Returns the decisions of the audit log once it has the decisions about two runs, one of each process. A process writes its
/// entries in order, so that all earlier ones are stored as well.
async fn audited(app: &Server, last_runs: &[String; 2]) -> Vec<Value> {
    let read = async || {
        let calls = get(app, "/api/agent/tools/audit?agentId=a1&limit=100").await["calls"].clone();
        let calls = calls.as_array().expect("calls").clone();
        calls.into_iter().filter(|call| call["decision"].is_string()).collect::<Vec<Value>>()
    };
    let has_last =
        |calls: &Vec<Value>| last_runs.iter().all(|run| calls.iter().any(|call| call["runId"] == **run));
    poll_until(read, has_last).await
}

async fn approve_and_deny_at_once(database: TestDatabase) {
    let vendor = Vendor::start().await;
    vendor.on_all_with(ask_for_todo);
    let mut all = everyone(&vendor.base_url());
    all["agents"][0]["content"]["approvals"] = json!([{"tools": ["createTodo"], "by": "company"}]);
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    stores.import("the test", &all.to_string()).await.expect("the workspace is imported");
    let apps = [start_process(&database).await, start_process(&database).await];
    let mut expected = vec!["Water the basil".to_owned()];
    for round in 0..ROUNDS {
        let thread = format!("t{round}");
        let approval = ask(&apps[round % 2], &thread).await;
        let posts = (0..8).map(|n| {
            let (app, decision) = (&apps[n % 2], ["approve", "deny"][n / 2 % 2]);
            let approval = &approval;
            async move { (decision, decide(app, approval, decision).await) }
        });
        let statuses = join_all(posts).await;
        let accepted: Vec<&str> =
            statuses.iter().filter(|(_, status)| *status == 200).map(|(decision, _)| *decision).collect();
        assert_eq!(accepted.len(), 4, "one decision counts, and its repetitions are accepted: {statuses:?}");
        assert!(accepted.iter().all(|decision| *decision == accepted[0]), "{statuses:?}");
        assert!(statuses.iter().all(|(_, status)| matches!(status, 200 | 409)), "{statuses:?}");
        let path = format!("/api/threads/{thread}");
        poll_until(async || get(&apps[0], &path).await, |thread| thread["status"] == "idle").await;
        let runs = get(&apps[1], &format!("/api/runs?threadId={thread}")).await["runs"].clone();
        assert_eq!(runs.as_array().expect("runs").len(), 2, "{round}: the run is continued once");
        expected.extend((accepted[0] == "approve").then_some(thread));
    }
    let stores = Stores::open(&config(&database)).await.expect("the store opens");
    assert_eq!(
        todo_titles(&stores, "l1").await,
        expected,
        "an approved call is made once, a denied call never"
    );
    let mut last = [const { String::new() }; 2];
    for (app, run) in apps.iter().zip(&mut last) {
        let thread = format!("last of {}", app.address.port());
        let approval = ask(app, &thread).await;
        *run = get(app, &format!("/api/approvals/{approval}")).await["runId"]
            .as_str()
            .expect("an id")
            .to_owned();
        assert_eq!(decide(app, &approval, "deny").await, 200);
    }
    let calls = audited(&apps[0], &last).await;
    assert_eq!(calls.len(), ROUNDS + 2, "one entry for each decision: {calls:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_approvals_and_denials_at_once_one_counts_in_sqlite() {
    approve_and_deny_at_once(TestDatabase::Sqlite(TempDir::new().expect("a folder"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_approvals_and_denials_at_once_one_counts_in_postgres() {
    approve_and_deny_at_once(TestDatabase::Postgres(Cluster::start())).await;
}

#[tokio::test]
async fn a_message_sent_with_a_decision_leaves_a_consistent_thread() {
    let test = start(json!({})).await;
    let other = test.another_process().await;
    test.vendor.on_all_with(ask_for_todo);
    let resume = |thread: &str, approval: &str, fields: Value| {
        let resume = resume_entry(&json!({ "id": approval }), json!(true));
        let mut body = json!({"agentId": "a1", "threadId": thread, "todoListId": "l1", "messages": [],
            "resume": resume});
        body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        body
    };
    for round in 0..ROUNDS {
        let thread = format!("t{round}");
        let approval = ask(&test.app, &thread).await;
        let message =
            json!({"agentId": "a1", "threadId": thread, "message": "Rather not", "todoListId": "l1"});
        let mut displacing = message.clone();
        displacing["onBusy"] = json!("interrupt");
        let mut bodies = [
            resume(&thread, &approval, json!({})),
            message,
            displacing,
            resume(&thread, &approval, json!({})),
        ];
        bodies.rotate_left(round % 4);
        let sent = bodies.iter().enumerate().map(|(n, body)| {
            let app = if n % 2 == 0 { &test.app } else { &other };
            async move {
                let response = app.chat(body).await;
                (response.status().as_u16(), response.text().await.expect("a whole body"))
            }
        });
        for (status, text) in join_all(sent).await {
            assert!(matches!(status, 200 | 400 | 409), "{round}: {status} {text}");
        }
        // Open questions are withdrawn; then the thread continues.
        let path = format!("/api/threads/{thread}");
        let run = test.get(&path).await["openRunId"].clone();
        if let Some(run) = run.as_str() {
            assert_eq!(test.call("POST", &format!("/api/runs/{run}/cancel"), None).await.0, 200);
        }
        let idle = async || test.get(&path).await;
        let body = poll_until(idle, |thread| thread["status"] == "idle").await;
        assert_eq!(body.get("activeRunId"), None, "{body}");
        let made = test.titles().await.into_iter().filter(|title| *title == thread).count();
        assert!(made <= 1, "{round}: the call is made {made} times");
    }
}

#[tokio::test]
async fn a_decision_counts_while_others_decide_about_the_other_calls() {
    let test = start_with_two_rules().await;
    let calls = tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#), ("c2", "readTodos", "{}")]);
    test.vendor.on("m", [calls, answer(&["Milk is on the list."])]);
    let asking = test.chat(json!({"threadId": "t", "message": "Milk", "todoListId": "l1"})).await;
    let interrupt = |call: &str| {
        let interrupts = asking.last()["outcome"]["interrupts"].as_array().expect("interrupts");
        interrupts.iter().find(|interrupt| interrupt["toolCallId"] == call).expect("an interrupt").clone()
    };
    let (own, theirs) = (interrupt("c1"), interrupt("c2"));
    let path = |interrupt: &Value| format!("/api/approvals/{}", interrupt["id"].as_str().expect("an id"));
    let entry = |interrupt: &Value, approved: bool| json!({"interruptId": interrupt["id"], "status": "resolved", "payload": approved});
    let resume = |resume: Value| json!({"agentId": "a1", "threadId": "t", "messages": [], "resume": resume});
    // The own call is not decided, or there is something that no run would keep.
    let mut said = resume(json!([entry(&own, true)]));
    said["messages"] = json!([{"role": "user", "content": "And bread"}]);
    let forged = resume(json!([entry(&theirs, true)]));
    for (body, open) in [(forged, json!([own, theirs])), (said, json!([theirs]))] {
        let problem = expect_problem(test.app.chat(&body).await, 409, "INTERRUPTS_OPEN").await;
        assert_eq!(problem["interrupts"], open);
    }
    assert_eq!(test.get(&path(&own)).await["state"], "open");
    // The request's copy of another user's call is ignored.
    let both = resume(json!([entry(&own, true), entry(&theirs, true)]));
    let outcome = json!({"type": "interrupt", "interrupts": [theirs]});
    let other_process = test.another_process().await;
    for id in ["again", "and again"] {
        let mut body = both.clone();
        body["runId"] = json!(id);
        let turn = test.continue_turn(body.clone()).await;
        let types: Vec<&Value> = turn.events.iter().map(|event| &event["type"]).collect();
        assert_eq!(types, ["RUN_STARTED", "RUN_FINISHED"]);
        assert_eq!((&turn.last()["outcome"], turn.run_id().as_str()), (&outcome, id));
        // The run is stored with its log, in the turn of the run that waits.
        let path = format!("/api/runs/{}", id.replace(' ', "%20"));
        let run = test.get(&path).await;
        assert_eq!((&run["state"], &run["outcome"]), (&json!("completed"), &outcome));
        assert_eq!((&run["turnId"], &run["continues"]), (&json!(asking.run_id()), &json!(asking.run_id())));
        assert_eq!(run["trigger"]["kind"], "resume");
        for app in [&test.app, &other_process] {
            assert_eq!(read_events(app, &format!("{path}/events")).await, turn.events);
            assert_eq!(read_events(app, &format!("{path}/events?after=0")).await, turn.events[1..]);
            let used = app.chat(&body).await;
            assert_eq!(used.headers()["location"], format!("{path}/events"));
            expect_problem(used, 409, "CONFLICT").await;
        }
    }
    let approval = test.get(&path(&own)).await;
    assert_eq!((&approval["state"], &approval["via"]), (&json!("approved"), &json!("chat")));
    assert_eq!(test.get(&path(&theirs)).await["state"], "open");
    let changed = resume(json!([entry(&own, false)]));
    expect_problem(test.app.chat(&changed).await, 409, "CONFLICT").await;
    let mut background = both;
    background["background"] = json!(true);
    let accepted = test.app.chat(&background).await;
    assert_eq!(accepted.status(), 202);
    let log = accepted.headers()["location"].to_str().expect("text").to_owned();
    assert_eq!(read_events(&test.app, &log).await.last().expect("an end")["outcome"], outcome);
    // The run that has asked waits.
    let thread = test.get("/api/threads/t").await;
    assert_eq!((&thread["status"], &thread["openRunId"]), (&json!("waiting"), &json!(asking.run_id())));
    assert_eq!(test.get(&format!("/api/runs/{}", asking.run_id())).await["state"], "waiting");
    assert_eq!(test.get("/api/runs?threadId=t").await["runs"].as_array().expect("runs").len(), 4);
    assert_eq!(test.titles().await, ["Water the basil"], "no call is made before the last decision");
    assert_eq!(test.vendor.received_bodies("m").len(), 1);
    assert_eq!(test.decide("u2", &theirs, json!({"decision": "approve"})).await.0, 200);
    poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    assert_eq!(test.titles().await, ["Water the basil", "Milk"]);
    assert_eq!(test.vendor.received_bodies("m").len(), 2);
    let owner = session_token("u2", "c1");
    let read = async || {
        let log = call_as(&test.app, &owner, "GET", "/api/agent/tools/audit?agentId=a1", None).await.1;
        let calls = log["calls"].as_array().expect("calls").clone();
        calls.into_iter().filter(|call| call["decision"].is_string()).collect::<Vec<Value>>()
    };
    let decided = poll_until(read, |calls| calls.iter().any(|call| call["userId"] == "u2")).await;
    assert_eq!(decided.len(), 2, "each decision is recorded once: {decided:?}");
}

#[tokio::test]
async fn results_of_the_client_count_while_others_decide() {
    let test = start_with_two_rules().await;
    let calls = tool_calls(&[("c1", "readTodos", "{}"), ("c2", "paint", "{}")]);
    test.vendor.on("m", [calls, answer(&["It is red."])]);
    let body = json!({"threadId": "t", "message": "Paint", "todoListId": "l1", "tools": client_tools()});
    let asking = test.chat(body).await;
    let theirs = asking.last()["outcome"]["interrupts"][0].clone();
    assert_eq!(asking.last()["outcome"]["pendingToolCallIds"], json!(["c2"]));
    let result = json!({"role": "tool", "toolCallId": "c2", "content": "painted"});
    // Nothing is kept with a message, which no run would store.
    let said = json!([result, {"role": "user", "content": "And the door"}]);
    let said = json!({"agentId": "a1", "threadId": "t", "messages": said});
    expect_problem(test.app.chat(&said).await, 409, "INTERRUPTS_OPEN").await;
    let turn = test.continue_turn(json!({"threadId": "t", "messages": [result]})).await;
    let types: Vec<&Value> = turn.events.iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["RUN_STARTED", "RUN_FINISHED"]);
    assert_eq!(turn.last()["outcome"], json!({"type": "interrupt", "interrupts": [theirs]}));
    // The same request again is answered by the open questions again.
    let again = test.continue_turn(json!({"threadId": "t", "messages": [result]})).await;
    assert_eq!(again.last()["outcome"], turn.last()["outcome"]);
    let other = json!([{"role": "tool", "toolCallId": "c2", "content": "painted blue"}]);
    let other = json!({"agentId": "a1", "threadId": "t", "messages": other});
    expect_problem(test.app.chat(&other).await, 409, "CONFLICT").await;
    let thread = test.get("/api/threads/t").await;
    assert_eq!((&thread["status"], &thread["messageCount"]), (&json!("waiting"), &json!(3)));
    assert_eq!(test.vendor.received_bodies("m").len(), 1);
    assert_eq!(test.decide("u2", &theirs, json!({"decision": "approve"})).await.0, 200);
    poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    let sent = tool_results(&test);
    assert!(sent[0].contains("Water the basil"), "{sent:?}");
    assert_eq!(sent[1..], ["painted"]);
    assert_eq!(test.get("/api/threads/t").await["messageCount"], 5);
    let late = test.continue_turn(json!({"threadId": "t", "messages": [result]})).await;
    assert_eq!(
        late.first_id("TEXT_MESSAGE_CONTENT", "delta"),
        "It is red.",
        "the run that continued the turn"
    );
    assert_eq!(test.vendor.received_bodies("m").len(), 2);
}

#[tokio::test]
async fn a_decided_turn_waits_for_results_of_the_client() {
    for by_route in [true, false] {
        let test = start(json!({})).await;
        let calls = tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#), ("c2", "paint", "{}")]);
        test.vendor.on("m", [calls, answer(&["It is red."])]);
        let body = json!({"threadId": "t", "message": "Paint", "todoListId": "l1", "tools": client_tools()});
        let asking = test.chat(body).await;
        let interrupt = asking.last()["outcome"]["interrupts"][0].clone();
        if by_route {
            assert_eq!(test.decide("u1", &interrupt, json!({"decision": "approve"})).await.0, 200);
        } else {
            let turn = test.resume("t", &interrupt, json!(true)).await;
            assert_eq!(turn.last()["outcome"], json!({"type": "success", "pendingToolCallIds": ["c2"]}));
        }
        let is_ready = |thread: &Value| thread["status"] == "awaitingTools";
        poll_until(async || test.get("/api/threads/t").await, is_ready).await;
        assert_eq!(test.titles().await, ["Water the basil", "Milk"], "the approved call is made at once");
        assert_eq!(test.vendor.received_bodies("m").len(), 1, "the model waits for all results");
        let result = json!([{"role": "tool", "toolCallId": "c2", "content": "painted"}]);
        let turn = test.continue_turn(json!({"threadId": "t", "messages": result})).await;
        assert_eq!(turn.last()["outcome"], Value::Null);
        let sent = tool_results(&test);
        assert!(sent[0].contains("Milk"), "{sent:?}");
        assert_eq!(sent[1..], ["painted"]);
        assert_eq!(test.get("/api/threads/t").await["status"], "idle");
    }
}

#[tokio::test]
async fn a_message_with_a_decision_continues_without_client_results() {
    let test = start(json!({})).await;
    let calls = tool_calls(&[("c1", "createTodo", r#"{"title":"Milk"}"#), ("c2", "paint", "{}")]);
    test.vendor.on("m", [calls, answer(&["As you like."])]);
    let body = json!({"threadId": "t", "message": "Paint", "todoListId": "l1", "tools": client_tools()});
    let asking = test.chat(body).await;
    let resume = resume_entry(&asking.last()["outcome"]["interrupts"][0], json!(true));
    let turn = test.continue_turn(json!({"threadId": "t", "message": "Never mind", "resume": resume})).await;
    assert_eq!(turn.last()["outcome"], Value::Null);
    assert!(tool_results(&test)[1].starts_with("no result"), "{:?}", tool_results(&test));
}

/// Returns the results of calls in the latest prompt.
fn tool_results(test: &ConversationApp) -> Vec<String> {
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let messages = request_body["messages"].as_array().expect("messages").iter();
    let results = messages.filter(|message| message["role"] == "tool");
    results.map(|result| result["content"].as_str().expect("text").to_owned()).collect()
}
