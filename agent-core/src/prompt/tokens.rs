//! Token counts of a prompt, and of the history that did not fit.

use serde::{Deserialize, Serialize};

/// Token counts of a prompt's sections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptTokens {
    /// Tokens of the system prompt.
    pub system: usize,
    /// Tokens of the tools' definitions.
    pub tools: usize,
    /// Tokens of history and latest turn, including the turn's context.
    pub messages: usize,
}

impl PromptTokens {
    /// Returns the sum over all sections.
    pub fn total(self) -> usize {
        self.system + self.tools + self.messages
    }
}

/// A part of the history that was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrimmedHistory {
    /// Number of messages.
    pub messages: usize,
    /// Number of tokens of these messages.
    pub tokens: usize,
    /// Reason for dropping them.
    pub reason: TrimReason,
}

/// Reason for dropping part of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum TrimReason {
    /// The prompt would exceed its token budget.
    TokenBudget,
}
