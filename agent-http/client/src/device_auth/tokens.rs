//! Results of a sign-in.

use std::time::Duration;

use agent_core::secret::Secret;

/// Codes of a sign-in that has started.
#[derive(Debug, Clone)]
pub struct DeviceCode {
    /// Code for polling the issuer: `device_code`, or the codex dialect's `device_auth_id`.
    pub device_code: Secret,
    /// Code that the person enters: 4 to 32 ASCII letters, digits and hyphens.
    pub user_code: Secret,
    /// Page on which the person enters the code: `https`, or `http` on loopback.
    pub verification_uri: String,
    /// Address of the verification page that contains the code.
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
