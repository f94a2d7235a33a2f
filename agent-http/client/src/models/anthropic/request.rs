//! Request bodies of the Messages API. The order of the members is fixed, and the prompt's parts are in the order in which the
//! server caches them: tools, system prompt, messages.

use std::borrow::Cow;

use agent_core::error::AgentError;
use agent_core::model::ModelRequest;
use agent_core::payload::{Payload, PayloadBuilder, PromptSection};
use agent_core::tool::{ToolChoice, ToolSpec};
use agent_platform::content_notes::{ContentNotes, supported_request};
use agent_platform::messages_model::{MessagesModel, ThinkingForm};
use agent_platform::parameters::ModelParameters;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::RequestTraits;
use super::messages::{CACHE_BREAKPOINT, MessagesWriter, is_supported};
use super::thinking;
use crate::models::body::BODY_HEADROOM;
use crate::models::names::wire_tool_name;
use crate::models::prompt_tokens::{base_tokens, counted_and_added};
use crate::models::sampling;
use crate::models::spec::ModelSpec;

/// Maximum number of tools that are defined because the conversation has calls of them.
const MAX_CALLED_TOOLS: usize = 64;
/// Definition of such a tool behind its name.
const CALLED_TOOL: &str = r#","description":"Not available any more.","input_schema":{"type":"object"}}"#;
/// Members of a schema that the API does not take at its top.
const CHOICES: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Builds the body of a request.
///
/// # Errors
/// `UnsupportedContent` for content of the latest user message other than text, images and PDF documents.
pub(super) fn prepare(model: &ModelSpec, request: &ModelRequest) -> Result<Payload, AgentError> {
    let refusal = "the model supports GIF, JPEG, PNG and WebP images and PDF documents only, not the other content that was sent";
    let supported = supported_request(request, refusal, is_supported)?;
    let request = &*supported;
    let mut body = Payload::builder(request.prompt.text_len() * 9 / 8 + BODY_HEADROOM);
    body.raw(r#"{"model":"#).json(&model.name);
    body.raw(r#","stream":true"#);
    let thinking = thinking::push(model, request, &mut body);
    let max_output_tokens = model.limits().max_output_tokens;
    match thinking {
        // A lower limit could be below the budget of thinking, which the API rejects.
        ThinkingForm::Budget => body.raw(r#","max_tokens":"#).json(&max_output_tokens),
        _ => body.raw(r#","max_tokens":"#).output_limit(max_output_tokens),
    };
    push_parameters(&model.parameters, thinking != ThinkingForm::None, &mut body);
    push_tools(model, request, &mut body);
    push_system(request, &mut body);
    push_messages(&model.name, request, &mut body);
    body.raw("}");
    body.prompt_tokens(Some(prompt_tokens(model, request)));
    body.attach(RequestTraits::new(request));
    if matches!(supported, Cow::Owned(_)) {
        body.attach(ContentNotes);
    }
    Ok(body.finish())
}

/// Returns the tokens of a request: the counted tokens of its prompt and the estimated tokens of the messages that the run has
/// added. If the prompt was counted for a model with another tokenizer, the model's count is estimated from that count.
fn prompt_tokens(model: &ModelSpec, request: &ModelRequest) -> usize {
    let (counted, added) = counted_and_added(request, &request.tools);
    match MessagesModel::of(&model.name).tokenizer.filter(|_| model.counter().is_some()) {
        None => base_tokens(request, counted) + added,
        Some(tokenizer) if request.prompt.counter().id() == tokenizer.counter_name() => {
            counted + tokenizer.estimate(added)
        }
        Some(tokenizer) => tokenizer.estimate(base_tokens(request, counted) + added),
    }
}

/// Appends the parameters of the call. A model that thinks refuses to be sampled other than by its default.
fn push_parameters(parameters: &ModelParameters, thinks: bool, body: &mut PayloadBuilder) {
    if !thinks {
        sampling::push(body, "temperature", parameters.temperature.as_ref());
        sampling::push(body, "top_p", parameters.top_p.as_ref());
        sampling::push(body, "top_k", parameters.top_k);
    }
    let texts = Some(&parameters.stop_sequences).filter(|texts| !texts.is_empty());
    sampling::push(body, "stop_sequences", texts);
    sampling::push_extra(parameters, body);
}

/// Appends the tools, all of them regardless of the choice, so that the choice does not change the prefix of the prompt. The
/// last one has a breakpoint if no system prompt follows, whose breakpoints include the tools.
fn push_tools(model: &ModelSpec, request: &ModelRequest, body: &mut PayloadBuilder) {
    if request.tools.is_empty() {
        push_called_tools(request, body);
        return;
    }
    body.section(PromptSection::Tools);
    for (i, tool) in request.tools.iter().enumerate() {
        let ToolSpec { name, description, input_schema, .. } = &**tool;
        let plain = plain_schema(input_schema);
        let input_schema = plain.as_deref().unwrap_or(input_schema);
        let tool = WireTool { name: &wire_tool_name(name), description, input_schema };
        body.raw(if i == 0 { r#","tools":["# } else { "," }).json(&tool);
    }
    if request.prompt.system_is_empty() {
        let end = body.buffer().pop();
        debug_assert_eq!(end, Some(b'}'), "a tool is an object");
        body.raw(CACHE_BREAKPOINT).raw("}");
    }
    body.raw(r#"],"tool_choice":"#).json(&choice(&model.name, request));
}

/// Appends the tools that the conversation has called to a request that offers no tools; the model must not call them: servers of
/// the API refuse a conversation with calls if no tool is defined.
fn push_called_tools(request: &ModelRequest, body: &mut PayloadBuilder) {
    let prompt = request.prompt.messages().iter().map(|message| message.original());
    let calls = prompt.chain(&request.appended_messages).flat_map(|message| &message.tool_calls);
    let mut names = Vec::new();
    for call in calls {
        let name = wire_tool_name(&call.function.name);
        if names.len() < MAX_CALLED_TOOLS && !names.contains(&name) {
            names.push(name);
        }
    }
    for (i, name) in names.iter().enumerate() {
        let start = if i == 0 { r#","tools":[{"name":"# } else { r#",{"name":"# };
        body.raw(start).json(name).raw(CALLED_TOOL);
    }
    if !names.is_empty() {
        body.raw(r#"],"tool_choice":{"type":"none"}"#);
    }
}

/// Returns a schema without choices at its top, for which the API rejects the request; `None` if it has none. Arguments are
/// checked against the whole schema before the call.
fn plain_schema(schema: &RawValue) -> Option<Box<RawValue>> {
    if !CHOICES.iter().any(|name| schema.get().contains(name)) {
        return None;
    }
    let mut members: Map<String, Value> = serde_json::from_str(schema.get()).ok()?;
    let count = members.len();
    members.retain(|name, _| !CHOICES.contains(&name.as_str()));
    if members.len() == count {
        return None;
    }
    members.entry("type").or_insert_with(|| json!("object"));
    serde_json::value::to_raw_value(&members).ok()
}

/// Returns the choice of tools. A model that rejects forced calls may choose itself.
fn choice(model: &str, request: &ModelRequest) -> Value {
    let can_force = MessagesModel::of(model).takes_forced_calls();
    match &request.tool_choice {
        ToolChoice::Required if can_force => json!({"type": "any"}),
        ToolChoice::Tool(name) if request.tools.iter().any(|tool| tool.name == *name) => match can_force {
            true => json!({"type": "tool", "name": wire_tool_name(name)}),
            false => json!({"type": "auto"}),
        },
        // A tool that is not offered cannot be called.
        ToolChoice::None | ToolChoice::Tool(_) => json!({"type": "none"}),
        _ => json!({"type": "auto"}),
    }
}

/// Appends the system prompt: its stable part and the rest, each with a breakpoint.
fn push_system(request: &ModelRequest, body: &mut PayloadBuilder) {
    let text = request.prompt.system_text();
    if text.trim().is_empty() {
        return;
    }
    body.section(PromptSection::System).raw(r#","system":["#);
    let (stable, rest) = text.split_at(request.prompt.stable_prefix_bytes().min(text.len()));
    let mut is_first = true;
    // The API rejects blocks without text.
    for part in [stable, rest].into_iter().filter(|part| !part.trim().is_empty()) {
        body.raw(if is_first { "" } else { "," }).raw(r#"{"type":"text","text":"#).json(&part);
        body.raw(CACHE_BREAKPOINT).raw("}");
        is_first = false;
    }
    body.raw("]");
}

fn push_messages(model: &str, request: &ModelRequest, body: &mut PayloadBuilder) {
    let messages = request.prompt.messages();
    // The latest turn begins with the last message of the prompt.
    let history = messages.len().saturating_sub(1);
    let mut writer = MessagesWriter::new(model, body);
    for (i, message) in messages.iter().enumerate() {
        if i == history {
            writer.mark();
        }
        writer.push_prepared(message);
    }
    for message in &request.appended_messages {
        writer.push(message);
    }
    writer.mark();
    writer.finish();
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}
