//! Tool calls that wait for people: by AG-UI's interrupts, the AI SDK's parts and the routes of approvals.

use agent_platform::records::Collection;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::{ConversationApp, Turn, call_as, everyone};
use crate::support::server::{self, INTERNAL_SECRET, Server, session_token, todo_titles};
use crate::support::vendor::{Step, Vendor, answer, tool_calls};
use crate::support::{expect_problem, parse_events, parse_run, poll_until};

pub(super) fn call(id: &str, title: &str) -> Vec<Step> {
    tool_calls(&[(id, "createTodo", &json!({"title": title}).to_string())])
}

/// Starts an application whose agent `a1` needs approval for `createTodo`, with further members of the rule.
pub(super) async fn start(rule: Value) -> ConversationApp {
    start_with(rule, &[]).await
}

pub(super) async fn start_with(rule: Value, settings: &[(&str, &str)]) -> ConversationApp {
    let vendor = Vendor::start().await;
    let mut all = everyone(&vendor.base_url());
    let mut approvals = json!({"tools": ["createTodo"]});
    approvals.as_object_mut().expect("an object").extend(rule.as_object().expect("an object").clone());
    all["agents"][0]["content"]["approvals"] = json!([approvals]);
    let stores = server::stores(&all).await;
    let app = server::app_with_stores(stores.clone(), settings).await;
    ConversationApp { vendor, app, stores }
}

/// Returns the `resume` of a decision about an interrupt.
pub(super) fn resume_entry(interrupt: &Value, payload: Value) -> Value {
    json!([{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}])
}

impl ConversationApp {
    /// Asks for a todo; the run waits for approval. Returns the interrupt.
    pub(super) async fn ask(&self, thread: &str) -> Value {
        let body = json!({"threadId": thread, "message": "Buy milk", "todoListId": "l1"});
        let turn = self.chat(body).await;
        let outcome = &turn.last()["outcome"];
        assert_eq!(outcome["type"], "interrupt", "{:?}", turn.events);
        outcome["interrupts"][0].clone()
    }

    /// Sends a request that continues a run, whose results have no calls in this one.
    pub(super) async fn continue_turn(&self, body: Value) -> Turn {
        let mut body = body;
        (body["agentId"], body["todoListId"]) = (json!("a1"), json!("l1"));
        let response = self.app.chat(&body).await;
        let status = response.status();
        let text = response.text().await.expect("a whole body");
        assert_eq!(status, 200, "{text}");
        Turn { events: parse_events(&text) }
    }

    pub(super) async fn resume(&self, thread: &str, interrupt: &Value, payload: Value) -> Turn {
        let resume = resume_entry(interrupt, payload);
        self.continue_turn(json!({"threadId": thread, "messages": [], "resume": resume})).await
    }

    pub(super) async fn titles(&self) -> Vec<String> {
        todo_titles(&self.stores, "l1").await
    }

    /// Waits until the audit log has this number of decisions. Returns user, decision and outcome of each, newest first.
    async fn decisions(&self, count: usize) -> Vec<(String, String, String)> {
        let read = async || {
            let audit = self.get("/api/agent/tools/audit?agentId=a1").await;
            let calls = audit["calls"].as_array().expect("calls").clone();
            calls.into_iter().filter(|call| call["decision"].is_string()).collect::<Vec<_>>()
        };
        let calls = poll_until(read, |calls| calls.len() >= count).await;
        let word = |value: &Value| value.as_str().expect("a word").to_owned();
        let entry = |call: &Value| {
            assert_eq!(call["tool"], "createTodo");
            assert!(call["runId"].is_string(), "{call}");
            (word(&call["userId"]), word(&call["decision"]), word(&call["outcome"]))
        };
        calls.iter().map(entry).collect()
    }

    pub(super) async fn decide(&self, user: &str, approval: &Value, body: Value) -> (u16, Value) {
        let path = format!("/api/approvals/{}", approval["id"].as_str().expect("an id"));
        call_as(&self.app, &session_token(user, "c1"), "POST", &path, Some(body)).await
    }
}

pub(super) fn results(turn: &Turn) -> Vec<String> {
    let results = turn.events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT");
    results.map(|event| event["content"].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn an_approved_call_is_made_and_the_turn_continues() {
    let test = start(json!({"message": "Add it?"})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["It is on the list."])]);
    let interrupt = test.ask("t").await;
    assert_eq!((&interrupt["reason"], &interrupt["toolCallId"]), (&json!("tool_call"), &json!("c1")));
    assert_eq!(interrupt["message"], "Add it?");
    assert_eq!(interrupt["metadata"]["agentd"]["tool"], "createTodo");
    assert!(interrupt["responseSchema"]["properties"]["editedArgs"]["properties"]["title"].is_object());
    assert_eq!(test.titles().await, ["Water the basil"], "nothing was done");
    let thread = test.get("/api/threads/t?messages=none").await;
    assert_eq!(thread["status"], "waiting");
    let waiting = test.get(&format!("/api/runs/{}", thread["openRunId"].as_str().expect("an id"))).await;
    assert_eq!(
        (&waiting["state"], &waiting["approvals"][0]["arguments"]),
        (&json!("waiting"), &json!({"title": "Milk"}))
    );

    let turn = test.resume("t", &interrupt, json!({"approved": true})).await;
    let kinds: Vec<&str> = turn.events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds[0], "RUN_STARTED");
    let position_of = |kind| {
        kinds.iter().position(|found| *found == kind).unwrap_or_else(|| panic!("no {kind}: {kinds:?}"))
    };
    assert!(position_of("TOOL_CALL_RESULT") < position_of("TEXT_MESSAGE_START"));
    assert!(!kinds.contains(&"TOOL_CALL_START"), "the call is not started again");
    assert_eq!(turn.last()["outcome"], Value::Null);
    assert_eq!(test.titles().await, ["Water the basil", "Milk"]);
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let last = request_body["messages"].as_array().expect("messages").last().expect("a message").clone();
    assert_eq!((&last["role"], &last["tool_call_id"]), (&json!("tool"), &json!("c1")));
    let run = test.get(&format!("/api/runs/{}", turn.run_id())).await;
    assert_eq!((&run["trigger"]["kind"], &run["continues"]), (&json!("resume"), &waiting["id"]));
    let before = test.get(&format!("/api/runs/{}", waiting["id"].as_str().expect("an id"))).await;
    let approval = &before["approvals"][0];
    assert_eq!((&before["state"], &approval["state"]), (&json!("completed"), &json!("approved")));
    assert_eq!((&approval["executed"], &approval["via"]), (&json!("done"), &json!("chat")));
    assert_eq!(approval["decidedBy"], "u1");
    let log = test
        .app
        .request("GET", &format!("/api/runs/{}/events", turn.run_id()))
        .bearer_auth(session_token("u1", "c1"))
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("a body");
    assert_eq!(parse_events(&log), turn.events, "the log has the same events");
    let thread = test.get("/api/threads/t").await;
    let roles: Vec<&Value> =
        thread["nodes"].as_array().expect("nodes").iter().map(|node| &node["message"]["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(thread["status"], "idle");
}

#[tokio::test]
async fn denials_edits_and_withdrawals_reach_the_model() {
    for (payload, expected, made) in [
        (json!({"approved": false, "reason": "too much milk"}), "too much milk", None),
        (json!(false), "denied", None),
        (json!({"approved": true, "editedArgs": {"title": "Oat milk"}}), "Oat milk", Some("Oat milk")),
    ] {
        let test = start(json!({})).await;
        test.vendor.on("m", [call("c1", "Milk"), answer(&["I see."])]);
        let interrupt = test.ask("t").await;
        let turn = test.resume("t", &interrupt, payload).await;
        let results = results(&turn);
        assert!(results[0].contains(expected), "{results:?}");
        let request_text = test.vendor.received_bodies("m").pop().expect("a request").to_string();
        assert!(request_text.contains(expected), "{request_text}");
        assert_eq!(test.titles().await.get(1).map(String::as_str), made);
    }
    let test = start(json!({})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["I see."])]);
    let interrupt = test.ask("t").await;
    let resume = json!([{"interruptId": interrupt["id"], "status": "cancelled"}]);
    let body = json!({"threadId": "t", "message": "Forget it", "resume": resume});
    let turn = test.continue_turn(body).await;
    assert!(results(&turn)[0].contains("withdrawn"));
    let path: Vec<String> = test.path("t").await.into_iter().map(|(role, _)| role).collect();
    assert_eq!(path, ["user", "assistant", "user", "tool", "assistant"]);
}

#[tokio::test]
async fn a_history_without_ids_adds_no_duplicates_beside_a_decision() {
    let text = |role: &str, text: &str| json!({"role": role, "content": text});
    let history = [text("user", "Hi"), text("assistant", "Hello."), text("user", "Buy milk")];
    for more in [&[][..], &[text("user", "And bread")]] {
        let test = start(json!({})).await;
        test.vendor.on("m", [answer(&["Hello."]), call("c1", "Milk"), answer(&["It is on the list."])]);
        test.say("t", "Hi").await;
        let resume = resume_entry(&test.ask("t").await, json!({"approved": true}));
        let messages = [&history[..], more].concat();
        test.continue_turn(json!({"threadId": "t", "messages": messages, "resume": resume})).await;
        let said: Vec<String> = test
            .path("t")
            .await
            .into_iter()
            .filter_map(|(role, text)| (role == "user").then_some(text))
            .collect();
        let expected = ["Hi", "Buy milk", "And bread"];
        assert_eq!(said, expected[..2 + more.len()]);
        assert_eq!(test.titles().await, ["Water the basil", "Milk"]);
    }
    // AG-UI's list is the whole conversation, even if it has one message.
    let test = start(json!({})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["It is on the list."])]);
    let resume = resume_entry(&test.ask("t").await, json!({"approved": true}));
    let body = json!({"threadId": "t", "runId": "r2", "tools": [], "context": [], "state": {},
        "forwardedProps": {}, "messages": [{"id": "new", "role": "user", "content": "Buy milk"}],
        "resume": resume});
    test.continue_turn(body).await;
    let roles: Vec<String> = test.path("t").await.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    // A message alone is a new one.
    let test = start(json!({})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["It is on the list."])]);
    let resume = resume_entry(&test.ask("t").await, json!({"approved": true}));
    test.continue_turn(json!({"threadId": "t", "message": "Buy milk", "resume": resume})).await;
    let roles: Vec<String> = test.path("t").await.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "user", "tool", "assistant"]);
}

#[tokio::test]
async fn a_thread_that_waits_takes_no_message_without_a_decision() {
    let test = start(json!({"editable": false})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["Hello."])]);
    let interrupt = test.ask("t").await;
    let body = |extra: Value| {
        let mut body = json!({"agentId": "a1", "threadId": "t", "message": "Hello?"});
        body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        body
    };
    let problem = expect_problem(test.app.chat(&body(json!({}))).await, 409, "INTERRUPTS_OPEN").await;
    assert_eq!(problem["interrupts"], json!([interrupt]));
    let entry =
        |id: &Value, payload: Value| json!([{"interruptId": id, "status": "resolved", "payload": payload}]);
    for resume in [entry(&json!("made-up"), json!(true)), json!([])] {
        expect_problem(test.app.chat(&body(json!({"resume": resume}))).await, 409, "INTERRUPTS_OPEN").await;
    }
    let edited = entry(&interrupt["id"], json!({"approved": true, "editedArgs": {"title": "Oat"}}));
    expect_problem(test.app.chat(&body(json!({"resume": edited}))).await, 400, "INVALID_REQUEST").await;
    let wrong = entry(&interrupt["id"], json!({"approved": true, "editedArgs": {"title": 5}}));
    let problem =
        expect_problem(test.app.chat(&body(json!({"resume": wrong}))).await, 400, "INVALID_REQUEST").await;
    assert!(problem["detail"].as_str().expect("text").contains("title"), "{problem}");
    assert_eq!(test.vendor.received_bodies("m").len(), 1, "nothing was sent");
    // Another course withdraws the question.
    let turn = test.chat(json!({"threadId": "t", "message": "Hello?", "onBusy": "interrupt"})).await;
    assert_eq!(turn.last()["type"], "RUN_FINISHED");
    let runs = test.get("/api/runs?threadId=t").await;
    assert_eq!(runs["runs"][1]["state"], "cancelled");
    assert_eq!(runs["runs"][1]["approvals"][0]["state"], "cancelled");
    assert_eq!(test.titles().await.len(), 1);
}

#[tokio::test]
async fn a_decision_by_the_route_continues_the_run_in_the_background() {
    let test = start(json!({"by": "company"})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["Done."])]);
    let interrupt = test.ask("t").await;
    let (status, _) = test.decide("u9", &interrupt, json!({"decision": "approve"})).await;
    assert_eq!(status, 200, "everybody of the company decides");
    let thread =
        poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    assert_eq!(thread["nodes"].as_array().expect("nodes").len(), 4, "{thread}");
    assert_eq!(test.titles().await, ["Water the basil", "Milk"]);
    let runs = test.get("/api/runs?threadId=t").await;
    assert_eq!(runs["runs"][0]["trigger"]["kind"], "approval");
    // The same decision again changes nothing; a different decision is a conflict.
    assert_eq!(test.decide("u9", &interrupt, json!({"decision": "approve"})).await.0, 200);
    assert_eq!(test.decide("u1", &interrupt, json!({"decision": "deny"})).await.0, 409);
    // The chat has nothing left to decide.
    let resume = resume_entry(&interrupt, json!(true));
    let late = json!({"agentId": "a1", "threadId": "t", "messages": [], "resume": resume});
    let problem = expect_problem(test.app.chat(&late).await, 400, "INVALID_REQUEST").await;
    assert_eq!(problem["detail"], "resume has decisions that the thread is not waiting for");
    assert_eq!(test.titles().await.len(), 2);
    let approvals = test.get("/api/approvals?state=approved").await;
    assert_eq!(approvals["approvals"][0]["id"], interrupt["id"]);
}

/// Returns the ids of the approvals that a user's list has.
async fn listed_ids(app: &Server, user: &str, company: &str, query: &str) -> Vec<Value> {
    let path = format!("/api/approvals{query}");
    let (status, list) = call_as(app, &session_token(user, company), "GET", &path, None).await;
    assert_eq!(status, 200, "{list}");
    list["approvals"].as_array().expect("a list").iter().map(|found| found["id"].clone()).collect()
}

#[tokio::test]
async fn a_decision_in_the_run_of_another_person_stays_in_the_list() {
    let test = start(json!({"by": "company"})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["Done."])]);
    let interrupt = test.ask("t").await;
    assert_eq!(listed_ids(&test.app, "u9", "c1", "?state=approved").await, Vec::<Value>::new());
    for _ in 0..2 {
        assert_eq!(test.decide("u9", &interrupt, json!({"decision": "approve"})).await.0, 200);
    }
    poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    let own = [interrupt["id"].clone()];
    let another_process = test.another_process().await;
    for app in [&test.app, &another_process] {
        for query in ["", "?state=approved", "?agentId=a1"] {
            assert_eq!(listed_ids(app, "u9", "c1", query).await, own, "{query}");
        }
        for query in ["?state=denied", "?state=open", "?agentId=a2"] {
            assert_eq!(listed_ids(app, "u9", "c1", query).await, Vec::<Value>::new(), "{query}");
        }
        for (user, company) in [("u2", "c1"), ("u9", "c2")] {
            assert_eq!(listed_ids(app, user, company, "").await, Vec::<Value>::new(), "{user} of {company}");
        }
    }
    assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
    assert_eq!(
        listed_ids(&test.app, "u9", "c1", "").await,
        Vec::<Value>::new(),
        "it is gone with the thread"
    );
    let records = Collection::new("c1", "decidedApprovals").and_then(|all| all.within("u9"));
    let count = test.stores.records.count(&records.expect("a collection")).await.expect("read");
    assert_eq!(count, 0, "no reference to the run is left");
}

#[tokio::test]
async fn approvals_are_seen_and_decided_by_those_who_may() {
    for (by, may) in [("user", ["u1"].as_slice()), ("owner", &["u1"]), ("company", &["u1", "u2"])] {
        let test = start(json!({"by": by})).await;
        test.vendor.on("m", [call("c1", "Milk")]);
        let interrupt = test.ask("t").await;
        for user in ["u1", "u2"] {
            let session = session_token(user, "c1");
            let listed = call_as(&test.app, &session, "GET", "/api/approvals?state=open", None).await.1;
            let is_seen = !listed["approvals"].as_array().expect("a list").is_empty();
            assert_eq!(is_seen, may.contains(&user), "{by} {user}");
            let path = format!("/api/approvals/{}", interrupt["id"].as_str().expect("an id"));
            let (status, _) = call_as(&test.app, &session, "GET", &path, None).await;
            assert_eq!(status, if may.contains(&user) { 200 } else { 404 }, "{by} {user}");
            if !may.contains(&user) {
                assert_eq!(test.decide(user, &interrupt, json!({"decision": "approve"})).await.0, 404);
            }
        }
        let foreign = session_token("u3", "c2");
        let path = format!("/api/approvals/{}", interrupt["id"].as_str().expect("an id"));
        for id in [path.as_str(), "/api/approvals/x", "/api/approvals/abc.%21", "/api/approvals/a.dTEKcg"] {
            assert_eq!(call_as(&test.app, &foreign, "GET", id, None).await.0, 404, "{id}");
        }
        let bad = [
            json!({}),
            json!({"decision": "maybe"}),
            json!({"decision": "deny", "arguments": {}}),
            json!({"decision": "approve", "arguments": {"title": 5}}),
            json!({"decision": "deny", "x": 1}),
        ];
        for body in bad {
            assert_eq!(test.decide("u1", &interrupt, body.clone()).await.0, 400, "{body}");
        }
        assert_eq!(test.titles().await.len(), 1);
    }
}

/// The runs of a company that wait are read in pages of 200.
#[tokio::test]
async fn the_waiting_calls_of_others_hide_none() {
    const OTHERS: usize = 201;
    let test = start_with(json!({"by": "user"}), &[("RUNS_PER_MINUTE", "1000000")]).await;
    test.vendor.on_all(call("c1", "Milk"));
    let body = json!({"agentId": "a1", "threadId": "mine", "message": "Buy milk"});
    let response = test.app.chat_as(&session_token("u2", "c1"), "", &body).await;
    let events = parse_events(&response.text().await.expect("a whole body"));
    assert_eq!(events.last().expect("an end")["outcome"]["type"], "interrupt", "{events:?}");
    let asking = &test;
    stream::iter(0..OTHERS)
        .for_each_concurrent(16, |number| async move {
            asking.ask(&format!("t{number}")).await;
        })
        .await;
    let open = async |user: &str| {
        let session = session_token(user, "c1");
        let listed = call_as(&test.app, &session, "GET", "/api/approvals?state=open", None).await.1;
        listed["approvals"].as_array().expect("a list").len()
    };
    assert_eq!(open("u2").await, 1);
    assert!(open("u1").await >= OTHERS - 1);
}

#[tokio::test]
async fn of_two_decisions_at_once_one_counts_and_the_call_is_made_once() {
    let test = start(json!({"by": "company"})).await;
    let other = test.another_process().await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["Done."])]);
    let interrupt = test.ask("t").await;
    let path = format!("/api/approvals/{}", interrupt["id"].as_str().expect("an id"));
    let approvals = (0..20).map(|number| {
        let app = if number % 2 == 0 { &test.app } else { &other };
        let (path, session) = (path.clone(), session_token("u1", "c1"));
        async move { call_as(app, &session, "POST", &path, Some(json!({"decision": "approve"}))).await.0 }
    });
    let statuses = futures_util::future::join_all(approvals).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    assert_eq!(test.titles().await, ["Water the basil", "Milk"]);
    assert_eq!(test.get("/api/runs?threadId=t").await["runs"].as_array().expect("runs").len(), 2);
}

#[tokio::test]
async fn questions_that_expire_free_their_thread() {
    let test = start_with(json!({"ttlMs": 1}), &[("RUN_LEASE_MS", "1000")]).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["Too late."])]);
    let interrupt = test.ask("t").await;
    let read = async || test.get("/api/threads/t").await;
    let thread = poll_until(read, |thread| thread["status"] == "idle").await;
    assert_eq!(thread.get("openRunId"), None, "{thread}");
    let last = thread["nodes"].as_array().and_then(|nodes| nodes.last()).expect("a node").clone();
    assert_eq!((&last["message"]["role"], &thread["head"]), (&json!("tool"), &last["id"]));
    assert!(last["message"]["content"].as_str().expect("text").contains("in time"), "{last}");
    let late = test.decide("u1", &interrupt, json!({"decision": "approve"})).await;
    assert_eq!((late.0, &late.1["code"]), (410, &json!("INTERRUPT_EXPIRED")));
    assert_eq!(test.get("/api/approvals").await["approvals"][0]["state"], "expired");
    assert_eq!(test.get("/api/runs?threadId=t").await["runs"][0]["state"], "completed");
    // The model learns of it with the next message.
    test.say("t", "And?").await;
    let prompt = test.prompt();
    assert!(prompt[2].0 == "tool" && prompt[2].1.contains("in time"), "{prompt:?}");
    assert_eq!(prompt[3], ("user".to_owned(), "And?".to_owned()));
    assert_eq!(test.titles().await.len(), 1);
    assert_eq!(test.decisions(1).await, [("u1".to_owned(), "expired".to_owned(), "refused".to_owned())]);
}

#[tokio::test]
async fn a_decided_run_whose_agent_is_gone_frees_its_thread() {
    let test = start_with(json!({}), &[("RUN_LEASE_MS", "1000")]).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["Never."])]);
    let interrupt = test.ask("t").await;
    assert_eq!(test.call("DELETE", "/api/agents/a1", None).await.0, 204);
    let decided = test.decide("u1", &interrupt, json!({"decision": "approve"})).await;
    assert_eq!(decided.0, 200, "{}", decided.1);
    let thread =
        poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    assert_eq!(thread.get("openRunId"), None, "{thread}");
    let runs = test.get("/api/runs?threadId=t").await["runs"].clone();
    assert_eq!((&runs[0]["state"], &runs[1]["state"]), (&json!("failed"), &json!("completed")));
    assert_eq!(test.titles().await.len(), 1, "the call is not made");
}

#[tokio::test]
async fn decisions_are_in_the_audit_log() {
    let test = start(json!({"by": "company"})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["Done."]), call("c2", "Tea"), answer(&["Done."])]);
    let first = test.ask("a").await;
    assert_eq!(test.decide("u2", &first, json!({"decision": "deny", "reason": "No"})).await.0, 200);
    poll_until(async || test.get("/api/threads/a").await, |thread| thread["status"] == "idle").await;
    assert_eq!(
        test.decide("u2", &first, json!({"decision": "deny"})).await.0,
        200,
        "a repeated decision changes nothing"
    );
    for (reason, status) in [("No", 200), ("Never", 409)] {
        let deny = json!({"decision": "deny", "reason": reason});
        assert_eq!(test.decide("u2", &first, deny).await.0, status, "{reason}");
    }
    let second = test.ask("b").await;
    test.resume("b", &second, json!({"approved": true, "editedArgs": {"title": "Green tea"}})).await;
    let entry = |user: &str, decision: &str, outcome: &str| {
        (user.to_owned(), decision.to_owned(), outcome.to_owned())
    };
    assert_eq!(test.decisions(2).await, [entry("u1", "edited", "ok"), entry("u2", "denied", "refused")]);
    let audit = test.get("/api/agent/tools/audit?agentId=a1").await.to_string();
    assert!(!audit.contains("Green tea") && !audit.contains("Milk"), "{audit}");
}

#[tokio::test]
async fn unattended_runs_follow_the_policy() {
    for (unattended, made, waits) in [("deny", false, false), ("allow", true, false), ("wait", false, true)] {
        let test = start(json!({"unattended": unattended})).await;
        test.vendor.on("m", [call("c1", "Milk"), answer(&["So be it."])]);
        let body = json!({"agentId": "a1", "threadId": "t", "message": "Buy milk", "todoListId": "l1",
            "userId": "u1", "companyId": "c1"});
        let request = test.app.request("POST", "/api/agent/chat").bearer_auth(INTERNAL_SECRET);
        let request = request.header("x-proactive-trigger", "rain").json(&body);
        let events = parse_run(&request.send().await.expect("an answer").text().await.expect("a body"));
        let last = events.last().expect("an event");
        assert_eq!(last["outcome"]["type"] == "interrupt", waits, "{unattended}: {last}");
        assert_eq!(test.titles().await.len(), 1 + usize::from(made), "{unattended}");
    }
    // A run that is not stored cannot wait.
    let test = start(json!({"unattended": "wait"})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["So be it."])]);
    let turn = test.chat(json!({"message": "Buy milk", "todoListId": "l1"})).await;
    assert!(results(&turn)[0].contains("approval"), "{:?}", turn.events);
    assert_eq!(turn.last()["outcome"], Value::Null);
}

#[tokio::test]
async fn several_calls_wait_together_and_others_are_made() {
    let test = start(json!({})).await;
    let calls = tool_calls(&[
        ("c1", "createTodo", r#"{"title":"Milk"}"#),
        ("c2", "readTodos", "{}"),
        ("c3", "createTodo", r#"{"title":"Bread"}"#),
    ]);
    test.vendor.on("m", [calls, answer(&["Both are there."])]);
    let body = json!({"threadId": "t", "message": "Milk and bread", "todoListId": "l1"});
    let first = test.chat(body).await;
    assert_eq!(results(&first).len(), 1, "readTodos needs no approval");
    let interrupts = first.last()["outcome"]["interrupts"].as_array().expect("interrupts").clone();
    assert_eq!(interrupts.len(), 2);
    let entry = |at: usize, approved: bool| json!({"interruptId": interrupts[at]["id"], "status": "resolved", "payload": {"approved": approved}});
    let one = json!({"agentId": "a1", "threadId": "t", "messages": [], "resume": [entry(0, true)]});
    let problem = expect_problem(test.app.chat(&one).await, 409, "INTERRUPTS_OPEN").await;
    assert_eq!(problem["interrupts"].as_array().expect("a list").len(), 1, "{problem}");
    // One by the route, the other with the chat.
    assert_eq!(test.decide("u1", &interrupts[0], json!({"decision": "approve"})).await.0, 200);
    let resume = json!([entry(1, false)]);
    let turn = test.continue_turn(json!({"threadId": "t", "messages": [], "resume": resume})).await;
    assert_eq!(results(&turn).len(), 2);
    assert_eq!(test.titles().await, ["Water the basil", "Milk"]);
}

#[tokio::test]
async fn the_ai_sdk_is_asked_and_answers_by_parts() {
    let test = start(json!({})).await;
    test.vendor.on("m", [call("c1", "Milk"), answer(&["Done."])]);
    let session = session_token("u1", "c1");
    let body = json!({"agentId": "a1", "id": "t", "todoListId": "l1", "trigger": "submit-message",
        "messages": [{"id": "u-1", "role": "user", "parts": [{"type": "text", "text": "Buy milk"}]}]});
    let chunks = test.app.chat_as(&session, "?format=ui-message", &body).await.text().await.expect("a body");
    let request = chunks
        .lines()
        .find(|line| line.contains("tool-approval-request"))
        .unwrap_or_else(|| panic!("{chunks}"));
    let request: Value = serde_json::from_str(request.trim_start_matches("data: ")).expect("JSON");
    assert_eq!(request["toolCallId"], "c1");
    let thread = test.get("/api/threads/t?format=ui-message").await;
    let message = thread["nodes"][1]["message"].clone();
    let part = message["parts"].as_array().expect("parts").last().expect("a part").clone();
    assert_eq!(
        (&part["state"], &part["approval"]["id"]),
        (&json!("approval-requested"), &request["approvalId"])
    );
    let mut answered = part;
    answered["state"] = json!("approval-responded");
    answered["approval"] = json!({"id": request["approvalId"], "approved": true});
    let body = json!({"agentId": "a1", "id": "t", "todoListId": "l1", "trigger": "submit-message",
        "messages": [{"id": "u-1", "role": "user", "parts": [{"type": "text", "text": "Buy milk"}]},
            {"id": message["id"], "role": "assistant", "parts": [answered]}]});
    let chunks = test.app.chat_as(&session, "?format=ui-message", &body).await.text().await.expect("a body");
    assert!(
        chunks.contains(&format!(r#""messageId":{}"#, message["id"])),
        "the same message goes on: {chunks}"
    );
    assert!(chunks.contains("tool-output-available"), "{chunks}");
    assert_eq!(test.titles().await, ["Water the basil", "Milk"]);
}

#[tokio::test]
async fn calls_of_our_own_runtime_wait_too() {
    let vendor = Vendor::start().await;
    let runtime = server::runtime(&[]).await;
    let mut all = everyone(&vendor.base_url());
    all["agents"][0]["content"] = json!({"systemPrompt": "Be brief.", "mcpPreset": ["readTodos", "createTodo"],
        "agentServerUrl": runtime.url(""), "agentServerProvider": "openai", "agentServerModel": "m",
        "agentServerLocalUrl": vendor.base_url(), "agentServerApiKey": "k",
        "approvals": [{"tools": ["createTodo"]}]});
    let stores = server::stores(&all).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    let test = ConversationApp { vendor, app, stores };
    test.vendor.on("m", [call("c1", "Milk"), answer(&["It is on the list."])]);
    let interrupt = test.ask("t").await;
    assert_eq!(test.titles().await.len(), 1);
    let turn = test.resume("t", &interrupt, json!(true)).await;
    assert_eq!(turn.last()["type"], "RUN_FINISHED", "{:?}", turn.events);
    assert_eq!(test.titles().await, ["Water the basil", "Milk"]);
    assert_eq!(test.vendor.received_bodies("m").len(), 2);
    // Without a thread, nothing can wait.
    test.vendor.on("m", [call("c2", "Bread"), answer(&["I cannot."])]);
    let turn = test.chat(json!({"message": "Bread", "todoListId": "l1"})).await;
    assert!(results(&turn)[0].contains("approval"), "{:?}", turn.events);
    assert_eq!(test.titles().await.len(), 2);
}

#[tokio::test]
async fn an_approved_call_has_the_time_zone_of_its_user() {
    let vendor = Vendor::start().await;
    let mut all = everyone(&vendor.base_url());
    all["agents"][0]["content"]["mcpPreset"] = json!(["recordMetric"]);
    all["agents"][0]["content"]["approvals"] = json!([{"tools": ["recordMetric"], "by": "company"}]);
    let stores = server::stores(&all).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    let test = ConversationApp { vendor, app, stores };
    // A time of the user's zone, Europe/Berlin: by a decision in the chat, by another person's, and for a request in a zone
    // of its own.
    let arguments = json!({"name": "height", "value": 1, "at": "2026-07-01 08:00"}).to_string();
    for (thread, zone, by_route, expected) in [
        ("t1", None, false, "2026-07-01T06:00:00.000Z"),
        ("t2", None, true, "2026-07-01T06:00:00.000Z"),
        ("t3", Some("Asia/Tokyo"), false, "2026-06-30T23:00:00.000Z"),
    ] {
        test.vendor.on("m", [tool_calls(&[(thread, "recordMetric", &arguments)]), answer(&["Done."])]);
        let mut body = json!({"threadId": thread, "message": "Record it"});
        if let Some(zone) = zone {
            body["timezone"] = json!(zone);
        }
        let asked = test.chat(body).await;
        let interrupt = asked.last()["outcome"]["interrupts"][0].clone();
        if by_route {
            assert_eq!(test.decide("u2", &interrupt, json!({"decision": "approve"})).await.0, 200);
        } else {
            test.resume(thread, &interrupt, json!(true)).await;
        }
        let path = format!("/api/threads/{thread}");
        let read = poll_until(async || test.get(&path).await, |thread| thread["status"] == "idle").await;
        let nodes = read["nodes"].as_array().expect("nodes");
        let result = nodes.iter().find(|node| node["message"]["role"] == "tool").expect("a result");
        let content = result["message"]["content"].as_str().expect("text");
        assert!(content.contains(expected), "{thread}: {content}");
    }
}

#[tokio::test]
async fn the_notification_of_an_approved_call_is_deleted_with_its_thread() {
    let vendor = Vendor::start().await;
    let mut all = everyone(&vendor.base_url());
    all["agents"][0]["content"]["tools"] = json!(["sendNotification"]);
    all["agents"][0]["content"]["approvals"] = json!([{"tools": ["sendNotification"]}]);
    let stores = server::stores(&all).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    let test = ConversationApp { vendor, app, stores };
    let arguments = json!({"title": "Done"}).to_string();
    test.vendor.on("m", [tool_calls(&[("c1", "sendNotification", &arguments)]), answer(&["Sent."])]);
    let asked = test.chat(json!({"threadId": "t", "message": "Tell me"})).await;
    let interrupt = asked.last()["outcome"]["interrupts"][0].clone();
    test.resume("t", &interrupt, json!(true)).await;
    let sent = crate::pulse::notifications(&test.stores).await;
    let threads: Vec<Option<&str>> = sent.iter().map(|found| found.thread_id.as_deref()).collect();
    assert_eq!(threads, [Some("t")]);
    assert_eq!(test.call("DELETE", "/api/threads/t", None).await.0, 204);
    assert!(crate::pulse::notifications(&test.stores).await.is_empty());
}

#[tokio::test]
async fn a_waiting_run_can_be_cancelled_and_deleted() {
    let test = start(json!({})).await;
    test.vendor.on("m", [call("c1", "Milk"), call("c2", "Bread")]);
    let interrupt = test.ask("t").await;
    let run = test.get("/api/threads/t?messages=none").await["openRunId"].as_str().expect("an id").to_owned();
    let (status, cancelled) = test.call("POST", &format!("/api/runs/{run}/cancel"), None).await;
    assert_eq!((status, &cancelled["state"]), (200, &json!("cancelled")));
    assert_eq!(test.get("/api/threads/t").await["status"], "idle");
    assert_eq!(test.decide("u1", &interrupt, json!({"decision": "approve"})).await.0, 409);
    let interrupt = test.ask("t2").await;
    assert_eq!(test.call("DELETE", "/api/threads/t2", None).await.0, 204);
    assert_eq!(test.decide("u1", &interrupt, json!({"decision": "approve"})).await.0, 404);
    assert_eq!(test.titles().await.len(), 1);
}
