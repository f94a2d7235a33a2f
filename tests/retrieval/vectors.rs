//! Search by vectors with an embedding server: documents are found by their meaning once they are embedded, and by their
//! words always.

use serde_json::{Value, json};

use super::{found, retrieve, workspace_with_documents};
use crate::support::embedder::{Behaviour, EmbeddingServer};
use crate::support::server::{self, Server, session_token};
use crate::support::vendor::{Vendor, answer};
use crate::support::{expect_problem, parse_run, poll_until};

/// A key that must not be seen in answers.
const KEY: &str = "embedding-key-canary";

async fn app_with(server: &EmbeddingServer) -> Server {
    let mut workspace = workspace_with_documents("http://127.0.0.1:9/v1");
    workspace["users"] = json!([{"id": "boss", "companyId": "c1", "role": "admin"}]);
    app_with_workspace(server, &workspace).await
}

async fn app_with_workspace(server: &EmbeddingServer, workspace: &Value) -> Server {
    let settings = [
        ("EMBEDDING_PROVIDER", "openai"),
        ("EMBEDDING_BASE_URL", &server.url()),
        ("EMBEDDING_MODEL", "m"),
        ("EMBEDDING_API_KEY", KEY),
    ];
    server::app(workspace, &settings).await
}

/// Returns a text on one of twenty topics, with words of the topic and words of its own.
fn topical_text(number: usize) -> String {
    let word = |n: usize| -> String {
        let letters = (0..6).map(|digit| char::from(b'a' + (n * 7919 / 13_usize.pow(digit) % 13) as u8));
        letters.collect()
    };
    let of_topic =
        (0..9_usize).filter(|n| !(n + number / 20).is_multiple_of(3)).map(|n| number % 20 * 50 + n);
    let own = (0..3).map(|n| 2_000 + number * 3 + n);
    let words: Vec<String> = of_topic.chain(own).map(word).collect();
    format!("This is the text that was by those who are here in the house and not {}.", words.join(" "))
}

/// Returns a workspace whose agent retrieves from eighty documents, and their identifiers.
fn topical_workspace(base_url: &str) -> (Value, Vec<String>) {
    let mut workspace = workspace_with_documents(base_url);
    let ids: Vec<String> = (0..80).map(|number| format!("d{number}")).collect();
    let document = |(number, id): (usize, &String)| json!({"id": id, "companyId": "c1", "title": "Text", "text": topical_text(number)});
    workspace["documents"] = ids.iter().enumerate().map(document).collect();
    workspace["agents"][0]["content"]["ragDocumentIds"] = json!(ids);
    (workspace, ids)
}

/// Returns the retrieval of a preview.
async fn preview(app: &Server, message: &str) -> Value {
    let request = app.request("POST", "/api/svcchat/previewPrompt").bearer_auth(session_token("u1", "c1"));
    let body = json!({"agentId": "a1", "message": message});
    let body: Value = request.json(&body).send().await.expect("an answer").json().await.expect("JSON");
    body["retrieval"].clone()
}

/// Returns the sources that a run announces.
async fn sources(app: &Server, message: &str) -> Value {
    let response = app.chat(&json!({"agentId": "a1", "message": message})).await;
    let events = parse_run(&response.text().await.expect("a whole body"));
    let announced = events.iter().find(|event| event["name"] == "agent.sources");
    announced.expect("the sources are announced")["value"].clone()
}

/// Returns document, range and score of each fragment.
fn fragment_ranges(shown: &Value) -> Vec<[&Value; 4]> {
    let fragments = shown["fragments"].as_array().expect("a list");
    fragments
        .iter()
        .map(|fragment| ["documentId", "start", "end", "score"].map(|name| &fragment[name]))
        .collect()
}

async fn document(app: &Server, id: &str) -> Value {
    let request = app.request("GET", &format!("/api/documents/{id}")).bearer_auth(session_token("u1", "c1"));
    request.send().await.expect("an answer").json().await.expect("JSON")
}

/// Asks until all of the agent's documents have vectors, and the search uses them; returns the last account.
async fn search_embedded(app: &Server, query: &str) -> Value {
    let body = json!({"query": query});
    let fetch = async || {
        let status = [document(app, "handbook").await, document(app, "travel").await]
            .map(|document| document["indexed"]["embedded"].clone());
        (status, retrieve(app, "c1", &body).await.1)
    };
    let is_embedded = |(status, shown): &([Value; 2], Value)| {
        status.iter().all(|embedded| *embedded == 1)
            && shown["embedderSkipped"].is_null()
            && shown["fragments"].as_array().is_some_and(|hits| !hits.is_empty())
    };
    poll_until(fetch, is_embedded).await.1
}

#[tokio::test]
async fn documents_are_found_by_their_meaning_once_they_are_embedded() {
    let server = EmbeddingServer::start().await;
    let app = app_with(&server).await;
    let shown = search_embedded(&app, "Where do we store a voucher?").await;
    let hit = &shown["fragments"][0];
    assert_eq!(hit["documentId"], "handbook", "{shown}");
    assert!(hit["dense"].as_f64() > Some(0.9), "{hit}");
    assert_eq!((&hit["lexical"], &hit["kept"]), (&json!(0.0), &json!(true)));
    assert_eq!(shown["embedder"], "openai/m");
    let result = poll_until(
        async || document(&app, "handbook").await,
        |document| document["indexed"]["embedded"] == document["indexed"]["chunks"],
    )
    .await;
    let status = &result["indexed"];
    assert_eq!((&status["embedder"], &status["chunks"]), (&json!("openai/m"), &json!(1)), "{result}");
    // Only documents that are searched were sent, not other companies' documents nor documents that no agent has.
    let texts = server.take_texts();
    assert!(texts.iter().all(|text| !text.contains("burnt") && !text.contains("safe")), "{texts:?}");
    assert!(server.keys().iter().all(|key| *key == format!("Bearer {KEY}")));
    // A document can be written back as it was read, and a changed document is found by its new meaning.
    let mut changed = document(&app, "travel").await;
    changed["text"] = json!("Days of vacation are granted by the office.");
    let request = app.request("PUT", "/api/documents/travel").bearer_auth(session_token("u1", "c1"));
    assert_eq!(request.json(&changed).send().await.expect("an answer").status(), 200);
    let body = json!({"query": "How many holidays?"});
    let result = poll_until(
        async || retrieve(&app, "c1", &body).await.1,
        |result| found(result).first() == Some(&"travel"),
    )
    .await;
    assert!(!result.to_string().contains(KEY));
}

#[tokio::test]
async fn a_broken_embedding_server_does_not_prevent_answers() {
    for behaviour in [
        Behaviour::Fails,
        Behaviour::Hangs,
        Behaviour::OtherDimensions,
        Behaviour::NoNumbers,
        Behaviour::TooFew,
    ] {
        let server = EmbeddingServer::start().await;
        let app = app_with(&server).await;
        search_embedded(&app, "voucher").await;
        server.behave(behaviour);
        let (status, shown) = retrieve(&app, "c1", &json!({"query": "How long are receipts kept?"})).await;
        assert_eq!((status, found(&shown)[0]), (200, "handbook"), "{behaviour:?}: {shown}");
        assert!(shown["embedderSkipped"].is_string(), "{behaviour:?}: {shown}");
        assert!(!shown.to_string().contains(KEY));
    }
}

#[tokio::test]
async fn vectors_without_meaning_change_no_ranking() {
    let server = EmbeddingServer::start().await;
    server.behave(Behaviour::Meaningless);
    let vendor = Vendor::start().await;
    vendor.on("m", [answer(&["So it is [1]."]), answer(&["So it is [1]."])]);
    let (workspace, ids) = topical_workspace(&vendor.base_url());
    let app = app_with_workspace(&server, &workspace).await;
    let by_words = server::app(&workspace, &[]).await;
    let question = topical_text(7);
    let body = json!({"query": question});
    poll_until(
        async || retrieve(&app, "c1", &body).await.1,
        |shown| shown["embedderSkipped"] == "meaninglessVectors",
    )
    .await;
    for id in &ids {
        poll_until(async || document(&app, id).await, |document| document["indexed"]["embedded"] == 1).await;
    }
    server.take_texts();
    let (_, shown) = retrieve(&app, "c1", &body).await;
    assert_eq!(
        (&shown["embedderSkipped"], &shown["embedder"]),
        (&json!("meaninglessVectors"), &json!("openai/m"))
    );
    let (_, expected) = retrieve(&by_words, "c1", &body).await;
    assert_eq!(found(&shown)[0], "d7");
    assert_eq!(shown["fragments"], expected["fragments"]);
    let previewed = preview(&app, &question).await;
    assert_eq!(previewed["embedderSkipped"], "meaninglessVectors");
    assert_eq!(previewed["fragments"], preview(&by_words, &question).await["fragments"]);
    let announced = sources(&app, &question).await;
    assert_eq!(announced["embedderSkipped"], "meaninglessVectors");
    assert_eq!(fragment_ranges(&announced), fragment_ranges(&sources(&by_words, &question).await));
    assert!(!fragment_ranges(&announced).is_empty(), "{announced}");
    assert_eq!(server.take_texts(), [""; 0], "a question is not sent for nothing");
}

/// A server whose vectors meant nothing is repaired, and goes on under the same name.
#[tokio::test]
async fn documents_are_embedded_again_after_a_repair_of_the_server() {
    let server = EmbeddingServer::start().await;
    server.behave(Behaviour::Meaningless);
    let (mut workspace, ids) = topical_workspace("http://127.0.0.1:9/v1");
    workspace["users"] = json!([{"id": "boss", "companyId": "c1", "role": "admin"}]);
    let app = app_with_workspace(&server, &workspace).await;
    let body = json!({"query": topical_text(7)});
    let fetch = async || retrieve(&app, "c1", &body).await.1;
    poll_until(async || fetch().await, |shown| shown["embedderSkipped"] == "meaninglessVectors").await;
    let all_embedded = async || {
        for id in &ids {
            poll_until(async || document(&app, id).await, |document| document["indexed"]["embedded"] == 1)
                .await;
        }
    };
    all_embedded().await;
    assert_eq!(fetch().await["embedderSkipped"], "meaninglessVectors");
    server.behave(Behaviour::Words);
    server.take_texts();
    let reindex = async |query: &str, user: &str| {
        let path = format!("/api/documents/reindex?limit=200{query}");
        app.request("POST", &path).bearer_auth(session_token(user, "c1")).send().await.expect("an answer")
    };
    // Nothing is missing, so nothing happens without the word.
    let body: Value = reindex("", "boss").await.json().await.expect("JSON");
    assert_eq!(body["documents"], json!([]));
    expect_problem(reindex("&embeddings=all", "u1").await, 403, "FORBIDDEN").await;
    expect_problem(reindex("&embeddings=none", "boss").await, 400, "INVALID_REQUEST").await;
    let body: Value = reindex("&embeddings=all&embedder=another", "boss").await.json().await.expect("JSON");
    assert_eq!(body["documents"], json!([]));
    assert_eq!(fetch().await["embedderSkipped"], "meaninglessVectors");
    assert_eq!(server.take_texts(), [""; 0]);
    let body: Value = reindex("&embeddings=all", "boss").await.json().await.expect("JSON");
    let mut announced: Vec<&str> =
        body["documents"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let mut expected: Vec<&str> = ids.iter().map(String::as_str).collect();
    announced.sort_unstable();
    expected.sort_unstable();
    assert_eq!(announced, expected);
    all_embedded().await;
    // A question on a busy machine may have to wait for the server.
    let result = poll_until(fetch, |body| body["embedderSkipped"].is_null()).await;
    assert_eq!(found(&result)[0], "d7", "{result}");
    assert!(result["fragments"][0]["dense"].as_f64() > Some(0.5), "{result}");
    let texts = server.take_texts();
    for number in 0..ids.len() {
        let text = topical_text(number);
        assert!(texts.iter().any(|sent| sent.contains(&text)), "{text}");
    }
}

/// An answer after the end of a search is that of no other search.
#[tokio::test]
async fn a_late_answer_of_the_embedding_server_is_ignored() {
    let server = EmbeddingServer::start().await;
    let app = app_with(&server).await;
    search_embedded(&app, "voucher").await;
    server.behave(Behaviour::AnswersLate);
    let (status, shown) = retrieve(&app, "c1", &json!({"query": "How long are receipts kept?"})).await;
    assert_eq!((status, found(&shown)[0]), (200, "handbook"), "{shown}");
    assert_eq!(shown["embedderSkipped"], "timeout");
    server.behave(Behaviour::Answers);
    let (_, shown) = retrieve(&app, "c1", &json!({"query": "Who books trains?"})).await;
    assert_eq!((found(&shown)[0], &shown["embedderSkipped"]), ("travel", &json!("paused")), "{shown}");
    let shown = search_embedded(&app, "railway").await;
    assert_eq!(found(&shown)[0], "travel", "{shown}");
}

/// The readers of a document see why it has no vectors, and when the next attempt is made.
#[tokio::test]
async fn documents_are_embedded_after_invalid_answers() {
    let server = EmbeddingServer::start().await;
    server.behave(Behaviour::TooFew);
    let app = app_with(&server).await;
    retrieve(&app, "c1", &json!({"query": "voucher"})).await;
    let look = async || document(&app, "handbook").await["indexed"].clone();
    let has_failed = |indexed: &Value| indexed["embeddingFailure"].is_object();
    let shown = poll_until(async || look().await, has_failed).await;
    let failure = &shown["embeddingFailure"];
    assert_eq!((&failure["reason"], &shown["embedded"]), (&json!("invalidAnswer"), &json!(0)), "{shown}");
    assert!(failure["failures"].as_u64() >= Some(1), "{failure}");
    let retry_at = failure["retryAt"].as_str().expect("a time");
    assert_eq!(retry_at.len(), "2026-11-30T09:00:00.000Z".len(), "{failure}");
    server.behave(Behaviour::Answers);
    let shown = poll_until(look, |indexed| indexed["embedded"] == 1).await;
    assert_eq!(shown["embeddingFailure"], Value::Null, "{shown}");
}

#[tokio::test]
async fn admins_have_documents_embedded_again() {
    let server = EmbeddingServer::start().await;
    let app = app_with(&server).await;
    let reindex = async |query: &str, user: &str| {
        let path = format!("/api/documents/reindex{query}");
        app.request("POST", &path).bearer_auth(session_token(user, "c1")).send().await.expect("an answer")
    };
    // `secret` is searched by no agent, so nothing has embedded it.
    expect_problem(reindex("", "u1").await, 403, "FORBIDDEN").await;
    let body: Value = reindex("", "boss").await.json().await.expect("JSON");
    let ids = body["documents"].as_array().expect("a list");
    assert!(ids.contains(&json!("secret")), "{body}");
    poll_until(async || document(&app, "secret").await, |document| document["indexed"]["embedded"] == 1)
        .await;
    poll_until(
        async || reindex("", "boss").await.json::<Value>().await.expect("JSON"),
        |body| body["documents"] == json!([]),
    )
    .await;
    let body: Value = reindex("?embedder=another", "boss").await.json().await.expect("JSON");
    assert_eq!(body["documents"], json!([]));
    // Without an embedding model there is nothing to do.
    let mut workspace = workspace_with_documents("http://127.0.0.1:9/v1");
    workspace["users"] = json!([{"id": "boss", "companyId": "c1", "role": "admin"}]);
    let app = server::app(&workspace, &[]).await;
    let request = app.request("POST", "/api/documents/reindex").bearer_auth(session_token("boss", "c1"));
    expect_problem(request.send().await.expect("an answer"), 503, "NOT_CONFIGURED").await;
}
