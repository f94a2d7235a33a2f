//! Credentials of tools, and the signed identity of their user.

use std::time::{SystemTime, UNIX_EPOCH};

use agent_core::role::ToolAuth;
use agent_core::secret::Secret;
use agent_core::tool::{Caller, ExecutionContext, ToolError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::ToolSettingsError;
use super::redact::Redactor;
use super::request::{check_header_name, is_token};
use super::settings::{check_auth_fields, read_auth};
use crate::jwt;

/// Header with the signed identity.
pub(super) const IDENTITY_HEADER: &str = "X-Agent-Identity";
/// Lifetime of a signed identity, in seconds.
pub(super) const IDENTITY_SECONDS: u64 = 60;
/// Maximum length of the name of a query parameter with a secret, in bytes.
const MAX_QUERY_NAME_BYTES: usize = 64;

/// Credential of a tool.
pub(super) struct Credential {
    kind: CredentialKind,
    secret: Option<Secret>,
}

/// Settings of a credential in a role, without its secret.
#[derive(Default, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum CredentialKind {
    /// No credential.
    #[default]
    None,
    /// `Authorization: Bearer …` (RFC 6750).
    Bearer,
    /// `Authorization: Basic …` (RFC 7617).
    Basic { user: String },
    /// A header of this name.
    Header { name: String },
    /// A parameter of the query, of this name.
    Query { name: String },
    /// A cookie of this name (RFC 6265).
    Cookie { name: String },
}

impl CredentialKind {
    /// Returns the fields of this type, without those of all types.
    fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::None | Self::Bearer => &[],
            Self::Basic { user: _ } => &["user"],
            Self::Header { name: _ } | Self::Query { name: _ } | Self::Cookie { name: _ } => &["name"],
        }
    }
}

/// Claims of a signed identity.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IdentityClaims<'a> {
    iss: &'static str,
    aud: &'a str,
    sub: &'a str,
    company_id: &'a str,
    agent_id: &'a str,
    run_id: &'a str,
    /// The call's idempotency key; absent in requests that belong to no single call.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    caller: Caller,
    iat: u64,
    exp: u64,
}

impl Credential {
    /// Parses and checks the settings. The path of the fault is within the tool.
    pub(super) fn parse(auth: Option<&ToolAuth>) -> Result<Self, ToolSettingsError> {
        let Some(auth) = auth else {
            return Ok(Self { kind: CredentialKind::None, secret: None });
        };
        let kind: CredentialKind = read_auth(auth).map_err(in_auth)?;
        // Stored roles may have other fields beside a type without fields.
        if !kind.fields().is_empty() {
            check_auth_fields(auth, kind.fields()).map_err(in_auth)?;
        }
        match &kind {
            CredentialKind::Basic { user } if user.contains(':') || user.chars().any(char::is_control) => {
                return Err(ToolSettingsError::new(
                    "auth.user",
                    "must not have a colon or a control character",
                ));
            }
            CredentialKind::Header { name } => {
                check_header_name(name).map_err(|message| ToolSettingsError::new("auth.name", message))?;
            }
            CredentialKind::Query { name } if !is_query_name(name) => {
                let message =
                    format!("must have 1 to {MAX_QUERY_NAME_BYTES} bytes, none of them a control character");
                return Err(ToolSettingsError::new("auth.name", message));
            }
            CredentialKind::Cookie { name } if !is_token(name) => {
                return Err(ToolSettingsError::new("auth.name", "is not the name of a cookie"));
            }
            _ => {}
        }
        Ok(Self { kind, secret: auth.secret.clone() })
    }

    /// Parses the settings as [`parse`](Self::parse) does, and refuses unknown fields beside any type: a misspelled field may
    /// contain the secret, which would be stored and shown in plain text.
    pub(super) fn parse_new(auth: Option<&ToolAuth>) -> Result<Self, ToolSettingsError> {
        let credential = Self::parse(auth)?;
        if let Some(auth) = auth {
            check_auth_fields(auth, credential.kind.fields()).map_err(in_auth)?;
        }
        Ok(credential)
    }

    /// Checks that the secret, if it is given, can be sent by the credential. The fault does not repeat it.
    pub(super) fn check_secret(&self) -> Result<(), ToolSettingsError> {
        let Some(secret) = self.secret.as_ref().filter(|secret| !secret.is_mask()) else { return Ok(()) };
        let text = secret.expose();
        let (is_valid, message) = match &self.kind {
            // A query is escaped, and a key that only signs is not sent.
            CredentialKind::None | CredentialKind::Query { .. } => return Ok(()),
            CredentialKind::Bearer | CredentialKind::Header { .. } => {
                let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
                (is_printable, "must have printable ASCII characters only")
            }
            CredentialKind::Basic { .. } => {
                (!text.chars().any(char::is_control), "must not have a control character")
            }
            CredentialKind::Cookie { .. } => {
                (is_cookie_value(text), "has characters that are not allowed in a cookie")
            }
        };
        if is_valid { Ok(()) } else { Err(ToolSettingsError::new("auth.secret", message)) }
    }

    /// Returns the header of the credential, and adds its secrets to `redactor`.
    ///
    /// # Errors
    /// The secret is missing.
    pub(super) fn header(&self, redactor: &mut Redactor) -> Result<Option<(String, Secret)>, ToolError> {
        if let Some(secret) = &self.secret {
            redactor.add(secret.clone());
        }
        let (name, value) = match &self.kind {
            CredentialKind::None | CredentialKind::Query { .. } => return Ok(None),
            CredentialKind::Bearer => ("Authorization", format!("Bearer {}", self.secret()?.expose())),
            CredentialKind::Basic { user } => {
                let pair = STANDARD.encode(format!("{user}:{}", self.secret()?.expose()));
                redactor.add(Secret::new(pair.clone()));
                ("Authorization", format!("Basic {pair}"))
            }
            CredentialKind::Header { name } => (name.as_str(), self.secret()?.expose().to_owned()),
            CredentialKind::Cookie { name } => {
                let value = self.secret()?.expose();
                if !is_cookie_value(value) {
                    let message = "the tool's credential has characters that are not allowed in a cookie";
                    return Err(ToolError::Unavailable(message.to_owned()));
                }
                ("Cookie", format!("{name}={value}"))
            }
        };
        Ok(Some((name.to_owned(), Secret::new(value))))
    }

    /// Returns the name of the query parameter with the secret, if the credential is one.
    pub(super) fn query_name(&self) -> Option<&str> {
        match &self.kind {
            CredentialKind::Query { name } => Some(name),
            _ => None,
        }
    }

    /// Returns the query parameter of the credential.
    ///
    /// # Errors
    /// The secret is missing.
    pub(super) fn query(&self) -> Result<Option<(String, Secret)>, ToolError> {
        let Some(name) = self.query_name() else { return Ok(None) };
        Ok(Some((name.to_owned(), self.secret()?.clone())))
    }

    /// Returns the header with the identity of the call's user, for the receiver `audience`.
    ///
    /// # Errors
    /// The secret is missing.
    pub(super) fn identity(
        &self,
        audience: &str,
        (context, key): (&ExecutionContext, Option<&str>),
        now: SystemTime,
        redactor: &mut Redactor,
    ) -> Result<(String, Secret), ToolError> {
        let iat = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = IdentityClaims {
            iss: "agentd",
            aud: audience,
            sub: &context.user_id,
            company_id: &context.company_id,
            agent_id: &context.agent_id,
            run_id: &context.run_id,
            tool_call_id: key,
            caller: context.caller,
            iat,
            exp: iat + IDENTITY_SECONDS,
        };
        let token = Secret::new(jwt::sign_hs256(self.secret()?, &claims));
        redactor.add(token.clone());
        Ok((IDENTITY_HEADER.to_owned(), token))
    }

    /// Returns the secret. An empty one counts as missing: it was cleared, and a signature made with it would prove nothing.
    fn secret(&self) -> Result<&Secret, ToolError> {
        let secret = self.secret.as_ref().filter(|secret| !secret.expose().is_empty() && !secret.is_mask());
        secret.ok_or_else(|| ToolError::Unavailable("the tool's credential is not configured".to_owned()))
    }
}

/// Returns a fault with its path within the tool.
fn in_auth(ToolSettingsError { path, message }: ToolSettingsError) -> ToolSettingsError {
    let path = if path.is_empty() { "auth".to_owned() } else { format!("auth.{path}") };
    ToolSettingsError::new(path, message)
}

fn is_query_name(name: &str) -> bool {
    (1..=MAX_QUERY_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Returns true for a value of a cookie without quotes (RFC 6265, section 4.1.1).
fn is_cookie_value(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte))
}
