//! Session tokens: JSON Web Tokens (RFC 7519) by HS256.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::ids::{CompanyId, UserId};
use agent_core::request::Principal;
use agent_core::secret::Secret;
use agent_core::tool::Caller;
use agent_platform::history::MAX_ID_BYTES;
use agent_platform::ids::WIDGET_USER_PREFIX;
use agent_platform::ids::check_id;
use agent_platform::jwt;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Audience (`aud`) of session tokens.
const AUDIENCE: &str = "agent-app";

/// Tolerated clock skew.
const LEEWAY: Duration = Duration::from_secs(30);

/// Maximum length of a token in bytes; longer ones are rejected unread.
const MAX_TOKEN_BYTES: usize = 8192;

/// Maximum number of cached verified sessions. Evicted ones are verified again.
const MAX_CACHED_SESSIONS: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claims {
    sub: UserId,
    company_id: CompanyId,
    /// RFC 7519's `NumericDate`, which may have a fraction.
    exp: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewClaims<'a> {
    sub: &'a UserId,
    company_id: &'a CompanyId,
    aud: &'static str,
    iat: u64,
    exp: u64,
}

/// Returns true if both are valid identifiers and the user id does not have the prefix of widget visitors.
fn are_valid_ids(user_id: &UserId, company_id: &CompanyId) -> bool {
    let is_id = |id: &str| check_id(id, MAX_ID_BYTES).is_ok();
    is_id(user_id) && is_id(company_id) && !user_id.starts_with(WIDGET_USER_PREFIX)
}

/// Verified token. It is valid for the same user until it expires.
#[derive(Clone)]
struct CachedSession {
    principal: Principal,
    /// Expiry in seconds since the Unix epoch.
    expires: f64,
}

/// Verifies session tokens with one secret.
pub(super) struct SessionVerifier {
    key: DecodingKey,
    validation: Validation,
    /// Cache keyed by SHA-256 digest, so that no token can be read from memory.
    cache: Cache<[u8; 32], CachedSession>,
}

impl fmt::Debug for SessionVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl SessionVerifier {
    pub(super) fn new(secret: &Secret) -> Self {
        jwt::install_provider();
        // Only this algorithm: the `alg` of a token's header must not choose the verification.
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        validation.set_audience(&[AUDIENCE]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY.as_secs();
        let key = DecodingKey::from_secret(secret.expose().as_bytes());
        Self { key, validation, cache: Cache::new(MAX_CACHED_SESSIONS) }
    }

    /// Returns the principal of a valid token.
    pub(super) fn verify(&self, token: &str) -> Option<Principal> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let digest = Sha256::digest(token).into();
        if let Some(session) = self.cache.get(&digest) {
            if !has_expired(session.expires) {
                return Some(session.principal);
            }
            self.cache.remove(&digest);
        }
        let session = self.check(token)?;
        self.cache.insert(digest, session.clone());
        Some(session.principal)
    }

    fn check(&self, token: &str) -> Option<CachedSession> {
        let claims = match jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation) {
            Ok(token) => token.claims,
            Err(error) => {
                // Only the kind is logged: some errors contain parts of the token.
                tracing::debug!(reason = error_kind_name(error.kind()), "session token rejected");
                return None;
            }
        };
        let Claims { sub: user_id, company_id, exp: expires } = claims;
        are_valid_ids(&user_id, &company_id).then(|| CachedSession {
            principal: Principal::new(user_id, company_id, Caller::Session),
            expires,
        })
    }
}

fn has_expired(expires: f64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    expires < (now.as_secs_f64() - LEEWAY.as_secs_f64())
}

fn error_kind_name(kind: &jsonwebtoken::errors::ErrorKind) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match kind {
        ErrorKind::ExpiredSignature => "expired",
        ErrorKind::ImmatureSignature => "not valid yet",
        ErrorKind::InvalidAudience => "for another audience",
        ErrorKind::InvalidSignature => "signed with another secret",
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => "another algorithm",
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => {
            "a claim is missing or invalid"
        }
        _ => "malformed",
    }
}

/// Error of minting a session token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MintError {
    /// The user or company is not a valid identifier, so the token would be rejected.
    #[error(
        "user and company must be identifiers of 1 to {MAX_ID_BYTES} bytes; the user must not be a widget visitor"
    )]
    InvalidId,
    /// The expiry exceeds the range of a timestamp.
    #[error("the token's lifetime exceeds the maximum")]
    InvalidTtl,
}

/// Mints a session token that is valid for `ttl`, in whole seconds.
///
/// # Errors
///
/// Returns [`MintError`] if the token would be rejected.
pub fn mint_session(
    secret: &Secret,
    user_id: &UserId,
    company_id: &CompanyId,
    ttl: Duration,
) -> Result<String, MintError> {
    if !are_valid_ids(user_id, company_id) {
        return Err(MintError::InvalidId);
    }
    let iat = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let exp = iat.checked_add(ttl.as_secs()).filter(|exp| *exp <= i64::MAX as u64);
    let exp = exp.ok_or(MintError::InvalidTtl)?;
    let minted = NewClaims { sub: user_id, company_id, aud: AUDIENCE, iat, exp };
    Ok(jwt::sign_hs256(secret, &minted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifier() -> (Secret, SessionVerifier) {
        let secret = Secret::new("session-secret-0");
        let verifier = SessionVerifier::new(&secret);
        (secret, verifier)
    }

    fn ann(expires: f64) -> CachedSession {
        CachedSession { principal: Principal::new("ann", "acme", Caller::Session), expires }
    }

    #[test]
    fn a_token_is_checked_once_and_remembered_by_its_digest() {
        let (secret, verifier) = verifier();
        let token =
            mint_session(&secret, &"ann".into(), &"acme".into(), Duration::from_secs(600)).expect("a token");
        for _ in 0..2 {
            assert_eq!(verifier.verify(&token), Some(ann(0.0).principal));
            assert_eq!(verifier.cache.len(), 1);
        }
        // Only the cache can map this text to a user.
        verifier.cache.insert(Sha256::digest("no token").into(), ann(f64::MAX));
        assert_eq!(verifier.verify("no token"), Some(ann(0.0).principal));
        assert_eq!(verifier.verify("another"), None);
        assert_eq!(verifier.cache.len(), 2, "what is refused is not remembered");
    }

    #[test]
    fn a_cached_session_expires_with_its_token() {
        let (_, verifier) = verifier();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_secs_f64();
        let leeway = LEEWAY.as_secs_f64();
        for (expires, holds) in [(now - leeway - 1.0, false), (now - leeway + 600.0, true)] {
            verifier.cache.insert(Sha256::digest("a token").into(), ann(expires));
            assert_eq!(verifier.verify("a token").is_some(), holds);
            assert_eq!(verifier.cache.len(), usize::from(holds));
        }
    }
}
