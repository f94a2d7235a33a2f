//! Tests of messages through the agent's bot: the request to the API, and the text for the model.

use std::sync::Mutex;

use async_trait::async_trait;
use expect_test::expect;

use super::*;
use crate::messenger::{Messenger, MessengerError};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::secret::Secret;

/// Recorded call: token, method, parameters.
pub(super) type Call = (String, String, Value);

/// Scripted results of the next calls; the default result otherwise.
type Answers = Vec<Result<Value, MessengerError>>;

/// Messenger double that records calls and returns scripted results.
#[derive(Default)]
pub(super) struct FakeMessenger {
    calls: Mutex<Vec<Call>>,
    answers: Mutex<Answers>,
}

impl FakeMessenger {
    /// Returns the calls since the last use.
    pub(super) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().expect("unpoisoned"))
    }

    fn answers(&self, answer: Result<Value, MessengerError>) {
        self.answers.lock().expect("unpoisoned").push(answer);
    }
}

#[async_trait]
impl Messenger for FakeMessenger {
    async fn call(
        &self,
        token: &Secret,
        method: &str,
        params: Value,
        _: Option<&str>,
    ) -> Result<Value, MessengerError> {
        let call = (token.expose().to_owned(), method.to_owned(), params);
        self.calls.lock().expect("unpoisoned").push(call);
        let answer = self.answers.lock().expect("unpoisoned").pop();
        answer.unwrap_or_else(|| Ok(json!({"message_id": 7, "date": 1, "chat": {"id": 1}})))
    }
}

const TOKEN: &str = "123:token-canary";

fn world(token: Option<&str>) -> ToolFixture {
    let content = json!({"tools": ["sendMessengerMessage"]});
    let world = ToolFixture::new(&json!({"agents": [{"id": "a", "companyId": "c", "content": content}]}));
    let role = ready(world.roles.masked_role(&"c".into(), &"a".into())).expect("the store answers");
    let mut role = role.expect("the role").value;
    // Without the checks of a file: roles that are stored already may have any token.
    role.content.messenger_token = token.map(Secret::new);
    ready(world.roles.put_role(role, Precondition::Any)).expect("the store in memory takes it");
    world
}

fn send(world: &ToolFixture, arguments: Value) -> Result<Value, String> {
    world.call(&ada(), "sendMessengerMessage", arguments)
}

#[test]
fn the_schema_says_what_the_api_takes() {
    let specs = ready(world(None).tools.list(&ada())).expect("listed");
    let spec = specs.iter().find(|spec| spec.name == "sendMessengerMessage").expect("it is there");
    let schema: Value = serde_json::from_str(spec.input_schema.get()).expect("JSON");
    expect![[r#"
        {
          "type": "object",
          "properties": {
            "chatId": {
              "description": "The chat's numeric id, or the @name of a public chat.",
              "anyOf": [
                {
                  "type": "integer"
                },
                {
                  "type": "string",
                  "minLength": 1,
                  "maxLength": 128
                }
              ]
            },
            "text": {
              "description": "The text to send, at most 4096 characters.",
              "type": "string",
              "minLength": 1,
              "maxLength": 4096
            },
            "parseMode": {
              "description": "The markup of the text; omit for plain text.",
              "type": "string",
              "enum": [
                "HTML",
                "MarkdownV2",
                "Markdown"
              ]
            },
            "disableNotification": {
              "description": "True to send without a sound.",
              "type": "boolean"
            }
          },
          "required": [
            "chatId",
            "text"
          ]
        }"#]]
    .assert_eq(&format!("{schema:#}"));
}

#[test]
fn a_message_goes_out_under_the_names_of_the_api() {
    let world = world(Some(TOKEN));
    let longest = "ü".repeat(4096);
    for (arguments, params) in [
        (
            json!({"chatId": -100_123_456_789_i64, "text": "hi"}),
            json!({"chat_id": -100_123_456_789_i64, "text": "hi"}),
        ),
        (json!({"chatId": "@garden", "text": longest}), json!({"chat_id": "@garden", "text": longest})),
        (
            json!({"chatId": "5", "text": " *hi* ", "parseMode": "MarkdownV2", "disableNotification": true}),
            json!({"chat_id": "5", "text": " *hi* ", "parse_mode": "MarkdownV2", "disable_notification": true}),
        ),
        (
            json!({"chatId": 5, "text": "<b>hi</b>", "parseMode": "HTML", "disableNotification": false,
                "token": "1:other", "messengerToken": "1:other", "method": "logOut", "chat_id": 6}),
            json!({"chat_id": 5, "text": "<b>hi</b>", "parse_mode": "HTML", "disable_notification": false}),
        ),
    ] {
        assert_eq!(send(&world, arguments.clone()), Ok(json!({"sent": true, "messageId": 7})), "{arguments}");
        assert_eq!(world.messenger.take_calls(), [(TOKEN.to_owned(), "sendMessage".to_owned(), params)]);
    }
    // Some methods return `true`.
    for result in [json!(true), json!({}), json!({"message_id": "7"}), Value::Null] {
        world.messenger.answers(Ok(result));
        assert_eq!(send(&world, json!({"chatId": 5, "text": "hi"})), Ok(json!({"sent": true})));
    }
}

#[test]
fn invalid_messages_are_not_sent() {
    let world = world(Some(TOKEN));
    for (arguments, expected) in [
        (json!({}), "missing field `chatId`"),
        (json!({"chatId": 5}), "missing field `text`"),
        (json!({"chatId": 5, "text": ""}), "text must not be empty"),
        (json!({"chatId": 5, "text": " \n "}), "text must not be empty"),
        (json!({"chatId": 5, "text": "x".repeat(4097)}), "text has 4097 characters; the limit is 4096"),
        (json!({"chatId": 5, "text": 5}), "text: invalid type: integer `5`, expected a string"),
        (json!({"chatId": "", "text": "hi"}), "chatId must have 1 to 128 characters"),
        (json!({"chatId": "x".repeat(129), "text": "hi"}), "chatId must have 1 to 128 characters"),
        (json!({"chatId": 1.5, "text": "hi"}), "chatId: must be an integer or a string"),
        (json!({"chatId": [5], "text": "hi"}), "chatId: must be an integer or a string"),
        (json!({"chatId": null, "text": "hi"}), "chatId: must be an integer or a string"),
        (json!({"chatId": u64::MAX, "text": "hi"}), "chatId: must be an integer or a string"),
        (
            json!({"chatId": 5, "text": "hi", "parseMode": "html"}),
            "parseMode: unknown variant `html`, expected one of `HTML`, `MarkdownV2`, `Markdown`",
        ),
        (
            json!({"chatId": 5, "text": "hi", "disableNotification": "yes"}),
            "disableNotification: invalid type: string \"yes\", expected a boolean",
        ),
    ] {
        assert_eq!(
            send(&world, arguments.clone()),
            Err(format!("invalid arguments: {expected}")),
            "{arguments}"
        );
    }
    assert_eq!(world.messenger.take_calls(), []);
}

#[test]
fn a_missing_bot_is_reported() {
    let good = json!({"chatId": 5, "text": "hi"});
    let no_token = "no message can be sent: the agent has no messengerToken";
    let bad_token = "no message can be sent: the agent's messengerToken is not a bot's token";
    for (token, expected) in [
        (None, no_token),
        (Some(""), no_token),
        (Some(" "), bad_token),
        (Some("token-canary/../x"), bad_token),
        (Some("token-canary\n"), bad_token),
    ] {
        let world = world(token);
        assert_eq!(send(&world, good.clone()), Err(expected.to_owned()), "{token:?}");
        assert_eq!(world.messenger.take_calls(), []);
    }
    let records = Arc::new(MemoryRecords::default());
    let tools = builtin_tools(records, Arc::new(RecordRoleStore::in_memory()), ToolServices::default());
    let expected =
        ready(tools.call(&ada(), "sendMessengerMessage", good, &NoProgress)).expect_err("no messenger");
    assert_eq!(expected.to_string(), "no message can be sent: RUNTIME_URL is not configured");
}

#[test]
fn errors_of_the_messenger_are_reported_without_its_text() {
    let world = world(Some(TOKEN));
    let refused = |status, description: &str, after: Option<u64>| MessengerError::Refused {
        status,
        description: format!("{description} upstream-canary {TOKEN}"),
        retry_after: after.map(Duration::from_secs),
    };
    let failed = |kind, words: &'static str| AgentError::new(kind, words).with_source("source-canary");
    let patient = failed(AgentErrorKind::RateLimited, "x").with_retry_after(Duration::from_secs(9));
    let not_sent = "the message was not sent: ";
    let unknown = "the message may or may not have been sent: ";
    for (error, expected) in [
        (
            MessengerError::NotConfigured("MESSENGER_API_URL"),
            "no message can be sent: MESSENGER_API_URL is not configured".into(),
        ),
        (
            refused(429, "Too Many Requests: retry after 30", Some(30)),
            format!("{not_sent}the messenger is rate limiting; retry in 30 seconds"),
        ),
        (
            refused(429, "Too Many Requests", None),
            format!("{not_sent}the messenger is rate limiting requests (HTTP 429)"),
        ),
        (
            refused(400, "Bad Request: chat not found", None),
            format!("{not_sent}the chat does not exist, or the bot is not a member"),
        ),
        (
            refused(403, "Forbidden: bot was blocked by the user", None),
            format!("{not_sent}the user has blocked the bot"),
        ),
        (
            refused(400, "Bad Request: can't parse entities: Unclosed", None),
            format!("{not_sent}the text's markup is invalid: correct it, or omit parseMode"),
        ),
        (
            refused(400, "Bad Request: something new", None),
            format!("{not_sent}the messenger's API rejected the call (HTTP 400)"),
        ),
        (
            refused(401, "Unauthorized", None),
            format!("{not_sent}the messenger does not know the bot: the agent's messengerToken is invalid"),
        ),
        (
            refused(500, "Internal Server Error", None),
            format!("{not_sent}the messenger's API failed (HTTP 500)"),
        ),
        (refused(502, "Bad Gateway", None), format!("{unknown}the messenger's API failed (HTTP 502)")),
        (
            refused(503, "Service Unavailable", Some(3)),
            format!("{not_sent}the messenger is rate limiting; retry in 3 seconds"),
        ),
        (patient.into(), format!("{not_sent}the messenger is rate limiting; retry in 9 seconds")),
        (failed(AgentErrorKind::Timeout, "nothing came").into(), format!("{unknown}nothing came")),
    ] {
        world.messenger.answers(Err(error));
        let result = send(&world, json!({"chatId": 5, "text": "hi"}));
        assert_eq!(result.as_ref().err(), Some(&expected));
        assert!(!expected.contains("canary"), "{expected}");
        assert_eq!(world.messenger.take_calls().len(), 1, "it is never sent again");
    }
}
