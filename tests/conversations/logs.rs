//! Logs of runs: re-attaching at any event, in any format and in any process, and runs that go on without a client.

use std::time::Duration;

use agent_core::event::{AssistantRole, Event};
use agent_platform::conversation::{
    ChunkWriter, EndRun, LogEnd, RunChunk, RunEnding, RunKey, RunLease, RunRecord, ThreadOwner,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{ConversationApp, approvals, dialogue, whole_run};
pub(super) use crate::support::read_until;
use crate::support::server::{Server, session_token};
use crate::support::vendor::{Step, answer, delta, finish, stream_head, tool_calls};
use crate::support::{TEST_TIMEOUT, expect_problem, parse_run, poll_until, text_of};

/// Formats in which a log is read from an event on.
const FORMATS: [&str; 4] = ["ndjson", "sse", "ui-message", "n8n"];

/// Returns an answer that waits in the middle until the gate is opened.
fn gated() -> (Vec<Step>, watch::Sender<bool>) {
    let gate = watch::Sender::new(false);
    let mut steps = vec![stream_head(), delta(json!({"content": "Partly "})), Step::Until(gate.subscribe())];
    steps.push(delta(json!({"content": "and "})));
    steps.push(delta(json!({"content": "wholly."})));
    steps.extend(finish("stop"));
    (steps, gate)
}

fn body(fields: Value) -> Value {
    let mut body = json!({"agentId": "a1", "threadId": "t", "message": "Hello", "runId": "r1"});
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    body
}

pub(super) async fn open_log(app: &Server, query: &str) -> reqwest::Response {
    let request = app.request("GET", &format!("/api/runs/r1/events{query}"));
    request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer")
}

/// Reads a log to its end.
pub(super) async fn read_log(app: &Server, query: &str) -> String {
    let response = open_log(app, query).await;
    assert_eq!(response.status(), 200, "{query}");
    response.text().await.expect("a whole body")
}

/// Returns the pieces of a body, one for each event that the format shows.
fn pieces(format: &str, body: &str) -> Vec<String> {
    match format {
        "ndjson" | "n8n" => body.split_inclusive('\n').map(str::to_owned).collect(),
        _ => body.split_inclusive("\n\n").map(str::to_owned).collect(),
    }
}

#[tokio::test]
async fn a_log_continues_the_first_response_byte_for_byte_at_every_event() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    let made =
        [tool_calls(&[("c1", "createTodo", r#"{"title":"Größe 🙂"}"#)]), answer(&["One ", "two ", "three."])];
    for format in FORMATS {
        test.vendor.on("m", made.clone());
        let mut fields = body(json!({"todoListId": "l1"}));
        fields["runId"] = json!(format);
        fields["threadId"] = json!(format);
        let first = test.app.chat_as(&session_token("u1", "c1"), &format!("?format={format}"), &fields).await;
        let first = first.text().await.expect("a whole body");
        let path = format!("/api/runs/{format}/events");
        let events = test.app.request("GET", &path).bearer_auth(session_token("u1", "c1"));
        let events = parse_run(&events.send().await.expect("an answer").text().await.expect("a body"));
        let run = test.get(&format!("/api/runs/{format}")).await;
        assert_eq!(run["events"]["count"], events.len());
        assert_eq!(run["events"]["complete"], true);
        for after in 0..events.len() {
            for app in [&test.app, &other] {
                let path = format!("{path}?after={after}&format={format}");
                let later_events = app.request("GET", &path).bearer_auth(session_token("u1", "c1"));
                let later_events = later_events.send().await.expect("an answer");
                if after == events.len() - 1 {
                    assert_eq!(later_events.status(), 204, "nothing follows the terminal event");
                    continue;
                }
                let later_events = later_events.text().await.expect("a whole body");
                assert!(first.ends_with(&later_events), "{format} after {after}: {later_events}");
                if matches!(format, "ndjson" | "sse") {
                    let shown = pieces(format, &first);
                    assert_eq!(later_events, shown[after + 1..].concat(), "{format} after {after}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_running_run_s_log_is_read() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body(json!({}))).await;
    let received_text = read_until(&mut first, "Partly").await;
    let count = received_text.lines().count();
    // What there is, at every event, without waiting.
    for after in 0..count {
        let later_events = read_log(&test.app, &format!("?wait=false&after={after}")).await;
        let expected: String = received_text.split_inclusive('\n').skip(after + 1).collect();
        assert!(later_events.starts_with(&expected), "after {after}: {later_events}");
    }
    assert_eq!(test.get("/api/runs/r1").await["attached"], 1);
    let mut readers = Vec::new();
    for format in FORMATS {
        readers.push((format, open_log(&test.app, &format!("?format={format}")).await));
    }
    let attached = async || test.get("/api/runs/r1").await["attached"].clone();
    poll_until(attached, |attached| *attached == 5).await;
    gate.send_replace(true);
    let later_events = first.text().await.expect("a whole body");
    let full_text = format!("{received_text}{later_events}");
    parse_run(&full_text);
    for (format, reader) in readers {
        let live = reader.text().await.expect("a whole body");
        assert_eq!(live, read_log(&test.app, &format!("?format={format}")).await, "{format}: live and over");
        if format == "ndjson" {
            assert_eq!(live, full_text);
        }
    }
    let collected: Value =
        serde_json::from_str(&read_log(&test.app, "?format=json").await).expect("an object");
    assert_eq!(collected["output"], "Partly and wholly.");
}

#[tokio::test]
async fn a_running_run_s_log_is_read_in_another_process() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body(json!({}))).await;
    let received_text = read_until(&mut first, "Partly").await;
    let mut elsewhere = open_log(&other, "").await;
    let attached_text = read_until(&mut elsewhere, "Partly").await;
    gate.send_replace(true);
    let full_text = format!("{received_text}{}", first.text().await.expect("a whole body"));
    assert_eq!(format!("{attached_text}{}", elsewhere.text().await.expect("a whole body")), full_text);
    assert_eq!(read_log(&other, "").await, full_text);
}

#[tokio::test]
async fn a_run_set_to_continue_outlives_its_client() {
    for format in ["ndjson", "json", "ui-message"] {
        let test = ConversationApp::start().await;
        let (steps, gate) = gated();
        test.vendor.on("m", [steps, answer(&["Again."])]);
        let session = session_token("u1", "c1");
        let request_body = body(json!({"onDisconnect": "continue"}));
        let query = format!("?format={format}");
        let request = test.app.chat_as(&session, &query, &request_body);
        let left = async {
            tokio::select! {
                response = request => {
                    // The head of a stream is there; its body is not read.
                    drop(response);
                    test.vendor.wait_for_requests("m", 1).await;
                }
                () = test.vendor.wait_for_requests("m", 1) => {}
            }
        };
        left.await;
        let attached = async || test.get("/api/runs/r1").await["attached"].clone();
        poll_until(attached, |attached| *attached == 0).await;
        gate.send_replace(true);
        let run = test.ended_run("r1").await;
        assert_eq!(
            (&run["state"], &run["onDisconnect"]),
            (&json!("completed"), &json!("continue")),
            "{format}: {run}"
        );
        assert_eq!(test.path("t").await, dialogue(&["Hello", "Partly and wholly."]));
        assert_eq!(text_of(&parse_run(&read_log(&test.app, "").await)), "Partly and wholly.");
    }
}

#[tokio::test]
async fn a_run_without_a_client_has_its_grace() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body(json!({"graceMs": 600_000}))).await;
    read_until(&mut first, "Partly").await;
    drop(first);
    let mut second = open_log(&test.app, "").await;
    read_until(&mut second, "Partly").await;
    gate.send_replace(true);
    assert!(second.text().await.expect("a whole body").contains("wholly."));
    assert_eq!(test.ended_run("r1").await["state"], "completed");

    test.vendor.on("m", [vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall]]);
    let mut second = test.app.chat(&body(json!({"graceMs": 50, "runId": "r2"}))).await;
    read_until(&mut second, "Partly").await;
    drop(second);
    let run = test.ended_run("r2").await;
    assert_eq!(
        (&run["state"], &run["reason"], &run["graceMs"]),
        (&json!("cancelled"), &json!("disconnected"), &json!(50))
    );
    test.vendor.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn a_reader_keeps_a_run_whose_client_has_left() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body(json!({}))).await;
    read_until(&mut first, "Partly").await;
    let mut reader = open_log(&test.app, "").await;
    read_until(&mut reader, "Partly").await;
    drop(first);
    let attached = async || test.get("/api/runs/r1").await["attached"].clone();
    poll_until(attached, |attached| *attached == 1).await;
    gate.send_replace(true);
    assert!(reader.text().await.expect("a whole body").contains("wholly."));
    assert_eq!(test.ended_run("r1").await["state"], "completed");
}

#[tokio::test]
async fn a_run_in_the_background_is_answered_at_once() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let accepted = test.app.chat(&body(json!({"background": true}))).await;
    assert_eq!(accepted.status(), 202);
    assert_eq!(accepted.headers()["location"], "/api/runs/r1/events");
    let answer: Value = accepted.json().await.expect("an object");
    assert_eq!(answer, json!({"threadId": "t", "runId": "r1", "state": "running"}));
    gate.send_replace(true);
    assert_eq!(text_of(&parse_run(&read_log(&test.app, "").await)), "Partly and wholly.");
    assert_eq!(test.ended_run("r1").await["onDisconnect"], "continue");
}

#[tokio::test]
async fn a_run_is_cancelled_from_any_process() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    let session = session_token("u1", "c1");
    for (number, (app, path)) in [
        (&test.app, "/api/runs/r0/cancel"),
        (&other, "/api/runs/r1/cancel"),
        (&test.app, "/api/threads/t/cancel"),
        (&other, "/api/threads/t/cancel"),
    ]
    .into_iter()
    .enumerate()
    {
        test.vendor.on("m", [vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall]]);
        let mut first =
            test.app.chat(&body(json!({"runId": format!("r{number}"), "onDisconnect": "continue"}))).await;
        let received_text = read_until(&mut first, "Partly").await;
        let (status, _) = super::call_as(app, &session, "POST", path, None).await;
        assert_eq!(status, 200, "{path}");
        let full_text = format!("{received_text}{}", first.text().await.expect("a whole body"));
        let events = parse_run(&full_text);
        assert_eq!(events.last().expect("an end")["outcome"], json!({"type": "cancelled"}), "{path}");
        test.vendor.wait_for_disconnects(number + 1).await;
        let run = test.ended_run(&format!("r{number}")).await;
        assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("requested")), "{path}");
        let (status, again) =
            super::call_as(app, &session, "POST", &format!("/api/runs/r{number}/cancel"), None).await;
        assert_eq!((status, &again["state"]), (200, &json!("cancelled")), "once more, nothing changes");
    }
    let nodes = test.get("/api/threads/t").await["nodes"].clone();
    assert_eq!(nodes.as_array().expect("nodes").last().expect("an answer")["status"], "cancelled");
}

#[tokio::test]
async fn a_run_that_ends_while_its_answer_is_held_back_makes_no_further_call() {
    let test = ConversationApp::start_with(&[("MODEL_ATTEMPTS", "2")]).await;
    test.vendor.on("m", [vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall]]);
    let session = session_token("u1", "c1");
    let request_body = body(json!({}));
    let (object, ()) = tokio::join!(test.app.chat_as(&session, "?format=json", &request_body), async {
        test.vendor.wait_for_requests("m", 1).await;
        let cancel = async || test.call("POST", "/api/runs/r1/cancel", None).await.0;
        poll_until(cancel, |status| *status == 200).await;
    });
    let object: Value = object.json().await.expect("JSON");
    assert_eq!((&object["output"], &object["finishReason"]), (&json!(""), &json!("cancelled")));
    test.vendor.wait_for_disconnects(1).await;
    assert_eq!(test.ended_run("r1").await["reason"], "requested");
    assert!(!read_log(&test.app, "").await.contains("Partly"));

    let request_body = body(json!({"runId": "r2"}));
    tokio::select! {
        _ = test.app.chat_as(&session, "?format=json", &request_body) => panic!("the vendor stalls"),
        () = test.vendor.wait_for_requests("m", 2) => {}
    }
    assert_eq!(test.ended_run("r2").await["reason"], "disconnected");
    test.vendor.wait_for_disconnects(2).await;
    assert_eq!(test.vendor.received_bodies("m").len(), 2);
}

#[tokio::test]
async fn a_message_may_interrupt_the_run_of_its_thread() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    test.vendor.on(
        "m",
        [
            vec![stream_head(), delta(json!({"content": "Partly"})), Step::Stall],
            answer(&["Second."]),
            answer(&["Third."]),
        ],
    );
    let mut first = test.app.chat(&body(json!({}))).await;
    let received_text = read_until(&mut first, "Partly").await;
    let next = body(json!({"runId": "r2", "message": "Rather this", "onBusy": "interrupt"}));
    assert_eq!(text_of(&whole_run(&other, &next).await.events), "Second.");
    let later_text = first.text().await.expect("it ends");
    assert_eq!(
        parse_run(&format!("{received_text}{later_text}")).last().expect("an end")["outcome"]["type"],
        "cancelled"
    );
    assert_eq!(test.ended_run("r1").await["reason"], "displaced");
    assert_eq!(test.prompt(), dialogue(&["Hello", "Partly", "Rather this"]));
    // An idle thread has nothing to interrupt.
    let third = body(json!({"runId": "r3", "message": "And?", "onBusy": "interrupt"}));
    assert_eq!(text_of(&whole_run(&test.app, &third).await.events), "Third.");
}

#[tokio::test]
async fn the_ai_sdk_resumes_a_thread_s_run() {
    let test = ConversationApp::start().await;
    let other = test.another_process().await;
    let session = session_token("u1", "c1");
    let resume = async |app: &Server, thread: &str| {
        let path = format!("/api/agent/chat/{thread}/stream");
        app.request("GET", &path).bearer_auth(&session).send().await.expect("an answer")
    };
    assert_eq!(resume(&test.app, "t").await.status(), 204, "no thread yet");
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first =
        test.app.chat_as(&session, "?format=ui-message", &body(json!({"onDisconnect": "continue"}))).await;
    let received_text = read_until(&mut first, "Partly").await;
    let resumed = [resume(&test.app, "t").await, resume(&other, "t").await];
    gate.send_replace(true);
    let full_text = format!("{received_text}{}", first.text().await.expect("a whole body"));
    for resumed in resumed {
        assert_eq!(resumed.headers()["x-vercel-ai-ui-message-stream"], "v1");
        assert_eq!(resumed.text().await.expect("a whole body"), full_text, "from the beginning");
    }
    test.ended_run("r1").await;
    assert_eq!(resume(&test.app, "t").await.status(), 204, "the run is over");
    let theirs = test.app.request("GET", "/api/agent/chat/t/stream").bearer_auth(session_token("u2", "c1"));
    assert_eq!(theirs.send().await.expect("an answer").status(), 204, "another user's thread is another");
}

#[tokio::test]
async fn a_killed_process_leaves_its_run_s_words_and_the_end_of_its_log() {
    let test = ConversationApp::start().await;
    let later = Timestamp::now().checked_add(SignedDuration::from_hours(1)).expect("a time");
    test.begin_in_store("t", "r1", later).await;
    let mut chunk_writer = ChunkWriter::default();
    chunk_writer.push(&Event::RunStarted { thread_id: "t".into(), run_id: "r1".into() });
    chunk_writer.push(&Event::TextMessageStart { message_id: "m1".into(), role: AssistantRole::Assistant });
    chunk_writer.push(&Event::TextMessageContent { message_id: "m1".into(), delta: "Partly".into() });
    let chunk = chunk_writer.take().expect("events");
    let run = RunKey { owner: ThreadOwner::new("c1", "u1"), id: "r1".into() };
    let store = &test.stores.conversations;
    store.append_events("process of r1", vec![RunChunk { run, chunk }]).await.expect("it is stored");
    // The lease ends once the words are stored, however long that takes.
    let lease = RunLease { process: "process of r1".to_owned(), until: Timestamp::now() };
    store.renew_lease(&lease).await.expect("it ends");
    // A waiting reader receives the end.
    let log = read_log(&test.app, "").await;
    let last: Value = serde_json::from_str(log.lines().last().expect("a line")).expect("an event");
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("RUN_INTERRUPTED")));
    assert_eq!(log.lines().count(), 4);
    assert_eq!(test.path("t").await, dialogue(&["Lost?", "Partly"]));
    let nodes = test.get("/api/threads/t").await["nodes"].clone();
    assert_eq!(nodes[1]["status"], "incomplete");
    let beyond = read_log(&test.app, "?after=17").await;
    assert_eq!(beyond.lines().count(), 1, "a client that saw more is told of the end: {beyond}");
    test.say("t", "Go on").await;
    assert_eq!(test.prompt(), dialogue(&["Lost?", "Partly", "Go on"]));
}

#[tokio::test]
async fn the_log_of_a_run_that_waits_for_decisions_ends_with_its_questions() {
    let test = approvals::start(json!({})).await;
    let other = test.another_process().await;
    let gate = watch::Sender::new(false);
    let mut steps = approvals::call("c1", "Milk");
    steps.insert(1, Step::Until(gate.subscribe()));
    test.vendor.on("m", [steps]);
    let asking = body(json!({"onDisconnect": "continue", "background": true}));
    assert_eq!(test.app.chat(&asking).await.status(), 202);
    let in_time = async |app: &Server, query: &str| {
        tokio::time::timeout(TEST_TIMEOUT, read_log(app, query)).await.expect("it ends")
    };
    // Attached while the run goes on, in its process and in another one.
    let (own, others, ()) = tokio::join!(in_time(&test.app, ""), in_time(&other, ""), async {
        let attached = async || test.get("/api/runs/r1").await["attached"].clone();
        poll_until(attached, |attached| *attached == 1).await;
        gate.send_replace(true);
    });
    assert_eq!(own, others);
    let lines: Vec<&str> = own.split_inclusive('\n').collect();
    let last: Value = serde_json::from_str(lines.last().expect("a line")).expect("an event");
    assert_eq!(last["outcome"]["type"], "interrupt");
    assert_eq!(test.get("/api/runs/r1").await["state"], "waiting");
    // Attached while it waits.
    let end = lines.len() - 1;
    for app in [&test.app, &other] {
        assert_eq!(in_time(app, "").await, own);
        assert_eq!(in_time(app, &format!("?after={}", end - 1)).await, lines[end]);
        assert_eq!(open_log(app, &format!("?after={end}")).await.status(), 204, "nothing follows");
        assert_eq!(in_time(app, &format!("?after={}", end + 1)).await, lines[end]);
    }
}

#[tokio::test]
async fn a_log_is_kept_for_its_time() {
    let test = ConversationApp::start_with(&[("RUN_LOG_RETENTION_MS", "1000")]).await;
    let turn = test.chat(json!({"threadId": "t", "message": "Hello", "runId": "r1"})).await;
    assert_eq!(turn.run_id(), "r1");
    let gone = async || open_log(&test.app, "").await;
    let gone = poll_until(gone, |response| response.status() != 200).await;
    expect_problem(gone, 410, "RUN_LOG_GONE").await;
    assert_eq!(test.path("t").await.len(), 2, "the messages stay");
}

#[tokio::test]
async fn a_log_that_is_deleted_while_it_is_read_ends_with_an_error() {
    for format in ["ndjson", "sse"] {
        let test = ConversationApp::start().await;
        let later = Timestamp::now().checked_add(SignedDuration::from_hours(1)).expect("a time");
        test.begin_in_store("t", "r1", later).await;
        let mut log = ChunkWriter::default();
        log.push(&Event::RunStarted { thread_id: "t".into(), run_id: "r1".into() });
        log.push(&Event::TextMessageStart { message_id: "m1".into(), role: AssistantRole::Assistant });
        log.push(&Event::TextMessageContent { message_id: "m1".into(), delta: "Partly".into() });
        let chunk = log.take().expect("events");
        let owner = ThreadOwner::new("c1", "u1");
        let run = RunKey { owner: owner.clone(), id: "r1".into() };
        let store = &test.stores.conversations;
        store.append_events("process of r1", vec![RunChunk { run, chunk }]).await.expect("it is stored");
        let mut reader = open_log(&test.app, &format!("?format={format}")).await;
        let read = read_until(&mut reader, "Partly").await;
        // The run ends in its process, and its log is deleted before this reader asks for the rest.
        log.push(&Event::TextMessageEnd { message_id: "m1".into() });
        log.push(&Event::RunError { message: "late".into(), code: "LATE".into(), usage: Vec::new() });
        let now = Timestamp::now();
        let end = EndRun {
            owner,
            run_id: "r1".into(),
            process: "process of r1".to_owned(),
            nodes: Vec::new(),
            ending: RunEnding::default(),
            log: LogEnd { chunks: log.take().into_iter().collect(), until: Some(later), ..LogEnd::default() },
            context: None,
            request_sha256: None,
            backend: None,
            record: RunRecord::default(),
            now,
        };
        store.end_run(end).await.expect("it ends");
        assert_eq!(store.trim_logs(later).await.expect("it works"), 1);
        let rest = reader.text().await.expect("a whole body");
        let last = rest.lines().rev().find_map(|line| line.split_once('{')).map(|(_, json)| json);
        let last: Value = serde_json::from_str(&format!("{{{}", last.expect("an event"))).expect("JSON");
        assert_eq!(last["type"], "RUN_ERROR", "{format}: {read}{rest}");
        // Or it had the rest.
        assert!(matches!(last["code"].as_str(), Some("RUN_LOG_GONE" | "LATE")), "{last}");
        expect_problem(open_log(&test.app, "?after=2").await, 410, "RUN_LOG_GONE").await;
    }
}

#[tokio::test]
async fn invalid_positions_and_too_many_readers_are_refused() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body(json!({}))).await;
    read_until(&mut first, "Partly").await;
    for query in ["?after=-1", "?after=1e99", "?after=1.5", "?after=x", "?wait=maybe", "?format=xml"] {
        expect_problem(open_log(&test.app, query).await, 400, "INVALID_REQUEST").await;
    }
    let mut readers = Vec::new();
    for _ in 0..32 {
        readers.push(open_log(&test.app, "").await);
    }
    assert!(readers.iter().all(|reader| reader.status() == 200));
    expect_problem(open_log(&test.app, "").await, 429, "RATE_LIMITED").await;
    drop(readers);
    let fetch = async || open_log(&test.app, "?wait=false").await.status().as_u16();
    poll_until(fetch, |status| *status == 200).await;
    gate.send_replace(true);
    parse_run(&read_log(&test.app, "").await);
}

#[tokio::test]
async fn a_company_has_a_share_of_the_readers() {
    let test = ConversationApp::start_with(&[("MAX_CONNECTIONS", "48")]).await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body(json!({}))).await;
    read_until(&mut first, "Partly").await;
    let mut readers = Vec::new();
    for _ in 0..24 {
        readers.push(open_log(&test.app, "").await);
    }
    assert!(readers.iter().all(|reader| reader.status() == 200));
    expect_problem(open_log(&test.app, "").await, 429, "RATE_LIMITED").await;
    // A client of another company reads its run.
    test.vendor.on("m", [answer(&["Hello"])]);
    let other_user = session_token("u3", "c2");
    let run = test.app.chat_as(&other_user, "", &body(json!({}))).await;
    let run = run.text().await.expect("a whole body");
    let log = test.app.request("GET", "/api/runs/r1/events").bearer_auth(&other_user);
    let log = log.send().await.expect("an answer").text().await.expect("a whole body");
    assert_eq!(log, run);
    // A reader that leaves makes room.
    readers.truncate(23);
    let fetch = async || open_log(&test.app, "?wait=false").await.status().as_u16();
    poll_until(fetch, |status| *status == 200).await;
    gate.send_replace(true);
}

#[tokio::test]
async fn the_header_with_the_log_position_precedes_the_query() {
    let test = ConversationApp::start().await;
    let first = test.app.chat(&body(json!({}))).await.text().await.expect("a whole body");
    let lines: Vec<&str> = first.split_inclusive('\n').collect();
    let read = async |app: &Server, query: &str, header: Option<&str>| {
        let request = app.request("GET", &format!("/api/runs/r1/events{query}"));
        let request = header.into_iter().fold(request, |request, id| request.header("last-event-id", id));
        request.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer")
    };
    let last = lines.len() - 1;
    let other = test.another_process().await;
    for app in [&test.app, &other] {
        for (query, header, from) in [
            ("?after=3".to_owned(), None, 4),
            ("?after=3".to_owned(), Some("1".to_owned()), 2),
            (String::new(), Some("0".to_owned()), 1),
            ("?after=x".to_owned(), Some("2".to_owned()), 3),
            // A client that has more than there is receives the end.
            (format!("?after={}", last + 1), None, last),
            (format!("?after={}", u64::MAX - 1), None, last),
            ("?after=0".to_owned(), Some("4294967296".to_owned()), last),
        ] {
            let later_events = read(app, &query, header.as_deref()).await;
            assert_eq!(later_events.status(), 200, "{query} {header:?}");
            let later_events = later_events.text().await.expect("a whole body");
            assert_eq!(later_events, lines[from..].concat(), "{query} {header:?}");
        }
        let header = last.to_string();
        assert_eq!(read(app, "?after=0", Some(&header)).await.status(), 204, "nothing follows");
        for wrong in ["-1", "1e99", "1.5", "0x1", "18446744073709551615", "99999999999999999999", ""] {
            let refused = read(app, "?after=1", Some(wrong)).await;
            expect_problem(refused, 400, "INVALID_REQUEST").await;
            let refused = read(app, &format!("?after={wrong}"), None).await;
            expect_problem(refused, 400, "INVALID_REQUEST").await;
        }
    }
}

#[tokio::test]
async fn a_position_beyond_the_end_of_a_running_run_is_waited_for() {
    let test = ConversationApp::start().await;
    let (steps, gate) = gated();
    test.vendor.on("m", [steps]);
    let mut first = test.app.chat(&body(json!({}))).await;
    let received_text = read_until(&mut first, "Partly").await;
    let there = read_log(&test.app, "?after=100000&wait=false").await;
    assert_eq!(there, "", "nothing is there");
    let beyond = format!("?after={}", received_text.lines().count());
    let reader = open_log(&test.app, &beyond).await;
    gate.send_replace(true);
    let full_text = format!("{received_text}{}", first.text().await.expect("a whole body"));
    let expected: String = full_text.split_inclusive('\n').skip(received_text.lines().count() + 1).collect();
    assert_eq!(reader.text().await.expect("a whole body"), expected);
}

#[tokio::test]
async fn a_chat_request_ignores_last_event_id() {
    let test = ConversationApp::start().await;
    for (number, id) in ["0", "3", "-1", "1e99", "x"].into_iter().enumerate() {
        let request = test.app.request("POST", "/api/agent/chat").header("last-event-id", id);
        let request_body = body(json!({"runId": format!("r{number}")}));
        let response = request
            .bearer_auth(session_token("u1", "c1"))
            .json(&request_body)
            .send()
            .await
            .expect("an answer");
        assert_eq!(response.status(), 200, "{id}");
        let events = parse_run(&response.text().await.expect("a whole body"));
        assert_eq!(
            (&events[0]["type"], text_of(&events).as_str()),
            (&json!("RUN_STARTED"), "hello world"),
            "{id}"
        );
    }
    assert_eq!(test.path("t").await.len(), 10, "each is a message");
}

#[tokio::test]
async fn readers_that_come_and_go_see_neither_gaps_nor_doubles() {
    let rounds: usize = crate::support::env_number("REATTACH_ROUNDS", 100);
    let test = ConversationApp::start_with(&[("RUN_LOG_FLUSH_MS", "20")]).await;
    let other = test.another_process().await;
    let gate = watch::Sender::new(0_usize);
    let mut steps = vec![stream_head()];
    for step in 1..=rounds {
        let mut reached = gate.subscribe();
        let (opener, opened) = watch::channel(false);
        tokio::spawn(async move {
            if reached.wait_for(|count| *count >= step).await.is_ok() {
                opener.send_replace(true);
            }
        });
        steps.push(Step::Until(opened));
        steps.push(delta(json!({"content": format!("{step} ")})));
    }
    steps.extend(finish("stop"));
    test.vendor.on("m", [steps]);
    let accepted = test.app.chat(&body(json!({"background": true}))).await;
    assert_eq!(accepted.status(), 202);
    let mut read = [String::new(), String::new()];
    let mut step = 0;
    while step < rounds {
        step = (step + 1 + step % 3).min(rounds);
        gate.send_replace(step);
        for (app, read) in [&test.app, &other].into_iter().zip(&mut read) {
            // Each reader comes again after the last event that it has, and leaves at some event.
            let count = read.lines().count();
            let query = if count == 0 { String::new() } else { format!("?after={}", count - 1) };
            let mut response = open_log(app, &query).await;
            let marker = format!("\"{step} \"");
            let part = read_until(&mut response, &marker).await;
            // A part of a line that was cut off is not the client's.
            let complete_end = part.rfind('\n').map_or(0, |end| end + 1);
            read.push_str(&part[..complete_end]);
        }
    }
    let complete_text =
        tokio::time::timeout(Duration::from_secs(30), read_log(&test.app, "")).await.expect("it ends");
    for read in read {
        assert!(complete_text.starts_with(&read), "{read}");
    }
    let expected: String = (1..=rounds).map(|step| format!("{step} ")).collect();
    assert_eq!(text_of(&parse_run(&complete_text)), expected);
}
