//! A fake model vendor for the client tests, controlled over HTTP (specified in `tests/clients/setting.js`), with a
//! model `held` that withholds the rest of its answer until it is released.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::Url;

use super::vendor::{Step, delta, event, json_response, last_chunk, read_request, stream_head, tool_calls};

/// Interval between the deltas of the model `slow`.
const TICK_INTERVAL: Duration = Duration::from_millis(20);

/// The vendor; stops when dropped.
pub struct ControlledVendor {
    pub address: SocketAddr,
    gate: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

/// Requests to the model `slow`: the body, and true while the client is connected.
type SlowRequests = Arc<Mutex<Vec<(String, bool)>>>;

impl ControlledVendor {
    /// Starts a vendor on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let (gate, opened) = watch::channel(false);
        let slow = SlowRequests::default();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // With Nagle's algorithm, each event waits until the client has acknowledged the one before, up to 40 ms.
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(stream, slow.clone(), opened.clone()));
            }
        });
        Self { address, gate, task }
    }

    /// Returns the base address for an agent's settings.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the address for queries about the state of a `slow` response.
    pub fn control_url(&self) -> String {
        format!("http://{}/control", self.address)
    }

    /// Lets the model `held` send the rest of its answer.
    pub fn release(&self) {
        self.gate.send_replace(true);
    }
}

impl Drop for ControlledVendor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, slow: SlowRequests, mut opened: watch::Receiver<bool>) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        if request.head.starts_with("GET ") {
            if write_steps(&mut stream, slow_state_response(&request.head, &slow)).await.is_none() {
                return;
            }
            continue;
        }
        let body = request.json();
        let written = match body["model"].as_str() {
            Some("slow") => return stream_slow(&mut stream, &body, &slow).await,
            Some("held") => respond_held(&mut stream, &mut opened).await,
            Some("error") => {
                // The connection is closed at the end of the stream.
                write_steps(&mut stream, error_response()).await;
                return;
            }
            Some("tools") if !has_tool_result(&body) => write_steps(&mut stream, tool_call_response()).await,
            Some("tools") => write_steps(&mut stream, text_response(&["I have", " looked."])).await,
            Some("paint") if !has_tool_result(&body) => {
                write_steps(&mut stream, tool_calls(&[("call_1", "paint", r#"{"color":"red"}"#)])).await
            }
            Some("paint") => write_steps(&mut stream, text_response(&["It is", " red."])).await,
            Some("order") if !has_tool_result(&body) => {
                let calls = [("call_1", "createTodo", r#"{"title":"Milk"}"#)];
                write_steps(&mut stream, tool_calls(&calls)).await
            }
            Some("order") => write_steps(&mut stream, text_response(&["It is", " ordered."])).await,
            _ => write_steps(&mut stream, text_response(&["Hello", " from", " the ", "model."])).await,
        };
        if written.is_none() {
            return;
        }
    }
}

async fn write_steps(stream: &mut TcpStream, steps: Vec<Step>) -> Option<()> {
    for step in steps {
        let Step::Send(bytes) = step else { panic!("this vendor only sends") };
        stream.write_all(&bytes).await.ok()?;
    }
    Some(())
}

/// Returns the state of the latest `slow` response whose request contains the mark.
fn slow_state_response(head: &str, slow: &SlowRequests) -> Vec<Step> {
    let target = head.split(' ').nth(1).expect("a request line has a target");
    let url = Url::parse("http://vendor").and_then(|base| base.join(target)).expect("a target");
    let mark = url.query_pairs().find(|(name, _)| name == "mark").expect("a mark").1.into_owned();
    let slow = slow.lock().expect("unpoisoned");
    let state = match slow.iter().rev().find(|(request, _)| request.contains(&mark)) {
        None => "none",
        Some((_, true)) => "open",
        Some((_, false)) => "dropped",
    };
    json_response("200 OK", "", &json!({ "state": state }).to_string())
}

async fn stream_slow(stream: &mut TcpStream, body: &Value, slow: &SlowRequests) {
    let index = {
        let mut slow = slow.lock().expect("unpoisoned");
        slow.push((body.to_string(), true));
        slow.len() - 1
    };
    let mut has_left = write_steps(stream, vec![stream_head()]).await.is_none();
    let mut byte = [0];
    while !has_left {
        has_left = write_steps(stream, vec![delta(json!({"content": "tick "}))]).await.is_none()
            || tokio::time::timeout(TICK_INTERVAL, stream.read(&mut byte)).await.is_ok();
    }
    slow.lock().expect("unpoisoned")[index].1 = false;
}

async fn respond_held(stream: &mut TcpStream, opened: &mut watch::Receiver<bool>) -> Option<()> {
    write_steps(stream, vec![stream_head(), delta(json!({"content": "first"}))]).await?;
    opened.wait_for(|opened| *opened).await.ok()?;
    let last_pieces = [delta(json!({"content": " last"}))].into_iter().chain(finish());
    write_steps(stream, last_pieces.collect()).await
}

fn text_response(texts: &[&str]) -> Vec<Step> {
    let deltas = texts.iter().map(|text| delta(json!({"content": text})));
    [stream_head()].into_iter().chain(deltas).chain(finish()).collect()
}

fn finish() -> Vec<Step> {
    vec![
        event(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})),
        event(json!({"choices": [],
            "usage": {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}})),
        event("[DONE]"),
        last_chunk(),
    ]
}

fn tool_call_response() -> Vec<Step> {
    let mut steps = tool_calls(&[("call_1", "readTodos", "{}")]);
    steps.insert(1, delta(json!({"content": "Let me look."})));
    steps
}

fn error_response() -> Vec<Step> {
    vec![
        stream_head(),
        delta(json!({"content": "Half an"})),
        event(json!({"error": {"message": "vendor-detail"}})),
        last_chunk(),
    ]
}

fn has_tool_result(body: &Value) -> bool {
    body["messages"]
        .as_array()
        .is_some_and(|messages| messages.iter().any(|message| message["role"] == "tool"))
}
