//! Traces of requests (W3C Trace Context).

use std::sync::{Arc, OnceLock};

use agent_core::ids::TraceContext;
use agent_core::tool::Caller;
use agent_platform::trace::{TRACEPARENT, TRACESTATE, begin_trace, format_trace_id, parse_trace};
use http::{HeaderMap, request};

/// Trace that a request belongs to: the caller's trace, once the caller is known to be trusted, otherwise a new one. Clones are
/// of the same request. Once the trace is read, it does not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestTrace(Arc<OnceLock<TraceContext>>);

impl RequestTrace {
    /// Returns the trace of a request, which the server has put into its extensions.
    pub(crate) fn of(head: &request::Parts) -> Self {
        head.extensions.get().cloned().unwrap_or_default()
    }

    /// Continues a trace, unless the request has one already.
    pub(crate) fn continue_trace(&self, trace: TraceContext) {
        // An error means that it has one.
        let _ = self.0.set(trace);
    }

    /// Continues the trace of a trusted caller's headers, if they are valid.
    pub(crate) fn continue_headers(&self, headers: &HeaderMap) {
        if let Some(trace) = read_trace(headers) {
            self.continue_trace(trace);
        }
    }

    /// Continues the trace of the headers if the caller is trusted with it: the trace of a page's visitor, or of an older
    /// client, would be chosen by anyone.
    pub(crate) fn continue_headers_of(&self, caller: Caller, headers: &HeaderMap) {
        match caller {
            Caller::Session | Caller::Proactive | Caller::Api => self.continue_headers(headers),
            _ => {}
        }
    }

    /// Returns the trace; begins one if there is none.
    pub(crate) fn context(&self) -> TraceContext {
        self.0.get_or_init(begin_trace).clone()
    }

    /// Returns the trace's id for the log.
    pub(crate) fn id(&self) -> String {
        format_trace_id(self.0.get_or_init(begin_trace))
    }
}

/// Returns the trace of the headers, if there is one `traceparent` and it is valid. A `tracestate` may be in several headers.
fn read_trace(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let traceparent = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    let states: Result<Vec<&str>, _> =
        headers.get_all(TRACESTATE).iter().map(|value| value.to_str()).collect();
    let state = states.unwrap_or_default().join(",");
    parse_trace(traceparent, Some(&state))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const VALID_ID: &str = "0af7651916cd43dd8448eb211c80319c";

    fn headers(all: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("a value"));
        }
        headers
    }

    #[test]
    fn one_valid_header_is_continued() {
        let continued = |all: &[(&'static str, &[u8])]| {
            let trace = RequestTrace::default();
            trace.continue_headers(&headers(all));
            (trace.id() == VALID_ID, trace.context().state.map(|state| state.to_string()))
        };
        let state = |state: &str| (true, Some(state.to_owned()));
        assert_eq!(continued(&[(TRACEPARENT, VALID.as_bytes())]), (true, None));
        let one = [(TRACEPARENT, VALID.as_bytes()), (TRACESTATE, b"a=1" as &[u8])];
        assert_eq!(continued(&one), state("a=1"));
        assert_eq!(continued(&[one[0], one[1], (TRACESTATE, b"b=2")]), state("a=1,b=2"));
        assert_eq!(continued(&[one[0], one[1], (TRACESTATE, b"\xff")]), (true, None));
        assert_eq!(continued(&[one[0], (TRACESTATE, &[b'x'; 513])]), (true, None));
        let begun = (false, None);
        assert_eq!(continued(&[]), begun);
        assert_eq!(continued(&[one[1]]), begun);
        assert_eq!(continued(&[one[0], one[0]]), begun, "it occurs twice");
        assert_eq!(continued(&[(TRACEPARENT, VALID.to_uppercase().as_bytes())]), begun);
        assert_eq!(continued(&[(TRACEPARENT, b"\xff")]), begun);
    }

    #[test]
    fn callers_that_anyone_can_be_begin_a_trace() {
        let headers = headers(&[(TRACEPARENT, VALID.as_bytes())]);
        for (caller, is_continued) in [
            (Caller::Session, true),
            (Caller::Proactive, true),
            (Caller::Api, true),
            (Caller::Widget, false),
            (Caller::Legacy, false),
        ] {
            let trace = RequestTrace::default();
            trace.continue_headers_of(caller, &headers);
            assert_eq!(trace.id() == VALID_ID, is_continued, "{caller:?}");
        }
    }

    #[test]
    fn a_trace_that_was_read_stays() {
        let trace = RequestTrace::default();
        let (begun, copy) = (trace.context(), trace.clone());
        copy.continue_headers(&headers(&[(TRACEPARENT, VALID.as_bytes())]));
        assert_eq!(trace.context(), begun);
        assert_eq!(copy.context(), begun);
    }
}
