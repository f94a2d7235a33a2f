//! Recording of a run: its events on their way to the client, its end, which is stored before the client receives it,
//! and its course when the client disconnects or the run is stopped.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_core::event::{Event, RunEnd};
use agent_core::ids::RunId;
use agent_platform::spawner::Spawner;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// Treatment of a run whose client has disconnected.
pub(crate) enum DisconnectOutcome {
    /// The run ends.
    End(RunEnd),
    /// The run continues without a client, until [`RunRecorder::poll_stop`] is ready or it ends.
    Continue,
}

/// Recorder of a run's events.
pub(crate) trait RunRecorder: Send {
    /// Returns the id of the turn that the run belongs to, which is the id of the turn's first run.
    fn turn_id(&self) -> Option<RunId>;

    /// Records an event, before the client receives it.
    fn record(&mut self, event: &Event);

    /// Polls until the recorder can take further events; it takes the events of the end at any time.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Stores the end of the run, after its terminal event was recorded. Returns the terminal event to send.
    fn finish(&mut self, terminal: Event) -> BoxFuture<'static, Event>;

    /// Polls for a request to stop the run, which ends as returned.
    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<RunEnd>;

    /// Decides about a run whose client has disconnected, which is called once.
    fn client_disconnected(&mut self) -> DisconnectOutcome;

    /// Returns the spawner of the task in which a run continues without a client; `None` if its end is being stored.
    fn spawner(&self) -> Option<Arc<dyn Spawner>>;
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

    /// Polls until further events can be recorded.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.recorder.poll_ready(cx)
    }

    /// Polls for a request to stop the run.
    pub(super) fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<RunEnd> {
        self.recorder.poll_stop(cx)
    }

    /// Decides about a run whose client has disconnected.
    pub(super) fn client_disconnected(&mut self) -> (DisconnectOutcome, Option<Arc<dyn Spawner>>) {
        let spawner = self.recorder.spawner();
        (self.recorder.client_disconnected(), spawner)
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
    use std::sync::Mutex;
    use std::time::Duration;

    use agent_core::error::AgentError;
    use agent_core::event::{AssistantRole, EventStream, RunIds, RunOutcome, SourceEvent};
    use futures_util::{Stream, StreamExt, stream};
    use tokio::sync::{mpsc, oneshot};

    use super::super::{StreamLimits, TimeoutStream};
    use super::*;

    /// A recorder that names the events in a list, and whose end is stored when `stored` says so.
    struct ListRecorder {
        names: Arc<Mutex<Vec<&'static str>>>,
        stored: Option<oneshot::Receiver<Event>>,
        stop: Option<oneshot::Receiver<()>>,
        continues: bool,
    }

    impl RunRecorder for ListRecorder {
        fn turn_id(&self) -> Option<RunId> {
            None
        }

        fn record(&mut self, event: &Event) {
            self.names.lock().expect("unpoisoned").push(event.name());
        }

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }

        fn finish(&mut self, terminal: Event) -> BoxFuture<'static, Event> {
            let stored = self.stored.take().expect("the end is stored once");
            async move { stored.await.unwrap_or(terminal) }.boxed()
        }

        fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<RunEnd> {
            let Some(stop) = &mut self.stop else { return Poll::Pending };
            let stopped = ready!(stop.poll_unpin(cx));
            self.stop = None;
            // Without a sender, nothing stops the run.
            if stopped.is_ok() { Poll::Ready(cancelled()) } else { Poll::Pending }
        }

        fn client_disconnected(&mut self) -> DisconnectOutcome {
            self.names.lock().expect("unpoisoned").push("left");
            if self.continues { DisconnectOutcome::Continue } else { DisconnectOutcome::End(cancelled()) }
        }

        fn spawner(&self) -> Option<Arc<dyn Spawner>> {
            Some(Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task))))
        }
    }

    fn cancelled() -> RunEnd {
        RunEnd::Finished { result: None, outcome: Some(RunOutcome::Cancelled), usage: Vec::new() }
    }

    type Names = Arc<Mutex<Vec<&'static str>>>;

    fn recorded(source: Vec<SourceEvent>) -> (TimeoutStream, oneshot::Sender<Event>, Names) {
        let source = stream::iter(source.into_iter().map(Ok)).chain(stream::pending());
        let (events, stored, _, names) = recorded_from(source, false);
        (events, stored, names)
    }

    fn recorded_from(
        source: impl Stream<Item = Result<SourceEvent, AgentError>> + Send + 'static,
        continues: bool,
    ) -> (TimeoutStream, oneshot::Sender<Event>, oneshot::Sender<()>, Names) {
        let (stored, receiver) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let names = Arc::new(Mutex::new(Vec::new()));
        let recorder =
            ListRecorder { names: names.clone(), stored: Some(receiver), stop: Some(stopped), continues };
        let run = RunIds { thread_id: "t".into(), run_id: "r".into() };
        let limits = StreamLimits { idle_timeout: Duration::from_secs(1), ..StreamLimits::default() };
        let events = TimeoutStream::new(EventStream::new(run, source), &limits);
        (events.with_recorder(Some(Box::new(recorder))), stored, stop, names)
    }

    fn finished() -> SourceEvent {
        SourceEvent::End(RunEnd::Finished { result: None, outcome: None, usage: Vec::new() })
    }

    #[tokio::test(start_paused = true)]
    async fn the_terminal_event_waits_until_the_end_is_stored() {
        let (mut events, stored, names) = recorded(vec![finished()]);
        assert_eq!(events.next().await.expect("it begins").name(), "RUN_STARTED");
        // The limits on the run no longer have an effect.
        let waiting = tokio::time::timeout(Duration::from_secs(3_600), events.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        assert_eq!(*names.lock().expect("unpoisoned"), ["RUN_STARTED", "RUN_FINISHED"]);
        let failed = Event::RunError { message: "m".into(), code: "C".into(), usage: Vec::new() };
        stored.send(failed.clone()).expect("it is awaited");
        assert_eq!(events.next().await, Some(failed));
        assert_eq!(events.next().await, None);
        events.client_disconnected();
        assert_eq!(names.lock().expect("unpoisoned").last(), Some(&"left"));
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

    fn text() -> SourceEvent {
        Event::TextMessageStart { message_id: "m".into(), role: AssistantRole::Assistant }.into()
    }

    const CLOSED: [&str; 5] =
        ["RUN_STARTED", "TEXT_MESSAGE_START", "left", "TEXT_MESSAGE_END", "RUN_FINISHED"];

    #[tokio::test(start_paused = true)]
    async fn a_run_that_ends_when_its_client_leaves_is_closed() {
        let (mut events, _stored, names) = recorded(vec![text()]);
        assert_eq!(events.next().await.expect("it begins").name(), "RUN_STARTED");
        assert_eq!(events.next().await.expect("it says").name(), "TEXT_MESSAGE_START");
        events.client_disconnected();
        assert_eq!(*names.lock().expect("unpoisoned"), CLOSED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_continued_run_is_recorded_to_its_end() {
        let (source, mut receiver) = mpsc::unbounded_channel();
        let (mut events, stored, _stop, names) =
            recorded_from(stream::poll_fn(move |cx| receiver.poll_recv(cx)), true);
        source.send(Ok(text())).expect("it is read");
        assert_eq!(events.next().await.expect("it begins").name(), "RUN_STARTED");
        assert_eq!(events.next().await.expect("it says").name(), "TEXT_MESSAGE_START");
        events.client_disconnected();
        source.send(Ok(finished())).expect("it is still read");
        stored
            .send(Event::RunError { message: "m".into(), code: "C".into(), usage: Vec::new() })
            .expect("it waits");
        source.closed().await;
        assert_eq!(*names.lock().expect("unpoisoned"), CLOSED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_run_drops_its_source_and_is_closed() {
        let (source, mut receiver) = mpsc::unbounded_channel();
        let (mut events, _stored, stop, names) =
            recorded_from(stream::poll_fn(move |cx| receiver.poll_recv(cx)), false);
        source.send(Ok(text())).expect("it is read");
        for _ in 0..2 {
            events.next().await.expect("it goes on");
        }
        let reading = tokio::spawn(async move { events.next().await.map(|event| event.name()) });
        tokio::task::yield_now().await;
        stop.send(()).expect("it is heard");
        assert_eq!(reading.await.expect("it ends"), Some("TEXT_MESSAGE_END"));
        assert!(source.is_closed());
        assert_eq!(names.lock().expect("unpoisoned").last(), Some(&"TEXT_MESSAGE_END"));
    }
}
