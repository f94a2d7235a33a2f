//! Reader of a response that is an event stream.

use agent_core::error::{AgentError, AgentErrorKind};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use http_body::Frame;
use http_body_util::StreamBody;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::{Sse, SseStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::errors;
use super::errors::{MAX_RESULT_BYTES, failed};
use super::message::with_marked_numbers;
use super::transport::ResponseStream;

/// Maximum size of the stream that answers one call, including its progress notifications, in bytes.
const MAX_STREAM_BYTES: usize = 4 * MAX_RESULT_BYTES;

/// Returns the events of the response to request `id`. An error that ends the stream becomes its last event, a JSON-RPC
/// error for `id`; after the answer it has no effect. Numbers of structured content keep their digits.
pub(super) fn event_stream(
    reader: EventReader,
    id: RequestId,
    closed: watch::Receiver<()>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let events = stream::unfold(Some((reader, id, closed)), |state| async move {
        let (mut reader, id, mut closed) = state?;
        let event = tokio::select! {
            biased;
            _ = closed.changed() => Err(failed("the run has ended")),
            event = reader.next() => event,
        };
        match event {
            Ok(mut event) => {
                if let Some(message) = event.data.as_deref().and_then(with_marked_numbers) {
                    event.data = Some(message.to_string());
                }
                Some((Ok(event), Some((reader, id, closed))))
            }
            Err(failure) => {
                let data = serde_json::to_string(&errors::to_rpc_error(&failure, id)).ok();
                Some((Ok(Sse { event: None, data, id: None, retry: None }), None))
            }
        }
    });
    events.boxed()
}

/// Reads the events of one response.
pub(super) struct EventReader {
    events: BoxStream<'static, Result<Sse, sse_stream::Error>>,
    deadline: Instant,
}

impl EventReader {
    pub(super) fn new(body: ResponseStream, deadline: Instant) -> Self {
        Self { events: SseStream::new(StreamBody::new(limit_stream(body))).boxed(), deadline }
    }

    /// Returns the next event with data.
    pub(super) async fn next(&mut self) -> Result<Sse, AgentError> {
        loop {
            let event = timeout_at(self.deadline, self.events.next()).await;
            let event =
                event.map_err(|_| AgentError::new(AgentErrorKind::Timeout, "the response timed out"))?;
            let event =
                event.ok_or_else(|| failed("the response ended before the result"))?.map_err(stream_error)?;
            // An event without data only carries an id from which the stream could be resumed.
            if event.data.as_deref().is_some_and(|data| !data.trim_ascii().is_empty()) {
                return Ok(Sse { id: None, retry: None, ..event });
            }
        }
    }
}

/// Limits an event stream in total and per line.
fn limit_stream(body: ResponseStream) -> impl Stream<Item = Result<Frame<Bytes>, AgentError>> {
    let (mut received, mut line_bytes) = (0_usize, 0_usize);
    body.map(move |chunk| {
        let chunk = chunk?;
        received += chunk.len();
        if received > MAX_STREAM_BYTES {
            let message = format!("the response exceeds {MAX_STREAM_BYTES} bytes");
            return Err(AgentError::new(AgentErrorKind::Failed, message));
        }
        for line in chunk.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            line_bytes += line.len();
            if line_bytes > MAX_RESULT_BYTES {
                let message = format!("a line of the response exceeds {MAX_RESULT_BYTES} bytes");
                return Err(AgentError::new(AgentErrorKind::Failed, message));
            }
            if line.ends_with(b"\n") || line.ends_with(b"\r") {
                line_bytes = 0;
            }
        }
        Ok(Frame::data(chunk))
    })
}

/// Maps an error of the decoder; one of the body's own comes back as it was.
fn stream_error(error: sse_stream::Error) -> AgentError {
    match error {
        sse_stream::Error::Body(error) => match error.downcast::<AgentError>() {
            Ok(error) => *error,
            Err(_) => failed("the response is not an event stream"),
        },
        _ => failed("the response is not an event stream"),
    }
}
