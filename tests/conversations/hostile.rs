//! Requests and answers that nobody sends by accident: edited arguments that break out, runs that displace one another a
//! hundred times, a model that repeats the id of a call, answers in a hundred thousand pieces.

use serde_json::{Value, json};

use super::approvals::{resume_entry, start};
use super::{ConversationApp, call_as, dialogue};
use crate::support::server::session_token;
use crate::support::vendor::{Step, answer, delta, finish, stream_head, tool_calls};
use crate::support::{expect_problem, parse_run, poll_until, text_of};

/// Number of pieces of a long answer.
const PIECES: usize = 100_000;

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
    let sent = test.vendor.received_bodies("m").pop().expect("a request");
    let messages = sent["messages"].as_array().expect("messages").clone();
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
    let mut steps = vec![stream_head()];
    let mut pieces = Vec::new();
    for _ in 0..PIECES {
        let Step::Send(bytes) = delta(json!({"content": "x"})) else { panic!("a step with bytes") };
        pieces.extend(bytes);
    }
    steps.push(Step::Send(pieces));
    steps.extend(finish("stop"));
    test.vendor.on("m", [steps]);
    let turn = test.say("t", "At length").await;
    assert_eq!(text_of(&turn.events).len(), PIECES);
    let run = test.get(&format!("/api/runs/{}", turn.run_id())).await;
    assert_eq!(
        (&run["events"]["count"], &run["events"]["complete"]),
        (&json!(turn.events.len()), &json!(true))
    );
    assert_eq!(test.path("t").await[1].1.len(), PIECES);
    let path = format!("/api/runs/{}/events?after={}", turn.run_id(), turn.events.len() - 3);
    let rest = test.app.request("GET", &path).bearer_auth(session_token("u1", "c1"));
    let rest = rest.send().await.expect("an answer").text().await.expect("a whole body");
    assert_eq!(rest.lines().count(), 2);
}

#[tokio::test]
async fn equal_words_are_as_many_messages_as_were_said() {
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
    let first = test.say("t", "Here").await;
    let thread = test.get("/api/threads/t").await;
    let own = thread["nodes"][0]["id"].clone();
    for parent in [json!(other.message_id()), json!("n-of-nobody"), json!("x".repeat(129)), json!("a\u{0}b")]
    {
        let body = json!({"agentId": "a1", "threadId": "t", "message": "B", "parentId": parent});
        let response = test.app.chat(&body).await;
        assert!(matches!(response.status().as_u16(), 400 | 404), "{parent}: {}", response.status());
    }
    // A node that names itself as its parent.
    let nodes =
        json!({"nodes": [{"id": "n1", "parentId": "n1", "message": {"role": "user", "content": "A"}}]});
    let (status, _) =
        call_as(&test.app, &session_token("u1", "c1"), "POST", "/api/threads/t/messages", Some(nodes)).await;
    assert!((400..500).contains(&status), "{status}");
    assert_eq!(test.path("t").await, dialogue(&["Here", "hello world"]));
    let below_question = json!({"threadId": "t", "message": "There", "parentId": own});
    test.chat(below_question).await;
    let read =
        poll_until(async || test.get("/api/threads/t").await, |thread| thread["status"] == "idle").await;
    assert_ne!(read["head"], json!(first.message_id()), "the new branch is shown");
}
