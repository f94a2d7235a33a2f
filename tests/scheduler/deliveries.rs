//! Deliveries to the receiver, and the effect of its response on the job.

use std::time::{Duration, SystemTime};

use agent_core::secret::Secret;
use agent_http::webhook;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::{json_of, open, open_with, payload};
use crate::support::server::PULSE_SECRET;
use crate::support::vendor::{ReceivedRequest, Step, json_response};

fn schedule_now() -> Value {
    json!({"delayMs": 0})
}

fn headers(received: &ReceivedRequest) -> HeaderMap {
    let lines = received.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let header = |(name, value): (&str, &str)| {
        (name.parse::<HeaderName>().expect("a name"), value.parse::<HeaderValue>().expect("a value"))
    };
    lines.map(header).collect()
}

#[tokio::test]
async fn a_delivery_is_the_payload_signed_and_never_early() {
    let bench = open().await;
    bench.receiver.on("a1", [json_response("200 OK", "", "{\"much\":\"ignored\"}")]);
    let mut request_body = payload("a1");
    request_body["arguments"] = json!({"title": "Grüße"});
    let job_request = json!({"delayMs": 500, "payload": request_body});
    let created = json_of(bench.ask("POST", "/jobs", Some(&job_request)).await).await;
    let text = |name: &str| created[name].as_str().expect("text").to_owned();
    let (id, due) = (text("jobId"), text("executeAt"));
    bench.receiver.wait_for_requests("a1", 1).await;
    let arrived = SystemTime::now();
    let received = bench.receiver.received().remove(0);

    assert!(received.head.starts_with("POST /callback HTTP/1.1\r\n"), "{}", received.head);
    let mut expected = request_body;
    expected["jobId"] = json!(id);
    (expected["occurrence"], expected["attempt"]) = (json!(1), json!(1));
    expected["scheduledFor"] = json!(due);
    assert_eq!(received.json(), expected);
    let due: SystemTime = due.parse::<jiff::Timestamp>().expect("a time").into();
    assert!(arrived >= due, "it is early by {:?}", due.duration_since(arrived));

    let headers = headers(&received);
    assert_eq!(headers["authorization"], format!("Bearer {PULSE_SECRET}"));
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["webhook-id"], format!("{id}:1"));
    // Verified by the Standard Webhooks library, which takes its key in base64, and by our own implementation.
    let third_party = standardwebhooks::Webhook::from_bytes(PULSE_SECRET.into()).expect("a key");
    third_party.verify(&received.body, &headers).expect("the signature holds");
    let secrets = [Secret::new(PULSE_SECRET)];
    assert_eq!(webhook::verify(&secrets, &headers, &received.body, arrived), Ok(&*format!("{id}:1")));
    let done = bench.wait_for_state(&id, "completed").await;
    assert_eq!((&done["attempts"][0]["status"], &done["attempts"][0]["attempt"]), (&json!(200), &json!(1)));
    assert!(done["attempts"][0]["durationMs"].is_u64() && done.get("lastError").is_none(), "{done}");
}

/// Agent name, receiver's response, resulting job state, recorded status, and part of the recorded error.
type Case = (&'static str, Vec<Step>, &'static str, Option<u16>, &'static str);

#[tokio::test]
async fn the_response_decides_the_state_of_the_job() {
    let status = |line: &str| json_response(line, "", "");
    let cases: Vec<Case> = vec![
        ("ok", status("200 OK"), "completed", Some(200), ""),
        ("created", status("201 Created"), "completed", Some(201), ""),
        ("empty", vec![Step::Send(b"HTTP/1.1 204 No Content\r\n\r\n".into())], "completed", Some(204), ""),
        ("gone", status("410 Gone"), "cancelled", Some(410), ""),
        (
            "bad",
            json_response("400 Bad Request", "", "no such tool"),
            "discarded",
            Some(400),
            "HTTP 400: no such tool",
        ),
        ("large", status("413 Too Large"), "discarded", Some(413), "HTTP 413"),
        ("type", status("415 Type"), "discarded", Some(415), "HTTP 415"),
        ("sense", status("422 Sense"), "discarded", Some(422), "HTTP 422"),
        ("who", status("401 Who"), "retryable", Some(401), "HTTP 401"),
        ("no", status("403 No"), "retryable", Some(403), "HTTP 403"),
        ("where", status("404 Where"), "retryable", Some(404), "HTTP 404"),
        ("how", status("405 How"), "retryable", Some(405), "HTTP 405"),
        ("slow", status("408 Slow"), "retryable", Some(408), "HTTP 408"),
        ("early", status("425 Early"), "retryable", Some(425), "HTTP 425"),
        ("many", status("429 Many"), "retryable", Some(429), "HTTP 429"),
        ("fault", status("500 Fault"), "retryable", Some(500), "HTTP 500"),
        ("away", status("503 Away"), "retryable", Some(503), "HTTP 503"),
        ("moved", json_response("307 Moved", "location: /other\r\n", ""), "retryable", None, "redirect"),
        (
            "garbage",
            vec![Step::Send(b"\x00\x01garbage\r\n\r\n".into()), Step::Close],
            "retryable",
            None,
            "HTTP",
        ),
        ("reset", vec![Step::Reset], "retryable", None, "without a response"),
        ("closed", vec![Step::Close], "retryable", None, "without a response"),
        // The success status in the head is enough.
        (
            "cut",
            vec![Step::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".into()), Step::Reset],
            "completed",
            Some(200),
            "",
        ),
    ];
    let bench = open().await;
    for (name, answer, state, status, error) in cases {
        bench.receiver.on(name, [answer]);
        let id = bench.create_job(schedule_now(), payload(name)).await;
        // The next attempt of a job that is retried may have started meanwhile.
        let job =
            bench.poll_job_until(&id, |job| job.get("attempts").is_some() && job["state"] == state).await;
        assert_eq!(job["attempts"][0]["status"].as_u64(), status.map(u64::from), "{name}: {job}");
        let last_error = job["lastError"].as_str().unwrap_or_default();
        assert_eq!(error.is_empty(), last_error.is_empty(), "{name}: {last_error}");
        assert!(last_error.contains(error), "{name}: {last_error}");
        bench.ask("DELETE", &format!("/jobs/{id}"), None).await;
    }
    let paths: Vec<_> = bench.receiver.received().iter().map(|received| received.path().to_owned()).collect();
    assert!(paths.iter().all(|path| path == "/callback"), "no redirect is followed: {paths:?}");
}

#[tokio::test]
async fn the_error_of_a_job_has_the_receivers_reason_and_no_secret() {
    let bench = open().await;
    let problem = json!({"code": "NOT_FOUND", "detail": "agent not found", "requestId": "r"}).to_string();
    let head = format!(
        "HTTP/1.1 422 X\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\r\n{problem}",
        problem.len()
    );
    bench.receiver.on("problem", [vec![Step::Send(head.into())]]);
    bench.receiver.on("echo", [json_response("422 X", "", &format!("you sent\n Bearer {PULSE_SECRET}"))]);
    bench.receiver.on("long", [json_response("422 X", "", &"long ".repeat(100_000))]);
    for (agent, expected) in
        [("problem", "HTTP 422: NOT_FOUND: agent not found"), ("echo", "HTTP 422: you sent Bearer ***")]
    {
        let id = bench.create_job(schedule_now(), payload(agent)).await;
        assert_eq!(bench.wait_for_state(&id, "discarded").await["lastError"], expected);
    }
    let id = bench.create_job(schedule_now(), payload("long")).await;
    let error = bench.wait_for_state(&id, "discarded").await["lastError"].as_str().expect("text").len();
    assert!((400..=600).contains(&error), "{error} bytes");
}

#[tokio::test]
async fn a_receiver_that_is_busy_with_the_occurrence_uses_up_no_attempt() {
    let bench = open().await;
    let busy = || json_response("409 Busy", "retry-after: 1\r\n", "");
    bench.receiver.on("busy", [busy(), busy(), json_response("200 OK", "", "")]);
    let id = bench.create_job(json!({"delayMs": 0, "maxAttempts": 1}), payload("busy")).await;
    let job = bench.wait_for_state(&id, "completed").await;
    let attempts = job["attempts"].as_array().expect("attempts");
    assert_eq!((attempts.len(), &attempts[0]["attempt"]), (1, &json!(1)), "{job}");
    let bodies = bench.receiver.received_bodies("busy");
    assert_eq!(bodies.iter().map(|body| &body["attempt"]).collect::<Vec<_>>(), [&json!(1); 3]);
}

#[tokio::test]
async fn failed_deliveries_are_retried_after_the_requested_delay() {
    let bench = open().await;
    bench
        .receiver
        .on("twice", [json_response("500 Fault", "retry-after: 0\r\n", ""), json_response("200 OK", "", "")]);
    let id = bench.create_job(schedule_now(), payload("twice")).await;
    bench.wait_for_state(&id, "completed").await;
    let bodies = bench.receiver.received_bodies("twice");
    assert_eq!((&bodies[0]["attempt"], &bodies[1]["attempt"]), (&json!(1), &json!(2)));
    let received = bench.receiver.received();
    let ids: Vec<_> = received.iter().map(|received| headers(received)["webhook-id"].clone()).collect();
    assert_eq!(ids[0], ids[1], "it is the same message");

    let day = 24 * 3600;
    // The requested delay, and its spread of up to a minute.
    for (agent, value, delay) in [
        ("seconds", Some("7200"), 7200),
        ("date", None, 3600),
        ("too-long", Some("999999999"), day),
        // The first backoff, as without the header.
        ("nonsense", Some("soon"), 0),
    ] {
        let start = SystemTime::now();
        let date = httpdate::fmt_http_date(start + Duration::from_secs(3600));
        let header = format!("retry-after: {}\r\n", value.unwrap_or(&date));
        bench.receiver.on(agent, [json_response("429 Many", &header, "")]);
        let id = bench.create_job(schedule_now(), payload(agent)).await;
        let job = bench.wait_for_state(&id, "retryable").await;
        let ended = SystemTime::now();
        let due: SystemTime =
            job["executeAt"].as_str().expect("a time").parse::<jiff::Timestamp>().expect("a time").into();
        // A date has no parts of a second.
        let least = start + Duration::from_secs(delay) - Duration::from_secs(1);
        let most = ended + Duration::from_secs(delay + 60);
        assert!((least..=most).contains(&due), "{agent}: {due:?} is not from {least:?} to {most:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_sends_no_response_times_out() {
    let bench = open_with(&[("CALLBACK_TIMEOUT_MS", "100")]).await;
    bench.receiver.on("silent", [vec![Step::Stall]]);
    let id = bench.create_job(schedule_now(), payload("silent")).await;
    let job = bench.wait_for_state(&id, "retryable").await;
    assert!(job["lastError"].as_str().expect("text").contains("in time"), "{job}");
    bench.receiver.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn a_delivery_that_outlasts_its_lease_is_one_attempt() {
    let bench = open_with(&[("CALLBACK_TIMEOUT_MS", "6500"), ("SCHEDULER_LEASE_MS", "3000")]).await;
    // One receiver sends nothing; the other sends interim 102 responses forever.
    let dripping = vec![Step::Drip(b"HTTP/1.1 102 Processing\r\n\r\n".to_vec(), Duration::from_millis(50))];
    bench.receiver.on("silent", [vec![Step::Stall]]).on("dripping", [dripping]);
    let mut jobs = Vec::new();
    for agent in ["silent", "dripping"] {
        let body = json!({"delayMs": 0, "maxAttempts": 1});
        jobs.push((agent, bench.create_job(body, payload(agent)).await));
    }
    for (agent, id) in jobs {
        let job = bench.wait_for_state(&id, "discarded").await;
        let attempts = job["attempts"].as_array().expect("attempts");
        assert_eq!((attempts.len(), &attempts[0]["attempt"]), (1, &json!(1)), "{job}");
        assert!(attempts[0]["durationMs"].as_u64() >= Some(6500), "{job}");
        assert!(attempts[0]["error"].as_str().expect("text").ends_with("did not respond in time"), "{job}");
        assert_eq!(bench.receiver.received_bodies(agent).len(), 1, "the lease was kept");
    }
}

#[tokio::test]
async fn an_unreachable_receiver_is_retried_without_naming_its_address() {
    let bench = open().await;
    let address = bench.receiver.address;
    drop(bench.receiver);
    let scheduler = bench.scheduler;
    let body = json!({"payload": payload("a1"), "delayMs": 0});
    let created = json_of(super::ask(&scheduler, "POST", "/jobs", Some(&body)).await).await;
    let id = created["jobId"].as_str().expect("an id").to_owned();
    let path = format!("/jobs/{id}");
    let fetch = async || json_of(super::ask(&scheduler, "GET", &path, None).await).await;
    let job = crate::support::poll_until(fetch, |job| job["state"] == "retryable").await;
    let error = job["lastError"].as_str().expect("text");
    assert!(!error.contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn a_discarded_job_can_be_redriven() {
    let bench = open().await;
    bench.receiver.on("later", [json_response("400 Bad", "", ""), json_response("200 OK", "", "")]);
    let id = bench.create_job(schedule_now(), payload("later")).await;
    bench.wait_for_state(&id, "discarded").await;
    let second = json_of(bench.ask("POST", &format!("/jobs/{id}/redrive"), None).await).await;
    assert_eq!(second["state"], "scheduled");
    bench.wait_for_state(&id, "completed").await;
    let bodies = bench.receiver.received_bodies("later");
    assert_eq!(bodies[0]["occurrence"], bodies[1]["occurrence"]);
}

#[tokio::test]
async fn a_periodic_job_continues_and_keeps_its_dead_letters() {
    let bench = open().await;
    bench.receiver.on("tick", [json_response("400 Bad", "", "why"), json_response("200 OK", "", "")]);
    let id = bench.create_job(json!({"everyMs": 1000}), payload("tick")).await;
    let job = bench.poll_job_until(&id, |job| job["occurrence"].as_u64() >= Some(3)).await;
    assert_eq!(job["deadLetters"][0]["error"], "HTTP 400: why", "{job}");
    assert_eq!(job["deadLetters"][0]["occurrence"], 1);
    let list = json_of(bench.ask("GET", "/jobs?state=discarded", None).await).await;
    assert_eq!(list["jobs"][0]["jobId"], json!(id));
    bench.ask("DELETE", &format!("/jobs/{id}"), None).await;
    let times: Vec<_> =
        bench.receiver.received_bodies("tick").iter().map(|body| body["scheduledFor"].clone()).collect();
    let mut unique = times.clone();
    unique.dedup();
    assert_eq!(times, unique, "no occurrence comes twice");
}

#[tokio::test]
async fn connections_to_the_receiver_are_reused() {
    let bench = open().await;
    bench.receiver.on("a1", [json_response("200 OK", "", "{}")]);
    for _ in 0..10 {
        let id = bench.create_job(schedule_now(), payload("a1")).await;
        bench.wait_for_state(&id, "completed").await;
    }
    assert_eq!(bench.receiver.connections(), 1);
}
