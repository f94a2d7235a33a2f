//! Trace context (W3C): one trace from the application through the runtime, the tools and a job, and new traces for callers
//! that are not trusted with one.

use std::collections::HashSet;
use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_jobs::job::{JobStore, MemoryJobStore};
use agent_platform::token::{Grant, NewToken, Tokens, WidgetGrant};
use agentd::stores::Stores;
use serde_json::{Value, json};

use super::http::get_order;
use super::select_runtime;
use super::servers::{entry, pin, start_server};
use crate::pulse::callback_url;
use crate::support::log::LogBuffer;
use crate::support::server::{self, INTERNAL_SECRET, PULSE_SECRET, Server, session_token};
use crate::support::tool_server::MCP_REVISIONS;
use crate::support::vendor::{Vendor, answer, json_response, tool_calls};
use crate::support::{parse_run, poll_until, text_of, workspace};

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT_ID: &str = "b7ad6b7169203331";
/// Origin of the page with the widget.
const PAGE: &str = "https://shop.example";

fn traceparent() -> String {
    format!("00-{TRACE_ID}-{PARENT_ID}-01")
}

/// Returns the values of a header in a head.
fn header_values(head: &str, name: &str) -> Vec<String> {
    let value = |line: &str| {
        let (header_name, value) = line.split_once(": ")?;
        header_name.eq_ignore_ascii_case(name).then(|| value.to_owned())
    };
    head.lines().filter_map(value).collect()
}

/// Returns the trace id, the parent id and the flags of a valid `traceparent`.
fn parts(traceparent: &str) -> (String, String, String) {
    let fields: Vec<&str> = traceparent.split('-').collect();
    let ["00", trace, parent, flags] = fields[..] else { panic!("{traceparent}") };
    let lengths = (trace.len(), parent.len(), flags.len());
    assert_eq!(lengths, (32, 16, 2), "{traceparent}");
    (trace.to_owned(), parent.to_owned(), flags.to_owned())
}

/// Returns the parts of the one `traceparent` of a head.
fn parts_of_head(head: &str) -> (String, String, String) {
    let values = header_values(head, "traceparent");
    let [value] = &values[..] else { panic!("{values:?} in {head}") };
    parts(value)
}

/// Returns the fields `trace_id` of the lines of the log that contain all of `words`.
fn logged_traces(log: &LogBuffer, words: &[&str]) -> Vec<String> {
    let text = log.text();
    let lines = text.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    let field = |line: &str| Some(line.split_once("trace_id=\"")?.1.split_once('"')?.0.to_owned());
    lines.map(|line| field(line).unwrap_or_else(|| panic!("no trace in {line}"))).collect()
}

/// The application with a scheduler, and the services that its agents use.
struct TracedApp {
    app: Server,
    stores: Stores,
    /// Model of the runtime's agent.
    vendor: Vendor,
    /// HTTP tool and workflow.
    service: Vendor,
    _services: [Server; 2],
}

impl TracedApp {
    /// Starts it with the agents `a1`, which a runtime answers, and `flow`, which a workflow answers.
    async fn start(tool_servers: &[Value]) -> Self {
        let (vendor, service) = (Vendor::start().await, Vendor::start().await);
        let runtime = server::runtime(&[]).await;
        for order in ["/orders/7", "/orders/8"] {
            service.on(order, [json_response("200 OK", "", r#"{"data":"sent"}"#)]);
        }
        let mut all = workspace(&vendor.base_url(), "m");
        let agent = &mut all["agents"][0];
        select_runtime(agent, &runtime, &vendor);
        let content = &mut agent["content"];
        content["mcpPreset"] = json!(["scheduleTool"]);
        (content["httpTools"], content["toolServers"]) = (json!([get_order(&service)]), json!(tool_servers));
        let workflow = json!({"name": "WorkflowConnector", "content": {"webhookUrl": service.webhook_url()}});
        let flow =
            json!({"id": "flow", "name": "Flow", "ownerId": "u1", "companyId": "c1", "children": [workflow]});
        all["agents"].as_array_mut().expect("agents").push(flow);
        let (stores, listener) = (server::stores(&all).await, server::bind().await);
        let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
        let callback = callback_url(&listener);
        let scheduler = server::scheduler(jobs, &callback, &[]).await;
        let pulse = scheduler.url("");
        let settings = [("PULSE_URL", &*pulse), ("PULSE_SECRET", PULSE_SECRET)];
        let app = server::app_on(listener, stores.clone(), &settings);
        Self { app, stores, vendor, service, _services: [runtime, scheduler] }
    }

    /// Starts a chat request.
    fn chat(&self, path: &str, bearer: Option<&str>, agent: &str, run: &str) -> reqwest::RequestBuilder {
        let request = self.app.request("POST", path);
        let request = bearer.into_iter().fold(request, |request, bearer| request.bearer_auth(bearer));
        request.json(&json!({"agentId": agent, "message": "Where is it?", "runId": run}))
    }

    /// Sends a chat request that the workflow answers; returns the parts of the `traceparent` that the workflow received.
    async fn ask_workflow(&self, request: reqwest::RequestBuilder) -> (String, String, String) {
        let request_count = self.service.received().len();
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let body = response.text().await.expect("a whole body");
        assert_eq!(status, 200, "{body}");
        let received = self.service.received();
        assert_eq!(received.len(), request_count + 1);
        parts_of_head(&received[request_count].head)
    }
}

#[tokio::test]
async fn one_trace_joins_a_run_with_its_runtime_its_tools_and_its_job() {
    let log = LogBuffer::install();
    for revision in MCP_REVISIONS {
        let server = start_server(revision).await;
        let test = TracedApp::start(&[entry("crm", &server)]).await;
        pin(&test.app, "crm", &["search"]).await;
        let pinned = server.received().len();
        let later = r#"{"tool":"getOrder","arguments":{"orderId":"8"},"delayMs":1}"#;
        let calls = [
            ("c1", "getOrder", r#"{"orderId":"7"}"#),
            ("c2", "crm_search", r#"{"q":"x"}"#),
            ("c3", "scheduleTool", later),
        ];
        test.vendor.on("m", [tool_calls(&calls), answer(&["Done."])]);
        let run = format!("run-{revision:?}");
        let request = test.chat("/api/agent/chat", Some(&session_token("u1", "c1")), "a1", &run);
        let request = request.header("traceparent", traceparent()).header("tracestate", "vendor=1");
        let body = request.send().await.expect("an answer").text().await.expect("a whole body");
        assert_eq!(text_of(&parse_run(&body)), "Done.", "{body}");

        // The calls of the HTTP tool: that of the run, and that of the job.
        let received =
            poll_until(async || test.service.received(), |received: &Vec<_>| received.len() == 2).await;
        let mut parents = HashSet::from([PARENT_ID.to_owned()]);
        let mut check = |(trace, parent, flags): (String, String, String)| {
            assert_eq!((&*trace, &*flags), (TRACE_ID, "01"));
            assert!(parents.insert(parent), "each request has a parent id of its own");
        };
        for (path, state) in [("/orders/7", vec!["vendor=1".to_owned()]), ("/orders/8", vec![])] {
            let request = received.iter().find(|request| request.path() == path).expect("it was called");
            check(parts_of_head(&request.head));
            assert_eq!(header_values(&request.head, "tracestate"), state, "{path}");
        }
        // The end of the session in which the tools were pinned may arrive late.
        let to_server = server.received().split_off(pinned);
        let to_server: Vec<_> =
            to_server.iter().filter(|request| request.head.starts_with("POST ")).collect();
        let mut called = 0;
        for request in &to_server {
            check(parts_of_head(&request.head));
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            if body["method"] == "tools/call" {
                called += 1;
                let meta = &body["params"]["_meta"];
                check(parts(meta["traceparent"].as_str().unwrap_or_else(|| panic!("{body}"))));
                assert_eq!(meta["tracestate"], "vendor=1");
            }
        }
        assert_eq!(called, 1, "{to_server:?}");

        let to_vendor = test.vendor.received();
        assert_eq!(to_vendor.len(), 2);
        for request in to_vendor {
            let all = format!("{}{}", request.head, String::from_utf8_lossy(&request.body));
            assert!(!all.contains("traceparent") && !all.contains(TRACE_ID), "{all}");
        }

        // The services' own logs have the trace: application, runtime, tool server of the application, callback.
        for path in ["/api/agent/chat", "/chat", "/api/agent/mcp", "/api/pulse/callback"] {
            let words = [" answered ", &format!("path=\"{path}\"")];
            let traces =
                poll_until(async || logged_traces(&log, &words), |traces: &Vec<_>| !traces.is_empty()).await;
            assert!(traces.iter().all(|trace| trace == TRACE_ID), "{path}: {traces:?}");
        }
        let ended = ["run ended", &*run];
        let traces = poll_until(async || logged_traces(&log, &ended), |traces: &Vec<_>| !traces.is_empty());
        assert_eq!(traces.await, [TRACE_ID]);
    }
}

#[tokio::test]
async fn a_workflow_continues_the_trace_of_a_trusted_caller() {
    let test = TracedApp::start(&[]).await;
    let session = session_token("u1", "c1");
    let request = test.chat("/api/agent/chat", Some(&session), "flow", "r1");
    let (trace, parent, flags) = test.ask_workflow(request.header("traceparent", traceparent())).await;
    assert_eq!((&*trace, &*flags), (TRACE_ID, "01"));
    assert_ne!(parent, PARENT_ID);

    let proactive = test.app.request("POST", "/api/agent/chat").bearer_auth(INTERNAL_SECRET);
    let proactive = proactive.header("x-proactive-trigger", "a test").header("traceparent", traceparent());
    let body = json!({"agentId": "flow", "message": "Hello", "userId": "u1", "companyId": "c1"});
    assert_eq!(test.ask_workflow(proactive.json(&body)).await.0, TRACE_ID);

    // A trace of a later version is continued, and becomes one of this version.
    let request = test.chat("/api/agent/chat", Some(&session), "flow", "r2");
    let later = format!("cc-{TRACE_ID}-{PARENT_ID}-01-more");
    assert_eq!(test.ask_workflow(request.header("traceparent", later)).await.0, TRACE_ID);
}

#[tokio::test]
async fn a_caller_that_anyone_can_be_and_a_malformed_header_begin_a_trace() {
    let log = LogBuffer::install();
    let test = TracedApp::start(&[]).await;
    let session = session_token("u1", "c1");
    let mut traces = HashSet::from([TRACE_ID.to_owned(), "0".repeat(32)]);
    let mut check = |what: &str, (trace, _, flags): (String, String, String)| {
        assert_eq!(flags, "00", "{what}");
        assert!(traces.insert(trace), "{what} begins a trace");
    };

    let tokens = Tokens::new(test.stores.records.clone(), Arc::new(SystemClock));
    let grant = Grant::Widget(WidgetGrant { origins: vec![PAGE.to_owned()], ..WidgetGrant::default() });
    let widget = tokens.mint(NewToken::new("c1", "flow", grant)).await.expect("minted").text;
    let forged = test.chat("/api/agent/chat", None, "flow", "by-widget").header("origin", PAGE);
    let forged = forged.header("x-widget-token", widget.expose()).header("traceparent", traceparent());
    check("a widget", test.ask_workflow(forged.header("tracestate", "forged=1")).await);
    assert_eq!(header_values(&test.service.received()[0].head, "tracestate"), Vec::<String>::new());
    let legacy = test.chat("/api/svcchat/private", Some(&session), "flow", "by-legacy");
    check("an older client", test.ask_workflow(legacy.header("traceparent", traceparent())).await);

    let malformed = [
        traceparent().to_uppercase(),
        format!("00-{}-{PARENT_ID}-01", "0".repeat(32)),
        format!("00-{TRACE_ID}-{}-01", "0".repeat(16)),
        format!("ff-{TRACE_ID}-{PARENT_ID}-01"),
        format!("{}-01", traceparent()),
        format!("cc-{TRACE_ID}-{PARENT_ID}-01-{}", "x".repeat(10 << 10)),
        "x".repeat(10 << 10),
        String::new(),
    ];
    for (i, header) in malformed.iter().enumerate() {
        let request = test.chat("/api/agent/chat", Some(&session), "flow", &format!("malformed-{i}"));
        check(&format!("{header:.60}"), test.ask_workflow(request.header("traceparent", header)).await);
    }
    let twice = test.chat("/api/agent/chat", Some(&session), "flow", "twice");
    let twice = twice.header("traceparent", traceparent()).header("traceparent", traceparent());
    check("a header that occurs twice", test.ask_workflow(twice).await);
    check(
        "no header",
        test.ask_workflow(test.chat("/api/agent/chat", Some(&session), "flow", "without-header")).await,
    );
    for run in ["by-widget", "by-legacy", "malformed-0", "twice", "without-header"] {
        let ended = ["run ended", run];
        let logged = poll_until(async || logged_traces(&log, &ended), |logged: &Vec<_>| !logged.is_empty());
        let logged = logged.await;
        assert!(logged.iter().all(|trace| trace != TRACE_ID && traces.contains(trace)), "{run}: {logged:?}");
    }
}
