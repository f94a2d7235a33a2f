//! Routes for web pages: the scheduler's status, and the user's jobs.

use jiff::Timestamp;

use super::*;
use crate::support::vendor::{Vendor, json_response};
use crate::support::{exchange, expect_problem, poll_until};

const NOWHERE: &str = "http://127.0.0.1:9/v1";

#[tokio::test]
async fn without_a_scheduler_all_routes_but_the_status_fail() {
    let app = server::app(&workspace(NOWHERE), &[]).await;
    let status = expect_json(ask(&app, OWNER, "GET", "/api/pulse/status", None).await, 200).await;
    assert_eq!(
        status,
        json!({"configured": false, "missing": ["PULSE_URL", "PULSE_SECRET"], "healthy": false, "jobCount": 0})
    );
    for (method, path) in [
        ("GET", "/api/pulse/jobs"),
        ("GET", "/api/pulse/jobs/j1"),
        ("DELETE", "/api/pulse/jobs/j1"),
        ("POST", "/api/pulse/jobs"),
        ("POST", "/api/pulse/jobs/j1/reschedule"),
        ("POST", "/api/pulse/jobs/j1/pause"),
        ("POST", "/api/pulse/jobs/j1/resume"),
        ("POST", "/api/pulse/jobs/j1/redrive"),
        ("POST", "/api/pulse/callback"),
    ] {
        let answer = ask(&app, OWNER, method, path, None).await;
        let problem = expect_problem(answer, 503, "PULSE_NOT_CONFIGURED").await;
        assert_eq!(problem["detail"], "Pulse not configured: PULSE_URL or PULSE_SECRET is missing");
    }
    let stranger = app.request("GET", "/api/pulse/status").send().await.expect("an answer");
    expect_problem(stranger, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn the_next_occurrences_of_a_schedule_need_no_scheduler() {
    let app = server::app(&workspace(NOWHERE), &[]).await;
    let ask_next = async |body: Value| ask(&app, OWNER, "POST", "/api/pulse/next", Some(&body)).await;
    let next = async |body: Value| {
        let body = expect_json(ask_next(body).await, 200).await;
        let times: Vec<Timestamp> = serde_json::from_value(body["next"].clone()).expect("times");
        times
    };
    let daily =
        next(json!({"schedule": {"cron": "30 9 * * *", "timezone": "Europe/Berlin"}, "count": 100})).await;
    assert_eq!(daily.len(), 100);
    for (time, later) in daily.iter().zip(&daily[1..]) {
        let hours = time.duration_until(*later).as_hours();
        assert!((23..=25).contains(&hours), "{time} and {later}");
        let local = time.in_tz("Europe/Berlin").expect("the zone").datetime();
        assert_eq!((local.hour(), local.minute()), (9, 30), "{time}");
    }
    let hourly = next(json!({"schedule": {"everyMs": 3_600_000}})).await;
    assert_eq!(hourly.len(), 10);
    assert!(hourly.windows(2).all(|pair| pair[0].duration_until(pair[1]).as_secs() == 3_600), "{hourly:?}");
    let once = next(json!({"schedule": {"executeAt": "2001-02-03T04:05:06Z"}, "count": 5})).await;
    assert_eq!(once, ["2001-02-03T04:05:06Z".parse().expect("a time")]);
    let after =
        next(json!({"schedule": {"cron": "0 12 * * *"}, "count": 2, "after": "2031-01-31T12:00:00Z"})).await;
    let expected = ["2031-02-01T12:00:00Z", "2031-02-02T12:00:00Z"].map(|time| time.parse().expect("a time"));
    assert_eq!(after, expected);
    let rare = next(json!({"schedule": {"cron": "0 0 29 2 *"}, "count": 100})).await;
    assert!(rare.len() == 100 && rare.is_sorted(), "{rare:?}");
    for (body, member) in [
        (json!({}), "schedule"),
        (json!({"schedule": {}}), "cron"),
        (json!({"schedule": [null, null, "* * * * *"]}), "schedule must be an object"),
        (json!({"schedule": {"cron": "0 0 31 2 *"}}), "cron"),
        (json!({"schedule": {"cron": "* * * * *", "timezone": "Atlantis"}}), "timezone"),
        (json!({"schedule": {"everyMs": 3_600_000}, "count": 0}), "count"),
        (json!({"schedule": {"everyMs": 3_600_000}, "count": 101}), "count"),
        (json!({"schedule": {"everyMs": 3_600_000}, "after": "tomorrow"}), "after"),
    ] {
        let problem = expect_problem(ask_next(body.clone()).await, 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().expect("a detail").contains(member), "{body}: {problem}");
    }
    let stranger = app.request("POST", "/api/pulse/next").json(&json!({})).send().await.expect("an answer");
    expect_problem(stranger, 401, "UNAUTHENTICATED").await;
}

#[tokio::test]
async fn jobs_are_accessible_only_to_their_owners() {
    let bench = open(NOWHERE, &[]).await;
    let job = json!({"payload": create_todo("Far"), "delayMs": 3_600_000});
    let response = request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&job)).await;
    let path = format!("/api/pulse/jobs/{}", response["jobId"].as_str().expect("an id"));
    let reschedule = format!("{path}/reschedule");
    let later = json!({"delayMs": 7_200_000});
    for user in [COLLEAGUE, STRANGER, ("u1", "c2")] {
        let list = expect_json(ask(&bench.app, user, "GET", "/api/pulse/jobs", None).await, 200).await;
        assert_eq!(list, json!({"jobs": []}));
        for method in ["GET", "DELETE"] {
            expect_problem(ask(&bench.app, user, method, &path, None).await, 404, "NOT_FOUND").await;
        }
        expect_problem(ask(&bench.app, user, "POST", &reschedule, Some(&later)).await, 404, "NOT_FOUND")
            .await;
    }
    let list = expect_json(ask(&bench.app, OWNER, "GET", "/api/pulse/jobs?limit=1", None).await, 200).await;
    assert_eq!(list["jobs"][0]["jobId"], response["jobId"]);
    assert_eq!(list["jobs"][0]["state"], "scheduled");
    let one = expect_json(ask(&bench.app, OWNER, "GET", &path, None).await, 200).await;
    assert_eq!(one, list["jobs"][0], "a job that was never tried has no attempts");
    let status = expect_json(ask(&bench.app, OWNER, "GET", "/api/pulse/status", None).await, 200).await;
    assert_eq!(
        (&status["configured"], &status["healthy"], &status["jobCount"]),
        (&json!(true), &json!(true), &json!(1))
    );
    assert_eq!(status["callbackUrl"], bench.app.url("/api/pulse/callback"));
    let body = expect_json(ask(&bench.app, OWNER, "POST", &reschedule, Some(&later)).await, 200).await;
    assert_eq!(body["jobId"], response["jobId"]);
    assert_ne!(body["executeAt"], response["executeAt"]);
    let never = json!({"cron": "0 0 31 2 *"});
    expect_problem(ask(&bench.app, OWNER, "POST", &reschedule, Some(&never)).await, 400, "INVALID_REQUEST")
        .await;
    let pause = format!("{path}/pause");
    expect_problem(ask(&bench.app, COLLEAGUE, "POST", &pause, None).await, 404, "NOT_FOUND").await;
    for (operation, state) in [("pause", "paused"), ("resume", "scheduled")] {
        let operation = format!("{path}/{operation}");
        let changed = expect_json(ask(&bench.app, OWNER, "POST", &operation, None).await, 200).await;
        assert_eq!((&changed["jobId"], &changed["state"]), (&response["jobId"], &json!(state)));
    }
    let redrive = format!("{path}/redrive");
    expect_problem(ask(&bench.app, OWNER, "POST", &redrive, None).await, 409, "CONFLICT").await;
    for _ in 0..2 {
        let cancelled = expect_json(ask(&bench.app, OWNER, "DELETE", &path, None).await, 200).await;
        assert_eq!(cancelled["delivering"], false);
    }
    expect_problem(ask(&bench.app, OWNER, "POST", &reschedule, Some(&later)).await, 409, "CONFLICT").await;
}

#[tokio::test]
async fn a_job_shows_its_attempts_and_the_time_of_the_next_one() {
    let bench = open(NOWHERE, &[]).await;
    let schedule = async |payload: Value| {
        let body = json!({"payload": payload, "delayMs": 1});
        let response = ask(&bench.app, OWNER, "POST", "/api/pulse/jobs", Some(&body)).await;
        let created = expect_json(response, 201).await;
        format!("/api/pulse/jobs/{}", created["jobId"].as_str().expect("an id"))
    };
    let read = async |path: &str| expect_json(ask(&bench.app, OWNER, "GET", path, None).await, 200).await;
    let time = |value: &Value| -> Timestamp { value.as_str().expect("text").parse().expect("a time") };

    // The model of the turn cannot be reached, so that it is tried again and again.
    let failing = schedule(json!({"kind": "agent", "agentId": "a1", "message": "Hello"})).await;
    let has_two = |job: &Value| job["attempts"].as_array().is_some_and(|attempts| attempts.len() >= 2);
    let job = poll_until(async || read(&failing).await, has_two).await;
    let attempts = job["attempts"].as_array().expect("attempts");
    for (attempt, number) in attempts.iter().zip(1..) {
        assert_eq!((&attempt["occurrence"], &attempt["attempt"]), (&json!(1), &json!(number)));
        assert!(attempt["status"].as_u64().is_some_and(|status| status >= 500), "{attempt}");
        assert!(attempt["durationMs"].is_u64() && attempt["error"].is_string(), "{attempt}");
    }
    let (first, second) = (time(&attempts[0]["endedAt"]), time(&attempts[1]["endedAt"]));
    assert!(time(&job["createdAt"]) <= first && first < second, "{job}");
    assert_eq!(job["lastError"], attempts.last().expect("an attempt")["error"]);
    if job["state"] == "retryable" {
        assert!(time(&job["executeAt"]) > second, "the next one is later: {job}");
    }

    let done = schedule(create_todo("Water the basil")).await;
    let job = poll_until(async || read(&done).await, |job| job["state"] == "completed").await;
    let attempts = job["attempts"].as_array().expect("attempts");
    assert_eq!((attempts.len(), &attempts[0]["status"]), (1, &json!(200)), "{job}");
    assert!(attempts[0].get("error").is_none() && job.get("lastError").is_none(), "{job}");

    // The application refuses such arguments, and an older one has stored them.
    let mut wrong = create_todo("x");
    wrong["arguments"]["title"] = json!(7);
    let body = json!({"payload": wrong, "delayMs": 1});
    let created = request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&body)).await;
    let discarded = format!("/api/pulse/jobs/{}", created["jobId"].as_str().expect("an id"));
    let job = poll_until(async || read(&discarded).await, |job| job["state"] == "discarded").await;
    assert_eq!(job["attempts"].as_array().map(Vec::len), Some(1), "{job}");
    assert!(job["attempts"][0]["error"].as_str().expect("an error").contains("title"), "{job}");
    let list = expect_json(ask(&bench.app, OWNER, "GET", "/api/pulse/jobs", None).await, 200).await;
    let jobs = list["jobs"].as_array().expect("jobs");
    assert!(jobs.len() == 3 && jobs.iter().all(|job| job.get("attempts").is_none()), "{list}");
}

#[tokio::test]
async fn a_user_schedules_turns_and_tools_for_themselves() {
    let bench = open(NOWHERE, &[]).await;
    let post = async |user, body: &Value| ask(&bench.app, user, "POST", "/api/pulse/jobs", Some(body)).await;
    let turn = json!({"payload": {"kind": "agent", "agentId": "a1", "message": "Good morning"},
        "delayMs": 3_600_000, "idempotencyKey": "k"});
    // A colleague may talk to the agent, and has separate idempotency keys.
    let mut ids = Vec::new();
    for user in [OWNER, COLLEAGUE, OWNER] {
        let created = expect_json(post(user, &turn).await, 201).await;
        ids.push(created["jobId"].as_str().expect("an id").to_owned());
    }
    assert!(ids[0] != ids[1] && ids[0] == ids[2], "{ids:?}");
    let tool = json!({"payload": create_todo("Far"), "everyMs": 3_600_000, "maxAttempts": 3});
    let last = expect_json(post(OWNER, &tool).await, 201).await["jobId"].clone();
    let list = async |query: &str| {
        let path = format!("/api/pulse/jobs{query}");
        let list = expect_json(ask(&bench.app, OWNER, "GET", &path, None).await, 200).await;
        let jobs = list["jobs"].as_array().expect("jobs").clone();
        jobs.iter().map(|job| job["jobId"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    let last = last.as_str().expect("an id");
    assert_eq!(list("").await, [last, &ids[0]], "the newest first");
    assert_eq!(list("?order=asc&state=open&agentId=a1").await, [&*ids[0], last]);
    expect_problem(
        ask(&bench.app, OWNER, "GET", "/api/pulse/jobs?order=up", None).await,
        400,
        "INVALID_REQUEST",
    )
    .await;
    let with = |change: Value| {
        let mut job = turn.clone();
        for (name, value) in change.as_object().expect("an object") {
            job["payload"][name] = value.clone();
        }
        job
    };
    for (job, status, code) in [
        (with(json!({"userId": "u2"})), 403, "FORBIDDEN"),
        (with(json!({"companyId": "c2"})), 403, "FORBIDDEN"),
        (with(json!({"message": " "})), 400, "INVALID_REQUEST"),
        (with(json!({"kind": "tool", "toolId": "deleteTodo"})), 400, "INVALID_REQUEST"),
        (with(json!({"assignmentId": "s1"})), 400, "INVALID_REQUEST"),
        (json!({"payload": create_todo("x"), "cron": "0 0 31 2 *"}), 400, "INVALID_REQUEST"),
        (json!({"payload": create_todo("x"), "delayMs": 1, "idempotencyKey": ""}), 400, "INVALID_REQUEST"),
    ] {
        expect_problem(post(OWNER, &job).await, status, code).await;
    }
    let problem = expect_problem(post(OWNER, &with(json!({"message": "Hi"}))).await, 409, "CONFLICT").await;
    assert_eq!(problem["detail"], "the idempotencyKey belongs to another job");
    let unknown_agent = post(OWNER, &with(json!({"agentId": "z1"}))).await;
    let problem = expect_problem(unknown_agent, 404, "NOT_FOUND").await;
    assert_eq!(problem["detail"], "payload.agentId not found");
    for (job, member) in [
        (json!({"payload": create_todo("x"), "delayMs": 1, "maxAttempts": 0}), "maxAttempts "),
        (json!({"payload": create_todo("x"), "delayMs": 1, "misfire": 7}), "misfire "),
        (with(json!({"todoListId": "a\u{202e}b"})), "payload.todoListId "),
        (with(json!({"kind": 7})), "payload.kind "),
        (with(json!({"kind": "tool", "toolId": "createTodo"})), "payload.arguments.title is missing"),
        (
            with(json!({"kind": "tool", "toolId": "createTodo", "arguments": {"title": 7}})),
            "payload.arguments.title does not conform",
        ),
    ] {
        let problem = expect_problem(post(OWNER, &job).await, 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.starts_with(member)), "{problem}");
    }
    for parameter in ["agentId", "toolId", "assignmentId", "cursor"] {
        let path = format!("/api/pulse/jobs?{parameter}={}", "x".repeat(257));
        let response = ask(&bench.app, OWNER, "GET", &path, None).await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.starts_with(parameter)), "{problem}");
    }
    for query in ["cursor=zzz", "cursor=", "limit=0", "limit=x"] {
        let response = ask(&bench.app, OWNER, "GET", &format!("/api/pulse/jobs?{query}"), None).await;
        let problem = expect_problem(response, 400, "INVALID_REQUEST").await;
        let parameter = query.split('=').next().expect("a name");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.starts_with(parameter)), "{problem}");
    }
}

/// Finished jobs do not count, however many there are, and the open ones all do.
#[tokio::test]
async fn the_number_of_open_jobs_is_exact() {
    let bench = open(NOWHERE, &[]).await;
    let job = json!({"payload": create_todo("Far"), "delayMs": 3_600_000});
    let schedule = async || request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&job)).await;
    for _ in 0..3 {
        schedule().await;
    }
    request_scheduler(&bench.scheduler, "DELETE", "/jobs?companyId=c1&userId=u1&toolId=createTodo", None)
        .await;
    let last = schedule().await;
    let pause = format!("/jobs/{}/pause", last["jobId"].as_str().expect("an id"));
    request_scheduler(&bench.scheduler, "POST", &pause, None).await;
    for _ in 0..101 {
        schedule().await;
    }
    let status = expect_json(ask(&bench.app, OWNER, "GET", "/api/pulse/status", None).await, 200).await;
    assert_eq!(status["jobCount"], 102);
    let turn = json!({"payload": {"kind": "agent", "agentId": "a1", "message": "x"}, "delayMs": 3_600_000});
    let response = ask(&bench.app, OWNER, "POST", "/api/pulse/jobs", Some(&turn)).await;
    expect_problem(response, 409, "CONFLICT").await;
}

/// A URL drops a segment `..`, so that the path of one job would become that of a cancellation of many.
#[tokio::test]
async fn a_job_id_that_a_url_would_drop_is_invalid() {
    let bench = open(NOWHERE, &[]).await;
    let job = json!({"payload": create_todo("Far"), "delayMs": 3_600_000});
    let response = request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&job)).await;
    for id in ["%2e%2e", ".", "%2E", "x%2Fy", "%20", "a%C2%A0b", "a%E2%80%8Bb"] {
        for (method, operation) in [("GET", ""), ("DELETE", ""), ("POST", "/reschedule")] {
            let request = format!(
                "{method} /api/pulse/jobs/{id}{operation}?toolId=createTodo HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \
                 {}\r\nContent-Type: application/json\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{{\"delayMs\":1}}",
                session_token(OWNER.0, OWNER.1)
            );
            let answer = exchange(bench.app.address, request).await;
            assert!(
                answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"id "),
                "{method} {id}: {answer}"
            );
        }
    }
    let list = expect_json(ask(&bench.app, OWNER, "GET", "/api/pulse/jobs", None).await, 200).await;
    assert_eq!(
        (&list["jobs"][0]["jobId"], &list["jobs"][0]["state"]),
        (&response["jobId"], &json!("scheduled"))
    );
}

#[tokio::test]
async fn responses_of_another_server_are_not_repeated() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    let echo = format!("{{\"code\":\"X\",\"detail\":\"{PULSE_SECRET}\"}}");
    let valid_page = json!({"jobs": [{"jobId": "j", "state": "scheduled", "executeAt": "2026-01-01T00:00:00Z",
        "createdAt": "2026-01-01T00:00:00Z", "occurrence": 1, "attempt": 0,
        "schedule": {"executeAt": "2026-01-01T00:00:00Z"},
        "payload": {"kind": "tool", "userId": "u2", "companyId": "c1", "agentId": "a1", "toolId": "secret-canary"}}]});
    for (status, answered, expected, code) in [
        ("400 Bad Request", &*echo, 400, "INVALID_REQUEST"),
        ("401 Unauthorized", &echo, 502, "BACKEND_FAILED"),
        ("404 Not Found", &echo, 404, "NOT_FOUND"),
        ("409 Conflict", &echo, 409, "CONFLICT"),
        ("500 Internal Server Error", &echo, 502, "BACKEND_UNREACHABLE"),
        ("200 OK", &echo, 502, "BACKEND_FAILED"),
        ("200 OK", "no JSON pulse-canary", 502, "BACKEND_FAILED"),
        ("200 OK", &valid_page.to_string(), 200, ""),
    ] {
        let vendor = Vendor::start().await;
        let path = "/jobs?companyId=c1&userId=u1&order=desc&limit=50";
        vendor.on(path, [json_response(status, "", answered)]);
        let app = app(&stores, &format!("http://{}", vendor.address), &[]).await;
        let answer = ask(&app, OWNER, "GET", "/api/pulse/jobs", None).await;
        if expected == 200 {
            assert_eq!(
                expect_json(answer, 200).await,
                json!({"jobs": []}),
                "another user's job is not shown"
            );
            let one = [json_response("200 OK", "", &valid_page["jobs"][0].to_string())];
            vendor.on("/jobs/j?companyId=c1&userId=u1", one);
            let answer = ask(&app, OWNER, "GET", "/api/pulse/jobs/j", None).await;
            expect_problem(answer, 404, "NOT_FOUND").await;
            continue;
        }
        let problem = expect_problem(answer, expected, code).await.to_string();
        assert!(!problem.contains("canary"), "{problem}");
    }
}
