//! Widget tokens: verifies a token and the origin of its page, and returns the visitor.
//!
//! A page that keeps its visitors apart sends a random key with each visitor's requests. Its hash is part of the
//! visitor's user id, so that the visitor has threads which no request without the key finds.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::ids::WIDGET_USER_PREFIX;
use agent_platform::token::{Grant, RunCaps, Token, TokenError, Tokens, WidgetGrant};
use http::header::ORIGIN;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

use super::{AuthError, VISITOR_KEY_HEADER, single_header};
use crate::cors::normalize_origin;

/// Lengths of a visitor's key, in bytes: at least 128 bits of base64url.
const VISITOR_KEY_BYTES: RangeInclusive<usize> = 22..=128;

/// Visitor of a page that embeds an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// Id of the widget token.
    pub token_id: String,
    /// Company of the agent.
    pub company_id: CompanyId,
    /// The agent that the visitor may chat with.
    pub agent_id: AgentId,
    /// Usage caps of the token.
    pub caps: RunCaps,
    /// SHA-256 of the visitor's key in hexadecimal. All visitors of a token without a key are one user, who has no
    /// threads.
    pub key_hash: Option<String>,
}

impl Visitor {
    /// Returns the visitor's principal, bound to the agent: a user per key, or per token without one.
    pub fn principal(&self) -> Principal {
        let mut user_id = format!("{WIDGET_USER_PREFIX}{}", self.token_id);
        if let Some(hash) = &self.key_hash {
            user_id.push(':');
            user_id.push_str(hash);
        }
        Principal {
            user_id: user_id.into(),
            company_id: self.company_id.clone(),
            caller: Caller::Widget,
            agent_id: Some(self.agent_id.clone()),
            token_id: None,
        }
    }
}

/// Verifies widget tokens.
pub(super) struct WidgetVerifier {
    tokens: Arc<Tokens>,
}

impl fmt::Debug for WidgetVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl WidgetVerifier {
    pub(super) fn new(tokens: Arc<Tokens>) -> Self {
        Self { tokens }
    }

    /// Returns the visitor for a token, checked against the page's origin in `headers`.
    pub(super) async fn verify(&self, text: &str, headers: &HeaderMap) -> Result<Visitor, AuthError> {
        let token = match self.tokens.find(text).await {
            Ok(token) => token,
            Err(TokenError::Store(error)) => return Err(AuthError::Store(error)),
            Err(reason) => {
                tracing::debug!(%reason, "widget token rejected");
                return Err(AuthError::Unauthenticated);
            }
        };
        let Token { id, company_id, agent_id, grant, .. } = token;
        let Grant::Widget(WidgetGrant { origins, caps }) = grant else {
            tracing::debug!(reason = "not a widget token", "widget token rejected");
            return Err(AuthError::Unauthenticated);
        };
        if !(origins.is_empty() || is_allowed_origin(&origins, headers)) {
            return Err(AuthError::WrongOrigin);
        }
        let key_hash = read_key_hash(headers)?;
        Ok(Visitor { token_id: id, company_id, agent_id, caps, key_hash })
    }
}

/// Returns the hash of the visitor's key, if the request has one.
fn read_key_hash(headers: &HeaderMap) -> Result<Option<String>, AuthError> {
    let key = single_header(headers, &VISITOR_KEY_HEADER).map_err(|_| AuthError::InvalidVisitorKey)?;
    let Some(key) = key.map(HeaderValue::as_bytes) else { return Ok(None) };
    let is_base64url = key.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if !is_base64url || !VISITOR_KEY_BYTES.contains(&key.len()) {
        return Err(AuthError::InvalidVisitorKey);
    }
    Ok(Some(hex::encode(Sha256::digest(key))))
}

/// Returns true if `Origin` is one of `origins`.
fn is_allowed_origin(origins: &[String], headers: &HeaderMap) -> bool {
    let Ok(Some(origin)) = single_header(headers, &ORIGIN) else { return false };
    let Some(origin) = origin.to_str().ok().and_then(normalize_origin) else { return false };
    origins.iter().any(|allowed| normalize_origin(allowed).is_some_and(|allowed| allowed == origin))
}
