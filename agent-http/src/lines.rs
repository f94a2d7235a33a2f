//! Incremental parsers of lines and server-sent events, independent of chunk boundaries.
//!
//! Both parsers are pull-based: [`push`](LineSplitter::push) adds a chunk, then the lines or events that it completes
//! are taken until there are none. The rest waits for the next chunk. A reader may stop between two lines, and a
//! chunk may end anywhere, also within a UTF-8 sequence.

use std::ops::Range;

use agent_core::error::{Failure, FailureKind};
use bytes::Bytes;
use memchr::{memchr, memchr2};

/// Default maximum line length of [`LineSplitter`] and [`SseDecoder`]: 1 MiB.
pub const DEFAULT_LINE_LIMIT: usize = 1 << 20;

/// Initial capacity of a line buffer in bytes: most lines are shorter, and every open stream has one buffer.
const FIRST_CAPACITY: usize = 2 << 10;

/// Initial capacity of an event's buffer in bytes: a chunk of a model's output is shorter.
const FIRST_EVENT_CAPACITY: usize = 256;

/// Capacity in bytes that a buffer keeps after a long line.
const KEPT_CAPACITY: usize = 64 << 10;

/// Splits a stream of byte chunks at its line ends, as NDJSON has them: LF or CRLF.
///
/// A line that lies whole in one chunk is lent from that chunk without a copy.
///
/// ```
/// # use crate::lines::LineSplitter;
/// # fn main() -> Result<(), agent_core::error::Failure> {
/// let mut lines = LineSplitter::default();
/// lines.push("{\"a\":1}\n{\"b\"".into());
/// assert_eq!(lines.next_line()?, Some(&b"{\"a\":1}"[..]));
/// assert_eq!(lines.next_line()?, None);
/// lines.push(":2}\r\n{}".into());
/// assert_eq!(lines.next_line()?, Some(&b"{\"b\":2}"[..]));
/// assert_eq!(lines.next_line()?, None);
/// assert_eq!(lines.last_line(), Some(&b"{}"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LineSplitter {
    chunk: Bytes,
    /// Offset in `chunk` of the next line.
    at: usize,
    /// Start of a line that earlier chunks left incomplete.
    head: Vec<u8>,
    /// True if `head` contains a line that was returned, and must be cleared.
    head_lent: bool,
    limit: usize,
    ends: LineEnds,
}

/// Location of a line.
enum Place {
    /// Byte range of the current chunk.
    Chunk(Range<usize>),
    /// In `head`, until the next line is searched.
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
        Self::new(DEFAULT_LINE_LIMIT)
    }
}

impl LineSplitter {
    /// Creates a splitter for lines of at most `limit` bytes, without their terminators.
    pub fn new(limit: usize) -> Self {
        Self::with_ends(limit, LineEnds::Lf)
    }

    fn with_ends(limit: usize, ends: LineEnds) -> Self {
        Self { chunk: Bytes::new(), at: 0, head: Vec::new(), head_lent: false, limit, ends }
    }

    /// Adds the next chunk. Lines of earlier chunks that were not taken are kept, at the cost of a copy.
    pub fn push(&mut self, chunk: Bytes) {
        let rest = &self.chunk[self.at..];
        self.chunk = if rest.is_empty() { chunk } else { [rest, &chunk].concat().into() };
        self.at = 0;
    }

    /// Returns the next complete line, without its terminator; `None` if another chunk is needed.
    ///
    /// # Errors
    /// Returns [`FailureKind::Failed`] if a line exceeds the limit. The stream must then be abandoned.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, Failure> {
        match self.find_line()? {
            Some(place) => Ok(Some(self.line(&place))),
            None => self.keep_head().map(|()| None),
        }
    }

    /// Finds the next complete line, without its terminator; `None` if another chunk is needed and the start of the
    /// line must be kept. The chunk is not changed.
    fn find_line(&mut self) -> Result<Option<Place>, Failure> {
        self.clear_lent();
        self.skip_lf();
        let start = self.at;
        let Some(length) = self.find_end(&self.chunk[start..]) else { return Ok(None) };
        let end = start + length;
        self.at = end + 1;
        if let LineEnds::LfOrCr { skip_lf } = &mut self.ends {
            *skip_lf = self.chunk[end] == b'\r';
        }
        let (place, length) = if self.head.is_empty() {
            let length = self.without_cr(&self.chunk[start..end]).len();
            (Place::Chunk(start..start + length), length)
        } else {
            self.head.extend_from_slice(&self.chunk[start..end]);
            self.head_lent = true;
            (Place::Head, self.without_cr(&self.head).len())
        };
        if length > self.limit {
            return Err(self.too_long());
        }
        Ok(Some(place))
    }

    fn line(&self, place: &Place) -> &[u8] {
        match place {
            Place::Chunk(range) => &self.chunk[range.clone()],
            Place::Head => self.without_cr(&self.head),
        }
    }

    /// Returns the text after the last terminator, once the stream has ended and every line was taken; `None` if it
    /// is empty.
    pub fn last_line(&mut self) -> Option<&[u8]> {
        self.clear_lent();
        self.head.extend_from_slice(&self.chunk[self.at..]);
        self.at = self.chunk.len();
        self.head_lent = true;
        Some(self.without_cr(&self.head)).filter(|line| !line.is_empty())
    }

    fn find_end(&self, bytes: &[u8]) -> Option<usize> {
        match self.ends {
            LineEnds::Lf => memchr(b'\n', bytes),
            LineEnds::LfOrCr { .. } => memchr2(b'\n', b'\r', bytes),
        }
    }

    /// Moves the incomplete line at the end of the chunk to `head`.
    fn keep_head(&mut self) -> Result<(), Failure> {
        let rest = &self.chunk[self.at..];
        if !rest.is_empty() {
            // A trailing CR may belong to the terminator.
            let length = self.head.len() + self.without_cr(rest).len();
            if length > self.limit {
                return Err(self.too_long());
            }
            if self.head.capacity() == 0 {
                self.head.reserve(FIRST_CAPACITY.max(rest.len()));
            }
            self.head.extend_from_slice(rest);
        }
        // The chunk's memory is the connection's read buffer; dropping it makes it reusable.
        self.chunk = Bytes::new();
        self.at = 0;
        Ok(())
    }

    fn skip_lf(&mut self) {
        if let LineEnds::LfOrCr { skip_lf } = &mut self.ends
            && *skip_lf
            && let Some(next) = self.chunk.get(self.at)
        {
            *skip_lf = false;
            self.at += usize::from(*next == b'\n');
        }
    }

    fn clear_lent(&mut self) {
        if self.head_lent {
            clear(&mut self.head);
            self.head_lent = false;
        }
    }

    fn without_cr<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        match self.ends {
            LineEnds::Lf => line.strip_suffix(b"\r").unwrap_or(line),
            LineEnds::LfOrCr { .. } => line,
        }
    }

    fn too_long(&self) -> Failure {
        too_long(self.limit)
    }
}

fn too_long(limit: usize) -> Failure {
    Failure::new(FailureKind::Failed, format!("a line of the answer is longer than {limit} bytes"))
}

/// Clears a buffer, and frees the capacity above [`KEPT_CAPACITY`].
fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEPT_CAPACITY {
        buffer.shrink_to(KEPT_CAPACITY);
    }
}

/// Server-sent event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Value of the `event:` field; empty if absent, for which the standard's default is `message`.
    pub event: &'a [u8],
    /// Values of the `data:` fields, joined by LF.
    pub data: &'a [u8],
}

/// Decodes an event stream as the WHATWG standard parses one ("Server-sent events", 9.2.6).
///
/// Lines end in LF, CR or CRLF; one byte order mark at the beginning is ignored, and so are comments,
/// unknown fields, `id` and `retry`. An event without data is none, and neither is what the end of
/// the stream cuts off before its blank line.
///
/// ```
/// # use crate::lines::SseDecoder;
/// # fn main() -> Result<(), agent_core::error::Failure> {
/// let mut events = SseDecoder::default();
/// events.push(": hello\n\nevent: delta\ndata: {}\n\nda".into());
/// let event = events.next_event()?.unwrap();
/// assert_eq!((event.event, event.data), (&b"delta"[..], &b"{}"[..]));
/// assert_eq!(events.next_event()?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SseDecoder {
    lines: LineSplitter,
    event: Vec<u8>,
    /// Range in the chunk of the only `data` field so far, if it lies within the chunk.
    in_chunk: Option<Range<usize>>,
    /// Values of the `data` fields otherwise, each followed by LF.
    data: Vec<u8>,
    /// True if the buffered event was returned, and must be cleared.
    lent: bool,
    /// True until the first line, which may start with a byte order mark.
    at_start: bool,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new(DEFAULT_LINE_LIMIT)
    }
}

impl SseDecoder {
    /// Creates a decoder for lines, and for data per event, of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let lines = LineSplitter::with_ends(limit, LineEnds::LfOrCr { skip_lf: false });
        Self { lines, event: Vec::new(), in_chunk: None, data: Vec::new(), lent: false, at_start: true }
    }

    /// Adds the next chunk.
    pub fn push(&mut self, chunk: Bytes) {
        self.begin_event();
        self.keep_data();
        self.lines.push(chunk);
    }

    /// Returns the next complete event; `None` if another chunk is needed.
    ///
    /// Data of one line within a chunk is borrowed from it without a copy.
    ///
    /// # Errors
    /// Returns [`FailureKind::Failed`] if a line or an event's data exceeds the limit. The stream must then be
    /// abandoned.
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, Failure> {
        self.begin_event();
        loop {
            let Some(place) = self.lines.find_line()? else {
                self.keep_data();
                return self.lines.keep_head().map(|()| None);
            };
            if self.take_line(&place)? {
                break;
            }
        }
        self.lent = true;
        let data = match &self.in_chunk {
            Some(range) => &self.lines.chunk[range.clone()],
            None => &self.data[..self.data.len() - 1],
        };
        Ok(Some(SseEvent { event: &self.event, data }))
    }

    /// Copies data out of the chunk before the chunk is replaced.
    fn keep_data(&mut self) {
        if let Some(range) = self.in_chunk.take() {
            push_data(&mut self.data, &self.lines.chunk[range]);
        }
    }

    /// Clears the event that was returned.
    fn begin_event(&mut self) {
        if std::mem::take(&mut self.lent) {
            self.event.clear();
            self.in_chunk = None;
            clear(&mut self.data);
        }
    }

    /// Processes a line; returns `true` if it ends an event.
    fn take_line(&mut self, place: &Place) -> Result<bool, Failure> {
        let mut line = self.lines.line(place);
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            let ends = self.in_chunk.is_some() || !self.data.is_empty();
            if !ends {
                self.event.clear();
            }
            return Ok(ends);
        }
        match (split_field(line), place) {
            ((b"data", value), Place::Chunk(line)) if self.in_chunk.is_none() && self.data.is_empty() => {
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
        data.reserve(FIRST_EVENT_CAPACITY.max(value.len() + 1));
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

    fn lines(chunks: &[&[u8]], limit: usize) -> Result<Vec<String>, Failure> {
        let mut splitter = LineSplitter::new(limit);
        let mut found = Vec::new();
        let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
        for chunk in chunks {
            splitter.push(Bytes::copy_from_slice(chunk));
            while let Some(line) = splitter.next_line()? {
                found.push(text(line));
            }
        }
        found.extend(splitter.last_line().map(text));
        assert_eq!(splitter.last_line(), None);
        Ok(found)
    }

    fn events(chunks: &[&[u8]], limit: usize) -> Result<Vec<(String, String)>, Failure> {
        let mut decoder = SseDecoder::new(limit);
        let mut found = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        for chunk in chunks {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(event) = decoder.next_event()? {
                found.push((text(event.event), text(event.data)));
            }
        }
        Ok(found)
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
    fn lends_whole_lines_from_the_chunk() {
        let chunk = Bytes::from_static(b"one\ntwo\n");
        let mut splitter = LineSplitter::default();
        splitter.push(chunk.clone());
        assert_eq!(splitter.next_line().unwrap().unwrap().as_ptr(), chunk.as_ptr());
        assert_eq!(splitter.next_line().unwrap().unwrap().as_ptr(), chunk[4..].as_ptr());
        assert_eq!(splitter.head.capacity(), 0);
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
                    assert_eq!(found.unwrap_err().kind(), FailureKind::Failed, "{stream:?}");
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
        assert!(splitter.head.capacity() <= KEPT_CAPACITY);
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
        assert_eq!((decoder.data.capacity(), decoder.lines.head.capacity()), (0, 0));
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
