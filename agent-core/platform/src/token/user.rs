//! Number of MCP and API tokens per user, counted in one record per user that changes together with the tokens.

use serde::{Deserialize, Serialize};

use super::error::TokenMintError;
use super::{AGENT_TOKENS, MAX_TOKENS_PER_USER, StoredToken, TOKENS, Tokens};
use crate::records::{
    Collection, Inventory, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, RecordsExt, StoreError,
    Write, to_json,
};
use agent_core::ids::{AgentId, CompanyId, UserId};

/// Name of a company's collection of users' MCP and API tokens, by user.
const USER_TOKENS: &str = "userTokens";

/// The ids of a user's MCP and API tokens. Those that are no longer valid are removed when the limit is reached.
#[derive(Default, Serialize, Deserialize)]
struct UserTokens {
    ids: Vec<String>,
}

impl Tokens {
    /// Returns the write that counts the token `id` among the user's. It fails with [`StoreError::Conflict`] if another
    /// token of the user is created at the same time.
    pub(super) async fn count_user_token(
        &self,
        company_id: &CompanyId,
        user_id: &UserId,
        id: &str,
    ) -> Result<Write, TokenMintError> {
        let key = user_tokens(company_id, user_id)?;
        let found = self.records.get_as::<UserTokens>(&key).await?;
        let (mut counted, precondition) = match found {
            Some(Record { value, version, .. }) => (value, Precondition::Version(version)),
            None => (UserTokens::default(), Precondition::Absent),
        };
        if counted.ids.len() >= MAX_TOKENS_PER_USER {
            counted.ids = self.valid_ids(company_id, &counted.ids).await?;
        }
        if counted.ids.len() >= MAX_TOKENS_PER_USER {
            return Err(TokenMintError::TooManyTokens { limit: MAX_TOKENS_PER_USER });
        }
        counted.ids.push(id.to_owned());
        Ok(Write::Put { key, value: to_json(&counted)?, precondition })
    }

    /// Revokes the MCP and API tokens of a user for all agents of the company, and returns their number. `inventory` lists the
    /// collections of the same store.
    ///
    /// # Errors
    /// Errors of the store. Some tokens may then be revoked.
    pub async fn revoke_of_user(
        &self,
        inventory: &dyn Inventory,
        company_id: &CompanyId,
        user_id: &UserId,
    ) -> Result<usize, StoreError> {
        let prefix = format!("{AGENT_TOKENS}/");
        let (mut after, mut revoked) = (prefix.clone(), 0);
        loop {
            let found = inventory.collections(company_id, Some(&after)).await?;
            let agents: Vec<&Collection> =
                found.iter().filter(|tokens| tokens.path().starts_with(&prefix)).collect();
            let Some(last) = agents.last() else { return Ok(revoked) };
            for tokens in &agents {
                let agent_id: AgentId = tokens.parts().nth(1).unwrap_or_default().into();
                revoked += self.revoke_of_agent_user(company_id, &agent_id, user_id).await?;
            }
            after = last.path().to_owned();
        }
    }

    async fn revoke_of_agent_user(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
        user_id: &UserId,
    ) -> Result<usize, StoreError> {
        let (mut revoked, mut list) =
            (0, ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() });
        loop {
            let page = self.list(company_id, agent_id, &list).await?;
            for Record { id, value: token, .. } in page.records {
                let is_users = token.grant.user_id() == Some(user_id);
                if is_users && token.revoked_at.is_none() {
                    revoked += usize::from(self.revoke(&id, Some(company_id)).await?);
                }
            }
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                return Ok(revoked);
            }
        }
    }

    /// Returns the ids of the tokens that are neither expired nor revoked.
    async fn valid_ids(&self, company_id: &CompanyId, ids: &[String]) -> Result<Vec<String>, StoreError> {
        let tokens = Collection::of_platform(TOKENS)?.counted_for(company_id);
        let keys: Vec<Key> = ids.iter().map(|id| tokens.key(id.as_str())).collect::<Result<_, _>>()?;
        let (stored, now) = (self.records.get_many_as::<StoredToken>(&keys).await?, self.clock.now());
        let valid = ids.iter().zip(stored).filter(|(_, stored)| {
            stored.as_ref().is_some_and(|record| record.value.token.check(now).is_ok())
        });
        Ok(valid.map(|(id, _)| id.clone()).collect())
    }
}

fn user_tokens(company_id: &CompanyId, user_id: &UserId) -> Result<Key, StoreError> {
    Collection::new(company_id, USER_TOKENS)?.key(user_id.as_str())
}
