//! `POST /coding-auth/…`: sign-in to a coding subscription by a device code, refresh and revocation of its tokens.
//!
//! The runtime stores nothing: the codes of a sign-in travel in its handle, sealed. Outward, requests and errors are
//! those of RFC 8628 and RFC 6749 for every dialect of issuers. Tokens and codes are in no log and no error.

mod describe;

use std::time::Duration;

use agent_client::device_auth::{DeviceAuthError, DeviceCode, MAX_TOKEN_BYTES, OauthErrorCode, TokenSet};
use agent_core::secret::Secret;
use agent_platform::coding::TokenHint;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::proxy::check_secret;
use super::state::RuntimeState;
use crate::endpoint::RequestContext;
use crate::error::{Code, HttpError};
use crate::response;
use crate::service::HandlerResult;

pub(super) use self::describe::{describe_device, describe_refresh, describe_revoke, describe_token};

/// Maximum size of a request body in bytes.
pub(super) const MAX_BODY_BYTES: usize = 16 << 10;
/// Maximum length of a scope in bytes.
const MAX_SCOPE_BYTES: usize = 1024;

/// Body of `POST /coding-auth/device`.
#[derive(Deserialize)]
struct DeviceRequest {
    scope: Option<String>,
}

/// Body of `POST /coding-auth/token`.
#[derive(Deserialize)]
struct PollRequest {
    device_code: Option<Secret>,
}

/// Body of `POST /coding-auth/refresh`.
#[derive(Deserialize)]
struct RefreshRequest {
    refresh_token: Option<Secret>,
}

/// Body of `POST /coding-auth/revoke`.
#[derive(Deserialize)]
struct RevokeRequest {
    token: Option<Secret>,
    token_type_hint: Option<String>,
}

pub(super) async fn device(context: RequestContext<RuntimeState>, (): ()) -> HandlerResult {
    start(context).await.map_err(HttpError::prevent_caching)
}

pub(super) async fn token(context: RequestContext<RuntimeState>, (): ()) -> HandlerResult {
    poll(context).await.map_err(HttpError::prevent_caching)
}

pub(super) async fn refresh(context: RequestContext<RuntimeState>, (): ()) -> HandlerResult {
    exchange_refresh_token(context).await.map_err(HttpError::prevent_caching)
}

pub(super) async fn revoke(context: RequestContext<RuntimeState>, (): ()) -> HandlerResult {
    revoke_token(context).await.map_err(HttpError::prevent_caching)
}

async fn start(context: RequestContext<RuntimeState>) -> HandlerResult {
    let RequestContext { state: runtime, head, body, .. } = context;
    let auth = runtime.coding_issuer.configured()?;
    let request: DeviceRequest = body.read_json(&head.headers).await?;
    let scope = request.scope.as_deref().filter(|scope| !scope.is_empty());
    if !scope.is_none_or(is_scope) {
        return Err(HttpError::invalid("scope", "must be words of printable ASCII"));
    }
    let device_code = record("device", auth.client.start(scope).await)?;
    let handle = auth.handles.seal(&device_code, runtime.clock.now())?;
    response::json(StatusCode::OK, &device_answer(&device_code, &handle))
}

async fn poll(context: RequestContext<RuntimeState>) -> HandlerResult {
    let RequestContext { state: runtime, head, body, .. } = context;
    let auth = runtime.coding_issuer.configured()?;
    let request: PollRequest = body.read_json(&head.headers).await?;
    let handle = request.device_code.ok_or_else(|| HttpError::invalid("device_code", "is missing"))?;
    let codes = auth.handles.open(&handle, runtime.clock.now());
    let Some(codes) = codes else { return Err(oauth_error(OauthErrorCode::ExpiredToken)) };
    let result = auth.client.poll(&codes.device_code, &codes.user_code).await;
    response::json(StatusCode::OK, &token_answer(&record("token", result)?))
}

async fn exchange_refresh_token(context: RequestContext<RuntimeState>) -> HandlerResult {
    let RequestContext { state: runtime, head, body, .. } = context;
    let auth = runtime.coding_issuer.configured()?;
    let request: RefreshRequest = body.read_json(&head.headers).await?;
    let (token, _) = check_secret("refresh_token", request.refresh_token.as_ref(), MAX_TOKEN_BYTES)?;
    let result = auth.client.refresh(token).await;
    response::json(StatusCode::OK, &token_answer(&record("refresh", result)?))
}

async fn revoke_token(context: RequestContext<RuntimeState>) -> HandlerResult {
    let RequestContext { state: runtime, head, body, .. } = context;
    let auth = runtime.coding_issuer.configured()?;
    let request: RevokeRequest = body.read_json(&head.headers).await?;
    let (token, _) = check_secret("token", request.token.as_ref(), MAX_TOKEN_BYTES)?;
    let hint = match request.token_type_hint.as_deref() {
        None | Some("") => None,
        Some(name) => Some(TokenHint::from_name(name).ok_or_else(|| {
            HttpError::invalid("token_type_hint", "must be `access_token` or `refresh_token`")
        })?),
    };
    let revoked = record("revoke", auth.client.revoke(token, hint).await)?;
    response::json(StatusCode::OK, &json!({"revoked": revoked}))
}

/// Logs the outcome of a call and converts its error.
fn record<T>(route: &'static str, outcome: Result<T, DeviceAuthError>) -> Result<T, HttpError> {
    match &outcome {
        Ok(_) => tracing::info!(route, "the issuer granted the request"),
        Err(DeviceAuthError::Oauth(code)) if !code.is_pending() => {
            let reason = code.reason().map(|reason| reason.as_str());
            tracing::info!(route, error = code.as_str(), reason, "the issuer refused the request");
        }
        // Polls are frequent, and other errors are logged with their responses.
        Err(_) => {}
    }
    outcome.map_err(into_http_error)
}

fn into_http_error(error: DeviceAuthError) -> HttpError {
    match error {
        DeviceAuthError::Oauth(code) => oauth_error(code),
        DeviceAuthError::ClientRejected => HttpError::new(
            Code::NotConfigured,
            "the issuer does not accept CODING_CLIENT_ID, or not with this scope",
        ),
        DeviceAuthError::Failed(error) => error.into(),
    }
}

/// Returns the problem with an error code of OAuth in the member `error`.
fn oauth_error(code: OauthErrorCode) -> HttpError {
    let detail = match code {
        OauthErrorCode::AuthorizationPending => "the code has not been entered yet",
        OauthErrorCode::SlowDown => "the interval between polls must be increased by 5 seconds",
        OauthErrorCode::AccessDenied => "the sign-in was refused",
        OauthErrorCode::ExpiredToken => "the code has expired, or is not one of this issuer",
        OauthErrorCode::InvalidGrant(_) => "the refresh token is not valid; a new sign-in is required",
    };
    let error = HttpError::new(Code::OauthError, detail).with_member("error", code.as_str().into());
    match code.reason() {
        Some(reason) => error.with_member("reason", reason.as_str().into()),
        None => error,
    }
}

/// Returns true for a scope (RFC 6749 section 3.3).
fn is_scope(scope: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
    };
    scope.len() <= MAX_SCOPE_BYTES && scope.split(' ').all(is_word)
}

fn device_answer(code: &DeviceCode, handle: &Secret) -> Value {
    let mut answer = json!({
        "device_code": handle.expose(),
        "user_code": code.user_code.expose(),
        "verification_uri": code.verification_uri,
        "expires_in": seconds(code.expires_in),
        "interval": seconds(code.interval),
    });
    if let (Some(complete), Value::Object(members)) = (&code.verification_uri_complete, &mut answer) {
        members.insert("verification_uri_complete".to_owned(), complete.expose().into());
    }
    answer
}

fn token_answer(tokens: &TokenSet) -> Value {
    let TokenSet { access_token, refresh_token, expires_in, scope, account_id, plan } = tokens;
    let optional = [
        ("refresh_token", refresh_token.as_ref().map(Secret::expose)),
        ("scope", scope.as_deref()),
        ("account_id", account_id.as_ref().map(Secret::expose)),
        ("plan", plan.as_deref()),
    ];
    let required: [(&str, Value); 3] = [
        ("access_token", access_token.expose().into()),
        ("token_type", "Bearer".into()),
        ("expires_in", seconds(*expires_in).into()),
    ];
    let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?.into())));
    let members = required.into_iter().chain(optional).map(|(name, value)| (name.to_owned(), value));
    Value::Object(members.collect::<Map<_, _>>())
}

fn seconds(duration: Duration) -> u64 {
    duration.as_secs()
}
