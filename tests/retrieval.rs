//! Retrieval from the agent's documents: requests and events of runs, previews, and the explanations of the management route.

mod changes;
mod freshness;
mod hostile;
mod identity;
mod sent;
mod vectors;

use serde_json::{Value, json};

use crate::support::server::{self, Server, session_token};
use crate::support::workspace;

/// Returns a workspace whose agent retrieves from two of the company's documents. Another company has documents with the
/// same identifiers.
fn workspace_with_documents(base_url: &str) -> Value {
    let mut workspace = workspace(base_url, "m");
    let document = |company: &str, id: &str, title: &str, text: &str| json!({"id": id, "companyId": company, "title": title, "text": text});
    workspace["documents"] = json!([
        document(
            "c1",
            "handbook",
            "Handbook",
            "# Receipts\n\nReceipts are kept for ten years in the cellar."
        ),
        document("c1", "travel", "Travel", "# Trains\n\nTrains are booked by the office in second class."),
        document("c1", "secret", "Secret", "Receipts of the board are kept in a safe."),
        document("c2", "handbook", "Theirs", "Receipts are burnt every year."),
    ]);
    let content = &mut workspace["agents"][0]["content"];
    content["enableAutoRag"] = true.into();
    content["ragDocumentIds"] = json!(["handbook", "travel"]);
    workspace
}

/// Calls `POST /api/agents/a1/retrieve` as a user of a company.
async fn retrieve(app: &Server, company: &str, body: &Value) -> (u16, Value) {
    let request = app.request("POST", "/api/agents/a1/retrieve").bearer_auth(session_token("u1", company));
    let response = request.json(body).send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.json().await.expect("JSON"))
}

/// Returns the ids of the documents with hits, the best first.
fn found(shown: &Value) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for hit in shown["fragments"].as_array().expect("a list") {
        let id = hit["documentId"].as_str().expect("an id");
        if !found.contains(&id) {
            found.push(id);
        }
    }
    found
}

/// Starts an application whose agent is never asked to answer.
async fn open() -> Server {
    server::app(&workspace_with_documents("http://127.0.0.1:9/v1"), &[]).await
}

#[tokio::test]
async fn the_management_route_explains_each_hit() {
    let app = open().await;
    let (status, shown) = retrieve(&app, "c1", &json!({"query": "How long are receipts kept?"})).await;
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["scope"], json!(["handbook", "travel"]));
    assert_eq!(found(&shown)[0], "handbook");
    let hit = &shown["fragments"][0];
    assert_eq!((&hit["kept"], &hit["why"], &hit["rank"]), (&json!(true), &json!("kept"), &json!(1)));
    assert_eq!((&hit["heading"], &hit["start"], &hit["end"]), (&json!("Receipts"), &json!(0), &json!(58)));
    assert!(hit["matched"].as_array().is_some_and(|terms| terms.contains(&json!("receipt"))), "{hit}");
    assert!(shown["terms"].as_array().is_some_and(|terms| terms.iter().any(|term| term["from"] == "query")));
    assert!(shown["tokens"].as_u64() > Some(0));
    // A question that leaves out its subject is understood by the one before.
    let messages = json!([{"role": "user", "content": "Who books trains?"}, {"role": "assistant", "content": "The office."}]);
    let (_, shown) = retrieve(&app, "c1", &json!({"query": "In which class?", "messages": messages})).await;
    assert_eq!(found(&shown), ["travel"]);
    assert!(
        shown["terms"].as_array().is_some_and(|terms| terms.iter().any(|term| term["from"] == "previous"))
    );
    // A foreign question is rejected by the gate.
    let (_, shown) = retrieve(&app, "c1", &json!({"query": "Who painted the Mona Lisa?"})).await;
    assert!(shown["fragments"].as_array().is_some_and(|hits| hits.iter().all(|hit| hit["kept"] == false)));
}

#[tokio::test]
async fn bad_requests_get_a_typed_error() {
    let app = open().await;
    for (body, field) in [
        (json!({"query": " "}), "query"),
        (json!({"query": "x".repeat(70_000)}), "query"),
        (json!({"query": "x", "limit": 0}), "limit"),
        (json!({"query": "x", "limit": 101}), "limit"),
        (json!({"query": 1}), "query"),
    ] {
        let (status, problem) = retrieve(&app, "c1", &body).await;
        assert_eq!((status, &problem["code"]), (400, &json!("INVALID_REQUEST")), "{problem}");
        assert!(problem.to_string().contains(field), "{problem}");
    }
    let (status, _) = retrieve(&app, "c2", &json!({"query": "receipts"})).await;
    assert_eq!(status, 404, "another company's agent does not exist");
    let anonymous = app.request("POST", "/api/agents/a1/retrieve").json(&json!({"query": "x"}));
    assert_eq!(anonymous.send().await.expect("an answer").status(), 401);
}
