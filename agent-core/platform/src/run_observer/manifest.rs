//! Manifest of a run's prompt.

use std::sync::Arc;

use agent_core::budget::TokenCounter;
use agent_core::payload::PromptSection;
use agent_core::prompt::PartHash;
use agent_core::tool::ToolSpec;
use agent_core::turn::{PrefixReuse, PreparedTurn};
use quick_cache::sync::Cache;

use crate::conversation::{PromptCacheLine, RunPrompt, RunPromptPart, RunPromptTool};
use crate::preview::{Manifest, ManifestPart};

/// Maximum number of tools whose token counts are cached. Least used ones are evicted.
const MAX_CACHED_TOOLS: usize = 4_096;

/// Cache of the token counts of tools' definitions, by their hash and the counter's name.
pub(super) struct ToolTokens(Cache<(Arc<str>, &'static str), usize>);

impl Default for ToolTokens {
    fn default() -> Self {
        Self(Cache::new(MAX_CACHED_TOOLS))
    }
}

impl ToolTokens {
    fn count(&self, tool: &ToolSpec, sha256: &Arc<str>, counter: &dyn TokenCounter) -> usize {
        let key = (sha256.clone(), counter.id());
        if let Some(tokens) = self.0.get(&key) {
            return tokens;
        }
        let texts = [&tool.name, &tool.description, tool.input_schema.get()];
        let tokens = texts.into_iter().map(|text| counter.count(text)).sum();
        self.0.insert(key, tokens);
        tokens
    }
}

/// Returns the manifest of a prompt, and the part of it that was sent before.
pub(super) fn run_prompt(
    prepared: &PreparedTurn,
    reuse: Option<&PrefixReuse>,
    counter: &dyn TokenCounter,
    tool_tokens: &ToolTokens,
) -> RunPrompt {
    let (payload, turn) = (&prepared.request.payload, &prepared.request.turn);
    let manifest = Manifest::new(&turn.prompt);
    let hashes = turn.prompt.prefix_hashes(&[PromptSection::Tools]);
    let tool = |(tool, PartHash { sha256, .. }): (&Arc<ToolSpec>, &PartHash)| RunPromptTool {
        name: tool.name.clone(),
        sha256: sha256.to_string(),
        tokens: tool_tokens.count(tool, sha256, counter),
    };
    let Manifest { parts, stable_prefix_bytes, messages, tokens, token_counter, trimmed, .. } = manifest;
    RunPrompt {
        request_sha256: payload.sha256(),
        backend: turn.choice.kind(),
        parts: parts.into_iter().map(part).collect(),
        tools: turn.tools.iter().zip(&hashes).map(tool).collect(),
        messages,
        tokens,
        token_counter: token_counter.to_owned(),
        trimmed_messages: trimmed.iter().map(|trimmed| trimmed.messages).sum(),
        cache: PromptCacheLine {
            stable_prefix_bytes,
            reusable_share: reuse.map(|reuse| reuse.reusable_share),
            first_changed_part: reuse.and_then(|reuse| reuse.first_changed_part.clone()),
            previous_run_id: reuse.map(|reuse| reuse.previous_run_id.clone()),
        },
    }
}

fn part(part: ManifestPart) -> RunPromptPart {
    let ManifestPart { id, source, stability, placement, tokens, bytes, sha256, .. } = part;
    RunPromptPart {
        id: id.to_string(),
        source: source.to_owned(),
        stability,
        placement,
        tokens,
        bytes,
        sha256: sha256.to_string(),
        content: None,
    }
}
