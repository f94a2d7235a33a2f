//! Claims of a JSON Web Token (RFC 7519), read without checking its signature.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::secret::Secret;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::text::is_printable;
use super::{MAX_ACCOUNT_BYTES, MAX_PLAN_BYTES};

/// Claim of the codex dialect with the account.
const ACCOUNT_CLAIM: &str = "https://api.openai.com/auth";

/// Claims of a token.
pub(super) struct TokenClaims(Map<String, Value>);

/// Reads the claims of a token; returns `None` if it is not a JSON Web Token of three parts.
pub(super) fn read_claims(token: &str) -> Option<TokenClaims> {
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&claims).ok().map(TokenClaims)
}

impl TokenClaims {
    /// Returns the time until the token expires.
    pub(super) fn lifetime(&self, now: SystemTime) -> Option<Duration> {
        let end = self.0.get("exp")?.as_f64().filter(|seconds| *seconds >= 0.0)?;
        let end = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(end).ok()?)?;
        let remaining = end.duration_since(now).ok()?;
        (remaining >= Duration::from_secs(1)).then(|| Duration::from_secs(remaining.as_secs()))
    }

    /// Returns the person's account.
    pub(super) fn account_id(&self) -> Option<Secret> {
        let id = self.account_member("chatgpt_account_id")?;
        is_printable(id, MAX_ACCOUNT_BYTES).then(|| Secret::new(id))
    }

    /// Returns the account's plan.
    pub(super) fn plan(&self) -> Option<String> {
        let plan = self.account_member("chatgpt_plan_type")?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let is_plan = (1..=MAX_PLAN_BYTES).contains(&plan.len()) && plan.bytes().all(allowed);
        is_plan.then(|| plan.to_owned())
    }

    fn account_member(&self, name: &str) -> Option<&str> {
        self.0.get(ACCOUNT_CLAIM)?.get(name)?.as_str()
    }
}
