//! Incremental parsers of lines and server-sent events, independent of chunk boundaries.
//!
//! Both parsers are pull-based: [`push`](LineSplitter::push) adds a chunk, then the lines or events that it completes
//! are taken until there are none. The rest waits for the next chunk. A reader may stop between two lines, and a
//! chunk may end anywhere, also within a UTF-8 sequence.

use std::ops::Range;

use agent_core::error::{AgentError, AgentErrorKind};
use bytes::Bytes;
use memchr::{memchr, memchr2};

/// Default maximum line length of [`LineSplitter`] and [`SseDecoder`]: 1 MiB.
pub(crate) const DEFAULT_MAX_LINE_BYTES: usize = 1 << 20;

/// Initial capacity of a line buffer in bytes: most lines are shorter, and every open stream has one buffer.
const INITIAL_LINE_CAPACITY: usize = 2 << 10;

/// Initial capacity of an event's buffer in bytes: a chunk of a model's output is shorter.
const INITIAL_EVENT_CAPACITY: usize = 256;

/// Maximum capacity in bytes that a buffer keeps after a long line.
const MAX_IDLE_CAPACITY: usize = 64 << 10;

/// Splits a stream of byte chunks at its line ends, as NDJSON has them: LF or CRLF.
///
/// A line that lies whole in one chunk is lent from that chunk without a copy.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    chunk: Bytes,
    /// Offset in `chunk` of the next line.
    offset: usize,
    /// Start of a line that earlier chunks left incomplete.
    partial_line: Vec<u8>,
    /// True if `partial_line` contains a line that was returned, and must be cleared.
    has_returned_partial_line: bool,
    limit: usize,
    ends: LineEnds,
}

/// Location of a line.
enum LineLocation {
    /// Byte range of the current chunk.
    Chunk(Range<usize>),
    /// In `partial_line`, until the next line is searched.
    Head,
}

/// Line terminators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnds {
    /// LF, optionally preceded by CR.
    Lf,
    /// LF, CR or CRLF. A CR ends its line at once; the LF of a CRLF may come in the next chunk, where it is skipped.
    LfOrCr { skip_lf: bool },
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_LINE_BYTES)
    }
}

impl LineSplitter {
    /// Creates a splitter for lines of at most `limit` bytes, without their terminators.
    pub(crate) fn new(limit: usize) -> Self {
        Self::with_ends(limit, LineEnds::Lf)
    }

    fn with_ends(limit: usize, ends: LineEnds) -> Self {
        Self {
            chunk: Bytes::new(),
            offset: 0,
            partial_line: Vec::new(),
            has_returned_partial_line: false,
            limit,
            ends,
        }
    }

    /// Adds the next chunk. Lines of earlier chunks that were not taken are kept, at the cost of a copy.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        let rest = &self.chunk[self.offset..];
        self.chunk = if rest.is_empty() { chunk } else { [rest, &chunk].concat().into() };
        self.offset = 0;
    }

    /// Returns the next complete line, without its terminator; `None` if another chunk is needed.
    ///
    /// # Errors
    /// Returns [`AgentErrorKind::Failed`] if a line exceeds the limit. The stream must then be abandoned.
    pub(crate) fn next_line(&mut self) -> Result<Option<&[u8]>, AgentError> {
        match self.find_line()? {
            Some(location) => Ok(Some(self.line(&location))),
            None => self.buffer_partial_line().map(|()| None),
        }
    }

    /// Finds the next complete line, without its terminator; `None` if another chunk is needed and the start of the
    /// line must be kept. The chunk is not changed.
    fn find_line(&mut self) -> Result<Option<LineLocation>, AgentError> {
        self.clear_returned();
        self.skip_lf();
        let start = self.offset;
        let Some(length) = self.find_end(&self.chunk[start..]) else { return Ok(None) };
        let end = start + length;
        self.offset = end + 1;
        if let LineEnds::LfOrCr { skip_lf } = &mut self.ends {
            *skip_lf = self.chunk[end] == b'\r';
        }
        let (location, length) = if self.partial_line.is_empty() {
            let length = self.without_cr(&self.chunk[start..end]).len();
            (LineLocation::Chunk(start..start + length), length)
        } else {
            self.partial_line.extend_from_slice(&self.chunk[start..end]);
            self.has_returned_partial_line = true;
            (LineLocation::Head, self.without_cr(&self.partial_line).len())
        };
        if length > self.limit {
            return Err(self.line_too_long());
        }
        Ok(Some(location))
    }

    fn line(&self, location: &LineLocation) -> &[u8] {
        match location {
            LineLocation::Chunk(range) => &self.chunk[range.clone()],
            LineLocation::Head => self.without_cr(&self.partial_line),
        }
    }

    /// Returns the text after the last terminator, once the stream has ended and every line was taken; `None` if it
    /// is empty.
    pub(crate) fn last_line(&mut self) -> Option<&[u8]> {
        self.clear_returned();
        self.partial_line.extend_from_slice(&self.chunk[self.offset..]);
        self.offset = self.chunk.len();
        self.has_returned_partial_line = true;
        Some(self.without_cr(&self.partial_line)).filter(|line| !line.is_empty())
    }

    fn find_end(&self, bytes: &[u8]) -> Option<usize> {
        match self.ends {
            LineEnds::Lf => memchr(b'\n', bytes),
            LineEnds::LfOrCr { .. } => memchr2(b'\n', b'\r', bytes),
        }
    }

    /// Moves the incomplete line at the end of the chunk to `partial_line`.
    fn buffer_partial_line(&mut self) -> Result<(), AgentError> {
        let rest = &self.chunk[self.offset..];
        if !rest.is_empty() {
            // A trailing CR may belong to the terminator.
            let length = self.partial_line.len() + self.without_cr(rest).len();
            if length > self.limit {
                return Err(self.line_too_long());
            }
            if self.partial_line.capacity() == 0 {
                self.partial_line.reserve(INITIAL_LINE_CAPACITY.max(rest.len()));
            }
            self.partial_line.extend_from_slice(rest);
        }
        // The chunk's memory is the connection's read buffer; dropping it makes it reusable.
        self.chunk = Bytes::new();
        self.offset = 0;
        Ok(())
    }

    fn skip_lf(&mut self) {
        if let LineEnds::LfOrCr { skip_lf } = &mut self.ends
            && *skip_lf
            && let Some(next) = self.chunk.get(self.offset)
        {
            *skip_lf = false;
            self.offset += usize::from(*next == b'\n');
        }
    }

    fn clear_returned(&mut self) {
        if self.has_returned_partial_line {
            clear(&mut self.partial_line);
            self.has_returned_partial_line = false;
        }
    }

    fn without_cr<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        match self.ends {
            LineEnds::Lf => line.strip_suffix(b"\r").unwrap_or(line),
            LineEnds::LfOrCr { .. } => line,
        }
    }

    fn line_too_long(&self) -> AgentError {
        too_long(self.limit)
    }
}

fn too_long(limit: usize) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, format!("a line of the response exceeds {limit} bytes"))
}

/// Clears a buffer, and frees the capacity above [`MAX_IDLE_CAPACITY`].
fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > MAX_IDLE_CAPACITY {
        buffer.shrink_to(MAX_IDLE_CAPACITY);
    }
}

/// Server-sent event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SseEvent<'a> {
    /// Value of the `event:` field; empty if absent, for which the standard's default is `message`.
    pub(crate) event: &'a [u8],
    /// Values of the `data:` fields, joined by LF.
    pub(crate) data: &'a [u8],
}

/// Decodes an event stream as the WHATWG standard parses one ("Server-sent events", 9.2.6).
///
/// Lines end in LF, CR or CRLF; one byte order mark at the beginning is ignored, and so are comments, unknown fields, `id` and
/// `retry`. An event without data is ignored, as is an event that the end of the stream cuts off before its blank line.
#[derive(Debug)]
pub(crate) struct SseDecoder {
    lines: LineSplitter,
    event: Vec<u8>,
    /// Range in the chunk of the only `data` field so far, if it lies within the chunk.
    in_chunk: Option<Range<usize>>,
    /// Values of the `data` fields otherwise, each followed by LF.
    data: Vec<u8>,
    /// True if the buffered event was returned, and must be cleared.
    has_returned_event: bool,
    /// True until the first line, which may start with a byte order mark.
    is_at_start: bool,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_LINE_BYTES)
    }
}

impl SseDecoder {
    /// Creates a decoder for lines, and for data per event, of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        let lines = LineSplitter::with_ends(limit, LineEnds::LfOrCr { skip_lf: false });
        Self {
            lines,
            event: Vec::new(),
            in_chunk: None,
            data: Vec::new(),
            has_returned_event: false,
            is_at_start: true,
        }
    }

    /// Adds the next chunk.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        self.clear_returned_event();
        self.copy_data_from_chunk();
        self.lines.push(chunk);
    }

    /// Returns the next complete event; `None` if another chunk is needed.
    ///
    /// Data of one line within a chunk is borrowed from it without a copy.
    ///
    /// # Errors
    /// Returns [`AgentErrorKind::Failed`] if a line or an event's data exceeds the limit. The stream must then be
    /// abandoned.
    pub(crate) fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, AgentError> {
        self.clear_returned_event();
        loop {
            let Some(location) = self.lines.find_line()? else {
                self.copy_data_from_chunk();
                return self.lines.buffer_partial_line().map(|()| None);
            };
            if self.process_line(&location)? {
                break;
            }
        }
        self.has_returned_event = true;
        let data = match &self.in_chunk {
            Some(range) => &self.lines.chunk[range.clone()],
            None => &self.data[..self.data.len() - 1],
        };
        Ok(Some(SseEvent { event: &self.event, data }))
    }

    /// Copies data out of the chunk before the chunk is replaced.
    fn copy_data_from_chunk(&mut self) {
        if let Some(range) = self.in_chunk.take() {
            push_data(&mut self.data, &self.lines.chunk[range]);
        }
    }

    /// Clears the event that was returned.
    fn clear_returned_event(&mut self) {
        if std::mem::take(&mut self.has_returned_event) {
            self.event.clear();
            self.in_chunk = None;
            clear(&mut self.data);
        }
    }

    /// Processes a line; returns `true` if it ends an event.
    fn process_line(&mut self, location: &LineLocation) -> Result<bool, AgentError> {
        let mut line = self.lines.line(location);
        if std::mem::take(&mut self.is_at_start) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            let ends = self.in_chunk.is_some() || !self.data.is_empty();
            if !ends {
                self.event.clear();
            }
            return Ok(ends);
        }
        match (split_field(line), location) {
            ((b"data", value), LineLocation::Chunk(line))
                if self.in_chunk.is_none() && self.data.is_empty() =>
            {
                self.in_chunk = Some(line.end - value.len()..line.end);
            }
            ((b"data", value), _) => {
                if let Some(first) = self.in_chunk.take() {
                    push_data(&mut self.data, &self.lines.chunk[first]);
                }
                if self.data.len() + value.len() > self.lines.limit {
                    return Err(too_long(self.lines.limit));
                }
                push_data(&mut self.data, value);
            }
            ((b"event", value), _) => {
                self.event.clear();
                self.event.extend_from_slice(value);
            }
            // Comments, whose field name is empty, and unknown fields.
            _ => {}
        }
        Ok(false)
    }
}

fn push_data(data: &mut Vec<u8>, value: &[u8]) {
    if data.capacity() == 0 {
        data.reserve(INITIAL_EVENT_CAPACITY.max(value.len() + 1));
    }
    data.extend_from_slice(value);
    data.push(b'\n');
}

/// Returns a line's field name and value, without the one space after the colon.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b':', line) {
        Some(colon) => {
            let value = &line[colon + 1..];
            (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits `stream` into three chunks at every pair of offsets, and checks the result of `read` for each.
    fn at_every_cut<T>(stream: &[u8], read: impl Fn(&[&[u8]]) -> T, check: impl Fn(T)) {
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                check(read(&[&stream[..first], &stream[first..second], &stream[second..]]));
            }
        }
    }

    fn lines(chunks: &[&[u8]], limit: usize) -> Result<Vec<String>, AgentError> {
        let mut splitter = LineSplitter::new(limit);
        let mut decoded_lines = Vec::new();
        let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
        for chunk in chunks {
            splitter.push(Bytes::copy_from_slice(chunk));
            while let Some(line) = splitter.next_line()? {
                decoded_lines.push(text(line));
            }
        }
        decoded_lines.extend(splitter.last_line().map(text));
        assert_eq!(splitter.last_line(), None);
        Ok(decoded_lines)
    }

    fn events(chunks: &[&[u8]], limit: usize) -> Result<Vec<(String, String)>, AgentError> {
        let mut decoder = SseDecoder::new(limit);
        let mut decoded_events = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for chunk in chunks {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(event) = decoder.next_event()? {
                decoded_events.push((text(event.event), text(event.data)));
            }
        }
        Ok(decoded_events)
    }

    #[test]
    fn splits_lines_wherever_the_chunks_are_cut() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("\n", &[""]),
            ("\n\n", &["", ""]),
            ("one\ntwo\n", &["one", "two"]),
            ("one\r\ntwo\r\n\r\nthree", &["one", "two", "", "three"]),
            ("a\rb\n\r", &["a\rb"]),
            ("{\"t\":\"Größe – 🙂\"}\n{}\r\n", &["{\"t\":\"Größe – 🙂\"}", "{}"]),
            ("last\r", &["last"]),
        ];
        for (stream, expected) in cases {
            at_every_cut(
                stream.as_bytes(),
                |chunks| lines(chunks, 1000).unwrap(),
                |found| assert_eq!(found, expected, "{stream:?}"),
            );
        }
    }

    #[test]
    fn whole_lines_are_borrowed_from_the_chunk() {
        let chunk = Bytes::from_static(b"one\ntwo\n");
        let mut splitter = LineSplitter::default();
        splitter.push(chunk.clone());
        assert_eq!(splitter.next_line().unwrap().unwrap().as_ptr(), chunk.as_ptr());
        assert_eq!(splitter.next_line().unwrap().unwrap().as_ptr(), chunk[4..].as_ptr());
        assert_eq!(splitter.partial_line.capacity(), 0);
    }

    #[test]
    fn a_chunk_pushed_early_follows_what_is_left() {
        let mut splitter = LineSplitter::default();
        splitter.push("one\ntwo\nth".into());
        assert_eq!(splitter.next_line().unwrap(), Some(&b"one"[..]));
        splitter.push("ree\n".into());
        assert_eq!(splitter.next_line().unwrap(), Some(&b"two"[..]));
        assert_eq!(splitter.next_line().unwrap(), Some(&b"three"[..]));
        assert_eq!(splitter.next_line().unwrap(), None);
    }

    #[test]
    fn bounds_lines_however_they_arrive() {
        for stream in ["12345\n12345\r\n1\n", "\n12345"] {
            at_every_cut(
                stream.as_bytes(),
                |chunks| lines(chunks, 5).is_ok(),
                |ok| assert!(ok, "{stream:?}"),
            );
        }
        for stream in ["123456\n", "12345\n123456\r\n", "1\n123456"] {
            at_every_cut(
                stream.as_bytes(),
                |chunks| lines(chunks, 5),
                |found| {
                    assert_eq!(found.unwrap_err().kind(), AgentErrorKind::Failed, "{stream:?}");
                },
            );
        }
    }

    #[test]
    fn a_long_line_leaves_no_long_buffer() {
        let mut splitter = LineSplitter::default();
        splitter.push(vec![b'x'; 1 << 19].into());
        assert_eq!(splitter.next_line().unwrap(), None);
        splitter.push("\nnext\n".into());
        assert_eq!(splitter.next_line().unwrap().map(<[u8]>::len), Some(1 << 19));
        assert_eq!(splitter.next_line().unwrap(), Some(&b"next"[..]));
        assert!(splitter.partial_line.capacity() <= MAX_IDLE_CAPACITY);
    }

    #[test]
    fn decodes_events_wherever_the_chunks_are_cut() {
        let cases: [(&str, &[(&str, &str)]); 17] = [
            ("", &[]),
            ("\n\n\n", &[]),
            ("data: one\n\n", &[("", "one")]),
            ("data:one\r\n\r\n", &[("", "one")]),
            ("data:  one\r\r", &[("", " one")]),
            ("data: one\ndata: two\n\n", &[("", "one\ntwo")]),
            ("data\n\n", &[("", "")]),
            ("data\ndata\n\n", &[("", "\n")]),
            ("data: a\rdata: b\r\ndata: c\n\r\n", &[("", "a\nb\nc")]),
            ("event: x\ndata: 1\n\ndata: 2\n\n", &[("x", "1"), ("", "2")]),
            ("event: x\nevent: y\ndata: 1\n\n", &[("y", "1")]),
            ("event: x\n\ndata: 1\n\n", &[("", "1")]),
            (": comment\n:\n\nid: 7\nretry: 10\nother: x\n Data: no\ndata: 1\n\n", &[("", "1")]),
            ("\u{feff}data: 1\n\n\u{feff}data: 2\n\n", &[("", "1")]),
            ("data: {\"a\":\"b: c\"}\n\ndata: [DONE]\n\n", &[("", "{\"a\":\"b: c\"}"), ("", "[DONE]")]),
            ("data: Größe – 🙂\n\n", &[("", "Größe – 🙂")]),
            ("data: whole\n\ndata: cut off\n", &[("", "whole")]),
        ];
        for (stream, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|(e, d)| (e.to_string(), d.to_string())).collect();
            at_every_cut(
                stream.as_bytes(),
                |chunks| events(chunks, 1000).unwrap(),
                |found| assert_eq!(found, expected, "{stream:?}"),
            );
        }
    }

    #[test]
    fn lends_data_of_one_line_from_the_chunk() {
        let chunk = Bytes::from_static(b"data: one\n\ndata: two\r\n\r\nevent: x\ndata: three\n\n");
        let mut decoder = SseDecoder::default();
        decoder.push(chunk.clone());
        for at in [6, 17, 39] {
            let event = decoder.next_event().unwrap().unwrap();
            assert_eq!(event.data.as_ptr(), chunk[at..].as_ptr(), "{event:?}");
        }
        assert_eq!(decoder.next_event().unwrap(), None);
        assert_eq!((decoder.data.capacity(), decoder.lines.partial_line.capacity()), (0, 0));
    }

    #[test]
    fn a_chunk_pushed_while_an_event_is_lent_follows_what_is_left() {
        let mut decoder = SseDecoder::default();
        decoder.push("data: 1\n\ndata: 2\n\ndata".into());
        assert_eq!(decoder.next_event().unwrap().map(|event| event.data), Some(&b"1"[..]));
        decoder.push(": 3\n\n".into());
        for expected in [&b"2"[..], b"3"] {
            assert_eq!(decoder.next_event().unwrap().map(|event| event.data), Some(expected));
        }
        assert_eq!(decoder.next_event().unwrap(), None);
    }

    #[test]
    fn bounds_an_events_lines_and_data() {
        assert!(events(&[b"data: 4567890\n\n"], 13).is_ok());
        assert!(events(&[b"data: 45678901\n\n"], 13).is_err());
        assert!(events(&[b"data: 45678\n", b"data: 45678\n\n"], 13).is_ok());
        assert!(events(&[b"data: 45678\n", b"data: 4567890\ndata: 1\n\n"], 13).is_err());
        assert!(events(&[b"data\n".repeat(20).as_slice()], 13).is_err());
    }
}
