//! Reading what callers send: one conversation out of many spellings, with the path of whatever is wrong.
//!
//! Four kinds of client post a conversation, and nobody tells us which: our own body, the AG-UI
//! `RunAgentInput` envelope, the AI SDK's UI messages with `parts`, and OpenAI's spelling. They differ in
//! shape, so each element is read for what it is, and one body may mix them. What is read is then
//! [repaired](repair()): models refuse a tool call without its result, and the other way round.
//!
//! Tolerance has a rule. Unknown fields, roles and part types are left out, because clients are newer than
//! we are; `null` counts as absent; a known field of the wrong kind is an error that names its path, such
//! as `messages[2].toolCalls[0].id`, and never repeats its value.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::message::{Message, Role};
use crate::request::TurnRequest;
use crate::secret::Secret;
use crate::tool::ToolChoice;

mod json;
mod media;
mod message;
mod repair;
mod runtime;
mod sources;
#[cfg(test)]
mod tests;
mod ui_message;

pub use json::Body;
pub use repair::{NO_RESULT, repair};
pub use runtime::RuntimeRequest;

use json::Fields;
use sources::Sources;

/// The longest identifier, in bytes.
pub const MAX_ID_BYTES: usize = 128;

/// The most messages of one conversation.
pub const MAX_MESSAGES: usize = 10_000;

/// The most elements of any other list: parts and tool calls of a message, tools, context blocks.
pub const MAX_LIST: usize = 1_000;

/// A field that cannot be read. The problem is worded to follow the path: "`messages[2].role` is missing".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidField {
    /// Where, such as `messages[2].toolCalls[0].id`; empty for the body as a whole.
    pub path: String,
    /// What is wrong. It never holds the value.
    pub problem: Cow<'static, str>,
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the body" } else { &self.path };
        write!(f, "{path} {}", self.problem)
    }
}

impl std::error::Error for InvalidField {}

impl InvalidField {
    fn new(path: impl Into<String>, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }

    /// The same fault, seen from the value that holds the field.
    fn below(mut self, parent: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{parent}{dot}{}", self.path);
        self
    }

    /// The same fault, seen from the list that holds the element.
    fn in_element(self, index: usize) -> Self {
        self.below(&format!("[{index}]"))
    }
}

/// What a chat body says, before it is known who asks.
#[derive(Debug, Clone, Default)]
pub struct ChatInput {
    /// The turn. `agent_id`, `thread_id` and `run_id` are empty where the caller named none: the credential
    /// may imply the agent, and whoever runs the turn makes the other two. `trigger` is never set here.
    pub turn: TurnRequest,
    /// The user that a parameter names. It grants nothing: a proactive call must name one, and for all
    /// others it must agree with the credential.
    pub user_id: Option<String>,
    /// The company that a parameter names, likewise.
    pub company_id: Option<String>,
    instruction: Option<String>,
}

impl ChatInput {
    /// Refuses messages that give the model orders, for callers who are strangers.
    ///
    /// # Errors
    ///
    /// The path of the first `system` or `developer` message.
    pub fn forbid_instructions(&self) -> Result<(), InvalidField> {
        match &self.instruction {
            None => Ok(()),
            Some(path) => Err(InvalidField::new(path, "must be user, assistant or tool for this caller")),
        }
    }
}

/// Reads the request of a turn from a chat body and the query's parameters, percent-decoded.
///
/// A field may stand in the body, in `forwardedProps`, or, if it is a plain identifier, in the query; where
/// two places name different things, that is an error. Other parameters are left alone.
///
/// # Errors
///
/// The first field that cannot be read; a conversation that is missing, empty, over its bounds, or does not
/// end with something to answer: a message of the person's or the result of a tool.
///
/// ```
/// use agent_core::history::{self, Body};
///
/// let body = Body::parse(br#"{"agentId": "a1", "message": "Hello"}"#, 64)?;
/// let chat = history::read(&body, [("timezone", "Europe/Berlin")])?;
/// assert_eq!(chat.turn.agent_id, "a1");
/// assert_eq!(chat.turn.messages.len(), 1);
///
/// let body = Body::parse(br#"{"messages": [{"role": "tool", "content": "4"}]}"#, 64)?;
/// let error = history::read(&body, [("agentId", "a1")]).unwrap_err();
/// assert_eq!(error.to_string(), "messages[0].toolCallId is missing");
/// # Ok::<(), history::InvalidField>(())
/// ```
pub fn read<K, V>(body: &Body<'_>, query: impl IntoIterator<Item = (K, V)>) -> Result<ChatInput, InvalidField>
where
    K: AsRef<str>,
    V: AsRef<str>,
{
    read_chat(body, &mut query.into_iter().map(|(name, value)| sources::parameter(name, value)), true)
}

/// Reads like [`read`], for a preview: the conversation may be missing, or end with an answer, and
/// `message` may stand in the query.
///
/// # Errors
///
/// The first field that cannot be read; a conversation over its bounds.
pub fn read_preview<K, V>(
    body: &Body<'_>,
    query: impl IntoIterator<Item = (K, V)>,
) -> Result<ChatInput, InvalidField>
where
    K: AsRef<str>,
    V: AsRef<str>,
{
    read_chat(body, &mut query.into_iter().map(|(name, value)| sources::parameter(name, value)), false)
}

/// The widget tokens in a chat body: every `widgetToken`, and those of `forwardedProps`. They are read before all
/// else, since they may say who asks, and none is left out, since another reader might take another one.
///
/// # Errors
///
/// A token that is no string.
pub fn widget_tokens(body: &Body<'_>) -> Result<Vec<Secret>, InvalidField> {
    const NAME: &str = "widgetToken";
    let body = body.fields()?;
    let forwarded = body.get("forwardedProps").and_then(|value| Fields::of(value).ok());
    let mut tokens = Vec::new();
    for value in [Some(body), forwarded].into_iter().flatten().flat_map(|fields| fields.every(NAME)) {
        match value {
            json::Value::Str(text) if text.is_empty() => {}
            json::Value::Str(text) => tokens.push(Secret::new(text.clone())),
            _ => return Err(InvalidField::new(NAME, "must be a string")),
        }
    }
    Ok(tokens)
}

fn read_chat(
    body: &Body<'_>,
    query: &mut dyn Iterator<Item = sources::Parameter>,
    to_answer: bool,
) -> Result<ChatInput, InvalidField> {
    let sources = Sources::new(body.fields()?, query)?;
    let conversation = read_conversation(&sources, to_answer)?;
    let turn = TurnRequest {
        agent_id: sources.id("agentId")?.unwrap_or_default(),
        messages: conversation.messages,
        thread_id: thread_id(&sources)?.unwrap_or_default(),
        run_id: sources.id("runId")?.unwrap_or_default(),
        tab_id: sources.id("tabId")?,
        todo_list_id: sources.id("todoListId")?,
        timezone: time_zone(&sources)?,
        page_context: sources.get("pageContext").map(|(_, value)| Value::from(value)),
        blocks_context: blocks_context(&sources)?,
        tool_choice: tool_choice(&sources)?,
        trigger: None,
    };
    Ok(ChatInput {
        turn,
        user_id: sources.id("userId")?,
        company_id: sources.id("companyId")?,
        instruction: conversation.instruction,
    })
}

/// The messages in our own form.
struct Conversation {
    messages: Vec<Message>,
    /// The path of the first message that gives orders.
    instruction: Option<String>,
}

impl Conversation {
    /// Reads `messages`. One element may be several messages in our form, or none.
    fn read(list: &[json::Value<'_>]) -> Result<Self, InvalidField> {
        let mut conversation = Self { messages: Vec::with_capacity(list.len() + 1), instruction: None };
        for (index, value) in list.iter().enumerate() {
            let role = message::read(value, &mut conversation.messages)
                .map_err(|fault| fault.in_element(index).below("messages"))?;
            if matches!(role, Some(Role::System | Role::Developer)) && conversation.instruction.is_none() {
                conversation.instruction = Some(format!("messages[{index}].role"));
            }
        }
        Ok(conversation)
    }

    /// Makes the conversation one that models take; `to_answer` asks for an end that calls for an answer.
    fn finish(mut self, to_answer: bool) -> Result<Self, InvalidField> {
        if self.messages.len() > MAX_MESSAGES {
            return Err(InvalidField::new("messages", format!("has more than {MAX_MESSAGES} elements")));
        }
        // Both ends count: a dangling call is no reason to answer, though repair gives it a result, and
        // a result whose call is gone is none either.
        let called_for = calls_for_an_answer(&self.messages);
        self.messages = repair(self.messages);
        if to_answer && !(called_for && calls_for_an_answer(&self.messages)) {
            return Err(InvalidField::new("messages", "must end with a user message or a tool result"));
        }
        Ok(self)
    }
}

fn read_conversation(sources: &Sources<'_>, to_answer: bool) -> Result<Conversation, InvalidField> {
    let list = sources.body.list("messages", MAX_MESSAGES)?;
    let mut conversation = Conversation::read(list.unwrap_or_default())?;
    if let Some((path, value)) = sources.get("message").or_else(|| sources.get("chatInput")) {
        read_user_message(value, &mut conversation.messages).map_err(|fault| fault.below(&path))?;
    } else if let Some(text) = sources.query_message().filter(|_| !to_answer) {
        conversation.messages.push(Message::user(text));
    } else if list.is_none() && to_answer {
        return Err(InvalidField::new("message", "is missing, and so is messages"));
    } else if list.is_some_and(<[_]>::is_empty) && to_answer {
        return Err(InvalidField::new("messages", "is empty"));
    }
    conversation.finish(to_answer)
}

/// Reads `message`: text, or a user message of any spelling.
fn read_user_message(value: &json::Value<'_>, into: &mut Vec<Message>) -> Result<(), InvalidField> {
    let before = into.len();
    if let json::Value::Str(text) = value {
        into.extend((!text.is_empty()).then(|| Message::user(text.clone())));
    } else {
        let fields =
            Fields::of(value).map_err(|_| InvalidField::new("", "must be text or a user message"))?;
        if fields.text("role")?.is_some_and(|role| role != "user") {
            return Err(InvalidField::new("role", "must be user"));
        }
        message::read_as(Role::User, fields, into)?;
    }
    if into.len() == before {
        return Err(InvalidField::new("", "is empty"));
    }
    Ok(())
}

/// Whether the last message, instructions aside, is one that somebody waits for an answer to.
fn calls_for_an_answer(messages: &[Message]) -> bool {
    let mut latest = messages.iter().rev().map(|message| message.role);
    let spoken = latest.find(|role| !matches!(role, Role::System | Role::Developer));
    matches!(spoken, Some(Role::User | Role::Tool))
}

/// The conversation's identifier: ours, the older route's, or the `id` of an AI SDK body.
fn thread_id(sources: &Sources<'_>) -> Result<Option<String>, InvalidField> {
    if let Some(id) = sources.id("threadId")? {
        return Ok(Some(id));
    }
    if let Some(id) = sources.id("sessionId")? {
        return Ok(Some(id));
    }
    // An `id` means nothing in the other bodies, so it counts only beside what the AI SDK alone sends.
    let has_parts = |value: &json::Value<'_>| Fields::of(value).is_ok_and(|fields| fields.has("parts"));
    let of_ai_sdk = sources.body.has("trigger")
        || sources.body.get("message").is_some_and(has_parts)
        || sources.body.list("messages", MAX_MESSAGES)?.unwrap_or_default().iter().any(has_parts);
    if of_ai_sdk { sources.body.id("id") } else { Ok(None) }
}

/// A zone's name. Only its form is checked, which is enough to carry it in a query and a prompt; whether
/// there is such a zone is for whoever computes with it.
fn time_zone(sources: &Sources<'_>) -> Result<Option<String>, InvalidField> {
    let Some(name) = sources.id("timezone")? else { return Ok(None) };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
    if name.bytes().all(fits) {
        Ok(Some(name))
    } else {
        Err(InvalidField::new("timezone", "must be an IANA time zone name"))
    }
}

/// Our `blocksContext`, then AG-UI's `context`: both are what stands around the chat.
fn blocks_context(sources: &Sources<'_>) -> Result<Vec<Value>, InvalidField> {
    let mut blocks = Vec::new();
    if let Some((path, value)) = sources.get("blocksContext") {
        let list = json::list(value, MAX_LIST).map_err(|fault| fault.below(&path))?;
        blocks.extend(list.iter().map(Value::from));
    }
    // In a body of ours `context` is an unknown field, which may be anything.
    if let Some(json::Value::Array(_)) = sources.body.get("context") {
        let list = sources.body.list("context", MAX_LIST)?.unwrap_or_default();
        blocks.extend(list.iter().map(Value::from));
    }
    Ok(blocks)
}

/// `toolChoice` in the spellings of OpenAI and the AI SDK.
fn tool_choice(sources: &Sources<'_>) -> Result<ToolChoice, InvalidField> {
    let Some((path, value)) = sources.get("toolChoice").or_else(|| sources.get("tool_choice")) else {
        return Ok(ToolChoice::Auto);
    };
    let choices = "must be auto, none, required, or name a tool";
    let wrong = || InvalidField::new(path.as_ref(), choices);
    let word = |word: &str| match word {
        "auto" => Some(ToolChoice::Auto),
        "none" => Some(ToolChoice::None),
        "required" | "any" => Some(ToolChoice::Required),
        _ => None,
    };
    if let json::Value::Str(text) = value {
        return word(text).ok_or_else(wrong);
    }
    let fields = Fields::of(value).map_err(|_| wrong())?;
    let below = |fault: InvalidField| fault.below(&path);
    let function = fields.object("function").map_err(below)?;
    let name = match function {
        Some(function) => function.name("name").map_err(|fault| fault.below("function")).map_err(below)?,
        None => match fields.name("toolName").map_err(below)? {
            Some(name) => Some(name),
            None => fields.name("name").map_err(below)?,
        },
    };
    match (name, fields.text("type").map_err(below)?) {
        (Some(name), _) => Ok(ToolChoice::Tool(name)),
        (None, Some(kind)) => word(kind).ok_or_else(wrong),
        (None, None) => Err(wrong()),
    }
}
