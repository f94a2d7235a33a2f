//! Preview against the request that the backend received.

use std::collections::BTreeMap;

use agent_core::payload::Payload;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{preview, text, workspace_with_container};
use crate::support::parse_run;
use crate::support::server::{self, INTERNAL_SECRET, Server, session_token};
use crate::support::vendor::{Vendor, json_response};

const KEY: &str = "role-key-canary";
const THREAD: &str = "thread-canary";

/// Credentials that can start a run.
#[derive(Debug, Clone, Copy)]
enum RunCredential {
    Session,
    Proactive,
}

fn question(run_id: &str) -> Value {
    json!({
        "agentId": "a1", "threadId": THREAD, "runId": run_id, "tabId": "tab-1", "todoListId": "l1",
        "messages": [
            {"role": "user", "content": "What is \"left\"?"},
            {"role": "assistant", "toolCalls": [
                {"id": "c1", "type": "function", "function": {"name": "readTodos", "arguments": "{}"}}]},
            {"role": "tool", "toolCallId": "c1", "content": "Water the basil – today"}
        ],
        "message": "Sure?\nReally?",
        "pageContext": {"url": "/plants"}, "blocksContext": [{"id": "b1"}],
    })
}

/// Returns the preview's payload, byte for byte, and its hash.
async fn preview_payload(app: &Server, by: RunCredential, run_id: &str) -> (String, String) {
    let query = match by {
        RunCredential::Session => "",
        RunCredential::Proactive => "?trigger=every%20morning",
    };
    let text = text(preview(app, query, &question(run_id))).await;
    assert!(!text.contains(KEY), "{text}");
    let answer: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).expect("an object");
    let hash = serde_json::from_str(answer["requestSha256"].get()).expect("a string");
    (answer["payload"].get().to_owned(), hash)
}

/// Runs the turn and returns the hash announced in the run's events.
async fn run_and_get_hash(app: &Server, by: RunCredential, run_id: &str) -> String {
    let mut body = question(run_id);
    let request = app.request("POST", "/api/agent/chat");
    let request = match by {
        RunCredential::Session => request.bearer_auth(session_token("u1", "c1")),
        RunCredential::Proactive => {
            body["userId"] = "u1".into();
            body["companyId"] = "c1".into();
            request.bearer_auth(INTERNAL_SECRET).header("x-proactive-trigger", "every morning")
        }
    };
    let response = request.json(&body).send().await.expect("an answer");
    let events = parse_run(&response.text().await.expect("a whole body"));
    let prompt = events.iter().find(|event| event["name"] == "agent.prompt").expect("it is announced");
    prompt["value"]["requestSha256"].as_str().expect("a hash").to_owned()
}

/// Returns the request that was sent, with the parts masked that a preview must not show.
fn mask_secrets(sent: &[u8], run_id: &str) -> String {
    let mut text = String::from_utf8(sent.to_vec()).expect("UTF-8");
    for secret in [KEY, THREAD, run_id] {
        text = text.replace(secret, "***");
    }
    // The run token in the MCP server's URL.
    if let Some((before, after)) = text.split_once("?token=") {
        let end = after.find(['&', '"']).expect("the string ends");
        text = format!("{before}?token=***{}", &after[end..]);
    }
    text
}

fn sha256(text: &str) -> String {
    let mut payload = Payload::builder(text.len());
    payload.raw(text);
    payload.finish().sha256()
}

#[tokio::test]
async fn the_preview_shows_the_request_that_is_sent() {
    let vendor = Vendor::start().await;
    let openai = json!({"provider": "openai", "model": "m", "baseUrl": vendor.base_url(), "apiKey": KEY});
    let ollama = json!({"provider": "ollama", "model": "m", "baseUrl": vendor.ollama_url(), "apiKey": KEY});
    let responses = json!({
        "provider": "openai-responses", "model": "m", "baseUrl": vendor.base_url(), "apiKey": KEY,
        "enableThinking": true
    });
    let runtime = json!({
        "agentServerUrl": vendor.ollama_url(), "agentServerProvider": "openai", "agentServerModel": "m",
        "agentServerLocalUrl": vendor.base_url(), "agentServerApiKey": KEY, "agentServerEnableThinking": true
    });
    let workflow = json!({
        "webhookUrl": format!("{}/hook", vendor.ollama_url()),
        "auth": {"type": "header", "name": "x-key", "value": KEY}
    });
    vendor.on("a1", [json_response("200 OK", "", r#"{"output":"hello"}"#)]);
    let backends = [
        ("EmbeddedAI", openai, false),
        ("EmbeddedAI", ollama, false),
        ("EmbeddedAI", responses, false),
        ("AgentServer", runtime, true),
        ("WorkflowConnector", workflow, true),
    ];
    let mut count = 0;
    for (container, content, names_the_run) in backends {
        let app = server::app(&workspace_with_container(container, &content), &[]).await;
        for by in [RunCredential::Session, RunCredential::Proactive] {
            // The prompt contains the time to the minute. The comparison counts only if the previews before and after
            // the run are equal.
            loop {
                count += 1;
                let run_id = format!("run-canary-{count}");
                let (before, shown_hash) = preview_payload(&app, by, &run_id).await;
                let announced = run_and_get_hash(&app, by, &run_id).await;
                let (after, _) = preview_payload(&app, by, &run_id).await;
                if before != after {
                    continue;
                }
                let sent = vendor.received().pop().expect("the backend was asked").body;
                assert_eq!(before, mask_secrets(&sent, &run_id), "{content} {by:?}");
                assert_eq!((&sha256(&before), &announced), (&shown_hash, &shown_hash), "{content} {by:?}");
                assert_eq!(before.contains("***"), names_the_run);
                let of_the_system = before.contains("every morning");
                assert_eq!(of_the_system, matches!(by, RunCredential::Proactive), "{before}");
                break;
            }
        }
    }
    assert_eq!(vendor.received().len(), count, "a preview sends nothing");
}

#[tokio::test]
async fn each_agent_server_is_sent_what_is_shown_for_it() {
    let (first, second) = (Vendor::start().await, Vendor::start().await);
    first.on("m", [json_response("401 Unauthorized", "", "{}")]);
    let events = [
        json!({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "hello"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}),
    ];
    let body: String = events.iter().map(|event| format!("{event}\n")).collect();
    second.on("n", [json_response("200 OK", "", &body)]);
    let content = json!({
        "agentServerUrl": first.ollama_url(), "agentServerModel": "m", "agentServerApiKey": KEY,
        "fallbacks": [{"agentServerUrl": second.ollama_url(), "agentServerModel": "n", "agentServerApiKey": KEY,
            "agentServerProvider": "openai", "parameters": {"temperature": 0.5, "topK": 3}}]
    });
    let mut count = 0;
    loop {
        count += 1;
        let run_id = format!("run-canary-{count}");
        // Each application has separate circuits.
        let app = server::app(&workspace_with_container("AgentServer", &content), &[]).await;
        let shown = async || {
            let text = text(preview(&app, "?attempts=all", &question(&run_id))).await;
            assert!(!text.contains(KEY), "{text}");
            let answer: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).expect("an object");
            let attempts: Vec<BTreeMap<String, Box<RawValue>>> =
                serde_json::from_str(answer["attempts"].get()).expect("a list");
            attempts
        };
        let before = shown().await;
        let body = question(&run_id);
        let response = app.chat(&body).await.text().await.expect("a whole body");
        let after = shown().await;
        let payloads = |attempts: &[BTreeMap<String, Box<RawValue>>]| -> Vec<String> {
            attempts.iter().map(|attempt| attempt["payload"].get().to_owned()).collect()
        };
        // The prompt contains the time to the minute.
        if payloads(&before) != payloads(&after) {
            continue;
        }
        let sent = [&first, &second].map(|vendor| vendor.received().pop().expect("it was asked").body);
        assert_eq!(payloads(&before), sent.map(|sent| mask_secrets(&sent, &run_id)));
        let hashes: Vec<Value> = before
            .iter()
            .map(|attempt| serde_json::from_str(attempt["requestSha256"].get()).expect("a hash"))
            .collect();
        assert_eq!(
            hashes,
            payloads(&before).iter().map(|payload| json!(sha256(payload))).collect::<Vec<_>>()
        );
        let events = parse_run(&response);
        let announced_hashes: Vec<_> = events
            .iter()
            .filter(|event| event["value"]["kind"] == "modelAttempt")
            .map(|event| event["value"]["requestSha256"].clone())
            .collect();
        assert_eq!(announced_hashes, hashes, "the attempt reports the sent request");
        let field = |attempts: &[BTreeMap<String, Box<RawValue>>], index: usize, name: &str| {
            attempts[index].get(name).map(|value| value.get().to_owned())
        };
        assert_eq!(field(&before, 1, "ignoredParameters").as_deref(), Some(r#"["topK"]"#));
        let state = ["circuit", "eligible", "reason"].map(|name| field(&after, 0, name).unwrap_or_default());
        assert_eq!(state, [r#""open""#, "false", r#""CIRCUIT_OPEN""#], "a refusal of the account");
        break;
    }
}
