//! Positions in a log, their headers, and limits on readers.

use super::*;

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
async fn readers_that_come_and_go_see_neither_gaps_nor_duplicates() {
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
    let complete_text = tokio::time::timeout(TEST_TIMEOUT, read_log(&test.app, "")).await.expect("it ends");
    for read in read {
        assert!(complete_text.starts_with(&read), "{read}");
    }
    let expected: String = (1..=rounds).map(|step| format!("{step} ")).collect();
    assert_eq!(text_of(&parse_run(&complete_text)), expected);
}
