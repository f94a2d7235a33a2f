//! Requests to the backends, and events of runs, with retrieved fragments.

use serde_json::{Value, json};

use super::workspace_with_documents;
use crate::support::parse_run;
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Vendor, answer, json_response};

const QUESTION: &str = "How long are receipts kept?";
const QUOTED: &str = "Receipts are kept for ten years in the cellar.";

fn custom<'a>(events: &'a [Value], name: &str) -> Option<&'a Value> {
    events
        .iter()
        .find(|event| event["type"] == "CUSTOM" && event["name"] == name)
        .map(|event| &event["value"])
}

async fn preview(app: &Server) -> Value {
    let request = app.request("POST", "/api/svcchat/previewPrompt").bearer_auth(session_token("u1", "c1"));
    let body = json!({"agentId": "a1", "message": QUESTION});
    request.json(&body).send().await.expect("an answer").json().await.expect("JSON")
}

#[tokio::test]
async fn fragments_end_the_system_prompt_and_are_cited() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["Ten years [", "1], ", "not five [7]."])]);
    let app = server::app(&workspace_with_documents(&vendor.base_url()), &[]).await;
    let preview = preview(&app).await;
    let response = app.chat(&json!({"agentId": "a1", "message": QUESTION})).await;
    let events = parse_run(&response.text().await.expect("a whole body"));

    let request_body = &vendor.received_bodies("m")[0];
    let system = request_body["messages"][0]["content"].as_str().expect("a system prompt");
    assert_eq!(preview["payload"]["messages"][0]["content"], system, "the preview shows what was sent");
    assert!(system.trim_end().ends_with('>') && system.contains(QUOTED), "{system}");
    assert!(!system.contains("board") && !system.contains("burnt"), "{system}");
    assert_eq!(preview["retrieval"]["fragments"][0]["documentId"], "handbook");
    let parts = preview["systemPromptParts"].as_array().expect("a list");
    let last = parts.last().expect("a part");
    assert_eq!((&last["source"], &last["stability"]), (&json!("retrieval"), &json!("turn")));
    assert_eq!(last["origin"]["id"], "handbook");

    let sources = custom(&events, "agent.sources").expect("the sources are announced");
    let source = &sources["fragments"][0];
    assert_eq!(
        (&source["id"], &source["documentId"], &source["title"]),
        (&json!("1"), &json!("handbook"), &json!("Handbook"))
    );
    assert_eq!((&source["start"], &source["end"]), (&json!(0), &json!(58)));
    let first_text = events.iter().position(|event| event["type"] == "TEXT_MESSAGE_START");
    let announced = events.iter().position(|event| event["name"] == "agent.sources");
    assert!(announced < first_text, "before the first text");
    let citations = custom(&events, "agent.citations").expect("the citations are announced");
    assert_eq!(citations["citations"][0]["fragment"], "1");
    assert_eq!(citations["citations"][0]["at"], json!([10, 13]));
    assert_eq!(citations["unknown"], 1, "a mark without a fragment is counted");
}

#[tokio::test]
async fn a_ui_message_has_the_cited_documents_as_parts() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["Ten years [1]."])]);
    let app = server::app(&workspace_with_documents(&vendor.base_url()), &[]).await;
    let query = "?format=ui-message";
    let response =
        app.chat_as(&session_token("u1", "c1"), query, &json!({"agentId": "a1", "message": QUESTION})).await;
    let body = response.text().await.expect("a whole body");
    let chunks = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let chunks: Vec<Value> = chunks.filter_map(|data| serde_json::from_str(data).ok()).collect();
    let parts: Vec<&Value> = chunks.iter().filter(|chunk| chunk["type"] == "source-document").collect();
    let metadata = json!({"agentd": {"documentId": "handbook", "start": 0, "end": 58}});
    assert_eq!(
        parts,
        [
            &json!({"type": "source-document", "sourceId": "1", "mediaType": "text/markdown", "title": "Handbook",
            "providerMetadata": metadata})
        ]
    );
}

/// Positions are in characters, and `bytes` in bytes.
#[tokio::test]
async fn the_source_of_an_upload_has_its_media_type_and_place() {
    let text = "Receipts are kept for ten years in Zürich and Köln.";
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["Ten years [1]."])]);
    let app = server::app(&workspace_with_documents(&vendor.base_url()), &[]).await;
    let path = "/api/documents/handbook/content";
    let request = app.request("PUT", path).bearer_auth(session_token("u1", "c1"));
    let request = request.header("content-type", "text/plain").header("prefer", "wait=60");
    assert_eq!(request.body(text).send().await.expect("an answer").status(), 200);
    let response = app.chat(&json!({"agentId": "a1", "message": QUESTION})).await;
    let events = parse_run(&response.text().await.expect("a whole body"));
    let sources = custom(&events, "agent.sources").expect("the sources are announced");
    let source = &sources["fragments"][0];
    assert_eq!(
        (&source["documentId"], &source["mediaType"]),
        (&json!("handbook"), &json!("text/plain")),
        "{source}"
    );
    assert_eq!((&source["start"], &source["end"]), (&json!(0), &json!(text.chars().count())), "{source}");
    assert_eq!(source["bytes"], json!([0, text.len()]), "{source}");
}

#[tokio::test]
async fn fragments_are_in_the_latest_turn_if_the_role_sets_it() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["Ten years."])]);
    let mut workspace = workspace_with_documents(&vendor.base_url());
    workspace["agents"][0]["content"]["ragPlacement"] = "latestTurn".into();
    let app = server::app(&workspace, &[]).await;
    let response = app.chat(&json!({"agentId": "a1", "message": QUESTION})).await;
    parse_run(&response.text().await.expect("a whole body"));
    let request_body = &vendor.received_bodies("m")[0];
    assert!(!request_body["messages"][0].to_string().contains(QUOTED));
    let latest = request_body["messages"][1]["content"].as_str().expect("text");
    assert!(latest.contains(QUOTED) && latest.ends_with(QUESTION), "{latest}");
}

#[tokio::test]
async fn a_workflow_gets_fragments_in_a_separate_field() {
    let vendor = Vendor::start().await;
    vendor.on("a1", [json_response("200 OK", "", r#"{"output":"Ten years."}"#)]);
    let mut workspace = workspace_with_documents("http://unused.example/v1");
    workspace["agents"][0]["children"] =
        json!([{"name": "WorkflowConnector", "content": {"webhookUrl": vendor.webhook_url()}}]);
    let app = server::app(&workspace, &[]).await;
    let preview = preview(&app).await;
    let response = app.chat(&json!({"agentId": "a1", "message": QUESTION})).await;
    parse_run(&response.text().await.expect("a whole body"));
    let request_body = vendor.received()[0].json();
    let context = request_body["ragContext"].as_str().expect("the field is there");
    assert!(context.contains(QUOTED), "{context}");
    assert!(!request_body["roleData"]["finalSystemPrompt"].to_string().contains(QUOTED));
    assert_eq!(preview["payload"]["ragContext"], context);
    let placements: Vec<&Value> = preview["systemPromptParts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|part| &part["placement"])
        .collect();
    assert_eq!(placements.last(), Some(&&json!("detached")));
}

#[tokio::test]
async fn visitors_see_titles_where_the_role_shows_sources() {
    for shows in [false, true] {
        let vendor = Vendor::start().await;
        vendor.on("m", [answer(&["Ten years [1]."])]);
        let mut workspace = workspace_with_documents(&vendor.base_url());
        workspace["agents"][0]["content"]["showSources"] = shows.into();
        let app = server::app(&workspace, &[]).await;
        let mint = app.request("POST", "/api/agents/a1/tokens").bearer_auth(session_token("u1", "c1"));
        let minted: Value = mint
            .json(&json!({"kind": "widget"}))
            .send()
            .await
            .expect("an answer")
            .json()
            .await
            .expect("JSON");
        let token = minted["token"].as_str().expect("a token");
        let ask = app.request("POST", "/api/agent/chat").header("x-widget-token", token);
        let ask =
            ask.header("accept", "application/x-ndjson").json(&json!({"agentId": "a1", "message": QUESTION}));
        let response = ask.send().await.expect("an answer");
        let events = parse_run(&response.text().await.expect("a whole body"));
        let sources = custom(&events, "agent.sources");
        let expected = json!({"fragments": [{"id": "1", "title": "Handbook"}]});
        assert_eq!(sources, Some(&expected).filter(|_| shows));
        assert_eq!(custom(&events, "agent.citations").is_some(), shows);
        assert!(vendor.received_bodies("m")[0].to_string().contains(QUOTED), "the answer is the same");
    }
}

#[tokio::test]
async fn a_user_may_switch_retrieval_off() {
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["I do not know."])]);
    let mut workspace = workspace_with_documents(&vendor.base_url());
    workspace["users"][0]["ragEnabled"] = false.into();
    let app = server::app(&workspace, &[]).await;
    let response = app.chat(&json!({"agentId": "a1", "message": QUESTION})).await;
    let events = parse_run(&response.text().await.expect("a whole body"));
    assert!(custom(&events, "agent.sources").is_none());
    assert!(!vendor.received_bodies("m")[0].to_string().contains("Receipts"));
}
