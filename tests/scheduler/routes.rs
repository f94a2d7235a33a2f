//! Every scheduler route with valid and invalid input.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{json_of, open, open_with, payload};
use crate::support::expect_problem;
use crate::support::server::PULSE_SECRET;
use crate::support::vendor::{Step, json_response};

/// Returns a schedule in the future, so that the job is not delivered during a test.
fn tomorrow() -> Value {
    json!({"delayMs": 86_400_000})
}

#[tokio::test]
async fn a_job_is_created_read_rescheduled_and_cancelled() {
    let bench = open().await;
    // A time in the future, whenever the test runs.
    let year = Timestamp::now().to_zoned(TimeZone::UTC).year() + 2;
    let due = format!("{year}-01-02T02:04:05.000Z");
    let body = json!({
        "payload": payload("a1"), "executeAt": format!("{year}-01-02T03:04:05+01:00"), "maxAttempts": 3,
        "misfire": "skip", "overlap": "queue",
    });
    let response = bench.ask("POST", "/jobs", Some(&body)).await;
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().expect("text").to_owned();
    let created = json_of(response).await;
    assert_eq!(created["executeAt"], due);
    let id = created["jobId"].as_str().expect("an id");
    assert_eq!(location, format!("/jobs/{id}"));

    let mut shown = bench.get(id).await;
    let created = shown.as_object_mut().expect("an object").remove("createdAt").expect("a time");
    assert!(created.as_str().is_some_and(|time| time.ends_with('Z')), "{created}");
    let expected = json!({
        "jobId": id, "state": "scheduled", "payload": payload("a1"),
        "schedule": {"executeAt": due}, "executeAt": due, "scheduledFor": due, "occurrence": 1, "attempt": 0,
        "paused": false, "misfire": "skip", "overlap": "queue", "maxAttempts": 3,
    });
    assert_eq!(shown, expected);

    let moved = json!({"cron": "0 8 * * *", "timezone": "Europe/Berlin"});
    let body = json_of(bench.ask("POST", &format!("/jobs/{id}/reschedule"), Some(&moved)).await).await;
    assert_eq!((&body["jobId"], &body["delivering"]), (&json!(id), &json!(false)));
    for (path, state) in [("pause", "paused"), ("pause", "paused"), ("resume", "scheduled")] {
        let acted = bench.ask("POST", &format!("/jobs/{id}/{path}"), None).await;
        assert_eq!(acted.status(), 200);
        assert_eq!(json_of(acted).await["state"], state, "{path}");
    }
    expect_problem(bench.ask("POST", &format!("/jobs/{id}/redrive"), None).await, 409, "CONFLICT").await;
    for _ in 0..2 {
        let cancelled = json_of(bench.ask("DELETE", &format!("/jobs/{id}"), None).await).await;
        assert_eq!((&cancelled["state"], &cancelled["delivering"]), (&json!("cancelled"), &json!(false)));
    }
    for path in ["pause", "resume", "redrive"] {
        expect_problem(bench.ask("POST", &format!("/jobs/{id}/{path}"), None).await, 409, "CONFLICT").await;
    }
    let moved = bench.ask("POST", &format!("/jobs/{id}/reschedule"), Some(&tomorrow())).await;
    expect_problem(moved, 409, "CONFLICT").await;
}

#[tokio::test]
async fn a_request_with_the_same_idempotency_key_creates_no_second_job() {
    let bench = open().await;
    let ask = |body: Value| {
        let bench = &bench;
        async move {
            let response = bench.ask("POST", "/jobs", Some(&body)).await;
            (response.status().as_u16(), json_of(response).await)
        }
    };
    let body = |company: &str, delay: u64| {
        let mut payload = payload("a1");
        payload["companyId"] = company.into();
        payload["arguments"] = json!({"a": 1, "b": 2});
        json!({"payload": payload, "delayMs": delay, "idempotencyKey": "k"})
    };
    let (status, first) = ask(body("c1", 60_000)).await;
    assert_eq!(status, 201);
    let mut other_order = body("c1", 60_000);
    other_order["payload"]["arguments"] = json!({"b": 2, "a": 1});
    assert_eq!(ask(other_order).await, (200, first.clone()));
    let (status, refused) = ask(body("c1", 60_001)).await;
    assert_eq!((status, &refused["code"]), (409, &json!("CONFLICT")));
    let (status, other) = ask(body("c2", 60_001)).await;
    assert_eq!(status, 201, "a key is the company's own");
    assert_ne!(other["jobId"], first["jobId"]);
}

#[tokio::test]
async fn invalid_jobs_are_refused_with_the_invalid_field() {
    let bench = open().await;
    let with = |name: &str, value: Value| {
        let mut body = json!({"payload": payload("a1"), "delayMs": 1000});
        match name.strip_prefix("payload.") {
            Some(name) => body["payload"][name] = value,
            None => body[name] = value,
        }
        body
    };
    let long = "x".repeat(300);
    for (body, named) in [
        (json!({"delayMs": 1}), "payload"),
        (json!({"payload": payload("a1")}), "executeAt"),
        (with("everyMs", json!(1000)), "everyMs"),
        (with("delayMs", json!(-1)), "delayMs"),
        (with("delayMs", json!("soon")), "delayMs"),
        (with("delayMs", json!(u64::MAX)), "delayMs"),
        (with("timezone", json!("Mars/Olympus")), "timezone"),
        (with("maxAttempts", json!(0)), "maxAttempts"),
        (with("maxAttempts", json!(101)), "maxAttempts"),
        (with("misfire", json!("never")), "misfire"),
        (with("overlap", json!("twice")), "overlap"),
        (with("idempotencyKey", json!("")), "idempotencyKey"),
        (with("idempotencyKey", json!(long)), "idempotencyKey"),
        (with("payload.kind", json!("shell")), "payload.kind"),
        (with("payload.userId", json!("")), "userId"),
        (with("payload.companyId", json!(long)), "companyId"),
        (with("payload.toolId", Value::Null), "toolId"),
        (with("payload.timezone", json!("Mars/Olympus")), "timezone"),
        (with("payload.kind", json!("agent")), "message"),
        (json!({"payload": payload("a1"), "cron": "0 0 31 2 *"}), "cron"),
        (json!({"payload": payload("a1"), "cron": "every day"}), "cron"),
        (json!({"payload": payload("a1"), "everyMs": 10}), "everyMs"),
        (json!({"payload": payload("a1"), "executeAt": "tomorrow"}), "executeAt"),
    ] {
        let problem =
            expect_problem(bench.ask("POST", "/jobs", Some(&body)).await, 400, "INVALID_REQUEST").await;
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.contains(named), "{named}: {detail} of {body}");
    }
    let list = json_of(bench.ask("GET", "/jobs", None).await).await;
    assert_eq!(list, json!({"jobs": []}), "nothing was stored");

    let raw = |content_type: &str, body: String| {
        let request = bench.scheduler.request("POST", "/jobs").bearer_auth(PULSE_SECRET);
        request.header("content-type", content_type).body(body).send()
    };
    expect_problem(raw("application/json", "{".into()).await.unwrap(), 400, "INVALID_REQUEST").await;
    expect_problem(raw("application/json", "[".repeat(100_000)).await.unwrap(), 400, "INVALID_REQUEST").await;
    expect_problem(raw("text/plain", "{}".into()).await.unwrap(), 415, "UNSUPPORTED_MEDIA_TYPE").await;
    expect_problem(raw("application/json", " ".repeat(2 << 20)).await.unwrap(), 413, "PAYLOAD_TOO_LARGE")
        .await;
}

#[tokio::test]
async fn impossible_schedules_are_refused_with_the_invalid_field() {
    let bench = open().await;
    let days = |days: u64| json!(days * 86_400_000);
    let id = bench.create_job(tomorrow(), payload("a1")).await;
    let before = bench.get(&id).await;
    for (schedule, named) in [
        // Dates and times that do not exist.
        (json!({"executeAt": "2027-02-29T12:00:00Z"}), "executeAt"),
        (json!({"executeAt": "2027-04-31T12:00:00Z"}), "executeAt"),
        (json!({"executeAt": "2027-13-01T12:00:00Z"}), "executeAt"),
        (json!({"executeAt": "2027-01-01T24:00:01Z"}), "executeAt"),
        (json!({"executeAt": "2027-01-01T12:60:00Z"}), "executeAt"),
        (json!({"executeAt": "2027-01-01T12:00:00+26:00"}), "executeAt"),
        (json!({"executeAt": "1969-12-31T23:59:59Z"}), "executeAt"),
        (json!({"executeAt": "2126-01-01T00:00:00Z"}), "executeAt"),
        (json!({"executeAt": "99999-01-01T00:00:00Z"}), "executeAt"),
        (json!({"executeAt": "2027-01-01"}), "executeAt"),
        (json!({"executeAt": 1_798_761_600_000_u64}), "executeAt"),
        (json!({"executeAt": ""}), "executeAt"),
        // Unknown time zones.
        (json!({"executeAt": "2027-01-01T12:00:00", "timezone": "CEST"}), "timezone"),
        (json!({"executeAt": "2027-01-01T12:00:00Z", "timezone": "Europe/Atlantis"}), "timezone"),
        (json!({"cron": "0 8 * * *", "timezone": "Europe/Atlantis"}), "timezone"),
        (json!({"cron": "0 8 * * *", "timezone": "../../etc/passwd"}), "timezone"),
        (json!({"cron": "0 8 * * *", "timezone": ""}), "timezone"),
        (json!({"everyMs": 60_000, "timezone": "UTC+1"}), "timezone"),
        // Delays above the limit.
        (json!({"delayMs": days(3651)}), "delayMs"),
        (json!({"delayMs": u64::MAX}), "delayMs"),
        (json!({"delayMs": 1e300}), "delayMs"),
        (json!({"delayMs": 1.5}), "delayMs"),
        (json!({"everyMs": days(3651)}), "everyMs"),
        (json!({"everyMs": i64::MIN}), "everyMs"),
        (json!({"everyMs": 999}), "everyMs"),
        (json!({"everyMs": 0}), "everyMs"),
        // Invalid cron expressions, and ones that never match.
        (json!({"cron": "0 0 30 2 *"}), "cron"),
        (json!({"cron": "0 0 31 4,6,9,11 *"}), "cron"),
        (json!({"cron": "0 25 * * *"}), "cron"),
        (json!({"cron": "*/0 * * * *"}), "cron"),
        (json!({"cron": "* * * *"}), "cron"),
        (json!({"cron": "@reboot"}), "cron"),
        (json!({"cron": "@daily".repeat(1000)}), "cron"),
        (json!({"cron": ""}), "cron"),
        (json!({"cron": "30 2 * * *", "dst": {"gap": "guess"}}), "dst"),
        // No schedule, and two schedules.
        (json!({}), "executeAt"),
        (json!({"delayMs": 1, "cron": "0 8 * * *"}), "cron"),
        (json!({"executeAt": "2027-01-01T12:00:00Z", "everyMs": 60_000}), "everyMs"),
    ] {
        let mut job = schedule.clone();
        job["payload"] = payload("a1");
        for (path, body) in [("/jobs".to_owned(), &job), (format!("/jobs/{id}/reschedule"), &schedule)] {
            let problem =
                expect_problem(bench.ask("POST", &path, Some(body)).await, 400, "INVALID_REQUEST").await;
            let detail = problem["detail"].as_str().expect("text");
            assert!(detail.contains(named), "{named}: {detail} of {schedule}");
        }
    }
    assert_eq!(bench.get(&id).await, before, "the job is as it was");
    let list = json_of(bench.ask("GET", "/jobs", None).await).await;
    assert_eq!(list["jobs"].as_array().map(Vec::len), Some(1), "nothing was stored");
    // The latest schedules that are accepted.
    for schedule in [
        json!({"executeAt": "2028-02-29T23:59:59.999+14:00"}),
        json!({"cron": "0 0 29 2 *", "timezone": "Pacific/Kiritimati"}),
        json!({"delayMs": days(3650)}),
        json!({"everyMs": days(3650)}),
    ] {
        bench.create_job(schedule, payload("a1")).await;
    }
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let bench = open().await;
    let mut ids = Vec::new();
    for (user, company, tool, assignment) in [
        ("u1", "c1", "createTodo", None),
        ("u1", "c1", "readTodos", Some("s1")),
        ("u2", "c1", "createTodo", None),
        ("u1", "c2", "createTodo", Some("s1")),
    ] {
        let mut payload = payload("a1");
        (payload["userId"], payload["companyId"], payload["toolId"]) =
            (user.into(), company.into(), tool.into());
        if let Some(assignment) = assignment {
            payload["assignmentId"] = assignment.into();
        }
        ids.push(bench.create_job(tomorrow(), payload).await);
    }
    bench.ask("POST", &format!("/jobs/{}/pause", ids[0]), None).await;
    for (query, expected_jobs) in [
        ("", vec![3, 2, 1, 0]),
        ("?order=desc", vec![3, 2, 1, 0]),
        ("?order=asc", vec![0, 1, 2, 3]),
        ("?userId=u1&companyId=c1", vec![1, 0]),
        ("?companyId=c1&toolId=createTodo", vec![2, 0]),
        ("?assignmentId=s1", vec![3, 1]),
        ("?agentId=a1&state=open&order=asc", vec![0, 1, 2, 3]),
        ("?agentId=a2", vec![]),
        ("?state=paused", vec![0]),
        ("?state=completed", vec![]),
        ("?userId=nobody", vec![]),
        ("?limit=200&unknown=x", vec![3, 2, 1, 0]),
    ] {
        let list = json_of(bench.ask("GET", &format!("/jobs{query}"), None).await).await;
        let listed: Vec<&str> = list["jobs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|job| job["jobId"].as_str().unwrap())
            .collect();
        let expected: Vec<&str> = expected_jobs.into_iter().map(|index: usize| ids[index].as_str()).collect();
        assert_eq!(listed, expected, "{query}");
        assert!(list.get("nextCursor").is_none(), "{query}");
        let count = json_of(bench.ask("GET", &format!("/jobs/count{query}"), None).await).await;
        assert_eq!(count, json!({"count": expected.len()}), "{query}");
    }
    let first = json_of(bench.ask("GET", "/jobs?limit=3", None).await).await;
    let cursor = first["nextCursor"].as_str().expect("there is more");
    let second = json_of(bench.ask("GET", &format!("/jobs?limit=3&cursor={cursor}"), None).await).await;
    assert_eq!(
        (first["jobs"].as_array().map(Vec::len), &second["jobs"][0]["jobId"]),
        (Some(3), &json!(ids[0]))
    );
    assert!(second.get("nextCursor").is_none());
    for query in [
        "limit=0",
        "limit=201",
        "limit=x",
        "order=up",
        "state=lost",
        "userId=",
        "companyId=a&companyId=b",
        "cursor=",
        "cursor=zzz",
        "cursor=01A1FF61-C9E6-701E-AD68-2ADF832E7177",
    ] {
        expect_problem(bench.ask("GET", &format!("/jobs?{query}"), None).await, 400, "INVALID_REQUEST").await;
    }
}

#[tokio::test]
async fn a_job_of_another_tenant_is_not_found() {
    let bench = open().await;
    let id = bench.create_job(tomorrow(), payload("a1")).await;
    for query in ["companyId=c2", "userId=u2", "companyId=c1&userId=u2", "companyId=c2&userId=u1"] {
        for (method, path) in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/reschedule"),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/redrive"),
        ] {
            let body = (path == "/reschedule").then(tomorrow);
            let path = format!("/jobs/{id}{path}?{query}");
            expect_problem(bench.ask(method, &path, body.as_ref()).await, 404, "NOT_FOUND").await;
        }
    }
    assert_eq!(bench.get(&id).await["state"], "scheduled");
    let path = format!("/jobs/{id}?companyId=c1&userId=u1");
    assert_eq!(bench.ask("GET", &path, None).await.status(), 200);
    expect_problem(bench.ask("GET", "/jobs/unknown", None).await, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn jobs_are_cancelled_together_only_with_all_required_parameters() {
    let bench = open().await;
    let mut ids = Vec::new();
    for tool in ["createTodo", "createTodo", "readTodos"] {
        let mut payload = payload("a1");
        payload["toolId"] = tool.into();
        ids.push(bench.create_job(tomorrow(), payload).await);
    }
    for query in [
        "",
        "?userId=u1&companyId=c1",
        "?userId=u1&toolId=createTodo",
        "?companyId=c1&toolId=createTodo",
        "?userId=u1&companyId=c1&toolId=",
        "?userId=&companyId=&toolId=createTodo",
        "?userId=u1&companyId=c1&state=scheduled",
    ] {
        expect_problem(bench.ask("DELETE", &format!("/jobs{query}"), None).await, 400, "INVALID_REQUEST")
            .await;
    }
    let path = "/jobs?userId=u1&companyId=c1&toolId=createTodo";
    for cancelled in [2, 0] {
        let answer = bench.ask("DELETE", path, None).await;
        assert_eq!(json_of(answer).await, json!({ "cancelled": cancelled }));
    }
    assert_eq!(bench.get(&ids[2]).await["state"], "scheduled");
    let none = "/jobs?userId=u1&companyId=c2&assignmentId=s1";
    assert_eq!(json_of(bench.ask("DELETE", none, None).await).await["cancelled"], 0);
    let of_agent = |company: &str| format!("/jobs?companyId={company}&agentId=a1");
    expect_problem(bench.ask("DELETE", "/jobs?agentId=a1", None).await, 400, "INVALID_REQUEST").await;
    for (company, cancelled) in [("c2", 0), ("c1", 1)] {
        let answer = bench.ask("DELETE", &of_agent(company), None).await;
        assert_eq!(json_of(answer).await, json!({ "cancelled": cancelled }));
    }
}

#[tokio::test]
async fn every_route_needs_the_secret() {
    let previous = "pulse-canary-of-before";
    let bench = open_with(&[("PULSE_SECRET_PREVIOUS", previous)]).await;
    for (method, path) in [
        ("POST", "/jobs"),
        ("GET", "/jobs"),
        ("DELETE", "/jobs"),
        ("GET", "/jobs/x"),
        ("GET", "/jobs/count"),
        ("DELETE", "/jobs/x"),
        ("POST", "/jobs/x/reschedule"),
        ("POST", "/jobs/x/pause"),
        ("POST", "/jobs/x/resume"),
        ("POST", "/jobs/x/redrive"),
    ] {
        for bearer in [None, Some("pulse-canary-012345678"), Some("")] {
            let request = bench.scheduler.request(method, path);
            let request = bearer.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth);
            expect_problem(request.send().await.expect("the server answers"), 401, "UNAUTHENTICATED").await;
        }
    }
    let list = |bearer: &str| bench.scheduler.request("GET", "/jobs").bearer_auth(bearer).send();
    assert_eq!(list(previous).await.unwrap().status(), 200);
    assert_eq!(list(PULSE_SECRET).await.unwrap().status(), 200);
    expect_problem(bench.ask("PUT", "/jobs", None).await, 405, "METHOD_NOT_ALLOWED").await;
    expect_problem(bench.ask("GET", "/job", None).await, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn changes_during_a_delivery_report_that_it_is_in_flight() {
    let bench = open().await;
    let (gate, opened) = tokio::sync::watch::channel(false);
    let slow = vec![Step::Until(opened), json_response("200 OK", "", "{}").remove(0)];
    for (act, method, path, state) in [
        ("cancel", "DELETE", "", "cancelled"),
        ("move", "POST", "/reschedule", "running"),
        ("pause", "POST", "/pause", "paused"),
    ] {
        bench.receiver.on(act, [slow.clone()]);
        let id = bench.create_job(json!({"delayMs": 0}), payload(act)).await;
        bench.receiver.wait_for_requests(act, 1).await;
        let body = (act == "move").then(tomorrow);
        let acted = json_of(bench.ask(method, &format!("/jobs/{id}{path}"), body.as_ref()).await).await;
        assert_eq!((&acted["delivering"], &acted["state"]), (&json!(true), &json!(state)), "{acted}");
    }
    gate.send_replace(true);
}
