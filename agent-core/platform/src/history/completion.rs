//! Parsing of the body of a request in OpenAI's Chat Completions API.
//!
//! Parameters that the agent's role decides, such as those of sampling, are ignored. Unsupported ones that would change
//! the meaning or the shape of the answer are errors, since a client would misinterpret the answer.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde_json::Map;

use super::completion_error::CompletionError;
use super::json::{ObjectFields, Value, check_single_line};
use super::sources::FieldSources;
use super::{
    ChatInput, Conversation, FieldError, JsonBody, MAX_ID_BYTES, MAX_LIST_ITEMS, MAX_MESSAGES,
    RepairedConversation, ThreadFields, client_tools, media, message, response_format, thread_fields,
    tool_choice,
};
use agent_core::ids::ThreadId;
use agent_core::message::Role;
use agent_core::request::TurnRequest;

/// Fields that are refused unless they are absent: deprecated forms of `tools`, and answers in other forms than text.
const UNSUPPORTED_FIELDS: [&str; 4] = ["functions", "function_call", "audio", "web_search_options"];

/// Fields that limit the tokens of the answer. The second one is deprecated.
const OUTPUT_LIMITS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// A request for a chat completion.
#[derive(Debug, Clone)]
pub struct CompletionRequest {
    /// The turn, whose agent is the request's `model`, and the fields that concern its thread.
    pub input: ChatInput,
    /// Field `stream`.
    pub is_streamed: bool,
    /// Field `stream_options.include_usage`: the stream ends with a chunk that has the usage.
    pub includes_usage: bool,
    /// Field `parallel_tool_calls`, true by default: the client takes several calls of its tools at once.
    pub calls_in_parallel: bool,
}

/// Reads a request for a chat completion. `thread_id` names the thread in which the run is stored.
///
/// # Errors
/// The first field that is missing, invalid, over its limits, or not supported; a conversation that does not end with a
/// user message or a tool result.
///
/// ```
/// use agent_platform::history::{self, JsonBody};
///
/// let body = br#"{"model": "guide", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0.5}"#;
/// let request = history::read_completion(&JsonBody::parse(body, 64)?, None).expect("it is right");
/// assert_eq!(request.input.turn.agent_id, "guide");
///
/// let body = br#"{"model": "guide", "messages": [{"role": "user", "content": "Hello"}], "n": 2}"#;
/// let error = history::read_completion(&JsonBody::parse(body, 64)?, None).unwrap_err();
/// assert_eq!(error.to_string(), "n must be 1: only one answer is returned");
/// # Ok::<(), history::FieldError>(())
/// ```
pub fn read_completion(
    body: &JsonBody<'_>,
    thread_id: Option<&str>,
) -> Result<CompletionRequest, CompletionError> {
    let fields = body.fields()?;
    let model = fields.required_id("model")?;
    check_supported(fields)?;
    check_messages(fields)?;
    let sources = FieldSources::new(fields, &mut std::iter::empty())?;
    let (conversation, message_fault) = read_conversation(fields)?;
    let store = fields.boolean("store")?;
    let may_be_kept = store == Some(true) || thread_id.is_some();
    let thread_fields = ThreadFields {
        store,
        metadata: if may_be_kept { thread_fields::metadata(&sources)? } else { Map::new() },
        results: conversation.results,
        ends_with_results: conversation.ends_with_results,
        ..ThreadFields::default()
    };
    let turn = TurnRequest {
        agent_id: model.into(),
        messages: Arc::new(conversation.messages),
        thread_id: read_thread_id(thread_id)?,
        tool_choice: tool_choice(&sources)?,
        client_tools: client_tools::read(fields)?,
        max_output_tokens: read_output_limit(fields)?,
        response_format: response_format::read_completion_format(fields)?,
        ..TurnRequest::default()
    };
    let input = ChatInput {
        turn,
        first_instruction_path: conversation.first_instruction_path,
        thread_fields,
        message_fault,
        ..ChatInput::default()
    };
    let options = fields.object("stream_options")?;
    let includes_usage = match options {
        Some(options) => options
            .boolean("include_usage")
            .map_err(|fault| fault.with_parent_path("stream_options"))?
            .unwrap_or_default(),
        None => false,
    };
    Ok(CompletionRequest {
        input,
        is_streamed: fields.boolean("stream")?.unwrap_or_default(),
        includes_usage,
        calls_in_parallel: fields.boolean("parallel_tool_calls")?.unwrap_or(true),
    })
}

/// Reads the limit on the answer, in tokens: the lower one if the request has both.
fn read_output_limit(fields: ObjectFields<'_>) -> Result<Option<NonZeroU32>, FieldError> {
    let mut limit: Option<NonZeroU32> = None;
    for name in OUTPUT_LIMITS {
        let Some(value) = fields.get(name) else { continue };
        let tokens = value.as_u64().map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
        let tokens = tokens.and_then(NonZeroU32::new);
        let tokens = tokens.ok_or_else(|| FieldError::new(name, "must be a positive integer"))?;
        limit = limit.into_iter().chain([tokens]).min();
    }
    Ok(limit)
}

fn read_thread_id(text: Option<&str>) -> Result<ThreadId, FieldError> {
    let text = text.unwrap_or_default();
    check_single_line(text, MAX_ID_BYTES).map_err(|fault| fault.with_parent_path("x-thread-id"))?;
    Ok(text.into())
}

/// Reads the conversation. A list of results alone is an error only if no thread has their calls.
fn read_conversation(
    fields: ObjectFields<'_>,
) -> Result<(RepairedConversation, Option<FieldError>), FieldError> {
    let list = fields.list("messages", MAX_MESSAGES)?;
    let list = list.ok_or_else(|| FieldError::new("messages", "is missing"))?;
    let read = || {
        // The parser names a missing field as AG-UI does.
        Conversation::read(list)
            .map_err(|fault| FieldError { path: fault.path.replace("toolCallId", "tool_call_id"), ..fault })
    };
    match read()?.finish(true) {
        Ok(conversation) => Ok((conversation, None)),
        Err(fault) => {
            let conversation = read()?.finish(false)?;
            let has_results = !conversation.results.is_empty();
            has_results.then_some((conversation, Some(fault.clone()))).ok_or(fault)
        }
    }
}

/// Refuses fields whose effect a client would miss in the answer.
fn check_supported(fields: ObjectFields<'_>) -> Result<(), CompletionError> {
    let unsupported =
        |name: &str, problem: &'static str| Err(CompletionError::Unsupported(FieldError::new(name, problem)));
    if let Some(name) = UNSUPPORTED_FIELDS.into_iter().find(|name| fields.has(name)) {
        return unsupported(name, "is not supported");
    }
    if fields.get("n").is_some_and(|n| n.as_u64() != Some(1)) {
        return unsupported("n", "must be 1: only one answer is returned");
    }
    if fields.boolean("logprobs")? == Some(true) {
        return unsupported("logprobs", "is not supported");
    }
    let has_stop = match fields.get("stop") {
        None => false,
        Some(Value::Str(text)) => !text.is_empty(),
        Some(value) => {
            !value.is_array() || fields.list("stop", MAX_LIST_ITEMS)?.is_some_and(|l| !l.is_empty())
        }
    };
    if has_stop {
        return unsupported("stop", "is not supported");
    }
    let modalities = fields.list("modalities", MAX_LIST_ITEMS)?.unwrap_or_default();
    if modalities.iter().any(|modality| modality.as_str() != Some("text")) {
        return unsupported("modalities", "must be text only");
    }
    check_tool_types(fields)
}

/// Refuses messages and parts of messages that the model would not see. An assistant's parts of other types, such as its
/// reasoning, are left out.
fn check_messages(fields: ObjectFields<'_>) -> Result<(), CompletionError> {
    let messages = fields.list("messages", MAX_MESSAGES)?.unwrap_or_default();
    for (index, value) in messages.iter().enumerate() {
        let with_path = |fault: FieldError| fault.with_index(index).with_parent_path("messages");
        let unsupported = |fault| CompletionError::Unsupported(with_path(fault));
        let fields = ObjectFields::from_value(value).map_err(with_path)?;
        let role = message::read_role(fields).map_err(with_path)?.ok_or_else(|| {
            unsupported(FieldError::new("role", "must be system, developer, user, assistant or tool"))
        })?;
        let Some(Value::Array(parts)) = fields.get("content").filter(|_| role != Role::Assistant) else {
            continue;
        };
        for (part_index, part) in parts.iter().enumerate() {
            let in_content = |fault: FieldError| fault.with_index(part_index).with_parent_path("content");
            let is_left_out = ObjectFields::from_value(part).and_then(|part| media::is_left_out(role, part));
            if is_left_out.map_err(in_content).map_err(with_path)? {
                let problem = "is not supported in a message of this role";
                return Err(unsupported(in_content(FieldError::new("type", problem))));
            }
        }
    }
    Ok(())
}

/// Refuses tools that are not functions.
fn check_tool_types(fields: ObjectFields<'_>) -> Result<(), CompletionError> {
    let tools = fields.list("tools", MAX_LIST_ITEMS)?.unwrap_or_default();
    for (index, tool) in tools.iter().enumerate() {
        let with_path = |fault: FieldError| fault.with_index(index).with_parent_path("tools");
        let tool = ObjectFields::from_value(tool).map_err(with_path)?;
        if tool.text("type").map_err(with_path)?.is_some_and(|kind| kind != "function") {
            let fault = with_path(FieldError::new("type", "must be function"));
            return Err(CompletionError::Unsupported(fault));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agent_core::message::Role;
    use agent_core::tool::ToolChoice;
    use serde_json::{Value, json};

    use super::*;

    fn read(body: &Value, thread_id: Option<&str>) -> Result<CompletionRequest, CompletionError> {
        let text = body.to_string();
        read_completion(&JsonBody::parse(text.as_bytes(), 64).expect("JSON"), thread_id)
    }

    fn body(more: Value) -> Value {
        let mut body = json!({"model": "a1", "messages": [{"role": "user", "content": "Hello"}]});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    }

    #[test]
    fn a_request_of_the_package_is_read() {
        let tool = json!({"type": "function", "function": {"name": "paint", "description": "Paints.", "strict": true,
            "parameters": {"type": "object", "properties": {}}}});
        let call = json!({"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}});
        let request = read(
            &json!({
                "model": "a1",
                "messages": [
                    {"role": "developer", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "Paint"}], "name": "ann"},
                    {"role": "assistant", "content": null, "refusal": null, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": "painted"},
                ],
                "tools": [tool], "tool_choice": {"type": "function", "function": {"name": "paint"}},
                "stream": true, "stream_options": {"include_usage": true}, "n": 1, "stop": null,
                "temperature": 0, "top_p": 1, "max_tokens": 5, "max_completion_tokens": 5, "seed": 7, "user": "u",
                "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "parallel_tool_calls": false,
                "response_format": {"type": "text"}, "reasoning_effort": "low", "modalities": ["text"],
                "logprobs": false, "service_tier": "auto", "metadata": {"a": "b"}, "prediction": {}, "future": [1],
            }),
            None,
        )
        .expect("valid input");
        assert!(request.is_streamed && request.includes_usage && !request.calls_in_parallel);
        let CompletionRequest { input, .. } = request;
        let turn = &input.turn;
        assert_eq!((&*turn.agent_id, &*turn.thread_id, &*turn.run_id), ("a1", "", ""));
        let roles: Vec<Role> = turn.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::Developer, Role::User, Role::Assistant, Role::Tool]);
        assert_eq!(turn.client_tools[0].name, "paint");
        assert_eq!(turn.tool_choice, ToolChoice::Tool("paint".to_owned()));
        assert_eq!(input.thread_fields().expect("right").store, None);
    }

    #[test]
    fn the_defaults_equal_the_api() {
        let CompletionRequest { input, is_streamed, includes_usage, calls_in_parallel } =
            read(&body(json!({})), None).expect("it is right");
        assert!(!is_streamed && !includes_usage && calls_in_parallel);
        assert_eq!(input.turn.tool_choice, ToolChoice::Auto);
        assert!(input.turn.client_tools.is_empty() && input.reject_missing_message().is_ok());
    }

    #[test]
    fn a_header_names_the_thread_and_nothing_in_the_body_does() {
        let named = body(
            json!({"threadId": "t1", "sessionId": "t2", "id": "t3", "agentId": "a2", "runId": "r",
            "userId": "u", "companyId": "c", "background": true, "message": "Other", "metadata": {"k": "v"}}),
        );
        let input = read(&named, None).expect("it is right").input;
        assert_eq!((&*input.turn.thread_id, &*input.turn.agent_id, &*input.turn.run_id), ("", "a1", ""));
        assert_eq!((input.user_id.as_ref(), input.turn.messages.len()), (None, 1));
        let fields = input.thread_fields().expect("right");
        assert!(!fields.is_background && fields.metadata.is_empty());
        let input = read(&named, Some("t9")).expect("it is right").input;
        assert_eq!(input.turn.thread_id, "t9");
        assert_eq!(input.thread_fields().expect("right").metadata["k"], "v");
    }

    #[test]
    fn results_without_a_message_need_a_thread() {
        let results =
            json!({"model": "a1", "messages": [{"role": "tool", "tool_call_id": "c1", "content": "x"}]});
        let input = read(&results, Some("t")).expect("a thread may have the call").input;
        assert_eq!(input.thread_fields().expect("right").results.len(), 1);
        assert_eq!(input.reject_missing_message().expect_err("without a thread").path, "messages");
    }

    #[test]
    fn the_invalid_field_is_named() {
        let long = "x".repeat(129);
        for (sent, thread, path) in [
            (json!({"messages": []}), None, "model"),
            (body(json!({"model": ""})), None, "model"),
            (body(json!({"model": 5})), None, "model"),
            (json!({"model": "a1"}), None, "messages"),
            (body(json!({"messages": []})), None, "messages"),
            (body(json!({"messages": "Hello"})), None, "messages"),
            (body(json!({"messages": [{"role": "user"}]})), None, "messages[0].content"),
            (body(json!({"messages": [{"role": "tool", "content": "x"}]})), None, "messages[0].tool_call_id"),
            (body(json!({"messages": [{"role": "assistant", "content": "x"}]})), None, "messages"),
            (body(json!({"stream": "yes"})), None, "stream"),
            (body(json!({"stream_options": {"include_usage": 1}})), None, "stream_options.include_usage"),
            (body(json!({"tools": [{"type": "function", "function": {}}]})), None, "tools[0].function.name"),
            (body(json!({"tools": [5]})), None, "tools[0]"),
            (body(json!({"tool_choice": "perhaps"})), None, "tool_choice"),
            (
                body(json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}})),
                None,
                "tool_choice",
            ),
            (body(json!({"store": 1})), None, "store"),
            (body(json!({"parallel_tool_calls": "no"})), None, "parallel_tool_calls"),
            (
                body(json!({"messages": [{"role": "user", "content": [{}]}]})),
                None,
                "messages[0].content[0].type",
            ),
            (body(json!({"response_format": "json"})), None, "response_format"),
            (body(json!({"response_format": {}})), None, "response_format.type"),
            (body(json!({"response_format": {"type": "json_schema"}})), None, "response_format.json_schema"),
            (
                body(json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}})),
                None,
                "response_format.json_schema.name",
            ),
            (
                body(json!({"response_format": {"type": "json_schema", "json_schema":
                    {"name": "a", "schema": {"items": {"$ref": "https://h/s.json"}}}}})),
                None,
                "response_format.json_schema.schema.items.$ref",
            ),
            (body(json!({})), Some(long.as_str()), "x-thread-id"),
        ] {
            match read(&sent, thread).expect_err(path) {
                CompletionError::Invalid(fault) => {
                    assert_eq!(fault.path, path, "{sent}");
                }
                CompletionError::Unsupported(fault) => panic!("{fault}"),
            }
        }
    }

    #[test]
    fn options_with_unsupported_results_are_refused() {
        for (sent, path) in [
            (json!({"n": 2}), "n"),
            (json!({"n": "1"}), "n"),
            (json!({"logprobs": true}), "logprobs"),
            (json!({"stop": "\n"}), "stop"),
            (json!({"stop": ["a"]}), "stop"),
            (json!({"response_format": {"type": "grammar"}}), "response_format"),
            (json!({"modalities": ["text", "audio"]}), "modalities"),
            (json!({"audio": {"voice": "x"}}), "audio"),
            (json!({"functions": []}), "functions"),
            (json!({"function_call": "auto"}), "function_call"),
            (json!({"web_search_options": {}}), "web_search_options"),
            (json!({"tools": [{"type": "custom", "custom": {"name": "x"}}]}), "tools[0].type"),
            (json!({"messages": [{"role": "function", "name": "x", "content": "y"}]}), "messages[0].role"),
            (
                json!({"messages": [{"role": "user", "content":
                    [{"type": "text", "text": "See"}, {"type": "video_url", "video_url": {"url": "https://v.example"}}]}]}),
                "messages[0].content[1].type",
            ),
            (
                json!({"messages": [{"role": "user", "content": "Draw"},
                    {"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": {"url": "https://i.example"}}]}]}),
                "messages[1].content[0].type",
            ),
        ] {
            match read(&body(sent.clone()), None).expect_err(path) {
                CompletionError::Unsupported(fault) => assert_eq!(fault.path, path, "{sent}"),
                CompletionError::Invalid(fault) => panic!("{fault}"),
            }
        }
        let reasoning = json!([{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "Why?"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "So."}]},
            {"role": "user", "content": "Go on"}]);
        for neutral in [
            json!({"stop": []}),
            json!({"stop": ""}),
            json!({"functions": null}),
            json!({"n": null}),
            json!({ "messages": reasoning }),
        ] {
            read(&body(neutral.clone()), None).unwrap_or_else(|error| panic!("{neutral}: {error}"));
        }
    }
}
