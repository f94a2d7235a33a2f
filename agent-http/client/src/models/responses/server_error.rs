//! Classification of the errors that a Responses server reports. Pure.
//!
//! A known code decides first, then the content type (an HTML page comes from a proxy regardless of its status), then the
//! status. No text of the server reaches an error or the log, except for codes and names of parameters.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_platform::coding::sign_in_required;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::models::errors::reported_error;
use crate::models::vendor_error::{VendorError, account_refused, context_exceeded, plain_word};
use crate::outbound::{media_type, status_failure};

/// Limit on the time until a usage limit ends.
const MAX_USAGE_LIMIT: Duration = Duration::from_secs(31 * 24 * 60 * 60);
/// Delay before a retry of a request that a proxy in front of the vendor has turned away.
const BLOCKED_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Header of a proxy that asks for proof of a browser.
const CHALLENGE_HEADER: &str = "cf-mitigated";
/// Header with the time at which a usage limit ends, in seconds since 1970.
pub(super) const RESET_HEADER: &str = "x-codex-primary-reset-at";
/// Limit on the headers of an error event.
const MAX_EVENT_HEADERS: usize = 64;

/// Codes of an account that may not make the request.
const ACCOUNT_CODES: [&str; 4] =
    ["insufficient_quota", "model_not_found", "usage_not_included", "deactivated_workspace"];
/// Beginning of further codes of such an account.
const PERMISSION_PREFIX: &str = "permission";
/// Codes of a credential that is not valid.
const CREDENTIAL_CODES: [&str; 5] =
    ["unauthorized", "invalid_api_key", "token_expired", "token_invalidated", "token_revoked"];
/// Codes of content that the vendor's policy forbids.
const POLICY_CODES: [&str; 3] = ["invalid_prompt", "cyber_policy", "bio_policy"];

/// Payer of the calls, which decides about the meaning of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// An API key of the operator or the role.
    ApiKey,
    /// A subscription that the user has signed in to.
    Subscription,
}

/// Returns the error of a page that a proxy in front of the vendor has sent.
pub(crate) fn blocked_by_proxy() -> AgentError {
    let message = "the request was turned away before it reached the model";
    AgentError::new(AgentErrorKind::Failed, message).with_retry_after(BLOCKED_RETRY_DELAY)
}

/// An error as the server reports it: in an unsuccessful response, or within an answer.
pub(super) struct ServerError {
    status: Option<StatusCode>,
    headers: HeaderMap,
    body: Value,
}

impl ServerError {
    /// Reads an unsuccessful response.
    pub(super) fn from_response(status: StatusCode, headers: HeaderMap, body: &[u8]) -> Self {
        Self { status: Some(status), headers, body: serde_json::from_slice(body).unwrap_or_default() }
    }

    /// Reads an event of an answer, or a whole answer, that contains an error.
    pub(super) fn from_event(event: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(event).unwrap_or_default();
        let status = ["/status_code", "/status", "/error/status_code", "/error/status"];
        let status = status.iter().find_map(|path| body.pointer(path)?.as_u64()?.try_into().ok());
        let status = status.and_then(|status: u16| StatusCode::from_u16(status).ok());
        let headers = body.get("headers").or_else(|| body.pointer("/error/headers"));
        let headers = headers.and_then(Value::as_object).into_iter().flatten().take(MAX_EVENT_HEADERS);
        let headers = headers.filter_map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        Self { status: status.filter(|status| !status.is_success()), headers: headers.collect(), body }
    }

    /// Sets the time at which a usage limit ends, from the response's headers, unless the error contains it.
    pub(super) fn with_reset_time(mut self, reset_time: Option<&HeaderValue>) -> Self {
        if let Some(time) = reset_time {
            self.headers.entry(RESET_HEADER).or_insert_with(|| time.clone());
        }
        self
    }

    /// Classifies the error.
    pub(super) fn into_agent_error(self, account: Account, now: SystemTime) -> AgentError {
        let error = self.error();
        let vendor = VendorError::from_value(error);
        let codes = [plain_word(self.body.get("code")), plain_word(Some(error))];
        let codes: Vec<&str> = codes.iter().flatten().map(String::as_str).chain(vendor.words()).collect();
        let has_code = |known: &[&str]| codes.iter().any(|code| known.contains(code));
        let has_status = |status| self.status == Some(status);
        let is_subscription = account == Account::Subscription;
        let cause = vendor.upstream_error(self.status.map(|status| status.as_u16()));
        let agent_error = if has_code(&["usage_limit_reached"]) {
            self.usage_limit(error, account, now)
        } else if !is_subscription && cause.is_unpaid() {
            account_refused()
        } else if has_code(&ACCOUNT_CODES) || codes.iter().any(|code| code.starts_with(PERMISSION_PREFIX)) {
            not_permitted(account)
        } else if let Some(agent_error) = self.overflow(&vendor) {
            agent_error
        } else if has_code(&POLICY_CODES) {
            AgentError::new(AgentErrorKind::Failed, "the vendor's policy refused the request")
        } else if self.is_web_page() {
            blocked_by_proxy()
        } else if is_subscription && (has_code(&CREDENTIAL_CODES) || has_status(StatusCode::UNAUTHORIZED)) {
            sign_in_required("the sign-in to the subscription is missing or has ended")
        } else if is_subscription
            && (has_status(StatusCode::FORBIDDEN) || has_status(StatusCode::PAYMENT_REQUIRED))
        {
            not_permitted(account)
        } else {
            self.classify_status(has_code(&["rate_limit_exceeded"]))
        };
        agent_error.with_source(cause)
    }

    /// Returns the value with the error's code: a member of the body, or the body itself.
    fn error(&self) -> &Value {
        let members =
            ["/error", "/response/error", "/detail"].iter().filter_map(|path| self.body.pointer(path));
        members.into_iter().find(|error| error.is_object() || error.is_string()).unwrap_or(&self.body)
    }

    fn overflow(&self, vendor: &VendorError) -> Option<AgentError> {
        match self.status {
            Some(StatusCode::TOO_MANY_REQUESTS) => None,
            // May come from a proxy that limits bytes, so the context window is not learned from it.
            Some(StatusCode::PAYLOAD_TOO_LARGE) if vendor.overflow().is_none() => {
                let message = "the prompt does not fit the model";
                Some(AgentError::new(AgentErrorKind::InvalidRequest, message))
            }
            _ => vendor.overflow().map(context_exceeded),
        }
    }

    /// Returns true if a proxy in front of the vendor has sent the response. A page with the status of a server's own
    /// fault, or of a rate limit, means what its status says.
    fn is_web_page(&self) -> bool {
        let refusing_statuses = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND];
        self.headers.contains_key(CHALLENGE_HEADER)
            || (media_type(&self.headers) == "text/html"
                && self.status.is_some_and(|status| refusing_statuses.contains(&status)))
    }

    /// Returns the error of a limit that ends hours or days later.
    fn usage_limit(&self, error: &Value, account: Account, now: SystemTime) -> AgentError {
        let member = |name| error.get(name).and_then(Value::as_u64).map(Duration::from_secs);
        let header = || self.headers.get(RESET_HEADER)?.to_str().ok()?.parse().ok().map(Duration::from_secs);
        let since_epoch = |time| UNIX_EPOCH.checked_add(time);
        let reported = [
            member("resets_at").and_then(since_epoch),
            member("resets_in_seconds").and_then(|delay| now.checked_add(delay)),
            header().and_then(since_epoch),
        ];
        let resets_at = reported.into_iter().flatten().find(|time| *time > now);
        let resets_at = resets_at.map(|time| time.min(now + MAX_USAGE_LIMIT));
        let mut message = match account {
            Account::ApiKey => "the usage limit of the account is reached".to_owned(),
            Account::Subscription => "the usage limit of the subscription is reached".to_owned(),
        };
        let mut limit = json!({"kind": "usage"});
        if let Some(plan) = plain_word(error.get("plan_type")) {
            limit["plan"] = plan.into();
        }
        let Some((resets_at, time)) = resets_at.and_then(|at| Some((at, Timestamp::try_from(at).ok()?)))
        else {
            return AgentError::new(AgentErrorKind::RateLimited, message).with_member("limit", limit);
        };
        limit["resetsAt"] = format!("{time:.3}").into();
        message.push_str(&format!(" until {time:.0}"));
        let after = resets_at.duration_since(now).unwrap_or_default();
        let error = AgentError::new(AgentErrorKind::RateLimited, message).with_retry_after(after);
        error.with_member("limit", limit)
    }

    /// Returns the error that the status alone describes.
    fn classify_status(&self, is_rate_limit: bool) -> AgentError {
        let error = match self.status {
            Some(status) => status_failure(status, &self.headers),
            None => reported_error(),
        };
        if !is_rate_limit || error.kind() == AgentErrorKind::RateLimited {
            return error;
        }
        status_failure(StatusCode::TOO_MANY_REQUESTS, &self.headers)
    }
}

fn not_permitted(account: Account) -> AgentError {
    match account {
        Account::ApiKey => AgentError::new(
            AgentErrorKind::AccountRefused,
            "the account at the vendor does not permit the request",
        ),
        Account::Subscription => AgentError::new(
            AgentErrorKind::SubscriptionRefused,
            "the subscription does not permit the request",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::Account::{ApiKey, Subscription};
    use super::*;

    /// Seconds from 1970 to the time of the tests.
    const NOW: u64 = 1_800_000_000;
    const JSON: &str = "application/json";

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(NOW)
    }

    fn refused(account: Account, status: u16, headers: &[(&str, &str)], body: &str) -> AgentError {
        let headers = headers.iter().map(|(name, value)| {
            let name = HeaderName::try_from(*name).expect("a name");
            (name, HeaderValue::try_from(*value).expect("a value"))
        });
        let status = StatusCode::from_u16(status).expect("a status");
        ServerError::from_response(status, headers.collect(), body.as_bytes())
            .into_agent_error(account, now())
    }

    fn reported(account: Account, event: &str) -> AgentError {
        ServerError::from_event(event.as_bytes()).into_agent_error(account, now())
    }

    fn error(code: &str) -> String {
        json!({"error": {"message": "sk-1 is not right", "type": "invalid_request_error", "code": code}})
            .to_string()
    }

    #[test]
    fn a_response_is_classified_by_code_then_type_then_status() {
        use AgentErrorKind::*;
        let page = [("content-type", "text/html; charset=utf-8")];
        let challenge = [("content-type", JSON), ("cf-mitigated", "challenge")];
        let json = [("content-type", JSON)];
        // Status, headers, body; kind with a subscription and with an API key.
        type Case<'a> = (u16, &'a [(&'a str, &'a str)], String, AgentErrorKind, AgentErrorKind);
        let cases: Vec<Case<'_>> = vec![
            (401, &json, error("invalid_api_key"), SignInRequired, Failed),
            (401, &json, r#"{"detail":"Unauthorized"}"#.into(), SignInRequired, Failed),
            (401, &json, String::new(), SignInRequired, Failed),
            (401, &page, "<html>".into(), Failed, Failed),
            (403, &json, "{}".into(), SubscriptionRefused, Failed),
            (403, &json, error("permission_denied"), SubscriptionRefused, AccountRefused),
            (
                402,
                &json,
                r#"{"detail":{"code":"deactivated_workspace"}}"#.into(),
                SubscriptionRefused,
                AccountRefused,
            ),
            (402, &json, String::new(), SubscriptionRefused, AccountRefused),
            (403, &page, "<html>".into(), Failed, Failed),
            (403, &challenge, "{}".into(), Failed, Failed),
            (403, &page, error("usage_not_included"), SubscriptionRefused, AccountRefused),
            (400, &json, error("model_not_found"), SubscriptionRefused, AccountRefused),
            (404, &json, error("model_not_found"), SubscriptionRefused, AccountRefused),
            (429, &json, error("insufficient_quota"), SubscriptionRefused, AccountRefused),
            (429, &json, error("usage_limit_reached"), RateLimited, RateLimited),
            (404, &json, error("usage_limit_reached"), RateLimited, RateLimited),
            (429, &json, error("rate_limit_exceeded"), RateLimited, RateLimited),
            (429, &page, "<html>".into(), RateLimited, RateLimited),
            (400, &json, error("rate_limit_exceeded"), RateLimited, RateLimited),
            (503, &json, error("server_is_overloaded"), Failed, Failed),
            (503, &page, "<html>".into(), Failed, Failed),
            (500, &json, error("server_error"), Failed, Failed),
            (504, &json, String::new(), Timeout, Timeout),
            (400, &json, error("context_length_exceeded"), ContextExceeded, ContextExceeded),
            (413, &page, "<html>".into(), InvalidRequest, InvalidRequest),
            (413, &json, error("context_length_exceeded"), ContextExceeded, ContextExceeded),
            (429, &json, error("context_length_exceeded"), RateLimited, RateLimited),
            (400, &json, error("invalid_prompt"), Failed, Failed),
            (400, &json, error("cyber_policy"), Failed, Failed),
            (400, &json, r#"{"detail":"Instructions are not valid"}"#.into(), Failed, Failed),
            (400, &json, r#"{"error":"usage_limit_reached"}"#.into(), RateLimited, RateLimited),
            (400, &json, r#"{"code":"usage_limit_reached"}"#.into(), RateLimited, RateLimited),
            (404, &json, "{}".into(), Failed, Failed),
            (418, &[], "no JSON".into(), Failed, Failed),
        ];
        for (status, headers, body, subscription, api_key) in cases {
            for (account, expected) in [(Subscription, subscription), (ApiKey, api_key)] {
                let failure = refused(account, status, headers, &body);
                assert_eq!(failure.kind(), expected, "{account:?} {status} {headers:?} {body}");
                let shown = format!("{failure} {failure:?} {:?}", failure.members());
                for theirs in ["sk-1", "not right", "Instructions", "Unauthorized"] {
                    assert!(!shown.contains(theirs), "{shown}");
                }
            }
        }
    }

    #[test]
    fn refusals_have_messages_and_retry_times() {
        let page = [("content-type", "text/html")];
        let blocked_by_proxy = refused(Subscription, 403, &page, "<html>");
        assert_eq!(blocked_by_proxy.message(), "the request was turned away before it reached the model");
        assert_eq!(blocked_by_proxy.retry_after(), Some(BLOCKED_RETRY_DELAY));
        let policy = refused(ApiKey, 400, &[], &error("bio_policy"));
        assert_eq!(policy.message(), "the vendor's policy refused the request");
        let sign_in = refused(Subscription, 401, &[], "");
        assert_eq!(sign_in.members(), [("signIn", json!("/api/coding/sign-in"))]);
        let soon = refused(Subscription, 429, &[("retry-after", "17")], "{}");
        assert_eq!(soon.retry_after(), Some(Duration::from_secs(17)));
        let body = r#"{"error":{"code":"unsupported_parameter","param":"tools[0].x","message":"sk-1"}}"#;
        let failure = refused(ApiKey, 400, &[], body);
        let shown = format!("{failure:?}");
        assert!(shown.contains("type -, code unsupported_parameter, param tools[0].x"), "{shown}");
    }

    #[test]
    fn a_usage_limit_has_the_time_at_which_it_ends() {
        let at = |offset: i64| (NOW as i64 + offset).to_string();
        let (past, soon, later) = (at(-1), at(90), at(86_400));
        let month = 31 * 86_400;
        // Members of the error, header; seconds until the end.
        let cases: [(String, Option<&str>, Option<u64>); 9] = [
            (format!(r#""resets_at":{soon}"#), None, Some(90)),
            (format!(r#""resets_at":{past},"resets_in_seconds":60"#), Some(&later), Some(60)),
            (format!(r#""resets_at":{past}"#), Some(&later), Some(86_400)),
            (format!(r#""resets_at":{past},"resets_in_seconds":0"#), Some(&past), None),
            (r#""resets_at":4294967295"#.into(), None, Some(month)),
            (format!(r#""resets_at":{},"resets_in_seconds":{}"#, u64::MAX, u64::MAX), Some("-1"), None),
            (r#""resets_at":"soon""#.into(), Some("soon"), None),
            (r#""resets_at":-5,"resets_in_seconds":1.5"#.into(), None, None),
            (r#""x":1"#.into(), Some(&soon), Some(90)),
        ];
        for (members, header, expected) in cases {
            let error = format!(r#"{{"type":"usage_limit_reached","plan_type":"plus",{members}}}"#);
            let header: Vec<_> = header.map(|time| (RESET_HEADER, time)).into_iter().collect();
            let headers: serde_json::Map<String, Value> =
                header.iter().map(|(name, value)| (name.to_ascii_uppercase(), json!(value))).collect();
            let event = json!({"type": "error", "headers": headers, "status_code": 429});
            let event = event.to_string().replacen('{', &format!(r#"{{"error":{error},"#), 1);
            for failure in [
                refused(Subscription, 429, &header, &format!(r#"{{"error":{error}}}"#)),
                refused(Subscription, 404, &header, &format!(r#"{{"error":{error}}}"#)),
                reported(Subscription, &event),
            ] {
                assert_eq!(failure.kind(), AgentErrorKind::RateLimited);
                assert_eq!(failure.retry_after(), expected.map(Duration::from_secs), "{error} {header:?}");
                let [("limit", limit)] = failure.members() else { panic!("{:?}", failure.members()) };
                assert_eq!((&limit["kind"], &limit["plan"]), (&json!("usage"), &json!("plus")));
                assert_eq!(limit.get("resetsAt").is_some(), expected.is_some(), "{limit}");
            }
        }
        let failure = refused(
            Subscription,
            429,
            &[],
            r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":60}}"#,
        );
        assert_eq!(
            failure.members(),
            [("limit", json!({"kind": "usage", "resetsAt": "2027-01-15T08:01:00.000Z"}))]
        );
        assert_eq!(
            failure.message(),
            "the usage limit of the subscription is reached until 2027-01-15T08:01:00Z"
        );
    }

    #[test]
    fn an_error_within_an_answer_has_its_members_in_one_of_three_places() {
        use AgentErrorKind::*;
        for (code, kind) in [
            ("context_length_exceeded", ContextExceeded),
            ("rate_limit_exceeded", RateLimited),
            ("usage_limit_reached", RateLimited),
            ("insufficient_quota", SubscriptionRefused),
            ("unauthorized", SignInRequired),
            ("server_is_overloaded", Failed),
            ("slow_down", Failed),
            ("invalid_prompt", Failed),
            ("something_new", Failed),
        ] {
            for event in [
                json!({"type": "response.failed", "response": {"error": {"code": code, "message": "sk-1"}}}),
                json!({"type": "error", "error": {"type": code, "message": "sk-1"}}),
                json!({"type": "error", "code": code, "message": "sk-1", "param": null}),
            ] {
                let failure = reported(Subscription, &event.to_string());
                assert_eq!(failure.kind(), kind, "{event}");
                assert!(!format!("{failure} {failure:?}").contains("sk-1"), "{failure:?}");
            }
        }
        for (event, kind) in [
            (json!({"type": "error", "status_code": 401, "error": {}}), SignInRequired),
            (json!({"type": "error", "status": 429, "headers": {"Retry-After": 7}}), RateLimited),
            (
                json!({"type": "error", "status_code": 200, "error": {"message": "Your input exceeds the context window of this model."}}),
                ContextExceeded,
            ),
            (json!({"type": "response.failed", "response": {"error": null}}), Failed),
            (json!({"type": "error", "status_code": 70_000, "headers": [], "error": 7}), Failed),
        ] {
            assert_eq!(reported(Subscription, &event.to_string()).kind(), kind, "{event}");
        }
        let failure = reported(ApiKey, r#"{"type":"error","status":429,"headers":{"Retry-After":7}}"#);
        assert_eq!(failure.retry_after(), Some(Duration::from_secs(7)));
        let headers: serde_json::Map<String, Value> =
            (0..1000).map(|i| (format!("x-{i}"), json!("y"))).collect();
        let server_error =
            ServerError::from_event(json!({"type": "error", "headers": headers}).to_string().as_bytes());
        assert_eq!(server_error.headers.len(), MAX_EVENT_HEADERS);
    }
}
