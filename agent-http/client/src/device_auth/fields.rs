//! Fields of an issuer's answers and their checks.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use agent_core::secret::Secret;
use jiff::Timestamp;
use serde_json::{Map, Value};
use url::{Host, Url};

use super::text::{is_printable, is_user_code};
use super::{DeviceAuthDialect, MAX_TOKEN_BYTES, TokenSet, jwt};

/// Maximum length of a device code in bytes, so that its handle stays short.
const MAX_DEVICE_CODE_BYTES: usize = 1024;
/// Maximum length of a verification URL in bytes.
const MAX_URI_BYTES: usize = 2048;
/// Maximum length of a scope in bytes.
const MAX_SCOPE_BYTES: usize = 1024;

/// Lifetime of a device code: without a valid one in the answer, and the maximum.
const DEFAULT_CODE_LIFETIME: Duration = Duration::from_secs(900);
const MAX_CODE_LIFETIME: Duration = Duration::from_secs(1800);
/// Interval of polls in seconds: without a valid one in the answer, and its bounds.
const DEFAULT_INTERVAL: f64 = 5.0;
const MIN_INTERVAL: f64 = 1.0;
const MAX_INTERVAL: f64 = 60.0;
/// Lifetime of an access token: without a valid one in the answer, and the maximum.
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Members of a JSON object that the issuer has sent.
pub(super) struct AnswerFields(Map<String, Value>);

impl AnswerFields {
    /// Parses a body; returns `None` if it is not a JSON object.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok().map(Self)
    }

    /// Returns the error codes from each of the fields in which issuers put them.
    pub(super) fn error_codes(&self) -> impl Iterator<Item = &str> {
        let error = self.0.get("error");
        let nested = error.and_then(|error| error.get("code"));
        [error, nested, self.0.get("code")]
            .into_iter()
            .filter_map(|code| code?.as_str())
            .filter(|code| !code.is_empty())
    }

    /// Returns a text of printable ASCII with 1 to `max_bytes` bytes.
    pub(super) fn printable(&self, name: &str, max_bytes: usize) -> Option<&str> {
        self.0.get(name)?.as_str().filter(|text| is_printable(text, max_bytes))
    }

    /// Returns a code that identifies a sign-in.
    pub(super) fn device_code(&self, name: &str) -> Option<Secret> {
        self.printable(name, MAX_DEVICE_CODE_BYTES).map(Secret::new)
    }

    /// Returns a code that a person can enter.
    pub(super) fn user_code(&self, name: &str) -> Option<Secret> {
        self.0.get(name)?.as_str().filter(|code| is_user_code(code)).map(Secret::new)
    }

    /// Returns the address of a page that a person can open.
    pub(super) fn page_url(&self, name: &str) -> Option<String> {
        check_page_url(self.0.get(name)?.as_str()?)
    }

    /// Returns a number, which may be written as a text.
    fn number(&self, name: &str) -> Option<f64> {
        let number = match self.0.get(name)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| number.is_finite())
    }

    /// Returns a positive duration of at most `max`.
    fn lifetime(&self, name: &str, max: Duration) -> Option<Duration> {
        let seconds = self.number(name).filter(|seconds| *seconds >= 1.0)?;
        Some(Duration::from_secs_f64(seconds.min(max.as_secs_f64()).floor()))
    }

    /// Returns the interval of polls.
    pub(super) fn interval(&self) -> Duration {
        let seconds = self.number("interval").unwrap_or(DEFAULT_INTERVAL);
        Duration::from_secs_f64(seconds.ceil().clamp(MIN_INTERVAL, MAX_INTERVAL))
    }

    /// Returns the lifetime of a device code: `expires_in`, or the time until `expires_at` (RFC 3339).
    pub(super) fn code_lifetime(&self, now: SystemTime) -> Duration {
        let until = || {
            let end: Timestamp = self.0.get("expires_at")?.as_str()?.parse().ok()?;
            let remaining = SystemTime::from(end).duration_since(now).ok()?;
            (remaining >= Duration::from_secs(1)).then(|| Duration::from_secs(remaining.as_secs()))
        };
        let lifetime = self.lifetime("expires_in", MAX_CODE_LIFETIME).or_else(until);
        lifetime.unwrap_or(DEFAULT_CODE_LIFETIME).min(MAX_CODE_LIFETIME)
    }

    /// Returns the tokens; `None` if a required one is absent, or one is malformed.
    ///
    /// The id token comes from the issuer over TLS, so that its signature need not be checked (OpenID Connect Core
    /// 3.1.3.7). It is personal data, so it is not part of the result.
    pub(super) fn tokens(&self, dialect: DeviceAuthDialect, now: SystemTime) -> Option<TokenSet> {
        let token_type = self.0.get("token_type").filter(|value| !value.is_null());
        if !token_type
            .is_none_or(|value| value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("bearer")))
        {
            return None;
        }
        let access_token = self.printable("access_token", MAX_TOKEN_BYTES)?;
        let refresh_token = match self.0.get("refresh_token") {
            None | Some(Value::Null) => None,
            Some(_) => Some(Secret::new(self.printable("refresh_token", MAX_TOKEN_BYTES)?)),
        };
        let access_claims = jwt::read_claims(access_token);
        let mut tokens = TokenSet {
            access_token: Secret::new(access_token),
            refresh_token,
            expires_in: self
                .lifetime("expires_in", MAX_TOKEN_LIFETIME)
                .or_else(|| access_claims.as_ref()?.lifetime(now))
                .map_or(DEFAULT_TOKEN_LIFETIME, |lifetime| lifetime.min(MAX_TOKEN_LIFETIME)),
            scope: self
                .0
                .get("scope")
                .and_then(Value::as_str)
                .filter(|scope| is_scope(scope))
                .map(Into::into),
            account_id: None,
            plan: None,
        };
        if dialect == DeviceAuthDialect::Codex {
            let id_claims = self.0.get("id_token").and_then(Value::as_str).and_then(jwt::read_claims);
            let claims = || id_claims.iter().chain(&access_claims);
            tokens.account_id = claims().find_map(jwt::TokenClaims::account_id);
            tokens.plan = claims().find_map(jwt::TokenClaims::plan);
        }
        Some(tokens)
    }
}

/// Returns true for a scope (RFC 6749 section 3.3).
fn is_scope(text: &str) -> bool {
    let allowed = |byte: u8| byte == b' ' || byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    (1..=MAX_SCOPE_BYTES).contains(&text.len()) && text.bytes().all(allowed)
}

/// Returns the normalized form of a URL that a person may be sent to: `https`, or `http` on this machine, without user
/// information.
pub(crate) fn check_page_url(text: &str) -> Option<String> {
    if !is_printable(text, MAX_URI_BYTES) {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let is_secure = url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url);
    let has_user = !url.username().is_empty() || url.password().is_some();
    let text = url.as_str();
    (is_secure && !has_user && is_printable(text, MAX_URI_BYTES)).then(|| text.to_owned())
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    }
}
