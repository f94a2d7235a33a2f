//! Estimates of the tokens of requests, from which windows are learned and budgets reserved.

use std::sync::Arc;

use agent_core::model::ModelRequest;
use agent_core::prompt::PromptTokens;
use agent_core::tool::ToolSpec;
use agent_platform::messages_model::ClaudeTokenizer;

/// Tokenizers whose counts are estimated from the counts of `o200k_base`.
const ESTIMATED: [ClaudeTokenizer; 2] = [ClaudeTokenizer::Earlier, ClaudeTokenizer::Present];

/// Estimates the tokens of a request to a model without a tokenizer of Anthropic, with `offered` tools.
pub(super) fn request_tokens(request: &ModelRequest, offered: &[Arc<ToolSpec>]) -> usize {
    let (counted, added) = counted_and_added(request, offered);
    base_tokens(request, counted) + added
}

/// Returns the counted tokens of a request's prompt, and the estimated tokens of the messages that the run has added.
pub(super) fn counted_and_added(request: &ModelRequest, offered: &[Arc<ToolSpec>]) -> (usize, usize) {
    let PromptTokens { system, tools, messages } = request.prompt.tokens();
    // A prompt that was assembled elsewhere has not counted the tools.
    let uncounted = if tools == 0 { offered } else { &[] };
    let added = request.estimated_tokens(uncounted).saturating_sub(system + messages);
    (system + tools + messages, added)
}

/// Returns the tokens by `o200k_base` of a text that has `counted` tokens by the counter of the request's prompt. The prompt
/// of a fallback was counted for the first model, whose tokenizer may be one of Anthropic's.
pub(super) fn base_tokens(request: &ModelRequest, counted: usize) -> usize {
    let counter = request.prompt.counter().id();
    let tokenizer = ESTIMATED.into_iter().find(|tokenizer| tokenizer.counter_name() == counter);
    tokenizer.map_or(counted, |tokenizer| counted * 100 / tokenizer.estimate(100))
}
