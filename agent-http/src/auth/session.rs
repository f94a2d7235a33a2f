//! Session tokens: JSON Web Tokens (RFC 7519) by HS256.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::history::MAX_ID_BYTES;
use agent_core::request::Principal;
use agent_core::secret::Secret;
use agent_core::tool::Caller;
use agent_platform::token::WIDGET_USER;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::hmac;

/// For whom session tokens are.
const AUDIENCE: &str = "agent-app";

/// How far clocks may be apart.
const LEEWAY: Duration = Duration::from_secs(30);

/// The longest token that is looked at, in bytes.
const MAX_TOKEN_BYTES: usize = 8192;

/// How many sessions that have been checked are remembered. The least used give way, and are checked again.
const REMEMBERED: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claims {
    sub: String,
    company_id: String,
    /// RFC 7519's `NumericDate`, which may have a fraction.
    exp: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Minted<'a> {
    sub: &'a str,
    company_id: &'a str,
    aud: &'static str,
    iat: u64,
    exp: u64,
}

/// Whether both are identifiers. No session's user may be called like a widget's visitor.
fn are_ids(user_id: &str, company_id: &str) -> bool {
    let is_id =
        |id: &str| !id.trim().is_empty() && id.len() <= MAX_ID_BYTES && !id.chars().any(char::is_control);
    is_id(user_id) && is_id(company_id) && !user_id.starts_with(WIDGET_USER)
}

/// A token that has been checked. It speaks for the same user until it expires.
#[derive(Clone)]
struct Session {
    principal: Principal,
    /// In seconds since the epoch.
    expires: f64,
}

/// Checks session tokens under one secret.
pub(super) struct Verifier {
    key: DecodingKey,
    validation: Validation,
    /// By the tokens' digests, so that none can be read from this memory.
    checked: Cache<[u8; 32], Session>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Verifier {
    pub(super) fn new(secret: &Secret) -> Self {
        hmac::install();
        // The one algorithm: a token's header does not get to choose how it is checked.
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        validation.set_audience(&[AUDIENCE]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY.as_secs();
        let key = DecodingKey::from_secret(secret.expose().as_bytes());
        Self { key, validation, checked: Cache::new(REMEMBERED) }
    }

    /// Who a token speaks for, if it holds.
    pub(super) fn verify(&self, token: &str) -> Option<Principal> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let digest = Sha256::digest(token).into();
        if let Some(session) = self.checked.get(&digest) {
            if !has_expired(session.expires) {
                return Some(session.principal);
            }
            self.checked.remove(&digest);
        }
        let session = self.check(token)?;
        self.checked.insert(digest, session.clone());
        Some(session.principal)
    }

    fn check(&self, token: &str) -> Option<Session> {
        let claims = match jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation) {
            Ok(token) => token.claims,
            Err(error) => {
                // The kind alone: some errors hold pieces of the token.
                tracing::debug!(reason = reason(error.kind()), "session token refused");
                return None;
            }
        };
        let Claims { sub: user_id, company_id, exp: expires } = claims;
        are_ids(&user_id, &company_id)
            .then(|| Session { principal: Principal::new(user_id, company_id, Caller::Session), expires })
    }
}

fn has_expired(expires: f64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    expires < (now.as_secs_f64() - LEEWAY.as_secs_f64())
}

fn reason(kind: &jsonwebtoken::errors::ErrorKind) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match kind {
        ErrorKind::ExpiredSignature => "expired",
        ErrorKind::ImmatureSignature => "not valid yet",
        ErrorKind::InvalidAudience => "for another audience",
        ErrorKind::InvalidSignature => "signed with another secret",
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => "another algorithm",
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => {
            "a claim is missing or faulty"
        }
        _ => "malformed",
    }
}

/// Why a session token cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MintError {
    /// Its bearer could never sign in with it.
    #[error("user and company must be identifiers of 1 to {MAX_ID_BYTES} bytes, and the user no widget's")]
    InvalidId,
    /// The time of its end cannot be told.
    #[error("the token's life is too long")]
    InvalidTtl,
}

/// Makes a session token that lives for `ttl`, in whole seconds.
///
/// # Errors
///
/// [`MintError`], for a token that would be refused.
pub fn mint_session(
    secret: &Secret,
    user_id: &str,
    company_id: &str,
    ttl: Duration,
) -> Result<String, MintError> {
    if !are_ids(user_id, company_id) {
        return Err(MintError::InvalidId);
    }
    let iat = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let exp = iat.checked_add(ttl.as_secs()).filter(|exp| *exp <= i64::MAX as u64);
    let exp = exp.ok_or(MintError::InvalidTtl)?;
    let minted = Minted { sub: user_id, company_id, aud: AUDIENCE, iat, exp };
    Ok(hmac::sign(secret, &minted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifier() -> (Secret, Verifier) {
        let secret = Secret::new("session-secret-0");
        let verifier = Verifier::new(&secret);
        (secret, verifier)
    }

    fn ann(expires: f64) -> Session {
        Session { principal: Principal::new("ann", "acme", Caller::Session), expires }
    }

    #[test]
    fn a_token_is_checked_once_and_remembered_by_its_digest() {
        let (secret, verifier) = verifier();
        let token = mint_session(&secret, "ann", "acme", Duration::from_secs(600)).expect("a token");
        for _ in 0..2 {
            assert_eq!(verifier.verify(&token), Some(ann(0.0).principal));
            assert_eq!(verifier.checked.len(), 1);
        }
        // Nothing but the memory can say whom this one speaks for.
        verifier.checked.insert(Sha256::digest("no token").into(), ann(f64::MAX));
        assert_eq!(verifier.verify("no token"), Some(ann(0.0).principal));
        assert_eq!(verifier.verify("another"), None);
        assert_eq!(verifier.checked.len(), 2, "what is refused is not remembered");
    }

    #[test]
    fn what_is_remembered_expires_with_its_token() {
        let (_, verifier) = verifier();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_secs_f64();
        let leeway = LEEWAY.as_secs_f64();
        for (expires, holds) in [(now - leeway - 1.0, false), (now - leeway + 600.0, true)] {
            verifier.checked.insert(Sha256::digest("a token").into(), ann(expires));
            assert_eq!(verifier.verify("a token").is_some(), holds);
            assert_eq!(verifier.checked.len(), usize::from(holds));
        }
    }
}
