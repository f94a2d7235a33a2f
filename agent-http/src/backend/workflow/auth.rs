//! The four ways by which a webhook knows us.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_core::error::{Failure, FailureKind};
use agent_core::role::WebhookAuth;
use agent_core::secret::Secret;
use agent_core::tool::ExecutionContext;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use serde::Serialize;
use url::Url;

use crate::auth::hmac;
use crate::outbound::OutboundRequest;
use crate::secret::origin_of;

/// How long a signed token is good: for the clocks of two machines to be apart, and no longer.
const TOKEN_LIFE: Duration = Duration::from_secs(5 * 60);

/// Who sends, and for whom. n8n checks the signature and `exp`, and shows the claims to the workflow.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Claims<'a> {
    iss: &'static str,
    /// The webhook's origin.
    aud: String,
    /// The user.
    sub: &'a str,
    company_id: &'a str,
    agent_id: &'a str,
    iat: u64,
    exp: u64,
}

/// Adds the connector's credential to a request.
///
/// # Errors
/// `NotConfigured` where a part of the credential is missing; `InvalidRequest` where it cannot be sent.
pub(super) fn authorize(
    request: OutboundRequest,
    auth: Option<&WebhookAuth>,
    url: &Url,
    context: &ExecutionContext,
) -> Result<OutboundRequest, Failure> {
    match auth {
        None | Some(WebhookAuth::None) => Ok(request),
        Some(WebhookAuth::Basic { user, password }) => {
            let user = given("user", Some(user.as_str()))?;
            let password = given("password", password.as_ref().map(Secret::expose))?;
            request.secret_header(AUTHORIZATION.as_str(), &basic(user, password)?)
        }
        Some(WebhookAuth::Header { name, value }) => {
            let name = given("name", Some(name.as_str()))?;
            let value = given("value", value.as_ref().map(Secret::expose))?;
            if [CONTENT_TYPE, CONTENT_ENCODING].iter().any(|ours| name.eq_ignore_ascii_case(ours.as_str())) {
                return Err(invalid("the header's name cannot be used"));
            }
            request.secret_header(name, &Secret::new(value))
        }
        Some(WebhookAuth::Jwt { secret }) => {
            let secret = Secret::new(given("secret", secret.as_ref().map(Secret::expose))?);
            request.bearer(&token(&secret, url, context))
        }
    }
}

/// RFC 7617, in UTF-8.
fn basic(user: &str, password: &str) -> Result<Secret, Failure> {
    let both = format!("{user}:{password}");
    if user.contains(':') || both.chars().any(char::is_control) {
        return Err(invalid(
            "the webhook's user or password has characters that basic authentication refuses",
        ));
    }
    Ok(Secret::new(format!("Basic {}", STANDARD.encode(both))))
}

fn token(secret: &Secret, url: &Url, context: &ExecutionContext) -> Secret {
    let iat = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let claims = Claims {
        iss: "agentd",
        aud: origin_of(url).ascii_serialization(),
        sub: &context.user_id,
        company_id: &context.company_id,
        agent_id: &context.agent_id,
        iat,
        exp: iat + TOKEN_LIFE.as_secs(),
    };
    Secret::new(hmac::sign(secret, &claims))
}

/// A part of the credential. An empty secret is one that was cleared, and a signature under it would prove
/// nothing.
fn given<'a>(field: &'static str, value: Option<&'a str>) -> Result<&'a str, Failure> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| {
        let message = format!("WorkflowConnector.auth.{field} is not configured");
        Failure::new(FailureKind::NotConfigured, message)
    })
}

fn invalid(message: &'static str) -> Failure {
    Failure::new(FailureKind::InvalidRequest, message)
}
