//! Request bodies of the Responses API. The order of their members is fixed, for the vendor's prompt cache.

use std::borrow::Cow;

use agent_core::error::AgentError;
use agent_core::message::Message;
use agent_core::model::ModelRequest;
use agent_core::payload::{PayloadBuilder, PromptSection};
use agent_core::tool::{ToolChoice, ToolSpec};
use agent_platform::content_notes::{ContentNotes, supported_request};
use agent_platform::parameters::ReasoningLevel;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::items::{is_supported, push_items};
use super::protocol::ResponsesProtocol;
use crate::models::answer_parts::ItemMaker;
use crate::models::names::wire_tool_name;
use crate::models::optional_member::OptionalMember;
use crate::models::response_format::push_responses;
use crate::models::sampling::{SEED, push_extra, push_sampling};
use crate::models::spec::ModelSpec;

/// Beginnings of the names of models that do not reason. Their server rejects requests for reasoning.
const MODELS_WITHOUT_REASONING: [&str; 4] = ["chatgpt-", "gpt-3.5", "gpt-4", "gpt-5-chat"];

/// Least limit on the answer that the API accepts, in tokens.
const MIN_OUTPUT_TOKENS: usize = 16;
/// Members in front of the limit on the answer.
const STREAM_MEMBERS: &str = r#","store":false,"stream":true"#;
/// Item of the input with the word without which the API refuses requests for a JSON object. It does not look for it in the
/// instructions, which describe the format.
const JSON_ITEM: &str = r#"{"type":"message","role":"developer","content":[{"type":"input_text","text":"The final answer is in JSON."}]}"#;
/// Name of the member that limits the answer, and its beginning.
const OUTPUT_LIMIT: &str = "max_output_tokens";
const LIMIT_MEMBER: &str = r#","max_output_tokens":"#;

/// Appends the body of a request.
///
/// # Errors
/// `UnsupportedContent` for content of the latest user message that has no form in the API.
pub(super) fn push_body(
    protocol: &ResponsesProtocol,
    request: &ModelRequest,
    body: &mut PayloadBuilder,
) -> Result<(), AgentError> {
    let refusal = "the model supports images only, not the other content that was sent";
    let supported = supported_request(request, refusal, is_supported)?;
    let request = &*supported;
    if matches!(supported, Cow::Owned(_)) {
        body.attach(ContentNotes);
    }
    body.raw(r#"{"model":"#).json(&protocol.model.name);
    push_instructions(protocol, request, body);
    push_tools(request, body);
    push_reasoning(protocol, request, body);
    body.raw(STREAM_MEMBERS);
    if protocol.sends_output_limit && !protocol.model.refuses(OUTPUT_LIMIT) {
        body.raw(LIMIT_MEMBER).output_limit(output_limit(protocol));
    }
    push_sampling(&protocol.model.parameters, SEED, body);
    push_extra(&protocol.model.parameters, body);
    push_responses(request, body);
    if let Some(key) = &protocol.prompt_cache_key {
        body.raw(r#","prompt_cache_key":"#).secret(key);
    }
    push_input(protocol, request, body);
    body.raw("}");
    Ok(())
}

fn output_limit(protocol: &ResponsesProtocol) -> usize {
    protocol.model.limits().max_output_tokens.max(MIN_OUTPUT_TOKENS)
}

/// Returns the member that limits the answer to the model's own limit. A limit that a budget has lowered gives a different
/// member, so that the budget is still enforced.
pub(super) fn limit_member(protocol: &ResponsesProtocol) -> OptionalMember {
    let text = format!("{LIMIT_MEMBER}{}", output_limit(protocol)).into();
    OptionalMember { name: OUTPUT_LIMIT, before: STREAM_MEMBERS, text }
}

fn push_instructions(protocol: &ResponsesProtocol, request: &ModelRequest, body: &mut PayloadBuilder) {
    if let Some(text) = &protocol.instructions {
        body.raw(r#","instructions":"#).json(text);
    } else if !request.prompt.system_is_empty() {
        body.section(PromptSection::System).raw(r#","instructions":"#);
        request.prompt.push_system_json(body.buffer());
    } else if let Some(text) = &protocol.default_instructions {
        body.raw(r#","instructions":"#).json(text);
    }
}

/// Appends the tools, all of them regardless of the choice, so that the choice does not change the prefix of the prompt.
fn push_tools(request: &ModelRequest, body: &mut PayloadBuilder) {
    if request.tools.is_empty() {
        return;
    }
    body.section(PromptSection::Tools);
    for (i, tool) in request.tools.iter().enumerate() {
        let ToolSpec { name, description, input_schema, .. } = &**tool;
        let name = wire_tool_name(name);
        // Without `strict`, the API would read the schema by the rules of its strict mode.
        let tool = FunctionTool {
            kind: "function",
            name: &name,
            description,
            parameters: input_schema,
            strict: false,
        };
        body.raw(if i == 0 { r#","tools":["# } else { "," }).json(&tool);
    }
    let choice = match &request.tool_choice {
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) if request.tools.iter().any(|tool| tool.name == *name) => {
            json!({"type": "function", "name": wire_tool_name(name)})
        }
        // A tool that is not offered cannot be called.
        ToolChoice::None | ToolChoice::Tool(_) => json!("none"),
        _ => json!("auto"),
    };
    body.raw(r#"],"tool_choice":"#).json(&choice).raw(r#","parallel_tool_calls":true"#);
}

/// Appends the request for reasoning and for its encrypted form. Switched on, the level is `medium`; switched off, it is
/// the lowest one that every model has, without a summary, or `none` if the parameters say so and the model has it.
fn push_reasoning(protocol: &ResponsesProtocol, request: &ModelRequest, body: &mut PayloadBuilder) {
    let (level, thinking) = (protocol.model.effort(), protocol.model.thinking(request));
    if level.is_none() && thinking != Some(true) && !reasons(&protocol.model.name) {
        return;
    }
    let switch = thinking.map(|thinking| if thinking { "medium" } else { off_level(&protocol.model) });
    let summary = (thinking != Some(false)).then_some("auto");
    body.raw(r#","reasoning":"#).json(&Reasoning { effort: level.or(switch), summary });
    body.raw(r#","include":["reasoning.encrypted_content"]"#);
}

/// Returns the level at which a model reasons whose reasoning is switched off.
fn off_level(model: &ModelSpec) -> &'static str {
    let known = model.known_levels();
    if model.parameters.reasoning == Some(ReasoningLevel::None) && known.contains(&ReasoningLevel::None) {
        return ReasoningLevel::None.as_str();
    }
    let lowest = known.into_iter().filter(|level| *level >= ReasoningLevel::Low).min();
    lowest.unwrap_or(ReasoningLevel::Low).as_str()
}

fn reasons(model: &str) -> bool {
    // Servers in front of several vendors prefix the vendor's name.
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    !MODELS_WITHOUT_REASONING.iter().any(|beginning| name.starts_with(beginning))
}

fn push_input(protocol: &ResponsesProtocol, request: &ModelRequest, body: &mut PayloadBuilder) {
    body.raw(r#","input":["#);
    let start = body.buffer().len();
    if protocol.instructions.is_some() && !request.prompt.system_is_empty() {
        body.section(PromptSection::System);
        body.raw(r#"{"type":"message","role":"developer","content":[{"type":"input_text","text":"#);
        request.prompt.push_system_json(body.buffer());
        body.raw("}]}");
    } else if request.response_format.as_ref().is_some_and(|format| format.schema.is_none()) {
        body.raw(JSON_ITEM);
    }
    let separate = |body: &mut PayloadBuilder| {
        if body.buffer().len() > start {
            body.raw(",");
        }
    };
    for message in request.prompt.messages() {
        separate(body);
        // Items that are the same for all models are encoded once.
        if message.original().provider_items.is_empty() {
            body.buffer().extend_from_slice(&message.derived(MessageItems::encode).0);
        } else {
            push_items(message.message(), protocol.maker(), body.buffer());
        }
    }
    for message in &request.appended_messages {
        separate(body);
        push_items(message, protocol.maker(), body.buffer());
    }
    body.raw("]");
}

/// Items of a message of the prompt without a provider's items, encoded once.
struct MessageItems(Box<[u8]>);

impl MessageItems {
    fn encode(message: &Message) -> Self {
        let mut json = Vec::new();
        push_items(message, ItemMaker::responses(""), &mut json);
        Self(json.into())
    }
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
    strict: bool,
}

#[derive(Serialize)]
struct Reasoning<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}
