//! Reader of a response that is an event stream.

use agent_client::lines::SseDecoder;
use agent_client::outbound::BodyStream;
use agent_core::error::{AgentError, AgentErrorKind};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::fault;
use super::http_client::{MAX_RESULT_BYTES, failed};

/// Maximum size of the stream that answers one call, including its progress notifications, in bytes.
const MAX_STREAM_BYTES: usize = 4 * MAX_RESULT_BYTES;

/// Returns the events of the response to request `id`. An error that ends the stream becomes its last event, a JSON-RPC
/// error for `id`; after the answer it has no effect.
pub(super) fn event_stream(
    body: BodyStream,
    id: RequestId,
    deadline: Instant,
    closed: watch::Receiver<()>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let decoder = SseDecoder::new(MAX_RESULT_BYTES);
    let reading = EventReader { body, decoder, received: 0, deadline, closed };
    let events = stream::unfold(Some((reading, id)), |state| async move {
        let (mut reading, id) = state?;
        match reading.next().await {
            Ok(event) => Some((Ok(event), Some((reading, id)))),
            Err(failure) => {
                let data = serde_json::to_string(&fault::to_rpc_error(&failure, id)).ok();
                Some((Ok(Sse { event: None, data, id: None, retry: None }), None))
            }
        }
    });
    events.boxed()
}

struct EventReader {
    body: BodyStream,
    decoder: SseDecoder,
    received: usize,
    deadline: Instant,
    closed: watch::Receiver<()>,
}

impl EventReader {
    async fn next(&mut self) -> Result<Sse, AgentError> {
        loop {
            if let Some(event) = self.decoder.next_event()? {
                // An event without data only carries an id from which the stream could be resumed.
                if event.data.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let name = Some(text(event.event)).filter(|name| !name.is_empty());
                return Ok(Sse { event: name, data: Some(text(event.data)), id: None, retry: None });
            }
            let chunk = tokio::select! {
                biased;
                _ = self.closed.changed() => return Err(failed("the run is over")),
                chunk = timeout_at(self.deadline, self.body.next()) => chunk,
            };
            let chunk =
                chunk.map_err(|_| AgentError::new(AgentErrorKind::Timeout, "it took too long to answer"))?;
            let chunk = chunk.ok_or_else(|| failed("it ended its answer early"))??;
            self.received += chunk.len();
            if self.received > MAX_STREAM_BYTES {
                return Err(failed("its answer goes on and on"));
            }
            self.decoder.push(chunk);
        }
    }
}
