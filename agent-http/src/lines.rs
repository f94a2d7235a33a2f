//! Lines and server-sent events out of byte chunks, wherever the chunks are cut.
//!
//! Both decoders are pulled: [`push`](LineSplitter::push) hands over a chunk, then the lines or events
//! that it completes are taken out until there are none. What is left over waits for the next chunk,
//! so that a reader may stop between two lines, and a cut may fall anywhere, within a UTF-8 sequence too.

use std::ops::Range;

use agent_core::error::{Failure, FailureKind};
use bytes::Bytes;
use memchr::{memchr, memchr2};

/// The longest line that [`LineSplitter`] and [`SseDecoder`] take where nothing else is said: 1 MiB.
pub const DEFAULT_LINE_LIMIT: usize = 1 << 20;

/// What a buffer starts with: most lines are shorter, and there is one buffer for every open stream.
const FIRST_CAPACITY: usize = 2 << 10;

/// What an event's buffer starts with: a chunk of a model's answer is shorter.
const FIRST_EVENT_CAPACITY: usize = 256;

/// What a buffer keeps once a long line is through.
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
    /// Where in `chunk` the next line begins.
    at: usize,
    /// The beginning of a line that an earlier chunk left open.
    head: Vec<u8>,
    /// Whether `head` is a line that was lent, and is to be cleared.
    head_lent: bool,
    limit: usize,
    ends: LineEnds,
}

/// Where a line is found.
enum Place {
    /// Whole in the chunk.
    Chunk(Range<usize>),
    /// Put together in the head, until the next line is looked for.
    Head,
}

/// Which bytes end a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnds {
    /// LF; a CR before it belongs to the end.
    Lf,
    /// LF, CR or CRLF. A CR ends its line at once; the LF of a CRLF may come in the next chunk, and is
    /// skipped there.
    LfOrCr { skip_lf: bool },
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new(DEFAULT_LINE_LIMIT)
    }
}

impl LineSplitter {
    /// A splitter that takes lines of at most `limit` bytes, without their ends.
    pub fn new(limit: usize) -> Self {
        Self::with_ends(limit, LineEnds::Lf)
    }

    fn with_ends(limit: usize, ends: LineEnds) -> Self {
        Self { chunk: Bytes::new(), at: 0, head: Vec::new(), head_lent: false, limit, ends }
    }

    /// Hands over the next chunk. Lines of an earlier one that were not taken out are kept, at the
    /// price of a copy.
    pub fn push(&mut self, chunk: Bytes) {
        let rest = &self.chunk[self.at..];
        self.chunk = if rest.is_empty() { chunk } else { [rest, &chunk].concat().into() };
        self.at = 0;
    }

    /// The next whole line, without its end; `None` when another chunk is needed.
    ///
    /// Fails as `Failed` where a line is longer than the limit; the stream is then to be given up.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, Failure> {
        match self.find_line()? {
            Some(place) => Ok(Some(self.line(&place))),
            None => self.keep_head().map(|()| None),
        }
    }

    /// Where the next whole line is, without its end; `None` when another chunk is needed and the head of
    /// the line is to be kept. The chunk stays as it is.
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

    /// What followed the last line end, once the stream has ended and every line was taken out;
    /// `None` where that is nothing.
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

    /// Moves the rest of the chunk, which no line end follows yet, to the head of the next line.
    fn keep_head(&mut self) -> Result<(), Failure> {
        let rest = &self.chunk[self.at..];
        if !rest.is_empty() {
            // A CR may turn out to belong to the line's end.
            let length = self.head.len() + self.without_cr(rest).len();
            if length > self.limit {
                return Err(self.too_long());
            }
            if self.head.capacity() == 0 {
                self.head.reserve(FIRST_CAPACITY.max(rest.len()));
            }
            self.head.extend_from_slice(rest);
        }
        // The chunk's memory is the connection's read buffer: let it be used again.
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

/// Empties a buffer, and gives back what one long line has made it grow to.
fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEPT_CAPACITY {
        buffer.shrink_to(KEPT_CAPACITY);
    }
}

/// One server-sent event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event:` field; empty where there was none, which the standard calls `message`.
    pub event: &'a [u8],
    /// The `data:` fields, joined by LF.
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
    /// The value of the only `data` field so far, where it lies whole in the chunk.
    in_chunk: Option<Range<usize>>,
    /// The values of the `data` fields otherwise, each followed by LF.
    data: Vec<u8>,
    /// Whether the event in the fields was lent, and is to be cleared.
    lent: bool,
    /// Whether no line has been read yet, so that a byte order mark may come.
    at_start: bool,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new(DEFAULT_LINE_LIMIT)
    }
}

impl SseDecoder {
    /// A decoder that takes lines, and the data of an event altogether, of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let lines = LineSplitter::with_ends(limit, LineEnds::LfOrCr { skip_lf: false });
        Self { lines, event: Vec::new(), in_chunk: None, data: Vec::new(), lent: false, at_start: true }
    }

    /// Hands over the next chunk.
    pub fn push(&mut self, chunk: Bytes) {
        self.begin_event();
        self.keep_data();
        self.lines.push(chunk);
    }

    /// The next whole event; `None` when another chunk is needed, or at the stream's end no more come.
    ///
    /// Data of one line that lies whole in a chunk is lent from that chunk without a copy.
    ///
    /// Fails as `Failed` where a line or an event's data is longer than the limit; the stream is then
    /// to be given up.
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

    /// Copies what lies in the chunk, which is about to go.
    fn keep_data(&mut self) {
        if let Some(range) = self.in_chunk.take() {
            push_data(&mut self.data, &self.lines.chunk[range]);
        }
    }

    /// Clears what was lent.
    fn begin_event(&mut self) {
        if std::mem::take(&mut self.lent) {
            self.event.clear();
            self.in_chunk = None;
            clear(&mut self.data);
        }
    }

    /// Takes a line in; `true` says that it ends an event.
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
            // Comments, which have an empty name, and fields that nobody here reads.
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

/// A line's field name and value; one blank after the colon belongs to neither.
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

    /// Feeds `stream` cut in three at every pair of places, and collects what `read` takes out.
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
