//! Preview of a turn, which is prepared by the code of a run and not sent. The payload is the redacted request to the byte,
//! so its hash is the one that a run with the same inputs announces in `agent.prompt`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use agent_core::payload::{Payload, REDACTED};
use agent_core::prompt::{Fragment, LayerReport, Part, PromptTokens, TrimmedHistory};
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::RoleBlock;
use agent_core::tool::{ExecutionContext, ToolSpec};
use agent_core::turn::{Platform, PrefixReuse, PreparedTurn, TurnError, prepare_turn};

mod first_change;
mod manifest;
mod selection;
mod sent_prompts;

pub use manifest::{Manifest, ManifestPart, PartPlacement};
pub use selection::SelectionReport;
pub use sent_prompts::LatestPrompts;

use crate::approval_floor::{ApprovalFloor, RequiredApproval};
use crate::fallback::{AttemptPreview, prepared_prompt_limit, preview_attempts};
use crate::layers::{BLOCKS_FRAGMENT_ID, PAGE_FRAGMENT_ID};

/// A turn that would be sent, and its inputs: the response of the preview routes.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// The whole system prompt: its parts, separated by empty lines.
    pub final_system_prompt: String,
    /// The system prompt's parts, in order, then the parts that the backend sends separately.
    pub system_prompt_parts: Vec<PreviewPart>,
    /// The context part of the blocks around the chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_context: Option<String>,
    /// The context part of the client's page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_context: Option<String>,
    /// The whole context before the user's text in the latest message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combined_context: Option<String>,
    /// The context's parts, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub combined_context_parts: Vec<PreviewPart>,
    /// Identity and conversation of the tools; thread and run are `***`, as in the payload.
    pub execution_context: ExecutionContext,
    /// The selected backend, and the result of each of the five rules.
    pub selection: SelectionReport,
    /// The models or agent servers that the request may go to, in their order, if this platform repeats their calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptPreview>,
    #[serde(serialize_with = "serialize_payload")]
    payload: Payload,
    /// SHA-256 of the [payload](Self::payload), in lower-case hexadecimal.
    pub request_sha256: String,
    /// The tools that the agent may use in this turn, sorted by name.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// The tools among them whose calls wait for an approval, without those of the company's floor until it is
    /// [given](Self::with_approval_floor).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<RequiredApproval>,
    #[serde(skip)]
    role: Arc<RoleBlock>,
    /// Reusability of the provider's prompt cache.
    pub cache: CachePreview,
    /// Cost of the prompt, and its limit.
    pub budget: BudgetPreview,
    /// Parts removed to fit the budget, with the reason.
    pub trimmed: Vec<TrimmedHistory>,
    /// Reports of the context layers, such as `retrieval`.
    #[serde(flatten)]
    pub reports: BTreeMap<&'static str, Value>,
}

/// A part of the prompt with its text.
#[derive(Debug, Clone, Serialize)]
pub struct PreviewPart {
    /// Source, size, hash and stability of the part.
    #[serde(flatten)]
    pub manifest: ManifestPart,
    /// The text.
    #[serde(serialize_with = "serialize_text")]
    pub content: Arc<Part>,
}

/// Serializes the payload byte for byte, or as a string if the backend's request is not JSON.
fn serialize_payload<S: Serializer>(payload: &Payload, serializer: S) -> Result<S::Ok, S::Error> {
    payload.redacted_json().serialize(serializer)
}

fn serialize_text<S: Serializer>(part: &Part, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(part.text())
}

/// Reusability of the provider's prompt cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CachePreview {
    /// Bytes at the start of the system prompt that are the same for all turns of the agent.
    pub stable_prefix_bytes: usize,
    /// Comparison with the latest run of the thread, or else of the user with the agent; absent if this process has seen
    /// no such run.
    #[serde(flatten)]
    pub reuse: Option<PrefixReuse>,
}

/// Cost of a prompt, and its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetPreview {
    /// Limit on the prompt, in tokens: that of the agent's own model, or of the fallback for which a longer prompt is assembled.
    pub max_prompt_tokens: usize,
    /// Cost of the prompt, in tokens.
    pub prompt_tokens: usize,
    /// Cost by kind of content.
    pub tokens: PromptTokens,
    /// Name of the token counter.
    pub token_counter: &'static str,
    /// Number of messages sent, the latest turn included.
    pub messages: usize,
}

impl Preview {
    /// Creates the preview of a turn, with the comparison of its prompt with an earlier one, if any.
    pub fn new(prepared: &PreparedTurn, reuse: Option<PrefixReuse>) -> Self {
        let turn = &prepared.request.turn;
        let prompt = Arc::clone(&turn.prompt);
        let payload = prepared.request.payload.clone();
        let manifest = Manifest::new(&prompt);
        let cache = CachePreview { stable_prefix_bytes: manifest.stable_prefix_bytes, reuse };
        let (own_limit, prompt_tokens) =
            (prepared.capabilities.budget.max_prompt_tokens, manifest.tokens.total());
        // A prompt that exceeds it is assembled for a fallback.
        let limit_of_fallback =
            if prompt_tokens > own_limit { prepared_prompt_limit(&payload) } else { None };
        let budget = BudgetPreview {
            max_prompt_tokens: limit_of_fallback.unwrap_or(own_limit),
            prompt_tokens,
            tokens: manifest.tokens,
            token_counter: manifest.token_counter,
            messages: manifest.messages,
        };
        let system = prompt.system_fragments().iter().chain(prompt.detached_fragments());
        let fragments = system.chain(prompt.turn_fragments());
        let with_text = |(about, fragment): (ManifestPart, &Fragment)| PreviewPart {
            manifest: about,
            content: Arc::clone(&fragment.part),
        };
        let mut system_prompt_parts: Vec<_> =
            manifest.parts.into_iter().zip(fragments).map(with_text).collect();
        let combined_context_parts =
            system_prompt_parts.split_off(system_prompt_parts.len() - prompt.turn_fragments().len());
        let part = |id: &str| combined_context_parts.iter().find(|part| *part.manifest.id == *id);
        let context_part = |id: &str| part(id).map(|part| part.content.text().to_owned());
        let preview = Self {
            final_system_prompt: prompt.system_text(),
            system_prompt_parts,
            blocks_context: context_part(BLOCKS_FRAGMENT_ID),
            page_context: context_part(PAGE_FRAGMENT_ID),
            combined_context: (!combined_context_parts.is_empty()).then(|| prompt.turn_text()),
            combined_context_parts,
            execution_context: ExecutionContext {
                thread_id: REDACTED.into(),
                run_id: REDACTED.into(),
                ..turn.context.clone()
            },
            selection: SelectionReport::from(&prepared.selection),
            attempts: preview_attempts(&payload, false),
            request_sha256: payload.sha256(),
            tools: Arc::clone(&turn.tools),
            approvals: Vec::new(),
            role: Arc::clone(&turn.role),
            cache,
            budget,
            trimmed: manifest.trimmed,
            reports: prompt.reports().map(LayerReport::preview).collect(),
            payload,
        };
        preview.with_approval_floor(&ApprovalFloor::default())
    }

    /// Lists the approvals that the company's floor demands, too.
    pub fn with_approval_floor(self, floor: &ApprovalFloor) -> Self {
        // A client's tools are called by the client, which decides about them itself.
        let tools = self.tools.iter().map(|tool| &**tool).filter(|tool| !tool.is_client_side);
        Self { approvals: floor.required_approvals(&self.role.content.approvals, tools), ..self }
    }

    /// Adds the request of each model in [`attempts`](Self::attempts).
    pub fn with_attempt_payloads(self) -> Self {
        Self { attempts: preview_attempts(&self.payload, true), ..self }
    }

    /// Returns the shown form of the request, with `***` for secrets, run tokens, thread and run: the bytes over which
    /// [`request_sha256`](Self::request_sha256) is computed.
    pub fn payload(&self) -> Vec<u8> {
        self.payload.redacted()
    }
}

/// Shows the request that a turn would send, compared with the requests of runs. Nothing is sent, and nothing is remembered.
///
/// # Errors
/// Errors of [`run_turn`](agent_core::turn::run_turn), except for errors of the backend's response.
pub async fn preview_turn(
    platform: &Platform,
    principal: &Principal,
    request: TurnRequest,
) -> Result<Preview, TurnError> {
    let request = TurnRequest { is_preview: true, ..request };
    let prepared = prepare_turn(platform, principal, request).await?;
    let comparison = platform.compare_prompt(&prepared.request);
    Ok(Preview::new(&prepared, comparison.and_then(|comparison| comparison.reuse)))
}

#[cfg(test)]
mod tests {
    use agent_core::backend::EmbeddedBackend;
    use agent_core::context::RoleLayer;
    use agent_core::message::Message;
    use agent_core::role::{RoleBlock, StaticRoles};
    use agent_core::testing::ScriptedModel;
    use agent_core::tool::Caller;
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_preview_is_written_as_one_object_with_the_payload_as_it_is() {
        let role = json!({"id": "a", "companyId": "c", "content": {"systemPrompt": "\"Grüße\"\n", "rules": ["Be brief."]},
            "children": [{"name": "EmbeddedAI"}]});
        let role: RoleBlock = serde_json::from_value(role).expect("a role");
        let platform = Platform::new(Arc::new(StaticRoles::new().with_role(role)))
            .with_layer(RoleLayer::new(Arc::default()))
            .with_backend(EmbeddedBackend::new(Arc::new(ScriptedModel::repeating("Hi."))));
        let principal = Principal::new("ada", "c", Caller::Session);
        let request = TurnRequest::new("a", vec![Message::user("Hello")]);
        let preview = preview_turn(&platform, &principal, request).now_or_never().expect("no wait");
        let preview = preview.expect("a preview");
        let written = serde_json::to_string(&preview).expect("JSON");
        let answer: Value = serde_json::from_str(&written).expect("JSON");
        assert!(preview.final_system_prompt.starts_with("\"Grüße\""), "{}", preview.final_system_prompt);
        assert_eq!(answer["finalSystemPrompt"], json!(preview.final_system_prompt));
        assert_eq!(answer["systemPromptParts"][0]["stability"], "role");
        let payload = String::from_utf8(preview.payload()).expect("UTF-8");
        let expected = format!(r#","payload":{payload},"requestSha256":"{}","#, preview.request_sha256);
        assert!(written.contains(&expected), "{written}");
        assert_eq!(answer["tools"].as_array().map(Vec::len), Some(preview.tools.len()));
        assert!(answer.get("approvals").is_none() && answer.get("role").is_none(), "{written}");
        assert_eq!((&answer["trimmed"], &answer["executionContext"]["runId"]), (&json!([]), &json!("***")));
    }
}
