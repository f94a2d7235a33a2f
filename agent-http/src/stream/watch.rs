//! Idle and total timeouts of a run, and its end at shutdown.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventStream};
use agent_core::tool::WholeDelivery;
use futures_util::{FutureExt, Stream, StreamExt};

use super::StreamLimits;
use super::encode::KEEP_ALIVE_INTERVAL;
use super::record::{DisconnectOutcome, Recording, RunRecorder};
use super::source::{QueueWait, RunSource};
use super::timer::{StreamTimeout, StreamTimer};
use crate::shutdown::{EndingObserver, shutting_down};

/// Event stream that fails when it is idle, or runs, for too long, or when the service shuts down.
pub(super) struct TimeoutStream {
    events: EventStream,
    timer: StreamTimer,
    ending: EndingObserver,
    recording: Option<Box<Recording>>,
    /// Present while the run is queued, or starts without a client. Then the limits have no effect, and `events` has nothing but
    /// the start.
    waiting: Option<Box<QueueWait>>,
    whole_delivery: Option<WholeDelivery>,
    /// True for the log of a run, whose silence is not limited.
    is_replay: bool,
}

impl TimeoutStream {
    pub(super) fn new(source: impl Into<RunSource>, limits: &StreamLimits) -> Self {
        let source = source.into();
        let (is_replay, ending) = (source.is_replay(), limits.shutdown.observe_ending());
        let timer = match is_replay {
            true => StreamTimer::new(&StreamLimits { idle_timeout: KEEP_ALIVE_INTERVAL, ..limits.clone() }),
            false => StreamTimer::new(limits),
        };
        let (events, whole_delivery, waiting) = source.into_parts(limits);
        Self { events, timer, ending, recording: None, waiting, whole_delivery, is_replay }
    }

    /// Records the run.
    pub(super) fn with_recorder(mut self, recorder: Option<Box<dyn RunRecorder>>) -> Self {
        self.recording = recorder.map(|recorder| Box::new(Recording::new(recorder)));
        self
    }

    /// Returns true while the end of the run is being stored. The run itself has ended.
    fn is_ending(&self) -> bool {
        self.recording.as_ref().is_some_and(|recording| recording.is_ending())
    }

    /// Ends or continues the run without its client. Must be called inside a tokio runtime.
    pub(super) fn client_disconnected(mut self) {
        let Some(recording) = self.recording.as_mut().filter(|recording| !recording.is_ending()) else {
            return;
        };
        match recording.client_disconnected() {
            (_, None) => {}
            (DisconnectOutcome::End(end), _) => {
                self.waiting = None;
                self.events.finish(end);
                // The rest of the events is ready, and the end is stored in the background.
                while let Some(Some(_)) = self.next().now_or_never() {}
            }
            (DisconnectOutcome::Continue, Some(spawner)) => {
                spawner.spawn(self.for_each(|_| std::future::ready(())).boxed());
            }
        }
    }

    /// Polls for a request to stop the run. `Ready` means that it has ended the run.
    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(recording) = &mut self.recording else { return Poll::Pending };
        let end = ready!(recording.poll_stop(cx));
        match self.events.is_over() {
            true => Poll::Pending,
            false => {
                self.waiting = None;
                self.events.finish(end);
                Poll::Ready(())
            }
        }
    }

    /// Polls the shutdown. `Ready` means that it has ended the run.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.ending.poll(cx));
        self.waiting = None;
        self.events.fail(shutting_down());
        Poll::Ready(())
    }

    /// Fails the run at a timeout.
    fn expire(&mut self, timeout: Poll<StreamTimeout>) -> Poll<()> {
        let (reason, limit) = match ready!(timeout) {
            StreamTimeout::Idle(limit) => ("the backend sent no event for", limit),
            StreamTimeout::Total(limit) => ("the run exceeded the time limit of", limit),
        };
        let message = format!("{reason} {} seconds", limit.as_secs_f64());
        self.events.fail(AgentError::new(AgentErrorKind::Timeout, message));
        Poll::Ready(())
    }

    /// Polls for the next event. The limits and the shutdown are checked only from time to time, since a source that is
    /// ready needs no timer.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(recording) = self.recording.as_mut().filter(|recording| recording.is_ending()) {
            return recording.poll_end(cx);
        }
        ready!(self.poll_begin(cx));
        if self.timer.is_check_due() && self.poll_stop(cx).is_pending() && self.poll_shutdown(cx).is_pending()
        {
            let timeout = self.timer.poll_busy(cx);
            let _ = self.expire(timeout);
        }
        if let Some(recording) = self.recording.as_mut().filter(|_| !self.events.is_over()) {
            ready!(recording.poll_ready(cx));
        }
        let polled = self.events.poll_next_unpin(cx);
        if polled.is_ready() {
            self.timer.record_item();
        }
        match (polled, &mut self.recording) {
            (Poll::Ready(Some(event)), Some(recording)) => recording.pass(event, cx),
            (polled, _) => polled,
        }
    }

    /// Records that the client's format has nothing for the latest event.
    pub(super) fn record_unwritten_event(&mut self) {
        self.timer.record_unseen_item();
    }

    /// Polls the limits and the shutdown; to be called when the source is pending. `Ready` means that the run has
    /// failed, and the source must be polled again for the error event.
    pub(super) fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_ending() {
            return Poll::Pending;
        }
        if self.poll_stop(cx).is_ready() || self.poll_shutdown(cx).is_ready() {
            return Poll::Ready(());
        }
        if self.waiting.is_some() {
            return Poll::Pending;
        }
        if self.whole_delivery.as_ref().is_some_and(WholeDelivery::is_silence_limited) {
            // The model limits the silence: a round that is held back has no events, and is not idle.
            self.timer.record_item();
        }
        if self.events.take_hidden() || self.is_replay {
            // The limit applies to the backend's silence, not to that of the client's stream.
            self.timer.record_hidden_items();
        }
        let timeout = self.timer.poll_pending(cx);
        self.expire(timeout)
    }

    /// Polls for the beginning of a queued run.
    fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(()) };
        match ready!(waiting.poll_begin(cx)) {
            Ok((events, timer)) => (self.events, self.timer) = (events, timer),
            Err(end) => self.events.finish(end),
        }
        self.waiting = None;
        Poll::Ready(())
    }

    /// Returns true while the run is queued.
    pub(super) fn is_queued(&self) -> bool {
        self.waiting.is_some()
    }

    /// Polls for the next keep-alive to the client of a run that is queued, or that has had only events which the client
    /// does not see; to be called when the source is pending, after the limits.
    pub(super) fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.waiting {
            Some(waiting) => waiting.poll_keep_alive(cx),
            None if self.timer.take_keep_alive() => Poll::Ready(()),
            None => Poll::Pending,
        }
    }
}

impl Stream for TimeoutStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Poll::Ready(event) = self.poll_event(cx) {
            return Poll::Ready(event);
        }
        ready!(self.poll_limits(cx));
        self.poll_event(cx)
    }
}

/// Event stream of a client that leaves the run when this is dropped before the end.
pub(super) struct AttachedStream(pub(super) Option<TimeoutStream>);

impl Stream for AttachedStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let Some(events) = &mut self.0 else { return Poll::Ready(None) };
        let polled = ready!(events.poll_next_unpin(cx));
        if polled.is_none() {
            self.0 = None;
        }
        Poll::Ready(polled)
    }
}

impl Drop for AttachedStream {
    fn drop(&mut self) {
        if let Some(events) = self.0.take() {
            events.client_disconnected();
        }
    }
}
