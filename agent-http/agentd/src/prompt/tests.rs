use std::collections::BTreeMap;

use crate::config::Flags;
use serde_json::{Value, json};

use super::*;

async fn shown(asked: PreviewArgs, json: bool, styles: &Styles) -> (Result<(), CommandError>, String) {
    shown_with(&[], asked, json, styles).await
}

/// Returns the output of the command with these settings.
async fn shown_with(
    settings: &[(&str, &str)],
    asked: PreviewArgs,
    json: bool,
    styles: &Styles,
) -> (Result<(), CommandError>, String) {
    let container = |content: Value| json!([{"name": "EmbeddedAI", "content": content}]);
    let vendor =
        json!({"provider": "openai", "model": "m", "baseUrl": "https://v.example", "apiKey": "key-canary"});
    let role = json!({"rules": ["Say \u{9b}31m \u{1b}[2J please."], "documentIds": ["d1"], "mcpPreset": ["readTodos"]});
    let workspace = json!({
        "users": [{"id": "u1", "companyId": "c1"}],
        "agents": [
            {"id": "a1", "ownerId": "u1", "companyId": "c1", "content": role, "children": container(vendor)},
            {"id": "nobody's", "companyId": "c1", "children": container(json!({}))},
            {"id": "mute", "ownerId": "u1", "companyId": "c1"},
            {"id": "coder", "ownerId": "u1", "companyId": "c1",
                "children": [{"name": "SubscriptionConnector", "content": {"model": "m"}}]}
        ],
        "documents": [{"id": "d1", "companyId": "c1", "title": "T", "text": "D"}]
    });
    let stores = Stores::in_memory("the test's", &workspace.to_string()).await.expect("a workspace");
    let settings: BTreeMap<&str, &str> = settings.iter().copied().collect();
    let config = AppConfig::load(&Flags::default(), &settings).expect("settings");
    let mut out = Vec::new();
    let done = show_from(&config, stores, asked, json, styles, &mut out).await;
    (done, String::from_utf8(out).expect("text"))
}

fn asked(agent: &str, user: Option<&str>) -> PreviewArgs {
    PreviewArgs {
        agent: agent.into(),
        company: None,
        message: Some("Hello?".into()),
        user: user.map(UserId::from),
        todo_list: Some("l1".into()),
    }
}

#[tokio::test]
async fn a_person_reads_the_whole_turn() {
    let (done, text) = shown(asked("a1", None), false, &Styles::plain()).await;
    done.expect("a preview");
    for line in [
        "Backend: embedded",
        "  * EmbeddedAI               present",
        "  - content.agentServerUrl   fieldMissing (agentServerUrl)",
        "System prompt",
        "Context of the latest message",
        "Tools: readTodos",
        "  the context window of m is not known, and assumed",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line:?} in {text}");
    }
    for piece in
        ["Budget: ", "Request: sha256 ", "Hello?", "rules", "role ", "Say \\u009b31m \\u001b[2J please."]
    {
        assert!(text.contains(piece), "{piece:?} in {text}");
    }
    assert!(!text.contains("key-canary"));
    let steers = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(steers, None, "{text:?}");
}

#[tokio::test]
async fn a_terminal_gets_the_same_text_with_colours() {
    let plain = shown(asked("a1", None), false, &Styles::plain()).await.1;
    let coloured = shown(asked("a1", None), false, &Styles::coloured()).await.1;
    assert!(coloured.contains("\u{1b}[32m") && !plain.contains('\u{1b}'));
    // The rest is not compared: it contains the time, and the hash of the request depends on it.
    let head = |text: &str| text.split("Context of").next().map(str::to_owned);
    let mut stripped = String::new();
    for piece in coloured.split('\u{1b}') {
        stripped.push_str(
            piece.strip_prefix('[').and_then(|code| code.split_once('m')).map_or(piece, |(_, text)| text),
        );
    }
    assert_eq!(head(&stripped), head(&plain));
}

#[tokio::test]
async fn a_program_reads_what_the_route_answers() {
    for (user, expected) in [(None, "u1"), (Some("u2"), "u2")] {
        let (done, text) = shown(asked("a1", user), true, &Styles::plain()).await;
        done.expect("a preview");
        let preview: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(preview["executionContext"]["userId"], expected);
        assert_eq!(preview["executionContext"]["todoListId"], "l1");
        assert_eq!(preview["payload"]["model"], "m");
        assert!(!text.contains("key-canary"));
    }
}

#[tokio::test]
async fn a_failed_preview_gives_its_reason() {
    let cases = [
        ("unknown", "there is no agent \"unknown\" in the database; see --agent and DATABASE_URL"),
        ("nobody's", "the agent has no owner; give a user with --user"),
        ("mute", "the prompt cannot be shown: no backend is configured for this agent"),
    ];
    for (agent, expected) in cases {
        let (done, text) = shown(asked(agent, None), false, &Styles::plain()).await;
        assert_eq!(done.expect_err("no preview").to_string(), expected);
        assert_eq!(text.starts_with("Backend: none\n  - "), agent == "mute", "{text}");
    }
}

#[tokio::test]
async fn a_subscription_is_shown_without_a_sign_in_and_without_tokens() {
    let (done, _) = shown(asked("coder", None), true, &Styles::plain()).await;
    let refused = done.expect_err("there is no runtime").to_string();
    assert!(refused.contains("RUNTIME_URL is not configured"), "{refused}");

    let settings = [("RUNTIME_URL", "http://127.0.0.1:9"), ("RUNTIME_SECRET", "runtime-canary-0123456789")];
    let (done, text) = shown_with(&settings, asked("coder", None), true, &Styles::plain()).await;
    done.expect("nothing is sent");
    assert!(!text.contains("canary"), "{text}");
    let preview: Value = serde_json::from_str(&text).expect("JSON");
    let payload = &preview["payload"];
    assert_eq!((&payload["accessToken"], &payload["accountId"]), (&json!("***"), &json!("***")));
    let body = &payload["body"];
    assert_eq!((&body["model"], &body["prompt_cache_key"]), (&json!("m"), &json!("***")));
    assert_eq!((&body["store"], &body["stream"]), (&json!(false), &json!(true)));
    let (done, text) = shown_with(&settings, asked("coder", None), false, &Styles::plain()).await;
    done.expect("nothing is sent");
    assert!(text.lines().any(|line| line == "Backend: subscription"), "{text}");
    assert!(text.contains("  * SubscriptionConnector    present"), "{text}");
}
