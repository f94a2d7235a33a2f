//! Generated answers of the upstream servers, in their three protocols.

use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

/// Protocol of an upstream server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Server-sent events of a hosted vendor.
    ChatCompletions,
    /// NDJSON.
    Ollama,
    /// NDJSON of n8n.
    Workflow,
}

/// An answer and its division into chunks.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) protocol: Protocol,
    pub(crate) body: Vec<u8>,
    /// The chunks, repeated to the end of the body.
    pub(crate) cuts: Vec<Cut>,
    /// False if the connection closes before the end of the body was announced.
    pub(crate) is_complete: bool,
}

/// One chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) bytes: usize,
    /// True if the next chunk follows only after the client has had time to read this one.
    pub(crate) pauses: bool,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("protocol", &self.protocol)
            .field("body", &String::from_utf8_lossy(&self.body))
            .field("cuts", &self.cuts)
            .field("is_complete", &self.is_complete)
            .finish()
    }
}

impl Protocol {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::ChatCompletions => "text/event-stream",
            Self::Ollama => "application/x-ndjson",
            Self::Workflow => "application/json; charset=utf-8",
        }
    }

    /// Returns an answer that ends a run.
    pub(crate) fn shortest_answer(self) -> Answer {
        let body = match self {
            Self::ChatCompletions => {
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
            }
            Self::Ollama => "{\"message\":{\"content\":\"ok\"},\"done\":true}\n",
            Self::Workflow => "{\"type\":\"item\",\"content\":\"ok\"}\n",
        };
        Answer { protocol: self, body: body.into(), cuts: Vec::new(), is_complete: true }
    }
}

/// Generates answers that are mostly valid: most have an end, and few have an error or are cut off.
pub(crate) fn answers() -> impl Strategy<Value = Answer> {
    let chat_items = (0..CHAT_LAYOUTS).prop_flat_map(|layout| vec(chat_items(layout), 0..24));
    let chat = (chat_items, line_ends(), any::<bool>())
        .prop_map(|(items, ends, done)| (Protocol::ChatCompletions, chat_body(&items, ends, done)));
    let ollama = (vec(ollama_lines(), 0..16), line_ends(), any::<bool>())
        .prop_map(|(lines, ends, done)| (Protocol::Ollama, ollama_body(&lines, ends, done)));
    let workflow_lines = (0..WORKFLOW_LAYOUTS).prop_flat_map(|layout| vec(workflow_lines(layout), 0..24));
    let workflow =
        (workflow_lines, line_ends()).prop_map(|(lines, ends)| (Protocol::Workflow, joined(&lines, ends)));
    let body = prop_oneof![3 => chat, 1 => ollama, 2 => workflow];
    let cut = (prop_oneof![3 => 1..12_usize, 3 => 12..200_usize, 1 => Just(usize::MAX)], any::<bool>());
    let cuts = vec(cut.prop_map(|(bytes, pauses)| Cut { bytes, pauses }), 1..8);
    let kept = prop_oneof![6 => Just(1.0), 1 => 0.0..1.0_f64];
    (body, cuts, kept, prop::bool::weighted(0.9)).prop_map(|((protocol, body), cuts, kept, is_complete)| {
        let mut body = body.into_bytes();
        body.truncate((body.len() as f64 * kept) as usize);
        Answer { protocol, body, cuts, is_complete }
    })
}

fn line_ends() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("\n"), 1 => Just("\r\n")]
}

fn joined(lines: &[String], ends: &str) -> String {
    lines.iter().flat_map(|line| [line, ends]).collect()
}

/// Texts as JSON strings: words, characters of several bytes, escapes and texts that look like JSON.
fn texts() -> impl Strategy<Value = String> {
    let plain = prop_oneof![
        6 => "[a-z]{1,6} ?",
        1 => "[0-9]{1,4}",
        2 => prop::sample::select(vec!["größe", "– 🙂", "語", "\u{2028}", "\u{7f}"]).prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            "\"", "\\", "\n", "\t", "\u{1}", "", "}", "\"},\"x\":\"", "[DONE]", "data: ",
            "{\"output\":\"inner\"}", "{\"text\":1}",
        ]).prop_map(str::to_owned),
    ];
    (plain, prop::bool::weighted(0.15)).prop_map(|(text, escapes_all)| {
        if escapes_all {
            let units = text.encode_utf16().fold(String::new(), |mut units, unit| {
                // Writing to a `String` cannot fail.
                let _ = write!(units, "\\u{unit:04x}");
                units
            });
            format!("\"{units}\"")
        } else {
            json!(text).to_string()
        }
    })
}

/// Numbers of about one length, as times have; some are no JSON, since they begin with a zero.
fn times() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (1_759_000_000_u32..1_759_000_300).prop_map(|time| time.to_string()),
        1 => prop::sample::select(vec!["0759000000", "2759000000", "-175900000", "1.75900e+9", "0", "12"])
            .prop_map(str::to_owned),
    ]
}

/// A field of an SSE stream, or several, without the end of the last line.
#[derive(Debug, Clone)]
enum ChatItem {
    Data(String),
    /// A chunk named as an error.
    ErrorEvent(String),
    Comment,
}

fn chat_items(layout: usize) -> impl Strategy<Value = ChatItem> {
    prop_oneof![
        16 => chat_texts(layout).prop_map(ChatItem::Data),
        2 => chat_tool_calls().prop_map(ChatItem::Data),
        2 => chat_others().prop_map(ChatItem::Data),
        2 => Just(ChatItem::Comment),
        1 => prop::bool::weighted(0.1)
            .prop_flat_map(move |fails| chat_texts(layout).prop_map(move |data| match fails {
                true => ChatItem::ErrorEvent(data),
                false => ChatItem::Data(data),
            })),
    ]
}

/// Number of layouts of a chunk with text.
const CHAT_LAYOUTS: usize = 5;

/// Returns mostly `layout`, so that each chunk resembles the previous one, as a server's chunks do.
fn mostly(layout: usize, layouts: usize) -> impl Strategy<Value = usize> {
    prop_oneof![12 => Just(layout), 1 => 0..layouts]
}

/// Chunks with text, in the layouts of several servers.
fn chat_texts(layout: usize) -> impl Strategy<Value = String> {
    let index = prop::bool::weighted(0.1).prop_map(usize::from);
    (texts(), times(), mostly(layout, CHAT_LAYOUTS), index).prop_map(|(text, time, layout, index)| {
        match layout {
            0 => format!(
                r#"{{"id":"c","created":1759000000,"model":"m-1","choices":[{{"index":{index},"delta":{{"content":{text}}},"finish_reason":null}}]}}"#
            ),
            1 => format!(
                r#"{{"choices":[{{"delta":{{"content":{text},"role":"assistant"}},"index":{index}}}],"created":{time},"model":"m-2"}}"#
            ),
            2 => format!(
                r#"{{ "choices": [ {{ "index": {index}, "delta": {{ "content": {text} }} }} ], "usage": null, "created": {time} }}"#
            ),
            3 => format!(
                r#"{{"choices":[{{"delta":{{"content":{text}}}}}],"\u0{}5rror":{{}},"created":{time}}}"#,
                if index == 0 { "05" } else { "06" },
            ),
            _ => format!(r#"{{"choices":[{{"delta":{{"content":{text}}}}}],"timings":{{"n":{time}}}}}"#),
        }
    })
}

fn chat_tool_calls() -> impl Strategy<Value = String> {
    (0..2_usize, prop::option::of("[a-c]{1}"), prop::option::of("[a-c]{1}"), texts()).prop_map(
        |(index, id, name, arguments)| {
            let arguments: serde_json::Value = serde_json::from_str(&arguments).unwrap_or_default();
            let call = json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
            json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).to_string()
        },
    )
}

fn chat_others() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => texts().prop_map(|text| format!(r#"{{"choices":[{{"delta":{{"reasoning_content":{text}}}}}]}}"#)),
        2 => Just(r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":12}}"#.to_owned()),
        2 => prop::sample::select(vec!["stop", "length", "tool_calls"])
            .prop_map(|reason| json!({"choices": [{"delta": {}, "finish_reason": reason}]}).to_string()),
        2 => texts().prop_map(|text| {
            format!(r#"{{"choices":[{{"delta":{{"content":{text}}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":3}}}}"#)
        }),
        1 => prop::sample::select(vec![
            r#"{"error":{"message":"overloaded","type":"server_error"}}"#,
            r#"{"choices":[{"delta":{"content":"#,
            "{}",
        ]).prop_map(str::to_owned),
    ]
}

fn chat_body(items: &[ChatItem], ends: &str, done: bool) -> String {
    let mut lines = Vec::new();
    for item in items {
        match item {
            ChatItem::Data(data) => lines.push(format!("data: {data}")),
            ChatItem::ErrorEvent(data) => lines.extend(["event: error".to_owned(), format!("data: {data}")]),
            ChatItem::Comment => lines.push(": keep-alive".to_owned()),
        }
        lines.push(String::new());
    }
    if done {
        lines.extend([
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#.to_owned(),
            String::new(),
            "data: [DONE]".to_owned(),
            String::new(),
        ]);
    }
    joined(&lines, ends)
}

fn ollama_lines() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => (texts(), times()).prop_map(|(text, time)| {
            format!(r#"{{"model":"m","created_at":"{time}","message":{{"role":"assistant","content":{text}}},"done":false}}"#)
        }),
        2 => texts().prop_map(|text| format!(r#"{{"message":{{"thinking":{text}}},"done":false}}"#)),
        1 => Just(r#"{"message":{"tool_calls":[{"function":{"name":"a","arguments":{"b":1}}}]}}"#.to_owned()),
        1 => Just(String::new()),
        1 => prop::bool::weighted(0.3).prop_map(|fails| match fails {
            true => r#"{"error":"overloaded"}"#.to_owned(),
            false => "{}".to_owned(),
        }),
    ]
}

fn ollama_body(lines: &[String], ends: &str, done: bool) -> String {
    let end =
        r#"{"message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":7,"eval_count":3}"#;
    joined(lines, ends) + if done { end } else { "" } + ends
}

/// Number of layouts of a workflow's item.
const WORKFLOW_LAYOUTS: usize = 3;

fn workflow_lines(layout: usize) -> impl Strategy<Value = String> {
    let other = prop::sample::select(vec![
        r#"{"type":"item","metadata":{}}"#,
        r#"{"type":"keepalive"}"#,
        r#"{"type":"item","content":7,"metadata":{}}"#,
        r#"{"type":"error","content":"failed"}"#,
        r#"{"type":"item","content":"#,
        "",
    ]);
    prop_oneof![
        16 => (texts(), times(), mostly(layout, WORKFLOW_LAYOUTS)).prop_map(|(text, time, layout)| match layout {
            0 => format!(
                r#"{{"type":"item","content":{text},"metadata":{{"nodeId":"n","itemIndex":0,"timestamp":{time}}}}}"#
            ),
            1 => format!(r#"{{"metadata":{{"timestamp":1759000000}},"content":{text},"type":"item"}}"#),
            _ => format!(r#"{{"type":"item","content":{text}}}"#),
        }),
        2 => Just(r#"{"type":"begin","metadata":{"nodeId":"n"}}"#.to_owned()),
        2 => Just(r#"{"type":"end","metadata":{"nodeId":"n"}}"#.to_owned()),
        1 => other.prop_map(str::to_owned),
    ]
}
