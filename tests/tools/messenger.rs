//! Messenger messages through an agent's bot, sent by a model or by an MCP client.

use agent_core::clock::SystemClock;
use agent_platform::token::{Grant, McpGrant, NewToken, Tokens};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Step, Vendor, answer, json_response, tool_calls};
use crate::support::{expect_problem, parse_run, text_of, workspace};

const SECRET: &str = "runtime-canary-0123456789";
const TOKEN: &str = "1:token-canary";
const SENT: &str = r#"{"ok":true,"result":{"message_id":7,"chat":{"id":5}}}"#;
const ARGUMENTS: &str = r#"{"chatId":5,"text":"Watered."}"#;

fn path() -> String {
    format!("/bot{TOKEN}/sendMessage")
}

/// Starts a vendor that serves as model and as messenger, and returns it with a workspace whose agent has a bot.
async fn start() -> (Vendor, Value) {
    let vendor = Vendor::start().await;
    let mut workspace = workspace(&vendor.base_url(), "m");
    let content = &mut workspace["agents"][0]["content"];
    content["tools"] = json!(["sendMessengerMessage"]);
    content["messengerToken"] = TOKEN.into();
    (vendor, workspace)
}

async fn runtime(vendor: &Vendor) -> Server {
    let api = format!("http://{}", vendor.address);
    let settings = [("MESSENGER_API_URL", &*api), ("RUNTIME_SECRET", SECRET), ("OUTBOUND_ALLOW", "")];
    server::runtime(&settings).await
}

/// Returns the tool result that the model receives when it sends a message.
async fn send_and_get_tool_result(app: &Server, vendor: &Vendor) -> String {
    let request_count = vendor.received_bodies("m").len();
    vendor.on("m", [tool_calls(&[("c1", "sendMessengerMessage", ARGUMENTS)]), answer(&["Done."])]);
    let response = app.chat(&json!({"agentId": "a1", "message": "Tell them"})).await;
    let body = response.text().await.expect("a whole body");
    assert_eq!(text_of(&parse_run(&body)), "Done.");
    assert!(!body.contains("canary"), "{body}");
    let requests = vendor.received_bodies("m").split_off(request_count);
    let last = serde_json::to_string(&requests[1]).expect("JSON");
    assert!(!last.contains("canary"), "{last}");
    let messages = requests[1]["messages"].as_array().expect("messages");
    let result = messages.iter().find(|message| message["tool_call_id"] == "c1").expect("a result");
    result["content"].as_str().expect("text").to_owned()
}

#[tokio::test]
async fn messages_are_sent_by_the_operators_runtime() {
    let (vendor, workspace) = start().await;
    let runtime = runtime(&vendor).await;
    let url = runtime.url("/");
    let stores = server::stores(&workspace).await;
    let app =
        server::app_with_stores(stores.clone(), &[("RUNTIME_URL", &url), ("RUNTIME_SECRET", SECRET)]).await;
    vendor.on(&path(), [json_response("200 OK", "", SENT)]);
    assert_eq!(send_and_get_tool_result(&app, &vendor).await, r#"{"sent":true,"messageId":7}"#);

    // The same call over the MCP server, as workflows and agent servers make it.
    let grant = McpGrant { user_id: "u1".into(), ..McpGrant::default() };
    let tokens = Tokens::new(stores.records, Arc::new(SystemClock));
    let minted = tokens.mint(NewToken::new("c1", "a1", Grant::Mcp(grant))).await.expect("minted");
    let ask = async |method: &str, params: Value| -> Value {
        let request = app.request("POST", "/api/agent/mcp").bearer_auth(minted.text.expose());
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        request.json(&body).send().await.expect("an answer").json().await.expect("one message")
    };
    let list = ask("tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().expect("a list");
    let tool = tools.iter().find(|tool| tool["name"] == "sendMessengerMessage").expect("it is offered");
    let hints = json!({"readOnlyHint": false, "destructiveHint": false, "idempotentHint": false, "openWorldHint": true});
    assert_eq!(tool["annotations"], hints);
    let called = json!({"name": "sendMessengerMessage", "arguments":
        {"chatId": "@garden", "text": "Watered.", "parseMode": "HTML", "disableNotification": true},
        "_meta": {"agentd/idempotencyKey": "call-7"}});
    let called = ask("tools/call", called).await;
    assert_eq!(called["result"]["structuredContent"], json!({"sent": true, "messageId": 7}), "{called}");

    assert_eq!(
        vendor.received_bodies(&path()),
        [
            json!({"chat_id": 5, "text": "Watered."}),
            json!({"chat_id": "@garden", "text": "Watered.", "parse_mode": "HTML", "disable_notification": true}),
        ]
    );
    let to_the_api = vendor.received().into_iter().filter(|received| received.path() == path());
    let mut keys = Vec::new();
    for received in to_the_api {
        keys.extend(
            received
                .head
                .lines()
                .filter_map(|line| line.strip_prefix("idempotency-key: "))
                .map(str::to_owned),
        );
        assert!(!received.head.contains(SECRET), "the runtime's secret went on: {}", received.head);
    }
    assert!(keys.len() == 2 && keys[0].ends_with("/1/0") && keys[1] == "call-7", "{keys:?}");
}

#[tokio::test]
async fn the_model_gets_the_outcome_of_its_message() {
    let (vendor, workspace) = start().await;
    let runtime = runtime(&vendor).await;
    let url = runtime.url("");
    let app = server::app(&workspace, &[("RUNTIME_URL", &url), ("RUNTIME_SECRET", SECRET)]).await;
    let refusal = |code: u16, words: &str, more: Value| {
        let body = json!({"ok": false, "error_code": code, "description": format!("{words} canary {TOKEN}"), "parameters": more});
        json_response(&format!("{code} No"), "", &body.to_string())
    };
    let not_sent = "the message was not sent: ";
    let unknown = "the message may or may not have been sent: ";
    for (script, expected) in [
        (
            refusal(429, "Too Many Requests", json!({"retry_after": 35})),
            format!("{not_sent}the messenger is rate limiting; retry in 35 seconds"),
        ),
        (
            refusal(400, "Bad Request: chat not found", json!({})),
            format!("{not_sent}the chat does not exist, or the bot is not a member"),
        ),
        (
            refusal(401, "Unauthorized", json!({})),
            format!("{not_sent}the messenger does not know the bot: the agent's messengerToken is invalid"),
        ),
        (
            json_response("200 OK", "", &format!("<html> canary {}", path())),
            format!("{unknown}the messenger's API returned an invalid response"),
        ),
        (
            json_response("502 Bad Gateway", "", &format!("<html> canary {}", path())),
            format!("{unknown}the upstream service failed (HTTP 502)"),
        ),
        (
            json_response("200 OK", "", &format!(r#"{{"ok":true,"result":"{}"}}"#, "x".repeat(300 << 10))),
            format!("{unknown}the response exceeds 262144 bytes"),
        ),
        (
            json_response("302 Found", "location: /canary\r\n", ""),
            format!("{unknown}the messenger's response was incomplete"),
        ),
        (vec![Step::Reset], format!("{unknown}the messenger cannot be reached")),
    ] {
        vendor.on(&path(), [script]);
        assert_eq!(send_and_get_tool_result(&app, &vendor).await, expected);
    }
}

#[tokio::test]
async fn missing_settings_are_named() {
    let (vendor, mut workspace) = start().await;
    let without_api = server::runtime(&[("RUNTIME_SECRET", SECRET)]).await;
    let with_api = runtime(&vendor).await;
    let (bare, configured_url) = (without_api.url(""), with_api.url(""));
    let secret = ("RUNTIME_SECRET", SECRET);
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[], "no message can be sent: RUNTIME_URL is not configured"),
        (&[("RUNTIME_URL", &bare), secret], "no message can be sent: MESSENGER_API_URL is not configured"),
        (
            &[("RUNTIME_URL", &configured_url)],
            "the message may or may not have been sent: the agent runtime rejected RUNTIME_SECRET",
        ),
        (
            &[("RUNTIME_URL", "http://127.0.0.1:1"), secret],
            "the message was not sent: the upstream service is unreachable",
        ),
    ];
    for (settings, expected) in cases {
        let app = server::app(&workspace, settings).await;
        assert_eq!(send_and_get_tool_result(&app, &vendor).await, expected);
    }
    workspace["agents"][0]["content"]["messengerToken"] = "".into();
    let app = server::app(&workspace, &[("RUNTIME_URL", &configured_url), secret]).await;
    assert_eq!(
        send_and_get_tool_result(&app, &vendor).await,
        "no message can be sent: the agent has no messengerToken"
    );
    assert_eq!(vendor.received_bodies(&path()), [] as [Value; 0]);
}

#[tokio::test]
async fn a_bots_token_is_not_shown() {
    let (vendor, workspace) = start().await;
    let app = server::app(&workspace, &[]).await;
    let preview = "/api/svcchat/previewPrompt?agentId=a1&message=hi";
    for path in ["/api/agents/a1", "/api/agents", preview] {
        let request = app.request("GET", path).bearer_auth(session_token("u1", "c1"));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{path}");
        let body = response.text().await.expect("a body");
        assert!(body.contains("sendMessengerMessage") && !body.contains("canary"), "{path}: {body}");
    }
    let nobody = app.request("GET", preview).send().await.expect("an answer");
    expect_problem(nobody, 401, "UNAUTHENTICATED").await;
    assert_eq!(vendor.connections(), 0);
}
