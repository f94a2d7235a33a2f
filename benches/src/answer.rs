//! The mock vendor's scripted answers, in the wire format of Chat Completions streaming, or as a workflow streams them.

use std::{fmt, str::FromStr, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};

/// The name of the tool that [`Behaviour::Tool`] calls.
pub const TOOL: &str = "readTodos";

/// What the vendor's second answer of a tool exchange says.
const AFTER_TOOL: &str = "You have one thing to do.";

/// The rest of the head of every scripted answer. Its body is chunked, one HTTP chunk per event, and the connection is
/// kept.
const HEAD: &str = "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

/// The wire format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Chat Completions: server-sent events.
    ChatCompletions,
    /// n8n's lines.
    Workflow,
}

/// How the vendor answers. Its `Display` form is the model name by which a request asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Behaviour {
    /// `burst-N`: N tokens in a single write.
    Burst {
        /// How many tokens, at most 10,000.
        chunks: usize,
    },
    /// `paced-NxM`: N tokens, M milliseconds apart, a write each.
    Paced {
        /// How many tokens, at most 10,000.
        chunks: usize,
        /// Milliseconds from one token to the next, at most 1,000.
        every_ms: u64,
    },
    /// `first`: one token alone in the first write, a few more right after it.
    First,
    /// `hang`: one token, and then silence until the client goes away.
    Hang,
    /// `tool`: a call of [`TOOL`]; once its result is in the request, a short text.
    Tool,
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst { chunks } => write!(f, "burst-{chunks}"),
            Self::Paced { chunks, every_ms } => write!(f, "paced-{chunks}x{every_ms}"),
            Self::First => f.write_str("first"),
            Self::Hang => f.write_str("hang"),
            Self::Tool => f.write_str("tool"),
        }
    }
}

/// The model name asks for no behaviour that there is.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownBehaviour;

impl FromStr for Behaviour {
    type Err = UnknownBehaviour;

    fn from_str(name: &str) -> Result<Self, UnknownBehaviour> {
        let number = |text: &str, most| text.parse().ok().filter(|n| (1..=most).contains(n));
        let parsed = match name.split_once('-') {
            None => match name {
                "first" => Some(Self::First),
                "hang" => Some(Self::Hang),
                "tool" => Some(Self::Tool),
                _ => None,
            },
            Some(("burst", chunks)) => number(chunks, 10_000).map(|n| Self::Burst { chunks: n as usize }),
            Some(("paced", pace)) => pace.split_once('x').and_then(|(chunks, every)| {
                let chunks = number(chunks, 10_000)? as usize;
                Some(Self::Paced { chunks, every_ms: number(every, 1_000)? })
            }),
            Some(_) => None,
        };
        parsed.ok_or(UnknownBehaviour)
    }
}

impl Behaviour {
    /// How many tokens the answer has.
    pub fn chunks(self) -> usize {
        match self {
            Self::Burst { chunks } | Self::Paced { chunks, .. } => chunks,
            Self::First => 8,
            Self::Hang | Self::Tool => 1,
        }
    }

    /// The whole text of the answer (for [`Behaviour::Tool`], of the one after the tool's result). The tokens are
    /// numbered, so that a relay that loses, repeats or reorders one is found out.
    pub fn text(self) -> String {
        match self {
            Self::Tool => AFTER_TOOL.to_owned(),
            _ => (0..self.chunks()).map(token).collect(),
        }
    }

    /// The bytes to send. `tool_answered` says whether the request holds a tool's result.
    pub fn script(self, framing: Framing, tool_answered: bool) -> Script {
        let model = self.to_string();
        let tokens = |range: std::ops::Range<usize>| -> String {
            range.map(|n| framing.text(&model, &token(n))).collect()
        };
        let end = |reason| framing.end(&model, reason);
        let opening = framing.opening(&model);
        let chunks = self.chunks();
        let pieces = match self {
            Self::Burst { .. } => vec![format!("{opening}{}{}", tokens(0..chunks), end("stop"))],
            Self::Paced { .. } => (0..chunks)
                .map(|n| {
                    let before = if n == 0 { opening.as_str() } else { "" };
                    let after = if n + 1 == chunks { end("stop") } else { String::new() };
                    format!("{before}{}{after}", tokens(n..n + 1))
                })
                .collect(),
            Self::First => {
                vec![format!("{opening}{}", tokens(0..1)), format!("{}{}", tokens(1..chunks), end("stop"))]
            }
            Self::Hang => vec![format!("{opening}{}", tokens(0..1))],
            Self::Tool if tool_answered => {
                let text = framing.text(&model, AFTER_TOOL);
                vec![format!("{opening}{text}{}", end("stop"))]
            }
            Self::Tool => vec![format!("{}{}{}", framing.head(), tool_call(&model), end("tool_calls"))],
        };
        let every = match self {
            Self::Paced { every_ms, .. } => Duration::from_millis(every_ms),
            _ => Duration::ZERO,
        };
        Script { pieces: pieces.into_iter().map(Bytes::from).collect(), every, hangs: self == Self::Hang }
    }
}

impl Framing {
    fn head(self) -> String {
        let media_type = match self {
            Self::ChatCompletions => "text/event-stream",
            Self::Workflow => "application/json; charset=utf-8",
        };
        format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\n{HEAD}")
    }

    /// The head, and what comes before the first token.
    fn opening(self, model: &str) -> String {
        let first = match self {
            Self::ChatCompletions => event(model, json!({"role": "assistant", "content": ""})),
            Self::Workflow => line("begin", None),
        };
        self.head() + &first
    }

    fn text(self, model: &str, text: &str) -> String {
        match self {
            Self::ChatCompletions => event(model, json!({"content": text})),
            Self::Workflow => line("item", Some(text)),
        }
    }

    fn end(self, model: &str, finish_reason: &str) -> String {
        match self {
            Self::ChatCompletions => end(model, finish_reason),
            Self::Workflow => line("end", None) + LAST_CHUNK,
        }
    }
}

/// An answer as it goes out.
#[derive(Debug)]
pub struct Script {
    /// The writes, in order; the first one begins with the response head.
    pub pieces: Vec<Bytes>,
    /// The time from one write to the next; zero for none.
    pub every: Duration,
    /// Whether the answer is left open after the last write.
    pub hangs: bool,
}

const LAST_CHUNK: &str = "0\r\n\r\n";

fn token(n: usize) -> String {
    format!("tok{n} ")
}

/// One `data:` frame with one choice, in an HTTP chunk of its own.
fn event(model: &str, delta: Value) -> String {
    choice(model, delta, Value::Null)
}

fn choice(model: &str, delta: Value, finish_reason: Value) -> String {
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish_reason}]);
    http_chunk(&frame(model, choices, None))
}

/// The two deltas in which vendors stream a call: its name first, its arguments after.
fn tool_call(model: &str) -> String {
    let call =
        json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": ""}});
    let arguments = json!({"index": 0, "function": {"arguments": "{}"}});
    event(model, json!({"role": "assistant", "content": null, "tool_calls": [call]}))
        + &event(model, json!({"tool_calls": [arguments]}))
}

/// The finish reason, the usage, `[DONE]`, and the end of the chunked body.
fn end(model: &str, finish_reason: &str) -> String {
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 200, "total_tokens": 220});
    choice(model, json!({}), finish_reason.into())
        + &http_chunk(&frame(model, json!([]), Some(usage)))
        + &http_chunk("data: [DONE]\n\n")
        + LAST_CHUNK
}

/// One line of a workflow's stream, in an HTTP chunk of its own.
fn line(kind: &str, content: Option<&str>) -> String {
    let metadata = json!({
        "nodeId": "9b9b4e2c-6f0d-4c43-9f3b-0f6c0b7f3c11", "nodeName": "AI Agent", "itemIndex": 0, "runIndex": 0,
        "timestamp": 1_771_493_103_011_u64,
    });
    let mut line = json!({"type": kind, "metadata": metadata});
    if let Some(content) = content {
        line["content"] = content.into();
    }
    http_chunk(&format!("{line}\n"))
}

fn frame(model: &str, choices: Value, usage: Option<Value>) -> String {
    let mut body = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_750_000_000, "model": model, "choices": choices,
    });
    if let Some(usage) = usage {
        body["usage"] = usage;
    }
    format!("data: {body}\n\n")
}

fn http_chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        let all = [
            Behaviour::Burst { chunks: 200 },
            Behaviour::Paced { chunks: 40, every_ms: 40 },
            Behaviour::First,
            Behaviour::Hang,
            Behaviour::Tool,
        ];
        for behaviour in all {
            assert_eq!(behaviour.to_string().parse(), Ok(behaviour));
        }
        for name in ["", "burst-", "burst-0", "burst-10001", "paced-40", "paced-40x0", "gpt-4o", "hang-1"] {
            assert_eq!(name.parse::<Behaviour>(), Err(UnknownBehaviour), "{name}");
        }
    }

    #[test]
    fn a_paced_script_has_a_write_per_token() {
        for (framing, end) in [
            (Framing::ChatCompletions, &b"data: [DONE]\n\n\r\n0\r\n\r\n"[..]),
            (Framing::Workflow, &b"}\n\r\n0\r\n\r\n"[..]),
        ] {
            let script = Behaviour::Paced { chunks: 3, every_ms: 40 }.script(framing, false);
            assert_eq!(script.pieces.len(), 3);
            assert!(script.pieces[0].starts_with(b"HTTP/1.1 200 OK\r\n"));
            assert!(script.pieces[2].ends_with(end));
        }
    }
}
