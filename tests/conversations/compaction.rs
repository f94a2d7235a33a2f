//! Long conversations in threads: their summaries, and what becomes of them.

use agent_platform::records::Collection;
use serde_json::{Value, json};

use super::{ConversationApp, call_as};
use crate::support::server::{self, session_token};
use crate::support::vendor::{Vendor, answer};
use crate::support::{poll_until, workspace};

/// Beginning of the instruction for a summary.
const INSTRUCTION: &str = "You keep the record";

/// Starts the application with an agent whose model has a small window, and a vendor that answers and summarizes.
async fn start() -> ConversationApp {
    let vendor = Vendor::start().await;
    vendor.on_all_with(|body| match is_summary(body) {
        true => answer(&["The user asks about parcels."]),
        false => answer(&["The parcel is in Bonn. ".repeat(20).as_str()]),
    });
    let mut file = workspace(&vendor.base_url(), "m");
    let content = &mut file["agents"][0]["content"];
    content["mcpPreset"] = json!("none");
    content["contextWindow"] = json!(4_000);
    content["maxOutputTokens"] = json!(500);
    let stores = server::stores(&file).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    ConversationApp { vendor, app, stores }
}

fn is_summary(body: &Value) -> bool {
    body["messages"][0]["content"].as_str().is_some_and(|text| text.starts_with(INSTRUCTION))
}

/// Returns the number of calls for summaries.
fn summary_calls(test: &ConversationApp) -> usize {
    test.vendor.received().iter().filter(|request| is_summary(&request.json())).count()
}

fn compacted(events: &[Value]) -> Option<&Value> {
    events.iter().find(|event| event["value"]["kind"] == "compacted").map(|event| &event["value"])
}

async fn summaries(test: &ConversationApp) -> u64 {
    let user_summaries =
        Collection::new("c1", "summaries").and_then(|all| all.within("u1")).expect("a collection");
    test.stores.records.count(&user_summaries).await.expect("counted")
}

fn question(turn: usize) -> String {
    format!("Where is parcel {turn}? {}", "It was sent on Monday. ".repeat(10))
}

/// Says something until the conversation is compacted. Returns the number of turns, the account of the last one, and the
/// runs.
async fn compact(test: &ConversationApp, thread: &str) -> (usize, Value, Vec<String>) {
    let mut runs = Vec::new();
    for turn in 0..60 {
        let result = test.say(thread, &question(turn)).await;
        runs.push(result.run_id());
        if let Some(account) = compacted(&result.events) {
            return (turn + 1, account.clone(), runs);
        }
    }
    panic!("it is not compacted");
}

async fn preview(test: &ConversationApp, app: &server::Server, message: &str) -> Value {
    let body = json!({"agentId": "a1", "threadId": "t", "message": message});
    let session = session_token("u1", "c1");
    let (status, shown) = call_as(app, &session, "POST", "/api/svcchat/previewPrompt", Some(body)).await;
    assert_eq!(status, 200, "{shown}: {}", test.vendor.received().len());
    shown
}

#[tokio::test]
async fn a_thread_is_summarized_once_for_all_processes_and_keeps_its_messages() {
    let test = start().await;
    let (turns, account, runs) = compact(&test, "t").await;
    assert!(account["messages"].as_u64() > Some(0), "{account}");
    assert!(account["tokensAfter"].as_u64() < account["tokensBefore"].as_u64(), "{account}");
    let made = summary_calls(&test);
    assert!(made > 0);
    let preview_body = preview(&test, &test.app, "And now?").await;
    let text = preview_body["compaction"]["text"].as_str().expect("a text");
    assert!(text.contains("The user asks about parcels.") && text.contains("Where is parcel"), "{text}");
    assert_eq!(
        (&preview_body["compaction"]["sha256"], &preview_body["compaction"]["summary"]),
        (&account["sha256"], &json!("stored"))
    );
    let other = test.another_process().await;
    let elsewhere = preview(&test, &other, "And now?").await;
    assert_eq!(elsewhere["compaction"], preview_body["compaction"]);
    assert_eq!(elsewhere["payload"]["messages"][1], preview_body["payload"]["messages"][1]);
    // The sent request equals the preview.
    let turn = test.say("t", "And now?").await;
    assert_eq!(compacted(&turn.events).expect("it stays compacted")["sha256"], account["sha256"]);
    let received = test.vendor.received();
    let sent = received.iter().rev().map(|request| request.json()).find(|body| !is_summary(body));
    let sent = sent.expect("a request");
    assert_eq!(sent["messages"][1], preview_body["payload"]["messages"][1], "the block");
    assert_eq!(summary_calls(&test), made, "it is made once");
    // The thread has all messages.
    let kept = test.get("/api/threads/t?limit=200").await;
    assert_eq!(kept["nodes"].as_array().map(Vec::len), Some(2 * (turns + 1)));
    // The calls, one for each piece of the history, are booked to the runs.
    let booked = async || {
        let mut summaries_found = Vec::new();
        for run in &runs {
            // A run that is not booked yet is not found.
            let (_, usage) = test.call("GET", &format!("/api/usage/runs/{run}"), None).await;
            let entries = usage["entries"].as_array().cloned().unwrap_or_default();
            summaries_found.extend(entries.into_iter().filter(|entry| entry["operation"] == "compact"));
        }
        summaries_found
    };
    let result = poll_until(booked, |summaries_found| summaries_found.len() >= made).await;
    assert!(result.len() == made && result.iter().all(|entry| entry["outcome"] == "ok"), "{result:?}");
}

#[tokio::test]
async fn a_summary_is_deleted_with_its_thread() {
    let test = start().await;
    compact(&test, "t").await;
    poll_until(async || summaries(&test).await, |count| *count > 0).await;
    let (status, _) = test.call("DELETE", "/api/threads/t", None).await;
    assert_eq!(status, 204);
    assert_eq!(summaries(&test).await, 0);
}

#[tokio::test]
async fn invalid_settings_are_refused_with_their_path() {
    let test = start().await;
    let (_, agent) = test.call("GET", "/api/agents/a1", None).await;
    for (compaction, path) in [
        (json!({"mode": "on"}), "content.compaction.mode"),
        (json!({"at": 0.7}), "content.compaction.to"),
        (json!({"model": {"apiKey": "sk-1"}}), "content.compaction.model.apiKey"),
        (json!({"model": {"provider": "opnai", "model": "m"}}), "content.compaction.model.provider"),
    ] {
        let mut changed = agent.clone();
        changed["content"]["compaction"] = compaction;
        let (status, problem) = test.call("PUT", "/api/agents/a1", Some(changed)).await;
        assert_eq!(status, 400, "{problem}");
        assert!(problem.to_string().contains(path), "{problem}");
    }
    let mut changed = agent;
    changed["content"]["compaction"] = json!({"mode": "auto", "at": 0.9, "to": 0.3});
    let (status, saved) = test.call("PUT", "/api/agents/a1", Some(changed)).await;
    assert_eq!(status, 200, "{saved}");
    assert_eq!(saved["content"]["compaction"]["at"], 0.9);
}
