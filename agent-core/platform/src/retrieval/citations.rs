//! Citations in an answer: marks such as `[1]` that name quoted fragments.

use std::ops::Range;

use agent_core::event::{Event, EventObserver, Id};
use serde_json::{Value, json};

/// Maximum number of citations in the event of a run.
const MAX_CITATIONS: usize = 1_000;
/// Maximum number of digits of a mark.
const MAX_DIGITS: usize = 3;

/// Finds the marks in the texts of an answer, which come in pieces.
#[derive(Debug, Default)]
struct MarkScanner {
    /// Number of characters before the next piece.
    position: usize,
    /// Position of the bracket, and the digits after it.
    open: Option<(usize, String)>,
}

/// A mark: the number in it, and its position in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    number: usize,
    at: Range<usize>,
}

impl MarkScanner {
    /// Reads the next piece of a text.
    fn scan(&mut self, text: &str, mut found: impl FnMut(Mark)) {
        for character in text.chars() {
            let position = self.position;
            self.position += 1;
            match (character, &mut self.open) {
                ('[', open) => *open = Some((position, String::new())),
                ('0'..='9', Some((_, digits))) if digits.len() < MAX_DIGITS => digits.push(character),
                (']', Some((start, digits))) => {
                    if let Ok(number) = digits.parse() {
                        found(Mark { number, at: *start..position + 1 });
                    }
                    self.open = None;
                }
                (_, open @ Some(_)) => *open = None,
                _ => {}
            }
        }
    }
}

/// Announces the quoted fragments at the beginning of a run, and those that the answer cites at its end.
pub(super) struct CitationObserver {
    /// Value of the event `agent.sources`, until it is sent.
    sources: Option<Value>,
    /// Number of fragments, which are numbered from 1.
    fragments: usize,
    message: Option<Id>,
    scanner: MarkScanner,
    citations: Vec<Value>,
    /// Number of marks that name no fragment.
    unknown: usize,
    /// Number of citations beyond the limit.
    omitted: usize,
}

impl CitationObserver {
    pub(super) fn new(sources: Value, fragments: usize) -> Self {
        Self {
            sources: Some(sources),
            fragments,
            message: None,
            scanner: MarkScanner::default(),
            citations: Vec::new(),
            unknown: 0,
            omitted: 0,
        }
    }

    fn read(&mut self, message_id: &Id, delta: &str) {
        if self.message.as_ref() != Some(message_id) {
            self.message = Some(message_id.clone());
            self.scanner = MarkScanner::default();
        }
        let Self { scanner, citations, unknown, omitted, fragments, .. } = self;
        scanner.scan(delta, |mark| match mark.number {
            number if !(1..=*fragments).contains(&number) => *unknown += 1,
            _ if citations.len() == MAX_CITATIONS => *omitted += 1,
            number => citations.push(json!({
                "fragment": number.to_string(),
                "messageId": message_id,
                "at": [mark.at.start, mark.at.end],
            })),
        });
    }

    /// Returns the value of the event `agent.citations`; `None` if the answer has no marks.
    fn report(&mut self) -> Option<Value> {
        if self.citations.is_empty() && self.unknown == 0 {
            return None;
        }
        let mut value = json!({"citations": std::mem::take(&mut self.citations)});
        for (name, count) in [("unknown", self.unknown), ("omitted", self.omitted)] {
            if count > 0 {
                value[name] = count.into();
            }
        }
        Some(value)
    }
}

impl EventObserver for CitationObserver {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        let custom = |name: &str, value| Event::Custom { name: name.into(), value };
        match event {
            Event::RunStarted { .. } => self.sources.take().map(|value| custom("agent.sources", value)),
            Event::TextMessageContent { message_id, delta } => {
                self.read(message_id, delta);
                None
            }
            Event::RunFinished { .. } => self.report().map(|value| custom("agent.citations", value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(pieces: &[&str]) -> Vec<(usize, Range<usize>)> {
        let (mut scanner, mut found) = (MarkScanner::default(), Vec::new());
        for piece in pieces {
            scanner.scan(piece, |mark| found.push((mark.number, mark.at)));
        }
        found
    }

    #[test]
    fn marks_are_found_whatever_the_pieces() {
        for (pieces, expected) in [
            (&["Ten years [1]."][..], vec![(1, 10..13)]),
            (&["ü [", "1", "2", "] and [3]"], vec![(12, 2..6), (3, 11..14)]),
            (&["[[1]]", "[]", "[x1]", "[1", " ]", "[1234]"], vec![(1, 1..4)]),
            (&["[1][2]"], vec![(1, 0..3), (2, 3..6)]),
            (&["[0]"], vec![(0, 0..3)]),
        ] {
            assert_eq!(marks(pieces), expected, "{pieces:?}");
            let complete_text = pieces.concat();
            let characters: Vec<String> = complete_text.chars().map(String::from).collect();
            let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
            assert_eq!(marks(&characters), expected, "{pieces:?}");
        }
    }

    #[test]
    fn citations_name_fragments_that_were_sent() {
        let mut observer = CitationObserver::new(json!({"fragments": []}), 2);
        let text =
            |id: &str, delta: &str| Event::TextMessageContent { message_id: id.into(), delta: delta.into() };
        let start = Event::RunStarted { thread_id: "t".into(), run_id: "r".into() };
        assert!(
            matches!(observer.observe(&start), Some(Event::Custom { name, .. }) if name == "agent.sources")
        );
        for event in [text("m1", "a [2] b [3]"), text("m2", "["), text("m2", "1]"), text("m2", "[0]")] {
            assert!(observer.observe(&event).is_none());
        }
        let finished = Event::RunFinished {
            thread_id: "t".into(),
            run_id: "r".into(),
            result: None,
            outcome: None,
            usage: Vec::new(),
        };
        let Some(Event::Custom { name, value }) = observer.observe(&finished) else { panic!("no citations") };
        assert_eq!(name, "agent.citations");
        let expected = json!({"citations": [
            {"fragment": "2", "messageId": "m1", "at": [2, 5]},
            {"fragment": "1", "messageId": "m2", "at": [0, 3]},
        ], "unknown": 2});
        assert_eq!(value, expected);
    }

    #[test]
    fn citations_are_bounded() {
        let mut observer = CitationObserver::new(json!({}), 1);
        observer.read(&"m".into(), &"[1]".repeat(MAX_CITATIONS + 5));
        let report = observer.report().expect("there are citations");
        assert_eq!(report["citations"].as_array().map(Vec::len), Some(MAX_CITATIONS));
        assert_eq!(report["omitted"], 5);
    }
}
