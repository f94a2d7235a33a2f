//! Recording of a run: its events on their way to the client, and its end, which is stored before the client learns of
//! it.

use std::task::{Context, Poll, ready};

use agent_core::event::Event;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// Recorder of a run's events. Dropped without [`finish`](Self::finish), the client has left the run.
pub(crate) trait RunRecorder: Send {
    /// Records an event, before the client receives it.
    fn record(&mut self, event: &Event);

    /// Stores the end of the run, after its terminal event was recorded. Returns the terminal event to send.
    fn finish(&mut self, terminal: Event) -> BoxFuture<'static, Event>;
}

/// State of a recorded run. Boxed in streams, which are rarely recorded.
pub(super) struct Recording {
    recorder: Box<dyn RunRecorder>,
    /// Pending end of the run.
    end: Option<BoxFuture<'static, Event>>,
}

impl Recording {
    pub(super) fn new(recorder: Box<dyn RunRecorder>) -> Self {
        Self { recorder, end: None }
    }

    /// Returns true while the end of the run is being stored.
    pub(super) fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Records an event on its way; holds back the terminal one until the end is stored.
    pub(super) fn pass(&mut self, event: Event, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.recorder.record(&event);
        if !event.is_terminal() {
            return Poll::Ready(Some(event));
        }
        self.end = Some(self.recorder.finish(event));
        self.poll_end(cx)
    }

    /// Polls the pending end of the run.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let terminal = ready!(end.poll_unpin(cx));
        self.end = None;
        Poll::Ready(Some(terminal))
    }
}
