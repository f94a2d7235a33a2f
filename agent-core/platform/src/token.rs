//! Tokens: credentials for one agent or a few, issued by an operator or for a run, stored as hashes.
//!
//! A widget token is embedded in a public web page and therefore grants little. It is valid for one agent, from the
//! origins that it names and within its rate caps. Its bearer is a visitor and not a user of the company. An MCP token
//! is a secret shared with a client that calls an agent's tools on behalf of one user. An API token is the key of a
//! program that chats with some agents on behalf of one user.
//!
//! A token's text is returned once, when it is created. Stored are its metadata and the SHA-256 of its secret half: the
//! secret is 256 random bits, so the hash needs neither salt nor stretching. The records are the platform's, because a
//! token is looked up before its company is known; for each token, an index entry in the company's own records maps the
//! agent to it. Stores do not cache, so that a revocation takes effect immediately.
//!
//! A run token is sent with a run and expires with it. It is kept in memory, so that the start of a run
//! costs no write; with a key, its text is sealed, so that other processes that share the store accept it too.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::call_reports::ToolCallReporter;
use crate::known_companies::KnownCompanies;
use crate::records::{
    Collection, Key, ListQuery, Page, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json,
    to_millis,
};
use agent_core::clock::Clock;
use agent_core::ids::{AgentId, CompanyId};
use agent_core::secret::Secret;

mod agent;
mod caps;
mod end;
mod error;
mod grant;
mod metadata;
mod new_token;
mod run;
mod run_tokens;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod user;

pub use caps::RunCapError;
pub use end::TokenEndListener;
pub use error::{TokenError, TokenMintError};
pub use grant::{ApiGrant, Grant, McpGrant, RunCaps, WidgetGrant};
pub use metadata::Token;
pub use new_token::{MAX_AGENTS_PER_TOKEN, NewToken};
pub use run::IssuedRunToken;

use end::TokenEndListeners;
use run::{RUN_TOKEN_LIMITS, RunTokenTable, SealedText};
use text::{SecretDigest, TokenText};

/// Name of the platform's collection of tokens, by id.
const TOKENS: &str = "tokens";
/// Name of a company's index of tokens: one nested collection for each agent, with the tokens' ids.
const AGENT_TOKENS: &str = "agentTokens";

/// Maximum number of a user's MCP and API tokens that are neither expired nor revoked.
pub const MAX_TOKENS_PER_USER: usize = 50;

/// Maximum number of an agent's tokens. At the limit, those that have expired or are revoked are deleted.
pub const MAX_TOKENS_PER_AGENT: usize = 1_000;

/// Number of attempts to create a token while other tokens of the same user are created.
const MINT_ATTEMPTS: u32 = 32;

/// A newly created token with its text.
#[derive(Debug, Clone)]
pub struct MintedToken {
    /// The token without its secret.
    pub token: Token,
    /// The text, available only here: `agw_` for widgets, `agm_` for MCP or `aga_` for the API, followed by 64 characters
    /// of base64url (RFC 4648, section 5).
    pub text: Secret,
}

/// The stored form of a token.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredToken {
    #[serde(flatten)]
    token: Token,
    secret_sha256: SecretDigest,
}

/// The index entry from an agent to a token. The record's id is the token's id.
#[derive(Serialize, Deserialize)]
struct TokenIndexEntry {}

/// The tokens of a store and the run tokens of this process, and of other processes if [shared](Tokens::with_shared_run_tokens).
pub struct Tokens {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    runs: RunTokenTable,
    ended: Arc<TokenEndListeners>,
    companies: KnownCompanies<Uuid>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// Creates the token service over `records`, with times from `clock`.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        let ended = Arc::<TokenEndListeners>::default();
        let runs = RunTokenTable::new(clock.clone(), RUN_TOKEN_LIMITS, ended.clone(), None);
        Self { records, runs, clock, ended, companies: KnownCompanies::default() }
    }

    /// Calls `listener` with the id of each token that ends in this process: by a revocation here, with its run, or
    /// evicted for another run. The end of another process's run is reported when [`find`](Self::find) reads it.
    /// Expiry at its time and revocations by other processes are not reported.
    pub fn subscribe_ended(&self, listener: TokenEndListener) {
        self.ended.add(listener);
    }

    /// Creates a token and stores it.
    ///
    /// # Errors
    /// Every [`TokenMintError`] but [`TokenMintError::TooManyRunTokens`].
    pub async fn mint(&self, new: NewToken) -> Result<MintedToken, TokenMintError> {
        let (token, text) = new.create(self.clock.now())?;
        let mut puts = Vec::with_capacity(token.agents().len() + 2);
        for agent in token.agents() {
            puts.push(Write::Put {
                key: agent_tokens(&token.company_id, agent)?.key(token.id.as_str())?,
                value: to_json(&TokenIndexEntry {})?,
                precondition: Precondition::Absent,
            });
        }
        let stored_token = StoredToken { token, secret_sha256: text.digest() };
        puts.push(Write::Put {
            key: key(text.id)?,
            value: to_json(&stored_token)?,
            precondition: Precondition::Absent,
        });
        let mut attempt = 1;
        loop {
            let mut writes = puts.clone();
            if let Some(user_id) = stored_token.token.grant.user_id() {
                writes.push(
                    self.count_user_token(&stored_token.token.company_id, user_id, &stored_token.token.id)
                        .await?,
                );
            }
            match self.store_token(&stored_token.token, &writes).await {
                Ok(()) => return Ok(MintedToken { token: stored_token.token, text: text.to_secret() }),
                Err(TokenMintError::Store(StoreError::Conflict { .. })) if attempt < MINT_ATTEMPTS => {
                    attempt += 1
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a token for a run, which is kept in memory and ends when the returned value is dropped. It must have a
    /// `ttl`, for [`RunToken::keep_until_expiry`](agent_core::run_token::RunToken::keep_until_expiry).
    ///
    /// # Errors
    /// Every [`TokenMintError`] but [`TokenMintError::Store`].
    pub fn mint_run(&self, new: NewToken) -> Result<IssuedRunToken, TokenMintError> {
        self.runs.mint(new)
    }

    /// Returns the sink for reports of tool calls made with a run token: `None` for other tokens, and for runs whose
    /// own events contain their calls. `id` is the [`Token`]'s.
    pub fn call_reports(&self, id: &str) -> Option<ToolCallReporter> {
        self.runs.call_reports(Uuid::try_parse(id).ok()?)
    }

    /// Returns the token of a text, if it is valid now.
    ///
    /// # Errors
    /// Every [`TokenError`].
    pub async fn find(&self, text: &str) -> Result<Token, TokenError> {
        if let Some(sealed) = SealedText::parse(text) {
            return self.runs.find_sealed(&sealed, &*self.records).await;
        }
        let text = TokenText::parse(text).ok_or(TokenError::Malformed)?;
        if let Some(found) = self.runs.find(&text) {
            return found;
        }
        let key = self.companies.counted(&text.id, key(text.id)?);
        let stored_token = self.records.get_as::<StoredToken>(&key).await?.ok_or(TokenError::Unknown)?.value;
        if !(text.matches_kind(&stored_token.token.grant) && text.matches(&stored_token.secret_sha256)) {
            return Err(TokenError::WrongSecret);
        }
        self.companies.record(text.id, &stored_token.token.company_id);
        stored_token.token.check(self.clock.now())?;
        Ok(stored_token.token)
    }

    /// Revokes a token and returns true if it exists. With `company`, tokens of other companies count as absent. A
    /// token that is revoked already stays unchanged.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn revoke(&self, id: &str, company: Option<&CompanyId>) -> Result<bool, StoreError> {
        enum Unchanged {
            Absent,
            Revoked,
            Store(StoreError),
        }
        impl From<StoreError> for Unchanged {
            fn from(error: StoreError) -> Self {
                Self::Store(error)
            }
        }
        let Ok(id) = Uuid::try_parse(id) else { return Ok(false) };
        let now = to_millis(self.clock.now());
        let revoke = |found: Option<Record<StoredToken>>| {
            let of_company = |stored_token: &StoredToken| {
                company.is_none_or(|company| stored_token.token.company_id == *company)
            };
            let mut stored_token =
                found.map(|record| record.value).filter(of_company).ok_or(Unchanged::Absent)?;
            if stored_token.token.revoked_at.replace(now).is_some() {
                return Err(Unchanged::Revoked);
            }
            Ok(stored_token)
        };
        let key = match company {
            Some(company) => key(id)?.counted_for(company),
            None => self.companies.counted(&id, key(id)?),
        };
        match self.records.update(&key, revoke).await {
            Ok(_) => {
                self.ended.notify(id);
                Ok(true)
            }
            Err(Unchanged::Revoked) => Ok(true),
            Err(Unchanged::Absent) => Ok(false),
            Err(Unchanged::Store(error)) => Err(error),
        }
    }

    /// Returns one page of an agent's tokens, ordered by id and so by age, including invalid ones.
    ///
    /// # Errors
    /// Errors of the store, and [`StoreError::Invalid`] for invalid identifiers or cursors.
    pub async fn list(
        &self,
        company_id: &CompanyId,
        agent_id: &AgentId,
        list: &ListQuery,
    ) -> Result<Page<Token>, StoreError> {
        let page = self.records.list(&agent_tokens(company_id, agent_id)?, list).await?;
        let tokens = Collection::of_platform(TOKENS)?.counted_for(company_id);
        let keys: Vec<Key> =
            page.records.into_iter().map(|record| tokens.key(record.id)).collect::<Result<_, _>>()?;
        let stored_tokens = self.records.get_many_as::<StoredToken>(&keys).await?;
        let tokens = stored_tokens.into_iter().flatten().map(|record| {
            let Record { id, version, updated, value } = record;
            Record { id, version, updated, value: value.token }
        });
        Ok(Page { records: tokens.collect(), next_cursor: page.next_cursor })
    }
}

fn key(id: Uuid) -> Result<Key, StoreError> {
    Collection::of_platform(TOKENS)?.key(id.to_string())
}

fn agent_tokens(company_id: &CompanyId, agent_id: &AgentId) -> Result<Collection, StoreError> {
    Collection::new(company_id, AGENT_TOKENS)?.within(agent_id)
}
