//! The text form of a token: a prefix by kind, the id, and the secret.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::error::TokenMintError;
use super::grant::Grant;
use agent_core::secret::Secret;

const WIDGET_PREFIX: &str = "agw_";
const MCP_PREFIX: &str = "agm_";
const API_PREFIX: &str = "aga_";

const ID_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
/// Length of id and secret in base64url, encoded together. Their bytes fill whole groups, so that there is neither
/// padding nor a second spelling of the same bytes.
const ENCODED_LEN: usize = (ID_BYTES + SECRET_BYTES) / 3 * 4;

/// The parsed text of a token.
pub(super) struct TokenText {
    prefix: &'static str,
    /// The public half.
    pub(super) id: Uuid,
    secret: [u8; SECRET_BYTES],
}

impl TokenText {
    pub(super) fn random(grant: &Grant) -> Result<Self, TokenMintError> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(TokenMintError::Random)?;
        Ok(Self { prefix: prefix(grant), id: Uuid::now_v7(), secret })
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let prefix =
            [WIDGET_PREFIX, MCP_PREFIX, API_PREFIX].into_iter().find(|prefix| text.starts_with(prefix))?;
        let encoded = text.strip_prefix(prefix).filter(|encoded| encoded.len() == ENCODED_LEN)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        let (id, secret) = bytes.split_first_chunk::<ID_BYTES>()?;
        Some(Self { prefix, id: Uuid::from_bytes(*id), secret: secret.try_into().ok()? })
    }

    /// Returns the text itself, for the token's recipient.
    pub(super) fn to_secret(&self) -> Secret {
        let bytes = [&self.id.as_bytes()[..], &self.secret].concat();
        Secret::new(format!("{}{}", self.prefix, URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Returns true if the prefix matches the kind of the grant.
    pub(super) fn matches_kind(&self, grant: &Grant) -> bool {
        self.prefix == prefix(grant)
    }

    pub(super) fn digest(&self) -> SecretDigest {
        SecretDigest::of(&self.secret)
    }

    /// Returns true if the secret has this digest. Compares in constant time.
    pub(super) fn matches(&self, digest: &SecretDigest) -> bool {
        self.digest().matches(digest)
    }
}

fn prefix(grant: &Grant) -> &'static str {
    match grant {
        Grant::Widget(_) => WIDGET_PREFIX,
        Grant::Mcp(_) => MCP_PREFIX,
        Grant::Api(_) => API_PREFIX,
    }
}

/// The SHA-256 of a token's secret, or of the whole text of a sealed one.
#[derive(Clone, Copy)]
pub(super) struct SecretDigest([u8; 32]);

impl SecretDigest {
    pub(super) fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Returns true if the digests are equal. Compares in constant time.
    pub(super) fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Masked: the digest is not secret, but of no use in a log.
impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for SecretDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for SecretDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| D::Error::custom("expected a SHA-256 in Base64 for addresses"))
    }
}
