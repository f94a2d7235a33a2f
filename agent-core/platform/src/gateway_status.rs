//! HTTP statuses of gateways that leave open whether a request was processed.

const BAD_GATEWAY: u16 = 502;
const SERVICE_UNAVAILABLE: u16 = 503;
const GATEWAY_TIMEOUT: u16 = 504;

/// Returns true if a request may have been processed although its response has this status.
///
/// A gateway that has passed the request on sends 502 (RFC 9110 section 15.6.3) if it received an invalid response, for
/// example over a broken connection, and 504 (section 15.6.5) if it received none in time. 503 (section 15.6.4) says that a
/// request is not handled now, but gateways send it for broken connections as well: only `Retry-After` shows that the
/// request may be sent again. Any other unsuccessful status is the answer of a server to the request.
pub fn may_have_been_processed(status: u16, has_retry_after: bool) -> bool {
    match status {
        BAD_GATEWAY | GATEWAY_TIMEOUT => true,
        SERVICE_UNAVAILABLE => !has_retry_after,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_statuses_leave_the_outcome_unknown() {
        for (status, has_retry_after, expected) in [
            (400, false, false),
            (408, false, false),
            (429, false, false),
            (500, false, false),
            (502, false, true),
            (502, true, true),
            (503, false, true),
            (503, true, false),
            (504, false, true),
            (504, true, true),
        ] {
            assert_eq!(may_have_been_processed(status, has_retry_after), expected, "{status}");
        }
    }
}
