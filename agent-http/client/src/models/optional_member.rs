//! Parts of requests that the APIs of some servers do not have. Such a server refuses each request with one of them, so that
//! requests are sent again without it.

use std::borrow::Cow;

use agent_core::error::AgentError;
use agent_core::model::{ModelEvent, ModelStream};
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

/// Part of a request without which, or with another one in its place, the request means nearly the same.
pub(super) trait OptionalPart: Sync {
    /// Returns the name of the part's only member.
    fn name(&self) -> &'static str;

    /// Returns true if the body of an error refuses the part.
    fn is_refused_by(&self, body: &[u8]) -> bool {
        is_refused(self.name(), body)
    }

    /// Returns a request without the part; `None` if it does not have it. Nothing in the request may be redacted.
    fn remove_from(&self, payload: &Payload) -> Option<Payload>;
}

/// A member of a request with a known text.
#[derive(Debug, Clone)]
pub(super) struct OptionalMember {
    /// Name of the member.
    pub(super) name: &'static str,
    /// Text in front of the member that locates it.
    pub(super) before: &'static str,
    /// Text of the member, with the comma in front of it.
    pub(super) text: Cow<'static, str>,
}

impl OptionalPart for OptionalMember {
    fn name(&self) -> &'static str {
        self.name
    }

    fn remove_from(&self, payload: &Payload) -> Option<Payload> {
        let (bytes, found) = (payload.bytes(), [self.before, &*self.text, ","].concat());
        let start = bytes.windows(found.len()).position(|part| part == found.as_bytes())? + self.before.len();
        let mut body = Payload::builder(bytes.len());
        body.buffer().extend_from_slice(&bytes[..start]);
        body.buffer().extend_from_slice(&bytes[start + self.text.len()..]);
        Some(body.finish())
    }
}

/// Returns true if the body of an error refuses the member `name` because the server's API does not have it.
fn is_refused(name: &str, body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body).to_ascii_lowercase().replace(['\'', '`', '"', '\\'], "");
    let is_unsupported = || {
        ["is not supported", "is unsupported"].iter().any(|words| text.contains(&format!("{name} {words}")))
    };
    text.contains(name)
        && (UNKNOWN_MEMBER_PHRASES.iter().any(|phrase| text.contains(phrase)) || is_unsupported())
}

/// Sends a request by `send`. One that is refused because the server's API does not have one of `parts` is sent again without
/// it, once for each. If that succeeds, the refusals are recorded in `model`, whose later requests must be built without
/// these parts. Returns the response, with a notice for each part that was left out.
///
/// # Errors
/// Errors of `send`; the error that `refusal` returns for the status, headers and body of a response whose body had to be read.
pub(super) async fn send_with_optional<S>(
    payload: &Payload,
    parts: &[&dyn OptionalPart],
    model: &ModelSpec,
    send: impl Fn(Bytes) -> S,
    refusal: impl FnOnce(StatusCode, HeaderMap, Bytes) -> AgentError,
) -> Result<(OutboundResponse, Vec<ModelNotice>), AgentError>
where
    S: Future<Output = Result<OutboundResponse, AgentError>>,
{
    let mut response = send(payload.bytes().clone()).await?;
    let mut shortened: Vec<(&'static str, Payload)> = Vec::new();
    while matches!(response.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
        let sent = shortened.last().map_or(payload, |(_, shorter)| shorter);
        let remaining_parts =
            parts.iter().filter(|part| shortened.iter().all(|(name, _)| *name != part.name()));
        let removable: Vec<(&dyn OptionalPart, Payload)> =
            remaining_parts.filter_map(|part| Some((*part, part.remove_from(sent)?))).collect();
        if removable.is_empty() {
            break;
        }
        let OutboundResponse { status, headers, body } = response;
        let body = vendor_error::read_body(body).await;
        let refused = removable.into_iter().find(|(part, _)| part.is_refused_by(&body));
        let Some((part, shorter)) = refused else { return Err(refusal(status, headers, body)) };
        response = send(shorter.bytes().clone()).await?;
        shortened.push((part.name(), shorter));
    }
    if response.status.is_success() {
        for &(name, _) in &shortened {
            model.record_refusal(name);
        }
    }
    let request_sha256 = shortened.last().map(|(_, sent)| sent.sha256()).unwrap_or_default();
    let notice = |(name, _): (&'static str, Payload)| ModelNotice::ParameterRefused {
        parameter: name.to_owned(),
        request_sha256: request_sha256.clone(),
    };
    Ok((response, shortened.into_iter().map(notice).collect()))
}

/// Returns the events of an answer after notices, if there are any.
pub(super) fn after_notices(notices: Vec<ModelNotice>, events: ModelStream) -> ModelStream {
    if notices.is_empty() {
        return events;
    }
    let notices = notices.into_iter().map(|notice| Ok(ModelEvent::from(notice)));
    stream::iter(notices).chain(events).boxed()
}
