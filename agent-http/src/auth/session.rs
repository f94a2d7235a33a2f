//! Session tokens: JSON Web Tokens (RFC 7519) by HS256.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::history::MAX_ID_BYTES;
use agent_core::role::Secret;
use agent_core::token::WIDGET_USER;
use agent_core::tool::Caller;
use agent_core::turn::Principal;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::{Deserialize, Serialize};

use super::hmac;

/// For whom session tokens are.
const AUDIENCE: &str = "agent-app";

/// How far clocks may be apart.
const LEEWAY: Duration = Duration::from_secs(30);

/// The longest token that is looked at, in bytes.
const MAX_TOKEN_BYTES: usize = 8192;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claims {
    sub: String,
    company_id: String,
}

#[derive(Serialize)]
struct Minted<'a> {
    #[serde(flatten)]
    claims: &'a Claims,
    aud: &'static str,
    iat: u64,
    exp: u64,
}

impl Claims {
    /// Whether both are identifiers. No session's user may be called like a widget's visitor.
    fn are_ids(&self) -> bool {
        let is_id =
            |id: &str| !id.trim().is_empty() && id.len() <= MAX_ID_BYTES && !id.chars().any(char::is_control);
        is_id(&self.sub) && is_id(&self.company_id) && !self.sub.starts_with(WIDGET_USER)
    }
}

/// Checks session tokens under one secret.
pub(super) struct Verifier {
    key: DecodingKey,
    validation: Validation,
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
        Self { key: DecodingKey::from_secret(secret.expose().as_bytes()), validation }
    }

    /// Who a token speaks for, if it holds.
    pub(super) fn verify(&self, token: &str) -> Option<Principal> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let claims = match jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation) {
            Ok(token) => token.claims,
            Err(error) => {
                // The kind alone: some errors hold pieces of the token.
                tracing::debug!(reason = reason(error.kind()), "session token refused");
                return None;
            }
        };
        claims.are_ids().then_some(Principal {
            user_id: claims.sub,
            company_id: claims.company_id,
            caller: Caller::Session,
            agent_id: None,
        })
    }
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
    let claims = Claims { sub: user_id.to_owned(), company_id: company_id.to_owned() };
    if !claims.are_ids() {
        return Err(MintError::InvalidId);
    }
    let iat = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let exp = iat.checked_add(ttl.as_secs()).filter(|exp| *exp <= i64::MAX as u64);
    let minted = Minted { claims: &claims, aud: AUDIENCE, iat, exp: exp.ok_or(MintError::InvalidTtl)? };
    Ok(hmac::sign(secret, &minted))
}
