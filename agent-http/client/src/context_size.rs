//! Sizes in the errors with which a model's server rejects a prompt.

use agent_core::error::AgentError;

/// Member of an error with the limit on prompt and answer together.
const WINDOW: &str = "contextWindow";
/// Member of an error with the size of the rejected prompt.
const PROMPT: &str = "promptTokens";

/// Sizes that a model's server reports with an error of the kind `ContextExceeded`, in its own tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ContextSize {
    /// Limit on prompt and answer together.
    pub(crate) window: Option<u32>,
    /// Size of the rejected prompt.
    pub(crate) prompt: Option<u32>,
}

impl ContextSize {
    /// Returns the sizes that the members of an error have.
    pub(crate) fn of(error: &AgentError) -> Self {
        let member = |name| {
            let member = error.members().iter().find(|(member, _)| *member == name);
            member.and_then(|(_, value)| value.as_u64()?.try_into().ok())
        };
        Self { window: member(WINDOW), prompt: member(PROMPT) }
    }

    /// Adds the known sizes to an error as members.
    pub(crate) fn add_to(self, error: AgentError) -> AgentError {
        let members = [(WINDOW, self.window), (PROMPT, self.prompt)];
        members.into_iter().fold(error, |error, (name, size)| match size {
            Some(size) => error.with_member(name, size),
            None => error,
        })
    }
}
