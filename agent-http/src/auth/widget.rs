//! Widget tokens: verifies a token and the origin of its page, and returns the visitor.

use std::fmt;
use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId};
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::token::{Caps, Grant, Token, TokenError, Tokens, WIDGET_USER_PREFIX, WidgetGrant};
use http::HeaderMap;
use http::header::ORIGIN;

use super::{AuthError, single_header};
use crate::cors::normalize_origin;

/// Visitor of a page that embeds an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// Id of the widget token; all visitors with the same token are one user.
    pub token_id: String,
    /// Company of the agent.
    pub company_id: CompanyId,
    /// The agent that the visitor may chat with.
    pub agent_id: AgentId,
    /// Usage caps of the token.
    pub caps: Caps,
}

impl Visitor {
    /// Returns the visitor's principal: a user per token, bound to the agent.
    pub fn principal(&self) -> Principal {
        Principal {
            user_id: format!("{WIDGET_USER_PREFIX}{}", self.token_id).into(),
            company_id: self.company_id.clone(),
            caller: Caller::Widget,
            agent_id: Some(self.agent_id.clone()),
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
        Ok(Visitor { token_id: id, company_id, agent_id, caps })
    }
}

/// Returns true if `Origin` is one of `origins`.
fn is_allowed_origin(origins: &[String], headers: &HeaderMap) -> bool {
    let Ok(Some(origin)) = single_header(headers, &ORIGIN) else { return false };
    let Some(origin) = origin.to_str().ok().and_then(normalize_origin) else { return false };
    origins.iter().any(|allowed| normalize_origin(allowed).is_some_and(|allowed| allowed == origin))
}
