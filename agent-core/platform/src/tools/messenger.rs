//! Tool that sends messages through the agent's messenger bot.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builtin::{EXTERNAL_EFFECT, Stores, tool};
use crate::gateway_status::may_have_been_processed;
use crate::messenger::{MessengerError, is_bot_token};
use agent_core::tool::{ExecutionContext, LocalToolRegistry, ToolError};

/// Maximum number of characters of a message, the limit of the messenger's API.
pub(super) const MAX_MESSAGE_CHARS: usize = 4096;
/// Maximum number of characters of a chat's name.
const MAX_CHAT_CHARS: usize = 128;

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools.with_tool(tool(
        stores,
        "sendMessengerMessage",
        "Sends a message to a chat of the messenger, as the agent's bot. It is delivered immediately and cannot be recalled.",
        EXTERNAL_EFFECT,
        send_message,
    ))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SendMessageArguments {
    /// The chat's numeric id, or the @name of a public chat.
    chat_id: ChatId,
    /// The text to send, at most 4096 characters.
    #[schemars(length(min = 1, max = MAX_MESSAGE_CHARS))]
    text: String,
    /// The markup of the text; omit for plain text.
    parse_mode: Option<ParseMode>,
    /// True to send without a sound.
    disable_notification: Option<bool>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "must be an integer or a string")]
enum ChatId {
    Number(i64),
    Name(#[schemars(length(min = 1, max = MAX_CHAT_CHARS))] String),
}

// No doc comment on the variants: it would become part of the schema.
#[derive(Deserialize, Serialize, JsonSchema)]
enum ParseMode {
    #[serde(rename = "HTML")]
    Html,
    MarkdownV2,
    Markdown,
}

/// Parameters of the API's `sendMessage`, under its names.
#[derive(Serialize)]
struct ApiParameters {
    chat_id: ChatId,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parse_mode: Option<ParseMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disable_notification: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SendMessageResult {
    /// Always true; a message that was not sent is an error.
    sent: bool,
    /// The message's id in its chat, if the messenger returned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<i64>,
}

async fn send_message(
    stores: &Stores,
    context: &ExecutionContext,
    send: SendMessageArguments,
) -> Result<SendMessageResult, ToolError> {
    let params = params(send)?;
    let Some(messenger) = &stores.reach.messenger else { return Err(not_configured("RUNTIME_URL")) };
    let role = stores.role(context).await?;
    let token = role.content.messenger_token.as_ref().filter(|token| !token.expose().is_empty());
    let Some(token) = token else {
        return Err(ToolError::Unavailable(
            "no message can be sent: the agent has no messengerToken".to_owned(),
        ));
    };
    if !is_bot_token(token.expose()) {
        return Err(ToolError::Unavailable(
            "no message can be sent: the agent's messengerToken is not a bot's token".to_owned(),
        ));
    }
    let key = context.idempotency_key.as_deref();
    let result = messenger.call(token, "sendMessage", params, key).await.map_err(into_tool_error)?;
    Ok(SendMessageResult { sent: true, message_id: result["message_id"].as_i64() })
}

fn params(send: SendMessageArguments) -> Result<Value, ToolError> {
    let SendMessageArguments { chat_id, text, parse_mode, disable_notification } = send;
    let invalid = |fault: String| Err(ToolError::InvalidArguments(fault));
    if let ChatId::Name(name) = &chat_id
        && !(1..=MAX_CHAT_CHARS).contains(&name.chars().count())
    {
        return invalid(format!("chatId must have 1 to {MAX_CHAT_CHARS} characters"));
    }
    if text.trim().is_empty() {
        return invalid("text must not be empty".to_owned());
    }
    let chars = text.chars().count();
    if chars > MAX_MESSAGE_CHARS {
        return invalid(format!("text has {chars} characters; the limit is {MAX_MESSAGE_CHARS}"));
    }
    let params = ApiParameters { chat_id, text, parse_mode, disable_notification };
    serde_json::to_value(params).map_err(ToolError::internal)
}

fn not_configured(setting: &str) -> ToolError {
    ToolError::Unavailable(format!("no message can be sent: {setting} is not configured"))
}

/// Converts a messenger error for the model. The description from the API is matched but not repeated: it is
/// untrusted and may contain what was sent.
fn into_tool_error(error: MessengerError) -> ToolError {
    match error {
        MessengerError::NotConfigured(setting) => not_configured(setting),
        MessengerError::Refused { status, retry_after, .. }
            if may_have_been_processed(status, retry_after.is_some()) =>
        {
            unknown_outcome(&format!("the messenger's API failed (HTTP {status})"))
        }
        MessengerError::Refused { retry_after: Some(after), .. } => rate_limited(after),
        MessengerError::Refused { status, description, .. } => {
            ToolError::Unavailable(rejection_text(status, &description))
        }
        MessengerError::NotSent(failure) => {
            ToolError::Unavailable(format!("the message was not sent: {failure}"))
        }
        MessengerError::Failed(failure) => match failure.retry_after() {
            Some(after) => rate_limited(after),
            None => unknown_outcome(&failure.to_string()),
        },
    }
}

fn rate_limited(after: Duration) -> ToolError {
    let seconds = after.as_secs().max(1);
    ToolError::Unavailable(format!(
        "the message was not sent: the messenger is rate limiting; retry in {seconds} seconds"
    ))
}

/// Returns the error for a response that is missing or a gateway's, after which the message may or may not have been sent.
fn unknown_outcome(failure: &str) -> ToolError {
    ToolError::OutcomeUnknown(format!("the message may or may not have been sent: {failure}"))
}

/// Known error descriptions of the API, by a substring, with the explanation for the model.
const KNOWN_API_ERRORS: [(&str, &str); 11] = [
    ("chat not found", "the chat does not exist, or the bot is not a member"),
    ("blocked by the user", "the user has blocked the bot"),
    ("user is deactivated", "the user's account is deactivated"),
    ("initiate conversation", "the user must write to the bot first"),
    ("bot was kicked", "the bot was removed from the chat"),
    ("not a member", "the bot is not in the chat"),
    ("rights to send", "the bot has no permission to write in this chat"),
    ("upgraded to a supergroup", "the group was upgraded to a supergroup with another chat id"),
    ("can't parse entities", "the text's markup is invalid: correct it, or omit parseMode"),
    ("message is too long", "the text is too long"),
    ("text is empty", "the text is empty apart from its markup"),
];

fn rejection_text(status: u16, description: &str) -> String {
    let known = KNOWN_API_ERRORS.iter().find(|(theirs, _)| description.contains(theirs));
    let why = match (known, status) {
        (Some((_, ours)), _) => (*ours).to_owned(),
        // The API answers 401 for an unknown token and 404 for a malformed one.
        (None, 401 | 404) => {
            "the messenger does not know the bot: the agent's messengerToken is invalid".to_owned()
        }
        (None, 429) => "the messenger is rate limiting requests (HTTP 429)".to_owned(),
        (None, 500..) => format!("the messenger's API failed (HTTP {status})"),
        (None, _) => format!("the messenger's API rejected the call (HTTP {status})"),
    };
    format!("the message was not sent: {why}")
}
