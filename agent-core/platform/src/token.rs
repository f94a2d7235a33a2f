//! Tokens: credentials that an operator or a run hands out for one agent, kept as hashes.
//!
//! A widget token stands in a web page, where everybody can read it, so it is worth little: it is good for
//! one agent, from the origins that it names, as often as its caps allow, and its bearer is nobody's user
//! but its own. An MCP token is a secret between us and whoever calls an agent's tools for one person.
//!
//! A token's text is made once and shown once. What is kept is everything but its secret half, and the
//! SHA-256 of that: the secret is 256 random bits, so a hash without salt or stretching is as good as any.
//! Records are the platform's, since a text must be found before it is known whose it is; beside each, an
//! entry in the company's own records leads from the agent to its tokens. Stores do not cache, so a token
//! that was revoked is refused from then on.
//!
//! A run's own token, which goes out with the run and dies with it, is kept in memory alone
//! ([`RunToken`]): a run costs no write.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::records::{
    Collection, Key, List, Page, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json,
};
use agent_core::clock::Clock;
use agent_core::event::CallReports;
use agent_core::secret::Secret;

mod check;
mod day;
mod run;
#[cfg(test)]
mod tests;
mod text;
mod time;

pub use check::{MAX_LABEL_BYTES, MAX_ORIGIN_BYTES, MAX_ORIGINS, MAX_TOOLS};
pub use day::CapError;
pub use run::{MAX_RUN_TOKENS, RunToken};

use run::RunTokens;
use text::{Digest, Text};

/// The platform's collection of tokens, by id.
const TOKENS: &str = "tokens";
/// A company's collection of its agents' tokens: below it one for each agent, with the tokens' ids.
const AGENT_TOKENS: &str = "agentTokens";

/// How the user of a widget's visitors begins; the token's id follows. No other user is called so.
pub const WIDGET_USER: &str = "widget:";

/// What is known of a token: everything but its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// The public identifier, a UUID of version 7.
    pub id: String,
    /// The company of the agent.
    pub company_id: String,
    /// The one agent that the token is good for.
    pub agent_id: String,
    /// What its bearer may do.
    #[serde(flatten)]
    pub grant: Grant,
    /// When it was made, to the millisecond. RFC 3339 in JSON, like the other times.
    #[serde(with = "time")]
    #[schemars(schema_with = "time::schema")]
    pub created_at: SystemTime,
    /// From when on it is refused; never, if absent.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::schema")]
    pub expires_at: Option<SystemTime>,
    /// When it was revoked, if it was.
    #[serde(default, with = "time::option", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time::schema")]
    pub revoked_at: Option<SystemTime>,
    /// What its maker calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Token {
    /// Whether it is refused at `now`, and why.
    ///
    /// # Errors
    /// [`FindError::Revoked`] and [`FindError::Expired`].
    pub fn check(&self, now: SystemTime) -> Result<(), FindError> {
        if self.revoked_at.is_some() {
            return Err(FindError::Revoked);
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return Err(FindError::Expired);
        }
        Ok(())
    }
}

/// What a token's bearer may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Grant {
    /// Chat with the agent as a visitor of a page.
    Widget(WidgetGrant),
    /// Call the agent's tools for a person.
    Mcp(McpGrant),
}

/// What a widget token allows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WidgetGrant {
    /// The exact origins of the pages that it may be used from; any, if there are none.
    pub origins: Vec<String>,
    /// How often.
    pub caps: Caps,
}

/// How often a widget token's bearers may chat, all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Caps {
    /// Runs a minute; as many may begin at once.
    pub runs_per_minute: NonZeroU32,
    /// Runs a day, which begins at midnight UTC; no cap, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_per_day: Option<NonZeroU32>,
}

impl Default for Caps {
    /// 20 runs a minute, and no cap for the day.
    fn default() -> Self {
        Self { runs_per_minute: NonZeroU32::new(20).expect("twenty is not zero"), runs_per_day: None }
    }
}

/// What an MCP token allows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpGrant {
    /// The person whom the tools work for.
    pub user_id: String,
    /// The task list that tasks and plans go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo_list_id: Option<String>,
    /// Cuts the agent's tools down to these; absent leaves them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The person's IANA time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The run that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
}

/// A token that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The company of the agent.
    pub company_id: String,
    /// The agent. Whether there is such a one is for the caller to know.
    pub agent_id: String,
    /// What the bearer may do.
    pub grant: Grant,
    /// How long it lives; for ever, if absent.
    pub ttl: Option<Duration>,
    /// What its maker calls it.
    pub label: Option<String>,
}

impl NewToken {
    /// A token that lives until it is revoked.
    pub fn new(company_id: impl Into<String>, agent_id: impl Into<String>, grant: Grant) -> Self {
        Self { company_id: company_id.into(), agent_id: agent_id.into(), grant, ttl: None, label: None }
    }

    /// The token with its text, made at `now`.
    fn make(self, now: SystemTime) -> Result<(Token, Text), MintError> {
        check::new_token(&self)?;
        let text = Text::random(&self.grant)?;
        let created_at = time::to_millis(now);
        let end = |ttl| created_at.checked_add(ttl).filter(|end| time::can_be_written(*end));
        let token = Token {
            id: text.id.to_string(),
            company_id: self.company_id,
            agent_id: self.agent_id,
            grant: self.grant,
            created_at,
            expires_at: self.ttl.map(|ttl| end(ttl).ok_or_else(MintError::ttl)).transpose()?,
            revoked_at: None,
            label: self.label,
        };
        Ok((token, text))
    }
}

/// A token that has just been made.
#[derive(Debug, Clone)]
pub struct Minted {
    /// What is known of it from now on.
    pub token: Token,
    /// Its text, which is had only here: `agw_` for widgets or `agm_` for MCP, and 64 characters of
    /// Base64 for addresses (RFC 4648, section 5).
    pub text: Secret,
}

/// Why a token was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MintError {
    /// A part that a token cannot have.
    #[error("{field} {fault}")]
    Invalid {
        /// The field's name on the wire.
        field: &'static str,
        /// What is wrong, worded to follow the name.
        fault: String,
    },
    /// More runs have a token than are taken.
    #[error("too many runs have a token")]
    Full,
    /// The machine gives no random bytes.
    #[error("no random bytes are to be had")]
    Random(#[source] getrandom::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MintError {
    fn invalid(field: &'static str, fault: impl Into<String>) -> Self {
        Self::Invalid { field, fault: fault.into() }
    }

    fn ttl() -> Self {
        Self::invalid("ttl", "ends too late")
    }
}

/// Why a text is no valid token. All but [`FindError::Store`] are answered alike, since which part of a
/// forged text was right is none of its maker's business; the reason is for the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// It does not have a token's form.
    #[error("malformed")]
    Malformed,
    /// There is no token of that id.
    #[error("unknown")]
    Unknown,
    /// The id is that of a token, and the rest is not that token's.
    #[error("wrong secret")]
    WrongSecret,
    /// It was revoked.
    #[error("revoked")]
    Revoked,
    /// Its time is over.
    #[error("expired")]
    Expired,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A token as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    #[serde(flatten)]
    token: Token,
    secret_sha256: Digest,
}

/// The entry that leads from an agent to a token: its id says all.
#[derive(Serialize, Deserialize)]
struct Listed {}

/// The tokens of a store and those of the runs in this process.
pub struct Tokens {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    runs: RunTokens,
}

impl Tokens {
    /// The tokens in `records`, whose times are told by `clock`.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        Self { records, runs: RunTokens::new(clock.clone(), MAX_RUN_TOKENS), clock }
    }

    /// Makes a token and keeps it.
    ///
    /// # Errors
    /// Every [`MintError`] but [`MintError::Full`].
    pub async fn mint(&self, new: NewToken) -> Result<Minted, MintError> {
        let (token, text) = new.make(self.clock.now())?;
        let listed = Write::Put {
            key: agent_tokens(&token.company_id, &token.agent_id)?.key(token.id.as_str())?,
            value: to_json(&Listed {})?,
            precondition: Precondition::Absent,
        };
        let kept = Kept { token, secret_sha256: text.digest() };
        let put =
            Write::Put { key: key(text.id)?, value: to_json(&kept)?, precondition: Precondition::Absent };
        self.records.commit(vec![put, listed]).await?;
        Ok(Minted { token: kept.token, text: text.reveal() })
    }

    /// Makes a token for a run, which is kept in memory and dies with what is returned. It must have a
    /// `ttl`, for [`RunToken::keep_until_expiry`](agent_core::run_token::RunToken::keep_until_expiry).
    ///
    /// # Errors
    /// Every [`MintError`] but [`MintError::Store`].
    pub fn mint_run(&self, new: NewToken) -> Result<RunToken, MintError> {
        self.runs.mint(new)
    }

    /// Where the tool calls that are made by a run's token are to be reported: absent for other tokens, and for runs
    /// whose own events tell of their calls. `id` is the [`Token`]'s.
    pub fn call_reports(&self, id: &str) -> Option<CallReports> {
        self.runs.call_reports(Uuid::try_parse(id).ok()?)
    }

    /// The token of a text, if it is valid now.
    ///
    /// # Errors
    /// Every [`FindError`].
    pub async fn find(&self, text: &str) -> Result<Token, FindError> {
        let text = Text::parse(text).ok_or(FindError::Malformed)?;
        if let Some(found) = self.runs.find(&text) {
            return found;
        }
        let kept = self.records.get_as::<Kept>(&key(text.id)?).await?.ok_or(FindError::Unknown)?.value;
        if !(text.is_of(&kept.token.grant) && text.matches(&kept.secret_sha256)) {
            return Err(FindError::WrongSecret);
        }
        kept.token.check(self.clock.now())?;
        Ok(kept.token)
    }

    /// Revokes a token and says whether there is such a one; of `company` alone, where that is given.
    /// One that was revoked before stays as it is.
    ///
    /// # Errors
    /// The store fails.
    pub async fn revoke(&self, id: &str, company: Option<&str>) -> Result<bool, StoreError> {
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
        let now = time::to_millis(self.clock.now());
        let revoke = |found: Option<Record<Kept>>| {
            let of_company = |kept: &Kept| company.is_none_or(|company| kept.token.company_id == company);
            let mut kept = found.map(|record| record.value).filter(of_company).ok_or(Unchanged::Absent)?;
            if kept.token.revoked_at.replace(now).is_some() {
                return Err(Unchanged::Revoked);
            }
            Ok(kept)
        };
        match self.records.update(&key(id)?, revoke).await {
            Ok(_) | Err(Unchanged::Revoked) => Ok(true),
            Err(Unchanged::Absent) => Ok(false),
            Err(Unchanged::Store(error)) => Err(error),
        }
    }

    /// One page of an agent's tokens, by their ids and so by their age, the invalid ones included.
    ///
    /// # Errors
    /// The store fails, or takes no such identifiers or cursor.
    pub async fn list(
        &self,
        company_id: &str,
        agent_id: &str,
        list: &List,
    ) -> Result<Page<Token>, StoreError> {
        let page = self.records.list(&agent_tokens(company_id, agent_id)?, list).await?;
        let tokens = Collection::of_platform(TOKENS)?;
        let keys: Vec<Key> =
            page.records.into_iter().map(|record| tokens.key(record.id)).collect::<Result<_, _>>()?;
        let kept = self.records.get_many_as::<Kept>(&keys).await?;
        let tokens = kept.into_iter().flatten().map(|record| {
            let Record { id, version, updated, value } = record;
            Record { id, version, updated, value: value.token }
        });
        Ok(Page { records: tokens.collect(), next_cursor: page.next_cursor })
    }

    /// Counts a run of a token towards its day's cap.
    ///
    /// # Errors
    /// [`CapError::Spent`], and the run is not counted, where the cap is reached.
    pub async fn count_run(&self, token_id: &str, per_day: NonZeroU32) -> Result<(), CapError> {
        day::count(&*self.records, self.clock.now(), token_id, per_day).await
    }
}

fn key(id: Uuid) -> Result<Key, StoreError> {
    Collection::of_platform(TOKENS)?.key(id.to_string())
}

fn agent_tokens(company_id: &str, agent_id: &str) -> Result<Collection, StoreError> {
    Collection::new(company_id, AGENT_TOKENS)?.within(agent_id)
}
