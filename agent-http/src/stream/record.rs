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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use agent_core::event::{EventStream, RunEnd, RunIds, SourceEvent};
    use futures_util::{StreamExt, stream};
    use tokio::sync::oneshot;

    use super::super::{StreamLimits, TimeoutStream};
    use super::*;

    /// A recorder that names the events in a list, and whose end is stored when `stored` says so.
    struct ListRecorder {
        names: Arc<Mutex<Vec<&'static str>>>,
        stored: Option<oneshot::Receiver<Event>>,
    }

    impl RunRecorder for ListRecorder {
        fn record(&mut self, event: &Event) {
            self.names.lock().expect("unpoisoned").push(event.name());
        }

        fn finish(&mut self, terminal: Event) -> BoxFuture<'static, Event> {
            let stored = self.stored.take().expect("the end is stored once");
            async move { stored.await.unwrap_or(terminal) }.boxed()
        }
    }

    impl Drop for ListRecorder {
        fn drop(&mut self) {
            let has_left = self.stored.is_some();
            self.names.lock().expect("unpoisoned").push(if has_left { "left" } else { "over" });
        }
    }

    fn recorded(
        source: Vec<SourceEvent>,
    ) -> (TimeoutStream, oneshot::Sender<Event>, Arc<Mutex<Vec<&'static str>>>) {
        let (stored, receiver) = oneshot::channel();
        let names = Arc::new(Mutex::new(Vec::new()));
        let recorder = ListRecorder { names: names.clone(), stored: Some(receiver) };
        let run = RunIds { thread_id: "t".into(), run_id: "r".into() };
        let source = stream::iter(source.into_iter().map(Ok)).chain(stream::pending());
        let limits = StreamLimits { idle_timeout: Duration::from_secs(1), ..StreamLimits::default() };
        let events = TimeoutStream::new(EventStream::new(run, source), &limits);
        (events.with_recorder(Some(Box::new(recorder))), stored, names)
    }

    fn finished() -> SourceEvent {
        SourceEvent::End(RunEnd::Finished { finish_reason: None, outcome: None, usage: Vec::new() })
    }

    #[tokio::test(start_paused = true)]
    async fn the_terminal_event_waits_until_the_end_is_stored() {
        let (mut events, stored, names) = recorded(vec![finished()]);
        assert_eq!(events.next().await.expect("it begins").name(), "RUN_STARTED");
        // The limits on the run have no effect any more.
        let waiting = tokio::time::timeout(Duration::from_secs(3_600), events.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        assert_eq!(*names.lock().expect("unpoisoned"), ["RUN_STARTED", "RUN_FINISHED"]);
        let failed = Event::RunError { message: "m".into(), code: "C".into(), usage: Vec::new() };
        stored.send(failed.clone()).expect("it is awaited");
        assert_eq!(events.next().await, Some(failed));
        assert_eq!(events.next().await, None);
        drop(events);
        assert_eq!(names.lock().expect("unpoisoned").last(), Some(&"over"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_recorded_as_the_run_s_end() {
        let (mut events, stored, names) = recorded(vec![]);
        drop(stored);
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event.name());
        }
        assert_eq!(all, ["RUN_STARTED", "RUN_ERROR"]);
        assert_eq!(*names.lock().expect("unpoisoned"), all);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_drops_the_recorder() {
        let (mut events, _stored, names) = recorded(vec![]);
        assert_eq!(events.next().await.expect("it begins").name(), "RUN_STARTED");
        drop(events);
        assert_eq!(*names.lock().expect("unpoisoned"), ["RUN_STARTED", "left"]);
    }
}
