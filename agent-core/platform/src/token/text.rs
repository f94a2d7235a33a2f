//! A token's text: a prefix by kind, the id, and the secret.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::{Grant, MintError};
use agent_core::secret::Secret;

const WIDGET: &str = "agw_";
const MCP: &str = "agm_";

const ID_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
/// Id and secret are encoded together. Their bytes fill whole groups of Base64, so that there is neither
/// padding nor a second spelling of the same bytes.
const ENCODED: usize = (ID_BYTES + SECRET_BYTES) / 3 * 4;

/// A token's text, read or made.
pub(super) struct Text {
    prefix: &'static str,
    /// The public half.
    pub(super) id: Uuid,
    secret: [u8; SECRET_BYTES],
}

impl Text {
    pub(super) fn random(grant: &Grant) -> Result<Self, MintError> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(MintError::Random)?;
        Ok(Self { prefix: prefix(grant), id: Uuid::now_v7(), secret })
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let prefix = [WIDGET, MCP].into_iter().find(|prefix| text.starts_with(prefix))?;
        let encoded = text.strip_prefix(prefix).filter(|encoded| encoded.len() == ENCODED)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        let (id, secret) = bytes.split_first_chunk::<ID_BYTES>()?;
        Some(Self { prefix, id: Uuid::from_bytes(*id), secret: secret.try_into().ok()? })
    }

    /// The text itself, to be handed out.
    pub(super) fn reveal(&self) -> Secret {
        let bytes = [&self.id.as_bytes()[..], &self.secret].concat();
        Secret::new(format!("{}{}", self.prefix, URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Whether the prefix is that of the grant's kind.
    pub(super) fn is_of(&self, grant: &Grant) -> bool {
        self.prefix == prefix(grant)
    }

    pub(super) fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.secret).into())
    }

    /// Whether the secret is the one of `digest`, in a time that does not depend on where they differ.
    pub(super) fn matches(&self, digest: &Digest) -> bool {
        self.digest().0.ct_eq(&digest.0).into()
    }
}

fn prefix(grant: &Grant) -> &'static str {
    match grant {
        Grant::Widget(_) => WIDGET,
        Grant::Mcp(_) => MCP,
    }
}

/// The SHA-256 of a token's secret.
#[derive(Clone, Copy)]
pub(super) struct Digest([u8; 32]);

/// It is no secret, and no reader needs it either.
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| D::Error::custom("expected a SHA-256 in Base64 for addresses"))
    }
}
