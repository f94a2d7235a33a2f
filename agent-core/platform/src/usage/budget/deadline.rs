//! Time limit of runs.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agent_core::error::AgentError;
use agent_core::event::{Event, EventStream, SourceEvent};
use futures_util::future::{BoxFuture, Either, select};
use futures_util::{FutureExt, Stream, StreamExt};

/// Returns the error of a run whose time is over.
pub(super) type ExpireRun = Box<dyn FnOnce() -> AgentError + Send>;

/// Awaits the start of a run and returns its events. The start and the run fail with the error that `expire` returns if they have
/// not ended by the end of a timer.
pub(in crate::usage) async fn start_with_deadline(
    start: impl Future<Output = Result<EventStream, AgentError>> + Unpin,
    mut timer: BoxFuture<'static, ()>,
    expire: ExpireRun,
) -> Result<EventStream, AgentError> {
    let events = match select(start, &mut timer).await {
        Either::Left((started, _)) => started?,
        // Dropping the start cancels what is in progress.
        Either::Right(_) => return Err(expire()),
    };
    Ok(with_deadline(events, timer, expire))
}

/// Returns the events of a run, which fails with the error that `expire` returns if it has not ended by the end of a timer.
pub(super) fn with_deadline(
    events: EventStream,
    timer: BoxFuture<'static, ()>,
    expire: ExpireRun,
) -> EventStream {
    EventStream::new(
        events.run().clone(),
        DeadlineStream { events: Some(events), timer, expire: Some(expire) },
    )
}

struct DeadlineStream {
    /// `None` once the time is over.
    events: Option<EventStream>,
    timer: BoxFuture<'static, ()>,
    expire: Option<ExpireRun>,
}

impl Stream for DeadlineStream {
    type Item = Result<SourceEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        let Poll::Ready(event) = events.poll_next_unpin(cx) else {
            ready!(self.timer.poll_unpin(cx));
            // Dropping the events cancels what is in progress.
            self.events = None;
            return Poll::Ready(self.expire.take().map(|expire| Err(expire())));
        };
        match event {
            // The outer stream has a separate start.
            Some(Event::RunStarted { .. }) => self.poll_next(cx),
            event => Poll::Ready(event.map(|event| Ok(event.into()))),
        }
    }
}
