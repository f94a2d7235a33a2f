//! The four webhook authentication methods: none, basic, header and JWT.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::role::WebhookAuth;
use agent_core::secret::Secret;
use agent_core::tool::ExecutionContext;
use agent_platform::jwt;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use serde::Serialize;
use url::Url;

use crate::outbound::OutboundRequest;

/// Lifetime of a signed token: long enough for clock skew between two machines.
const JWT_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// JWT claims about the sender and the user. n8n checks the signature and `exp`, and passes the claims to the workflow.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Claims<'a> {
    iss: &'static str,
    /// The webhook's origin.
    aud: String,
    /// The user id.
    sub: &'a str,
    company_id: &'a str,
    agent_id: &'a str,
    iat: u64,
    exp: u64,
}

/// Adds the connector's credential to a request.
///
/// # Errors
/// `NotConfigured` if a part of the credential is missing; `InvalidRequest` if it cannot be sent.
pub(super) fn authorize(
    request: OutboundRequest,
    auth: Option<&WebhookAuth>,
    url: &Url,
    context: &ExecutionContext,
) -> Result<OutboundRequest, AgentError> {
    match auth {
        None | Some(WebhookAuth::None) => Ok(request),
        Some(WebhookAuth::Basic { user, password }) => {
            let user = required_part("user", Some(user.as_str()))?;
            let password = required_part("password", password.as_ref().map(Secret::expose))?;
            request.secret_header(AUTHORIZATION.as_str(), &basic_credentials(user, password)?)
        }
        Some(WebhookAuth::Header { name, value }) => {
            let name = required_part("name", Some(name.as_str()))?;
            let value = required_part("value", value.as_ref().map(Secret::expose))?;
            if [CONTENT_TYPE, CONTENT_ENCODING]
                .iter()
                .any(|reserved| name.eq_ignore_ascii_case(reserved.as_str()))
            {
                return Err(invalid("the header name is invalid"));
            }
            request.secret_header(name, &Secret::new(value))
        }
        Some(WebhookAuth::Jwt { secret }) => {
            let secret = Secret::new(required_part("secret", secret.as_ref().map(Secret::expose))?);
            request.bearer(&sign_jwt(&secret, url, context))
        }
    }
}

/// Encodes basic credentials (RFC 7617), in UTF-8.
fn basic_credentials(user: &str, password: &str) -> Result<Secret, AgentError> {
    let credentials = format!("{user}:{password}");
    if user.contains(':') || credentials.chars().any(char::is_control) {
        return Err(invalid(
            "the webhook's user or password has characters that basic authentication does not allow",
        ));
    }
    Ok(Secret::new(format!("Basic {}", STANDARD.encode(credentials))))
}

fn sign_jwt(secret: &Secret, url: &Url, context: &ExecutionContext) -> Secret {
    let iat = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let claims = Claims {
        iss: "agentd",
        aud: url.origin().ascii_serialization(),
        sub: &context.user_id,
        company_id: &context.company_id,
        agent_id: &context.agent_id,
        iat,
        exp: iat + JWT_LIFETIME.as_secs(),
    };
    Secret::new(jwt::sign_hs256(secret, &claims))
}

/// Returns a part of the credential. An empty secret counts as missing: it was cleared, and a signature made with it
/// would prove nothing.
fn required_part<'a>(field: &'static str, value: Option<&'a str>) -> Result<&'a str, AgentError> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| {
        let message = format!("WorkflowConnector.auth.{field} is not configured");
        AgentError::new(AgentErrorKind::NotConfigured, message)
    })
}

fn invalid(message: &'static str) -> AgentError {
    AgentError::new(AgentErrorKind::InvalidRequest, message)
}
