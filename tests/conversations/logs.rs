//! Logs of runs: re-attaching at any event, in any format and in any process, and runs that continue without a client.

mod clients;
mod positions;

use agent_core::event::{AssistantRole, Event};
use agent_platform::conversation::{
    ChunkWriter, EndRunRequest, LogEnd, RunChunk, RunEnding, RunKey, RunLease, RunRecord, ThreadOwner,
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

/// Returns the body of the request for the run `r1` in the thread `t`, with further fields.
pub(super) fn body(fields: Value) -> Value {
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
    // A reader that does not wait gets the stored events, from every position.
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
        let end = EndRunRequest {
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
