//! Assembly of a turn's prompt. Pure: the same input gives the same prompt.

use std::sync::Arc;

use super::cache::PartCache;
use super::message::PromptMessage;
use super::tokens::{PromptTokens, TrimReason, TrimmedHistory};
use super::{Prompt, STABLE_PREFIX_LIMIT};
use crate::budget::{self, HistoryEntry, TokenBudget, TokenCounter};
use crate::error::{AgentError, AgentErrorKind};
use crate::message::{Message, Role};
use crate::prompt::{Fragment, LayerReport, Stability};
use crate::role::RagPlacement;
use crate::tool::ToolSpec;

/// The `source` of retrieved fragments, of stability [`Turn`](Stability::Turn); [`AssemblyInput::retrieval`] places them.
pub const RETRIEVAL_SOURCE: &str = "retrieval";

/// Input of [`assemble`].
pub struct AssemblyInput<'a> {
    /// Fragments of the context layers, in layer order.
    pub fragments: Vec<Fragment>,
    /// The conversation, oldest message first, including the latest user message. Each tool call has its result.
    pub history: Vec<Arc<PromptMessage>>,
    /// The tools offered to the model. Their definitions count against the budget.
    pub tools: &'a [Arc<ToolSpec>],
    /// Token budget of the prompt.
    pub budget: TokenBudget,
    /// Counter of the tokens.
    pub counter: Arc<dyn TokenCounter>,
    /// Placement of the fragments with source [`RETRIEVAL_SOURCE`]; `None` if the backend sends them apart.
    pub retrieval: Option<RagPlacement>,
    /// Cache of joined texts across turns. It affects the time taken, never the result.
    pub cache: &'a PartCache,
    /// Account of how the history was shortened.
    pub history_report: Option<Arc<dyn LayerReport>>,
}

/// Error of [`assemble`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// The parts of the prompt that are never trimmed exceed the budget.
    #[error(
        "the prompt exceeds the model's context window: it needs {needed} tokens without any history (system prompt {system}, tools {tools}, latest turn {latest_turn}); {budget} are available"
    )]
    OverBudget {
        /// Available tokens.
        budget: usize,
        /// Needed tokens.
        needed: usize,
        /// Tokens of the system prompt.
        system: usize,
        /// Tokens of the tools' definitions.
        tools: usize,
        /// Tokens of the latest turn and of instruction messages in the history.
        latest_turn: usize,
    },
}

impl From<AssembleError> for AgentError {
    fn from(error: AssembleError) -> Self {
        Self::new(AgentErrorKind::InvalidRequest, error.to_string()).with_source(error)
    }
}

/// Assembles a prompt: stable fragments first, those of the turn in the latest user message, and the history that fits.
///
/// # Errors
/// [`AssembleError::OverBudget`] if system prompt, tools and latest turn, which are never trimmed, exceed the budget.
pub fn assemble(input: AssemblyInput<'_>) -> Result<Prompt, AssembleError> {
    let AssemblyInput { fragments, mut history, tools, budget, counter, retrieval, cache, history_report } =
        input;
    let (system, turn) = split_by_placement(fragments, retrieval.unwrap_or_default());
    let is_detached = |fragment: &&Fragment| retrieval.is_none() && fragment.source == RETRIEVAL_SOURCE;
    let detached = system.iter().filter(is_detached).count();
    let latest = insert_turn_context(&mut history, turn);

    let stable_fragments = system.partition_point(|fragment| fragment.stability <= STABLE_PREFIX_LIMIT);
    let stable = cache.segment(&system[..stable_fragments]);
    let volatile = system[stable_fragments..].iter();
    let system_tokens =
        stable.tokens(&*counter) + volatile.map(|fragment| fragment.part.tokens(&*counter)).sum::<usize>();
    let tools = (!tools.is_empty()).then(|| cache.tool_set(tools));
    let tool_tokens = tools.as_ref().map_or(0, |tools| tools.tokens(&*counter));
    let message_tokens = history.iter().map(|message| message.tokens(&*counter)).sum();
    let mut tokens = PromptTokens { system: system_tokens, tools: tool_tokens, messages: message_tokens };

    let mut trimmed = Vec::new();
    if tokens.total() > budget.max_prompt_tokens {
        let step = budget::trim_step_tokens(budget.max_prompt_tokens, stable.tokens(&*counter) + tool_tokens);
        trimmed.push(trim_history(&mut history, latest, &mut tokens, budget, step, &*counter)?);
    }
    Ok(Prompt {
        system,
        detached,
        stable_fragments,
        stable,
        tools,
        messages: history,
        counter,
        tokens,
        trimmed,
        history_report,
    })
}

/// Orders the fragments and splits them into fragments of the system prompt and of the latest turn.
fn split_by_placement(
    mut fragments: Vec<Fragment>,
    retrieval: RagPlacement,
) -> (Vec<Fragment>, Vec<Fragment>) {
    const LATEST_TURN: u8 = 4;
    let rank = |fragment: &Fragment| match fragment.stability {
        Stability::Role => 0,
        Stability::Agent => 1,
        Stability::Session => 2,
        Stability::Turn if retrieval == RagPlacement::SystemPrompt && fragment.source == RETRIEVAL_SOURCE => {
            3
        }
        Stability::Turn => LATEST_TURN,
    };
    fragments.sort_by_key(rank);
    let system = fragments.partition_point(|fragment| rank(fragment) < LATEST_TURN);
    let turn = fragments.split_off(system);
    (fragments, turn)
}

/// Puts the turn's fragments into the latest user message, unless it keeps the context of an earlier run of the turn, or
/// into a new one at the end if there is none. Returns the index at which the latest turn begins, which is never trimmed.
fn insert_turn_context(history: &mut Vec<Arc<PromptMessage>>, turn: Vec<Fragment>) -> usize {
    let latest = history.iter().rposition(|message| message.role() == Role::User);
    match latest {
        _ if turn.is_empty() => {
            let begins = || history.iter().rposition(|message| message.role() != Role::Tool);
            latest.or_else(begins).unwrap_or(0)
        }
        Some(latest) => {
            if history[latest].context().is_empty() {
                history[latest] = PromptMessage::with_context(Arc::clone(&history[latest]), turn);
            }
            latest
        }
        None => {
            let empty = PromptMessage::new(Message::user(""));
            history.push(PromptMessage::with_context(empty, turn));
            history.len() - 1
        }
    }
}

/// Trims the history before `latest` so that the prompt fits the budget.
fn trim_history(
    history: &mut Vec<Arc<PromptMessage>>,
    latest: usize,
    tokens: &mut PromptTokens,
    budget: TokenBudget,
    step: usize,
    counter: &dyn TokenCounter,
) -> Result<TrimmedHistory, AssembleError> {
    let entry =
        |message: &Arc<PromptMessage>| HistoryEntry { role: message.role(), tokens: message.tokens(counter) };
    let entries: Vec<HistoryEntry> = history[..latest].iter().map(entry).collect();
    let excess = tokens.total() - budget.max_prompt_tokens;
    let cut = budget::find_trim(&entries, excess, step);
    tokens.messages -= cut.removed_tokens;
    if cut.removed_tokens < excess {
        return Err(AssembleError::OverBudget {
            budget: budget.max_prompt_tokens,
            needed: tokens.total(),
            system: tokens.system,
            tools: tokens.tools,
            latest_turn: tokens.messages,
        });
    }
    let remaining = history.split_off(cut.first_kept);
    history.retain(|message| matches!(message.role(), Role::System | Role::Developer));
    history.extend(remaining);
    Ok(TrimmedHistory {
        messages: cut.removed_messages,
        tokens: cut.removed_tokens,
        reason: TrimReason::TokenBudget,
    })
}
