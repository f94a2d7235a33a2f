//! Number of tokens per agent, expired and revoked ones included.

use super::caps::run_counts_key;
use super::error::TokenMintError;
use super::{AGENT_TOKENS, MAX_TOKENS_PER_AGENT, Token, Tokens, agent_tokens, key};
use crate::records::{
    Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Quota, Records, StoreError, Write, put_within, quota_key,
};
use agent_core::ids::{AgentId, CompanyId};
use async_trait::async_trait;
use uuid::Uuid;

/// Quota of the tokens of each of a new token's agents.
struct AgentTokenQuota<'t> {
    tokens: &'t Tokens,
    /// The new token.
    token: &'t Token,
}

#[async_trait]
impl Quota for AgentTokenQuota<'_> {
    type Error = TokenMintError;

    fn key(&self) -> Result<Key, StoreError> {
        quota_key(&self.token.company_id, AGENT_TOKENS)
    }

    async fn check(&self, _: &dyn Records) -> Result<(), TokenMintError> {
        for agent in self.token.agents() {
            self.tokens.make_room(&self.token.company_id, agent).await?;
        }
        Ok(())
    }
}

impl Tokens {
    /// Commits the writes that store a new token, within the limits of its agents.
    ///
    /// # Errors
    /// [`TokenMintError::TooManyAgentTokens`] if one of them has as many valid tokens as it may; [`StoreError::Conflict`] if a
    /// precondition does not hold.
    pub(super) async fn store_token(&self, token: &Token, writes: &[Write]) -> Result<(), TokenMintError> {
        let quota = AgentTokenQuota { tokens: self, token };
        put_within(&*self.records, &quota, writes).await.map(drop)
    }

    /// Makes room for another token of the agent: at the limit, the tokens that have expired or are revoked are deleted.
    ///
    /// # Errors
    /// [`TokenMintError::TooManyAgentTokens`] if all of them are valid.
    async fn make_room(&self, company_id: &CompanyId, agent_id: &AgentId) -> Result<(), TokenMintError> {
        let count = self.records.count(&agent_tokens(company_id, agent_id)?).await?;
        if count < MAX_TOKENS_PER_AGENT as u64 {
            return Ok(());
        }
        match self.delete_invalid(company_id, agent_id).await? {
            0 => Err(TokenMintError::TooManyAgentTokens { limit: MAX_TOKENS_PER_AGENT }),
            _ => Ok(()),
        }
    }

    /// Deletes the agent's tokens that have expired or are revoked, and returns their number.
    async fn delete_invalid(&self, company_id: &CompanyId, agent_id: &AgentId) -> Result<usize, StoreError> {
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        let mut deleted = 0;
        loop {
            let page = self.list(company_id, agent_id, &list).await?;
            let now = self.clock.now();
            for record in page.records.iter().filter(|record| record.value.check(now).is_err()) {
                let Ok(id) = Uuid::try_parse(&record.id) else { continue };
                let delete = |key| Write::Delete { key, precondition: Precondition::Any };
                let mut keys = vec![key(id)?, run_counts_key(&record.id)?];
                for agent in record.value.agents() {
                    keys.push(agent_tokens(company_id, agent)?.key(record.id.as_str())?);
                }
                self.records.commit(keys.into_iter().map(delete).collect()).await?;
                deleted += 1;
            }
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(deleted);
            }
        }
    }
}
