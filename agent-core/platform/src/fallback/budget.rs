//! Budgets of prompts that the first entry of a container cannot take: [`FallbackBudget`].

use std::sync::Arc;

use agent_core::budget::TokenBudget;
use agent_core::context::TurnInput;
use agent_core::error::AgentError;
use agent_core::message::Role;
use agent_core::prompt::{AssemblyInput, Fragment, PromptMessage, RETRIEVAL_SOURCE, Stability};
use agent_core::role::RagPlacement;
use agent_core::select::{BackendChoice, select_backend};
use agent_core::turn::HistoryStep;
use async_trait::async_trait;

use crate::compaction_settings::{CompactionMode, CompactionSettings};

/// Tokens of the tags around a turn's context, at most.
const CONTEXT_TAG_TOKENS: usize = 16;
/// Tokens that surround a message or a tool call, at most.
const OVERHEAD_TOKENS: usize = 16;
/// Maximum number of tokens for a byte of text, by any counter.
const MAX_TOKENS_PER_BYTE: usize = 2;

/// Limits on the prompts of the fallbacks of containers.
pub trait FallbackLimits: Send + Sync + 'static {
    /// Returns the limit of the fallback with the largest one, in tokens; `None` if the container has no fallback.
    fn max_prompt_tokens(&self, choice: &BackendChoice) -> Option<usize>;
}

/// A [`HistoryStep`] for prompts that do not fit the first entry: it raises the budget to that of the fallback with the largest
/// window, before another step shortens the history. A prompt is assembled for the first entry otherwise.
pub struct FallbackBudget<H> {
    step: H,
    limits: Vec<Arc<dyn FallbackLimits>>,
}

impl<H> std::fmt::Debug for FallbackBudget<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FallbackBudget").finish_non_exhaustive()
    }
}

impl<H: HistoryStep> FallbackBudget<H> {
    /// Wraps a step. `limits` are those of the backends whose containers have fallbacks.
    pub fn new(step: H, limits: impl IntoIterator<Item = Arc<dyn FallbackLimits>>) -> Self {
        Self { step, limits: limits.into_iter().collect() }
    }

    /// Raises the budget of a prompt whose mandatory parts exceed it.
    fn raise(&self, turn: &TurnInput, assembly: &mut AssemblyInput<'_>) {
        if !exceeds_budget(turn, assembly) {
            return;
        }
        let own = assembly.budget.max_prompt_tokens;
        let Some(choice) = select_backend(&turn.role).choice else { return };
        let largest = self.limits.iter().filter_map(|limits| limits.max_prompt_tokens(&choice)).max();
        // The format of the answer takes the same part of each window.
        let reserved = turn.max_prompt_tokens.saturating_sub(own);
        let max_prompt_tokens = largest.unwrap_or(0).saturating_sub(reserved);
        if max_prompt_tokens > own {
            assembly.budget = TokenBudget { max_prompt_tokens };
        }
    }
}

#[async_trait]
impl<H: HistoryStep> HistoryStep for FallbackBudget<H> {
    async fn apply(&self, turn: &TurnInput, assembly: &mut AssemblyInput<'_>) -> Result<(), AgentError> {
        self.raise(turn, assembly);
        self.step.apply(turn, assembly).await
    }
}

/// Returns true if the mandatory parts of the prompt exceed the budget. Most prompts are shorter than it in bytes, and not counted here.
fn exceeds_budget(turn: &TurnInput, assembly: &AssemblyInput<'_>) -> bool {
    let (limit, counter) = (assembly.budget.max_prompt_tokens, &*assembly.counter);
    let tools = assembly.cache.tool_tokens(assembly.tools, counter) + CONTEXT_TAG_TOKENS;
    let messages = needed_messages(turn, &assembly.history);
    let parts = || needed_fragments(assembly).map(|fragment| &fragment.part);
    let has_media = messages.iter().any(|message| message.original().content.has_media());
    let bytes = parts().map(|part| part.text().len()).sum::<usize>()
        + messages.iter().map(|message| message_bytes(message)).sum::<usize>();
    if !has_media && bytes.saturating_mul(MAX_TOKENS_PER_BYTE).saturating_add(tools) <= limit {
        return false;
    }
    let tokens = parts().map(|part| part.tokens(counter)).sum::<usize>()
        + messages.iter().map(|message| message.tokens(counter)).sum::<usize>();
    tokens + tools > limit
}

/// Returns the fragments that the prompt has. A turn that an earlier run has begun keeps the context of that run, in place of the
/// fragments of its latest message.
fn needed_fragments<'a>(assembly: &'a AssemblyInput<'_>) -> impl Iterator<Item = &'a Fragment> {
    let latest = assembly.history.iter().rfind(|message| message.role() == Role::User);
    let keeps_context = latest.is_some_and(|latest| !latest.context().is_empty());
    let retrieval = assembly.retrieval.unwrap_or_default();
    let is_in_system = move |fragment: &Fragment| {
        fragment.stability != Stability::Turn
            || (fragment.source == RETRIEVAL_SOURCE && retrieval == RagPlacement::SystemPrompt)
    };
    assembly.fragments.iter().filter(move |fragment| !keeps_context || is_in_system(fragment))
}

/// Returns the messages that are never left out: the latest turn, and instructions before it; the whole history if the role does
/// not let it be shortened.
fn needed_messages<'a>(turn: &TurnInput, history: &'a [Arc<PromptMessage>]) -> Vec<&'a PromptMessage> {
    let latest = match CompactionSettings::of(&turn.role.content).mode {
        Some(CompactionMode::Off) => 0,
        _ => history.iter().rposition(|message| message.role() == Role::User).unwrap_or(history.len()),
    };
    let (earlier, latest) = history.split_at(latest);
    let is_instruction =
        |message: &&Arc<PromptMessage>| matches!(message.role(), Role::System | Role::Developer);
    earlier.iter().filter(is_instruction).chain(latest).map(|message| &**message).collect()
}

/// Returns the bytes of a message without media, and as many more as it has tokens of overhead.
fn message_bytes(message: &PromptMessage) -> usize {
    let calls = message.original().tool_calls.iter();
    let calls = calls.map(|call| call.function.name.len() + call.function.arguments.len() + OVERHEAD_TOKENS);
    message.text_len() + calls.sum::<usize>() + OVERHEAD_TOKENS
}
