//! Incremental parser that checks a response as it arrives: HTTP/1.1, chunked, one line per event.
//!
//! Both formats are lines of JSON, the vendor's prefixed with `data: `. Any fault is an error, since a relay that
//! responds wrongly must not look fast.

use std::{borrow::Cow, time::Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BytesMut};
use memchr::memchr;
use serde::Deserialize;

/// Maximum length of a head or line, in bytes.
const MAX_LINE: usize = 1024 * 1024;

/// Format of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Chat Completions streaming: `data: {…}` lines, the last one `data: [DONE]`.
    ChatCompletions,
    /// AG-UI events as NDJSON, from `RUN_STARTED` to `RUN_FINISHED`.
    AgUi,
}

/// Expected content of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The exact text.
    pub text: String,
    /// The only tool that must be called; `None` for no call.
    pub tool: Option<&'static str>,
    /// Substring that the tool's result must contain.
    pub tool_result: Option<&'static str>,
}

/// Parser state of one response.
#[derive(Debug)]
pub struct ResponseParser {
    wire: Wire,
    place: ParserState,
    lines: BytesMut,
    started: bool,
    ended: bool,
    text: String,
    tools: Vec<String>,
    tool_result: String,
    /// Time at which the first token arrived.
    pub first_token: Option<Instant>,
}

/// Position within the HTTP message.
#[derive(Debug, PartialEq, Eq)]
enum ParserState {
    Head,
    ChunkSize,
    Chunk(usize),
    ChunkEnd,
    LastChunkEnd,
    Done,
}

impl ResponseParser {
    /// Creates a parser of a response in `wire`.
    pub fn new(wire: Wire) -> Self {
        Self {
            wire,
            place: ParserState::Head,
            lines: BytesMut::new(),
            started: false,
            ended: false,
            text: String::new(),
            tools: Vec::new(),
            tool_result: String::new(),
            first_token: None,
        }
    }

    /// Returns true if the run has started.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Returns the text received so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Consumes received bytes from `inbox` and returns true if the message is complete. Bytes of an incomplete
    /// element stay in `inbox`.
    ///
    /// # Errors
    /// The response is not 200, not chunked or malformed, or it reports an error.
    pub fn advance(&mut self, inbox: &mut BytesMut) -> Result<bool> {
        while self.place != ParserState::Done && self.step(inbox)? {}
        ensure!(inbox.len() < MAX_LINE && self.lines.len() < MAX_LINE, "line or head too long");
        Ok(self.place == ParserState::Done)
    }

    /// Parses one element of the message; returns false if more bytes are needed.
    fn step(&mut self, inbox: &mut BytesMut) -> Result<bool> {
        match self.place {
            ParserState::Head => return self.head(inbox),
            ParserState::ChunkSize => match httparse::parse_chunk_size(inbox) {
                Ok(httparse::Status::Complete((consumed, size))) => {
                    inbox.advance(consumed);
                    self.place = match usize::try_from(size)? {
                        0 => ParserState::LastChunkEnd,
                        size => ParserState::Chunk(size),
                    };
                }
                Ok(httparse::Status::Partial) => return Ok(false),
                Err(_) => bail!("invalid chunk size"),
            },
            ParserState::Chunk(size) => {
                let consumed = size.min(inbox.len());
                if consumed == 0 {
                    return Ok(false);
                }
                self.lines.extend_from_slice(&inbox[..consumed]);
                inbox.advance(consumed);
                self.place = if consumed == size {
                    ParserState::ChunkEnd
                } else {
                    ParserState::Chunk(size - consumed)
                };
                self.read_lines()?;
            }
            ParserState::ChunkEnd | ParserState::LastChunkEnd => {
                if inbox.len() < 2 {
                    return Ok(false);
                }
                ensure!(inbox.starts_with(b"\r\n"), "a chunk does not end where it says");
                inbox.advance(2);
                self.place = if self.place == ParserState::ChunkEnd {
                    ParserState::ChunkSize
                } else {
                    ParserState::Done
                };
            }
            ParserState::Done => return Ok(false),
        }
        Ok(true)
    }

    fn head(&mut self, inbox: &mut BytesMut) -> Result<bool> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(taken) = response.parse(inbox).context("invalid response head")?
        else {
            return Ok(false);
        };
        if response.code != Some(200) {
            let shown = &inbox[..inbox.len().min(1024)];
            bail!("refused:\n{}", String::from_utf8_lossy(shown));
        }
        let chunked = response.headers.iter().any(|header| {
            header.name.eq_ignore_ascii_case("transfer-encoding")
                && header.value.eq_ignore_ascii_case(b"chunked")
        });
        ensure!(chunked, "the answer is not streamed");
        inbox.advance(taken);
        self.place = ParserState::ChunkSize;
        Ok(true)
    }

    fn read_lines(&mut self) -> Result<()> {
        while let Some(end) = memchr(b'\n', &self.lines) {
            let line = self.lines.split_to(end + 1);
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            ensure!(!self.ended, "a line after the end: {}", String::from_utf8_lossy(line));
            match self.wire {
                Wire::ChatCompletions => self.vendor_line(line),
                Wire::AgUi => self.event_line(line),
            }
            .with_context(|| format!("in the line {}", String::from_utf8_lossy(line)))?;
        }
        Ok(())
    }

    fn vendor_line(&mut self, line: &[u8]) -> Result<()> {
        let data = line.strip_prefix(b"data: ").context("not a data frame")?;
        if data == b"[DONE]" {
            self.ended = true;
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data)?;
        for choice in chunk.choices {
            if let Some(content) = choice.delta.content {
                self.token(&content);
            }
            let names = choice.delta.tool_calls.iter().filter_map(|call| call.function.name);
            self.tools.extend(names.map(str::to_owned));
        }
        Ok(())
    }

    fn event_line(&mut self, line: &[u8]) -> Result<()> {
        let event: Event<'_> = serde_json::from_slice(line)?;
        ensure!(self.started || event.kind == "RUN_STARTED", "the run has not started");
        match event.kind {
            "RUN_STARTED" => self.started = true,
            "TEXT_MESSAGE_CONTENT" => self.token(&event.delta.context("no delta")?),
            "TOOL_CALL_START" => self.tools.push(event.tool_call_name.context("no name")?.to_owned()),
            "TOOL_CALL_RESULT" => self.tool_result.push_str(&event.content.context("no content")?),
            "RUN_FINISHED" => self.ended = true,
            "RUN_ERROR" => bail!("the run failed"),
            _ => {}
        }
        Ok(())
    }

    fn token(&mut self, text: &str) {
        if !text.is_empty() {
            self.first_token.get_or_insert_with(Instant::now);
            self.text.push_str(text);
        }
    }

    /// Checks the complete response.
    ///
    /// # Errors
    /// The text differs from the expected one, another tool was called, the tool's result is wrong, or the end is
    /// missing.
    pub fn check(&self, expected: &Expected) -> Result<()> {
        ensure!(self.ended && self.lines.is_empty(), "the answer ends too early");
        ensure!(self.text == expected.text, "another text than expected: {:?}", self.text);
        ensure!(
            self.tools.iter().eq(expected.tool.iter()),
            "other tool calls than expected: {:?}",
            self.tools
        );
        let result = expected.tool_result.unwrap_or_default();
        ensure!(self.tool_result.contains(result), "another tool result: {:?}", self.tool_result);
        Ok(())
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    name: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    delta: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    tool_call_name: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Behaviour, Framing, TOOL};

    fn bytes(behaviour: Behaviour) -> Vec<u8> {
        behaviour.script(Framing::ChatCompletions, false).pieces.concat()
    }

    /// Feeds `bytes` in pieces of `size` and returns the parser once the message is complete.
    fn read(wire: Wire, bytes: &[u8], size: usize) -> Result<Option<ResponseParser>> {
        let mut reading = ResponseParser::new(wire);
        let mut inbox = BytesMut::new();
        for piece in bytes.chunks(size) {
            inbox.extend_from_slice(piece);
            if reading.advance(&mut inbox)? {
                return Ok(Some(reading));
            }
        }
        Ok(None)
    }

    fn ndjson(lines: &[&str]) -> Vec<u8> {
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes()
    }

    const STARTED: &str = r#"{"type":"RUN_STARTED","threadId":"t","runId":"r"}"#;
    const HELLO: &str = r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"hello"}"#;
    const FINISHED: &str = r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#;

    fn hello() -> Expected {
        Expected { text: "hello".to_owned(), ..Expected::default() }
    }

    #[test]
    fn the_vendors_answer_is_read_however_it_is_cut() {
        let behaviour = Behaviour::Burst { chunks: 20 };
        for size in [1, 7, 1000, 100_000] {
            let reading = read(Wire::ChatCompletions, &bytes(behaviour), size).unwrap().expect("complete");
            reading.check(&Expected { text: behaviour.text(), ..Expected::default() }).unwrap();
            assert!(reading.first_token.is_some());
        }
    }

    #[test]
    fn the_vendors_tool_call_is_counted() {
        let reading = read(Wire::ChatCompletions, &bytes(Behaviour::Tool), 100).unwrap().expect("complete");
        reading.check(&Expected { tool: Some(TOOL), ..Expected::default() }).unwrap();
        assert!(reading.check(&Expected::default()).is_err());
    }

    #[test]
    fn a_whole_run_of_events_passes() {
        let reading = read(Wire::AgUi, &ndjson(&[STARTED, HELLO, FINISHED]), 5).unwrap().expect("complete");
        reading.check(&hello()).unwrap();
    }

    #[test]
    fn wrong_answers_are_detected() {
        let wrong = [
            vec![STARTED, HELLO],
            vec![STARTED, HELLO, HELLO, FINISHED],
            vec![STARTED, FINISHED],
            vec![HELLO, FINISHED],
            vec![STARTED, HELLO, FINISHED, FINISHED],
            vec![STARTED, HELLO, r#"{"type":"RUN_ERROR","message":"m"}"#],
            vec![STARTED, HELLO, "{", FINISHED],
        ];
        for lines in wrong {
            let outcome = read(Wire::AgUi, &ndjson(&lines), 1000)
                .and_then(|reading| reading.context("incomplete")?.check(&hello()));
            assert!(outcome.is_err(), "{lines:?}");
        }
        assert!(read(Wire::AgUi, b"HTTP/1.1 502 Bad Gateway\r\n\r\n", 10).is_err());
    }
}
