//! Runs whose client leaves, and runs that are cancelled or interrupted.

use super::*;

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
        let (status, _) = super::super::call_as(app, &session, "POST", path, None).await;
        assert_eq!(status, 200, "{path}");
        let full_text = format!("{received_text}{}", first.text().await.expect("a whole body"));
        let events = parse_run(&full_text);
        assert_eq!(events.last().expect("an end")["outcome"], json!({"type": "cancelled"}), "{path}");
        test.vendor.wait_for_disconnects(number + 1).await;
        let run = test.ended_run(&format!("r{number}")).await;
        assert_eq!((&run["state"], &run["reason"]), (&json!("cancelled"), &json!("requested")), "{path}");
        let (status, again) =
            super::super::call_as(app, &session, "POST", &format!("/api/runs/r{number}/cancel"), None).await;
        assert_eq!(
            (status, &again["state"]),
            (200, &json!("cancelled")),
            "a repeated request changes nothing"
        );
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
async fn a_killed_process_leaves_the_partial_answer_and_a_closed_log() {
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
    assert_eq!(beyond.lines().count(), 1, "a client that is ahead of the log receives the end: {beyond}");
    test.say("t", "Go on").await;
    assert_eq!(test.prompt(), dialogue(&["Lost?", "Partly", "Go on"]));
}
