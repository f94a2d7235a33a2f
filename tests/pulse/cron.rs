//! Cron fallback: runs due occurrences, and none that the scheduler has delivered or will deliver.

use std::time::Duration;

use agent_core::clock::SystemClock;
use agent_core::ids::JobId;
use agent_jobs::job::{
    ClaimRequest, CompanyQuota, InsertOutcome, Job, JobCounts, JobFilter, JobOrder, JobPage, JobScope,
    JobState, Step, StepOutcome,
};
use agent_jobs::schedule::ScheduleSpec;
use agent_platform::assignment::{AssignmentSync, sync_key};
use agent_platform::local_pulse::LocalPulse;
use agent_platform::pulse::{JobControl, JobRequest, Pulse};
use agent_platform::records::{RecordsExt, StoreError};
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use tokio::net::TcpStream;

use super::*;
use crate::support::control::ControlledVendor;
use crate::support::expect_problem;
use crate::support::paused_records::PausedRecords;
use crate::support::vendor::{Vendor, answer, json_response};

const NOWHERE: &str = "http://127.0.0.1:9/v1";

async fn cron(app: &Server, secret: &str, query: &str) -> Response {
    let request = app.request("GET", &format!("/api/cron{query}")).bearer_auth(secret);
    request.send().await.expect("an answer")
}

/// Starts a scheduler whose callback URL has no listener, and an application with a due assignment.
async fn start_with_due_assignment() -> (Server, Server, Stores, Value) {
    start_with_due_assignment_in(server::stores(&workspace(NOWHERE)).await).await
}

async fn start_with_due_assignment_in(stores: Stores) -> (Server, Server, Stores, Value) {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, &format!("{}/callback", refused_url()), &[]).await;
    let app = app(&stores, &scheduler.url(""), &[]).await;
    let assignment = json!({"toolId": "createTodo", "arguments": {"title": "Due"}, "todoListId": "l1",
        "schedule": {"enabled": true, "executeAt": "2026-01-01T00:00:00Z"}});
    let path = "/api/agents/a1/assignments/s1";
    let created = expect_json(ask(&app, OWNER, "PUT", path, Some(&assignment)).await, 201).await;
    (app, scheduler, stores, created)
}

#[tokio::test]
async fn the_cron_route_needs_its_secret() {
    let app = server::app(&workspace(NOWHERE), &[]).await;
    let problem = expect_problem(cron(&app, CRON_SECRET, "").await, 503, "NOT_CONFIGURED").await;
    assert!(problem["detail"].as_str().expect("text").contains("CRON_SECRET"));
    let (app, _) = app_without_scheduler(NOWHERE, &[]).await;
    expect_problem(cron(&app, "guess-0123456789abcdef", "?run=true").await, 401, "UNAUTHENTICATED").await;
    let status = expect_json(cron(&app, CRON_SECRET, "").await, 200).await;
    assert_eq!(status, json!({"status": "ok", "canonicalScheduler": "pulse"}));
    let misspelt = expect_problem(cron(&app, CRON_SECRET, "?run=1").await, 400, "INVALID_REQUEST").await;
    assert_eq!(misspelt["detail"], "run must be true or false", "the fallback would never run a job");
    let nothing = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await;
    assert_eq!((&nothing["run"]["source"], &nothing["run"]["due"]), (&json!("memory"), &json!(0)));
}

/// Without a scheduler, the application stores the jobs itself, and this route runs them.
#[tokio::test]
async fn the_cron_route_runs_jobs_without_a_scheduler() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["Water the basil"])]);
    let stores = server::stores(&workspace(&vendor.base_url())).await;
    let app = server::app_with_stores(stores.clone(), &[("CRON_SECRET", CRON_SECRET)]).await;
    let schedule = json!({"enabled": true, "executeAt": "2026-01-01T00:00:00Z"});
    let tool = json!({"toolId": "createTodo", "arguments": {"title": "Due"}, "todoListId": "l1", "schedule": schedule});
    let turn = json!({"kind": "agent", "message": "What is to be done?", "schedule": schedule});
    for (id, assignment) in [("s1", &tool), ("s2", &turn)] {
        let path = format!("/api/agents/a1/assignments/{id}");
        let created = expect_json(ask(&app, OWNER, "PUT", &path, Some(assignment)).await, 201).await;
        assert_eq!(created["sync"]["inStep"], true, "{created}");
    }
    // As `scheduleTool` does.
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    let payload = serde_json::from_value(create_todo("Scheduled")).expect("a payload");
    let due = ScheduleSpec { execute_at: Some("2026-01-01T00:00:00Z".to_owned()), ..ScheduleSpec::default() };
    local.schedule_job(&JobRequest::new(payload, due)).await.expect("a job");
    let first = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    let expected =
        json!({"source": "local", "due": 3, "done": 3, "doneBefore": 0, "busy": 0, "failed": 0, "left": 0});
    assert_eq!(first, expected);
    let second = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    assert_eq!(second["due"], 0);
    let mut titles = todo_titles(&stores).await;
    titles.sort();
    assert_eq!(titles, ["Due", "Scheduled"]);
    let notifications = notification_texts(&stores).await;
    assert_eq!(notifications, [("Gardener".to_owned(), "Water the basil".to_owned())]);
}

/// A limit of runs, here the provider's, uses up an attempt, as it does with a scheduler.
#[tokio::test]
async fn a_local_turn_that_is_rate_limited_is_retried_later() {
    let vendor = Vendor::start().await;
    vendor.on("m", [json_response("429 Too Many Requests", "retry-after: 3600\r\n", "{}")]);
    let stores = server::stores(&workspace(&vendor.base_url())).await;
    let app = server::app_with_stores(stores.clone(), &[("CRON_SECRET", CRON_SECRET)]).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    let turn =
        json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1", "message": "Hello"});
    let due = ScheduleSpec { execute_at: Some("2026-01-01T00:00:00Z".to_owned()), ..ScheduleSpec::default() };
    let request = JobRequest::new(serde_json::from_value(turn).expect("a payload"), due);
    local.schedule_job(&request).await.expect("a job");
    let run = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    assert_eq!((&run["due"], &run["busy"]), (&json!(1), &json!(1)), "{run}");
    assert_eq!(count_jobs(&stores, JobState::Retryable).await, 1);
}

/// A store that cannot list jobs, which can be very many.
#[derive(Default)]
struct UnlistedJobs(MemoryJobStore);

#[async_trait]
impl JobStore for UnlistedJobs {
    async fn insert(&self, jobs: Vec<Job>) -> Result<Vec<InsertOutcome>, StoreError> {
        self.0.insert(jobs).await
    }
    async fn insert_within_limit(&self, job: Job, max_open: u64) -> Result<InsertOutcome, StoreError> {
        self.0.insert_within_limit(job, max_open).await
    }
    async fn get(&self, scope: &JobScope, id: &JobId) -> Result<Option<Job>, StoreError> {
        self.0.get(scope, id).await
    }
    async fn list(
        &self,
        _: &JobFilter,
        _: JobOrder,
        _: Option<&JobId>,
        _: usize,
    ) -> Result<JobPage, StoreError> {
        Err(StoreError::unavailable("the jobs are not listed"))
    }
    async fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        self.0.count(filter).await
    }
    async fn apply_steps(
        &self,
        steps: Vec<(JobId, Step)>,
        now: Timestamp,
    ) -> Result<Vec<StepOutcome>, StoreError> {
        self.0.apply_steps(steps, now).await
    }
    async fn claim_due(&self, claim: ClaimRequest) -> Result<Vec<Job>, StoreError> {
        self.0.claim_due(claim).await
    }
    async fn next_run_at(&self) -> Result<Option<Timestamp>, StoreError> {
        self.0.next_run_at().await
    }
    async fn count_by_state(&self, now: Timestamp) -> Result<JobCounts, StoreError> {
        self.0.count_by_state(now).await
    }
    async fn purge(&self, ended_before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.0.purge(ended_before, limit).await
    }
    fn notifications(&self) -> BoxStream<'static, ()> {
        self.0.notifications()
    }
}

#[tokio::test]
async fn jobs_that_are_not_due_are_not_read() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    let stores = Stores { jobs: Arc::new(UnlistedJobs::default()), ..stores };
    let app = server::app_with_stores(stores.clone(), &[("CRON_SECRET", CRON_SECRET)]).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    for delay_ms in [0, 3_600_000] {
        let payload = serde_json::from_value(create_todo("Once")).expect("a payload");
        let schedule = ScheduleSpec { delay_ms: Some(delay_ms), ..ScheduleSpec::default() };
        local.schedule_job(&JobRequest::new(payload, schedule)).await.expect("a job");
    }
    let run = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    assert_eq!((&run["done"], &run["left"]), (&json!(1), &json!(0)), "{run}");
}

/// More turns than run at once.
const HELD_TURNS: u64 = 10;
/// Number of turns that run at once.
const RUNNING: u64 = 8;

/// Starts an application without a scheduler, with due turns that have one attempt each and that the vendor holds.
async fn start_with_held_turns(vendor: &ControlledVendor, settings: &[(&str, &str)]) -> (Server, Stores) {
    let mut workspace = workspace(&vendor.base_url());
    workspace["agents"][0]["children"][0]["content"]["model"] = "held".into();
    let stores = server::stores(&workspace).await;
    let settings = [settings, &[("CRON_SECRET", CRON_SECRET)]].concat();
    let app = server::app_with_stores(stores.clone(), &settings).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    for _ in 0..HELD_TURNS {
        let payload = json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1",
            "message": "What is to be done?"});
        let request = JobRequest::new(serde_json::from_value(payload).expect("a payload"), past_time());
        local.schedule_job(&JobRequest { max_attempts: Some(1), ..request }).await.expect("a job");
    }
    (app, stores)
}

/// Returns the schedule of a job that is due.
fn past_time() -> ScheduleSpec {
    ScheduleSpec { execute_at: Some("2026-01-01T00:00:00Z".to_owned()), ..ScheduleSpec::default() }
}

async fn count_jobs(stores: &Stores, state: JobState) -> u64 {
    let filter = JobFilter { state: Some(state), ..JobFilter::default() };
    stores.jobs.count(&filter).await.expect("a count")
}

/// Calls the route, and leaves once the held turns run.
async fn leave_cron_route(app: &Server, stores: &Stores) {
    let url = app.url("/api/cron?run=true");
    let call = tokio::spawn(async move { client().get(url).bearer_auth(CRON_SECRET).send().await });
    poll_until(async || count_jobs(stores, JobState::Running).await, |running| *running == RUNNING).await;
    call.abort();
    let metrics = async || {
        let response = app.request("GET", "/metrics").send().await.expect("an answer");
        response.text().await.expect("text")
    };
    // Only the request for the metrics itself is left.
    poll_until(metrics, |metrics| metrics.contains("http_requests_in_flight 1\n")).await;
}

/// A client that disconnects, for example at its own time limit, costs neither running nor waiting jobs an attempt.
#[tokio::test]
async fn a_client_that_leaves_the_cron_route_ends_no_job() {
    let vendor = ControlledVendor::start().await;
    let (app, stores) = start_with_held_turns(&vendor, &[]).await;
    leave_cron_route(&app, &stores).await;
    vendor.release();
    let completed = async || count_jobs(&stores, JobState::Completed).await;
    poll_until(completed, |completed| *completed == HELD_TURNS).await;
}

#[tokio::test]
async fn jobs_that_have_not_begun_in_time_are_left() {
    let vendor = ControlledVendor::start().await;
    let (app, stores) = start_with_held_turns(&vendor, &[("PROACTIVE_TIMEOUT_MS", "1000")]).await;
    let run = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    let [due, failed, left] = ["due", "failed", "left"].map(|member| run[member].as_u64().expect("a number"));
    assert_eq!((due, failed + left), (HELD_TURNS, HELD_TURNS), "{run}");
    assert!(left >= 2, "eight run at once: {run}");
    assert_eq!(count_jobs(&stores, JobState::Scheduled).await, left, "they have used up no attempt");
}

/// The turns that run may end, and the others are left to the next process.
#[tokio::test]
async fn no_job_begins_while_the_application_shuts_down() {
    let vendor = ControlledVendor::start().await;
    let (app, stores) = start_with_held_turns(&vendor, &[]).await;
    let url = app.url("/api/cron?run=true");
    let call = tokio::spawn(async move { client().get(url).bearer_auth(CRON_SECRET).send().await });
    poll_until(async || count_jobs(&stores, JobState::Running).await, |running| *running == RUNNING).await;
    app.stop();
    vendor.release();
    let response = call.await.expect("no panic").expect("an answer");
    let run = expect_json(response, 200).await["run"].clone();
    assert_eq!((&run["done"], &run["left"]), (&json!(RUNNING), &json!(HELD_TURNS - RUNNING)), "{run}");
    assert_eq!(count_jobs(&stores, JobState::Scheduled).await, HELD_TURNS - RUNNING);
}

/// No connection is left for which the application would wait.
#[tokio::test]
async fn the_application_waits_for_the_jobs_of_a_client_that_has_left() {
    let vendor = ControlledVendor::start().await;
    let (app, stores) = start_with_held_turns(&vendor, &[]).await;
    leave_cron_route(&app, &stores).await;
    app.stop();
    let address = app.address;
    let is_closed = async || TcpStream::connect(address).await.is_err();
    poll_until(is_closed, |is_closed| *is_closed).await;
    vendor.release();
    app.stopped().await;
    let counts =
        (count_jobs(&stores, JobState::Completed).await, count_jobs(&stores, JobState::Scheduled).await);
    assert_eq!(counts, (RUNNING, HELD_TURNS - RUNNING));
}

/// The turns end with the drain, and use up none of their attempts, of which they have one each.
#[tokio::test]
async fn jobs_that_outlast_the_drain_are_left_to_the_next_process() {
    let vendor = ControlledVendor::start().await;
    let (app, stores) = start_with_held_turns(&vendor, &[("DRAIN_MS", "1000")]).await;
    leave_cron_route(&app, &stores).await;
    app.stop();
    app.stopped().await;
    let counts =
        (count_jobs(&stores, JobState::Running).await, count_jobs(&stores, JobState::Discarded).await);
    assert_eq!(counts, (0, 0));
}

/// Jobs of an application that gets a scheduler move there.
#[tokio::test]
async fn local_jobs_are_handed_over_to_a_scheduler() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    let alone = server::app_with_stores(stores.clone(), &[("CRON_SECRET", CRON_SECRET)]).await;
    let daily = json!({"toolId": "createTodo", "arguments": {"title": "Due"}, "schedule": {"enabled": true, "cron": "0 9 * * *"}});
    let path = "/api/agents/a1/assignments/s1";
    let created = expect_json(ask(&alone, OWNER, "PUT", path, Some(&daily)).await, 201).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    let payload = serde_json::from_value(create_todo("Later")).expect("a payload");
    let later = ScheduleSpec { every_ms: Some(3_600_000), ..ScheduleSpec::default() };
    local.schedule_job(&JobRequest::new(payload, later)).await.expect("a job");
    alone.stop();
    alone.stopped().await;
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, &format!("{}/callback", refused_url()), &[]).await;
    let app = app(&stores, &scheduler.url(""), &[]).await;
    let open = || request_scheduler(&scheduler, "GET", "/jobs?companyId=c1&state=open&order=asc", None);
    let result = poll_until(open, |jobs| jobs["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2)).await;
    let ids: Vec<_> = result["jobs"].as_array().expect("jobs").iter().map(|job| &job["jobId"]).collect();
    let sync = || async { expect_json(ask(&app, OWNER, "GET", path, None).await, 200).await["sync"].clone() };
    let sync =
        poll_until(sync, |sync| sync["inStep"] == true && sync["jobId"] != created["sync"]["jobId"]).await;
    assert!(ids.contains(&&sync["jobId"]), "{sync} {ids:?}");
    let left = JobFilter { open: true, ..JobFilter::default() };
    assert_eq!(stores.jobs.count(&left).await.expect("a count"), 0, "no job is left that could run twice");
}

/// A scheduler whose `DATABASE_URL` names the application's SQLite file has its jobs beside the local ones. Its own would be
/// moved first, since they are older.
#[tokio::test]
async fn jobs_of_a_scheduler_over_the_same_store_are_not_handed_over() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    let scheduler = server::scheduler(stores.jobs.clone(), &format!("{}/callback", refused_url()), &[]).await;
    let hourly = json!({"payload": create_todo("Hourly"), "everyMs": 3_600_000});
    let own = request_scheduler(&scheduler, "POST", "/jobs", Some(&hourly)).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    let payload = serde_json::from_value(create_todo("Later")).expect("a payload");
    let later = ScheduleSpec { every_ms: Some(7_200_000), ..ScheduleSpec::default() };
    let local_job = local.schedule_job(&JobRequest::new(payload, later)).await.expect("a job").job_id;
    let _app = app(&stores, &scheduler.url(""), &[]).await;
    let open = || request_scheduler(&scheduler, "GET", "/jobs?companyId=c1&state=open&order=asc", None);
    let has_moved = |jobs: &Value| {
        let jobs = jobs["jobs"].as_array().expect("jobs");
        jobs.iter().all(|job| job["jobId"] != *local_job)
    };
    let moved = poll_until(open, has_moved).await;
    let jobs = moved["jobs"].as_array().expect("jobs");
    assert_eq!((jobs.len(), &jobs[0]["jobId"]), (2, &own["jobId"]), "{jobs:?}");
}

/// There are more of them than are read at once.
#[tokio::test]
async fn many_local_jobs_are_handed_over_at_once() {
    const JOBS: u64 = 250;
    let stores = server::stores(&workspace(NOWHERE)).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    for _ in 0..JOBS {
        let payload = serde_json::from_value(create_todo("Later")).expect("a payload");
        let later = ScheduleSpec { every_ms: Some(3_600_000), ..ScheduleSpec::default() };
        local.schedule_job(&JobRequest::new(payload, later)).await.expect("a job");
    }
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, &format!("{}/callback", refused_url()), &[]).await;
    let _app = app(&stores, &scheduler.url(""), &[]).await;
    let count = || request_scheduler(&scheduler, "GET", "/jobs/count?companyId=c1&state=open", None);
    poll_until(count, |counted| counted["count"] == JOBS).await;
    let open = JobFilter { open: true, ..JobFilter::default() };
    let left = async || stores.jobs.count(&open).await.expect("a count");
    poll_until(left, |left| *left == 0).await;
}

/// A follow-up of an assignment's tool has the payload of the assignment's job, and is a separate job.
#[tokio::test]
async fn local_follow_ups_of_assignments_are_handed_over() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    let alone = server::app_with_stores(stores.clone(), &[("CRON_SECRET", CRON_SECRET)]).await;
    let daily = json!({"toolId": "createTodo", "arguments": {"title": "Due"}, "schedule": {"enabled": true, "cron": "0 9 * * *"}});
    let path = "/api/agents/a1/assignments/s1";
    expect_json(ask(&alone, OWNER, "PUT", path, Some(&daily)).await, 201).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    let mut payload = create_todo("Later");
    payload["assignmentId"] = "s1".into();
    let time = Timestamp::now().saturating_add(Duration::from_secs(3600)).expect("a time");
    let time = format!("{time:.3}");
    let due = ScheduleSpec { execute_at: Some(time.clone()), ..ScheduleSpec::default() };
    let request = JobRequest {
        idempotency_key: Some("followUp:local-j:1".to_owned()),
        ..JobRequest::new(serde_json::from_value(payload).expect("a payload"), due)
    };
    local.schedule_job(&request).await.expect("a job");
    alone.stop();
    alone.stopped().await;
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, &format!("{}/callback", refused_url()), &[]).await;
    let _app = app(&stores, &scheduler.url(""), &[]).await;
    let open = JobFilter { open: true, ..JobFilter::default() };
    let left = async || stores.jobs.count(&open).await.expect("a count");
    poll_until(left, |left| *left == 0).await;
    let moved =
        request_scheduler(&scheduler, "GET", "/jobs?companyId=c1&assignmentId=s1&state=open", None).await;
    let moved = moved["jobs"].as_array().expect("jobs").iter();
    let times: Vec<_> = moved.filter_map(|job| job["schedule"]["executeAt"].as_str()).collect();
    assert_eq!(times, [time], "beside the job that the synchronization creates");
}

/// Stores a paused local job that is due, and starts an application that hands it over to a scheduler. Returns the paths of the
/// requests that the scheduler has received.
async fn hand_over_paused_job(vendor: &Vendor) -> Vec<String> {
    let status = r#"{"jobId":"j","executeAt":"2100-01-01T00:00:00Z","state":"paused"}"#;
    vendor.on_all(json_response("200 OK", "", status));
    let stores = server::stores(&workspace(NOWHERE)).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    let request =
        JobRequest::new(serde_json::from_value(create_todo("Late")).expect("a payload"), past_time());
    let job = local.schedule_job(&request).await.expect("a job");
    local.control_job(&request.scope(), &job.job_id, JobControl::Pause).await.expect("paused");
    let _app = app(&stores, &format!("http://{}", vendor.address), &[]).await;
    let open = JobFilter { open: true, ..JobFilter::default() };
    let left = async || stores.jobs.count(&open).await.expect("a count");
    poll_until(left, |left| *left == 0).await;
    let received = vendor.received();
    received.iter().map(|request| request.path().split('?').next().unwrap_or_default().to_owned()).collect()
}

/// It does not run between its creation at the scheduler and its pause there.
#[tokio::test]
async fn a_paused_local_job_is_due_only_once_it_is_paused_at_the_scheduler() {
    let vendor = Vendor::start().await;
    let paths = hand_over_paused_job(&vendor).await;
    assert_eq!(paths, ["/jobs", "/jobs/j/pause", "/jobs/j/reschedule"]);
    let received = vendor.received();
    let created = received[0].json();
    assert!(created["executeAt"].is_null() && created["delayMs"].as_u64() > Some(60_000), "{created}");
    assert_eq!(received[2].json(), json!({"executeAt": "2026-01-01T00:00:00.000Z"}));
}

#[tokio::test]
async fn a_rejected_paused_local_job_leaves_no_job_at_the_scheduler() {
    let vendor = Vendor::start().await;
    let reschedule = "/jobs/j/reschedule?companyId=c1&userId=u1";
    vendor.on(reschedule, [json_response("422 Unprocessable Content", "", "{}")]);
    let paths = hand_over_paused_job(&vendor).await;
    assert_eq!(paths, ["/jobs", "/jobs/j/pause", "/jobs/j/reschedule", "/jobs/j"]);
    assert!(vendor.received()[3].head.starts_with("DELETE "));
}

/// Stores a local job that is due, and claims it as a process that is killed before it runs.
async fn lose_local_run(stores: &Stores) -> (JobRequest, JobId) {
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    let request =
        JobRequest::new(serde_json::from_value(create_todo("Once")).expect("a payload"), past_time());
    let job = local.schedule_job(&request).await.expect("a job");
    let now = Timestamp::now();
    let quota = CompanyQuota::new(1);
    let claim = ClaimRequest { now, due_until: now, lease_until: now, limit: 1, quota };
    assert_eq!(stores.jobs.claim_due(claim).await.expect("claimed").len(), 1);
    (request, job.job_id)
}

/// Starts an application with a scheduler, which finishes a lost run under its own key.
async fn expect_finished_run(stores: &Stores) {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, &format!("{}/callback", refused_url()), &[]).await;
    let _app = app(stores, &scheduler.url(""), &[]).await;
    let open = JobFilter { open: true, ..JobFilter::default() };
    let open = async || stores.jobs.count(&open).await.expect("a count");
    poll_until(open, |open| *open == 0).await;
    assert_eq!(todo_titles(stores).await, ["Once"]);
    assert_eq!(request_scheduler(&scheduler, "GET", "/jobs", None).await["jobs"], json!([]));
}

/// The process that ran a local job was killed, and the next one has a scheduler.
#[tokio::test]
async fn a_local_run_that_was_lost_is_finished_where_it_began() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    lose_local_run(&stores).await;
    expect_finished_run(&stores).await;
}

/// A pause lets the run in progress end, and the kill does not change that.
#[tokio::test]
async fn a_local_run_that_was_lost_is_finished_although_its_job_is_paused() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    let (request, job) = lose_local_run(&stores).await;
    let local = LocalPulse::new(stores.jobs.clone(), Arc::new(SystemClock));
    let paused = local.control_job(&request.scope(), &job, JobControl::Pause).await.expect("paused");
    assert_eq!((paused.state, paused.delivering), (JobState::Paused, true));
    expect_finished_run(&stores).await;
}

#[tokio::test]
async fn jobs_that_the_scheduler_cannot_deliver_are_run_once() {
    let (app, scheduler, stores, _) = start_with_due_assignment().await;
    let fetch = || request_scheduler(&scheduler, "GET", "/jobs", None);
    poll_until(fetch, |jobs| jobs["jobs"][0]["state"] == "retryable").await;
    let run = async || expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    // An occurrence that the scheduler is delivering at this moment does not count as due.
    let first = poll_until(&run, |run| run["due"] == 1).await;
    assert_eq!((&first["source"], &first["done"]), (&json!("scheduler"), &json!(1)));
    let second = poll_until(&run, |run| run["due"] == 1).await;
    assert_eq!((&second["done"], &second["doneBefore"]), (&json!(0), &json!(1)));
    assert_eq!(todo_titles(&stores).await, ["Due"]);
}

/// The scheduler has delivered it, and delivers it again at the time that the vendor requested.
#[tokio::test]
async fn a_failed_occurrence_that_waits_for_its_retry_is_not_due() {
    let vendor = Vendor::start().await;
    vendor.on("m", [json_response("429 Too Many Requests", "retry-after: 3600\r\n", "{}")]);
    let AppWithScheduler { app, scheduler, .. } = open(&vendor.base_url(), &[]).await;
    let turn =
        json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1", "message": "Hello"});
    request_scheduler(&scheduler, "POST", "/jobs", Some(&json!({"payload": turn, "delayMs": 0}))).await;
    let fetch = || request_scheduler(&scheduler, "GET", "/jobs", None);
    let failed = poll_until(fetch, |jobs| jobs["jobs"][0]["state"] == "retryable").await;
    assert_eq!(failed["jobs"][0]["attempts"][0]["status"], 429, "{failed}");
    let asked = vendor.received().len();
    let run = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    assert_eq!((&run["source"], &run["due"]), (&json!("scheduler"), &json!(0)), "{run}");
    assert_eq!(vendor.received().len(), asked);
}

#[tokio::test]
async fn a_remembered_job_that_is_paused_is_not_run() {
    let (app, scheduler, stores, made) = start_with_due_assignment().await;
    let pause = format!("/api/pulse/jobs/{}/pause", made["sync"]["jobId"].as_str().expect("an id"));
    let paused = expect_json(ask(&app, OWNER, "POST", &pause, None).await, 200).await;
    assert_eq!(paused["state"], "paused");
    scheduler.stop();
    scheduler.stopped().await;
    let run = expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    assert_eq!((&run["source"], &run["due"]), (&json!("memory"), &json!(0)), "{run}");
    assert!(todo_titles(&stores).await.is_empty());
}

#[tokio::test]
async fn a_pause_is_remembered_although_its_client_leaves() {
    let stores = server::stores(&workspace(NOWHERE)).await;
    let records = PausedRecords::new(stores.records.clone());
    let stores = Stores { records: records.clone(), ..stores };
    let (app, _scheduler, stores, made) = start_with_due_assignment_in(stores).await;
    let pause = format!("/api/pulse/jobs/{}/pause", made["sync"]["jobId"].as_str().expect("an id"));
    records.arm();
    let request = app.request("POST", &pause).bearer_auth(session_token(OWNER.0, OWNER.1));
    let asked = tokio::spawn(request.send());
    records.held().await;
    asked.abort();
    let metrics = async || {
        let response = app.request("GET", "/metrics").send().await.expect("an answer");
        response.text().await.expect("a text")
    };
    poll_until(metrics, |metrics| metrics.contains("agentd_http_requests_in_flight 1\n")).await;
    records.release();
    let key = sync_key(&OWNER.1.into(), "s1").expect("a key");
    let is_paused = async || {
        let link = stores.records.get_as::<AssignmentSync>(&key).await.expect("it reads").expect("a link");
        link.value.last_sent.and_then(|last_sent| last_sent.job).is_some_and(|job| job.paused)
    };
    poll_until(is_paused, |is_paused| *is_paused).await;
}

#[tokio::test]
async fn remembered_jobs_of_a_lost_scheduler_are_run_under_their_keys() {
    let (app, scheduler, stores, made) = start_with_due_assignment().await;
    scheduler.stop();
    scheduler.stopped().await;
    let run = async || expect_json(cron(&app, CRON_SECRET, "?run=true").await, 200).await["run"].clone();
    let first = run().await;
    assert_eq!((&first["source"], &first["done"]), (&json!("memory"), &json!(1)));
    assert_eq!(run().await["due"], 0);
    assert_eq!(todo_titles(&stores).await, ["Due"]);
    // The scheduler returns and delivers the same occurrence.
    let mut payload = create_todo("Due");
    payload["assignmentId"] = "s1".into();
    let job = made["sync"]["jobId"].as_str().expect("an id");
    let called = expect_json(deliver_callback(&app, &delivery(payload, job, 1)).await, 200).await;
    assert_eq!(called["status"], "doneBefore");
    assert_eq!(todo_titles(&stores).await, ["Due"]);
}
