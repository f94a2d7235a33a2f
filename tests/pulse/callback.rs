//! Scheduler callbacks: authentication, and idempotency of effects.

use std::time::{Duration, SystemTime};

use agent_core::secret::Secret;
use agent_http::webhook;
use agent_platform::occurrence::{OCCURRENCE_COLLECTION, OccurrenceState};
use agent_platform::records::{Key, Precondition, RecordsExt};
use agent_platform::workspace::{DELETED_USER_COLLECTION, delete_user};
use futures_util::future::join_all;
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::*;
use crate::support::expect_problem;

const UNREACHABLE_URL: &str = "http://127.0.0.1:9/v1";

#[tokio::test]
async fn an_effect_happens_once_however_often_it_is_called_for() {
    let (app, stores) = app_without_scheduler(UNREACHABLE_URL, &[]).await;
    let first = delivery(create_todo("Sow"), "j1", 1);
    let calls = (0..8).map(|_| deliver_callback(&app, &first));
    let statuses: Vec<u16> =
        join_all(calls).await.into_iter().map(|answer| answer.status().as_u16()).collect();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 409)), "{statuses:?}");
    assert!(statuses.contains(&200), "{statuses:?}");
    let second = expect_json(deliver_callback(&app, &first).await, 200).await;
    assert_eq!(second, json!({"status": "doneBefore", "jobId": "j1", "occurrence": 1}));
    assert_eq!(todo_titles(&stores).await, ["Sow"]);
    let next = expect_json(deliver_callback(&app, &delivery(create_todo("Sow"), "j1", 2)).await, 200).await;
    assert_eq!(next["status"], "done");
    assert_eq!(todo_titles(&stores).await, ["Sow", "Sow"]);
}

#[tokio::test]
async fn an_interrupted_occurrence_is_repeated_after_its_process_has_ended() {
    let (app, stores) = app_without_scheduler(UNREACHABLE_URL, &[]).await;
    let key = Key::new("c1", OCCURRENCE_COLLECTION, "j1:1").expect("a key");
    let now = Timestamp::now();
    let leave = async |mark: OccurrenceState| {
        stores.records.put_as(&key, &mark, Precondition::Any).await.expect("put");
    };
    leave(OccurrenceState::Running { until: now + 1.hour(), owner: None }).await;
    let answer = deliver_callback(&app, &delivery(create_todo("Sow"), "j1", 1)).await;
    let wait: u64 = answer.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=15).contains(&wait), "{wait}");
    expect_problem(answer, 409, "CONFLICT").await;
    assert_eq!(todo_titles(&stores).await, Vec::<String>::new());
    leave(OccurrenceState::Running { until: now + 1.hour(), owner: Some("ended".to_owned()) }).await;
    expect_json(deliver_callback(&app, &delivery(create_todo("Sow"), "j1", 1)).await, 200).await;
    assert_eq!(todo_titles(&stores).await, ["Sow"]);
}

/// Its job is cancelled at the next maintenance, which may be later.
#[tokio::test]
async fn no_run_begins_for_a_deleted_user() {
    let (app, stores) = app_without_scheduler(UNREACHABLE_URL, &[]).await;
    let (company, user) = ("c1".into(), "u1".into());
    delete_user(&*stores.records, &company, &user).await.expect("deleted");
    let occurrence = delivery(record_metric(1), "j1", 1);
    let answer = deliver_callback(&app, &occurrence).await;
    assert_eq!(answer.headers()["retry-after"], "60");
    expect_problem(answer, 409, "CONFLICT").await;
    assert!(recorded_metrics(&*stores.records).await.is_empty());
    let mut of_colleague = record_metric(2);
    of_colleague["userId"] = "u2".into();
    expect_json(deliver_callback(&app, &delivery(of_colleague, "j2", 1)).await, 200).await;
    // As maintenance leaves it; the job is that of a person who got the id later.
    let key = Key::new("c1", DELETED_USER_COLLECTION, "u1").expect("a key");
    stores.records.delete(&key, Precondition::Any).await.expect("deleted");
    expect_json(deliver_callback(&app, &occurrence).await, 200).await;
    assert_eq!(recorded_metrics(&*stores.records).await, [1, 2]);
}

/// A forged call: name, bearer, signing key, signing time, signed id, body sent, and expected status.
type ForgedCallCase<'a> = (&'a str, Option<&'a str>, &'a str, SystemTime, &'a str, &'a str, u16);

#[tokio::test]
async fn a_callback_that_is_not_the_schedulers_changes_nothing() {
    let (app, stores) = app_without_scheduler(UNREACHABLE_URL, &[]).await;
    let body = delivery(create_todo("Forged"), "j1", 1).to_string();
    let now = SystemTime::now();
    let (minutes, guess) = (Duration::from_secs(60), "guess-canary-0123456789");
    let altered = body.replace("Forged", "Other");
    let cases: &[ForgedCallCase<'_>] = &[
        ("no bearer", None, PULSE_SECRET, now, "j1:1", &body, 401),
        ("another bearer", Some(guess), PULSE_SECRET, now, "j1:1", &body, 401),
        ("another key", Some(PULSE_SECRET), guess, now, "j1:1", &body, 401),
        ("too old", Some(PULSE_SECRET), PULSE_SECRET, now - 6 * minutes, "j1:1", &body, 401),
        ("too new", Some(PULSE_SECRET), PULSE_SECRET, now + 6 * minutes, "j1:1", &body, 401),
        ("another body", Some(PULSE_SECRET), PULSE_SECRET, now, "j1:1", &altered, 401),
        ("another occurrence", Some(PULSE_SECRET), PULSE_SECRET, now, "j1:2", &body, 400),
    ];
    for (case, bearer, key, at, id, sent, status) in cases {
        let signed = webhook::sign(&Secret::new(*key), id, *at, body.as_bytes()).expect("an id");
        let mut request =
            app.request("POST", "/api/pulse/callback").header("content-type", "application/json");
        request = bearer.iter().fold(request, |request, bearer| request.bearer_auth(bearer));
        request = signed.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let answer = request.body((*sent).to_owned()).send().await.expect("an answer");
        let code = if *status == 401 { "UNAUTHENTICATED" } else { "INVALID_REQUEST" };
        assert_eq!(answer.status(), *status, "{case}");
        let problem = expect_problem(answer, *status, code).await.to_string();
        assert!(!problem.contains("canary") && !problem.contains("Forged"), "{case}: {problem}");
    }
    let unsigned = app.request("POST", "/api/pulse/callback").bearer_auth(PULSE_SECRET);
    let answer = unsigned.json(&json!({})).send().await.expect("an answer");
    expect_problem(answer, 401, "UNAUTHENTICATED").await;
    assert_eq!(todo_titles(&stores).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_previous_secret_verifies_during_a_rotation() {
    let (app, stores) = app_without_scheduler(UNREACHABLE_URL, &[]).await;
    let body = delivery(create_todo("Sow"), "j1", 1).to_string();
    let signed =
        webhook::sign(&Secret::new(PREVIOUS_PULSE_SECRET), "j1:1", SystemTime::now(), body.as_bytes());
    let mut request = app.request("POST", "/api/pulse/callback").bearer_auth(PREVIOUS_PULSE_SECRET);
    for (name, value) in signed.expect("an id") {
        request = request.header(name, value);
    }
    let answer =
        request.header("content-type", "application/json").body(body).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(todo_titles(&stores).await, ["Sow"]);
}

#[tokio::test]
async fn permanent_failures_are_reported_as_permanent() {
    let (app, stores) = app_without_scheduler(UNREACHABLE_URL, &[]).await;
    let with = |change: Value| {
        let mut payload = create_todo("x");
        payload.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
        payload
    };
    let assignment = json!({"toolId": "createTodo", "arguments": {"title": "x"}, "schedule": {"enabled": true, "cron": "0 9 * * *"}});
    expect_json(ask(&app, OWNER, "PUT", "/api/agents/a1/assignments/s1", Some(&assignment)).await, 201).await;
    let question = json!({"kind": "agent", "message": "How are you?"});
    let mut of_silent = question.clone();
    of_silent["agentId"] = "silent".into();
    for (n, (change, status, code)) in [
        (json!({"agentId": "none"}), 410, "GONE"),
        (json!({"agentId": "z1"}), 410, "GONE"),
        (json!({"companyId": "c2"}), 410, "GONE"),
        (json!({"assignmentId": "none"}), 410, "GONE"),
        (json!({"kind": "agent", "message": "Hi", "agentId": "none"}), 410, "GONE"),
        (json!({"toolId": "deleteTodo"}), 410, "GONE"),
        (json!({"toolId": "none"}), 410, "GONE"),
        // The assignment's synchronization cancels its job.
        (json!({"toolId": "deleteTodo", "assignmentId": "s1"}), 400, "INVALID_REQUEST"),
        (json!({"arguments": {"title": 7}}), 400, "INVALID_REQUEST"),
        (json!({"kind": "agent"}), 400, "INVALID_REQUEST"),
        (of_silent, 422, "NO_CONNECTOR"),
        // Another user's todo list gets the same response as a missing one.
        (json!({"userId": "u2"}), 400, "INVALID_REQUEST"),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = deliver_callback(&app, &delivery(with(change.clone()), "j1", n as u64 + 1)).await;
        let actual_status = answer.status().as_u16();
        assert_eq!(actual_status, status, "{change}: {}", answer.text().await.expect("a body"));
        let answer = deliver_callback(&app, &delivery(with(change), "j2", n as u64 + 1)).await;
        expect_problem(answer, status, code).await;
    }
    // A newer version's kind is kept for a newer application.
    let newer = deliver_callback(&app, &delivery(with(json!({"kind": "dance"})), "j3", 1)).await;
    assert!(newer.headers().contains_key("retry-after"));
    expect_problem(newer, 409, "CONFLICT").await;
    assert_eq!(todo_titles(&stores).await, Vec::<String>::new());
}
