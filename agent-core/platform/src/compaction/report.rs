//! Report of a shortened history, for previews and for the events of a run.

use std::fmt;
use std::sync::Arc;

use agent_core::event::{Audience, Event, EventObserver};
use agent_core::prompt::LayerReport;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::tasks::{SummaryJob, SummaryTasks};

/// Member of a preview with the report.
const PREVIEW_MEMBER: &str = "compaction";

/// Origin of the summary in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SummaryOrigin {
    /// Read from the store.
    Stored,
    /// Made while the turn waited.
    Made,
    /// No summary: the messages are left out.
    Missing,
}

impl SummaryOrigin {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Made => "made",
            Self::Missing => "missing",
        }
    }
}

/// Numbers of a shortened history.
#[derive(Debug, Clone, Default)]
pub(super) struct ShorteningStats {
    /// Number of messages that the text replaces.
    pub(super) messages: usize,
    /// Number of tool results that are left out.
    pub(super) tool_results: usize,
    /// Number of further messages that are left out.
    pub(super) left_out: usize,
    pub(super) tokens_before: usize,
    pub(super) tokens_after: usize,
    /// Text in place of the messages.
    pub(super) text: Option<String>,
    pub(super) origin: Option<SummaryOrigin>,
}

impl ShorteningStats {
    fn to_json(&self, has_text: bool) -> Value {
        let mut value = json!({
            "messages": self.messages,
            "toolResults": self.tool_results,
            "tokensBefore": self.tokens_before,
            "tokensAfter": self.tokens_after,
        });
        if self.left_out > 0 {
            value["leftOut"] = self.left_out.into();
        }
        if let Some(origin) = self.origin {
            value["summary"] = origin.as_str().into();
        }
        if let Some(text) = &self.text {
            value["sha256"] = hex::encode(Sha256::digest(text)).into();
            if has_text {
                value["text"] = text.as_str().into();
            }
        }
        value
    }
}

/// Report of the changes to a history, with the summary that is made after the run.
pub(super) struct CompactionReport {
    /// `None` if the history was sent as it is.
    pub(super) shortened: Option<ShorteningStats>,
    /// Summary that a later turn needs.
    pub(super) next: Option<(Arc<SummaryTasks>, SummaryJob)>,
}

impl fmt::Debug for CompactionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactionReport").field("has_next", &self.next.is_some()).finish_non_exhaustive()
    }
}

impl LayerReport for CompactionReport {
    fn preview(&self) -> (&'static str, Value) {
        (PREVIEW_MEMBER, self.shortened.clone().unwrap_or_default().to_json(true))
    }

    fn observer(&self, audience: Audience) -> Option<Box<dyn EventObserver>> {
        let announced = self.shortened.as_ref().filter(|_| audience == Audience::Trusted);
        let announced = announced.map(|shortened| {
            let mut value = shortened.to_json(false);
            value["kind"] = "compacted".into();
            Event::Custom { name: "agent.debug".to_owned(), value }
        });
        Some(Box::new(CompactionObserver { announced, next: self.next.clone() }))
    }
}

/// Announces the report, and starts the next summary when the run has ended.
struct CompactionObserver {
    announced: Option<Event>,
    next: Option<(Arc<SummaryTasks>, SummaryJob)>,
}

impl EventObserver for CompactionObserver {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        if event.is_terminal() {
            self.start_next();
        }
        self.announced.take()
    }
}

impl CompactionObserver {
    fn start_next(&mut self) {
        if let Some((tasks, job)) = self.next.take() {
            // The turn that needs it waits for it.
            drop(tasks.start(job));
        }
    }
}

impl Drop for CompactionObserver {
    fn drop(&mut self) {
        self.start_next();
    }
}
