//! Configuration of an issuer.

use url::Url;

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

/// Configuration of an issuer. Absent addresses are the dialect's default paths below `issuer`.
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
    /// Address of polls; with [`DeviceAuthDialect::Rfc8628`] also of refreshes.
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

/// Returns `configured`, or else the issuer's URL with these segments appended to its path.
pub(super) fn url_or_below(configured: Option<&Url>, issuer: &Url, segments: &[&str]) -> Url {
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
