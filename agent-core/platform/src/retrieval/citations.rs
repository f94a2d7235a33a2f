//! Citations in an answer: marks such as `[1]` that name quoted fragments.

use agent_core::event::{Event, EventObserver, Id};
use serde_json::{Value, json};

use super::citation_marks::{Mark, MarkScanner};

/// Maximum number of citations in the event of a run.
const MAX_CITATIONS: usize = 1_000;

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
            self.finish_message();
            self.message = Some(message_id.clone());
        }
        let mut found = Vec::new();
        self.scanner.scan(delta, &mut found);
        self.cite(found);
    }

    /// Ends the message that was read, which may have marks that were held back.
    fn finish_message(&mut self) {
        let mut found = Vec::new();
        std::mem::take(&mut self.scanner).finish(&mut found);
        self.cite(found);
    }

    fn cite(&mut self, marks: Vec<Mark>) {
        for mark in marks {
            match mark.number {
                // A number after a word, such as the index of an array, is not counted as an unknown citation.
                number if !(1..=self.fragments).contains(&number) => {
                    self.unknown += usize::from(!mark.follows_word);
                }
                _ if self.citations.len() == MAX_CITATIONS => self.omitted += 1,
                number => self.citations.push(json!({
                    "fragment": number.to_string(),
                    "messageId": self.message,
                    "at": [mark.at.start, mark.at.end],
                })),
            }
        }
    }

    /// Returns the value of the event `agent.citations`; `None` if the answer has no marks.
    fn report(&mut self) -> Option<Value> {
        self.finish_message();
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

    #[test]
    fn citations_name_fragments_that_were_sent() {
        let mut observer = CitationObserver::new(json!({"fragments": []}), 2);
        let text =
            |id: &str, delta: &str| Event::TextMessageContent { message_id: id.into(), delta: delta.into() };
        let start = Event::RunStarted { thread_id: "t".into(), run_id: "r".into() };
        assert!(
            matches!(observer.observe(&start), Some(Event::Custom { name, .. }) if name == "agent.sources")
        );
        let messages = [
            text("m1", "a [2] b [3]"),
            text("m2", "Years"),
            text("m2", "[1]"),
            text("m2", "[0] and array[7]"),
        ];
        for event in messages {
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
            {"fragment": "1", "messageId": "m2", "at": [5, 8]},
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
