//! Self-contained texts of run tokens, which every process with the same `DATA_SECRET` can verify.
//!
//! The text is `agr_`, the id in base64url, a dot, and the token and the id of the issuing process,
//! [sealed](crate::seal) for the id. So it can be neither read nor forged without the key, and no store is written when
//! it is issued.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::error::TokenError;
use super::super::metadata::Token;
use crate::seal::Sealer;
use agent_core::secret::Secret;

const SEALED_PREFIX: &str = "agr_";
/// Length of an id in base64url.
const ENCODED_ID_LEN: usize = 22;
/// First part of the associated data of a sealed token; the second is the id.
const TOKEN_DATA: &str = "run token";

/// Maximum length of a text. It is part of an address, for which common proxies have 8 KiB. A token with more, such as
/// one with hundreds of tools, is not sealed.
pub(super) const MAX_SEALED_TEXT_BYTES: usize = 6 * 1024;

/// The parsed text of a sealed run token.
pub(in crate::token) struct SealedText<'t> {
    /// The token's id. Not verified until the rest is opened.
    pub(super) id: Uuid,
    /// The whole text.
    pub(super) text: &'t str,
    sealed: &'t str,
}

impl<'t> SealedText<'t> {
    pub(in crate::token) fn parse(text: &'t str) -> Option<Self> {
        let rest = text.strip_prefix(SEALED_PREFIX).filter(|_| text.len() <= MAX_SEALED_TEXT_BYTES)?;
        let (id, sealed) = rest.split_once('.').filter(|(id, _)| id.len() == ENCODED_ID_LEN)?;
        let id = URL_SAFE_NO_PAD.decode(id).ok()?;
        Some(Self { id: Uuid::from_slice(&id).ok()?, text, sealed })
    }
}

/// Sealed content of a text.
#[derive(Serialize, Deserialize)]
pub(super) struct SealedToken {
    #[serde(flatten)]
    pub(super) token: Token,
    /// The process that issued the token.
    pub(super) process: String,
}

/// Seals and opens the texts of run tokens.
pub(super) struct RunTokenSealer {
    sealer: Arc<Sealer>,
    /// Id of this process, random at each start.
    process: String,
}

impl RunTokenSealer {
    pub(super) fn new(sealer: Arc<Sealer>) -> Self {
        Self { sealer, process: agent_core::new_id() }
    }

    /// Returns the text of a token; `None` if it would be too long or cannot be sealed. The token is then valid at this
    /// process only.
    pub(super) fn seal(&self, id: Uuid, token: &Token) -> Option<Secret> {
        let content = SealedToken { token: token.clone(), process: self.process.clone() };
        let content = Secret::new(serde_json::to_string(&content).ok()?);
        let sealed = self.sealer.seal(&[TOKEN_DATA, &id.to_string()], &content);
        let sealed = sealed.inspect_err(|error| tracing::warn!(%error, "a run token was not sealed")).ok()?;
        let text = format!("{SEALED_PREFIX}{}.{sealed}", URL_SAFE_NO_PAD.encode(id.as_bytes()));
        (text.len() <= MAX_SEALED_TEXT_BYTES).then(|| Secret::new(text))
    }

    /// Returns the content of a text, which may have expired or ended.
    ///
    /// # Errors
    /// [`TokenError::WrongSecret`] if it was not sealed under a key of this process for its id.
    pub(super) fn open(&self, text: &SealedText<'_>) -> Result<SealedToken, TokenError> {
        let id = text.id.to_string();
        let content =
            self.sealer.open(&[TOKEN_DATA, &id], text.sealed).map_err(|_| TokenError::WrongSecret)?;
        let content: SealedToken =
            serde_json::from_str(content.expose()).map_err(|_| TokenError::Malformed)?;
        if content.token.id == id { Ok(content) } else { Err(TokenError::Malformed) }
    }

    /// Returns true if this process issued the token.
    pub(super) fn is_issuer(&self, content: &SealedToken) -> bool {
        content.process == self.process
    }
}
