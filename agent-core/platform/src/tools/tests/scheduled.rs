//! Tests of scheduled tool calls, with an in-memory scheduler.

use std::sync::Mutex;

use async_trait::async_trait;
use jiff::Timestamp;

use super::*;
use crate::pulse::{CancelResult, JobRequest, JobViewPage, MAX_OPEN_JOBS, Pulse, PulseError, ScheduledJob};
use agent_core::ids::JobId;
use agent_jobs::job::{Job, JobFilter, JobKind, JobPayload, JobScope, JobView, NewJob, Step};
use agent_jobs::schedule::ScheduleSpec;

fn now() -> Timestamp {
    Timestamp::try_from(UNIX_EPOCH + NOW).expect("a time")
}

/// Scheduler double that applies the rules of jobs but runs none.
#[derive(Default)]
pub(super) struct FakePulse {
    jobs: Mutex<BTreeMap<JobId, Job>>,
    /// Payloads of the jobs created or cancelled since they were last taken.
    touched: Mutex<Vec<JobPayload>>,
}

impl FakePulse {
    /// Stores a job of any identity.
    pub(super) fn plant(&self, id: &str, (company, user, agent): (&str, &str, &str)) {
        let payload = json!({"kind": "tool", "companyId": company, "userId": user, "agentId": agent,
            "toolId": "createTodo"});
        let payload: JobPayload = serde_json::from_value(payload).expect("a payload");
        let schedule = ScheduleSpec { delay_ms: Some(1_000), ..ScheduleSpec::default() };
        let job = Job::new(NewJob::new(payload, schedule.resolve(now()).expect("a schedule")), now());
        self.jobs.lock().expect("unpoisoned").insert(id.into(), Job { id: id.into(), ..job });
    }

    pub(super) fn take_touched(&self) -> Vec<JobPayload> {
        std::mem::take(&mut self.touched.lock().expect("unpoisoned"))
    }

    fn payloads(&self) -> Vec<JobPayload> {
        self.jobs.lock().expect("unpoisoned").values().map(|job| JobPayload::clone(&job.payload)).collect()
    }
}

#[async_trait]
impl Pulse for FakePulse {
    async fn schedule_job(&self, request: &JobRequest) -> Result<ScheduledJob, PulseError> {
        let schedule =
            request.schedule.resolve(now()).map_err(|error| PulseError::Invalid(error.to_string()))?;
        let job = Job::new(NewJob::new(request.payload.clone(), schedule), now());
        self.touched.lock().expect("unpoisoned").push(JobPayload::clone(&job.payload));
        let scheduled = ScheduledJob { job_id: job.id.clone(), execute_at: job.due };
        self.jobs.lock().expect("unpoisoned").insert(job.id.clone(), job);
        Ok(scheduled)
    }

    async fn get_job(&self, scope: &JobScope, id: &JobId) -> Result<JobView, PulseError> {
        let jobs = self.jobs.lock().expect("unpoisoned");
        jobs.get(id).filter(|job| scope.contains(job)).map(JobView::from).ok_or(PulseError::NotFound)
    }

    async fn cancel_job(&self, scope: &JobScope, id: &JobId) -> Result<CancelResult, PulseError> {
        let mut jobs = self.jobs.lock().expect("unpoisoned");
        let job = jobs.get_mut(id).filter(|job| scope.contains(job)).ok_or(PulseError::NotFound)?;
        *job = job.clone().step(Step::Cancel, now()).expect("it can").job;
        self.touched.lock().expect("unpoisoned").push(JobPayload::clone(&job.payload));
        Ok(CancelResult::default())
    }

    async fn reschedule_job(
        &self,
        _: &JobScope,
        _: &JobId,
        _: &ScheduleSpec,
    ) -> Result<ScheduledJob, PulseError> {
        Err(PulseError::NotFound)
    }

    async fn cancel_jobs_for_tool(&self, _: &JobScope, _: &str) -> Result<u64, PulseError> {
        Ok(0)
    }

    async fn cancel_jobs_for_assignment(&self, _: &JobScope, _: &str) -> Result<u64, PulseError> {
        Ok(0)
    }

    async fn list_jobs(
        &self,
        filter: &JobFilter,
        _: Option<&str>,
        limit: usize,
    ) -> Result<JobViewPage, PulseError> {
        let jobs = self.jobs.lock().expect("unpoisoned");
        let meant = jobs.values().filter(|job| filter.matches(job)).take(limit).map(JobView::from);
        Ok(JobViewPage { jobs: meant.collect(), next_cursor: None })
    }

    async fn check_health(&self) -> Result<(), PulseError> {
        Ok(())
    }
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
    let payload = &world.pulse.payloads()[0];
    assert_eq!(payload.kind, JobKind::Tool);
    assert_eq!((&*payload.user_id, &*payload.company_id, &*payload.agent_id), ("ada", "c", "a"));
    assert_eq!(payload.tool_id.as_deref(), Some("createTodo"));
    assert_eq!(payload.todo_list_id.as_deref(), Some("l"));
    assert_eq!(payload.timezone.as_deref(), Some("Europe/Berlin"));
    let cancelled = world.call_ok(&ada(), "cancelScheduledTool", json!({"jobId": made["jobId"]}));
    assert_eq!(cancelled, json!({"cancelled": 1, "running": 0}));
}

#[test]
fn what_cannot_be_scheduled_is_told() {
    let world = world();
    let (later, soon) = (json!({"delayMs": 60_000}), |wish: Value| wish);
    let with = |tool: &str, more: &Value| {
        let mut wish = json!({ "tool": tool });
        wish.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        wish
    };
    for (wish, expected) in [
        (with("deleteTodo", &later), "you have no tool named \"deleteTodo\" to schedule"),
        (with("scheduleTool", &later), "you have no tool named \"scheduleTool\" to schedule"),
        (with("createTodo", &soon(json!({}))), "invalid arguments: "),
        (with("createTodo", &soon(json!({"cron": "0 0 31 2 *"}))), "invalid arguments: "),
        (with("createTodo", &soon(json!({"delayMs": 1, "everyMs": 1000}))), "invalid arguments: "),
        (with("createTodo", &soon(json!({"delayMs": 1, "timezone": "Mars/Olympus"}))), "invalid arguments: "),
    ] {
        let told = world.call(&ada(), "scheduleTool", wish.clone()).expect_err("refused");
        assert!(told.starts_with(expected), "{wish}: {told}");
    }
    let cut = ExecutionContext { granted_tools: Some(vec!["scheduleTool".to_owned()]), ..ada() };
    let told = world.call(&cut, "scheduleTool", with("createTodo", &later)).expect_err("refused");
    assert_eq!(
        told, "you have no tool named \"createTodo\" to schedule",
        "a credential reaches no further later"
    );
    assert!(world.pulse.payloads().is_empty());
}

#[test]
fn a_person_has_so_many_jobs_and_no_more() {
    let world = world();
    let wish = || json!({"tool": "createTodo", "arguments": {"title": "x"}, "everyMs": 60_000});
    for _ in 0..MAX_OPEN_JOBS {
        world.call_ok(&ada(), "scheduleTool", wish());
    }
    let told = world.call(&ada(), "scheduleTool", wish()).expect_err("full");
    assert_eq!(told, "the user has 100 jobs already, which is the most: cancel one first");
    let cancelled = world.call_ok(&ada(), "cancelScheduledTool", json!({"tool": "createTodo"}));
    assert_eq!(cancelled, json!({"cancelled": 100, "running": 0}));
    world.call_ok(&ada(), "scheduleTool", wish());
}

#[test]
fn jobs_of_others_are_as_absent_as_none() {
    let world = world();
    for (id, owner) in [("1", ("c", "bob", "a")), ("2", ("c", "ada", "b")), ("3", ("d", "ada", "a"))] {
        world.pulse.plant(id, owner);
        let told = world.call(&ada(), "cancelScheduledTool", json!({"jobId": id})).expect_err("not hers");
        assert_eq!(told, format!("there is no job {id:?}"));
    }
    let cancelled = world.call_ok(&ada(), "cancelScheduledTool", json!({"tool": "createTodo"}));
    assert_eq!(cancelled["cancelled"], 0);
    for wish in [json!({}), json!({"jobId": "1", "tool": "createTodo"})] {
        let told = world.call(&ada(), "cancelScheduledTool", wish).expect_err("refused");
        assert_eq!(told, "invalid arguments: exactly one of jobId and tool must be given");
    }
}

#[test]
fn without_a_scheduler_the_tools_say_so() {
    let (records, roles) = (Arc::new(MemoryRecords::default()), Arc::new(RecordRoleStore::in_memory()));
    let tools = builtin_tools(records, roles, ToolServices::default());
    for (name, wish) in [
        ("scheduleTool", json!({"tool": "createTodo", "delayMs": 1})),
        ("cancelScheduledTool", json!({"jobId": "1"})),
    ] {
        let told = ready(tools.call(&ada(), name, wish, &NoProgress)).expect_err("refused");
        assert_eq!(told.to_string(), "Pulse not configured");
    }
}
