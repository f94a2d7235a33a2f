//! The issuer of a coding subscription's tokens.

use agent_client::device_auth::DeviceAuthClient;
use agent_core::secret::Secret;

use super::sign_in_handle::HandleSealer;
use crate::error::HttpError;

/// Issuer of a coding subscription's tokens.
pub enum CodingIssuer {
    /// The issuer that the operator has configured.
    Configured(Box<CodingAuth>),
    /// The setting with this name is missing.
    MissingSetting(&'static str),
}

/// Client of an issuer, with the key of its handles.
pub struct CodingAuth {
    pub(super) client: DeviceAuthClient,
    pub(super) handles: HandleSealer,
}

impl CodingAuth {
    /// Creates the state of the routes. Handles are sealed under `secret`, so that every runtime with it can open them;
    /// without one, under a key of this process.
    pub fn new(client: DeviceAuthClient, secret: Option<&Secret>) -> Self {
        let handles = HandleSealer::new(client.config(), secret);
        Self { client, handles }
    }
}

impl CodingIssuer {
    /// Returns the client of the issuer.
    ///
    /// # Errors
    /// 503 with the name of the missing setting.
    pub(super) fn configured(&self) -> Result<&CodingAuth, HttpError> {
        match self {
            Self::Configured(auth) => Ok(auth),
            Self::MissingSetting(name) => Err(HttpError::not_configured(name)),
        }
    }
}
