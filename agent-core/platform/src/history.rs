//! Parsing of conversations from request bodies in several client formats, with the path of any invalid field.
//!
//! Four kinds of client post a conversation and do not identify themselves: this platform's own body, the AG-UI
//! `RunAgentInput` envelope, the AI SDK's UI messages with `parts`, and OpenAI's format. As they differ in shape, the
//! format is detected for each element, and one body may mix them. The parsed conversation is then
//! [repaired](repair_shared()), since models reject a tool call without its result and a result without its call.
//!
//! Unknown fields, roles and part types are ignored, because clients may be newer than the server; `null` counts as
//! absent; a known field of the wrong type is an error that contains its path, such as `messages[2].toolCalls[0].id`,
//! and never its value.

use std::sync::Arc;

use serde_json::Value;

use agent_core::ids::{CompanyId, UserId};
use agent_core::message::{Message, Role};
use agent_core::request::TurnRequest;
use agent_core::secret::Secret;
use agent_core::tool::ToolChoice;

mod client_tools;
mod completion;
mod completion_error;
mod conversation;
mod field_error;
mod json;
mod limits;
mod media;
mod message;
mod repair;
mod response_format;
mod resume;
mod runtime;
mod sources;
mod stored_file;
#[cfg(test)]
mod tests;
mod thread_fields;
mod ui_message;

pub use completion::{CompletionRequest, read_completion};
pub use completion_error::CompletionError;
pub use conversation::expects_answer;
pub use field_error::FieldError;
pub use json::JsonBody;
pub use limits::MAX_ID_BYTES;
pub(crate) use limits::{MAX_LIST_ITEMS, MAX_MESSAGES};
pub(crate) use media::part_for_media_type;
pub use repair::{is_missing_result, repair_shared};
pub use resume::ResumeEntry;
pub use runtime::RuntimeRequest;
pub use stored_file::stored_file_id;
pub use thread_fields::{HistorySource, MAX_GRACE_MS, ThreadFields};

use conversation::{Conversation, RepairedConversation};
use json::ObjectFields;
use sources::{FieldSources, is_of_ai_sdk};

/// Fields of a chat request, before authentication.
#[derive(Debug, Clone, Default)]
pub struct ChatInput {
    /// The turn. `agent_id`, `thread_id` and `run_id` are empty if the client sent none: the credential may imply
    /// the agent, and the caller that runs the turn generates the other two. `trigger` is never set here.
    pub turn: TurnRequest,
    /// User named by a parameter. It grants no access: a proactive call must name a user, and for all other callers
    /// it must match the credential.
    pub user_id: Option<UserId>,
    /// Company named by a parameter; the same rules apply.
    pub company_id: Option<CompanyId>,
    first_instruction_path: Option<String>,
    thread_fields: ThreadFields,
    /// An invalid field among [`ThreadFields`].
    thread_fault: Option<FieldError>,
    /// An invalid tool of the client. The turn has none of the tools then.
    tools_fault: Option<FieldError>,
    /// Error of a request without a message, which only a stored run may be.
    message_fault: Option<FieldError>,
}

impl ChatInput {
    /// Returns the fields that concern the thread. They are valid only if the run will be stored: other requests may use
    /// their names for another purpose.
    ///
    /// # Errors
    ///
    /// The first invalid field, also of a tool of the client.
    pub fn thread_fields(&self) -> Result<&ThreadFields, FieldError> {
        match self.thread_fault.as_ref().or(self.tools_fault.as_ref()) {
            Some(fault) => Err(fault.clone()),
            None => Ok(&self.thread_fields),
        }
    }

    /// Returns true if the request asks for a stored run by `"store": true`, also if another field is invalid.
    pub fn asks_for_storage(&self) -> bool {
        self.thread_fields.store == Some(true)
    }

    /// Rejects invalid tools of the client, for a run that is not stored.
    ///
    /// # Errors
    ///
    /// The path of the first invalid tool.
    pub fn reject_invalid_tools(&self) -> Result<(), FieldError> {
        self.tools_fault.clone().map_or(Ok(()), Err)
    }

    /// Rejects a request without a message that needs an answer, for a run that is not stored.
    ///
    /// # Errors
    ///
    /// The conversation's path.
    pub fn reject_missing_message(&self) -> Result<(), FieldError> {
        self.message_fault.clone().map_or(Ok(()), Err)
    }

    /// Rejects messages that instruct the model, and a format of the answer, for untrusted callers.
    ///
    /// # Errors
    ///
    /// The path of the first `system` or `developer` message, or `responseFormat`.
    pub fn reject_instructions(&self) -> Result<(), FieldError> {
        if self.turn.response_format.is_some() {
            return Err(FieldError::new("responseFormat", "must not be given by this caller"));
        }
        match &self.first_instruction_path {
            None => Ok(()),
            Some(path) => Err(FieldError::new(path, "must be user, assistant or tool for this caller")),
        }
    }
}

/// Reads a turn request from a chat body and the percent-decoded query parameters.
///
/// A field may be in the body, in `forwardedProps`, or, if it is a plain identifier, in the query; different values
/// in two of them are an error. Other parameters are ignored.
///
/// # Errors
///
/// The first invalid field; a conversation that is missing, empty, over its limits, or does not end with a user
/// message or a tool result.
///
/// ```
/// use agent_platform::history::{self, JsonBody};
///
/// let body = JsonBody::parse(br#"{"agentId": "a1", "message": "Hello"}"#, 64)?;
/// let chat = history::read(&body, [("timezone", "Europe/Berlin")])?;
/// assert_eq!(chat.turn.agent_id, "a1");
/// assert_eq!(chat.turn.messages.len(), 1);
///
/// let body = JsonBody::parse(br#"{"messages": [{"role": "tool", "content": "4"}]}"#, 64)?;
/// let error = history::read(&body, [("agentId", "a1")]).unwrap_err();
/// assert_eq!(error.to_string(), "messages[0].toolCallId is missing");
/// # Ok::<(), history::FieldError>(())
/// ```
pub fn read<K, V>(
    body: &JsonBody<'_>,
    query: impl IntoIterator<Item = (K, V)>,
) -> Result<ChatInput, FieldError>
where
    K: AsRef<str>,
    V: AsRef<str>,
{
    read_chat(body, &mut query.into_iter().map(|(name, value)| sources::parse_parameter(name, value)), true)
}

/// Reads like [`read`], for a preview: the conversation may be missing or end with an answer, and `message` may
/// be in the query.
///
/// # Errors
///
/// The first invalid field; a conversation over its limits.
pub fn read_preview<K, V>(
    body: &JsonBody<'_>,
    query: impl IntoIterator<Item = (K, V)>,
) -> Result<ChatInput, FieldError>
where
    K: AsRef<str>,
    V: AsRef<str>,
{
    read_chat(body, &mut query.into_iter().map(|(name, value)| sources::parse_parameter(name, value)), false)
}

/// Returns the widget tokens in a chat body: every `widgetToken`, in the body and in `forwardedProps`. They are read
/// first, since they may be the credential, and all of them are returned, since another parser may pick another
/// duplicate.
///
/// # Errors
///
/// A token that is not a string.
pub fn widget_tokens(body: &JsonBody<'_>) -> Result<Vec<Secret>, FieldError> {
    const NAME: &str = "widgetToken";
    let body = body.all_fields()?;
    let forwarded = body.get("forwardedProps").and_then(|value| ObjectFields::from_value(value).ok());
    let mut tokens = Vec::new();
    for value in [Some(body), forwarded].into_iter().flatten().flat_map(|fields| fields.get_all(NAME)) {
        match value {
            json::Value::Str(text) if text.is_empty() => {}
            json::Value::Str(text) => tokens.push(Secret::new(text.clone())),
            _ => return Err(FieldError::new(NAME, "must be a string")),
        }
    }
    Ok(tokens)
}

/// Reads the `messages` of a body that is not a chat request, repaired; none if there is no such field.
///
/// # Errors
///
/// The first invalid field; a list over its limits.
pub fn read_messages(body: &JsonBody<'_>) -> Result<Vec<Message>, FieldError> {
    let list = body.fields()?.list("messages", MAX_MESSAGES)?;
    let messages = Conversation::read(list.unwrap_or_default())?.finish(false)?.messages;
    Ok(messages.into_iter().map(Arc::unwrap_or_clone).collect())
}

fn read_chat(
    body: &JsonBody<'_>,
    query: &mut dyn Iterator<Item = sources::QueryParameter>,
    to_answer: bool,
) -> Result<ChatInput, FieldError> {
    let sources = FieldSources::new(body.fields()?, query)?;
    let (mut thread_fields, thread_fault) = match thread_fields::read(&sources) {
        Ok(fields) => (fields, None),
        Err(fault) => (thread_fields::store_alone(&sources), Some(fault)),
    };
    let (client_tools, tools_fault) = match client_tools::read(sources.body) {
        Ok(tools) => (tools, None),
        Err(fault) => (Vec::new(), Some(fault)),
    };
    // If the run will be stored, an invalid field of the thread is reported first: it may be a field that allows a request
    // without a message.
    let needs_no_message = thread_fault.is_some() || thread_fields.allows_no_message();
    let (conversation, message_fault) = match read_conversation(&sources, to_answer) {
        Ok(conversation) => (conversation, None),
        Err(fault) => match read_conversation(&sources, false) {
            Ok(read) if needs_no_message || !read.results.is_empty() => (read, Some(fault)),
            _ => return Err(fault),
        },
    };
    thread_fields.results = conversation.results;
    thread_fields.ends_with_results = conversation.ends_with_results;
    let turn = TurnRequest {
        agent_id: sources.id("agentId")?.unwrap_or_default().into(),
        messages: Arc::new(conversation.messages),
        thread_id: thread_id(&sources)?.unwrap_or_default().into(),
        run_id: sources.id("runId")?.unwrap_or_default().into(),
        tab_id: sources.id("tabId")?,
        todo_list_id: sources.id("todoListId")?,
        timezone: time_zone(&sources)?,
        page_context: sources.get("pageContext").map(|(_, value)| Value::from(value)),
        blocks_context: blocks_context(&sources)?,
        tool_choice: tool_choice(&sources)?,
        client_tools,
        can_suspend: false,
        whole_delivery: None,
        trigger: None,
        max_output_tokens: None,
        response_format: response_format::read(&sources)?,
        is_stored: false,
        is_preview: false,
        role: None,
        sent_context: Default::default(),
        trace: None,
    };
    Ok(ChatInput {
        turn,
        user_id: sources.id("userId")?.map(UserId::from),
        company_id: sources.id("companyId")?.map(CompanyId::from),
        first_instruction_path: conversation.first_instruction_path,
        thread_fields,
        thread_fault,
        tools_fault,
        message_fault,
    })
}

fn read_conversation(
    sources: &FieldSources<'_>,
    to_answer: bool,
) -> Result<RepairedConversation, FieldError> {
    let list = sources.body.list("messages", MAX_MESSAGES)?;
    let mut conversation = Conversation::read(list.unwrap_or_default())?;
    if let Some((path, value)) = sources.get("message").or_else(|| sources.get("chatInput")) {
        read_user_message(value, &mut conversation.messages)
            .map_err(|fault| fault.with_parent_path(&path))?;
    } else if let Some(text) = sources.query_message().filter(|_| !to_answer) {
        conversation.messages.push(Message::user(text));
    } else if list.is_none() && to_answer {
        return Err(FieldError::new("message", "or messages is required"));
    } else if list.is_some_and(<[_]>::is_empty) && to_answer {
        return Err(FieldError::new("messages", "is empty"));
    }
    conversation.finish(to_answer)
}

/// Reads `message`: text, or a user message in any format.
fn read_user_message(value: &json::Value<'_>, into: &mut Vec<Message>) -> Result<(), FieldError> {
    let before = into.len();
    if let json::Value::Str(text) = value {
        into.extend((!text.is_empty()).then(|| Message::user(text.clone())));
    } else {
        let fields = ObjectFields::from_value(value)
            .map_err(|_| FieldError::new("", "must be text or a user message"))?;
        if fields.text("role")?.is_some_and(|role| role != "user") {
            return Err(FieldError::new("role", "must be user"));
        }
        message::read_as(Role::User, fields, into)?;
    }
    if into.len() == before {
        return Err(FieldError::new("", "is empty"));
    }
    Ok(())
}

/// Returns the conversation's identifier: `threadId`, the older route's `sessionId`, or the `id` of an AI SDK body.
fn thread_id(sources: &FieldSources<'_>) -> Result<Option<String>, FieldError> {
    if let Some(id) = sources.id("threadId")? {
        return Ok(Some(id));
    }
    if let Some(id) = sources.id("sessionId")? {
        return Ok(Some(id));
    }
    // Other bodies may use `id` for anything, so it counts only beside fields that only the AI SDK sends.
    if is_of_ai_sdk(sources)? { sources.body.id("id") } else { Ok(None) }
}

/// Returns the time zone name. Only its syntax is checked, which makes it safe in a query and a prompt; the code that
/// computes with the zone checks that it exists.
fn time_zone(sources: &FieldSources<'_>) -> Result<Option<String>, FieldError> {
    let Some(name) = sources.id("timezone")? else { return Ok(None) };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
    if name.bytes().all(fits) {
        Ok(Some(name))
    } else {
        Err(FieldError::new("timezone", "must be an IANA time zone name"))
    }
}

/// Returns the context around the chat: `blocksContext`, then AG-UI's `context`.
fn blocks_context(sources: &FieldSources<'_>) -> Result<Vec<Value>, FieldError> {
    let mut blocks = Vec::new();
    if let Some((path, value)) = sources.get("blocksContext") {
        let list = json::list(value, MAX_LIST_ITEMS).map_err(|fault| fault.with_parent_path(&path))?;
        blocks.extend(list.iter().map(Value::from));
    }
    // In the platform's own body `context` is an unknown field of any type.
    if let Some(json::Value::Array(_)) = sources.body.get("context") {
        let list = sources.body.list("context", MAX_LIST_ITEMS)?.unwrap_or_default();
        blocks.extend(list.iter().map(Value::from));
    }
    Ok(blocks)
}

/// Returns `toolChoice` from OpenAI's or the AI SDK's format.
fn tool_choice(sources: &FieldSources<'_>) -> Result<ToolChoice, FieldError> {
    let Some((path, value)) = sources.get("toolChoice").or_else(|| sources.get("tool_choice")) else {
        return Ok(ToolChoice::Auto);
    };
    let choices = "must be auto, none, required, or name a tool";
    let wrong = || FieldError::new(path.as_ref(), choices);
    let parse_word = |word: &str| match word {
        "auto" => Some(ToolChoice::Auto),
        "none" => Some(ToolChoice::None),
        "required" | "any" => Some(ToolChoice::Required),
        _ => None,
    };
    if let json::Value::Str(text) = value {
        return parse_word(text).ok_or_else(wrong);
    }
    let fields = ObjectFields::from_value(value).map_err(|_| wrong())?;
    let under_path = |fault: FieldError| fault.with_parent_path(&path);
    let function = fields.object("function").map_err(under_path)?;
    let name = match function {
        Some(function) => {
            function.name("name").map_err(|fault| fault.with_parent_path("function")).map_err(under_path)?
        }
        None => match fields.name("toolName").map_err(under_path)? {
            Some(name) => Some(name),
            None => fields.name("name").map_err(under_path)?,
        },
    };
    match (name, fields.text("type").map_err(under_path)?) {
        (Some(name), _) => Ok(ToolChoice::Tool(name)),
        (None, Some(kind)) => parse_word(kind).ok_or_else(wrong),
        (None, None) => Err(wrong()),
    }
}
