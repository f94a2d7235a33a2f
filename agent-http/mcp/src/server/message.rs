//! Pre-validation of a JSON-RPC message, before `rmcp` parses it in full (JSON-RPC 2.0, sections 4 and 5).
//!
//! `rmcp` answers an unparseable message with a bare HTTP status; the standard requires JSON-RPC error codes.

use std::borrow::Cow;

use agent_platform::json::{find_duplicate_key, is_deeper_than};
use rmcp::model::{ErrorData, RequestId};
use serde::Deserialize;
use serde::Deserializer;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::rpc_error::RpcErrorResponse;

/// Maximum length of a request id, in bytes.
const MAX_ID_BYTES: usize = 256;

/// The kind of a message, and for a request its id and method.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MessageKind {
    /// A request, which needs an answer.
    Request { id: RequestId, method: String },
    /// A notification, which has no answer.
    Notification,
    /// The client's answer to a request of this server.
    Response,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// Deserializes a member that is present, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl MessageKind {
    /// Parses the envelope of one message, nested at most `max_depth` levels deep.
    pub(super) fn parse(body: &[u8], max_depth: usize) -> Result<Self, RpcErrorResponse> {
        if is_deeper_than(max_depth, body) {
            return Err(invalid(None, format!("the message is nested deeper than {max_depth} levels")));
        }
        if body.trim_ascii_start().first() == Some(&b'[') {
            return Err(match serde_json::from_slice::<IgnoredAny>(body) {
                Ok(_) => {
                    invalid(None, "batches are not supported by this protocol version: send one message")
                }
                Err(error) => malformed(&error),
            });
        }
        let envelope: Envelope<'_> = match serde_json::from_slice(body) {
            Ok(envelope) => envelope,
            Err(error) if error.is_data() => return Err(invalid(None, "the body is not a JSON-RPC message")),
            Err(error) => return Err(malformed(&error)),
        };
        let id = envelope.id.map(parse_id).transpose()?;
        if let Some(path) = find_duplicate_key(body) {
            return Err(invalid(id, format!("{path} is given twice")));
        }
        if envelope.jsonrpc.as_deref() != Some("2.0") {
            return Err(invalid(id, "jsonrpc must be \"2.0\""));
        }
        match (envelope.method, id) {
            (Some(method), Some(id)) => Ok(Self::Request { id, method: method.into_owned() }),
            (Some(_), None) => Ok(Self::Notification),
            (None, _) if envelope.result.is_some() || envelope.error.is_some() => Ok(Self::Response),
            (None, id) => Err(invalid(id, "method is missing")),
        }
    }
}

/// Parses a request id. MCP allows strings and integers, but not null.
fn parse_id(raw: &RawValue) -> Result<RequestId, RpcErrorResponse> {
    if raw.get().len() > MAX_ID_BYTES {
        return Err(invalid(None, format!("id is longer than {MAX_ID_BYTES} bytes")));
    }
    serde_json::from_str(raw.get()).map_err(|_| invalid(None, "id must be a string or a whole number"))
}

fn invalid(id: Option<RequestId>, message: impl Into<Cow<'static, str>>) -> RpcErrorResponse {
    RpcErrorResponse::bad_request(id, ErrorData::invalid_request(message, None))
}

fn malformed(error: &serde_json::Error) -> RpcErrorResponse {
    let message = format!("the body is not JSON at line {} column {}", error.line(), error.column());
    RpcErrorResponse::bad_request(None, ErrorData::parse_error(message, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_classified_or_rejected() {
        let request = |id, method: &str| Ok(MessageKind::Request { id, method: method.to_owned() });
        let number = |id| RequestId::Number(id);
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}1{}}}"#,
            "[".repeat(64),
            "]".repeat(64)
        );
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "x".repeat(300));
        let cases = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, request(number(1), "ping")),
            (
                r#" {"id":"a","method":"p\u0069ng","jsonrpc":"2.0","more":[1]} "#,
                request(RequestId::String("a".into()), "ping"),
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, Ok(MessageKind::Notification)),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Ok(MessageKind::Response)),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#, Ok(MessageKind::Response)),
            ("", Err(-32700)),
            ("{", Err(-32700)),
            ("[1,", Err(-32700)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, Err(-32700)),
            ("\u{feff}{}", Err(-32700)),
            ("[]", Err(-32600)),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Err(-32600)),
            ("1", Err(-32600)),
            ("null", Err(-32600)),
            ("{}", Err(-32600)),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, Err(-32600)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Err(-32600)),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Err(-32600)),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Err(-32600)),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, Err(-32600)),
            (r#"{"jsonrpc":"2.0","id":1}"#, Err(-32600)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":2}}"#, Err(-32600)),
            (&deep, Err(-32600)),
            (&long, Err(-32600)),
        ];
        for (body, expected) in cases {
            let result = MessageKind::parse(body.as_bytes(), 64).map_err(|response| response.code());
            assert_eq!(result, expected, "{body:.100}");
        }
    }
}
