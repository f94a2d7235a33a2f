//! Turns started by jobs, and jobs created by tools.

use std::net::SocketAddr;
use std::time::Duration;

use agent_client::outbound::{OutboundClient, OutboundConfig};
use agent_client::pulse::PulseClient;
use agent_core::tool::{
    ExecutionContext, LocalToolRegistry, Progress, Tool, ToolError, ToolOutput, ToolSpec,
};
use agent_http::app::{self, SchedulerConnection, SchedulerConnectionConfig};
use agent_http::serve;
use agent_http::shutdown::Shutdown;
use agent_jobs::job::JobFilter;
use agent_jobs::schedule::ScheduleSpec;
use agent_platform::journal::{JournaledTools, Journals};
use agent_platform::local_pulse::LocalPulse;
use agent_platform::pulse::{JobRequest, MAX_OPEN_FOLLOW_UP_JOBS};
use agentd::compose;
use agentd::config::{AppConfig, Flags};
use async_trait::async_trait;
use jiff::Timestamp;
use url::Url;

use super::*;
use crate::support::expect_problem;
use crate::support::vendor::{Step, Vendor, answer, delta, stream_head};

fn question() -> Value {
    json!({"kind": "agent", "userId": "u1", "companyId": "c1", "agentId": "a1",
        "message": "What is to be done today?"})
}

#[tokio::test]
async fn an_agents_answer_is_a_notification_and_comes_once() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["Water", " the basil."])]);
    let bench = open(&vendor.base_url(), &[]).await;
    let job = json!({"payload": question(), "delayMs": 0});
    let id = request_scheduler(&bench.scheduler, "POST", "/jobs", Some(&job)).await["jobId"].clone();
    let path = format!("/jobs/{}", id.as_str().expect("an id"));
    poll_until(|| request_scheduler(&bench.scheduler, "GET", &path, None), |job| job["state"] == "completed")
        .await;
    let expected = [("Gardener".to_owned(), "Water the basil.".to_owned())];
    assert_eq!(notification_texts(&bench.stores).await, expected);
    let second = deliver_callback(&bench.app, &delivery(question(), id.as_str().expect("an id"), 1)).await;
    assert_eq!(expect_json(second, 200).await["status"], "doneBefore");
    assert_eq!(notification_texts(&bench.stores).await, expected);
    assert_eq!(vendor.received_bodies("m").len(), 1);
}

#[tokio::test]
async fn a_call_that_breaks_off_after_text_is_repeated_within_the_run() {
    let vendor = Vendor::start().await;
    vendor.on(
        "m",
        [vec![stream_head(), delta(json!({"content": "Wat"})), Step::Reset], answer(&["Water it."])],
    );
    let (app, stores) = app_without_scheduler(&vendor.base_url(), &[("MODEL_ATTEMPTS", "2")]).await;
    let body = expect_json(deliver_callback(&app, &delivery(question(), "j1", 1)).await, 200).await;
    assert_eq!(body["status"], "done");
    assert_eq!(notification_texts(&stores).await, [("Gardener".to_owned(), "Water it.".to_owned())]);
    assert_eq!(vendor.received_bodies("m").len(), 2);
}

#[tokio::test]
async fn a_run_that_hangs_ends_and_may_be_tried_again() {
    let vendor = Vendor::start().await;
    vendor.on("m", [vec![Step::Stall], answer(&["Late."])]);
    let settings = [("PROACTIVE_TIMEOUT_MS", "2000")];
    let (impatient, stores) = app_without_scheduler(&vendor.base_url(), &settings).await;
    let hung = deliver_callback(&impatient, &delivery(question(), "j1", 1)).await;
    expect_problem(hung, 504, "BACKEND_TIMEOUT").await;
    assert_eq!(notification_texts(&stores).await, []);
    // The next try has all the time that it needs.
    let patient = app(&stores, "http://127.0.0.1:9", &[]).await;
    let body = expect_json(deliver_callback(&patient, &delivery(question(), "j1", 1)).await, 200).await;
    assert_eq!(body["status"], "done");
    assert_eq!(notification_texts(&stores).await.len(), 1);
}

#[tokio::test]
async fn a_tool_schedules_another_by_the_users_own_scheduler() {
    let vendor = Vendor::start().await;
    let arguments = r#"{"tool":"createTodo","arguments":{"title":"Later"},"delayMs":1}"#;
    let calls = crate::support::vendor::tool_calls(&[("c1", "scheduleTool", arguments)]);
    vendor.on("m", [calls, answer(&["Done."])]);
    let bench = open(&vendor.base_url(), &[]).await;
    let chat = json!({"agentId": "a1", "message": "Remind me", "todoListId": "l1"});
    bench.app.chat(&chat).await.text().await.expect("a whole body");
    poll_until(|| todo_titles(&bench.stores), |todos| !todos.is_empty()).await;
    assert_eq!(todo_titles(&bench.stores).await, ["Later"]);
    let jobs = request_scheduler(&bench.scheduler, "GET", "/jobs?userId=u1&companyId=c1", None).await;
    assert_eq!(jobs["jobs"][0]["payload"]["toolId"], "createTodo");
}

/// A tool that counts its calls and requests a follow-up job.
struct FollowUpTool {
    calls: Arc<std::sync::atomic::AtomicUsize>,
}

#[async_trait]
impl Tool for FollowUpTool {
    fn spec(&self) -> Arc<ToolSpec> {
        let spec = json!({"name": "createTodo", "inputSchema": {"type": "object"}});
        Arc::new(serde_json::from_value(spec).expect("a definition"))
    }

    async fn call(
        &self,
        _: &ExecutionContext,
        arguments: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if arguments["round"] == 2 {
            return Ok(ToolOutput::text("done"));
        }
        ToolOutput::structured(json!({"followUp": {"delayMs": 3_600_000, "arguments": {"round": 2}}}))
    }
}

/// Starts an application whose only tool is `tool` and whose scheduler is at `pulse_url`.
async fn app_with(stores: &Stores, pulse_url: &str, deadline: Duration, tool: impl Tool) -> SocketAddr {
    let env = std::collections::BTreeMap::from([("SESSION_SECRET", server::SESSION_SECRET)]);
    let config = AppConfig::load(&Flags::default(), &env).expect("the settings are right");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");
    let mut app = compose::application(&config, address, stores.clone(), None, &Shutdown::default())
        .expect("an application");
    let (url, secret) = (Url::parse(pulse_url).expect("an address"), Secret::new(PULSE_SECRET));
    let outbound = OutboundClient::new(OutboundConfig::default()).expect("a client");
    let journals = Arc::new(Journals::new(stores.records.clone(), Arc::new(agent_core::clock::SystemClock)));
    let tools = Arc::new(LocalToolRegistry::new().with_tool(tool));
    app.pulse = SchedulerConnection::new(SchedulerConnectionConfig {
        client: Some(Arc::new(PulseClient::new(outbound, url.clone(), secret.clone()))),
        local: Arc::new(LocalPulse::new(stores.jobs.clone(), Arc::new(agent_core::clock::SystemClock))),
        url: Some(url),
        secret: Some(secret),
        secret_previous: None,
        public_url: config.public_url(address),
        cron_secret: None,
        deadline,
        tools: Arc::new(JournaledTools::new(tools, journals.clone(), |_| false)),
        inventory: stores.records.clone(),
        journals,
        clock: Arc::new(agent_core::clock::SystemClock),
    });
    let service = app::service(Arc::new(app));
    tokio::spawn(serve::serve(listener, service, serve::ServeLimits::default(), Shutdown::default()));
    address
}

async fn post(address: SocketAddr, delivery: &Value) -> u16 {
    let id = format!("{}:{}", delivery["jobId"].as_str().expect("an id"), delivery["occurrence"]);
    let body = delivery.to_string();
    let signed = webhook::sign(&Secret::new(PULSE_SECRET), &id, SystemTime::now(), body.as_bytes());
    let mut request = client().post(format!("http://{address}/api/pulse/callback")).bearer_auth(PULSE_SECRET);
    for (name, value) in signed.expect("an id") {
        request = request.header(name, value);
    }
    let sent = request.header("content-type", "application/json").body(body).send().await;
    sent.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn a_follow_up_is_made_once_and_the_tool_is_not_called_again_for_it() {
    let stores = server::stores(&workspace("http://127.0.0.1:9/v1")).await;
    let calls = Arc::<std::sync::atomic::AtomicUsize>::default();
    let count = || calls.load(std::sync::atomic::Ordering::SeqCst);
    let call = delivery(create_todo("x"), "j1", 1);
    // The scheduler is unreachable when the tool has been called.
    let nobody = refused_url();
    let away = app_with(&stores, &nobody, TEST_TIMEOUT, FollowUpTool { calls: calls.clone() }).await;
    assert_eq!((post(away, &call).await, count()), (502, 1));
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, "http://127.0.0.1:9/callback", &[]).await;
    let back =
        app_with(&stores, &scheduler.url(""), TEST_TIMEOUT, FollowUpTool { calls: calls.clone() }).await;
    assert_eq!((post(back, &call).await, count()), (200, 1));
    assert_eq!((post(back, &call).await, count()), (200, 1));
    let jobs = request_scheduler(&scheduler, "GET", "/jobs", None).await;
    let jobs = jobs["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!(jobs[0]["payload"]["arguments"], json!({"round": 2}));
    assert_eq!(jobs[0]["payload"]["userId"], "u1");
}

#[tokio::test]
async fn follow_ups_are_bounded_by_the_users_open_jobs() {
    let stores = server::stores(&workspace("http://127.0.0.1:9/v1")).await;
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let payload = serde_json::from_value(create_todo("x")).expect("a payload");
    let schedule = ScheduleSpec { delay_ms: Some(3_600_000), ..ScheduleSpec::default() };
    let request = JobRequest::new(payload, schedule);
    let job = || request.job(Timestamp::now(), |_| String::new()).expect("a job");
    let open = (1..MAX_OPEN_FOLLOW_UP_JOBS).map(|_| job()).collect();
    jobs.insert(open).await.expect("they are stored");
    let scheduler = server::scheduler(jobs.clone(), "http://127.0.0.1:9/callback", &[]).await;
    let calls = Arc::<std::sync::atomic::AtomicUsize>::default();
    let app =
        app_with(&stores, &scheduler.url(""), TEST_TIMEOUT, FollowUpTool { calls: calls.clone() }).await;
    for (number, id) in ["j1", "j2", "j2"].into_iter().enumerate() {
        assert_eq!(post(app, &delivery(create_todo("x"), id, 1)).await, 200, "{number}");
        // The second follow-up is not scheduled, and its occurrence is done.
        let count = jobs.count(&JobFilter::default()).await.expect("it counts");
        assert_eq!(count, MAX_OPEN_FOLLOW_UP_JOBS as u64, "{number}");
    }
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 2);
}

/// A tool outside that never answers.
struct HangingTool {
    calls: Arc<std::sync::atomic::AtomicUsize>,
}

#[async_trait]
impl Tool for HangingTool {
    fn spec(&self) -> Arc<ToolSpec> {
        let spec = json!({"name": "createTodo", "inputSchema": {"type": "object"}});
        Arc::new(serde_json::from_value(spec).expect("a definition"))
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        _: Value,
        _: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        assert_eq!(context.idempotency_key.as_deref(), Some("j1:1"));
        self.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::future::pending().await
    }
}

/// A tool whose calls wait until the test closes the gate.
struct GatedTool {
    calls: Arc<std::sync::atomic::AtomicUsize>,
    gate: Arc<tokio::sync::Semaphore>,
}

#[async_trait]
impl Tool for GatedTool {
    fn spec(&self) -> Arc<ToolSpec> {
        let spec = json!({"name": "createTodo", "inputSchema": {"type": "object"}});
        Arc::new(serde_json::from_value(spec).expect("a definition"))
    }

    async fn call(&self, _: &ExecutionContext, _: Value, _: &dyn Progress) -> Result<ToolOutput, ToolError> {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        // It has no permits, so this waits for its end.
        assert!(self.gate.acquire().await.is_err());
        Ok(ToolOutput::text("done"))
    }
}

#[tokio::test]
async fn the_callbacks_of_one_company_leave_slots_to_others() {
    const PLACES_OF_COMPANY: usize = 128;
    let mut workspace = workspace("http://127.0.0.1:9/v1");
    let content = workspace["agents"][0]["content"].clone();
    workspace["agents"][2]["content"] = content;
    let stores = server::stores(&workspace).await;
    let calls = Arc::<std::sync::atomic::AtomicUsize>::default();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let tool = GatedTool { calls: calls.clone(), gate: gate.clone() };
    let app = app_with(&stores, &refused_url(), 4 * TEST_TIMEOUT, tool).await;
    let begin = |call: Value| tokio::spawn(async move { post(app, &call).await });
    let are_called = async |expected: usize| {
        poll_until(async || calls.load(std::sync::atomic::Ordering::SeqCst), |count| *count == expected)
            .await;
    };
    let job = |number: usize| delivery(create_todo("x"), &format!("j{number}"), 1);
    let mut running: Vec<_> = (0..PLACES_OF_COMPANY).map(|number| begin(job(number))).collect();
    are_called(PLACES_OF_COMPANY).await;
    assert_eq!(post(app, &job(PLACES_OF_COMPANY)).await, 409);
    let of_another = json!({"kind": "tool", "userId": "u3", "companyId": "c2", "agentId": "z1",
        "toolId": "createTodo", "arguments": {"title": "x"}});
    running.push(begin(delivery(of_another, "other", 1)));
    are_called(PLACES_OF_COMPANY + 1).await;
    gate.close();
    for call in running {
        assert_eq!(call.await.expect("it does not panic"), 200);
    }
    assert_eq!(post(app, &job(PLACES_OF_COMPANY)).await, 200);
}

#[tokio::test]
async fn a_tool_outside_that_was_interrupted_is_not_called_again() {
    let stores = server::stores(&workspace("http://127.0.0.1:9/v1")).await;
    let calls = Arc::<std::sync::atomic::AtomicUsize>::default();
    let nobody = refused_url();
    let tool = HangingTool { calls: calls.clone() };
    let app = app_with(&stores, &nobody, Duration::from_secs(2), tool).await;
    let call = delivery(create_todo("x"), "j1", 1);
    assert_eq!(post(app, &call).await, 504);
    for _ in 0..2 {
        assert_eq!(post(app, &call).await, 422);
    }
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 1);
}
