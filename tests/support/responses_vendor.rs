//! A fake vendor of the Responses API that checks every request strictly, and misbehaves on demand.
//!
//! It keeps what it has answered to each model, and expects it back: a later request of the same run must repeat the
//! earlier one byte for byte, then the items of the answer in their order, then the outputs of its calls. Everything else
//! is a complaint. A model's first request, and one that does not repeat the earlier one, begin a new conversation.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use agent_platform::json::find_duplicate_key;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::script_server::{ReceivedRequest, ScriptServer, Step};
use super::vendor::{event, last_chunk, stream_head};

/// Member of a request that is accepted from callers with an API key alone.
const OUTPUT_LIMIT: &str = "max_output_tokens";

/// Members of a request, in their order.
const MEMBERS: [&str; 12] = [
    "model",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "include",
    "store",
    "stream",
    OUTPUT_LIMIT,
    "prompt_cache_key",
    "input",
];

/// An item of an answer.
#[derive(Debug, Clone)]
pub enum OutputItem {
    /// Reasoning with a summary, and with this encrypted content.
    Reasoning { summary: &'static str, sealed: String },
    /// A message, in these deltas.
    Text(Vec<String>),
    /// A call, its arguments in two deltas.
    Call { id: String, name: &'static str, arguments: String },
    /// An item of another type.
    Other(Value),
}

impl OutputItem {
    /// Returns a message, in these deltas.
    pub fn text(deltas: &[&str]) -> Self {
        Self::Text(deltas.iter().map(|&delta| delta.to_owned()).collect())
    }

    /// Returns a call.
    pub fn call(id: impl Into<String>, name: &'static str, arguments: impl Into<String>) -> Self {
        Self::Call { id: id.into(), name, arguments: arguments.into() }
    }

    /// Returns reasoning; `sealed` may be any text.
    pub fn reasoning(summary: &'static str, sealed: impl Into<String>) -> Self {
        Self::Reasoning { summary, sealed: sealed.into() }
    }

    /// Returns the item as JSON text, as the vendor sends it when it is done. The form of the reasoning is one that a
    /// parser would not reproduce: numbers with trailing zeros, escapes that are not needed, members in no order.
    fn json(&self, index: usize) -> String {
        match self {
            Self::Reasoning { summary, sealed } => {
                let (summary, sealed) = (json!(summary), json!(sealed));
                format!(
                    r#"{{"summary":[{{"type":"summary_text","text":{summary}}}],"status":"completed","x":1.50,"type":"reasoning","id":"rs_{index}","note":"a\/b\u00e9","encrypted_content":{sealed}}}"#
                )
            }
            Self::Text(deltas) => json!({"id": format!("msg_{index}"), "type": "message", "status": "completed",
                "role": "assistant", "content": [{"type": "output_text", "text": deltas.concat(), "annotations": []}]})
            .to_string(),
            Self::Call { id, name, arguments } => json!({"id": format!("fc_{index}"), "type": "function_call",
                "status": "completed", "arguments": arguments, "call_id": id, "name": name})
            .to_string(),
            Self::Other(item) => item.to_string(),
        }
    }

    /// Returns the item as the next request must contain it.
    fn expected(&self, index: usize) -> String {
        match self {
            Self::Reasoning { .. } => self
                .json(index)
                .replace(r#""status":"completed","#, "")
                .replace(&format!(r#""id":"rs_{index}","#), ""),
            Self::Text(deltas) => json!({"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": deltas.concat()}]})
            .to_string(),
            Self::Call { id, name, arguments } => {
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
                    .to_string()
            }
            Self::Other(item) => {
                let mut item = item.clone();
                item.as_object_mut()
                    .expect("an item is an object")
                    .retain(|name, _| name != "id" && name != "status");
                item.to_string()
            }
        }
    }
}

/// Returns the events of a complete answer, as the vendor sends them.
pub fn events(items: &[OutputItem]) -> Vec<String> {
    let mut events = vec![created()];
    for (index, item) in items.iter().enumerate() {
        events.extend(item_events(index, item));
    }
    events.push(completed());
    events
}

/// Returns a complete text response.
pub fn answer(texts: &[&str]) -> Vec<Step> {
    Reply::answer(vec![OutputItem::text(texts)]).steps
}

/// Returns the events of a complete answer in which the deltas of all calls alternate.
pub fn interleaved_events(items: &[OutputItem]) -> Vec<String> {
    let mut of_items: Vec<_> =
        items.iter().enumerate().map(|(index, item)| item_events(index, item)).collect();
    let is_call = |item: &OutputItem| matches!(item, OutputItem::Call { .. });
    let mut events = vec![created()];
    for (_, events_of_item) in items.iter().zip(&mut of_items).filter(|(item, _)| !is_call(item)) {
        events.append(events_of_item);
    }
    let mut calls: Vec<_> = of_items.into_iter().map(Vec::into_iter).collect();
    loop {
        let event_count = events.len();
        events.extend(calls.iter_mut().filter_map(Iterator::next));
        if events.len() == event_count {
            break;
        }
    }
    events.push(completed());
    events
}

/// Returns the first event of an answer.
pub fn created() -> String {
    json!({"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "object": "response",
        "status": "in_progress", "error": null, "incomplete_details": null, "output": [], "usage": null}})
    .to_string()
}

/// Returns the last event of a complete answer.
pub fn completed() -> String {
    json!({"type": "response.completed", "response": {"id": "resp_1", "object": "response", "status": "completed",
        "error": null, "incomplete_details": null, "model": "fake-1", "output": [], "usage": {
            "input_tokens": 11, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 18}}})
    .to_string()
}

/// Returns the events of one item.
pub fn item_events(index: usize, item: &OutputItem) -> Vec<String> {
    let added =
        |item: Value| json!({"type": "response.output_item.added", "output_index": index, "item": item});
    let mut events: Vec<Value> = Vec::new();
    match item {
        OutputItem::Reasoning { summary, .. } => {
            let id = format!("rs_{index}");
            events.push(added(json!({"id": id, "type": "reasoning", "summary": []})));
            for (kind, name, value) in [
                ("reasoning_summary_part.added", "part", json!({"type": "summary_text", "text": ""})),
                ("reasoning_summary_text.delta", "delta", json!(summary)),
                ("reasoning_summary_text.done", "text", json!(summary)),
            ] {
                events.push(json!({"type": format!("response.{kind}"), "item_id": id, "output_index": index,
                    "summary_index": 0, name: value}));
            }
        }
        OutputItem::Text(deltas) => {
            let id = format!("msg_{index}");
            events.push(added(json!({"id": id, "type": "message", "status": "in_progress", "content": [], "role": "assistant"})));
            events.extend(deltas.iter().map(|delta| text_delta(index, delta)));
            events.push(json!({"type": "response.output_text.done", "item_id": id, "output_index": index,
                "content_index": 0, "text": deltas.concat()}));
        }
        OutputItem::Call { id, name, arguments } => {
            let (head, tail) = arguments.split_at(arguments.floor_char_boundary(arguments.len() / 2));
            events.push(added(
                json!({"id": format!("fc_{index}"), "type": "function_call", "status": "in_progress",
                "arguments": "", "call_id": id, "name": name}),
            ));
            events.extend([head, tail].map(|delta| arguments_delta(index, delta)));
            events.push(
                json!({"type": "response.function_call_arguments.done", "item_id": format!("fc_{index}"),
                "output_index": index, "arguments": arguments}),
            );
        }
        OutputItem::Other(item) => events.push(added(item.clone())),
    }
    let item = item.json(index);
    let done = format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{item}}}"#);
    events.iter().map(Value::to_string).chain([done]).collect()
}

/// Returns a delta of the message at this place.
pub fn text_delta(index: usize, delta: &str) -> Value {
    json!({"type": "response.output_text.delta", "item_id": format!("msg_{index}"), "output_index": index,
        "content_index": 0, "delta": delta, "logprobs": []})
}

/// Returns a delta of the arguments of the call at this place.
pub fn arguments_delta(index: usize, delta: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "item_id": format!("fc_{index}"),
        "output_index": index, "delta": delta})
}

/// One response of the vendor, and the items of which it must see the form again.
#[derive(Debug, Clone)]
pub struct Reply {
    steps: Vec<Step>,
    items: Vec<OutputItem>,
}

impl Reply {
    /// Returns a complete answer.
    pub fn answer(items: Vec<OutputItem>) -> Self {
        Self::events(&events(&items), items)
    }

    /// Returns a complete answer in which the deltas of all calls alternate.
    pub fn interleaved(items: Vec<OutputItem>) -> Self {
        Self::events(&interleaved_events(&items), items)
    }

    /// Returns an answer of these events, of which the caller sends `items` back.
    pub fn events(events: &[String], items: Vec<OutputItem>) -> Self {
        let events = events.iter().map(event);
        Self { steps: [stream_head()].into_iter().chain(events).chain([last_chunk()]).collect(), items }
    }

    /// Returns a response of these steps. The run is not expected to continue.
    pub fn steps(steps: impl Into<Vec<Step>>) -> Self {
        Self { steps: steps.into(), items: Vec::new() }
    }
}

/// Requests and replies of one model.
#[derive(Default)]
struct Conversation {
    replies: Vec<Reply>,
    /// The last request, without the end of its input, and the number of its input's items.
    last_request: (Vec<u8>, usize),
    /// Items of the answer to it; empty if the run ends with it.
    last_items: Vec<OutputItem>,
    /// Identifiers of the run's calls so far.
    call_ids: HashSet<String>,
    /// Types of the other items that the vendor has sent.
    other_types: HashSet<String>,
}

#[derive(Default)]
struct VendorState {
    is_for_subscriptions: bool,
    received: Vec<ReceivedRequest>,
    conversations: BTreeMap<String, Conversation>,
    complaints: Vec<String>,
}

/// The vendor; stops when dropped.
pub struct ResponsesVendor {
    state: Arc<Mutex<VendorState>>,
    server: ScriptServer,
}

impl ResponsesVendor {
    /// Starts a vendor on a free port.
    pub async fn start() -> Self {
        Self::start_with(VendorState::default()).await
    }

    /// Starts a vendor of subscriptions, which accepts no limit on the answer and requires what the runtime adds.
    pub async fn start_for_subscriptions() -> Self {
        Self::start_with(VendorState { is_for_subscriptions: true, ..VendorState::default() }).await
    }

    async fn start_with(state: VendorState) -> Self {
        let state = Arc::new(Mutex::new(state));
        let server = ScriptServer::start({
            let state = state.clone();
            move |request: ReceivedRequest| state.lock().expect("unpoisoned").reply_to(request)
        })
        .await;
        Self { state, server }
    }

    /// Returns the base address for an agent.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.server.address)
    }

    /// Sets the replies for `model`: the first for the first request, and so on; the last one is repeated.
    pub fn on(&self, model: &str, replies: impl IntoIterator<Item = Reply>) {
        let conversation = Conversation { replies: replies.into_iter().collect(), ..Conversation::default() };
        self.state.lock().expect("unpoisoned").conversations.insert(model.to_owned(), conversation);
    }

    /// Returns the bodies of the requests received for `model`.
    pub fn received_bodies(&self, model: &str) -> Vec<Value> {
        let state = self.state.lock().expect("unpoisoned");
        let bodies = state.received.iter().map(ReceivedRequest::json);
        bodies.filter(|body| body["model"] == model).collect()
    }

    /// Returns the heads of the requests received for `model`.
    pub fn received_heads(&self, model: &str) -> Vec<String> {
        let state = self.state.lock().expect("unpoisoned");
        let received = state.received.iter().filter(|request| request.json()["model"] == model);
        received.map(|request| request.head.clone()).collect()
    }

    /// Waits until `count` requests for `model` have been received.
    pub async fn wait_for_requests(&self, model: &str, count: usize) {
        self.server.wait_for_requests(|| self.received_bodies(model).len() >= count).await;
    }

    /// Returns what was wrong with the requests.
    pub fn complaints(&self) -> Vec<String> {
        self.state.lock().expect("unpoisoned").complaints.clone()
    }

    /// Waits until `count` clients have disconnected during a response.
    pub async fn wait_for_disconnects(&self, count: usize) {
        self.server.wait_for_disconnects(count).await;
    }
}

impl VendorState {
    fn reply_to(&mut self, request: ReceivedRequest) -> Vec<Step> {
        let mut check = RequestCheck::default();
        check.head(&request);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if self.is_for_subscriptions {
            check.subscription(&request, &body);
        }
        let model = body["model"].as_str().unwrap_or_default().to_owned();
        let conversation = self.conversations.entry(model.clone()).or_default();
        check.body(&request.body, &body, conversation);
        let complaints = check.complaints.into_iter().map(|complaint| format!("{model}: {complaint:.500}"));
        self.complaints.extend(complaints);
        self.received.push(request);
        let reply = match conversation.replies.len() {
            0 => Reply::answer(vec![OutputItem::text(&["hello ", "world"])]),
            1 => conversation.replies[0].clone(),
            _ => conversation.replies.remove(0),
        };
        for item in &reply.items {
            if let OutputItem::Other(item) = item {
                conversation.other_types.insert(item["type"].as_str().unwrap_or_default().to_owned());
            }
        }
        let continues = reply.items.iter().any(|item| matches!(item, OutputItem::Call { .. }));
        conversation.last_items = if continues { reply.items } else { Vec::new() };
        reply.steps
    }
}

/// Raw items of a request's input.
#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    input: Vec<&'a RawValue>,
}

/// The check of one request.
#[derive(Default)]
struct RequestCheck {
    complaints: Vec<String>,
}

impl RequestCheck {
    fn expect(&mut self, holds: bool, complaint: impl FnOnce() -> String) {
        if !holds {
            self.complaints.push(complaint());
        }
    }

    fn head(&mut self, request: &ReceivedRequest) {
        let head = request.head.to_ascii_lowercase();
        for line in ["content-type: application/json", "accept: text/event-stream"] {
            self.expect(head.lines().any(|found| found == line), || format!("no {line}: {head}"));
        }
        self.expect(head.contains("\r\nauthorization: bearer "), || format!("no key: {head}"));
        self.expect(request.head.starts_with("POST /v1/responses HTTP/1.1\r\n"), || request.head.clone());
    }

    /// Checks what a vendor of subscriptions requires beyond the API.
    fn subscription(&mut self, request: &ReceivedRequest, body: &Value) {
        self.expect(body.get(OUTPUT_LIMIT).is_none(), || format!("{OUTPUT_LIMIT} is not supported"));
        self.expect(body["instructions"].is_string(), || "no instructions".into());
        let key = body["prompt_cache_key"].as_str().unwrap_or_default();
        let is_hash = key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.expect(is_hash, || format!("prompt_cache_key: {key}"));
        for line in [format!("session_id: {key}"), "originator: agentd".into()] {
            self.expect(request.head.lines().any(|found| found == line), || format!("no {line}"));
        }
    }

    fn body(&mut self, bytes: &[u8], body: &Value, conversation: &mut Conversation) {
        let Some(members) = body.as_object() else {
            return self.complaints.push("the body is no object".into());
        };
        if let Some(path) = find_duplicate_key(bytes) {
            self.complaints.push(format!("{path} occurs twice"));
        }
        let positions: Vec<_> =
            members.keys().map(|name| MEMBERS.iter().position(|known| known == name)).collect();
        self.expect(positions.iter().all(Option::is_some), || {
            format!("unknown members: {:?}", members.keys())
        });
        self.expect(positions.is_sorted(), || format!("members in another order: {:?}", members.keys()));
        self.expect(body["store"] == false && body["stream"] == true, || "stored, or not streamed".into());
        self.expect(
            body.get("instructions").is_none_or(|text| text.as_str().is_some_and(|text| !text.is_empty())),
            || format!("instructions: {}", body["instructions"]),
        );
        self.tools(body);
        self.reasoning(body);
        let Ok(RawBody { input }) = serde_json::from_slice(bytes) else {
            return self.complaints.push("input is no list".into());
        };
        for item in &input {
            self.item(&serde_json::from_str(item.get()).expect("it has been parsed"), conversation);
        }
        self.calls(&input);
        self.continuation(bytes, &input, conversation);
    }

    fn tools(&mut self, body: &Value) {
        let Some(tools) = body.get("tools") else {
            for member in ["tool_choice", "parallel_tool_calls"] {
                self.expect(body.get(member).is_none(), || format!("{member} without tools"));
            }
            return;
        };
        let tools = tools.as_array().cloned().unwrap_or_default();
        self.expect(!tools.is_empty(), || "an empty list of tools".into());
        self.expect(body["parallel_tool_calls"] == true, || "no parallel calls".into());
        let choice = &body["tool_choice"];
        let is_named =
            choice["type"] == "function" && tools.iter().any(|tool| tool["name"] == choice["name"]);
        self.expect(is_named || ["auto", "none", "required"].iter().any(|word| choice == word), || {
            format!("tool_choice: {choice}")
        });
        for tool in &tools {
            let names: Vec<_> =
                tool.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let is_function = tool["type"] == "function" && tool["strict"] == false;
            let is_whole =
                tool["description"].is_string() && tool["parameters"].is_object() && is_plain(&tool["name"]);
            self.expect(
                names == ["type", "name", "description", "parameters", "strict"] && is_function && is_whole,
                || format!("tool: {tool}"),
            );
        }
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default());
        self.expect(names.is_sorted(), || "tools in no order".into());
    }

    fn reasoning(&mut self, body: &Value) {
        let reasoning = body.get("reasoning").and_then(Value::as_object);
        let expected = reasoning.map(|_| json!(["reasoning.encrypted_content"]));
        self.expect(body.get("include") == expected.as_ref(), || format!("include: {}", body["include"]));
        for (name, value) in reasoning.into_iter().flatten() {
            let is_known = match name.as_str() {
                "effort" => value.is_string(),
                "summary" => value == "auto",
                _ => false,
            };
            self.expect(is_known, || format!("reasoning: {name} {value}"));
        }
    }

    fn item(&mut self, item: &Value, conversation: &Conversation) {
        let names: Vec<_> = item.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let is_right = match item["type"].as_str() {
            Some("message") => names == ["type", "role", "content"] && is_message(item),
            Some("function_call") => {
                names == ["type", "call_id", "name", "arguments"]
                    && is_plain(&item["call_id"])
                    && is_plain(&item["name"])
                    && item["arguments"].is_string()
            }
            Some("function_call_output") => {
                let is_list = item["output"].as_array().is_some_and(|parts| parts.iter().all(is_input));
                names == ["type", "call_id", "output"]
                    && is_plain(&item["call_id"])
                    && (item["output"].is_string() || is_list)
            }
            Some("reasoning") => !names.contains(&"id") && !names.contains(&"status"),
            Some(other) => !names.contains(&"id") && conversation.other_types.contains(other),
            None => false,
        };
        self.expect(is_right, || format!("item: {item}"));
    }

    /// Checks that the outputs follow the calls of their answer, in the calls' order.
    fn calls(&mut self, input: &[&RawValue]) {
        let mut open: Vec<String> = Vec::new();
        let mut call_ids = HashSet::new();
        for item in input {
            let item: Value = serde_json::from_str(item.get()).expect("it has been parsed");
            let id = item["call_id"].as_str().unwrap_or_default().to_owned();
            match item["type"].as_str() {
                Some("function_call") => {
                    self.expect(call_ids.insert(id.clone()), || format!("the call {id} occurs twice"));
                    open.push(id);
                }
                Some("function_call_output") => {
                    let expected = if open.is_empty() { None } else { Some(open.remove(0)) };
                    self.expect(expected.as_ref() == Some(&id), || {
                        format!("output of {id} instead of {expected:?}")
                    });
                }
                Some("message") if item["role"] != "assistant" => {
                    self.expect(open.is_empty(), || format!("{open:?} have no output"));
                }
                _ => {}
            }
        }
        self.expect(open.is_empty(), || format!("{open:?} have no output"));
    }

    /// Checks that the request repeats the earlier request and its answer, if it belongs to the same run.
    fn continuation(&mut self, bytes: &[u8], input: &[&RawValue], conversation: &mut Conversation) {
        let without_end = bytes.strip_suffix(b"]}").unwrap_or(bytes).to_vec();
        let (last, last_count) =
            std::mem::replace(&mut conversation.last_request, (without_end, input.len()));
        let items = std::mem::take(&mut conversation.last_items);
        if items.is_empty() {
            conversation.call_ids.clear();
            return;
        }
        self.expect(bytes.starts_with(&last), || "the request does not begin with the earlier one".into());
        let added = input.get(last_count..).unwrap_or_default();
        let mut found = added.iter().map(|item| item.get());
        let mut call_ids = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let (mut expected, found) = (item.expected(index), found.next().unwrap_or_default());
            if let OutputItem::Call { id, .. } = item {
                let sent: Value = serde_json::from_str(found).unwrap_or_default();
                let sent_id = sent["call_id"].as_str().unwrap_or_default().to_owned();
                if !conversation.call_ids.insert(id.clone()) || id.is_empty() {
                    // The identifier has been used before: the caller gives the call another one.
                    expected = expected.replacen(&json!(id).to_string(), &json!(sent_id).to_string(), 1);
                    self.expect(conversation.call_ids.insert(sent_id.clone()), || {
                        format!("{sent_id} is used twice")
                    });
                }
                call_ids.push(sent_id);
            }
            self.expect(found == expected, || format!("{found} instead of {expected}"));
        }
        for id in call_ids {
            let output: Value = serde_json::from_str(found.next().unwrap_or("null")).unwrap_or_default();
            self.expect(output["type"] == "function_call_output" && output["call_id"] == id, || {
                format!("{output} instead of the output of {id}")
            });
        }
        let new_items: Vec<_> = found.collect();
        self.expect(new_items.is_empty(), || format!("more than the answer: {new_items:?}"));
    }
}

/// Returns true for an identifier or a name that the API accepts.
fn is_plain(name: &Value) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.as_str().is_some_and(|name| (1..=64).contains(&name.len()) && name.bytes().all(is_plain))
}

fn is_message(item: &Value) -> bool {
    let parts = item["content"].as_array().cloned().unwrap_or_default();
    !parts.is_empty()
        && match item["role"].as_str() {
            Some("developer" | "user") => parts.iter().all(is_input),
            Some("assistant") => {
                parts.iter().all(|part| part["type"] == "output_text" && part["text"].is_string())
            }
            _ => false,
        }
}

fn is_input(part: &Value) -> bool {
    match part["type"].as_str() {
        Some("input_text") => part["text"].is_string(),
        Some("input_image") => part["image_url"].is_string() && part["detail"] == "auto",
        _ => false,
    }
}
