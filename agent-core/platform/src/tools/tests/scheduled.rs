//! Tests of scheduled tool calls, with an in-memory scheduler.

use jiff::Timestamp;

use super::*;
use crate::pulse::MAX_OPEN_JOBS;
use crate::testing::MemoryPulse;
use agent_jobs::job::{Job, JobFilter, JobKind, JobOrder, JobPayload, MAX_JOBS_PER_PAGE, NewJob};
use agent_jobs::schedule::ScheduleSpec;

fn now() -> Timestamp {
    Timestamp::try_from(UNIX_EPOCH + NOW).expect("a time")
}

/// Stores a job of any identity.
pub(super) fn plant(pulse: &MemoryPulse, id: &str, (company, user, agent): (&str, &str, &str)) {
    let payload = json!({"kind": "tool", "companyId": company, "userId": user, "agentId": agent,
        "toolId": "createTodo"});
    let payload: JobPayload = serde_json::from_value(payload).expect("a payload");
    let schedule = ScheduleSpec { delay_ms: Some(1_000), ..ScheduleSpec::default() };
    let job = Job::new(NewJob::new(payload, schedule.resolve(now()).expect("a schedule")), now());
    ready(pulse.jobs().insert(vec![Job { id: id.into(), ..job }])).expect("stored");
}

/// Returns the payloads of all jobs.
fn payloads(pulse: &MemoryPulse) -> Vec<Arc<JobPayload>> {
    let jobs = ready(pulse.jobs().list(&JobFilter::default(), JobOrder::OldestFirst, None, usize::MAX))
        .expect("listed")
        .jobs;
    jobs.into_iter().map(|job| job.payload).collect()
}

fn world() -> ToolFixture {
    let mut file = demo();
    file["agents"][0]["content"]["tools"] = json!(["scheduleTool", "cancelScheduledTool"]);
    ToolFixture::new(&file)
}

#[test]
fn a_tool_is_scheduled_for_the_user_with_the_users_zone() {
    let world = world();
    let wish =
        json!({"tool": "createTodo", "arguments": {"title": "Call"}, "executeAt": "2026-11-22T09:00:00"});
    let made = world.call_ok(&ada(), "scheduleTool", wish);
    assert_eq!(made["executeAt"], "2026-11-22T08:00:00.000Z");
    let payload = &payloads(&world.pulse)[0];
    assert_eq!(payload.kind, JobKind::Tool);
    assert_eq!((&*payload.user_id, &*payload.company_id, &*payload.agent_id), ("ada", "c", "a"));
    assert_eq!(payload.tool_id.as_deref(), Some("createTodo"));
    assert_eq!(payload.todo_list_id.as_deref(), Some("l"));
    assert_eq!(payload.timezone.as_deref(), Some("Europe/Berlin"));
    let cancelled = world.call_ok(&ada(), "cancelScheduledTool", json!({"jobId": made["jobId"]}));
    assert_eq!(cancelled, json!({"cancelled": 1, "running": 0}));
}

#[test]
fn invalid_schedules_and_tools_are_rejected() {
    let world = world();
    let (later, soon) = (json!({"delayMs": 60_000}), |wish: Value| wish);
    let with = |tool: &str, more: &Value| {
        let mut wish = json!({ "tool": tool });
        wish.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        wish
    };
    for (wish, expected) in [
        (with("deleteTodo", &later), "there is no tool named \"deleteTodo\" that you can schedule"),
        (with("scheduleTool", &later), "there is no tool named \"scheduleTool\" that you can schedule"),
        (with("createTodo", &soon(json!({}))), "invalid arguments: "),
        (with("createTodo", &soon(json!({"cron": "0 0 31 2 *"}))), "invalid arguments: "),
        (with("createTodo", &soon(json!({"delayMs": 1, "everyMs": 1000}))), "invalid arguments: "),
        (with("createTodo", &soon(json!({"delayMs": 1, "timezone": "Mars/Olympus"}))), "invalid arguments: "),
    ] {
        let error = world.call(&ada(), "scheduleTool", wish.clone()).expect_err("refused");
        assert!(error.starts_with(expected), "{wish}: {error}");
    }
    let cut = ExecutionContext { granted_tools: Some(vec!["scheduleTool".to_owned()]), ..ada() };
    let error = world.call(&cut, "scheduleTool", with("createTodo", &later)).expect_err("refused");
    assert_eq!(
        error, "there is no tool named \"createTodo\" that you can schedule",
        "a credential reaches no further later"
    );
    assert!(payloads(&world.pulse).is_empty());
}

#[test]
fn the_number_of_open_jobs_per_user_is_limited() {
    let world = world();
    let wish = || json!({"tool": "createTodo", "arguments": {"title": "x"}, "everyMs": 60_000});
    let keyed = ExecutionContext { idempotency_key: Some("call".to_owned()), ..ada() };
    let first = world.call_ok(&keyed, "scheduleTool", wish());
    for _ in 1..MAX_OPEN_JOBS {
        world.call_ok(&ada(), "scheduleTool", wish());
    }
    assert_eq!(world.call_ok(&keyed, "scheduleTool", wish()), first, "a repeated call gets its job");
    let error = world.call(&ada(), "scheduleTool", wish()).expect_err("full");
    assert_eq!(error, "the user has reached the limit of 100 open jobs: cancel one first");
    let cancelled = world.call_ok(&ada(), "cancelScheduledTool", json!({"tool": "createTodo"}));
    assert_eq!(cancelled, json!({"cancelled": 100, "running": 0}));
    world.call_ok(&ada(), "scheduleTool", wish());
}

#[test]
fn cancelling_by_tool_reads_all_pages_of_jobs_up_to_its_limit() {
    let world = world();
    let limit = 2 * MAX_JOBS_PER_PAGE;
    for n in 0..=limit {
        plant(&world.pulse, &format!("00000000-0000-0000-0000-{n:012}"), ("c", "ada", "a"));
        plant(&world.pulse, &format!("00000000-0000-0000-0001-{n:012}"), ("c", "ada", "b"));
    }
    for count in [limit, 1, 0] {
        let cancelled = world.call_ok(&ada(), "cancelScheduledTool", json!({"tool": "createTodo"}));
        assert_eq!(cancelled, json!({"cancelled": count, "running": 0}));
    }
    assert!(world.pulse.take_changed().iter().all(|payload| payload.agent_id == "a"));
}

#[test]
fn jobs_of_other_users_and_agents_are_reported_as_missing() {
    let world = world();
    for (id, owner) in [("1", ("c", "bob", "a")), ("2", ("c", "ada", "b")), ("3", ("d", "ada", "a"))] {
        plant(&world.pulse, id, owner);
        let error = world.call(&ada(), "cancelScheduledTool", json!({"jobId": id})).expect_err("not hers");
        assert_eq!(error, format!("there is no job {id:?}"));
    }
    let cancelled = world.call_ok(&ada(), "cancelScheduledTool", json!({"tool": "createTodo"}));
    assert_eq!(cancelled["cancelled"], 0);
    for wish in [json!({}), json!({"jobId": "1", "tool": "createTodo"})] {
        let error = world.call(&ada(), "cancelScheduledTool", wish).expect_err("refused");
        assert_eq!(error, "invalid arguments: exactly one of jobId and tool must be given");
    }
}

#[test]
fn without_a_scheduler_the_tools_are_unavailable() {
    let (records, roles) = (Arc::new(MemoryRecords::default()), Arc::new(RecordRoleStore::in_memory()));
    let tools = builtin_tools(records, roles, ToolServices::default());
    for (name, wish) in [
        ("scheduleTool", json!({"tool": "createTodo", "delayMs": 1})),
        ("cancelScheduledTool", json!({"jobId": "1"})),
    ] {
        let error = ready(tools.call(&ada(), name, wish, &NoProgress)).expect_err("refused");
        assert_eq!(error.to_string(), "Pulse not configured");
    }
}
