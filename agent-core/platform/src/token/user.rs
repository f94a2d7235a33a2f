//! Number of MCP tokens per user, counted in one record per user that changes together with the tokens.

use serde::{Deserialize, Serialize};

use super::{MAX_MCP_TOKENS_PER_USER, StoredToken, TOKENS, TokenMintError, Tokens};
use crate::records::{Collection, Key, Precondition, Record, RecordsExt, StoreError, Write, to_json};
use agent_core::ids::{CompanyId, UserId};

/// Name of a company's collection of users' MCP tokens, by user.
const USER_TOKENS: &str = "userTokens";

/// The ids of a user's MCP tokens. Those that are no longer valid are removed when the limit is reached.
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
        if counted.ids.len() >= MAX_MCP_TOKENS_PER_USER {
            counted.ids = self.valid_ids(&counted.ids).await?;
        }
        if counted.ids.len() >= MAX_MCP_TOKENS_PER_USER {
            return Err(TokenMintError::TooManyTokens { limit: MAX_MCP_TOKENS_PER_USER });
        }
        counted.ids.push(id.to_owned());
        Ok(Write::Put { key, value: to_json(&counted)?, precondition })
    }

    /// Returns the ids of the tokens that are neither expired nor revoked.
    async fn valid_ids(&self, ids: &[String]) -> Result<Vec<String>, StoreError> {
        let tokens = Collection::of_platform(TOKENS)?;
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
