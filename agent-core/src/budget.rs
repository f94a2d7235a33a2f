//! Token budgets: estimates and history trimming. Pure.

/// How many tokens a prompt may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBudget {
    /// System prompt, tools, history and latest turn together.
    pub max_prompt_tokens: usize,
}

impl TokenBudget {
    /// What a model's context window leaves beside its answer.
    pub fn for_model(info: &crate::model::ModelInfo) -> Self {
        Self { max_prompt_tokens: info.context_window.saturating_sub(info.max_output_tokens) }
    }
}
