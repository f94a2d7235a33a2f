//! Answers of a vendor of Anthropic's Messages API, and a strict check of the requests to it.

use serde_json::{Value, json};

use super::vendor::{ReceivedRequest, Step, chunk, last_chunk, stream_head};

/// Members of a request.
const MEMBERS: [&str; 14] = [
    "max_tokens",
    "messages",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// Returns one event, with its name.
pub fn message_event(data: &Value) -> Step {
    chunk(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().expect("a type")))
}

/// Returns the beginning of an answer, whose prompt had 3 new tokens, 5 written to the cache and 20 read from it.
pub fn message_start() -> Step {
    message_event(
        &json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "content": [], "model": "claude-test", "stop_reason": null, "stop_sequence": null, "usage": {
            "input_tokens": 3, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1}}}),
    )
}

fn block(index: usize, start: Value, deltas: impl IntoIterator<Item = Value>) -> Vec<Step> {
    let start = json!({"type": "content_block_start", "index": index, "content_block": start});
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = json!({"type": "content_block_stop", "index": index});
    let events = std::iter::once(start).chain(deltas.into_iter().map(delta)).chain([stop]);
    events.map(|event| message_event(&event)).collect()
}

/// Returns a block of thinking with its signature.
pub fn thinking_block(index: usize, text: &str, signature: &str) -> Vec<Step> {
    let deltas = [
        json!({"type": "thinking_delta", "thinking": text}),
        json!({"type": "signature_delta", "signature": signature}),
    ];
    block(index, json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
}

/// Returns a block of text.
pub fn text_block(index: usize, text: &str) -> Vec<Step> {
    block(index, json!({"type": "text", "text": ""}), [json!({"type": "text_delta", "text": text})])
}

/// Returns the call of a tool, with its arguments in two deltas.
pub fn call_block(index: usize, id: &str, name: &str, arguments: &str) -> Vec<Step> {
    let (head, tail) = arguments.split_at(arguments.len() / 2);
    let deltas = [head, tail].map(|json| json!({"type": "input_json_delta", "partial_json": json}));
    block(index, json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas)
}

/// Returns the end of an answer of nine tokens, four of them thinking.
pub fn message_stop(reason: &str) -> Vec<Step> {
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}});
    vec![message_event(&delta), message_event(&json!({"type": "message_stop"})), last_chunk()]
}

/// Returns a whole answer of these blocks, between which the vendor sends pings.
pub fn message(blocks: impl IntoIterator<Item = Vec<Step>>, reason: &str) -> Vec<Step> {
    let mut steps = vec![stream_head(), message_start(), message_event(&json!({"type": "ping"}))];
    for block in blocks {
        steps.extend(block);
        steps.push(message_event(&json!({"type": "an_event_of_tomorrow", "value": 1})));
    }
    steps.extend(message_stop(reason));
    steps
}

/// Checks a request against the published schema and the rules of its conversation. Panics at the first fault.
pub fn check_request(request: &ReceivedRequest, key: &str) {
    assert_eq!(request.path(), "/v1/messages");
    let header = |name: &str| {
        let mut lines = request.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    assert_eq!(header("x-api-key").as_deref(), Some(key));
    assert_eq!(header("anthropic-version").as_deref(), Some("2023-06-01"));
    assert_eq!(header("authorization"), None);
    let body = request.json();
    for name in body.as_object().expect("an object").keys() {
        assert!(MEMBERS.contains(&name.as_str()), "{name} is no member of a request");
    }
    assert!(body["max_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{body}");
    assert_eq!(body["stream"], true);
    check_sampling(&body);
    let breakpoints = body.to_string().matches("cache_control").count();
    assert!((1..=4).contains(&breakpoints), "{breakpoints} breakpoints");
    let messages = body["messages"].as_array().expect("messages");
    let (mut called, mut has_calls): (Vec<&Value>, bool) = (Vec::new(), false);
    for (index, message) in messages.iter().enumerate() {
        let role = if index % 2 == 0 { "user" } else { "assistant" };
        assert_eq!(message["role"], role, "message {index} of {body}");
        let blocks = message["content"].as_array().expect("blocks");
        assert!(!blocks.is_empty());
        let of = |kind: &str, id: &str| -> Vec<&Value> {
            blocks.iter().filter(|block| block["type"] == kind).map(|block| &block[id]).collect()
        };
        assert_eq!(of("tool_result", "tool_use_id"), called, "each call has its result in the next message");
        called = of("tool_use", "id");
        has_calls |= !called.is_empty();
        for text in of("text", "text") {
            assert!(text.as_str().is_some_and(|text| !text.trim().is_empty()), "a text is empty");
        }
    }
    assert_eq!(called, Vec::<&Value>::new(), "the last calls have no results");
    let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    assert!(!has_calls || has_tools, "a conversation with calls needs tools: {body}");
    assert_eq!(messages.last().expect("a message")["role"], "user");
}

/// Checks the parameters that the API rejects with one another.
fn check_sampling(body: &Value) {
    let has = |name: &str| body.get(name).is_some();
    let thinks = body["thinking"]["type"].as_str().is_some_and(|kind| kind != "disabled");
    let is_sampled = ["temperature", "top_k", "top_p"].into_iter().any(has);
    assert!(!thinks || !is_sampled, "a model that thinks is sampled: {body}");
    assert!(!has("temperature") || !has("top_p"), "the API takes one of temperature and top_p: {body}");
    assert!(body["temperature"].as_f64().is_none_or(|value| value <= 1.0), "{body}");
    if let Some(budget) = body["thinking"]["budget_tokens"].as_u64() {
        assert!(
            budget >= 1024 && body["max_tokens"].as_u64().is_some_and(|tokens| budget < tokens),
            "{body}"
        );
    }
}
