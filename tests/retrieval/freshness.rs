//! Changes of documents: found, and gone, with the next query, in every process.

use agent_platform::workspace::WorkspaceFile;
use agentd::stores::Stores;
use serde_json::{Value, json};

use super::{found, retrieve, workspace_with_documents};
use crate::support::poll_until;
use crate::support::server::{self, Server, session_token};

async fn put(app: &Server, id: &str, text: &str) {
    let request = app.request("PUT", &format!("/api/documents/{id}")).bearer_auth(session_token("u1", "c1"));
    let response = request.json(&json!({"title": "New", "text": text})).send().await.expect("an answer");
    assert!(response.status().is_success(), "{}", response.status());
}

async fn delete(app: &Server, id: &str) {
    let path = format!("/api/documents/{id}?force=true");
    let request = app.request("DELETE", &path).bearer_auth(session_token("u1", "c1"));
    assert_eq!(request.send().await.expect("an answer").status(), 204);
}

/// Two applications over one file: each query of either sees the change before it.
#[tokio::test]
async fn a_change_is_seen_by_the_next_query_of_every_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("data.db").display());
    let stores = async || {
        let config = server::app_config(&[("DATABASE_URL", &url), ("DATA_SECRET", "data-secret-canary")]);
        Stores::open(&config).await.expect("a store")
    };
    let first = stores().await;
    let workspace = workspace_with_documents("http://127.0.0.1:9/v1").to_string();
    let file = WorkspaceFile::parse_stored(&workspace).expect("a workspace");
    file.apply(&first.roles).await.expect("applied");
    let apps =
        [server::app_with_stores(first, &[]).await, server::app_with_stores(stores().await, &[]).await];
    let found_by = async |app: &Server, query: &str| -> Vec<String> {
        let (status, shown): (u16, Value) = retrieve(app, "c1", &json!({"query": query})).await;
        assert_eq!(status, 200, "{shown}");
        found(&shown).into_iter().map(str::to_owned).collect()
    };
    for round in 0..10_usize {
        let (writer, reader) = (&apps[round % 2], &apps[(round + 1) % 2]);
        let word = format!("gadget{}", char::from(b'a' + round as u8));
        put(writer, "travel", &format!("The {word} is in the hall.")).await;
        for app in [reader, writer] {
            assert_eq!(found_by(app, &word).await, ["travel"], "round {round}");
        }
        delete(writer, "travel").await;
        for app in [reader, writer] {
            assert!(found_by(app, &word).await.is_empty(), "round {round}");
        }
    }
}

/// A text that is too long for a record is in pieces, and searched as any other.
#[tokio::test]
async fn an_uploaded_text_of_any_length_is_searched() {
    let app = server::app(&workspace_with_documents("http://127.0.0.1:9/v1"), &[]).await;
    let filler = "Nothing of interest happens in this line of the manual.\n\n".repeat(10_000);
    let text = format!("{filler}# Valves\n\nThe relief valve is painted orange.\n\n{filler}");
    let request = app.request("PUT", "/api/documents/travel/content").bearer_auth(session_token("u1", "c1"));
    let request = request.header("content-type", "text/markdown").header("prefer", "wait=60");
    let response = request.body(text.clone()).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let query = json!({"query": "What colour has the relief valve?"});
    // The first search waits two seconds at most for the analysis.
    let fetch = async || retrieve(&app, "c1", &query).await.1;
    let result = poll_until(fetch, |shown| found(shown).first() == Some(&"travel")).await;
    let hit = &result["fragments"][0];
    let range = |name: &str| usize::try_from(hit[name].as_u64().expect("a number")).expect("small");
    assert!(text[range("start")..range("end")].contains("painted orange"), "the text is ASCII");
    delete(&app, "travel").await;
    assert!(found(&retrieve(&app, "c1", &query).await.1).is_empty());
}
