//! Handles of sign-ins: the issuer's codes, sealed, so that the runtime need not store them.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_client::device_auth::{DeviceAuthDialect, DeviceCode, IssuerConfig};
use agent_core::secret::Secret;
use agent_platform::seal::Sealer;
use serde::{Deserialize, Serialize};

use crate::error::{Code, HttpError};

/// Prefix of a handle, before the sealed text.
const PREFIX: &str = "agd_";
/// Maximum length of a handle in bytes.
const MAX_HANDLE_BYTES: usize = 2048;

/// Seals the codes of sign-ins at one issuer.
pub(super) struct HandleSealer {
    sealer: Sealer,
    dialect: DeviceAuthDialect,
    /// Origin of the issuer.
    origin: String,
}

/// Codes for polling a sign-in.
pub(super) struct PollCodes {
    pub(super) device_code: Secret,
    pub(super) user_code: Secret,
}

/// Plain text of a handle.
#[derive(Serialize, Deserialize)]
struct HandleContent<'a> {
    /// `device_code` of RFC 8628.
    #[serde(rename = "d", borrow, default, skip_serializing_if = "Option::is_none")]
    device_code: Option<Cow<'a, str>>,
    /// `device_auth_id` of the codex dialect.
    #[serde(rename = "i", borrow, default, skip_serializing_if = "Option::is_none")]
    device_auth_id: Option<Cow<'a, str>>,
    #[serde(rename = "u", borrow)]
    user_code: Cow<'a, str>,
    /// Interval of polls in seconds.
    #[serde(rename = "n")]
    interval: u64,
    /// Expiry in seconds since 1970.
    #[serde(rename = "x")]
    expires_at: u64,
}

impl HandleSealer {
    /// Creates the sealer of an issuer's handles, with a key from `secret`, or else a random one.
    pub(super) fn new(issuer: &IssuerConfig, secret: Option<&Secret>) -> Self {
        let sealer = secret.map_or_else(Sealer::ephemeral, |secret| Sealer::new(secret, None));
        Self { sealer, dialect: issuer.dialect, origin: issuer.issuer.origin().ascii_serialization() }
    }

    /// Returns the handle of a sign-in that has started at `now`.
    ///
    /// # Errors
    /// The handle is too long, or there is no key.
    pub(super) fn seal(&self, code: &DeviceCode, now: SystemTime) -> Result<Secret, HttpError> {
        let issued = Some(Cow::from(code.device_code.expose()));
        let (device_code, device_auth_id) = match self.dialect {
            DeviceAuthDialect::Rfc8628 => (issued, None),
            DeviceAuthDialect::Codex => (None, issued),
        };
        let content = HandleContent {
            device_code,
            device_auth_id,
            user_code: code.user_code.expose().into(),
            interval: code.interval.as_secs(),
            expires_at: (now + code.expires_in).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        let text = Secret::new(serde_json::to_string(&content).map_err(HttpError::internal)?);
        let sealed = self.sealer.seal(&self.seal_context(), &text).map_err(HttpError::internal)?;
        let handle = format!("{PREFIX}{sealed}");
        match handle.len() <= MAX_HANDLE_BYTES {
            true => Ok(Secret::new(handle)),
            false => Err(HttpError::new(Code::BackendFailed, "the issuer's device code is too long")),
        }
    }

    /// Opens a handle. Returns `None` if it has expired by `now`, is damaged, or belongs to another issuer or runtime.
    pub(super) fn open(&self, handle: &Secret, now: SystemTime) -> Option<PollCodes> {
        let handle = handle.expose();
        let sealed = handle.strip_prefix(PREFIX).filter(|_| handle.len() <= MAX_HANDLE_BYTES)?;
        let text = self.sealer.open(&self.seal_context(), sealed).ok()?;
        let content: HandleContent<'_> = serde_json::from_str(text.expose()).ok()?;
        let expiry = UNIX_EPOCH.checked_add(Duration::from_secs(content.expires_at))?;
        let code = match self.dialect {
            DeviceAuthDialect::Rfc8628 => content.device_code,
            DeviceAuthDialect::Codex => content.device_auth_id,
        };
        let codes = PollCodes { device_code: Secret::new(code?), user_code: Secret::new(content.user_code) };
        (now < expiry).then_some(codes)
    }

    /// Returns the context under which handles are sealed, so that handles of another issuer cannot be opened.
    fn seal_context(&self) -> [&str; 4] {
        ["coding", "device", &self.origin, self.dialect.name()]
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn issuer(url: &str, dialect: DeviceAuthDialect) -> IssuerConfig {
        IssuerConfig {
            issuer: Url::parse(url).expect("a URL"),
            dialect,
            client_id: "c".to_owned(),
            device_url: None,
            token_url: None,
            exchange_url: None,
            revoke_url: None,
            verification_url: None,
            scope: None,
        }
    }

    fn code(device_code: &str) -> DeviceCode {
        DeviceCode {
            device_code: Secret::new(device_code),
            user_code: Secret::new("ABCD-1234"),
            verification_uri: "https://issuer.example/".to_owned(),
            verification_uri_complete: None,
            expires_in: Duration::from_secs(900),
            interval: Duration::from_secs(5),
        }
    }

    const SECRET: &str = "runtime-secret-0123456789";

    fn sealer(url: &str, dialect: DeviceAuthDialect, secret: &str) -> HandleSealer {
        HandleSealer::new(&issuer(url, dialect), Some(&Secret::new(secret)))
    }

    #[test]
    fn a_handle_is_opened_until_it_expires() {
        let now = SystemTime::now();
        for dialect in [DeviceAuthDialect::Rfc8628, DeviceAuthDialect::Codex] {
            let sealer = sealer("https://issuer.example/base", dialect, SECRET);
            let handle = sealer.seal(&code("device \"code\"\n"), now).expect("sealed");
            assert!(handle.expose().starts_with("agd_v1."), "{}", handle.expose());
            let opens = |elapsed: u64| sealer.open(&handle, now + Duration::from_secs(elapsed));
            let codes = opens(898).expect("opened");
            assert_eq!(codes.device_code.expose(), "device \"code\"\n");
            assert_eq!(codes.user_code.expose(), "ABCD-1234");
            assert!(opens(901).is_none() && opens(1 << 40).is_none());
        }
    }

    #[test]
    fn handles_of_other_issuers_and_damaged_handles_are_not_opened() {
        use DeviceAuthDialect::{Codex, Rfc8628};
        let now = SystemTime::now();
        let original = sealer("https://issuer.example/a", Rfc8628, SECRET);
        let handle = original.seal(&code("d"), now).expect("sealed");
        assert!(
            sealer("https://issuer.example/b", Rfc8628, SECRET).open(&handle, now).is_some(),
            "same origin"
        );
        for other in [
            sealer("https://other.example/a", Rfc8628, SECRET),
            sealer("http://issuer.example/a", Rfc8628, SECRET),
            sealer("https://issuer.example:8443/a", Rfc8628, SECRET),
            sealer("https://issuer.example/a", Codex, SECRET),
            sealer("https://issuer.example/a", Rfc8628, "another-secret-0123456789"),
            HandleSealer::new(&issuer("https://issuer.example/a", Rfc8628), None),
        ] {
            assert!(other.open(&handle, now).is_none());
        }
        let text = handle.expose();
        let flipped = |at: usize| {
            let other = if &text[at..=at] == "A" { "B" } else { "A" };
            format!("{}{other}{}", &text[..at], &text[at + 1..])
        };
        let mut damaged: Vec<String> = (0..text.len()).map(flipped).collect();
        damaged.extend((0..text.len()).map(|end| text[..end].to_owned()));
        damaged.extend([format!("{text}A"), format!("{text}\0"), format!(" {text}"), "x".repeat(1 << 20)]);
        for damaged in damaged {
            assert!(original.open(&Secret::new(damaged.clone()), now).is_none(), "{damaged:.200}");
        }
    }

    #[test]
    fn a_sign_in_handle_has_a_maximum_length() {
        let sealer = sealer("https://issuer.example/", DeviceAuthDialect::Codex, SECRET);
        let now = SystemTime::now();
        let handle = sealer.seal(&code(&"x".repeat(1024)), now).expect("sealed");
        assert!(handle.expose().len() <= MAX_HANDLE_BYTES);
        assert!(sealer.seal(&code(&"x".repeat(2048)), now).is_err());
    }
}
