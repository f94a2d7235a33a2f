//! A turn that is not sent, with everything that went into it.
//!
//! [`preview_turn`](crate::preview::preview_turn) makes it by the very code that makes a run's request. The payload is
//! the request's shown form, to the byte, so its text has the hash that stands beside it, and that a run announces
//! in `agent.prompt`: who holds the two side by side knows that what was shown was sent.
//!
//! Nothing is copied before the answer is written. There, the texts are copied as the prompt's parts keep them,
//! escaped, and the payload as it is: the whole costs little more than the bytes that it has.

use std::sync::Arc;

use serde::Serialize;

use crate::context::PageLayer;
use crate::payload::{MASKED, Payload, PayloadBuilder};
use crate::prompt::{
    Fragment, ManifestPart, Part, PartHash, Prompt, PromptTokens, Trimmed, first_changed_part,
};
use crate::request::{Principal, TurnRequest};
use crate::select::SelectionReport;
use crate::tool::{ExecutionContext, ToolSpec};
use crate::turn::{Platform, PreparedTurn, TurnError, prepare_turn, whose};

/// What a turn would send, and how it came to be. [`to_json`](Self::to_json) is the answer of the preview routes.
#[derive(Debug, Clone)]
pub struct Preview {
    prompt: Arc<Prompt>,
    payload: Payload,
    /// The system prompt's parts, in order.
    pub system_prompt_parts: Vec<PreviewPart>,
    /// The parts of what stands in front of the person's words in the latest message, in order.
    pub combined_context_parts: Vec<PreviewPart>,
    /// For whom and about what the tools would work; thread and run are `***`, as in the payload.
    pub execution_context: ExecutionContext,
    /// Which backend would answer, and how each of the five rules came out.
    pub selection: SelectionReport,
    /// SHA-256 of the [payload](Self::payload), in lower-case hexadecimal.
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
#[derive(Debug, Clone)]
pub struct PreviewPart {
    /// Where it comes from, its size, its hash, and how long it stays the same.
    pub about: ManifestPart,
    /// The text.
    pub content: Arc<Part>,
}

/// What a provider's prompt cache can keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CachePreview {
    /// How much of the system prompt's beginning is the same for all turns of the agent, in bytes.
    pub stable_prefix_bytes: usize,
    /// The first part before the messages that is not what it was in the user's latest run with this agent: of the
    /// system prompt, or `tool:` and the name of a tool, in the order in which the request has them. Absent where
    /// nothing has changed, and where there has been no such run in this process.
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
    /// Shows a turn beside the [prefix](Prompt::prefix_hashes) of the latest one, where there was one.
    pub fn of(prepared: &PreparedTurn, latest: Option<&[PartHash]>) -> Self {
        let turn = &prepared.request.turn;
        let prompt = Arc::clone(&turn.prompt);
        let payload = prepared.request.payload.clone();
        let manifest = prompt.manifest();
        let changed = |latest| {
            let prefix = prompt.prefix_hashes(payload.sections());
            first_changed_part(latest, &prefix).map(str::to_owned)
        };
        let cache = CachePreview {
            stable_prefix_bytes: manifest.stable_prefix_bytes,
            first_changed_part: latest.and_then(changed),
        };
        let budget = BudgetPreview {
            max_prompt_tokens: prepared.budget.max_prompt_tokens,
            prompt_tokens: manifest.tokens.total(),
            tokens: manifest.tokens,
            token_counter: manifest.token_counter,
            messages: manifest.messages,
        };
        let fragments = prompt.system_fragments().iter().chain(prompt.turn_fragments());
        let with_text = |(about, fragment): (ManifestPart, &Fragment)| PreviewPart {
            about,
            content: Arc::clone(&fragment.part),
        };
        let mut system_prompt_parts: Vec<_> =
            manifest.parts.into_iter().zip(fragments).map(with_text).collect();
        let combined_context_parts = system_prompt_parts.split_off(prompt.system_fragments().len());
        Self {
            system_prompt_parts,
            combined_context_parts,
            execution_context: ExecutionContext {
                thread_id: MASKED.to_owned(),
                run_id: MASKED.to_owned(),
                ..turn.context.clone()
            },
            selection: prepared.selection.report(),
            request_sha256: payload.sha256(),
            tools: Arc::clone(&turn.tools),
            cache,
            budget,
            trimmed: manifest.trimmed,
            prompt,
            payload,
        }
    }

    /// The whole system prompt: the contents of its parts, an empty line between any two.
    pub fn final_system_prompt(&self) -> String {
        self.prompt.system_text()
    }

    /// The request as it would be sent, with `***` for secrets, run tokens, thread and run: the very bytes that the
    /// hash is of.
    pub fn payload(&self) -> Vec<u8> {
        self.payload.shown()
    }

    /// The answer of the preview routes, one JSON object. The payload stands in it byte by byte, or as a string where
    /// a backend sends something else than JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let prompt = &*self.prompt;
        let texts = 2 * (prompt.system_len() + prompt.text_len());
        let mut out = Payload::builder(texts + self.payload.bytes().len() + ABOUT_BYTES * self.parts());
        out.raw(r#"{"finalSystemPrompt":"#);
        prompt.push_system_json(out.buffer());
        out.raw(r#","systemPromptParts":"#);
        push_parts(&self.system_prompt_parts, &mut out);
        for (name, id) in [("blocksContext", PageLayer::BLOCKS), ("pageContext", PageLayer::PAGE)] {
            let part = self.combined_context_parts.iter().find(|part| *part.about.id == *id);
            if let Some(PreviewPart { content, .. }) = part {
                out.raw(",").json(&name).raw(r#":""#).raw(content.json()).raw(r#"""#);
            }
        }
        if !self.combined_context_parts.is_empty() {
            out.raw(r#","combinedContext":""#);
            prompt.push_turn_json(out.buffer());
            out.raw(r#"","combinedContextParts":"#);
            push_parts(&self.combined_context_parts, &mut out);
        }
        out.raw(r#","executionContext":"#).json(&self.execution_context);
        out.raw(r#","selection":"#).json(&self.selection);
        out.raw(r#","payload":"#);
        self.payload.push_shown_json(out.buffer());
        out.raw(r#","requestSha256":"#).json(&self.request_sha256);
        out.raw(r#","tools":"#).json(&self.tools).raw(r#","cache":"#).json(&self.cache);
        out.raw(r#","budget":"#).json(&self.budget);
        out.raw(r#","trimmed":"#).json(&self.trimmed).raw("}");
        out.into_bytes()
    }

    fn parts(&self) -> usize {
        self.system_prompt_parts.len() + self.combined_context_parts.len()
    }
}

/// Shows what a turn would send, beside what the same user's latest run with the agent in this process has sent.
/// Nothing is sent, and nothing is remembered.
///
/// # Errors
/// As [`run_turn`](crate::turn::run_turn), short of what only the backend can say.
pub async fn preview_turn(
    platform: &Platform,
    principal: &Principal,
    request: TurnRequest,
) -> Result<Preview, TurnError> {
    let prepared = prepare_turn(platform, principal, request).await?;
    let latest = platform.latest.get(&whose(&prepared.request.turn.context));
    Ok(Preview::of(&prepared, latest.as_deref()))
}

/// What a part takes in the answer beside its text.
const ABOUT_BYTES: usize = 256;

fn push_parts(parts: &[PreviewPart], out: &mut PayloadBuilder) {
    for (i, PreviewPart { about, content }) in parts.iter().enumerate() {
        out.raw(if i == 0 { "[" } else { "," }).json(about);
        // The text goes in before the object's end.
        out.buffer().pop();
        out.raw(r#","content":""#).raw(content.json()).raw(r#""}"#);
    }
    out.raw(if parts.is_empty() { "[]" } else { "]" });
}
