//! W3C Trace Context: parses and writes `traceparent` and `tracestate`, and continues traces.
//!
//! Each request that continues a trace has the trace's id and a separate parent id. Nothing is recorded here: a trace id
//! joins the lines of logs, and the spans of services that do record.

use std::sync::Arc;

use agent_core::ids::TraceContext;
use agent_jobs::job::JobPayload;
use uuid::Uuid;

/// Name of the header with the ids and flags, and of the member of `_meta` in the Model Context Protocol.
pub const TRACEPARENT: &str = "traceparent";
/// Name of the header with the states of tracing systems, and of the member of `_meta` in the Model Context Protocol.
pub const TRACESTATE: &str = "tracestate";

/// Length of a `traceparent` of version 00, in bytes. Later versions begin with the same fields.
const TRACEPARENT_BYTES: usize = 55;
/// Maximum length of a `traceparent` of a later version, in bytes.
const MAX_TRACEPARENT_BYTES: usize = 256;
/// Maximum length of a `tracestate`, in bytes; a longer one is dropped.
const MAX_TRACESTATE_BYTES: usize = 512;
/// The version that is never valid.
const INVALID_VERSION: u128 = 0xff;
/// Flags that are defined: `sampled`. All others are cleared.
const DEFINED_FLAGS: u8 = 0x01;

/// Begins a trace, whose caller has not recorded anything.
pub fn begin_trace() -> TraceContext {
    TraceContext { trace_id: Uuid::new_v4().as_u128(), parent_id: new_parent_id(), flags: 0, state: None }
}

/// Returns the context of a request that continues the trace; begins one if there is none.
pub fn continue_trace(trace: Option<&TraceContext>) -> TraceContext {
    match trace {
        Some(trace) => TraceContext { parent_id: new_parent_id(), ..trace.clone() },
        None => begin_trace(),
    }
}

/// Parses a `traceparent`, of version 00 or a later one, and the `tracestate` beside it. Returns `None` for an invalid
/// `traceparent`; an invalid `tracestate` is dropped.
pub fn parse_trace(traceparent: &str, tracestate: Option<&str>) -> Option<TraceContext> {
    if traceparent.len() > MAX_TRACEPARENT_BYTES {
        return None;
    }
    let (known, rest) = traceparent.split_at_checked(TRACEPARENT_BYTES)?;
    let mut fields = known.split('-');
    let mut next = |digits| hex_number(fields.next()?, digits);
    let (version, trace_id, parent_id, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
    let has_valid_end = rest.is_empty() || (version > 0 && rest.starts_with('-'));
    if version == INVALID_VERSION || trace_id == 0 || parent_id == 0 || !has_valid_end {
        return None;
    }
    let (parent_id, flags) = (u64::try_from(parent_id).ok()?, u8::try_from(flags).ok()?);
    let state = tracestate.filter(|state| is_state(state)).map(Arc::from);
    Some(TraceContext { trace_id, parent_id, flags: flags & DEFINED_FLAGS, state })
}

/// Returns the trace of the run that has created a job, if it is known.
pub fn job_trace(payload: &JobPayload) -> Option<TraceContext> {
    parse_trace(payload.traceparent.as_deref()?, None)
}

/// Returns the trace's id as 32 hexadecimal digits.
pub fn format_trace_id(trace: &TraceContext) -> String {
    format!("{:032x}", trace.trace_id)
}

/// Returns the `traceparent`, of version 00.
pub fn format_traceparent(trace: &TraceContext) -> String {
    let TraceContext { trace_id, parent_id, flags, state: _ } = trace;
    format!("00-{trace_id:032x}-{parent_id:016x}-{flags:02x}")
}

/// Returns the names and values of the headers of a request that continues the trace; begins one if there is none.
pub fn trace_headers(trace: Option<&TraceContext>) -> impl Iterator<Item = (&'static str, String)> + use<> {
    let trace = continue_trace(trace);
    let traceparent = (TRACEPARENT, format_traceparent(&trace));
    std::iter::once(traceparent).chain(trace.state.map(|state| (TRACESTATE, state.to_string())))
}

/// Returns a random number that is not zero: the half of a UUID of version 4 with the bits of its variant.
fn new_parent_id() -> u64 {
    Uuid::new_v4().as_u64_pair().1
}

/// Parses a number of exactly this many lower-case hexadecimal digits.
fn hex_number(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

fn is_state(text: &str) -> bool {
    (1..=MAX_TRACESTATE_BYTES).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of the recommendation.
    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_header_is_read_and_written() {
        let trace = parse_trace(EXAMPLE, Some("congo=t61rcWkgMzE, rojo=1")).expect("valid");
        assert_eq!(trace.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((trace.parent_id, trace.flags), (0xb7ad_6b71_6920_3331, 1));
        assert_eq!(trace.state.as_deref(), Some("congo=t61rcWkgMzE, rojo=1"));
        assert_eq!(format_traceparent(&trace), EXAMPLE);
        assert_eq!(format_trace_id(&trace), "0af7651916cd43dd8448eb211c80319c");
    }

    #[test]
    fn later_versions_may_have_more_fields_and_become_version_00() {
        for end in ["", "-", "-what the future brings", &format!("-{}", "x".repeat(200))] {
            let later = format!("cc{}{end}", &EXAMPLE[2..]);
            let trace = parse_trace(&later, None).unwrap_or_else(|| panic!("{later} is valid"));
            assert_eq!(format_traceparent(&trace), EXAMPLE);
        }
        // Flags of later versions and of level 2 are cleared.
        let trace = parse_trace(&format!("01{}ff", &EXAMPLE[2..53]), None).expect("valid");
        assert_eq!(format_traceparent(&trace), EXAMPLE);
    }

    #[test]
    fn an_invalid_header_begins_a_new_trace() {
        let zeros = |from: usize, to: usize| {
            format!("{}{}{}", &EXAMPLE[..from], "0".repeat(to - from), &EXAMPLE[to..])
        };
        let invalid = [
            String::new(),
            "00".to_owned(),
            EXAMPLE[..54].to_owned(),
            format!("{EXAMPLE}-"),
            format!("{EXAMPLE}-00"),
            format!("{EXAMPLE}0"),
            format!(" {EXAMPLE}"),
            format!("cc{}x", &EXAMPLE[2..]),
            format!("ff{}", &EXAMPLE[2..]),
            format!("0{EXAMPLE}"),
            format!("cc{}-{}", &EXAMPLE[2..], "x".repeat(10 << 10)),
            "0".repeat(10 << 10),
            zeros(3, 35),
            zeros(36, 52),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replace("b7", "B7"),
            EXAMPLE.replace('-', "_"),
            EXAMPLE.replace("af", "ag"),
            EXAMPLE.replace("af", "+f"),
            EXAMPLE.replace("319c-", "-319c"),
            format!("{EXAMPLE},{EXAMPLE}"),
            EXAMPLE.replace("0af", "0ä"),
            EXAMPLE.replace("-01", "-0ä"),
        ];
        for header in invalid {
            assert_eq!(parse_trace(&header, Some("a=1")), None, "{header:.80}");
        }
    }

    #[test]
    fn a_state_that_is_too_long_or_no_header_value_is_dropped() {
        let state = |state: &str| parse_trace(EXAMPLE, Some(state)).expect("valid").state;
        let longest = "x".repeat(512);
        assert_eq!(state(&longest).as_deref(), Some(&*longest));
        for dropped in [&format!("{longest}x"), "", "a=1\r\nx: y", "a=ä", "a\0"] {
            assert_eq!(state(dropped), None, "{dropped:.20}");
        }
    }

    #[test]
    fn a_continued_trace_keeps_all_but_the_parent() {
        let trace = parse_trace(EXAMPLE, Some("a=1")).expect("valid");
        let (one, other) = (continue_trace(Some(&trace)), continue_trace(Some(&trace)));
        assert_eq!(one, TraceContext { parent_id: one.parent_id, ..trace.clone() });
        assert!(one.parent_id != trace.parent_id && one.parent_id != other.parent_id);
        let headers: Vec<_> = trace_headers(Some(&trace)).collect();
        let [(TRACEPARENT, traceparent), (TRACESTATE, state)] = &headers[..] else { panic!("{headers:?}") };
        assert!(traceparent.starts_with(&EXAMPLE[..36]) && *traceparent != EXAMPLE, "{traceparent}");
        assert_eq!(state, "a=1");
    }

    #[test]
    fn a_new_trace_is_valid_and_unique() {
        let (one, other) = (begin_trace(), continue_trace(None));
        assert_ne!(one.trace_id, other.trace_id);
        for trace in [one, other] {
            assert_eq!(parse_trace(&format_traceparent(&trace), None), Some(trace));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_trace_or_none(
            text in prop_oneof![any::<String>(), "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]{0,9})?"],
            state in prop_oneof![any::<String>(), "[ -~]{1,20}"],
        ) {
            if let Some(trace) = parse_trace(&text, Some(&state)) {
                prop_assert_eq!(parse_trace(&format_traceparent(&trace), trace.state.as_deref()), Some(trace));
            }
        }

        #[test]
        fn a_damaged_header_is_a_valid_trace_or_none(position in 0..EXAMPLE.len(), by in any::<char>()) {
            let mut damaged: Vec<char> = EXAMPLE.chars().collect();
            damaged[position] = by;
            let damaged: String = damaged.into_iter().collect();
            let is_valid = |text: &str| {
                let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
                text.chars()
                    .zip(EXAMPLE.chars())
                    .all(|(c, expected)| if expected == '-' { c == '-' } else { is_hex(c) })
                    && !text.starts_with("ff")
            };
            prop_assert_eq!(parse_trace(&damaged, None).is_some(), is_valid(&damaged), "{}", damaged);
        }
    }
}
