//! Packed form of a run's events, as the log of the run stores them.
//!
//! A chunk is a sequence of records: a tag, a length as LEB128, and that number of bytes. The bytes of an
//! [`EVENT`] are the event's JSON on the wire; those of a [`DELTA`] are the text that the next event of the same kind
//! and message appends. A chunk begins with an [`EVENT`], so that it is read alone.

use agent_core::event::{Event, Id};

/// Tag of an event in its JSON form.
const EVENT: u8 = 1;
/// Tag of an event that differs from the previous one in its delta only.
const DELTA: u8 = 2;

/// Consecutive events of a run's log, packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// Number of the first event; events are numbered from 0.
    pub first: u64,
    /// Number of the last event.
    pub last: u64,
    /// The packed events.
    pub body: Vec<u8>,
}

/// Kind of an event that appends text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeltaKind {
    Text,
    Reasoning,
    Arguments,
}

impl DeltaKind {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::TextMessageContent { .. } => Some(Self::Text),
            Event::ReasoningMessageContent { .. } => Some(Self::Reasoning),
            Event::ToolCallArgs { .. } => Some(Self::Arguments),
            _ => None,
        }
    }

    fn event(self, id: Id, delta: String) -> Event {
        match self {
            Self::Text => Event::TextMessageContent { message_id: id, delta },
            Self::Reasoning => Event::ReasoningMessageContent { message_id: id, delta },
            Self::Arguments => Event::ToolCallArgs { tool_call_id: id, delta },
        }
    }
}

/// Packs events into a chunk.
#[derive(Debug, Clone, Default)]
pub struct ChunkWriter {
    first: u64,
    count: u64,
    body: Vec<u8>,
    previous: Option<(DeltaKind, Id)>,
}

impl ChunkWriter {
    /// Creates a writer of the events from number `first` on.
    pub fn new(first: u64) -> Self {
        Self { first, ..Self::default() }
    }

    /// Returns the number of the first event.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of the next event.
    pub fn next(&self) -> u64 {
        self.first + self.count
    }

    /// Returns the packed events so far.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Appends an event.
    pub fn push(&mut self, event: &Event) {
        self.count += 1;
        let kind = DeltaKind::of(event);
        if let (Some(kind), Some((id, delta)), Some((before, message))) =
            (kind, event.delta(), &self.previous)
            && kind == *before
            && (Id::ptr_eq(id, message) || id == message)
        {
            write_record(&mut self.body, DELTA, delta.as_bytes());
            return;
        }
        self.previous = kind.zip(event.delta().map(|(id, _)| id.clone()));
        // Events are maps with string keys, so serialization cannot fail.
        let json = serde_json::to_vec(event).unwrap_or_default();
        write_record(&mut self.body, EVENT, &json);
    }

    /// Returns the chunk, and begins the next one; `None` without events.
    pub fn take(&mut self) -> Option<LogChunk> {
        let next = Self::new(self.next());
        let Self { first, count, body, .. } = std::mem::replace(self, next);
        let last = (first + count).checked_sub(1).filter(|_| count > 0)?;
        Some(LogChunk { first, last, body })
    }
}

fn write_record(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

/// Error of a chunk that is not a sequence of packed events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log of the run is damaged")]
pub struct LogError;

/// Unpacks the events of a chunk, which may be given part by part.
#[derive(Debug, Default)]
pub struct ChunkReader {
    previous: Option<(DeltaKind, Id)>,
}

impl ChunkReader {
    /// Passes the events of the next whole records to `each`.
    ///
    /// # Errors
    /// [`LogError`] if the bytes are not whole records.
    pub fn read(&mut self, bytes: &[u8], mut each: impl FnMut(Event)) -> Result<(), LogError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (tag, record) = split_record(&mut rest).ok_or(LogError)?;
            let event = match (tag, &self.previous) {
                (DELTA, Some((kind, id))) => {
                    let delta = std::str::from_utf8(record).map_err(|_| LogError)?;
                    kind.event(id.clone(), delta.to_owned())
                }
                (EVENT, _) => {
                    let event: Event = serde_json::from_slice(record).map_err(|_| LogError)?;
                    self.previous = DeltaKind::of(&event).zip(event.delta().map(|(id, _)| id.clone()));
                    event
                }
                _ => return Err(LogError),
            };
            each(event);
        }
        Ok(())
    }
}

fn split_record<'b>(rest: &mut &'b [u8]) -> Option<(u8, &'b [u8])> {
    let (&tag, mut bytes) = rest.split_first()?;
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let (&byte, after) = bytes.split_first()?;
        bytes = after;
        length |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let (record, after) = bytes.split_at_checked(length)?;
    *rest = after;
    Some((tag, record))
}

impl LogChunk {
    /// Unpacks the events.
    ///
    /// # Errors
    /// [`LogError`] if the chunk is damaged.
    pub fn events(&self) -> Result<Vec<Event>, LogError> {
        let mut events = Vec::with_capacity(usize::try_from(self.last - self.first).unwrap_or_default() + 1);
        ChunkReader::default().read(&self.body, |event| events.push(event))?;
        Ok(events)
    }
}

#[cfg(test)]
mod tests;
