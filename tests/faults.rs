//! Misbehaving vendors and disconnecting clients: every run ends exactly once, without waiting for a time-out that the fault
//! does not need, and with a message of the platform's own.
//!
//! One [table](table::faults) of faults is run through three [topologies](Topology), in every framing, for each
//! [provider](Provider).

mod fallback;
mod leaving;
mod provider;
mod server_fallback;
mod shutdown;
mod table;

use agent_client::events::EventDecoder;
use agent_core::event::{Event, EventGrammar};
use agent_http::error::Code;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use self::provider::Provider;
use self::table::{Fault, MAX_TOOL_ROUNDS, Outcome, faults};
use crate::support::vendor::{CASE_TIMEOUT, LONG_TIMEOUTS, SHORT_TIMEOUTS, Vendor};
use crate::support::{client, parse_events, refused_url, server};

/// Number of cases that run concurrently.
const MAX_CONCURRENT_CASES: usize = 12;
/// Number of cases that run concurrently beside them and wait for a time-out.
const MAX_WAITING_CASES: usize = 24;
/// Name of the model that answers without a fault.
const HEALTHY_MODEL: &str = "good";

/// Response framings (`format` query parameter).
const FORMATS: [&str; 4] = ["ndjson", "sse", "ui-message", "json"];

/// Topology: the service that receives the request and the services behind it. A workflow counts as a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topology {
    /// The runtime calls the vendor.
    Runtime,
    /// The application calls the vendor.
    App,
    /// The application calls the runtime, which calls the vendor.
    Chain,
}

/// The running services of a topology, with one agent for each model.
struct TopologyServices {
    topology: Topology,
    provider: Provider,
    outer: server::Server,
    _inner: Option<server::Server>,
    session: String,
    client: reqwest::Client,
}

impl TopologyServices {
    /// Starts the services. `models` are model names with their base addresses; `settings` configure the service that
    /// calls the vendor.
    async fn start(
        topology: Topology,
        provider: Provider,
        models: &[(&str, String)],
        settings: &[(&str, &str)],
    ) -> Self {
        let container = |model: &str, base: &str| match provider {
            Provider::Workflow => connector(base),
            _ => embedded(provider, model, base),
        };
        let (outer, inner) = match topology {
            Topology::Runtime => (server::runtime(settings).await, None),
            Topology::App => (server::app(&workspace(models, container), settings).await, None),
            Topology::Chain => {
                let runtime = server::runtime(settings).await;
                let url = runtime.url("");
                let agents = workspace(models, |model, base| agent_server(&url, provider, model, base));
                (server::app(&agents, &[("RUNTIME_URL", &url)]).await, Some(runtime))
            }
        };
        Self {
            topology,
            provider,
            outer,
            _inner: inner,
            session: server::session_token("u1", "c1"),
            client: client(),
        }
    }

    /// Builds a request to be answered by `model`.
    fn request(&self, model: &str, base: &str, format: &str) -> reqwest::RequestBuilder {
        let (path, body) = match self.topology {
            Topology::Runtime => ("chat", runtime_request(self.provider, model, base)),
            Topology::App | Topology::Chain => {
                ("api/agent/chat", json!({"agentId": model, "message": "hello", "todoListId": "l1"}))
            }
        };
        let url = self.outer.url(&format!("/{path}?format={format}"));
        self.client.post(url).bearer_auth(&self.session).json(&body)
    }
}

fn workspace(models: &[(&str, String)], content: impl Fn(&str, &str) -> (Value, Value)) -> Value {
    let agents = models.iter().map(|(model, base)| {
        let (mut own_content, children) = content(model, base);
        own_content["systemPrompt"] = "Be brief.".into();
        own_content["mcpPreset"] = json!(["readTodos"]);
        json!({"id": model, "name": model, "ownerId": "u1", "companyId": "c1",
            "content": own_content, "children": children})
    });
    json!({
        "users": [{"id": "u1", "companyId": "c1"}],
        "agents": agents.collect::<Vec<_>>(),
        "todoLists": [{"id": "l1", "ownerId": "u1", "companyId": "c1", "name": "Mine", "todos": []}]
    })
}

fn embedded(provider: Provider, model: &str, base: &str) -> (Value, Value) {
    let content = json!({"provider": provider.name(), "model": model, "baseUrl": base, "apiKey": "role-key"});
    (json!({}), json!([{"name": "EmbeddedAI", "content": content}]))
}

fn connector(webhook: &str) -> (Value, Value) {
    let auth = json!({"type": "header", "name": "X-Api-Key", "value": "role-key"});
    (json!({}), json!([{"name": "WorkflowConnector", "content": {"webhookUrl": webhook, "auth": auth}}]))
}

fn agent_server(url: &str, provider: Provider, model: &str, base: &str) -> (Value, Value) {
    let content = json!({"agentServerUrl": url, "agentServerProvider": provider.name(), "agentServerModel": model,
        "agentServerLocalUrl": base, "agentServerApiKey": "role-key"});
    (content, json!([]))
}

fn runtime_request(provider: Provider, model: &str, base: &str) -> Value {
    json!({
        "provider": provider.name(), "model": model, "baseUrl": base, "apiKey": "role-key",
        "systemPrompt": "Be brief.", "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"name": "readTodos", "description": "Reads the todos.", "inputSchema": {"type": "object"}}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_ends_a_runtime_run_once_and_in_time() {
    every_fault_ends_a_run_once_and_soon(Topology::Runtime, Provider::OpenAi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_ends_a_run_of_the_application_once_and_soon() {
    every_fault_ends_a_run_once_and_soon(Topology::App, Provider::OpenAi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_ends_a_run_of_the_chain_once_and_soon() {
    every_fault_ends_a_run_once_and_soon(Topology::Chain, Provider::OpenAi).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_ollama_ends_a_run_of_the_runtime_once_and_soon() {
    every_fault_ends_a_run_once_and_soon(Topology::Runtime, Provider::Ollama).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_ollama_ends_a_run_of_the_application_once_and_soon() {
    every_fault_ends_a_run_once_and_soon(Topology::App, Provider::Ollama).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_workflow_ends_a_run_of_the_application_once_and_soon() {
    every_fault_ends_a_run_once_and_soon(Topology::App, Provider::Workflow).await;
}

async fn every_fault_ends_a_run_once_and_soon(topology: Topology, provider: Provider) {
    let absent = format!("{}/v1", refused_url());
    let vendor = Vendor::start().await;
    let faults = faults(provider);
    let good_base = provider.base_url(&vendor);
    // A model for each response, so that all framings can run concurrently.
    let cases: Vec<Case> = FORMATS
        .into_iter()
        .flat_map(|format| faults.iter().map(move |fault| (fault, format)))
        .map(|(fault, format)| Case {
            fault,
            format,
            model: format!("{}-{format}", fault.name),
            base: if fault.absent { &absent } else { &good_base },
        })
        .collect();
    let mut models: Vec<_> = cases.iter().map(|case| (&*case.model, case.base.to_owned())).collect();
    models.push((HEALTHY_MODEL, good_base.clone()));
    let tool_rounds = MAX_TOOL_ROUNDS.to_string();
    let start = async |time_outs: [(&str, &str); 2]| {
        let settings = [&[("TOOL_ROUNDS", tool_rounds.as_str())], &time_outs[..]].concat();
        TopologyServices::start(topology, provider, &models, &settings).await
    };
    let (patient, impatient) = (start(LONG_TIMEOUTS).await, start(SHORT_TIMEOUTS).await);

    let (waiting, immediate): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.fault.waits);
    let run = async |services: &TopologyServices, cases: Vec<&Case<'_>>, concurrency: usize| {
        let wrong = stream::iter(cases).map(async |case| {
            let checked = check(services, &vendor, case).await;
            checked.err().map(|error| format!("{}: {error}", case.model))
        });
        wrong.buffer_unordered(concurrency).filter_map(std::future::ready).collect::<Vec<String>>().await
    };
    let (late, wrong) = tokio::join!(
        run(&impatient, waiting, MAX_WAITING_CASES),
        run(&patient, immediate, MAX_CONCURRENT_CASES),
    );
    let wrong = [late, wrong].concat();
    assert!(wrong.is_empty(), "{topology:?}, {provider:?}:\n{}", wrong.join("\n"));
}

/// A fault and the framing in which a client sees it.
struct Case<'a> {
    fault: &'a Fault,
    format: &'static str,
    /// Name of the model with the fault.
    model: String,
    /// Base address of the vendor.
    base: &'a str,
}

/// Runs one fault and then a faultless request, and describes deviations.
async fn check(services: &TopologyServices, vendor: &Vendor, case: &Case<'_>) -> Result<(), String> {
    let Case { fault, format, model, base } = case;
    vendor.on(model, fault.script.clone());
    let answering = ClientResponse::read(services.request(model, base, format));
    let answer = tokio::time::timeout(CASE_TIMEOUT, answering).await.map_err(|_| "it hangs")?;
    expect_eq("the number of requests to the vendor", vendor.requests_for(model), fault.requests)?;
    answer
        .run_case(fault, format, services.topology)
        .map_err(|what| format!("{what}, in {} {:?}\n{}", answer.status, answer.retry_after, answer.body))?;
    let good =
        ClientResponse::read(services.request(HEALTHY_MODEL, &services.provider.base_url(vendor), "ndjson"))
            .await
            .parse("ndjson")?;
    expect_eq("a good answer's error after it", good.error, None)?;
    expect_eq("a good answer after it", &*good.text, "hello world")
}

/// A response as the client received it.
struct ClientResponse {
    status: u16,
    content_type: String,
    retry_after: Option<u64>,
    body: String,
}

/// The framing-independent contents of a response.
#[derive(Debug, Default)]
struct StreamSummary {
    text: String,
    error: Option<String>,
    failed_calls: usize,
}

impl ClientResponse {
    async fn read(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.expect("the service answers");
        let header =
            |name| response.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
        let status = response.status().as_u16();
        let content_type = header("content-type").unwrap_or_default();
        let retry_after = header("retry-after").map(|value| value.parse().expect("seconds"));
        let body = response.text().await.expect("the answer's framing is whole");
        Self { status, content_type, retry_after, body }
    }

    fn run_case(&self, fault: &Fault, format: &str, topology: Topology) -> Result<(), String> {
        match fault.outcome {
            Outcome::Problem(code) => {
                if let Some(seconds) = &fault.retry_after {
                    let retry_after = self.retry_after.ok_or("Retry-After is missing")?;
                    if !seconds.contains(&retry_after) {
                        return Err(format!("Retry-After is {retry_after}"));
                    }
                }
                self.is_problem(code)
            }
            Outcome::StreamError { code, .. } if format == "json" => self.is_problem(code),
            Outcome::StreamError { text, code } => {
                let summary = self.parse(format)?;
                // The AI SDK's error chunk has no code.
                let code = if format == "ui-message" { "error" } else { code };
                if summary.error.as_deref() != Some(code) {
                    return Err(format!("the error is {:?}", summary.error));
                }
                expect_eq("the text", &*summary.text, text)
            }
            Outcome::Complete { text, failed_calls } => {
                let summary = self.parse(format)?;
                if let Some(error) = summary.error {
                    return Err(format!("there is an error: {error}"));
                }
                expect_eq("the text", &*summary.text, text)?;
                match topology {
                    Topology::App => {
                        expect_eq("the number of failed calls", summary.failed_calls, failed_calls)
                    }
                    // Without a tool server, every call fails.
                    _ => Ok(()),
                }
            }
        }
    }

    fn is_problem(&self, code: &str) -> Result<(), String> {
        let problem: Value = serde_json::from_str(&self.body).map_err(|error| error.to_string())?;
        let status = Code::from_wire(code).expect("a code of ours").status().as_u16();
        expect_eq("the content type", &*self.content_type, "application/problem+json")?;
        expect_eq("the code", problem["code"].as_str(), Some(code))?;
        expect_eq("the status", self.status, status)?;
        expect_eq("the problem's status", problem["status"].as_u64(), Some(status.into()))?;
        if code == "RATE_LIMITED" && self.retry_after.is_none() {
            return Err("Retry-After is missing".into());
        }
        Ok(())
    }

    /// Parses a whole response and checks it against the grammar of its framing.
    fn parse(&self, format: &str) -> Result<StreamSummary, String> {
        expect_eq("the status", self.status, 200)?;
        match format {
            "ndjson" => read_events(&parse_events(&self.body)),
            "sse" => read_events(&sse_events(&self.body)?),
            "ui-message" => read_ui_message(&self.body),
            _ => read_object(&self.body),
        }
    }
}

fn expect_eq<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, expected: T) -> Result<(), String> {
    if actual == expected { Ok(()) } else { Err(format!("{what} is {actual:?}, not {expected:?}")) }
}

fn read_events(events: &[Value]) -> Result<StreamSummary, String> {
    let kind = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    let is_terminal = |event: &&Value| ["RUN_FINISHED", "RUN_ERROR"].contains(&&*kind(event));
    expect_eq("the first event", events.first().map(kind).as_deref(), Some("RUN_STARTED"))?;
    expect_eq("the number of terminal events", events.iter().filter(is_terminal).count(), 1)?;
    let last = events.last().filter(is_terminal).ok_or("the terminal event is not the last")?;

    let mut decoder = EventDecoder::new();
    let typed: Vec<Event> = events
        .iter()
        .map(|event| decoder.decode(event.to_string().as_bytes()).map_err(|error| format!("{error:?}")))
        .map(|event| event?.ok_or_else(|| "an event says nothing".to_owned()))
        .collect::<Result<_, _>>()?;
    EventGrammar::check(&typed).map_err(|violation| violation.to_string())?;

    let texts = events.iter().filter(|event| kind(event) == "TEXT_MESSAGE_CONTENT");
    Ok(StreamSummary {
        text: texts.filter_map(|event| event["delta"].as_str()).collect(),
        error: (kind(last) == "RUN_ERROR").then(|| last["code"].as_str().unwrap_or_default().to_owned()),
        failed_calls: events.iter().filter(|event| event["metadata"]["isError"] == true).count(),
    })
}

/// Parses the events of an SSE body and checks that their ids count from 0.
fn sse_events(body: &str) -> Result<Vec<Value>, String> {
    let frames: Vec<_> = body.split_terminator("\n\n").collect();
    let read = |(number, frame): (usize, &&str)| {
        let mut lines = frame.lines();
        expect_eq("an id", lines.next(), Some(&*format!("id: {number}")))?;
        let data = lines.next().and_then(|line| line.strip_prefix("data: ")).ok_or("a frame has no data")?;
        serde_json::from_str(data).map_err(|error| error.to_string())
    };
    frames.iter().enumerate().map(read).collect()
}

fn read_ui_message(body: &str) -> Result<StreamSummary, String> {
    let frames: Vec<_> = body
        .split_terminator("\n\n")
        .map(|frame| frame.strip_prefix("data: ").ok_or(format!("{frame:?} is no data")))
        .collect::<Result<_, _>>()?;
    let (done, frames) = frames.split_last().ok_or("it is empty")?;
    expect_eq("the last frame", *done, "[DONE]")?;
    let chunks: Vec<Value> =
        frames.iter().map(|frame| serde_json::from_str(frame).expect("each chunk is JSON")).collect();
    let of = |kind: &str| chunks.iter().filter(|chunk| chunk["type"] == kind).collect::<Vec<_>>();
    expect_eq("the number of starts", of("start").len(), 1)?;
    expect_eq("the number of ends", of("finish").len(), 1)?;
    expect_eq("the last chunk", chunks.last().and_then(|chunk| chunk["type"].as_str()), Some("finish"))?;
    let errors = of("error").len();
    let reason = of("finish")[0]["finishReason"].as_str().unwrap_or_default();
    expect_eq("the number of errors", errors, usize::from(reason == "error"))?;
    Ok(StreamSummary {
        text: of("text-delta").iter().filter_map(|chunk| chunk["delta"].as_str()).collect(),
        error: (errors > 0).then(|| "error".to_owned()),
        failed_calls: of("tool-output-error").len(),
    })
}

fn read_object(body: &str) -> Result<StreamSummary, String> {
    let object: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let calls = object["toolCalls"].as_array().ok_or("there are no toolCalls")?;
    Ok(StreamSummary {
        text: object["output"].as_str().ok_or("there is no output")?.to_owned(),
        error: None,
        failed_calls: calls.iter().filter(|call| call["isError"] == true).count(),
    })
}
