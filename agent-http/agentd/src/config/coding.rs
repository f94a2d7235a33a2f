//! Configuration of the proxies of a coding subscription.

use std::time::Duration;

use agent_client::device_auth::{DeviceAuthDialect, IssuerConfig};
use http::HeaderValue;
use url::Url;

use super::SettingError;
use super::resolve::ResolvedSettings;
use super::values::{SettingValues, required, required_usize};

/// Configuration of the proxies of a coding subscription.
#[derive(Debug, Clone)]
pub struct CodingConfig {
    /// Address of the model API. Without it, the proxy is disabled.
    pub api_url: Option<Url>,
    /// Issuer of the subscription's tokens.
    pub issuer: CodingIssuerConfig,
    /// Name of this program in the header `originator` of requests to the model API.
    pub originator: HeaderValue,
    /// Maximum size in bytes of a request body for the model API.
    pub body_limit_bytes: usize,
    /// Maximum silence within a response of the model API.
    pub stream_idle: Duration,
}

/// Configuration of the issuer of a coding subscription's tokens.
#[derive(Debug, Clone)]
pub enum CodingIssuerConfig {
    /// All required settings are set.
    Configured(Box<IssuerConfig>),
    /// The sign-in is disabled, because the setting with this name is missing.
    MissingSetting(&'static str),
}

/// Name of the setting whose value becomes a header.
const ORIGINATOR: &str = "CODING_ORIGINATOR";

/// Adds an error if the originator is not valid in a header.
pub(super) fn check(resolved: &ResolvedSettings, values: &SettingValues, errors: &mut Vec<SettingError>) {
    if values.text(ORIGINATOR).is_some_and(|name| originator(&name).is_none()) {
        errors.push(SettingError {
            name: ORIGINATOR.to_owned(),
            source: resolved.get(ORIGINATOR).map(|(_, source)| source.clone()),
            message: "must be printable ASCII".to_owned(),
        });
    }
}

fn originator(name: &str) -> Option<HeaderValue> {
    let is_printable = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    HeaderValue::from_str(name).ok().filter(|_| is_printable)
}

/// Builds the configuration from values that [`check`] has accepted.
pub(super) fn load(values: &SettingValues) -> CodingConfig {
    CodingConfig {
        api_url: values.url("CODING_API_URL"),
        issuer: issuer(values),
        originator: required(values.text(ORIGINATOR).and_then(|name| originator(&name))),
        body_limit_bytes: required_usize(values.number("CODING_BODY_LIMIT_BYTES")),
        stream_idle: required(values.millis("CODING_STREAM_IDLE_MS")),
    }
}

fn issuer(values: &SettingValues) -> CodingIssuerConfig {
    let missing = CodingIssuerConfig::MissingSetting;
    let Some(issuer) = values.url("CODING_AUTH_URL") else { return missing("CODING_AUTH_URL") };
    let dialect = values.text("CODING_AUTH_DIALECT").and_then(|name| DeviceAuthDialect::from_name(&name));
    let Some(dialect) = dialect else { return missing("CODING_AUTH_DIALECT") };
    let Some(client_id) = values.text("CODING_CLIENT_ID") else { return missing("CODING_CLIENT_ID") };
    CodingIssuerConfig::Configured(Box::new(IssuerConfig {
        issuer,
        dialect,
        client_id,
        device_url: values.url("CODING_DEVICE_URL"),
        token_url: values.url("CODING_TOKEN_URL"),
        exchange_url: values.url("CODING_EXCHANGE_URL"),
        revoke_url: values.url("CODING_REVOKE_URL"),
        verification_url: values.url("CODING_VERIFICATION_URL"),
        scope: values.text("CODING_SCOPE"),
    }))
}
