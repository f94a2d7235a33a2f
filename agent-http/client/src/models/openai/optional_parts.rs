//! Parts of requests that some servers refuse, so that they are replaced or left out.

use agent_core::payload::Payload;
use serde::de::IgnoredAny;

use super::messages::{REASONING_MEMBER, SIGNATURE_MEMBER};
use crate::models::optional_member::OptionalPart;

/// Names of the limit on the answer: the older one, which other servers know, and the one that the vendor's newer models require.
pub(super) const OLD_LIMIT_MEMBER: &str = "max_tokens";
pub(super) const LIMIT_MEMBER: &str = "max_completion_tokens";
const LIMIT_STARTS: [&str; 2] = [r#","max_tokens":"#, r#","max_completion_tokens":"#];
/// Member with the level of reasoning, and its beginning.
pub(super) const EFFORT_MEMBER: &str = "reasoning_effort";
const EFFORT_START: &str = r#","reasoning_effort":"#;
const NO_EFFORT: &str = r#","reasoning_effort":"none""#;
/// Part of the text with which the vendor's newer models refuse tools in Chat Completions unless they do not reason, in lower case. It
/// refuses requests without a level, too.
const EFFORT_REFUSAL: &str = "function tools with reasoning_effort are not supported";
/// Beginning of the member with the messages. Before it, only tool definitions could look like a message.
const MESSAGES_START: &str = r#","messages":["#;
const TOOLS_START: &str = r#","tools":["#;

/// A member of all messages with tool calls, or of the calls. Servers of other operators, on which the vendors' models run too,
/// may refuse it.
pub(super) struct CallMember {
    name: &'static str,
    /// Beginning of the member, up to its value.
    start: &'static str,
}

/// The reasoning in front of the calls.
pub(super) static SENT_REASONING: CallMember =
    CallMember { name: REASONING_MEMBER, start: r#","reasoning_content":"# };
/// The signature of a call.
pub(super) static SENT_SIGNATURES: CallMember =
    CallMember { name: SIGNATURE_MEMBER, start: r#","extra_content":"# };

impl OptionalPart for CallMember {
    fn name(&self) -> &'static str {
        self.name
    }

    fn remove_from(&self, payload: &Payload) -> Option<Payload> {
        let bytes: &[u8] = payload.bytes();
        let mut body = Payload::builder(bytes.len());
        let (mut next, mut kept_from) = (find(bytes, MESSAGES_START)?, 0);
        while let Some(distance) = find(&bytes[next..], self.start) {
            let start = next + distance;
            let value_start = start + self.start.len();
            next = value_start + value_bytes(&bytes[value_start..])?;
            body.buffer().extend_from_slice(&bytes[kept_from..start]);
            kept_from = next;
        }
        if kept_from == 0 {
            return None;
        }
        body.buffer().extend_from_slice(&bytes[kept_from..]);
        Some(body.finish())
    }
}

/// The older name of the limit on the answer, which is replaced by the newer one.
pub(super) struct OldLimitName;

impl OptionalPart for OldLimitName {
    fn name(&self) -> &'static str {
        OLD_LIMIT_MEMBER
    }

    fn remove_from(&self, payload: &Payload) -> Option<Payload> {
        let [old, new] = LIMIT_STARTS;
        let start = find(payload.bytes(), old)?;
        let end = start + old.len();
        // A schema may have a property of this name.
        let is_limit = payload.bytes().get(end).is_some_and(u8::is_ascii_digit);
        is_limit.then(|| replaced(payload.bytes(), start..end, new))
    }
}

/// The level of reasoning in requests with tools, which is left out.
pub(super) struct EffortWithTools;

impl OptionalPart for EffortWithTools {
    fn name(&self) -> &'static str {
        EFFORT_MEMBER
    }

    fn is_refused_by(&self, body: &[u8]) -> bool {
        String::from_utf8_lossy(body).to_ascii_lowercase().contains(EFFORT_REFUSAL)
    }

    fn remove_from(&self, payload: &Payload) -> Option<Payload> {
        let bytes: &[u8] = payload.bytes();
        let head = &bytes[..find(bytes, MESSAGES_START)?];
        find(head, TOOLS_START)?;
        // A schema that follows may have properties of these names.
        let limits = LIMIT_STARTS.iter().filter_map(|start| Some(find(head, start)? + start.len()));
        let limit_end = limits.min()?;
        let digits = head[limit_end..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let start = limit_end + digits;
        let end = match head[start..].strip_prefix(EFFORT_START.as_bytes()) {
            Some(value) => start + EFFORT_START.len() + value_bytes(value)?,
            None => start,
        };
        (head[start..end] != *NO_EFFORT.as_bytes()).then(|| replaced(bytes, start..end, NO_EFFORT))
    }
}

/// Returns a request with other JSON in place of a range of its bytes.
fn replaced(bytes: &[u8], range: std::ops::Range<usize>, json: &str) -> Payload {
    let mut body = Payload::builder(bytes.len() + json.len());
    body.buffer().extend_from_slice(&bytes[..range.start]);
    body.raw(json);
    body.buffer().extend_from_slice(&bytes[range.end..]);
    body.finish()
}

fn find(bytes: &[u8], part: &str) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part.as_bytes())
}

/// Returns the length of the leading JSON string, list or object of a text.
fn value_bytes(json: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(json).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}
