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
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{TEST_TIMEOUT, responses_vendor};

pub mod n8n;
pub mod ollama;

/// Time-outs of the service that calls the vendor, for the faults that a time-out must end. On a loaded machine, they suffice
/// for a response that the vendor sends at once.
pub const SHORT_TIMEOUTS: [(&str, &str); 2] =
    [("RESPONSE_HEADER_TIMEOUT_MS", "3000"), ("STREAM_IDLE_MS", "3300")];
/// Time-outs for all other faults, longer than [`CASE_TIMEOUT`]: a service that waits for one of them hangs.
pub const LONG_TIMEOUTS: [(&str, &str); 2] =
    [("RESPONSE_HEADER_TIMEOUT_MS", "600000"), ("STREAM_IDLE_MS", "600000")];
/// Time limit for the run of one fault, after which it counts as hanging. It is also less than the default of
/// `FIRST_CONTENT_MS`.
pub const CASE_TIMEOUT: Duration = Duration::from_secs(40);

/// Path of the workflow webhook.
const WEBHOOK_PATH: &str = "/webhook/chat";

/// One action of the vendor on a connection.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sends bytes unchanged.
    Send(Vec<u8>),
    /// Sends the same bytes repeatedly, with a pause after each, until the client disconnects.
    Drip(Vec<u8>, Duration),
    /// Waits before the next step.
    Pause(Duration),
    /// Sends nothing until the client disconnects.
    Stall,
    /// Sends nothing until the gate opens.
    Until(watch::Receiver<bool>),
    /// Resets the connection.
    Reset,
    /// Closes the connection in order.
    Close,
}

/// A request as received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Request line and headers, unparsed.
    pub head: String,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// Returns the body, parsed as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the request's body is JSON")
    }

    /// Returns the request target.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the key that selects the response: the model, the workflow's agent, or the path if the body names
    /// neither.
    fn script_key(&self) -> String {
        if self.body.is_empty() {
            return self.path().to_owned();
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let subject = body["model"].as_str().or(body["agentId"].as_str());
        subject.unwrap_or(self.path()).to_owned()
    }
}

#[derive(Default)]
struct VendorState {
    received: Vec<ReceivedRequest>,
    /// Number of requests for each model.
    counts: HashMap<String, usize>,
    scripts: HashMap<String, Vec<Vec<Step>>>,
    /// Response to the body of a request without a script.
    fallback: Option<Fallback>,
    connections: usize,
}

/// Computes the response to a request's body.
type Fallback = Box<dyn Fn(&Value) -> Vec<Step> + Send>;

/// The vendor; stops when dropped.
pub struct Vendor {
    pub address: SocketAddr,
    state: Arc<Mutex<VendorState>>,
    request_count: watch::Receiver<usize>,
    disconnects: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

impl Vendor {
    /// Starts a vendor on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let state = Arc::new(Mutex::new(VendorState::default()));
        let (request_counter, request_count) = watch::channel(0);
        let (disconnect_counter, disconnects) = watch::channel(0);
        let task = tokio::spawn({
            let state = state.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    // Without Nagle's algorithm, bytes written before a reset are sent rather than discarded.
                    let _ = stream.set_nodelay(true);
                    state.lock().expect("unpoisoned").connections += 1;
                    tokio::spawn(serve(
                        stream,
                        state.clone(),
                        request_counter.clone(),
                        disconnect_counter.clone(),
                    ));
                }
            }
        });
        Self { address, state, request_count, disconnects, task }
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
        let received = state.received.iter().filter(|received| received.script_key() == model);
        received.map(ReceivedRequest::json).collect()
    }

    /// Returns the number of requests received for `model`.
    pub fn requests_for(&self, model: &str) -> usize {
        self.state.lock().expect("unpoisoned").counts.get(model).copied().unwrap_or_default()
    }

    /// Waits until `count` requests for `model` have been received.
    pub async fn wait_for_requests(&self, model: &str, count: usize) {
        let mut request_count = self.request_count.clone();
        let waiting = request_count.wait_for(|_| self.requests_for(model) >= count);
        let waited = tokio::time::timeout(TEST_TIMEOUT, waiting).await;
        waited.expect("the requests arrive in time").expect("the vendor runs");
    }

    /// Returns the number of connections accepted.
    pub fn connections(&self) -> usize {
        self.state.lock().expect("unpoisoned").connections
    }

    /// Returns the number of clients that disconnected during a response.
    pub fn disconnect_count(&self) -> usize {
        *self.disconnects.borrow()
    }

    /// Returns a counter of the requests received, which outlives borrows of the vendor.
    pub fn request_counter(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let request_count = self.request_count.clone();
        move || *request_count.borrow()
    }

    /// Returns a counter of the clients that disconnected during a response.
    pub fn disconnect_counter(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let disconnects = self.disconnects.clone();
        move || *disconnects.borrow()
    }

    /// Waits until `count` clients have disconnected during a response.
    pub async fn wait_for_disconnects(&self, count: usize) {
        let mut disconnects = self.disconnects.clone();
        let waited =
            tokio::time::timeout(TEST_TIMEOUT, disconnects.wait_for(|disconnects| *disconnects >= count))
                .await;
        waited.expect("the clients leave in time").expect("the vendor runs");
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    state: Arc<Mutex<VendorState>>,
    request_counter: watch::Sender<usize>,
    disconnect_counter: watch::Sender<usize>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let model = request.script_key();
        let default = match request.path() {
            WEBHOOK_PATH => n8n::answer,
            path if path.starts_with("/api/") => ollama::answer,
            path if path.ends_with("/responses") => responses_vendor::answer,
            _ => answer,
        };
        let steps = {
            let mut state = state.lock().expect("unpoisoned");
            let body = serde_json::from_slice(&request.body).unwrap_or_default();
            state.received.push(request);
            *state.counts.entry(model.clone()).or_default() += 1;
            match state.scripts.get_mut(&model) {
                Some(answers) if answers.len() > 1 => answers.remove(0),
                Some(answers) => answers[0].clone(),
                None => match &state.fallback {
                    Some(respond) => respond(&body),
                    None => default(&["hello ", "world"]),
                },
            }
        };
        request_counter.send_modify(|request_count| *request_count += 1);
        for step in steps {
            match perform_step(step, &mut stream).await {
                ConnectionState::Open => {}
                ConnectionState::ClosedByVendor => return,
                ConnectionState::ClosedByClient => {
                    disconnect_counter.send_modify(|disconnects| *disconnects += 1);
                    return;
                }
            }
        }
    }
}

/// State of the connection after a step.
pub enum ConnectionState {
    /// The connection is open; the next step may run.
    Open,
    /// The vendor has closed the connection.
    ClosedByVendor,
    /// The client has closed the connection.
    ClosedByClient,
}

/// Performs one step.
pub async fn perform_step(step: Step, stream: &mut TcpStream) -> ConnectionState {
    match step {
        Step::Send(bytes) => match stream.write_all(&bytes).await {
            Ok(()) => ConnectionState::Open,
            Err(_) => ConnectionState::ClosedByClient,
        },
        Step::Stall => {
            // The read ends when the client disconnects.
            let mut byte = [0];
            let _ = stream.read(&mut byte).await;
            ConnectionState::ClosedByClient
        }
        Step::Until(mut gate) => match gate.wait_for(|open| *open).await {
            Ok(_) => ConnectionState::Open,
            Err(_) => ConnectionState::ClosedByVendor,
        },
        Step::Drip(bytes, pause) => {
            let mut byte = [0];
            loop {
                if stream.write_all(&bytes).await.is_err() {
                    return ConnectionState::ClosedByClient;
                }
                if tokio::time::timeout(pause, stream.read(&mut byte)).await.is_ok() {
                    return ConnectionState::ClosedByClient;
                }
            }
        }
        Step::Pause(pause) => {
            let mut byte = [0];
            match tokio::time::timeout(pause, stream.read(&mut byte)).await {
                Ok(_) => ConnectionState::ClosedByClient,
                Err(_) => ConnectionState::Open,
            }
        }
        Step::Reset => {
            let _ = stream.set_zero_linger();
            ConnectionState::ClosedByVendor
        }
        Step::Close => {
            let _ = stream.shutdown().await;
            ConnectionState::ClosedByVendor
        }
    }
}

/// Reads the next request of a connection; `buffer` holds bytes already read. Returns `None` at the end of the
/// connection.
pub async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<ReceivedRequest> {
    let head_end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned))
        .and_then(|value| value.trim().parse::<usize>().ok())
        .unwrap_or(0);
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let next_request = buffer.split_off(head_end + length);
    let body = buffer.split_off(head_end);
    *buffer = next_request;
    Some(ReceivedRequest { head, body })
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
