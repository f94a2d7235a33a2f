//! Content negotiation and framing of responses: NDJSON lines, one JSON object, or an event stream.
//!
//! `rmcp` responds with JSON or server-sent events. This module converts its responses to the framing that the client
//! accepts. Clients without an `Accept` header get lines. Clients that accept both JSON and events get an event stream
//! only if there are messages besides the answer.

use std::convert::Infallible;

use agent_platform::company_permits::CompanyPermit;
use agent_platform::exact_json;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use mediatype::{MediaTypeList, Name, ReadParams};
use rmcp::model::RequestId;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::admission::AdmissionError;
use super::rpc_error::RpcErrorResponse;
use crate::body::{ResponseBody, empty, full, streaming};

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const EVENTS: &str = "text/event-stream";

/// Framing of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// NDJSON: one message per line.
    Ndjson,
    /// The answer alone, as JSON.
    Json,
    /// The answer as JSON if it is the only message, else all messages as server-sent events.
    Events,
}

impl Framing {
    /// Selects the framing of a response by the request's `Accept` headers.
    pub(super) fn negotiate(method: &Method, headers: &HeaderMap) -> Result<Self, AdmissionError> {
        let Some(accepted) = Accepted::read(headers) else { return Ok(Self::Ndjson) };
        let Accepted { ndjson, json, events, any } = accepted;
        let streams_alone = *method == Method::GET;
        if events && (json || any || streams_alone) {
            Ok(Self::Events)
        } else if ndjson || (any && !json) {
            Ok(Self::Ndjson)
        } else if json && !streams_alone {
            Ok(Self::Json)
        } else if *method == Method::DELETE {
            // The response to DELETE has no body.
            Ok(Self::Json)
        } else {
            Err(AdmissionError::NotAcceptable)
        }
    }

    /// Returns the media type of a response that is a single message.
    pub(super) fn single_message_content_type(self) -> &'static str {
        match self {
            Self::Ndjson => NDJSON,
            Self::Json | Self::Events => JSON,
        }
    }

    /// Converts the response of `rmcp` to a request of `method` and `id`.
    pub(super) async fn apply(
        self,
        method: &Method,
        id: Option<RequestId>,
        response: Response<BoxBody<Bytes, Infallible>>,
    ) -> Response<ResponseBody> {
        let (head, body) = response.into_parts();
        let response = Response::from_parts(head, ());
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match content_type {
            Some(JSON) => {
                let body = collect_body(body).await;
                self.single_message(response, &body)
            }
            Some(EVENTS) if *method == Method::GET && self == Self::Events => {
                response.map(|()| body.map_err(|never| match never {}).boxed_unsync())
            }
            Some(EVENTS) => match self {
                Self::Ndjson => to_ndjson(response, body),
                Self::Json | Self::Events => self.answer_or_events(response, body).await,
            },
            _ if response.status().is_success() => {
                let mut response = response.map(|()| empty());
                // `rmcp` answers 202 for a session that has ended; some clients treat all but 204 as an error.
                if *method == Method::DELETE {
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    response.headers_mut().remove(CONTENT_LENGTH);
                }
                response
            }
            _ => {
                let text = collect_body(body).await;
                RpcErrorResponse::from_rmcp_text(id, &response, &text)
                    .respond(self.single_message_content_type())
            }
        }
    }

    /// Builds a response of one message and a newline.
    fn single_message(self, response: Response<()>, message: &[u8]) -> Response<ResponseBody> {
        let line = [message, b"\n"].concat();
        let mut response = response.map(|()| full(line));
        let headers = response.headers_mut();
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.single_message_content_type()));
        response
    }

    /// Reads the first event, and responds with JSON if it is the answer, else with the event stream.
    async fn answer_or_events(
        self,
        response: Response<()>,
        mut body: BoxBody<Bytes, Infallible>,
    ) -> Response<ResponseBody> {
        let mut chunks = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.unwrap_or_else(|never| match never {}).into_data() else { continue };
            if let Some(message) = message_of_event(&data) {
                if is_answer(message) {
                    if chunks.is_empty() || self == Self::Json {
                        return self.single_message(response, message);
                    }
                } else if self == Self::Events {
                    chunks.push(data);
                    return pass_through(response, chunks, body);
                }
            }
            // A keep-alive comment means that the answer takes long, so the stream is opened for the client to see it
            // too.
            if self == Self::Events && data.starts_with(b":") {
                chunks.push(data);
                return pass_through(response, chunks, body);
            }
        }
        // A cancelled request has no answer.
        pass_through(response, chunks, body)
    }
}

/// Replaces the [marked texts](exact_json) of tool results by their numbers. Each frame of `rmcp` has whole messages.
pub(super) fn with_exact_numbers(body: BoxBody<Bytes, Infallible>) -> BoxBody<Bytes, Infallible> {
    let exact = |data: Bytes| match exact_json::unmark(&data) {
        Some(json) => Bytes::from(json),
        None => data,
    };
    body.map_frame(move |frame| frame.map_data(exact)).boxed()
}

/// The media types that the `Accept` headers name, without those excluded by `q=0`.
struct Accepted {
    ndjson: bool,
    json: bool,
    events: bool,
    any: bool,
}

impl Accepted {
    /// Parses the `Accept` headers; returns `None` if there are none, or all are empty.
    fn read(headers: &HeaderMap) -> Option<Self> {
        const Q: Name<'static> = Name::new_unchecked("q");
        let mut has_value = false;
        let mut accepted = Self { ndjson: false, json: false, events: false, any: false };
        for header in headers.get_all(ACCEPT) {
            has_value |= !header.as_bytes().trim_ascii().is_empty();
            for range in MediaTypeList::new(header.to_str().unwrap_or_default()).flatten() {
                let is_excluded = range.get_param(Q).is_some_and(|q| q.as_str().parse() == Ok(0.0_f32));
                let name = range.essence().to_string().to_ascii_lowercase();
                match name.as_str() {
                    _ if is_excluded => {}
                    NDJSON => accepted.ndjson = true,
                    JSON => accepted.json = true,
                    EVENTS => accepted.events = true,
                    "*/*" | "application/*" => accepted.any = true,
                    _ => {}
                }
            }
        }
        has_value.then_some(accepted)
    }
}

/// Returns the `Accept` header that `rmcp` requires, independent of the client's framing.
pub(super) fn accept_all() -> HeaderValue {
    HeaderValue::from_static("application/json, text/event-stream")
}

async fn collect_body(body: BoxBody<Bytes, Infallible>) -> Bytes {
    body.collect().await.unwrap_or_else(|never| match never {}).to_bytes()
}

/// Returns true if a message is an answer: requests and notifications have a method.
fn is_answer(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Message {
        method: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Message>(message).is_ok_and(|message| message.method.is_none())
}

/// Builds a response of the chunks already read and the rest of the body.
fn pass_through(
    response: Response<()>,
    chunks: Vec<Bytes>,
    body: BoxBody<Bytes, Infallible>,
) -> Response<ResponseBody> {
    let body = stream::iter(chunks.into_iter().map(Ok::<_, Infallible>)).chain(body.into_data_stream());
    response.map(|()| streaming(body))
}

/// Ends the response when `end` completes, if it has not ended before.
pub(super) fn end_stream_when(
    response: Response<ResponseBody>,
    end: impl Future<Output = ()> + Send + 'static,
) -> Response<ResponseBody> {
    response.map(|body| streaming(body.into_data_stream().take_until(end)))
}

/// Returns the message in a chunk of `rmcp`'s event stream; `None` for a comment or an event without a message.
///
/// `rmcp` writes each event as one chunk, and its message as one `data:` line.
fn message_of_event(chunk: &[u8]) -> Option<&[u8]> {
    let data = chunk.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data: "));
    data.filter(|data| !data.is_empty())
}

/// Converts an event stream to NDJSON, one line per message.
fn to_ndjson(response: Response<()>, body: BoxBody<Bytes, Infallible>) -> Response<ResponseBody> {
    let lines = body.into_data_stream().filter_map(|chunk| {
        let chunk = chunk.unwrap_or_else(|never| match never {});
        let line = message_of_event(&chunk).map(|message| Bytes::from([message, b"\n"].concat()));
        std::future::ready(line.map(Ok::<_, Infallible>))
    });
    let mut response = response.map(|()| streaming(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    response
}

/// Returns the response, whose body holds the permit until it is dropped.
pub(super) fn hold_permit(response: Response<ResponseBody>, permit: CompanyPermit) -> Response<ResponseBody> {
    response.map(|body| {
        streaming(body.into_data_stream().map(move |data| {
            let _held = &permit;
            data
        }))
    })
}

#[cfg(test)]
mod tests {
    use sse_stream::Sse;

    use super::*;

    #[test]
    fn a_message_is_found_in_the_event_that_rmcp_writes() {
        let message = r#"{"jsonrpc":"2.0","method":"a\nid: 7"}"#;
        for (event, expected) in [
            (Sse::default().data(message), Some(message)),
            (Sse::default().data(message).id("3/1").retry(3000), Some(message)),
            (Sse::default().event("message").data(message), Some(message)),
            (Sse::default().data("").id("0").retry(3000), None),
            (Sse::default().id("0"), None),
        ] {
            let chunk = Bytes::from(event.clone());
            assert_eq!(message_of_event(&chunk), expected.map(str::as_bytes), "{event:?}");
        }
        assert_eq!(message_of_event(b":\n\n"), None);
    }

    #[test]
    fn accept_chooses_the_framing() {
        use Framing::{Events, Json, Ndjson};
        let cases: &[(&[&str], Option<Framing>, Option<Framing>)] = &[
            (&[], Some(Ndjson), Some(Ndjson)),
            (&[""], Some(Ndjson), Some(Ndjson)),
            (&["*/*"], Some(Ndjson), Some(Ndjson)),
            (&["application/*"], Some(Ndjson), Some(Ndjson)),
            (&["application/x-ndjson"], Some(Ndjson), Some(Ndjson)),
            (&["Application/X-NDJSON, application/json"], Some(Ndjson), Some(Ndjson)),
            (&["text/html, */*;q=0.1"], Some(Ndjson), Some(Ndjson)),
            (&["application/json, text/event-stream"], Some(Events), Some(Events)),
            (&["text/event-stream", "application/json;q=0.5"], Some(Events), Some(Events)),
            (&["application/json, text/event-stream, application/x-ndjson"], Some(Events), Some(Events)),
            (&["text/event-stream, */*"], Some(Events), Some(Events)),
            (&["application/json, text/event-stream;q=0"], Some(Json), None),
            (&["application/json"], Some(Json), None),
            (&["application/json, text/plain, */*"], Some(Json), None),
            (&["text/event-stream"], None, Some(Events)),
            (&["text/html"], None, None),
            (&["*/*;q=0"], None, None),
        ];
        for (values, post, get) in cases {
            let headers: HeaderMap =
                values.iter().map(|value| (ACCEPT, value.parse().expect("a header value"))).collect();
            assert_eq!(Framing::negotiate(&Method::POST, &headers).ok(), *post, "{values:?}");
            assert_eq!(Framing::negotiate(&Method::GET, &headers).ok(), *get, "{values:?}");
        }
    }
}
