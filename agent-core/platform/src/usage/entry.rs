//! Entries of the ledger.

use agent_core::ids::{AgentId, CompanyId, RunId, UserId};
use agent_core::tool::{Caller, ExecutionContext};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::NanoUsd;
use crate::ids::WIDGET_USER_PREFIX;

/// Maximum length of a provider's, a model's and an outcome's name, in bytes; longer ones are truncated.
pub const MAX_NAME_BYTES: usize = 128;

/// Numbers of tokens of one or more calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenCounts {
    /// All input tokens.
    pub input_tokens: u64,
    /// Input tokens read from the provider's prompt cache; part of the input.
    pub cached_input_tokens: u64,
    /// Input tokens written to the provider's prompt cache; part of the input.
    pub cache_write_tokens: u64,
    /// All output tokens.
    pub output_tokens: u64,
    /// Reasoning tokens; part of the output.
    pub reasoning_tokens: u64,
}

impl TokenCounts {
    /// Adds the tokens of other calls.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.cached_input_tokens, other.cached_input_tokens),
            (&mut self.cache_write_tokens, other.cache_write_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.reasoning_tokens, other.reasoning_tokens),
        ] {
            *sum = sum.saturating_add(count);
        }
    }
}

/// Kind of work that an entry of the ledger is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum UsageOperation {
    /// A call of a model that answers.
    #[default]
    Chat,
    /// A call of a model that summarizes a conversation.
    Compact,
    /// A call of an embedding model.
    Embed,
    /// Calls of tools, of no model.
    Tools,
}

impl UsageOperation {
    /// Returns the name on the wire and in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Compact => "compact",
            Self::Embed => "embed",
            Self::Tools => "tools",
        }
    }
}

/// Run that calls are made for, with the identities that they are booked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunScope {
    /// The company.
    pub company_id: CompanyId,
    /// The run; empty for calls outside of a run.
    pub run_id: RunId,
    /// The agent.
    pub agent_id: AgentId,
    /// The user. All visitors of a widget token are one.
    pub user_id: UserId,
    /// Kind of caller.
    pub caller: Caller,
    /// Id of the API token that requested the run. The ledger's tables do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// Hash of the visitor's key, which distinguishes the visitors of a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visitor: Option<String>,
}

impl RunScope {
    /// Returns the user or the visitor whose run it is.
    pub(super) fn owner(&self) -> UserId {
        match &self.visitor {
            Some(visitor) => format!("{}:{visitor}", self.user_id).into(),
            None => self.user_id.clone(),
        }
    }

    /// Returns a hash of the run and of those among whose runs its id is unique: the user, or the visitor.
    pub(super) fn run_key(&self) -> String {
        let mut hasher = Sha256::new();
        let visitor = self.visitor.as_deref().unwrap_or_default();
        for part in [self.user_id.as_str(), visitor, self.run_id.as_str()] {
            hasher.update(part);
            hasher.update(b"\0");
        }
        hex::encode(hasher.finalize())
    }
}

impl From<&ExecutionContext> for RunScope {
    fn from(context: &ExecutionContext) -> Self {
        Self {
            company_id: context.company_id.clone(),
            run_id: match is_clean(&context.run_id) {
                true => context.run_id.clone(),
                false => clean(&context.run_id).into(),
            },
            agent_id: context.agent_id.clone(),
            user_id: ledger_user(&context.user_id),
            caller: context.caller,
            token_id: context.token_id.clone(),
            visitor: visitor_key(&context.user_id).map(str::to_owned),
        }
    }
}

/// Returns the user that a user's calls are booked to: the token for a visitor, whatever the visitor's key.
pub fn ledger_user(user: &UserId) -> UserId {
    let token = user.strip_prefix(WIDGET_USER_PREFIX).and_then(|rest| rest.split(':').next());
    token.map_or_else(|| user.clone(), |token| format!("{WIDGET_USER_PREFIX}{token}").into())
}

/// Returns the hash of a visitor's key.
fn visitor_key(user: &UserId) -> Option<&str> {
    Some(user.strip_prefix(WIDGET_USER_PREFIX)?.split_once(':')?.1)
}

/// Entry of the ledger: one call of a model, or the tool calls of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageEntry {
    /// Identifier in the company. An entry is booked once, however often it is written.
    pub id: String,
    /// The run, and the identities that it is booked to.
    #[serde(flatten)]
    pub scope: RunScope,
    /// Number of the model's answer in the run, from 1; 0 for tool calls.
    pub round: u32,
    /// Number of the attempt at the answer, from 1.
    pub attempt: u32,
    /// Kind of work.
    pub operation: UsageOperation,
    /// Provider of the model; empty for tool calls.
    pub provider: String,
    /// Model; empty for tool calls.
    pub model: String,
    /// Tokens of the call.
    #[serde(flatten)]
    pub tokens: TokenCounts,
    /// Number of tool calls.
    #[serde(default)]
    pub tool_calls: u64,
    /// Price of the call; `None` if the price of the model is unknown.
    pub cost: Option<NanoUsd>,
    /// Date of the price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_as_of: Option<String>,
    /// True if a count is an estimate, because the provider reported none or an impossible one.
    #[serde(default)]
    pub estimated: bool,
    /// `ok`, `cancelled`, or the code of the error.
    pub outcome: String,
    /// Time of the end.
    pub ended_at: Timestamp,
}

impl UsageEntry {
    /// Returns true for a call of a model.
    pub fn is_model_call(&self) -> bool {
        self.operation != UsageOperation::Tools
    }
}

/// Returns true if [`clean`] returns a name as it is.
fn is_clean(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && !name.contains(char::is_control)
}

/// Returns a name without control characters, of at most [`MAX_NAME_BYTES`].
pub(super) fn clean(name: &str) -> String {
    let mut clean: String = name.chars().filter(|char| !char.is_control()).collect();
    clean.truncate(clean.floor_char_boundary(MAX_NAME_BYTES));
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_of_a_token_are_one_user() {
        for (user, expected) in
            [("ada", "ada"), ("widget:t1", "widget:t1"), ("widget:t1:00ff", "widget:t1"), ("a:b", "a:b")]
        {
            assert_eq!(ledger_user(&user.into()).as_str(), expected);
        }
    }

    #[test]
    fn a_run_is_that_of_its_user_or_visitor() {
        let key = |user: &str, run: &str| {
            let context =
                ExecutionContext { user_id: user.into(), run_id: run.into(), ..ExecutionContext::default() };
            RunScope::from(&context).run_key()
        };
        let users = ["ada", "bob", "widget:t", "widget:t:00", "widget:t:ff", "widget:u:00"];
        let runs = users.map(|user| key(user, "1")).into_iter().chain([key("ada", "2"), key("ada1", "")]);
        assert_eq!(runs.collect::<std::collections::HashSet<_>>().len(), 8);
        assert_eq!(key("widget:t:00", "1"), key("widget:t:00", "1"));
    }

    #[test]
    fn names_are_bounded() {
        assert_eq!(clean("gpt\u{0}\n-5"), "gpt-5");
        assert_eq!(clean(&"ü".repeat(100)).len(), MAX_NAME_BYTES);
        for name in
            ["", "gpt-5", "ü\u{85}", "gpt\n", &"x".repeat(MAX_NAME_BYTES), &"ü".repeat(MAX_NAME_BYTES)]
        {
            assert_eq!(is_clean(name), clean(name) == name, "{name:?}");
        }
    }

    #[test]
    fn sums_saturate() {
        let mut sum = TokenCounts { input_tokens: u64::MAX - 1, ..TokenCounts::default() };
        sum.add(&TokenCounts { input_tokens: 5, output_tokens: 3, ..TokenCounts::default() });
        assert_eq!((sum.input_tokens, sum.output_tokens), (u64::MAX, 3));
    }
}
