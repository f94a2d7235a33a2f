//! Scripted responses of the mock vendor: Chat Completions streams, streams of the Responses API, or a workflow's stream.

use std::{fmt, str::FromStr, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::responses;

/// Name of the tool that [`Behaviour::Tool`] calls.
pub const TOOL: &str = "readTodos";

/// Text of the vendor's second response in a tool exchange.
const AFTER_TOOL: &str = "You have one thing to do.";

/// Rest of the head of every scripted response. The body is chunked, one HTTP chunk per event, and the connection is
/// kept alive.
const HEAD: &str = "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

/// Wire format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Chat Completions over server-sent events.
    ChatCompletions,
    /// The Responses API over server-sent events.
    Responses,
    /// n8n's lines of JSON.
    Workflow,
}

/// Behaviour of a response. Its `Display` form is the model name that requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Behaviour {
    /// `burst-N`: N tokens in a single write.
    Burst {
        /// Number of tokens, at most 10,000.
        chunks: usize,
    },
    /// `paced-NxM`: N tokens, M milliseconds apart, one write each.
    Paced {
        /// Number of tokens, at most 10,000.
        chunks: usize,
        /// Milliseconds between two tokens, at most 1,000.
        every_ms: u64,
    },
    /// `later-WxNxM`: the head of the response at once, the first of N tokens W milliseconds later, and the others M
    /// milliseconds apart, one write each.
    Later {
        /// Milliseconds between the head and the first token, at most 10,000.
        after_ms: u64,
        /// Number of tokens, at most 10,000.
        chunks: usize,
        /// Milliseconds between two tokens, at most 1,000.
        every_ms: u64,
    },
    /// `first`: one token in the first write, the others in a second write immediately after it.
    First,
    /// `hang`: one token, then an open stream without data until the client disconnects.
    Hang,
    /// `tool`: a call of [`TOOL`], or a short text if the request has the tool's result.
    Tool,
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Burst { chunks } => write!(f, "burst-{chunks}"),
            Self::Paced { chunks, every_ms } => write!(f, "paced-{chunks}x{every_ms}"),
            Self::Later { after_ms, chunks, every_ms } => write!(f, "later-{after_ms}x{chunks}x{every_ms}"),
            Self::First => f.write_str("first"),
            Self::Hang => f.write_str("hang"),
            Self::Tool => f.write_str("tool"),
        }
    }
}

/// Error for a model name that is not a behaviour.
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
            Some(("later", times)) => times.split_once('x').and_then(|(after, pace)| {
                let (chunks, every) = pace.split_once('x')?;
                let (after_ms, chunks) = (number(after, 10_000)?, number(chunks, 10_000)? as usize);
                Some(Self::Later { after_ms, chunks, every_ms: number(every, 1_000)? })
            }),
            Some(_) => None,
        };
        parsed.ok_or(UnknownBehaviour)
    }
}

impl Behaviour {
    /// Returns the number of tokens in the response.
    pub fn chunks(self) -> usize {
        match self {
            Self::Burst { chunks } | Self::Paced { chunks, .. } | Self::Later { chunks, .. } => chunks,
            Self::First => 8,
            Self::Hang | Self::Tool => 1,
        }
    }

    /// Returns the whole text of the response (for [`Behaviour::Tool`], of the response to the tool's result). The
    /// tokens are numbered, so that a lost, repeated or reordered token is detected.
    pub fn text(self) -> String {
        match self {
            Self::Tool => AFTER_TOOL.to_owned(),
            _ => (0..self.chunks()).map(token).collect(),
        }
    }

    /// Returns the bytes to send. `tool_answered` is true if the request has a tool's result.
    pub fn script(self, framing: Framing, tool_answered: bool) -> Script {
        let model = self.to_string();
        let tokens = |range: std::ops::Range<usize>| -> String {
            range.map(|n| framing.text(&model, &token(n))).collect()
        };
        let end = |reason| framing.end(&model, reason, &self.text());
        let opening = framing.opening(&model);
        let chunks = self.chunks();
        let paced = |opening: &str| -> Vec<String> {
            let piece = |n: usize| {
                let before = if n == 0 { opening } else { "" };
                let after = if n + 1 == chunks { end("stop") } else { String::new() };
                format!("{before}{}{after}", tokens(n..n + 1))
            };
            (0..chunks).map(piece).collect()
        };
        let pieces = match self {
            Self::Burst { .. } => vec![format!("{opening}{}{}", tokens(0..chunks), end("stop"))],
            Self::Paced { .. } => paced(&opening),
            Self::Later { .. } => {
                let head = framing.head();
                let tokens = paced(&opening[head.len()..]);
                [vec![head], tokens].concat()
            }
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
            Self::Paced { every_ms, .. } | Self::Later { every_ms, .. } => Duration::from_millis(every_ms),
            _ => Duration::ZERO,
        };
        let silence = match self {
            Self::Later { after_ms, .. } => Some(Duration::from_millis(after_ms)),
            _ => None,
        };
        let pieces = pieces.into_iter().map(Bytes::from).collect();
        Script { pieces, silence, every, hangs: self == Self::Hang }
    }
}

impl Framing {
    fn head(self) -> String {
        let media_type = match self {
            Self::ChatCompletions | Self::Responses => "text/event-stream",
            Self::Workflow => "application/json; charset=utf-8",
        };
        format!("HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\n{HEAD}")
    }

    /// Returns the head and the body before the first token.
    fn opening(self, model: &str) -> String {
        let first = match self {
            Self::ChatCompletions => event(model, json!({"role": "assistant", "content": ""})),
            Self::Responses => responses::opening(model),
            Self::Workflow => line("begin", None),
        };
        self.head() + &first
    }

    fn text(self, model: &str, text: &str) -> String {
        match self {
            Self::ChatCompletions => event(model, json!({"content": text})),
            Self::Responses => responses::text_delta(text),
            Self::Workflow => line("item", Some(text)),
        }
    }

    fn end(self, model: &str, finish_reason: &str, text: &str) -> String {
        match self {
            Self::ChatCompletions => end(model, finish_reason),
            Self::Responses => responses::end(model, text) + LAST_CHUNK,
            Self::Workflow => line("end", None) + LAST_CHUNK,
        }
    }
}

/// The writes of a response.
#[derive(Debug)]
pub struct Script {
    /// The writes in order; the first one begins with the response head.
    pub pieces: Vec<Bytes>,
    /// Interval between the first write and the second, if it differs from the others.
    pub silence: Option<Duration>,
    /// Interval between writes; zero for none.
    pub every: Duration,
    /// True if the stream stays open after the last write.
    pub hangs: bool,
}

impl Script {
    /// Returns a response with a JSON body of a stated length.
    pub(crate) fn json(body: &Value) -> Self {
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let pieces = vec![(head + &body).into()];
        Self { pieces, silence: None, every: Duration::ZERO, hangs: false }
    }
}

const LAST_CHUNK: &str = "0\r\n\r\n";

fn token(n: usize) -> String {
    format!("tok{n} ")
}

/// Returns one `data:` frame with one choice, in its own HTTP chunk.
fn event(model: &str, delta: Value) -> String {
    choice(model, delta, Value::Null)
}

fn choice(model: &str, delta: Value, finish_reason: Value) -> String {
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish_reason}]);
    http_chunk(&frame(model, choices, None))
}

/// Returns the two deltas in which vendors stream a tool call: the name, then the arguments.
fn tool_call(model: &str) -> String {
    let call =
        json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": TOOL, "arguments": ""}});
    let arguments = json!({"index": 0, "function": {"arguments": "{}"}});
    event(model, json!({"role": "assistant", "content": null, "tool_calls": [call]}))
        + &event(model, json!({"tool_calls": [arguments]}))
}

/// Returns the finish reason, the usage, `[DONE]`, and the end of the chunked body.
fn end(model: &str, finish_reason: &str) -> String {
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 200, "total_tokens": 220});
    choice(model, json!({}), finish_reason.into())
        + &http_chunk(&frame(model, json!([]), Some(usage)))
        + &http_chunk("data: [DONE]\n\n")
        + LAST_CHUNK
}

/// Returns one line of a workflow's stream, in its own HTTP chunk.
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

/// Returns `data` as one HTTP chunk.
pub(crate) fn http_chunk(data: &str) -> String {
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
            Behaviour::Later { after_ms: 600, chunks: 40, every_ms: 50 },
            Behaviour::First,
            Behaviour::Hang,
            Behaviour::Tool,
        ];
        for behaviour in all {
            assert_eq!(behaviour.to_string().parse(), Ok(behaviour));
        }
        let paced = ["paced-40", "paced-40x0", "later-600x40", "later-0x40x50", "later-600x40x"];
        for name in ["", "burst-", "burst-0", "burst-10001", "gpt-4o", "hang-1"].into_iter().chain(paced) {
            assert_eq!(name.parse::<Behaviour>(), Err(UnknownBehaviour), "{name}");
        }
    }

    #[test]
    fn a_paced_script_has_a_write_per_token() {
        for (framing, end) in [
            (Framing::ChatCompletions, &b"data: [DONE]\n\n\r\n0\r\n\r\n"[..]),
            (Framing::Responses, &b"}\n\n\r\n0\r\n\r\n"[..]),
            (Framing::Workflow, &b"}\n\r\n0\r\n\r\n"[..]),
        ] {
            let script = Behaviour::Paced { chunks: 3, every_ms: 40 }.script(framing, false);
            assert_eq!(script.pieces.len(), 3);
            assert!(script.pieces[0].starts_with(b"HTTP/1.1 200 OK\r\n"));
            assert!(script.pieces[2].ends_with(end));
            // The same bytes, the head of them in a separate write.
            let later = Behaviour::Later { after_ms: 20, chunks: 3, every_ms: 40 }.script(framing, false);
            assert_eq!(later.pieces.len(), 4);
            assert!(later.pieces[0].ends_with(b"\r\n\r\n") && later.pieces[3].ends_with(end));
            assert_eq!(later.silence, Some(Duration::from_millis(20)));
        }
    }
}
