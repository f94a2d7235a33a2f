//! Hostile requests and answers: edited arguments that break out, runs that replace one another a
//! hundred times, a model that repeats the id of a call, answers in a hundred thousand pieces.

use serde_json::{Value, json};

use super::approvals::{resume_entry, start};
use super::{ConversationApp, call_as, dialogue};
use crate::support::log::LogBuffer;
use crate::support::server::session_token;
use crate::support::vendor::{Step, answer, delta, finish, stream_head, tool_calls};
use crate::support::{env_number, expect_problem, parse_run, poll_until, text_of};

/// Number of pieces of a long answer; `ANSWER_PIECES` sets another.
const PIECES: usize = 100_000;
/// Length of an answer in one piece that is just short of the limits, and of one beyond them.
const LARGE_PIECE_BYTES: usize = (1 << 20) - 1024;
const TOO_LARGE_PIECE_BYTES: usize = 8 << 20;

#[tokio::test]
async fn edited_arguments_are_those_of_the_tool_or_refused() {
    let test = start(json!({})).await;
    test.vendor.on(
        "m",
        [tool_calls(&[("c1", "createTodo", &json!({"title": "Milk"}).to_string())]), answer(&["I see."])],
    );
    let interrupt = test.ask("t").await;
    let edited = |arguments: Value| {
        let payload = json!({"approved": true, "editedArgs": arguments});
        json!({"agentId": "a1", "threadId": "t", "messages": [], "resume": resume_entry(&interrupt, payload)})
    };
    for arguments in [
        json!({"title": ["Milk"]}),
        json!({"title": null}),
        json!({}),
        json!([{"title": "Milk"}]),
        json!("{\"title\":\"Milk\"}"),
        json!({"title": "x".repeat(256 << 10)}),
    ] {
        let response = test.app.chat(&edited(arguments.clone())).await;
        let shown = arguments.to_string().chars().take(80).collect::<String>();
        assert_eq!(response.status(), 400, "{shown}");
    }
    assert_eq!(test.vendor.received_bodies("m").len(), 1, "nothing was sent to the model");
    assert_eq!(test.titles().await.len(), 1, "nothing was done");
    // Members that the schema does not know reach no other tool and no other call.
    let arguments = json!({"title": "Oat", "__proto__": {"admin": true}, "tool": "readTodos", "name": "x"});
    let turn = test.resume("t", &interrupt, json!({"approved": true, "editedArgs": arguments})).await;
    assert_eq!(turn.last()["outcome"], Value::Null, "it can still be decided");
    assert_eq!(test.titles().await, ["Water the basil", "Oat"]);
}

#[tokio::test]
async fn of_32_calls_those_that_need_approval_wait_and_one_is_made() {
    let test = start(json!({})).await;
    let (ids, arguments): (Vec<String>, Vec<String>) =
        (0..32).map(|n| (format!("c{n}"), json!({"title": format!("Todo {n}")}).to_string())).unzip();
    let calls: Vec<(&str, &str, &str)> = ids
        .iter()
        .zip(&arguments)
        .enumerate()
        .map(|(n, (id, arguments))| match n {
            7 => (id.as_str(), "readTodos", "{}"),
            _ => (id.as_str(), "createTodo", arguments.as_str()),
        })
        .collect();
    test.vendor.on("m", [tool_calls(&calls), answer(&["All done."])]);
    let turn = test.chat(json!({"threadId": "t", "message": "Go", "todoListId": "l1"})).await;
    let interrupts = turn.last()["outcome"]["interrupts"].as_array().expect("interrupts").clone();
    assert_eq!(interrupts.len(), 31, "{:?}", turn.last());
    assert_eq!(test.titles().await.len(), 1);
    let entries: Vec<Value> = interrupts
        .iter()
        .flat_map(|interrupt| {
            let entry = resume_entry(interrupt, json!({"approved": true}));
            entry.as_array().expect("an entry").clone()
        })
        .collect();
    // A part of them is not enough.
    let body = json!({"agentId": "a1", "threadId": "t", "messages": [], "resume": entries[..30]});
    expect_problem(test.app.chat(&body).await, 409, "INTERRUPTS_OPEN").await;
    test.continue_turn(json!({"threadId": "t", "messages": [], "resume": entries})).await;
    let titles = test.titles().await;
    assert_eq!(titles.len(), 32);
    for n in (0..32).filter(|n| *n != 7) {
        let title = format!("Todo {n}");
        assert_eq!(titles.iter().filter(|found| **found == title).count(), 1, "{title}");
    }
}

#[tokio::test]
async fn a_model_that_repeats_the_id_of_a_call_leaves_an_intact_thread() {
    let test = ConversationApp::start().await;
    let twice = tool_calls(&[("c1", "readTodos", "{}"), ("c1", "readTodos", "{}")]);
    test.vendor.on("m", [twice, answer(&["Basil."]), answer(&["Sure."])]);
    test.chat(json!({"threadId": "t", "message": "What is to do?", "todoListId": "l1"})).await;
    let turn = test.say("t", "Sure?").await;
    assert_eq!(turn.last()["type"], "RUN_FINISHED");
    let request_body = test.vendor.received_bodies("m").pop().expect("a request");
    let messages = request_body["messages"].as_array().expect("messages").clone();
    let calls: usize =
        messages.iter().filter_map(|message| message["tool_calls"].as_array()).map(Vec::len).sum();
    let results = messages.iter().filter(|message| message["role"] == "tool").count();
    assert_eq!(calls, results, "each call has one result: {messages:?}");
}

#[tokio::test]
async fn a_hundred_runs_displace_one_another() {
    let test = ConversationApp::start().await;
    test.vendor.on_all_with(|body| match body.to_string().contains("the last") {
        true => answer(&["Finally."]),
        false => vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall],
    });
    let mut displaced = Vec::new();
    for number in 0..100 {
        let body = json!({"agentId": "a1", "threadId": "t", "runId": format!("r{number}"),
            "message": format!("Question {number}"), "onBusy": "interrupt"});
        let response = test.app.chat(&body).await;
        assert_eq!(response.status(), 200, "{number}");
        displaced.push(response);
    }
    let body = json!({"threadId": "t", "runId": "last", "message": "the last", "onBusy": "interrupt"});
    assert_eq!(text_of(&test.chat(body).await.events), "Finally.");
    let mut answers = 1;
    for (number, response) in displaced.into_iter().enumerate() {
        let events = parse_run(&response.text().await.expect("it ends"));
        // A run that is displaced before its first word leaves no message.
        answers += usize::from(!text_of(&events).is_empty());
        assert_eq!(events.last().expect("an end")["outcome"]["type"], "cancelled", "{number}");
        assert_eq!(test.ended_run(&format!("r{number}")).await["reason"], "displaced", "{number}");
    }
    let thread = test.get("/api/threads/t?messages=none").await;
    assert_eq!((&thread["status"], &thread["activeRunId"]), (&json!("idle"), &Value::Null));
    assert_eq!(thread["messageCount"], 101 + answers, "no message is lost");
}

#[tokio::test]
async fn an_answer_in_a_hundred_thousand_pieces_is_kept_whole() {
    let test = ConversationApp::start().await;
    let count = env_number("ANSWER_PIECES", PIECES);
    let mut steps = vec![stream_head()];
    let mut pieces = Vec::new();
    for _ in 0..count {
        let Step::Send(bytes) = delta(json!({"content": "x"})) else { panic!("a step with bytes") };
        pieces.extend(bytes);
    }
    steps.push(Step::Send(pieces));
    steps.extend(finish("stop"));
    test.vendor.on("m", [steps]);
    let turn = test.say("t", "At length").await;
    assert_eq!(text_of(&turn.events).len(), count);
    let run = test.get(&format!("/api/runs/{}", turn.run_id())).await;
    assert_eq!(
        (&run["events"]["count"], &run["events"]["complete"]),
        (&json!(turn.events.len()), &json!(true))
    );
    assert_eq!(test.path("t").await[1].1.len(), count);
    let path = format!("/api/runs/{}/events?after={}", turn.run_id(), turn.events.len() - 3);
    let log_tail = test.app.request("GET", &path).bearer_auth(session_token("u1", "c1"));
    let log_tail = log_tail.send().await.expect("an answer").text().await.expect("a whole body");
    assert_eq!(log_tail.lines().count(), 2);
}

#[tokio::test]
async fn an_answer_of_one_large_piece_is_kept_whole_or_refused() {
    let piece = |bytes: usize| {
        let mut steps = vec![stream_head(), delta(json!({"content": "x".repeat(bytes)}))];
        steps.extend(finish("stop"));
        steps
    };
    let test = ConversationApp::start().await;
    test.vendor.on("m", [piece(LARGE_PIECE_BYTES), piece(TOO_LARGE_PIECE_BYTES), answer(&["Shortly."])]);
    let body = json!({"agentId": "a1", "threadId": "t", "message": "At length", "runId": "r"});
    let first = test.app.chat(&body).await.text().await.expect("a whole body");
    let events = parse_run(&first);
    assert_eq!(events.last().expect("an end")["type"], "RUN_FINISHED");
    assert_eq!(text_of(&events).len(), LARGE_PIECE_BYTES);
    let run = test.get("/api/runs/r").await;
    assert_eq!((&run["events"]["count"], &run["events"]["complete"]), (&json!(events.len()), &json!(true)));
    let log = test.app.request("GET", "/api/runs/r/events").bearer_auth(session_token("u1", "c1"));
    let log = log.send().await.expect("an answer").text().await.expect("a whole body");
    assert!(log == first, "the log has the same {} bytes: {}", first.len(), log.len());
    assert_eq!(test.path("t").await[1].1.len(), LARGE_PIECE_BYTES);

    let turn = test.say("u", "At greater length").await;
    assert_eq!((turn.last()["type"].as_str(), text_of(&turn.events).len()), (Some("RUN_ERROR"), 0));
    let run = test.get(&format!("/api/runs/{}", turn.run_id())).await;
    assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &turn.last()["code"]));
    assert_eq!(run["events"]["complete"], true);
    test.say("u", "Again").await;
    assert_eq!(test.path("u").await.last().expect("an answer").1, "Shortly.");
}

#[tokio::test]
async fn secrets_in_arguments_and_results_stay_in_their_thread() {
    const SECRETS: [&str; 4] = ["argument-canary", "result-canary", "edited-canary", "reason-canary"];
    let log = LogBuffer::install();
    let test = start(json!({"by": "user", "message": "Add it?"})).await;
    let other = test.another_process().await;
    let ask = |title: &str| tool_calls(&[("c1", "createTodo", &json!({ "title": title }).to_string())]);
    let read = tool_calls(&[("c0", "readTodos", "{}")]);
    let answers = [
        ask(SECRETS[1]),
        answer(&["Done."]),
        read,
        ask(SECRETS[0]),
        answer(&["Done."]),
        ask("x"),
        answer(&["No."]),
    ];
    test.vendor.on("m", answers);
    let mut seen_by_others = String::new();
    // The result of `readTodos` contains a secret, too.
    let interrupt = test.ask("other").await;
    test.resume("other", &interrupt, json!(true)).await;
    let body = json!({"threadId": "t", "message": "Buy milk", "todoListId": "l1"});
    let turn = test.chat(body).await;
    let interrupt = turn.last()["outcome"]["interrupts"][0].clone();
    let own_events = serde_json::to_string(&turn.events).expect("JSON");
    assert!(own_events.contains(SECRETS[1]), "the owner sees the result: {own_events}");
    seen_by_others.push_str(&turn.custom("agent.thread").expect("an event").to_string());
    let approval = format!("/api/approvals/{}", interrupt["id"].as_str().expect("an id"));
    assert_eq!(test.get(&approval).await["arguments"]["title"], SECRETS[0], "and the arguments");
    let run = format!("/api/runs/{}", turn.run_id());
    let audit = "/api/agent/tools/audit?agentId=a1";
    let paths = [
        "/api/approvals",
        "/api/approvals?state=open",
        &approval,
        "/api/threads",
        "/api/runs",
        &run,
        "/api/threads/t",
        "/api/threads/t/export",
        audit,
    ];
    let look_around = async |visible_text: &mut String| {
        for (user, company) in [("u2", "c1"), ("u3", "c2"), ("u1", "c2")] {
            for (app, path) in [&test.app, &other].into_iter().flat_map(|app| paths.map(|path| (app, path))) {
                let request = app.request("GET", path).bearer_auth(session_token(user, company));
                visible_text
                    .push_str(&request.send().await.expect("an answer").text().await.expect("a body"));
            }
            let decide = json!({"decision": "approve", "arguments": {"title": [SECRETS[2]]}});
            let bearer = session_token(user, company);
            let request = test.app.request("POST", &approval).bearer_auth(bearer).json(&decide);
            visible_text.push_str(&request.send().await.expect("an answer").text().await.expect("a body"));
        }
    };
    look_around(&mut seen_by_others).await;
    // Problems do not contain the values, not even for the owner.
    let decide = |entry: Value| json!({"agentId": "a1", "threadId": "t", "messages": [], "resume": [entry]});
    let invalid_arguments =
        json!({"approved": true, "editedArgs": {"title": [SECRETS[2]], "list": SECRETS[2]}});
    let entry =
        |payload: Value| json!({"interruptId": interrupt["id"], "status": "resolved", "payload": payload});
    for body in [
        json!({"agentId": "a1", "threadId": "t", "message": "Hello?"}),
        decide(entry(invalid_arguments)),
        decide(entry(json!({"approved": SECRETS[2]}))),
        decide(json!({"interruptId": SECRETS[2], "status": SECRETS[2]})),
        decide(json!({"interruptId": SECRETS[2], "status": "resolved", "payload": true})),
    ] {
        let response = test.app.chat(&body).await;
        assert!(response.status().is_client_error(), "{body}");
        seen_by_others.push_str(&response.text().await.expect("a body"));
    }
    for body in [
        json!({"decision": "approve", "arguments": {"title": {"x": SECRETS[2]}}}),
        json!({"decision": SECRETS[2]}),
        json!({"decision": "deny", "reason": SECRETS[3].repeat(200)}),
    ] {
        let request = test.app.request("POST", &approval).bearer_auth(session_token("u1", "c1"));
        let response = request.json(&body).send().await.expect("an answer");
        assert_eq!(response.status(), 400, "{body}");
        seen_by_others.push_str(&response.text().await.expect("a body"));
    }
    let edited = json!({"approved": true, "editedArgs": {"title": SECRETS[2]}});
    test.resume("t", &interrupt, edited.clone()).await;
    assert_eq!(test.titles().await, ["Water the basil", SECRETS[1], SECRETS[2]]);
    let denied = test.ask("t2").await;
    test.resume("t2", &denied, json!({"approved": false, "reason": SECRETS[3]})).await;
    look_around(&mut seen_by_others).await;
    let response = test.app.chat(&decide(entry(edited))).await;
    seen_by_others.push_str(&response.text().await.expect("a body"));
    // The decisions are in the audit, without their words.
    let audited = async || test.get(audit).await.to_string();
    let audited = poll_until(audited, |text| text.contains("edited") && text.contains("denied")).await;
    seen_by_others.push_str(&audited);
    let log = log.text();
    assert!(
        log.contains("run ended") && seen_by_others.contains("INTERRUPTS_OPEN"),
        "the log and the thread have entries"
    );
    for (source, text) in [("the log", &log), ("the thread as other users see it", &seen_by_others)] {
        for secret in SECRETS {
            let found = text.find(secret).map(|at| {
                text.chars()
                    .skip(text[..at].chars().count().saturating_sub(300))
                    .take(400)
                    .collect::<String>()
            });
            assert_eq!(found, None, "{secret} is in {source}");
        }
    }
}

#[tokio::test]
async fn equal_texts_remain_separate_messages() {
    let test = ConversationApp::start().await;
    for _ in 0..5 {
        test.vendor.on("m", [answer(&["Yes."])]);
        test.say("t", "Sure?").await;
    }
    assert_eq!(test.path("t").await, dialogue(&["Sure?", "Yes."].repeat(5)));
    // A client that resends all of it and adds the same words once more.
    test.vendor.on("m", [answer(&["Yes."])]);
    let mut messages: Vec<Value> = (0..5)
        .flat_map(|_| {
            [json!({"role": "user", "content": "Sure?"}), json!({"role": "assistant", "content": "Yes."})]
        })
        .collect();
    messages.push(json!({"role": "user", "content": "Sure?"}));
    test.chat(json!({"threadId": "t", "messages": messages})).await;
    assert_eq!(test.path("t").await, dialogue(&["Sure?", "Yes."].repeat(6)));
}

#[tokio::test]
async fn parents_are_of_the_thread() {
    let test = ConversationApp::start().await;
    let other = test.say("other", "Elsewhere").await;
    test.say("t", "Here").await;
    let thread = test.get("/api/threads/t").await;
    let node_id = thread["nodes"][0]["id"].clone();
    for (parent, status, code, detail) in [
        (other.message_id(), 404, "NOT_FOUND", "parentId not found"),
        ("n-of-nobody".to_owned(), 404, "NOT_FOUND", "parentId not found"),
        ("x".repeat(129), 400, "INVALID_REQUEST", "parentId is longer than 128 bytes"),
        ("a\u{0}b".to_owned(), 400, "INVALID_REQUEST", "parentId contains control characters"),
    ] {
        let body = json!({"agentId": "a1", "threadId": "t", "message": "B", "parentId": parent});
        let problem = expect_problem(test.app.chat(&body).await, status, code).await;
        assert_eq!(problem["detail"], detail, "{parent}");
    }
    // A node that names itself as its parent.
    let nodes =
        json!({"nodes": [{"id": "n1", "parentId": "n1", "message": {"role": "user", "content": "A"}}]});
    let (status, problem) =
        call_as(&test.app, &session_token("u1", "c1"), "POST", "/api/threads/t/messages", Some(nodes)).await;
    let expected = json!("messages has no message that can be stored");
    assert_eq!((status, &problem["detail"]), (400, &expected), "{problem}");
    assert_eq!(test.path("t").await, dialogue(&["Here", "hello world"]));
    let below_question = json!({"threadId": "t", "message": "There", "parentId": node_id});
    let below = test.chat(below_question).await;
    let thread =
        poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    assert_eq!(thread["head"], json!(below.message_id()), "the new branch is shown");
}
