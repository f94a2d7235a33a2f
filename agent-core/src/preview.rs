//! A turn that is not sent, with everything that went into it.
//!
//! [`preview_turn`](crate::turn::preview_turn) makes it by the very code that makes a run's request. The payload is
//! the request's shown form, to the byte, so its text has the hash that stands beside it, and that a run announces
//! in `agent.prompt`: who holds the two side by side knows that what was shown was sent.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::context::{Fragment, PageLayer};
use crate::payload::{MASKED, Payload};
use crate::prompt::{ManifestPart, PartHash, Prompt, PromptTokens, Trimmed, first_changed_part};
use crate::select::SelectionReport;
use crate::tool::{ExecutionContext, ToolSpec};
use crate::turn::PreparedTurn;

/// What a turn would send, and how it came to be. It serialises to the answer of the preview routes.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// The whole system prompt: the contents of its parts, an empty line between any two.
    pub final_system_prompt: String,
    /// The system prompt's parts, in order.
    pub system_prompt_parts: Vec<PreviewPart>,
    /// Related blocks around the chat, as the model reads them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_context: Option<String>,
    /// The page around the chat, as the model reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_context: Option<String>,
    /// All that stands in front of the person's words in the latest message, between `<context>` and `</context>`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub combined_context: String,
    /// Its parts, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub combined_context_parts: Vec<PreviewPart>,
    /// For whom and about what the tools would work; thread and run are `***`, as in the payload.
    pub execution_context: ExecutionContext,
    /// Which backend would answer, and how each of the five rules came out.
    pub selection: SelectionReport,
    /// The request as it would be sent, with `***` for secrets, run tokens, thread and run. Its text is the very one
    /// that the hash is of.
    pub payload: Box<RawValue>,
    /// SHA-256 of that text, in lower-case hexadecimal.
    pub request_sha256: String,
    /// The tools that the agent may use here, sorted by name.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// What a provider's prompt cache can keep.
    pub cache: CachePreview,
    /// What the prompt costs, and what it may.
    pub budget: BudgetPreview,
    /// What was left out to fit the budget, and why.
    pub trimmed: Vec<Trimmed>,
}

/// A part of the prompt with its text.
#[derive(Debug, Clone, Serialize)]
pub struct PreviewPart {
    /// Where it comes from, its size, its hash, and how long it stays the same.
    #[serde(flatten)]
    pub about: ManifestPart,
    /// The text.
    pub content: String,
}

/// What a provider's prompt cache can keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CachePreview {
    /// How much of the system prompt's beginning is the same for all turns of the agent, in bytes.
    pub stable_prefix_bytes: usize,
    /// The first part of the system prompt that is not what it was in the user's latest run with this agent. Absent
    /// where nothing has changed, and where there has been no such run in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_changed_part: Option<String>,
}

/// What a prompt costs, and what it may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetPreview {
    /// What it may cost, in tokens.
    pub max_prompt_tokens: usize,
    /// What it costs, in tokens.
    pub prompt_tokens: usize,
    /// Where they go.
    pub tokens: PromptTokens,
    /// The name of the counter that counted them.
    pub token_counter: &'static str,
    /// The messages that are sent, the latest turn included.
    pub messages: usize,
}

impl Preview {
    /// Shows a turn beside the parts of the latest prompt before it, if one is known.
    pub fn of(prepared: &PreparedTurn, latest: Option<&[PartHash]>) -> Self {
        let turn = &prepared.request.turn;
        let prompt = &turn.prompt;
        let manifest = prompt.manifest();
        let first_changed_part =
            latest.and_then(|latest| first_changed_part(latest, &manifest)).map(str::to_owned);
        let cache = CachePreview { stable_prefix_bytes: manifest.stable_prefix_bytes, first_changed_part };
        let budget = BudgetPreview {
            max_prompt_tokens: prepared.budget.max_prompt_tokens,
            prompt_tokens: manifest.tokens.total(),
            tokens: manifest.tokens,
            token_counter: manifest.token_counter,
            messages: manifest.messages,
        };
        let in_system = prompt.system_fragments().len();
        let fragments = prompt.system_fragments().iter().chain(prompt.turn_fragments());
        let with_text = |(about, fragment): (ManifestPart, &Fragment)| PreviewPart {
            about,
            content: fragment.part.text().to_owned(),
        };
        let mut system_prompt_parts: Vec<_> =
            manifest.parts.into_iter().zip(fragments).map(with_text).collect();
        let combined_context_parts = system_prompt_parts.split_off(in_system);
        let payload = &prepared.request.payload;
        Self {
            final_system_prompt: prompt.system_text(),
            system_prompt_parts,
            blocks_context: turn_part(prompt, PageLayer::BLOCKS),
            page_context: turn_part(prompt, PageLayer::PAGE),
            combined_context: prompt.turn_text(),
            combined_context_parts,
            execution_context: ExecutionContext {
                thread_id: MASKED.to_owned(),
                run_id: MASKED.to_owned(),
                ..turn.context.clone()
            },
            selection: prepared.selection.report(),
            payload: shown(payload),
            request_sha256: payload.sha256(),
            tools: turn.tools.clone(),
            cache,
            budget,
            trimmed: manifest.trimmed,
        }
    }
}

fn turn_part(prompt: &Prompt, id: &str) -> Option<String> {
    let part = prompt.turn_fragments().iter().find(|fragment| *fragment.id == *id)?;
    Some(part.part.text().to_owned())
}

/// The shown form as it is; as a string where a backend sends something else than JSON.
fn shown(payload: &Payload) -> Box<RawValue> {
    let text = String::from_utf8_lossy(&payload.shown()).into_owned();
    serde_json::from_str(&text)
        .unwrap_or_else(|_| to_raw_value(&text).expect("a string serialises into memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_shown_as_it_is_or_as_text() {
        let shown_of = |text: &str| {
            let mut builder = Payload::builder(32);
            builder.raw(text);
            shown(&builder.finish()).get().to_owned()
        };
        assert_eq!(shown_of(r#"{"b": 1.0,  "a":"\u00e4"}"#), r#"{"b": 1.0,  "a":"\u00e4"}"#);
        assert_eq!(shown_of("<s>\"hi\""), r#""<s>\"hi\"""#);
        assert_eq!(shown_of(""), r#""""#);
    }
}
