//! Resolves the platform's own tokens to identities.

use agent_core::tool::{Caller, ExecutionContext};
use agent_platform::ids::WIDGET_USER_PREFIX;
use agent_platform::records::StoreError;
use agent_platform::token::{Grant, Token, TokenEndListener, TokenError, Tokens};
use async_trait::async_trait;

use super::identity::{Identity, TokenResolver};

#[async_trait]
impl TokenResolver for Tokens {
    async fn resolve_token(&self, text: &str) -> Result<Option<Identity>, StoreError> {
        match self.find(text).await {
            Ok(token) => {
                let calls = self.call_reports(&token.id);
                Ok(identity(token).map(|identity| Identity { calls, ..identity }))
            }
            Err(TokenError::Store(error)) => Err(error),
            Err(reason) => {
                tracing::debug!(%reason, "MCP token rejected");
                Ok(None)
            }
        }
    }

    fn subscribe_ended(&self, listener: TokenEndListener) {
        Tokens::subscribe_ended(self, listener);
    }
}

/// Returns the identity of an MCP token; `None` for a token of another kind.
fn identity(token: Token) -> Option<Identity> {
    let Grant::Mcp(grant) = token.grant else { return None };
    // A run token acts for the run's user; a widget visitor is not a user of the company.
    let caller = if grant.user_id.starts_with(WIDGET_USER_PREFIX) { Caller::Widget } else { Caller::Session };
    let context = ExecutionContext {
        user_id: grant.user_id,
        company_id: token.company_id,
        agent_id: token.agent_id,
        todo_list_id: grant.todo_list_id,
        timezone: grant.timezone,
        run_id: grant.run_id.unwrap_or_default(),
        caller,
        token_id: grant.token_id,
        can_suspend: grant.can_suspend,
        granted_tools: grant.tools,
        ..ExecutionContext::default()
    };
    Some(Identity { id: token.id, context, calls: None })
}
