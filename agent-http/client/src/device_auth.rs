//! Client of an OAuth issuer at which a person signs in with a code on another device, and which refreshes and revokes
//! the tokens of that sign-in.
//!
//! There are two [dialects](DeviceAuthDialect) with the same results and [errors](DeviceAuthError): that of RFC 8628, and
//! one with JSON bodies and a third step in which an authorization code is exchanged. The issuer's addresses and the
//! client id are the operator's; none is a default.
//!
//! Each request is sent once, redirects are not followed and bodies are not decompressed. Every field of a response is
//! checked. Texts of the issuer are in no error and no log, apart from error codes of a closed list.

mod call;
mod codex;
mod error;
pub(crate) mod fields;
mod issuer_call;
mod jwt;
mod rfc8628;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::secret::Secret;
use agent_platform::coding::TokenHint;
use url::Url;

pub use error::{DeviceAuthError, OauthErrorCode};

use call::{CallBody, OperationDeadline};
use issuer_call::IssuerCall;

use crate::outbound::OutboundClient;

/// Maximum size of a token in bytes, which has to fit into a header.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Maximum length of an account id in bytes.
pub const MAX_ACCOUNT_BYTES: usize = 128;

/// Maximum length of a plan's name in bytes.
pub(crate) const MAX_PLAN_BYTES: usize = 64;

/// Protocol of an issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceAuthDialect {
    /// The device authorization grant of RFC 8628, with form bodies.
    Rfc8628,
    /// Three steps with JSON bodies: a poll returns an authorization code with its PKCE pair (RFC 7636), which is
    /// exchanged for tokens.
    Codex,
}

impl DeviceAuthDialect {
    /// Names of the dialects in settings.
    pub const NAMES: &[&str] = &["rfc8628", "codex"];

    /// Returns the name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rfc8628 => "rfc8628",
            Self::Codex => "codex",
        }
    }

    /// Returns the dialect with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Rfc8628, Self::Codex].into_iter().find(|dialect| dialect.name() == name)
    }
}

/// Configuration of an issuer. Addresses that are absent are those of the dialect below `issuer`.
#[derive(Debug, Clone)]
pub struct IssuerConfig {
    /// Base URL of the issuer.
    pub issuer: Url,
    /// Protocol of the issuer.
    pub dialect: DeviceAuthDialect,
    /// Client id, which the issuer has assigned to the operator.
    pub client_id: String,
    /// Address that issues device codes.
    pub device_url: Option<Url>,
    /// Address that is polled; with [`DeviceAuthDialect::Rfc8628`] also that of refreshes.
    pub token_url: Option<Url>,
    /// Address of the exchange and of refreshes with [`DeviceAuthDialect::Codex`].
    pub exchange_url: Option<Url>,
    /// Address of revocations (RFC 7009). [`DeviceAuthDialect::Rfc8628`] has no default.
    pub revoke_url: Option<Url>,
    /// Page on which people enter their code, with [`DeviceAuthDialect::Codex`].
    pub verification_url: Option<Url>,
    /// Scope that a sign-in requests unless its caller names another one.
    pub scope: Option<String>,
}

/// Client of one issuer.
#[derive(Clone)]
pub struct DeviceAuthClient {
    outbound: OutboundClient,
    clock: Arc<dyn Clock>,
    config: Arc<IssuerConfig>,
}

/// Codes of a sign-in that has begun.
#[derive(Debug, Clone)]
pub struct DeviceCode {
    /// Code by which the issuer is polled: `device_code`, or the codex dialect's `device_auth_id`.
    pub device_code: Secret,
    /// Code that the person enters: 4 to 32 ASCII letters, digits and hyphens.
    pub user_code: Secret,
    /// Page on which the person enters the code: `https`, or `http` on loopback.
    pub verification_uri: String,
    /// The same page with the code in it.
    pub verification_uri_complete: Option<Secret>,
    /// Lifetime of the codes, at most 30 minutes.
    pub expires_in: Duration,
    /// Minimum time between two polls, 1 to 60 s.
    pub interval: Duration,
}

/// Tokens of a sign-in or of a refresh.
#[derive(Debug, Clone)]
pub struct TokenSet {
    /// Access token, of printable ASCII.
    pub access_token: Secret,
    /// Refresh token, of printable ASCII. If a refresh returns none, the previous one stays valid (RFC 6749 section 6).
    pub refresh_token: Option<Secret>,
    /// Lifetime of the access token.
    pub expires_in: Duration,
    /// Scope that was granted.
    pub scope: Option<String>,
    /// Account of the person at the vendor, if the dialect names one.
    pub account_id: Option<Secret>,
    /// Plan of the account.
    pub plan: Option<String>,
}

impl DeviceAuthClient {
    /// Creates a client. Nothing is sent yet.
    pub fn new(outbound: OutboundClient, clock: Arc<dyn Clock>, config: IssuerConfig) -> Self {
        Self { outbound, clock, config: config.into() }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &IssuerConfig {
        &self.config
    }

    /// Begins a sign-in. The codex dialect has no scope.
    ///
    /// # Errors
    /// [`DeviceAuthError::ClientRejected`] and [`DeviceAuthError::Failed`].
    pub async fn start(&self, scope: Option<&str>) -> Result<DeviceCode, DeviceAuthError> {
        match self.config.dialect {
            DeviceAuthDialect::Rfc8628 => rfc8628::start(self, scope.or(self.config.scope.as_deref())).await,
            DeviceAuthDialect::Codex => codex::start(self).await,
        }
    }

    /// Asks once whether the person has entered the code.
    ///
    /// # Errors
    /// [`DeviceAuthError::Oauth`] with any code but `invalid_grant`; the other variants.
    pub async fn poll(&self, device_code: &Secret, user_code: &Secret) -> Result<TokenSet, DeviceAuthError> {
        match self.config.dialect {
            DeviceAuthDialect::Rfc8628 => rfc8628::poll(self, device_code).await,
            DeviceAuthDialect::Codex => codex::poll(self, device_code, user_code).await,
        }
    }

    /// Exchanges a refresh token for new tokens. Issuers may accept a refresh token only once.
    ///
    /// # Errors
    /// [`DeviceAuthError::Oauth`] with `invalid_grant`, after which the refresh token is useless; the other variants.
    pub async fn refresh(&self, refresh_token: &Secret) -> Result<TokenSet, DeviceAuthError> {
        let form = CallBody::Form(&[
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.expose()),
            ("client_id", &self.config.client_id),
        ]);
        let url = match self.config.dialect {
            DeviceAuthDialect::Rfc8628 => rfc8628::token_url(&self.config),
            DeviceAuthDialect::Codex => codex::exchange_url(&self.config),
        };
        self.request_tokens(IssuerCall::Refresh, &url, form, OperationDeadline::start()).await
    }

    /// Revokes a token (RFC 7009). Returns false if the issuer has no address for it, or refuses.
    ///
    /// # Errors
    /// [`DeviceAuthError::Failed`] if there was no response.
    pub async fn revoke(&self, token: &Secret, hint: Option<TokenHint>) -> Result<bool, DeviceAuthError> {
        let url = match self.config.dialect {
            DeviceAuthDialect::Rfc8628 => self.config.revoke_url.clone(),
            DeviceAuthDialect::Codex => Some(codex::revoke_url(&self.config)),
        };
        let Some(url) = url else { return Ok(false) };
        let members: Vec<_> = [("token", token.expose())]
            .into_iter()
            .chain(hint.map(|hint| ("token_type_hint", hint.as_str())))
            .chain([("client_id", self.config.client_id.as_str())])
            .collect();
        let body = match self.config.dialect {
            DeviceAuthDialect::Rfc8628 => CallBody::Form(&members),
            DeviceAuthDialect::Codex => CallBody::Json(&members),
        };
        let response = self.call(IssuerCall::Revoke, &url, body, OperationDeadline::start()).await?;
        Ok(response.status.is_success())
    }

    /// Sends a request whose response has tokens.
    async fn request_tokens(
        &self,
        call: IssuerCall,
        url: &Url,
        body: CallBody<'_>,
        deadline: OperationDeadline,
    ) -> Result<TokenSet, DeviceAuthError> {
        let response = self.call(call, url, body, deadline).await?;
        let fields = response.into_fields(self.config.dialect, call)?;
        let tokens = fields.tokens(self.config.dialect, self.clock.now());
        tokens.ok_or_else(|| fields.into_error(call))
    }
}

/// Returns `configured`, or else the issuer's URL with these segments appended to its path.
fn url_or_below(configured: Option<&Url>, issuer: &Url, segments: &[&str]) -> Url {
    let mut url = match configured {
        Some(url) => return url.clone(),
        None => issuer.clone(),
    };
    // Only URLs that cannot be a base, which have no host, have no segments.
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}
