//! Events of a run that has started, of one that starts, or of one that is queued.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use agent_core::event::{EventStream, OutputLimits, RunEnd, RunIds};
use agent_core::tool::WholeDelivery;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use tokio::time::{Instant, Sleep};

use super::StreamLimits;
use super::encode::KEEP_ALIVE_INTERVAL;
use super::timer::StreamTimer;
use crate::error::HttpError;

/// Events of a run that has started, of one that starts, or of one that is queued.
pub(crate) struct RunSource {
    /// The events; for a run that has not started its start alone.
    events: EventStream,
    pending: Option<Box<PendingRun>>,
    whole_delivery: Option<WholeDelivery>,
    is_replay: bool,
}

/// A run that is queued, or whose backend starts.
struct PendingRun {
    begin: BoxFuture<'static, Result<EventStream, HttpError>>,
    is_queued: bool,
    queue_error: QueueErrorSlot,
}

impl RunSource {
    /// Creates the source of a queued run. `begin` waits until it may begin and begins it.
    pub(crate) fn queued(run: RunIds, begin: BoxFuture<'static, Result<EventStream, HttpError>>) -> Self {
        Self::pending(run, begin, true)
    }

    /// Creates the source of a run that is stored, whose backend `start` starts. An error of the start ends the run.
    pub(crate) fn starting(run: RunIds, start: BoxFuture<'static, Result<EventStream, HttpError>>) -> Self {
        Self::pending(run, start, false)
    }

    fn pending(
        run: RunIds,
        begin: BoxFuture<'static, Result<EventStream, HttpError>>,
        is_queued: bool,
    ) -> Self {
        let pending = PendingRun { begin, is_queued, queue_error: QueueErrorSlot::default() };
        let events = EventStream::new(run, stream::pending());
        Self { pending: Some(Box::new(pending)), ..Self::from(events) }
    }

    /// Creates the source of the events of a run's log. Output and silence are limited where the run is, and not here.
    pub(crate) fn replay(log: EventStream) -> Self {
        let no_limits = OutputLimits { max_answer_bytes: usize::MAX, max_run_bytes: usize::MAX };
        Self { is_replay: true, ..Self::from(log.with_output_limits(no_limits)) }
    }

    /// Sets how the run's answer is delivered, as its request has it. While its model limits the silence of answers, the time
    /// without an event is not limited.
    pub(crate) fn with_whole_delivery(self, whole_delivery: Option<WholeDelivery>) -> Self {
        Self { whole_delivery, ..self }
    }

    /// Returns the run's identifiers.
    pub(crate) fn run(&self) -> &RunIds {
        self.events.run()
    }

    /// Returns true if the run is queued.
    pub(crate) fn is_queued(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.is_queued)
    }

    /// Returns true if the events come from a run's log.
    pub(super) fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// Returns the slot for the error of a queued run that cannot begin.
    pub(super) fn queue_error(&self) -> QueueErrorSlot {
        self.pending.as_ref().map(|pending| pending.queue_error.clone()).unwrap_or_default()
    }

    /// Returns the events, the delivery of the answer and, for a run that has not started, the wait before them.
    pub(super) fn into_parts(
        self,
        limits: &StreamLimits,
    ) -> (EventStream, Option<WholeDelivery>, Option<Box<QueueWait>>) {
        let wait = self.pending.map(|pending| {
            let PendingRun { begin, queue_error, .. } = *pending;
            let keep_alive = Box::pin(tokio::time::sleep(KEEP_ALIVE_INTERVAL));
            Box::new(QueueWait { begin, queue_error, keep_alive, limits: limits.clone() })
        });
        (self.events, self.whole_delivery, wait)
    }
}

impl From<EventStream> for RunSource {
    fn from(events: EventStream) -> Self {
        Self { events, pending: None, whole_delivery: None, is_replay: false }
    }
}

/// Slot for the error of a queued run that could not begin, for responses that have no head yet.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueErrorSlot(Arc<Mutex<Option<HttpError>>>);

impl QueueErrorSlot {
    /// Takes the error out of the slot; returns `error`, the error of the run, if the slot is empty.
    pub(super) fn take_or(self, error: impl Into<HttpError>) -> HttpError {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_else(|| error.into())
    }
}

/// Wait of a queued run.
pub(super) struct QueueWait {
    begin: BoxFuture<'static, Result<EventStream, HttpError>>,
    queue_error: QueueErrorSlot,
    keep_alive: Pin<Box<Sleep>>,
    limits: StreamLimits,
}

impl QueueWait {
    /// Polls for the beginning of the run: its events with a timer that begins now, or the end of a run that is refused.
    pub(super) fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(EventStream, StreamTimer), RunEnd>> {
        Poll::Ready(match ready!(self.begin.poll_unpin(cx)) {
            Ok(events) => Ok((events, StreamTimer::new(&self.limits))),
            Err(error) => {
                let (message, code) = (error.detail().to_owned(), error.code().as_str().to_owned());
                *self.queue_error.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Err(RunEnd::Failed { message, code, usage: Vec::new() })
            }
        })
    }

    /// Returns `Ready` once each [`KEEP_ALIVE_INTERVAL`].
    pub(super) fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.keep_alive.as_mut().poll(cx));
        self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE_INTERVAL);
        // Registers the waker for the next time.
        let _ = self.keep_alive.as_mut().poll(cx);
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_core::event::SourceEvent;
    use http_body_util::BodyExt;

    use super::super::{Framing, run_response};
    use super::*;
    use crate::error::Code;

    fn ids() -> RunIds {
        RunIds { thread_id: "t".into(), run_id: "r".into() }
    }

    /// A run that is queued for 40 seconds and then takes two.
    fn queued() -> RunSource {
        let begin = async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            let end = RunEnd::Finished { result: None, outcome: None, usage: Vec::new() };
            let source = stream::once(async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                Ok(SourceEvent::End(end))
            });
            Ok(EventStream::new(ids(), source))
        };
        RunSource::queued(ids(), begin.boxed())
    }

    fn limits() -> StreamLimits {
        let (idle_timeout, run_timeout) = (Duration::from_secs(3), Duration::from_secs(5));
        StreamLimits { idle_timeout, run_timeout, ..StreamLimits::default() }
    }

    async fn frames(framing: Framing) -> Vec<String> {
        let mut body = run_response(framing, queued(), None, &limits())
            .await
            .expect("the head comes at once")
            .into_body();
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.expect("a frame").into_data().expect("data");
            frames.push(String::from_utf8(data.to_vec()).expect("text"));
        }
        frames
    }

    #[tokio::test(start_paused = true)]
    async fn a_queued_run_sends_keep_alives_and_its_limits_begin_with_it() {
        for (framing, sign) in [
            (Framing::Sse, ": queued\n\n"),
            (Framing::UiMessage, ": queued\n\n"),
            (Framing::Ndjson, "\n"),
            (Framing::N8n, "\n"),
        ] {
            let frames = frames(framing).await;
            assert_eq!(frames[..2], [sign, sign], "every 15 seconds: {frames:?}");
            let remaining_frames = frames[2..].concat();
            assert!(
                !remaining_frames.contains("queued") && !remaining_frames.contains("RUN_ERROR"),
                "{remaining_frames}"
            );
            if framing == Framing::Sse {
                assert!(
                    remaining_frames.starts_with("id: 0\ndata: {\"type\":\"RUN_STARTED\""),
                    "{remaining_frames}"
                );
                assert!(remaining_frames.contains("RUN_FINISHED"), "{remaining_frames}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_of_a_start_ends_a_run_that_is_not_queued() {
        let start = std::future::ready(Err(HttpError::new(Code::BackendFailed, "the backend is away")));
        let source = RunSource::starting(ids(), start.boxed());
        assert!(!source.is_queued() && queued().is_queued());
        let response = run_response(Framing::Ndjson, source, None, &limits()).await.expect("it has begun");
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        assert!(text.contains("RUN_STARTED") && text.contains("\"code\":\"BACKEND_FAILED\""), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_an_event_or_the_response() {
        let refused = || {
            let refusal = HttpError::new(Code::InterruptsOpen, "the thread waits");
            RunSource::queued(ids(), std::future::ready(Err(refusal)).boxed())
        };
        let response = run_response(Framing::Ndjson, refused(), None, &limits()).await.expect("it has begun");
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        assert!(text.contains("RUN_STARTED") && text.contains("\"code\":\"INTERRUPTS_OPEN\""), "{text}");
        let error = run_response(Framing::Json, refused(), None, &limits()).await.expect_err("no head yet");
        assert_eq!(error.code(), Code::InterruptsOpen);
    }
}
