//! API tokens: verifies the bearer token of a client of OpenAI's API.

use std::fmt;
use std::sync::Arc;

use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::token::{ApiGrant, Grant, RunCaps, Token, TokenError, Tokens};

use super::AuthError;

/// Bearer of an API token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiClient {
    /// Id of the API token.
    pub token_id: String,
    /// Company of the user and the agents.
    pub company_id: CompanyId,
    /// The user on whose behalf the agents answer.
    pub user_id: UserId,
    /// The agents that the client may chat with.
    pub agents: Vec<AgentId>,
    /// Rate caps of the token.
    pub caps: Option<RunCaps>,
}

impl ApiClient {
    /// Returns the principal for a chat with an agent; `None` if the token is not valid for it.
    pub fn principal(&self, agent: &AgentId) -> Option<Principal> {
        let agent_id = Some(self.agents.iter().find(|own| *own == agent)?.clone());
        let principal = Principal::new(self.user_id.clone(), self.company_id.clone(), Caller::Api);
        Some(Principal { agent_id, token_id: Some(self.token_id.clone()), ..principal })
    }
}

/// Verifies API tokens.
pub(super) struct ApiVerifier {
    tokens: Arc<Tokens>,
}

impl fmt::Debug for ApiVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl ApiVerifier {
    pub(super) fn new(tokens: Arc<Tokens>) -> Self {
        Self { tokens }
    }

    /// Returns the client for a token's text.
    pub(super) async fn verify(&self, text: &str) -> Result<ApiClient, AuthError> {
        let token = match self.tokens.find(text).await {
            Ok(token) => token,
            Err(TokenError::Store(error)) => return Err(AuthError::Store(error)),
            Err(reason) => {
                tracing::debug!(%reason, "API token rejected");
                return Err(AuthError::Unauthenticated);
            }
        };
        let Token { id, company_id, grant, .. } = token;
        let Grant::Api(ApiGrant { user_id, agents, caps }) = grant else {
            tracing::debug!(reason = "not an API token", "API token rejected");
            return Err(AuthError::Unauthenticated);
        };
        Ok(ApiClient { token_id: id, company_id, user_id, agents, caps })
    }
}
