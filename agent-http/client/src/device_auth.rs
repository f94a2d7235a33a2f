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
mod client;
mod codex;
mod config;
mod error;
pub(crate) mod fields;
mod issuer_call;
mod jwt;
mod rfc8628;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod tokens;

use agent_core::secret::Secret;
use agent_platform::coding::TokenHint;

pub use client::DeviceAuthClient;
pub use config::{DeviceAuthDialect, IssuerConfig};
pub use error::{DeviceAuthError, OauthErrorCode};
pub(crate) use text::MAX_PLAN_BYTES;
pub use text::{MAX_ACCOUNT_BYTES, MAX_TOKEN_BYTES};
pub use tokens::{DeviceCode, TokenSet};

use call::{CallBody, OperationDeadline};
use issuer_call::IssuerCall;

impl DeviceAuthClient {
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
}
