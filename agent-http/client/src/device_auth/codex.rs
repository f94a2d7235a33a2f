//! The dialect with JSON bodies: a poll returns an authorization code and the PKCE pair that the issuer has chosen.

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use url::Url;

use super::call::{CallBody, OperationDeadline};
use super::config::url_or_below;
use super::fields::{AnswerFields, check_page_url};
use super::issuer_call::IssuerCall;
use super::{DeviceAuthClient, DeviceAuthError, DeviceCode, IssuerConfig, TokenSet};

/// Maximum length of an authorization code in bytes.
const MAX_CODE_BYTES: usize = 4096;
/// Maximum length of a code verifier in bytes (RFC 7636 section 4.1).
const MAX_VERIFIER_BYTES: usize = 128;
/// Length of a challenge by S256.
const CHALLENGE_BYTES: usize = 43;

fn device_url(config: &IssuerConfig) -> Url {
    let segments = ["api", "accounts", "deviceauth", "usercode"];
    url_or_below(config.device_url.as_ref(), &config.issuer, &segments)
}

fn poll_url(config: &IssuerConfig) -> Url {
    let segments = ["api", "accounts", "deviceauth", "token"];
    url_or_below(config.token_url.as_ref(), &config.issuer, &segments)
}

fn verification_url(config: &IssuerConfig) -> Url {
    url_or_below(config.verification_url.as_ref(), &config.issuer, &["codex", "device"])
}

fn redirect_url(config: &IssuerConfig) -> Url {
    url_or_below(None, &config.issuer, &["deviceauth", "callback"])
}

/// Returns the address of exchanges and refreshes.
pub(super) fn exchange_url(config: &IssuerConfig) -> Url {
    url_or_below(config.exchange_url.as_ref(), &config.issuer, &["oauth", "token"])
}

/// Returns the address of revocations.
pub(super) fn revoke_url(config: &IssuerConfig) -> Url {
    url_or_below(config.revoke_url.as_ref(), &config.issuer, &["oauth", "revoke"])
}

pub(super) async fn start(client: &DeviceAuthClient) -> Result<DeviceCode, DeviceAuthError> {
    let config = &client.config;
    let page = check_page_url(verification_url(config).as_str()).ok_or_else(no_page)?;
    let members = [("client_id", config.client_id.as_str())];
    let (url, body) = (device_url(config), CallBody::Json(&members));
    let response = client.call(IssuerCall::Start, &url, body, OperationDeadline::start()).await?;
    let fields = response.into_fields(config.dialect, IssuerCall::Start)?;
    let codes = || {
        Some(DeviceCode {
            device_code: fields.device_code("device_auth_id")?,
            user_code: fields.user_code("user_code").or_else(|| fields.user_code("usercode"))?,
            verification_uri: page.clone(),
            verification_uri_complete: None,
            expires_in: fields.code_lifetime(client.clock.now()),
            interval: fields.interval(),
        })
    };
    codes().ok_or_else(|| fields.into_error(IssuerCall::Start))
}

/// Polls, and exchanges the authorization code of a success. Both requests share one deadline.
pub(super) async fn poll(
    client: &DeviceAuthClient,
    device_auth_id: &Secret,
    user_code: &Secret,
) -> Result<TokenSet, DeviceAuthError> {
    let body =
        CallBody::Json(&[("device_auth_id", device_auth_id.expose()), ("user_code", user_code.expose())]);
    let (config, deadline) = (&client.config, OperationDeadline::start());
    let response = client.call(IssuerCall::Poll, &poll_url(config), body, deadline).await?;
    let fields = response.into_fields(config.dialect, IssuerCall::Poll)?;
    let Some((code, verifier)) = authorization(&fields) else {
        return Err(fields.into_error(IssuerCall::Poll));
    };
    let redirect = redirect_url(config);
    let form = CallBody::Form(&[
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect.as_str()),
        ("client_id", &config.client_id),
        ("code_verifier", verifier),
    ]);
    client.request_tokens(IssuerCall::Exchange, &exchange_url(config), form, deadline).await
}

/// Returns the error of a configured page that a person cannot be sent to.
fn no_page() -> AgentError {
    let message = "the page for the code is neither an https address nor one on loopback";
    AgentError::new(AgentErrorKind::Failed, message)
}

/// Returns the authorization code and its verifier, if the verifier matches the challenge.
fn authorization(fields: &AnswerFields) -> Option<(&str, &str)> {
    let code = fields.printable("authorization_code", MAX_CODE_BYTES)?;
    let verifier = fields.printable("code_verifier", MAX_VERIFIER_BYTES)?;
    let challenge = fields.printable("code_challenge", CHALLENGE_BYTES)?;
    (BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) == challenge).then_some((code, verifier))
}
