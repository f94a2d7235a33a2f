//! A fake model vendor that speaks Chat Completions, Ollama's API or n8n's webhooks, and misbehaves on demand.
//!
//! Its response is selected by the `model` in the request's body, by the `agentId` of a workflow request, or by the
//! path if the body names neither, so that one vendor serves a whole test. It is plain TCP, because HTTP libraries do
//! not allow most of the faults.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::responses_vendor;
use super::script_server::ScriptServer;
pub use super::script_server::{ConnectionState, ReceivedRequest, Step, perform_step, read_request};

pub mod n8n;
pub mod ollama;

/// Time-outs of the service that calls the vendor, for the faults that a time-out must end. On a loaded machine, they suffice
/// for a response that the vendor sends at once.
pub const SHORT_TIMEOUTS: [(&str, &str); 2] =
    [("RESPONSE_HEADER_TIMEOUT_MS", "3000"), ("STREAM_IDLE_MS", "3300")];
/// Time-outs for all other faults, longer than [`CASE_TIMEOUT`]: a service that waits for such a response hangs.
pub const LONG_TIMEOUTS: [(&str, &str); 2] =
    [("RESPONSE_HEADER_TIMEOUT_MS", "600000"), ("STREAM_IDLE_MS", "600000")];
/// Time limit for the run of one fault, after which it counts as hanging. It is also less than the default of
/// `FIRST_CONTENT_MS`.
pub const CASE_TIMEOUT: Duration = Duration::from_secs(40);

/// Path of the workflow webhook.
const WEBHOOK_PATH: &str = "/webhook/chat";

#[derive(Default)]
struct VendorState {
    received: Vec<ReceivedRequest>,
    /// Number of requests for each model.
    counts: HashMap<String, usize>,
    scripts: HashMap<String, Vec<Vec<Step>>>,
    /// Response to the body of a request without a script.
    fallback: Option<Fallback>,
}

/// Computes the response to a request's body.
type Fallback = Box<dyn Fn(&Value) -> Vec<Step> + Send>;

/// The vendor; stops when dropped.
pub struct Vendor {
    pub address: SocketAddr,
    state: Arc<Mutex<VendorState>>,
    server: ScriptServer,
}

impl Vendor {
    /// Starts a vendor on a free port.
    pub async fn start() -> Self {
        let state = Arc::<Mutex<VendorState>>::default();
        let server = ScriptServer::start({
            let state = state.clone();
            move |request: ReceivedRequest| state.lock().expect("unpoisoned").select_response(request)
        })
        .await;
        Self { address: server.address, state, server }
    }

    /// Returns the base address for an agent or a request, as a Chat Completions server.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the base address of this vendor as an Ollama server.
    pub fn ollama_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address of this vendor as a workflow's webhook.
    pub fn webhook_url(&self) -> String {
        format!("http://{}{WEBHOOK_PATH}", self.address)
    }

    /// Sets the responses for `model`, which may also be an agent id or a path: the first response for the first
    /// request, and so on; the last one is repeated.
    pub fn on(&self, model: &str, answers: impl IntoIterator<Item = Vec<Step>>) -> &Self {
        let answers = answers.into_iter().collect();
        self.state.lock().expect("unpoisoned").scripts.insert(model.to_owned(), answers);
        self
    }

    /// Sets the response to all requests that [`on`](Self::on) does not cover.
    pub fn on_all(&self, answer: Vec<Step>) {
        self.on_all_with(move |_| answer.clone());
    }

    /// Sets a function that computes the response to all requests that [`on`](Self::on) does not cover.
    pub fn on_all_with(&self, respond: impl Fn(&Value) -> Vec<Step> + Send + 'static) {
        self.state.lock().expect("unpoisoned").fallback = Some(Box::new(respond));
    }

    /// Returns the requests received.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.state.lock().expect("unpoisoned").received.clone()
    }

    /// Returns the bodies of the requests received for `model`.
    pub fn received_bodies(&self, model: &str) -> Vec<Value> {
        let state = self.state.lock().expect("unpoisoned");
        let received = state.received.iter().filter(|received| script_key(received) == model);
        received.map(ReceivedRequest::json).collect()
    }

    /// Returns the number of requests received for `model`.
    pub fn requests_for(&self, model: &str) -> usize {
        self.state.lock().expect("unpoisoned").counts.get(model).copied().unwrap_or_default()
    }

    /// Waits until `count` requests for `model` have been received.
    pub async fn wait_for_requests(&self, model: &str, count: usize) {
        self.server.wait_for_requests(|| self.requests_for(model) >= count).await;
    }

    /// Returns the number of connections accepted.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Returns the number of clients that disconnected during a response.
    pub fn disconnect_count(&self) -> usize {
        *self.server.disconnects().borrow()
    }

    /// Returns a counter of the requests received, which outlives borrows of the vendor.
    pub fn request_counter(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let request_count = self.server.request_count();
        move || *request_count.borrow()
    }

    /// Returns a counter of the clients that disconnected during a response.
    pub fn disconnect_counter(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let disconnects = self.server.disconnects();
        move || *disconnects.borrow()
    }

    /// Waits until `count` clients have disconnected during a response.
    pub async fn wait_for_disconnects(&self, count: usize) {
        self.server.wait_for_disconnects(count).await;
    }
}

/// Returns the key that selects the response: the model, the workflow's agent, or the path if the body names
/// neither.
fn script_key(request: &ReceivedRequest) -> String {
    if request.body.is_empty() {
        return request.path().to_owned();
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let subject = body["model"].as_str().or(body["agentId"].as_str());
    subject.unwrap_or(request.path()).to_owned()
}

impl VendorState {
    /// Records a request and returns its response.
    fn select_response(&mut self, request: ReceivedRequest) -> Vec<Step> {
        let model = script_key(&request);
        let default = match request.path() {
            WEBHOOK_PATH => n8n::answer,
            path if path.starts_with("/api/") => ollama::answer,
            path if path.ends_with("/responses") => responses_vendor::answer,
            _ => answer,
        };
        let body = serde_json::from_slice(&request.body).unwrap_or_default();
        self.received.push(request);
        *self.counts.entry(model.clone()).or_default() += 1;
        match self.scripts.get_mut(&model) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers[0].clone(),
            None => match &self.fallback {
                Some(respond) => respond(&body),
                None => default(&["hello ", "world"]),
            },
        }
    }
}

/// Returns the head of a streamed response.
pub fn stream_head() -> Step {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    Step::Send(head.into())
}

/// Returns one HTTP chunk.
pub fn chunk(bytes: impl AsRef<[u8]>) -> Step {
    let bytes = bytes.as_ref();
    Step::Send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
}

/// Returns the last HTTP chunk.
pub fn last_chunk() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// Returns one server-sent event.
pub fn event(data: impl std::fmt::Display) -> Step {
    chunk(format!("data: {data}\n\n"))
}

/// Returns a delta of the only choice.
pub fn delta(delta: Value) -> Step {
    event(json!({"id": "c", "object": "chat.completion.chunk", "model": "fake-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

/// Returns the finish reason, the usage and `[DONE]`.
pub fn finish(reason: &str) -> Vec<Step> {
    vec![
        event(json!({"model": "fake-1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})),
        event(json!({"model": "fake-1", "choices": [],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}})),
        event("[DONE]"),
        last_chunk(),
    ]
}

/// Returns a complete text response.
pub fn answer(texts: &[&str]) -> Vec<Step> {
    let deltas = texts.iter().map(|text| delta(json!({"content": text})));
    std::iter::once(stream_head()).chain(deltas).chain(finish("stop")).collect()
}

/// Returns a complete response that calls tools, with each call's arguments in two fragments.
pub fn tool_calls(calls: &[(&str, &str, &str)]) -> Vec<Step> {
    let mut steps = vec![stream_head()];
    for (index, (id, name, arguments)) in calls.iter().enumerate() {
        let (head, tail) = arguments.split_at(arguments.len() / 2);
        steps.push(delta(json!({"tool_calls": [{"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": head}}]})));
        steps.push(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": tail}}]})));
    }
    steps.extend(finish("tool_calls"));
    steps
}

/// Returns the response of an agent server whose run has no content.
pub fn empty_run() -> Vec<Step> {
    let event = |kind: &str| format!("{}\n", json!({"type": kind, "threadId": "t", "runId": "r"}));
    json_response("200 OK", "", &(event("RUN_STARTED") + &event("RUN_FINISHED")))
}

/// Returns a response that is not a stream.
pub fn json_response(status: &str, headers: &str, body: &str) -> Vec<Step> {
    vec![Step::Send(
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
    )]
}
