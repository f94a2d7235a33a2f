//! The device authorization grant of RFC 8628.

use agent_core::secret::Secret;
use url::Url;

use super::call::{CallBody, OperationDeadline};
use super::config::url_or_below;
use super::issuer_call::IssuerCall;
use super::{DeviceAuthClient, DeviceAuthError, DeviceCode, IssuerConfig, TokenSet};

const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";

fn device_url(config: &IssuerConfig) -> Url {
    url_or_below(config.device_url.as_ref(), &config.issuer, &["device", "code"])
}

/// Returns the address of polls and refreshes.
pub(super) fn token_url(config: &IssuerConfig) -> Url {
    url_or_below(config.token_url.as_ref(), &config.issuer, &["token"])
}

pub(super) async fn start(
    client: &DeviceAuthClient,
    scope: Option<&str>,
) -> Result<DeviceCode, DeviceAuthError> {
    let config = &client.config;
    let mut members = vec![("client_id", config.client_id.as_str())];
    members.extend(scope.map(|scope| ("scope", scope)));
    let form = CallBody::Form(&members);
    let response =
        client.call(IssuerCall::Start, &device_url(config), form, OperationDeadline::start()).await?;
    let fields = response.into_fields(config.dialect, IssuerCall::Start)?;
    let codes = || {
        Some(DeviceCode {
            device_code: fields.device_code("device_code")?,
            user_code: fields.user_code("user_code")?,
            verification_uri: fields.page_url("verification_uri")?,
            verification_uri_complete: fields.page_url("verification_uri_complete").map(Secret::new),
            expires_in: fields.code_lifetime(client.clock.now()),
            interval: fields.interval(),
        })
    };
    codes().ok_or_else(|| fields.into_error(IssuerCall::Start))
}

pub(super) async fn poll(
    client: &DeviceAuthClient,
    device_code: &Secret,
) -> Result<TokenSet, DeviceAuthError> {
    let form = CallBody::Form(&[
        ("grant_type", GRANT_TYPE),
        ("device_code", device_code.expose()),
        ("client_id", &client.config.client_id),
    ]);
    let url = token_url(&client.config);
    client.request_tokens(IssuerCall::Poll, &url, form, OperationDeadline::start()).await
}
