//! Assignments: authorization, and their jobs in the scheduler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_platform::assignment::{AssignmentSync, sync_key};
use agent_platform::journal::JOURNAL_COLLECTION;
use agent_platform::occurrence::{OCCURRENCE_COLLECTION, OccurrenceState};
use agent_platform::records::{Collection, ListQuery, Precondition, Record, RecordsExt};
use agent_platform::workspace::delete_user;
use jiff::Timestamp;

use super::*;
use crate::support::expect_problem;
use crate::support::vendor::{Vendor, json_response};

const NOWHERE: &str = "http://127.0.0.1:9/v1";
const PATH: &str = "/api/agents/a1/assignments/s1";

fn every_day(title: &str) -> Value {
    json!({"toolId": "createTodo", "arguments": {"title": title}, "todoListId": "l1",
        "schedule": {"enabled": true, "cron": "0 9 * * *", "timezone": "Europe/Berlin"}})
}

fn open_jobs(jobs: &Value) -> Vec<&Value> {
    let jobs = jobs["jobs"].as_array().expect("jobs").iter();
    jobs.filter(|job| job["state"] == "scheduled").collect()
}

#[tokio::test]
async fn saved_assignments_reach_the_scheduler() {
    let bench = open(NOWHERE, &[]).await;
    let put = async |assignment: &Value, status| {
        expect_json(ask(&bench.app, OWNER, "PUT", PATH, Some(assignment)).await, status).await
    };
    let jobs =
        async || request_scheduler(&bench.scheduler, "GET", "/jobs?userId=u1&companyId=c1", None).await;
    let made = put(&every_day("One"), 201).await;
    assert_eq!((&made["sync"]["inStep"], &made["userId"]), (&json!(true), &json!("u1")));
    let id = made["sync"]["jobId"].clone();
    assert_eq!(open_jobs(&jobs().await)[0]["jobId"], id);
    // A change of the schedule reschedules the job, a change of the work replaces it, and disabling cancels it.
    let mut later = every_day("One");
    later["schedule"]["cron"] = "0 10 * * *".into();
    assert_eq!(put(&later, 200).await["sync"]["jobId"], id);
    assert_eq!(open_jobs(&jobs().await)[0]["schedule"]["cron"], "0 10 * * *");
    let replaced = put(&every_day("Two"), 200).await["sync"]["jobId"].clone();
    assert_ne!(replaced, id);
    let now = jobs().await;
    assert_eq!((open_jobs(&now).len(), &open_jobs(&now)[0]["jobId"]), (1, &replaced));
    let mut off = every_day("Two");
    off["schedule"]["enabled"] = false.into();
    assert_eq!(put(&off, 200).await["sync"], json!({"inStep": true}));
    assert!(open_jobs(&jobs().await).is_empty());
    let on_again = put(&every_day("Two"), 200).await;
    assert_eq!(open_jobs(&jobs().await)[0]["jobId"], on_again["sync"]["jobId"]);
    let list =
        expect_json(ask(&bench.app, OWNER, "GET", "/api/agents/a1/assignments", None).await, 200).await;
    assert_eq!(list["assignments"], json!([on_again]));
    assert_eq!(ask(&bench.app, OWNER, "DELETE", PATH, None).await.status(), 204);
    assert!(open_jobs(&jobs().await).is_empty());
    expect_problem(ask(&bench.app, OWNER, "GET", PATH, None).await, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn the_job_of_an_assignment_changes_with_the_assignment_only() {
    let bench = open(NOWHERE, &[]).await;
    let made = expect_json(ask(&bench.app, OWNER, "PUT", PATH, Some(&every_day("One"))).await, 201).await;
    let job = format!("/api/pulse/jobs/{}", made["sync"]["jobId"].as_str().expect("an id"));
    let reschedule = format!("{job}/reschedule");
    for (method, path, body) in
        [("DELETE", &job, None), ("POST", &reschedule, Some(json!({"delayMs": 3_600_000})))]
    {
        let answer = ask(&bench.app, OWNER, method, path, body.as_ref()).await;
        let problem = expect_problem(answer, 409, "CONFLICT").await;
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("the assignment \"s1\""), "{problem}");
    }
    let read = expect_json(ask(&bench.app, OWNER, "GET", &job, None).await, 200).await;
    assert_eq!((&read["state"], &read["schedule"]["cron"]), (&json!("scheduled"), &json!("0 9 * * *")));
    // A follow-up has the payload of the assignment's job, and is a separate job.
    let mut payload = create_todo("Later");
    payload["assignmentId"] = "s1".into();
    let follow_up = json!({"payload": payload, "delayMs": 3_600_000});
    let created = request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&follow_up)).await;
    let follow_up = format!("/api/pulse/jobs/{}", created["jobId"].as_str().expect("an id"));
    expect_json(ask(&bench.app, OWNER, "DELETE", &follow_up, None).await, 200).await;
    let mut off = every_day("One");
    off["schedule"]["enabled"] = false.into();
    expect_json(ask(&bench.app, OWNER, "PUT", PATH, Some(&off)).await, 200).await;
    let read = expect_json(ask(&bench.app, OWNER, "GET", &job, None).await, 200).await;
    assert_eq!(read["state"], "cancelled");
    expect_json(ask(&bench.app, OWNER, "DELETE", &job, None).await, 200).await;
}

/// A synchronization that is under way, or that a killed process has left, has created a job that the assignment does not name
/// yet. A follow-up is not such a job.
#[tokio::test]
async fn a_follow_up_can_be_cancelled_while_its_assignment_is_synchronized() {
    let bench = open(NOWHERE, &[]).await;
    let hours_ahead = |hours: u64| {
        let time = Timestamp::now().saturating_add(Duration::from_secs(3600 * hours)).expect("a time");
        format!("{time:.3}")
    };
    let (time, later) = (hours_ahead(1), hours_ahead(2));
    let mut assignment = every_day("One");
    assignment["schedule"] = json!({"enabled": true, "executeAt": time});
    let made = expect_json(ask(&bench.app, OWNER, "PUT", PATH, Some(&assignment)).await, 201).await;
    let key = sync_key(&"c1".into(), "s1").expect("a key");
    let link: Record<AssignmentSync> =
        bench.stores.records.get_as(&key).await.expect("read").expect("a link");
    let busy_until = Some("2100-01-01T00:00:00Z".parse().expect("a time"));
    let busy = AssignmentSync { busy_until, ..link.value };
    bench.stores.records.put_as(&key, &busy, Precondition::Any).await.expect("stored");
    let create = async |mut request: Value| {
        request["payload"] = create_todo("One");
        request["payload"]["assignmentId"] = "s1".into();
        request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&request)).await["jobId"].clone()
    };
    let follow_up = create(json!({"executeAt": later})).await;
    let unlinked = [create(json!({"executeAt": time})).await, create(json!({"cron": "0 9 * * *"})).await];
    let cancel = async |id: &Value| {
        let path = format!("/api/pulse/jobs/{}", id.as_str().expect("an id"));
        ask(&bench.app, OWNER, "DELETE", &path, None).await
    };
    expect_json(cancel(&follow_up).await, 200).await;
    for id in unlinked.iter().chain([&made["sync"]["jobId"]]) {
        expect_problem(cancel(id).await, 409, "CONFLICT").await;
    }
}

#[tokio::test]
async fn an_assignment_is_deleted_with_its_agent() {
    let bench = open(NOWHERE, &[]).await;
    ask(&bench.app, OWNER, "PUT", PATH, Some(&every_day("One"))).await;
    assert_eq!(ask(&bench.app, OWNER, "DELETE", "/api/agents/a1", None).await.status(), 204);
    let jobs = request_scheduler(&bench.scheduler, "GET", "/jobs?userId=u1&companyId=c1", None).await;
    assert_eq!(jobs["jobs"][0]["state"], "cancelled");
    let second = json!({"content": {}});
    assert_eq!(ask(&bench.app, OWNER, "PUT", "/api/agents/a1", Some(&second)).await.status(), 201);
    expect_problem(ask(&bench.app, OWNER, "GET", PATH, None).await, 404, "NOT_FOUND").await;
}

#[tokio::test]
async fn the_jobs_of_a_deleted_person_are_cancelled() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, "http://127.0.0.1:9/callback", &[]).await;
    for user in ["u1", "u2"] {
        let mut payload = create_todo("Later");
        payload["userId"] = user.into();
        let job = json!({"payload": payload, "everyMs": 3_600_000});
        request_scheduler(&scheduler, "POST", "/jobs", Some(&job)).await;
    }
    // Failed occurrences leave what a next attempt would not repeat.
    let journal = Collection::new("c1", JOURNAL_COLLECTION).expect("a name");
    let occurrences = Collection::new("c1", OCCURRENCE_COLLECTION).expect("a name");
    for (occurrence, user) in [("j1:1", "u1"), ("j2:1", "u2")] {
        let key = occurrences.key(occurrence).expect("a key");
        let failed = OccurrenceState::Failed { at: Timestamp::now() };
        stores.records.put_as(&key, &failed, Precondition::Absent).await.expect("stored");
        let key = journal.key(format!("{occurrence}/1.0")).expect("a key");
        let entry = json!({"is": "returned", "text": "a private result", "userId": user});
        stores.records.put_as(&key, &entry, Precondition::Absent).await.expect("stored");
    }
    delete_user(&*stores.records, &"c1".into(), &"u1".into()).await.expect("deleted");
    let _app = app(&stores, &scheduler.url(""), &[]).await;
    let journaled = async || {
        let page = stores.records.list(&journal, &ListQuery::default()).await.expect("read");
        page.records.into_iter().map(|record| record.id).collect::<Vec<_>>()
    };
    poll_until(journaled, |left| *left == ["j2:1/1.0"]).await;
    let open = async || request_scheduler(&scheduler, "GET", "/jobs?companyId=c1&state=open", None).await;
    let left = poll_until(open, |left| open_jobs(left).len() == 1).await;
    assert_eq!(open_jobs(&left)[0]["payload"]["userId"], "u2");
}

/// Each company has a record of one kind, and no other records.
#[tokio::test]
async fn maintenance_reaches_many_companies_in_one_pass() {
    let companies: Vec<String> = (10..40).map(|n| format!("d{n}")).collect();
    let mut workspace = workspace(NOWHERE);
    let users = companies.iter().map(|company| json!({"id": "u1", "companyId": company}));
    workspace["users"].as_array_mut().expect("users").extend(users);
    let stores = server::stores(&workspace).await;
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, "http://127.0.0.1:9/callback", &[]).await;
    let last = companies.last().expect("companies");
    let mut payload = create_todo("Later");
    payload["companyId"] = last.as_str().into();
    let job = json!({"payload": payload, "everyMs": 3_600_000});
    request_scheduler(&scheduler, "POST", "/jobs", Some(&job)).await;
    delete_user(&*stores.records, &last.as_str().into(), &"u1".into()).await.expect("deleted");
    let _app = app(&stores, &scheduler.url(""), &[]).await;
    let open = async || request_scheduler(&scheduler, "GET", "/jobs?state=open", None).await;
    poll_until(open, |left| open_jobs(left).is_empty()).await;
}

/// Jobs of a tool that an agent has lost are cancelled for all users, and jobs of its other tools are kept.
#[tokio::test]
async fn jobs_of_a_tool_end_when_the_agent_loses_it() {
    let bench = open(NOWHERE, &[]).await;
    expect_json(ask(&bench.app, OWNER, "PUT", PATH, Some(&every_day("One"))).await, 201).await;
    let turn = "/api/agents/a1/assignments/turn";
    // A turn that names a tool needs none.
    let morning = json!({"kind": "agent", "message": "Good morning", "toolId": "createTodo",
        "schedule": {"enabled": true, "cron": "0 9 * * *"}});
    expect_json(ask(&bench.app, OWNER, "PUT", turn, Some(&morning)).await, 201).await;
    let of_colleague = json!({"payload": {"kind": "tool", "userId": "u2", "companyId": "c1", "agentId": "a1",
        "toolId": "createTodo"}, "delayMs": 3_600_000});
    request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&of_colleague)).await;
    let mut of_other = of_colleague.clone();
    of_other["payload"]["agentId"] = "silent".into();
    request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&of_other)).await;
    // As an older version schedules a turn that names a tool.
    let older_turn = json!({"payload": {"kind": "agent", "userId": "u2", "companyId": "c1", "agentId": "a1",
        "toolId": "deleteTodo", "message": "Good evening"}, "delayMs": 3_600_000});
    request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&older_turn)).await;
    let open =
        async || request_scheduler(&bench.scheduler, "GET", "/jobs?companyId=c1&state=open", None).await;
    assert_eq!(open_jobs(&open().await).len(), 5);

    let sync = async |path| {
        let body = expect_json(ask(&bench.app, OWNER, "GET", path, None).await, 200).await;
        body["sync"].clone()
    };
    let role = |tools: Value| json!({"name": "Gardener", "content": {"mcpPreset": [], "tools": tools}});
    let put = async |tools| {
        expect_json(ask(&bench.app, OWNER, "PUT", "/api/agents/a1", Some(&role(tools))).await, 200).await
    };
    put(json!(["readTodos"])).await;
    assert_eq!(sync(PATH).await, json!({"inStep": false, "problem": "the agent may not use the tool"}));
    assert_eq!(sync(turn).await["inStep"], true, "a turn needs no tool");
    let left = open().await;
    let kinds: Vec<_> =
        open_jobs(&left).iter().map(|job| (&job["payload"]["agentId"], &job["payload"]["kind"])).collect();
    let (a1, silent, agent, tool) = (&json!("a1"), &json!("silent"), &json!("agent"), &json!("tool"));
    assert_eq!(kinds, [(a1, agent), (silent, tool), (a1, agent)]);

    put(json!(["createTodo"])).await;
    let second = sync(PATH).await;
    assert_eq!(second["inStep"], true);
    assert!(open_jobs(&open().await).iter().any(|job| job["jobId"] == second["jobId"]));

    assert_eq!(ask(&bench.app, OWNER, "DELETE", "/api/agents/a1", None).await.status(), 204);
    let left = open().await;
    let agents: Vec<_> = open_jobs(&left).iter().map(|job| &job["payload"]["agentId"]).collect();
    assert_eq!(agents, [silent]);
}

/// An owner who changes or deletes an agent waits for one call to a scheduler that does not answer, and not for each assignment.
#[tokio::test]
async fn a_scheduler_that_fails_is_asked_once_for_all_assignments() {
    let vendor = Vendor::start().await;
    let is_up = Arc::new(AtomicBool::new(true));
    let scheduler_up = is_up.clone();
    vendor.on_all_with(move |_| match scheduler_up.load(Ordering::Relaxed) {
        true => json_response("201 Created", "", r#"{"jobId":"j","executeAt":"2100-01-01T00:00:00Z"}"#),
        false => json_response("500 Internal Server Error", "", "{}"),
    });
    let stores = server::stores(&workspace(NOWHERE)).await;
    let app = app(&stores, &format!("http://{}", vendor.address), &[]).await;
    for id in ["s1", "s2", "s3"] {
        let path = format!("/api/agents/a1/assignments/{id}");
        let created = expect_json(ask(&app, OWNER, "PUT", &path, Some(&every_day("One"))).await, 201).await;
        assert_eq!(created["sync"]["inStep"], true, "{created}");
    }
    is_up.store(false, Ordering::Relaxed);
    let without_tool = json!({"name": "Gardener", "content": {"mcpPreset": [], "tools": ["readTodos"]}});
    // Each may ask for one assignment and for the agent's other jobs, and the maintenance for one assignment.
    for (method, body, status) in [("PUT", Some(&without_tool), 200), ("DELETE", None, 204)] {
        let before = vendor.received().len();
        assert_eq!(ask(&app, OWNER, method, "/api/agents/a1", body).await.status(), status);
        let asked: Vec<_> =
            vendor.received()[before..].iter().map(|request| request.path().to_owned()).collect();
        assert!(asked.len() <= 3 && asked.iter().any(|path| path.contains("assignmentId=s1")), "{asked:?}");
    }
}

/// The loss of the tool has not cancelled the job, as after an import or while the scheduler was away.
#[tokio::test]
async fn a_periodic_job_of_a_forbidden_tool_ends_at_its_next_callback() {
    let bench = open(NOWHERE, &[]).await;
    let mut payload = create_todo("x");
    payload["toolId"] = "deleteTodo".into();
    let job = json!({"payload": payload, "everyMs": 1000});
    let created = request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&job)).await;
    let path = format!("/jobs/{}", created["jobId"].as_str().expect("an id"));
    let read = async || request_scheduler(&bench.scheduler, "GET", &path, None).await;
    let ended = poll_until(read, |job| job["attempts"][0]["status"].is_number()).await;
    assert_eq!(
        (&ended["attempts"][0]["status"], &ended["state"]),
        (&json!(410), &json!("cancelled")),
        "{ended}"
    );
}

#[tokio::test]
async fn invalid_assignments_are_refused() {
    let (app, _) = app_without_scheduler(NOWHERE, &[]).await;
    let with = |name: &str, value: Value| {
        let mut assignment = every_day("x");
        assignment[name] = value;
        assignment
    };
    for (assignment, status, code) in [
        (with("toolId", json!("deleteTodo")), 400, "INVALID_REQUEST"),
        (with("toolId", json!("none")), 400, "INVALID_REQUEST"),
        (with("schedule", json!({"enabled": true})), 400, "INVALID_REQUEST"),
        (with("schedule", json!([true, "0 9 * * *"])), 400, "INVALID_REQUEST"),
        (with("schedule", json!({"enabled": true, "cron": "0 0 31 2 *"})), 400, "INVALID_REQUEST"),
        (
            with("schedule", json!({"enabled": true, "cron": "0 9 * * *", "timezone": "Mars/X"})),
            400,
            "INVALID_REQUEST",
        ),
        (with("id", json!("other")), 400, "INVALID_REQUEST"),
        (with("agentId", json!("z1")), 400, "INVALID_REQUEST"),
        (with("userId", json!("u2")), 403, "FORBIDDEN"),
        (with("companyId", json!("c2")), 403, "FORBIDDEN"),
    ] {
        expect_problem(ask(&app, OWNER, "PUT", PATH, Some(&assignment)).await, status, code).await;
    }
    for (assignment, detail) in [
        (with("toolId", Value::Null), "toolId is missing"),
        (with("kind", json!("agent")), "message is missing"),
        (with("schedule", json!({"enabled": true})), "schedule needs one of executeAt, cron and everyMs"),
        (
            with("schedule", json!({"enabled": true, "cron": "0 9 * *"})),
            "schedule is not valid: cron must have five or six fields, not 4",
        ),
        (with("arguments", json!({"titel": "x"})), "arguments.title is missing"),
        (
            with("arguments", json!({"title": 7})),
            "arguments.title does not conform to the schema of the tool",
        ),
    ] {
        let answer = ask(&app, OWNER, "PUT", PATH, Some(&assignment)).await;
        assert_eq!(expect_problem(answer, 400, "INVALID_REQUEST").await["detail"], detail, "{assignment}");
    }
    for (user, status, code) in [(COLLEAGUE, 403, "FORBIDDEN"), (STRANGER, 404, "NOT_FOUND")] {
        for (method, body) in [("GET", None), ("PUT", Some(every_day("x"))), ("DELETE", None)] {
            expect_problem(ask(&app, user, method, PATH, body.as_ref()).await, status, code).await;
        }
    }
}

#[tokio::test]
async fn assignments_saved_during_an_outage_reach_the_scheduler_afterwards() {
    let (away, stores) = app_without_scheduler(NOWHERE, &[]).await;
    let created = expect_json(ask(&away, OWNER, "PUT", PATH, Some(&every_day("One"))).await, 201).await;
    assert_eq!(created["sync"], json!({"inStep": false}));
    let answer = ask(&away, OWNER, "GET", PATH, None).await;
    let tag = answer.headers()["etag"].clone();
    let stale = away.request("PUT", PATH).bearer_auth(session_token("u1", "c1")).header("if-match", "\"0\"");
    expect_problem(
        stale.json(&every_day("Two")).send().await.expect("an answer"),
        412,
        "PRECONDITION_FAILED",
    )
    .await;

    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, "http://127.0.0.1:9/callback", &[]).await;
    let back = app(&stores, &scheduler.url(""), &[]).await;
    let fetch = || async { expect_json(ask(&back, OWNER, "GET", PATH, None).await, 200).await };
    let now = poll_until(fetch, |now| now["sync"]["inStep"] == true).await;
    let jobs = request_scheduler(&scheduler, "GET", "/jobs", None).await;
    assert_eq!(open_jobs(&jobs)[0]["jobId"], now["sync"]["jobId"]);
    assert_eq!(ask(&back, OWNER, "GET", PATH, None).await.headers()["etag"], tag, "telling is no change");
}
