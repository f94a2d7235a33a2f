//! Members of requests that the APIs of some servers do not have. Such a server refuses each request with one of them, so that
//! requests are sent again without it.

use std::borrow::Cow;

use agent_core::error::AgentError;
use agent_core::model::ModelStream;
use agent_core::payload::Payload;
use agent_platform::model_notice::ModelNotice;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};

use super::spec::ModelSpec;
use super::vendor_error;
use crate::outbound::OutboundResponse;

/// Parts of the texts with which servers refuse a member that their API does not have, in lower case and without quotation
/// marks. Values that are refused have other texts.
const UNKNOWN_MEMBER_PHRASES: [&str; 9] = [
    "unsupported parameter",
    "unsupported_parameter",
    "unknown parameter",
    "unknown_parameter",
    "unknown field",
    "unrecognized",
    "unexpected keyword",
    "not permitted",
    "additional properties",
];

/// Member of a request without which the request means nearly the same.
#[derive(Debug, Clone)]
pub(super) struct OptionalMember {
    /// Name of the member.
    pub(super) name: &'static str,
    /// Text in front of the member, by which it is found.
    pub(super) before: &'static str,
    /// Text of the member, with the comma in front of it.
    pub(super) text: Cow<'static, str>,
}

impl OptionalMember {
    /// Returns a request without the member; `None` if it has none of this text. Nothing in the request may be redacted.
    fn remove_from(&self, payload: &Payload) -> Option<Payload> {
        let (bytes, found) = (payload.bytes(), [self.before, &*self.text, ","].concat());
        let start = bytes.windows(found.len()).position(|part| part == found.as_bytes())? + self.before.len();
        let mut body = Payload::builder(bytes.len());
        body.buffer().extend_from_slice(&bytes[..start]);
        body.buffer().extend_from_slice(&bytes[start + self.text.len()..]);
        Some(body.finish())
    }

    /// Returns true if the body of an error refuses the member because the server's API does not have it.
    fn is_refused(&self, body: &[u8]) -> bool {
        let text = String::from_utf8_lossy(body).to_ascii_lowercase().replace(['\'', '`', '"', '\\'], "");
        let is_unsupported = || {
            ["is not supported", "is unsupported"]
                .iter()
                .any(|words| text.contains(&format!("{} {words}", self.name)))
        };
        text.contains(self.name)
            && (UNKNOWN_MEMBER_PHRASES.iter().any(|phrase| text.contains(phrase)) || is_unsupported())
    }
}

/// Sends a request by `send`. One that is refused because the server's API does not have `member` is sent again without it. If
/// that succeeds, the refusal is recorded in `model`, whose later requests are to be built without the member. Returns the
/// response, with a notice if it is that of the second request.
///
/// # Errors
/// Those of `send`; that of `refusal` for the status, headers and body of an error whose body had to be read for this.
pub(super) async fn send_with_optional<S>(
    payload: &Payload,
    member: &OptionalMember,
    model: &ModelSpec,
    send: impl Fn(Bytes) -> S,
    refusal: impl FnOnce(StatusCode, HeaderMap, Bytes) -> AgentError,
) -> Result<(OutboundResponse, Option<ModelNotice>), AgentError>
where
    S: Future<Output = Result<OutboundResponse, AgentError>>,
{
    let response = send(payload.bytes().clone()).await?;
    let shorter = match response.status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => member.remove_from(payload),
        _ => None,
    };
    let Some(shorter) = shorter else { return Ok((response, None)) };
    let OutboundResponse { status, headers, body } = response;
    let body = vendor_error::read_body(body).await;
    if !member.is_refused(&body) {
        return Err(refusal(status, headers, body));
    }
    let response = send(shorter.bytes().clone()).await?;
    if response.status.is_success() {
        model.record_refusal(member.name);
    }
    let (parameter, request_sha256) = (member.name.to_owned(), shorter.sha256());
    Ok((response, Some(ModelNotice::ParameterRefused { parameter, request_sha256 })))
}

/// Returns the events of an answer after a notice, if there is one.
pub(super) fn after_notice(notice: Option<ModelNotice>, events: ModelStream) -> ModelStream {
    match notice {
        Some(notice) => stream::iter([Ok(notice.into())]).chain(events).boxed(),
        None => events,
    }
}
