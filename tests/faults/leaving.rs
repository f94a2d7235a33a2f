//! Client disconnects: the upstream calls and tool calls started for the client are cancelled.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_client::models::{EmbeddedModels, HostedVendor, ModelLimits, OllamaServer};
use agent_client::outbound::OutboundClient;
use agent_core::backend::EmbeddedBackend;
use agent_core::testing::FakeTools;
use agent_core::turn::Platform;
use agent_http::shutdown::Shutdown;
use agent_http::{app, serve};
use agentd::compose;
use agentd::config::{AppConfig, Flags};
use agentd::stores::Stores;
use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{CASE_TIMEOUT, FORMATS, Provider, Topology, TopologyServices, embedded, workspace};
use crate::support::client;
use crate::support::server::{SESSION_SECRET, session_token};
use crate::support::vendor::{Step, Vendor, chunk, delta, n8n, stream_head, tool_calls};

/// A state of the vendor's answer in which the client disconnects.
struct Phase {
    /// Name of the phase, also used as the model's name.
    name: &'static str,
    script: Vec<Vec<Step>>,
    /// Text that the client of a stream has received when the phase is reached.
    received_text: &'static str,
}

impl Phase {
    fn received_text(&self, format: &str) -> &'static str {
        // Steps have no names in this framing.
        if (self.received_text, format) == ("round-1", "ui-message") {
            "start-step"
        } else {
            self.received_text
        }
    }
}

fn with_last_step(steps: &[Step], last: Step) -> Vec<Step> {
    steps.iter().cloned().chain([last]).collect()
}

/// Phases of a workflow, which receives one request and calls its tools itself.
fn phases_of_a_workflow() -> Vec<Phase> {
    let steps = [n8n::stream_head(), n8n::text("par")];
    let phase = |name, steps, received_text| Phase { name, script: vec![steps], received_text };
    let Step::Send(trickle) = n8n::text("x") else { panic!("a chunk is sent") };
    let [ended, _] = n8n::end();
    vec![
        phase("before-the-head", vec![Step::Stall], ""),
        phase("after-the-head", vec![n8n::head(), Step::Stall], ""),
        phase("in-a-silence", with_last_step(&steps, Step::Stall), "par"),
        phase("in-a-trickle", with_last_step(&steps, Step::Drip(trickle, Duration::from_millis(10))), "par"),
        phase(
            "between-two-calls",
            with_last_step(&steps, ended).into_iter().chain([Step::Stall]).collect(),
            "par",
        ),
        phase("in-a-piece", vec![n8n::head(), chunk("{\"output\":"), Step::Stall], ""),
    ]
}

fn phases() -> Vec<Phase> {
    let steps = || [stream_head(), delta(json!({"content": "par"}))];
    let call = || tool_calls(&[("c1", "readTodos", "{}")]);
    let phase =
        |name, script: &[Vec<Step>], received_text| Phase { name, script: script.to_vec(), received_text };
    let trickle = chunk("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n");
    let Step::Send(trickle) = trickle else { panic!("a chunk is sent") };
    vec![
        phase("before-the-head", &[vec![Step::Stall]], ""),
        phase("after-the-head", &[with_last_step(&[stream_head()], Step::Stall)], "round-1"),
        phase("in-a-silence", &[with_last_step(&steps(), Step::Stall)], "par"),
        phase(
            "in-a-trickle",
            &[with_last_step(&steps(), Step::Drip(trickle, Duration::from_millis(10)))],
            "par",
        ),
        phase(
            "in-a-call's-arguments",
            &[with_last_step(
                &[
                    stream_head(),
                    delta(json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
                        "function": {"name": "readTodos", "arguments": "{"}}]})),
                ],
                Step::Stall,
            )],
            "readTodos",
        ),
        phase("before-the-second-head", &[call(), vec![Step::Stall]], "c1"),
        phase("in-the-second-round", &[call(), with_last_step(&steps(), Step::Stall)], "par"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_the_runtime_ends_the_call_upstream() {
    a_client_that_leaves_ends_the_call_upstream(Topology::Runtime, Provider::OpenAi, phases()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_the_application_ends_the_call_upstream() {
    a_client_that_leaves_ends_the_call_upstream(Topology::App, Provider::OpenAi, phases()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_the_chain_ends_the_call_upstream() {
    let mut phases = phases();
    // The first step of a runtime's run is held back until another event follows it.
    phases
        .iter_mut()
        .filter(|phase| phase.received_text == "round-1")
        .for_each(|phase| phase.received_text = "");
    a_client_that_leaves_ends_the_call_upstream(Topology::Chain, Provider::OpenAi, phases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_the_application_ends_the_call_of_the_workflow() {
    a_client_that_leaves_ends_the_call_upstream(Topology::App, Provider::Workflow, phases_of_a_workflow())
        .await;
}

async fn a_client_that_leaves_ends_the_call_upstream(
    topology: Topology,
    provider: Provider,
    phases: Vec<Phase>,
) {
    let vendor = Vendor::start().await;
    let base = provider.base_url(&vendor);
    let models: Vec<_> = phases.iter().map(|phase| (phase.name, base.clone())).collect();
    // The default time-outs are too long to be what ends a call in this test.
    let mut services = TopologyServices::start(topology, provider, &models, &[]).await;
    for format in FORMATS {
        for phase in &phases {
            let case = format!("{topology:?}, {provider:?}, {format}, {}", phase.name);
            vendor.on(phase.name, phase.script.clone());
            let disconnects = vendor.disconnect_count();
            let request_count = vendor.received_bodies(phase.name).len() + phase.script.len();
            // A client with its own connection pool, so that dropping it closes its connections.
            services.client = client();
            let request = services.request(phase.name, &base, format);
            let mut reading = Box::pin(read_until(request, phase.received_text(format)));
            let reached = async {
                // Nothing is sent before the vendor's head, nor before a complete JSON object.
                let silent = format == "json" || phase.received_text.is_empty();
                let body = tokio::select! {
                    body = &mut reading => Some(body),
                    () = vendor.wait_for_requests(phase.name, request_count), if silent => None,
                };
                vendor.wait_for_requests(phase.name, request_count).await;
                body
            };
            let body = tokio::time::timeout(CASE_TIMEOUT, reached).await;
            let body = body.unwrap_or_else(|_| panic!("{case}: it hangs"));
            assert_eq!(
                vendor.disconnect_count(),
                disconnects,
                "{case}: the call ended while the client was there"
            );
            drop((body, reading));
            services.client = client();
            let gone = tokio::time::timeout(CASE_TIMEOUT, vendor.wait_for_disconnects(disconnects + 1)).await;
            assert!(gone.is_ok(), "{case}: the call goes on");
        }
    }
}

/// Sends a request, reads the body until it contains `expected`, and returns the rest of the body.
async fn read_until(request: reqwest::RequestBuilder, expected: &str) -> impl Stream + use<> {
    let mut body = Box::pin(request.send().await.expect("an answer").bytes_stream());
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(expected) {
        received.extend_from_slice(&body.next().await.expect("more").expect("the connection stands"));
    }
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_ends_the_tool_call() {
    let vendor = Vendor::start().await;
    vendor.on("m", [tool_calls(&[("c1", "readTodos", "{}")])]);
    let ((begin, mut begun), (end, mut ended)) = (watch::channel(0), watch::channel(0));
    let tools = FakeTools::new().behaves("readTodos", move |_| {
        let counting = DropCounter(end.clone());
        begin.send_modify(|begun| *begun += 1);
        async move {
            let _counting = counting;
            std::future::pending().await
        }
    });
    let agents =
        workspace(&[("m", vendor.base_url())], |model, base| embedded(Provider::OpenAi, model, base));
    let address = app_with(&agents, tools).await;
    for (index, format) in FORMATS.into_iter().enumerate() {
        let request = client()
            .post(format!("http://{address}/api/agent/chat?format={format}"))
            .bearer_auth(session_token("u1", "c1"))
            .json(&json!({"agentId": "m", "message": "hello"}));
        let mut reading = Box::pin(read_until(request, "an end that never comes"));
        let reached = async {
            tokio::select! {
                _ = &mut reading => {}
                _ = begun.wait_for(|begun| *begun > index) => {}
            }
        };
        tokio::time::timeout(CASE_TIMEOUT, reached).await.expect("the tool is called");
        assert_eq!(*ended.borrow(), index, "{format}: the call ended while the client was there");
        drop(reading);
        let gone = tokio::time::timeout(CASE_TIMEOUT, ended.wait_for(|ended| *ended > index)).await;
        assert!(gone.is_ok(), "{format}: the call goes on");
    }
    assert_eq!(vendor.received().len(), FORMATS.len(), "there was no second round");
}

/// Increments a counter when dropped.
struct DropCounter(watch::Sender<usize>);

impl Drop for DropCounter {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count += 1);
    }
}

/// Starts the application with `tools` instead of its own.
async fn app_with(workspace: &Value, tools: FakeTools) -> SocketAddr {
    let env = BTreeMap::from([("SESSION_SECRET", SESSION_SECRET), ("OUTBOUND_ALLOW", "127.0.0.0/8")]);
    let config = AppConfig::load(&Flags::default(), &env).expect("the settings are right");
    let stores =
        Stores::in_memory("the test's workspace", &workspace.to_string()).await.expect("a valid workspace");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound listener");

    let hosted = &config.server.hosted;
    let outbound = OutboundClient::new(config.server.outbound.clone()).expect("a client");
    let num_ctx = config.server.ollama.num_ctx;
    let limits = ModelLimits::default();
    let ollama = OllamaServer {
        outbound: outbound.clone(),
        base_url: None,
        default_model: None,
        num_ctx,
        limits: limits.clone(),
    };
    let hosted = HostedVendor {
        outbound,
        base_url: hosted.base_url.clone(),
        key: None,
        default_model: hosted.model.clone(),
        key_setting: hosted.key_setting,
        needs_key: hosted.needs_key,
        limits,
    };
    let tools = Arc::new(tools);
    let models =
        EmbeddedModels { anthropic: hosted.clone(), hosted, ollama, prefers_ollama: false, local: None };
    let backend = EmbeddedBackend::new(models).with_tools(tools.clone());
    let platform = Platform::new(stores.roles.clone()).with_tools(tools).with_backend(backend);
    let mut app =
        compose::application(&config, address, stores, None, &Shutdown::default()).expect("it is right");
    app.platform = platform;
    let service = app::service(Arc::new(app));
    tokio::spawn(serve::serve(listener, service, config.server.serve.clone(), Shutdown::default()));
    address
}
