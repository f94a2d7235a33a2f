//! Client of a subscription's issuer, which the application reaches through the operator's own agent runtime.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;
use agent_platform::coding::{
    CodingAuthority, CodingAuthorityError, DeviceCode, InvalidGrantReason, IssuedTokens, TokenHint,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use crate::device_auth::fields::check_page_url;
use crate::device_auth::text::{is_printable, is_user_code};
use crate::device_auth::{MAX_ACCOUNT_BYTES, MAX_PLAN_BYTES, MAX_TOKEN_BYTES};
use crate::outbound::{OutboundClient, UrlTrust, join_path, retry_after, status_failure, was_sent};
use crate::problem::PROBLEM_JSON;

/// Limit of a response's size. Tokens have at most 16 KiB each.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Timeout of a response's head. The runtime itself gives an issuer 20 s.
const HEAD_TIMEOUT: Duration = Duration::from_secs(22);
/// Timeout of a response's body, which the runtime sends at once.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest handle of a sign-in, in bytes.
const MAX_DEVICE_CODE_BYTES: usize = 2_048;
/// Longest description of a problem that is passed on, in bytes.
const MAX_DETAIL_BYTES: usize = 200;
/// Interval of polls if the runtime returns no interval (RFC 8628, section 3.2).
const DEFAULT_INTERVAL_SECONDS: u64 = 5;

/// Calls a subscription's issuer through `/coding-auth` of the operator's own runtime. Bodies are never logged.
#[derive(Debug, Clone)]
pub struct RuntimeCodingAuthority {
    /// The guarded client.
    pub outbound: OutboundClient,
    /// The runtime's base URL, `RUNTIME_URL`.
    pub runtime: Url,
    /// The runtime's shared secret, `RUNTIME_SECRET`; it is sent to no other address.
    pub secret: Option<Secret>,
}

#[async_trait]
impl CodingAuthority for RuntimeCodingAuthority {
    async fn request_device_code(&self) -> Result<DeviceCode, CodingAuthorityError> {
        let answer: DeviceAnswer = self.call("device", &json!({}), None).await?;
        answer.into_code().ok_or_else(|| refused(invalid_answer()))
    }

    async fn request_tokens(&self, device_code: &Secret) -> Result<IssuedTokens, CodingAuthorityError> {
        self.tokens("token", &json!({"device_code": device_code.expose()}), None).await
    }

    async fn refresh(
        &self,
        refresh_token: &Secret,
        send_by: Instant,
    ) -> Result<IssuedTokens, CodingAuthorityError> {
        self.tokens("refresh", &json!({"refresh_token": refresh_token.expose()}), Some(send_by)).await
    }

    async fn revoke(&self, token: &Secret, hint: TokenHint) -> Result<bool, CodingAuthorityError> {
        let body = json!({"token": token.expose(), "token_type_hint": hint.as_str()});
        let answer: RevocationAnswer = self.call("revoke", &body, None).await?;
        Ok(answer.revoked)
    }
}

impl RuntimeCodingAuthority {
    async fn tokens(
        &self,
        route: &str,
        body: &Value,
        send_by: Option<Instant>,
    ) -> Result<IssuedTokens, CodingAuthorityError> {
        let answer: TokenAnswer = self.call(route, body, send_by).await?;
        // The issuer has processed the request, although its answer cannot be used.
        answer.into_tokens().ok_or_else(|| unanswered(invalid_answer()))
    }

    /// Calls a route of the runtime, not after `send_by`, and reads the answer.
    async fn call<T: DeserializeOwned>(
        &self,
        route: &str,
        body: &Value,
        send_by: Option<Instant>,
    ) -> Result<T, CodingAuthorityError> {
        let url = join_path(&self.runtime, &["coding-auth", route]).map_err(refused)?;
        let (secret, body) = (self.secret.as_ref(), Bytes::from(body.to_string()));
        let request = self.outbound.post_json(&url, UrlTrust::Operator, secret, "application/json", body);
        let request = request.map_err(refused)?.header_timeout(HEAD_TIMEOUT).send_by(send_by);
        let sent = request.send().await;
        let response = sent.map_err(|failure| match was_sent(&failure) {
            true => unanswered(failure),
            false => CodingAuthorityError::NotSent(Arc::new(failure)),
        })?;
        let (status, headers) = (response.status, response.headers.clone());
        let is_problem = response.media_type() == PROBLEM_JSON;
        let body = response.read_limited(MAX_RESPONSE_BYTES, BODY_TIMEOUT).await.map_err(unanswered)?;
        if status.is_success() && !is_problem {
            return serde_json::from_slice(&body).map_err(|_| unanswered(invalid_answer()));
        }
        let problem = is_problem.then(|| serde_json::from_slice::<CodingProblem>(&body).ok()).flatten();
        Err(problem.unwrap_or_default().into_error(status, &headers))
    }
}

/// Response of `POST /coding-auth/device`.
#[derive(Deserialize)]
struct DeviceAnswer {
    device_code: Secret,
    user_code: Secret,
    verification_uri: String,
    expires_in: u64,
    interval: Option<u64>,
}

impl DeviceAnswer {
    /// Returns the device code; `None` if a member cannot be shown to a user.
    fn into_code(self) -> Option<DeviceCode> {
        let user_code = self.user_code.expose();
        let is_valid = is_user_code(user_code)
            && is_printable(self.device_code.expose(), MAX_DEVICE_CODE_BYTES)
            && check_page_url(&self.verification_uri).is_some();
        is_valid.then(|| DeviceCode {
            device_code: self.device_code,
            user_code: self.user_code,
            verification_uri: self.verification_uri,
            expires_in: Duration::from_secs(self.expires_in),
            interval: Duration::from_secs(self.interval.unwrap_or(DEFAULT_INTERVAL_SECONDS)),
        })
    }
}

/// Response of `POST /coding-auth/token` and `POST /coding-auth/refresh`.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: Secret,
    refresh_token: Option<Secret>,
    expires_in: u64,
    account_id: Option<Secret>,
    plan: Option<String>,
}

impl TokenAnswer {
    /// Returns the tokens; `None` if one of them could not be sent in a header.
    fn into_tokens(self) -> Option<IssuedTokens> {
        let fits = |secret: &Option<Secret>, limit| {
            secret.as_ref().is_none_or(|secret| is_printable(secret.expose(), limit))
        };
        let is_valid = is_printable(self.access_token.expose(), MAX_TOKEN_BYTES)
            && fits(&self.refresh_token, MAX_TOKEN_BYTES)
            && fits(&self.account_id, MAX_ACCOUNT_BYTES);
        is_valid.then(|| IssuedTokens {
            access_token: self.access_token,
            refresh_token: self.refresh_token,
            expires_in: Duration::from_secs(self.expires_in),
            account_id: self.account_id,
            plan: self.plan.filter(|plan| is_printable(plan, MAX_PLAN_BYTES)),
        })
    }
}

/// Response of `POST /coding-auth/revoke`.
#[derive(Deserialize)]
struct RevocationAnswer {
    revoked: bool,
}

/// Members of the runtime's problems that are used.
#[derive(Deserialize, Default)]
struct CodingProblem {
    code: Option<String>,
    /// OAuth's own word, with the code `OAUTH_ERROR`.
    error: Option<String>,
    /// Reason of `invalid_grant`.
    reason: Option<String>,
    #[serde(default)]
    detail: String,
}

impl CodingProblem {
    fn into_error(self, status: StatusCode, headers: &HeaderMap) -> CodingAuthorityError {
        let failed = |message: &'static str| AgentError::new(AgentErrorKind::Failed, message);
        match self.code.as_deref() {
            Some("OAUTH_ERROR") => self.into_oauth_error(),
            Some("NOT_CONFIGURED") => CodingAuthorityError::NotConfigured(setting_name(&self.detail)),
            Some("RATE_LIMITED") => {
                CodingAuthorityError::RateLimited(retry_after(headers, SystemTime::now()))
            }
            Some("UNAUTHENTICATED") => refused(failed("the agent runtime rejected RUNTIME_SECRET")),
            Some("BACKEND_UNREACHABLE") => unanswered(AgentError::new(
                AgentErrorKind::Unreachable,
                "the issuer of the sign-in cannot be reached",
            )),
            Some("BACKEND_TIMEOUT") => unanswered(AgentError::new(
                AgentErrorKind::Timeout,
                "the issuer of the sign-in did not answer in time",
            )),
            Some("BACKEND_FAILED") => unanswered(self.into_failure()),
            _ if status.is_server_error() => unanswered(status_failure(status, headers)),
            _ => refused(status_failure(status, headers)),
        }
    }

    fn into_oauth_error(self) -> CodingAuthorityError {
        match self.error.as_deref() {
            Some("authorization_pending") => CodingAuthorityError::Pending,
            Some("slow_down") => CodingAuthorityError::SlowDown,
            Some("access_denied") => CodingAuthorityError::Denied,
            Some("expired_token") => CodingAuthorityError::Expired,
            Some("invalid_grant") => {
                let reason = self.reason.as_deref().unwrap_or_default();
                CodingAuthorityError::InvalidGrant(InvalidGrantReason::from_wire(reason))
            }
            _ => refused(AgentError::new(
                AgentErrorKind::Failed,
                "the issuer of the sign-in refused the request",
            )),
        }
    }

    /// Returns the failure of an issuer. The description is the runtime's own, and says what the user can do, such as
    /// changing the account's security settings.
    fn into_failure(self) -> AgentError {
        let message = match is_printable_text(&self.detail, MAX_DETAIL_BYTES) {
            true => self.detail,
            false => "the issuer of the sign-in failed".to_owned(),
        };
        AgentError::new(AgentErrorKind::Failed, message)
    }
}

fn refused(error: AgentError) -> CodingAuthorityError {
    CodingAuthorityError::Refused(Arc::new(error))
}

fn unanswered(error: AgentError) -> CodingAuthorityError {
    CodingAuthorityError::Unanswered(Arc::new(error))
}

fn invalid_answer() -> AgentError {
    AgentError::new(AgentErrorKind::Failed, "the agent runtime returned an invalid response")
}

/// Returns the name of the setting with which a problem's description begins. Without one, it is the setting without which no
/// sign-in works.
fn setting_name(detail: &str) -> String {
    let name = detail.split(' ').next().unwrap_or_default();
    let is_name = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    match is_name && name.starts_with("CODING_") && name.len() <= 64 {
        true => name.to_owned(),
        false => "CODING_AUTH_URL".to_owned(),
    }
}

/// Returns true if the text has 1 to `limit` bytes of printable ASCII.
fn is_printable_text(text: &str, limit: usize) -> bool {
    (1..=limit).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests;
