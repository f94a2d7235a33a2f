//! End of a live run's log: the events that the store does not have yet, packed.

use std::collections::HashSet;
use std::time::Instant;

use agent_core::event::{Event, Id};
use agent_platform::conversation::{ChunkReader, ChunkWriter, LogChunk};

/// Maximum size of a run's log; events beyond it are not logged, except for the terminal event.
pub(in crate::app) const MAX_LOG_BYTES: usize = 32 << 20;
/// Maximum size of the events that wait to be stored; the store is unavailable when there are more.
const MAX_WAITING_BYTES: usize = 1 << 20;
/// Size from which waiting events are stored without delay.
const LARGE_TAIL_BYTES: usize = 64 << 10;
/// Size from which a run waits until events are stored.
const LAGGING_TAIL_BYTES: usize = MAX_WAITING_BYTES / 2;

/// Packed events of one run from the first that is not stored.
#[derive(Debug)]
pub(in crate::app) struct Tail {
    /// Chunk that is being stored, or that was not stored because of an error and will be retried.
    storing: Option<LogChunk>,
    /// Events after it.
    open: ChunkWriter,
    /// Time of the first event of `open`.
    since: Option<Instant>,
    logged_bytes: usize,
    /// Present once events are missing.
    gap: Option<LogGap>,
    state: TailState,
}

/// Rest of a log with missing events: the ends of the items that are open in the log, and the terminal event.
#[derive(Debug, Default)]
struct LogGap {
    /// Messages, calls and steps whose starts are missing, and whose ends are too.
    unlogged: HashSet<(ItemKind, Id)>,
}

/// Kind of an item that is opened by one event and closed by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ItemKind {
    Text,
    Reasoning,
    ReasoningMessage,
    Call,
    Step,
}

impl LogGap {
    /// Returns true if an event closes an item that is open in the log.
    fn closes_logged(&mut self, event: &Event) -> bool {
        let (kind, id, is_start) = match event {
            Event::TextMessageStart { message_id, .. } => (ItemKind::Text, message_id, true),
            Event::TextMessageEnd { message_id } => (ItemKind::Text, message_id, false),
            Event::ReasoningStart { message_id } => (ItemKind::Reasoning, message_id, true),
            Event::ReasoningEnd { message_id } => (ItemKind::Reasoning, message_id, false),
            Event::ReasoningMessageStart { message_id, .. } => (ItemKind::ReasoningMessage, message_id, true),
            Event::ReasoningMessageEnd { message_id } => (ItemKind::ReasoningMessage, message_id, false),
            Event::ToolCallStart { tool_call_id, .. } => (ItemKind::Call, tool_call_id, true),
            Event::ToolCallEnd { tool_call_id } => (ItemKind::Call, tool_call_id, false),
            Event::StepStarted { step_name } => (ItemKind::Step, step_name, true),
            Event::StepFinished { step_name } => (ItemKind::Step, step_name, false),
            _ => return false,
        };
        let item = (kind, id.clone());
        if is_start {
            self.unlogged.insert(item);
            return false;
        }
        !self.unlogged.remove(&item)
    }
}

#[derive(Debug)]
enum TailState {
    Live,
    /// The end is being stored; `open` will be this, which has the terminal event.
    Ending(ChunkWriter),
    /// The log is complete.
    Over,
    /// The log was completed by another process; the store has it.
    Lost,
}

/// Position of a reader in a log.
#[derive(Debug, Default)]
pub(in crate::app) struct LogCursor {
    /// Number of the next event.
    pub(in crate::app) next: u64,
    /// First event of the chunk that was read last, the number of its bytes that were read, and the reader's state.
    position: Option<(u64, usize, ChunkReader)>,
}

impl LogCursor {
    /// Returns a cursor before event `next`.
    pub(in crate::app) fn at(next: u64) -> Self {
        Self { next, position: None }
    }
}

/// Result of reading the tail.
#[derive(Debug, PartialEq)]
pub(in crate::app) enum TailRead {
    /// The next events.
    Events(Vec<Event>),
    /// The next events are in the store.
    Stored,
    /// No further event has been recorded yet.
    Pending,
    /// The log has ended.
    Over,
}

impl Tail {
    pub(in crate::app) fn new() -> Self {
        Self {
            storing: None,
            open: ChunkWriter::default(),
            since: None,
            logged_bytes: 0,
            gap: None,
            state: TailState::Live,
        }
    }

    /// Returns the number of the events so far.
    pub(in crate::app) fn count(&self) -> u64 {
        self.open.next()
    }

    /// Appends an event. Returns true if the tail has just become large enough to be stored at once.
    pub(in crate::app) fn push(&mut self, event: &Event) -> bool {
        if !matches!(self.state, TailState::Live) {
            return false;
        }
        let old_len = self.open.body().len();
        let is_full = self.logged_bytes >= MAX_LOG_BYTES || old_len >= MAX_WAITING_BYTES;
        if is_full {
            self.gap.get_or_insert_default();
        }
        if self.gap.as_mut().is_some_and(|gap| !gap.closes_logged(event)) {
            return false;
        }
        if old_len == 0 {
            self.since = Some(Instant::now());
        }
        self.open.push(event);
        let new_len = self.open.body().len();
        self.logged_bytes += new_len - old_len;
        old_len < LARGE_TAIL_BYTES && new_len >= LARGE_TAIL_BYTES
    }

    /// Returns true if events have waited since `limit` or are many.
    pub(in crate::app) fn is_due(&self, limit: Instant) -> bool {
        let is_old = self.since.is_some_and(|since| since <= limit);
        self.storing.is_some() || is_old || self.open.body().len() >= LARGE_TAIL_BYTES
    }

    /// Returns true if the number of waiting events is so large that the run should wait, too.
    pub(in crate::app) fn is_lagging(&self) -> bool {
        self.gap.is_none() && self.open.body().len() >= LAGGING_TAIL_BYTES
    }

    /// Returns the chunk to store: the chunk that could not be stored before, otherwise all waiting events.
    pub(in crate::app) fn begin_store(&mut self) -> Option<LogChunk> {
        if !matches!(self.state, TailState::Live) {
            return None;
        }
        if self.storing.is_none() {
            self.since = None;
            self.storing = self.open.take();
        }
        self.storing.clone()
    }

    /// Records that the chunk was stored.
    pub(in crate::app) fn mark_stored(&mut self) {
        self.storing = None;
    }

    /// Begins to end the log. Returns the chunks to store, the last of which has the terminal event, and true if events
    /// are missing.
    pub(in crate::app) fn end(&mut self, terminal: &Event) -> (Vec<LogChunk>, bool) {
        let mut last = self.open.clone();
        last.push(terminal);
        self.state = TailState::Ending(last.clone());
        (self.storing.clone().into_iter().chain(last.take()).collect(), self.gap.is_some())
    }

    /// Records that the end was stored, or that another process has ended the log.
    pub(in crate::app) fn close(&mut self, is_stored: bool) {
        let state = if is_stored { TailState::Over } else { TailState::Lost };
        if let TailState::Ending(last) = std::mem::replace(&mut self.state, state)
            && is_stored
        {
            self.open = last;
        }
    }

    /// Reads the events from the cursor on, and moves it.
    pub(in crate::app) fn read(&self, cursor: &mut LogCursor) -> TailRead {
        if matches!(self.state, TailState::Lost) {
            return TailRead::Stored;
        }
        if cursor.next >= self.open.next() {
            return match self.state {
                TailState::Over => TailRead::Over,
                _ => TailRead::Pending,
            };
        }
        let (first, body) = match &self.storing {
            Some(chunk) if cursor.next < self.open.first() => (chunk.first, chunk.body.as_slice()),
            _ => (self.open.first(), self.open.body()),
        };
        if cursor.next < first {
            return TailRead::Stored;
        }
        let (mut index, offset, mut reader) = match cursor.position.take() {
            Some((chunk, offset, reader)) if chunk == first => (cursor.next, offset, reader),
            _ => (first, 0, ChunkReader::default()),
        };
        let mut events = Vec::new();
        // The tail's records are complete.
        let _ = reader.read(&body[offset..], |event| {
            if index >= cursor.next {
                events.push(event);
            }
            index += 1;
        });
        cursor.next = index;
        cursor.position = Some((first, body.len(), reader));
        TailRead::Events(events)
    }
}

#[cfg(test)]
mod tests {
    use agent_core::event::{AssistantRole, EventGrammar};

    use super::*;

    fn events() -> Vec<Event> {
        let text = |n: u32| Event::TextMessageContent { message_id: "m".into(), delta: format!("{n} ") };
        let start = Event::TextMessageStart { message_id: "m".into(), role: AssistantRole::Assistant };
        std::iter::once(start).chain((1..20).map(text)).collect()
    }

    fn terminal() -> Event {
        Event::RunError { message: "no".into(), code: "X".into(), usage: Vec::new() }
    }

    /// A log in a vector, as the store has it.
    fn stored_from(store: &[LogChunk], cursor: &mut LogCursor) -> Vec<Event> {
        let all: Vec<Event> = store.iter().flat_map(|chunk| chunk.events().expect("intact")).collect();
        let found = all.into_iter().skip(usize::try_from(cursor.next).expect("small")).collect::<Vec<_>>();
        cursor.next += found.len() as u64;
        found
    }

    /// Appends a chunk as the store does.
    fn append(store: &mut Vec<LogChunk>, chunk: LogChunk) {
        if store.iter().all(|found| found.first != chunk.first) {
            store.push(chunk);
        }
    }

    #[test]
    fn concurrent_readers_have_neither_gaps_nor_duplicates() {
        // Each reader begins at another event, and reads at other times. The tail is stored in four phases: a commit whose answer
        // is lost, one that is acknowledged, one that fails, and none.
        for pattern in 0..256_u32 {
            let (mut tail, mut store) = (Tail::new(), Vec::new());
            let mut readers: Vec<(u64, LogCursor, Vec<Event>)> =
                (0..20).map(|from| (from, LogCursor::at(from), Vec::new())).collect();
            let read = |tail: &Tail,
                        store: &[LogChunk],
                        at: usize,
                        readers: &mut Vec<(u64, LogCursor, Vec<Event>)>| {
                for (from, cursor, found) in
                    readers.iter_mut().filter(|(from, ..)| (at + *from as usize).is_multiple_of(3))
                {
                    loop {
                        match tail.read(cursor) {
                            TailRead::Events(events) => found.extend(events),
                            TailRead::Stored => found.extend(stored_from(store, cursor)),
                            TailRead::Pending | TailRead::Over => break,
                        }
                    }
                    assert!(found.len() as u64 + *from >= cursor.next, "{from}");
                }
            };
            for (at, event) in events().iter().enumerate() {
                tail.push(event);
                match (pattern / 4_u32.pow(at as u32 % 4)) % 4 {
                    1 => {
                        if let Some(chunk) = tail.begin_store() {
                            read(&tail, &store, at, &mut readers);
                            append(&mut store, chunk);
                        }
                    }
                    2 => {
                        if let Some(chunk) = tail.storing.clone() {
                            append(&mut store, chunk);
                            tail.mark_stored();
                        }
                    }
                    3 => {
                        let before = tail.storing.clone();
                        let failed = tail.begin_store();
                        assert!(before.is_none() || failed == before, "the same chunk is stored again");
                    }
                    _ => {}
                }
                read(&tail, &store, at, &mut readers);
            }
            let (chunks, is_incomplete) = tail.end(&terminal());
            assert!(!is_incomplete);
            (0..3).for_each(|at| read(&tail, &store, at, &mut readers));
            chunks.into_iter().for_each(|chunk| append(&mut store, chunk));
            let all: Vec<Event> = events().into_iter().chain([terminal()]).collect();
            assert_eq!(stored_from(&store, &mut LogCursor::default()), all, "{pattern}");
            tail.close(true);
            (0..3).for_each(|at| read(&tail, &store, at, &mut readers));
            for (from, _, found) in readers {
                assert_eq!(found, all[from as usize..], "{pattern}: from {from}");
            }
        }
    }

    #[test]
    fn the_terminal_event_is_read_once_it_is_stored() {
        let mut tail = Tail::new();
        tail.push(&events()[0]);
        let (chunks, _) = tail.end(&terminal());
        assert_eq!((chunks.len(), chunks[0].last), (1, 1));
        let mut cursor = LogCursor::at(1);
        assert_eq!(tail.read(&mut cursor), TailRead::Pending);
        assert_eq!(tail.begin_store(), None, "the end stores the rest");
        tail.close(true);
        assert_eq!(tail.read(&mut cursor), TailRead::Events(vec![terminal()]));
        assert_eq!(tail.read(&mut cursor), TailRead::Over);
    }

    #[test]
    fn a_log_ended_elsewhere_is_read_from_the_store() {
        let mut tail = Tail::new();
        for event in events() {
            tail.push(&event);
        }
        tail.close(false);
        assert_eq!(tail.read(&mut LogCursor::default()), TailRead::Stored);
        assert_eq!(tail.begin_store(), None);
    }

    #[test]
    fn a_log_with_a_gap_closes_what_it_has_open() {
        let mut tail = Tail::new();
        let (early, round): (Id, Id) = ("early".into(), "round-1".into());
        let start =
            |id: &Id| Event::TextMessageStart { message_id: id.clone(), role: AssistantRole::Assistant };
        let say = |id: &Id, delta: &str| Event::TextMessageContent {
            message_id: id.clone(),
            delta: delta.to_owned(),
        };
        tail.push(&Event::RunStarted { thread_id: "t".into(), run_id: "r".into() });
        tail.push(&Event::StepStarted { step_name: round.clone() });
        tail.push(&start(&early));
        tail.push(&say(&early, &"x".repeat(MAX_WAITING_BYTES)));
        assert!(tail.is_lagging());
        let late: Id = "late".into();
        for event in [
            say(&early, "missing"),
            start(&late),
            say(&late, "missing"),
            Event::TextMessageEnd { message_id: late.clone() },
            Event::TextMessageEnd { message_id: early.clone() },
            Event::ToolCallStart {
                tool_call_id: late.clone(),
                tool_call_name: "look".into(),
                parent_message_id: None,
            },
            Event::ToolCallEnd { tool_call_id: late.clone() },
            Event::StepFinished { step_name: round },
        ] {
            tail.push(&event);
        }
        assert!(!tail.is_lagging(), "a run whose log has a gap does not wait");
        let finished = Event::RunFinished {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: None,
            outcome: None,
            usage: Vec::new(),
        };
        let (chunks, is_incomplete) = tail.end(&finished);
        let logged: Vec<Event> = chunks.iter().flat_map(|chunk| chunk.events().expect("intact")).collect();
        assert!(is_incomplete);
        EventGrammar::check(&logged).expect("what is open is closed");
        assert_eq!(logged.len(), 7);
    }

    #[test]
    fn waiting_events_are_bounded_while_the_store_is_unavailable() {
        let mut tail = Tail::new();
        let big = Event::TextMessageContent { message_id: "m".into(), delta: "x".repeat(10_000) };
        assert_eq!((0..10).filter(|_| tail.push(&big)).count(), 1, "it is large once");
        for _ in 0..1_000 {
            tail.push(&big);
        }
        assert!(tail.open.body().len() < MAX_WAITING_BYTES + 20_000);
        let (chunks, is_incomplete) = tail.end(&terminal());
        assert!(is_incomplete);
        assert_eq!(chunks[0].events().expect("intact").last(), Some(&terminal()));
    }
}
