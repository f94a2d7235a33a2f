//! Token budgets: estimates and history trimming. Pure.

/// How many tokens a prompt may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBudget {
    /// System prompt, tools, history and latest turn together.
    pub max_prompt_tokens: usize,
}
