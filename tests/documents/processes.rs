//! Two processes over one store.

use agent_platform::records::{Collection, Key, Precondition, RecordsExt as _};
use agent_platform::workspace::{collection, get_document};
use serde_json::json;

use super::{ADMIN, OWNER, WAIT, get, send, stores, upload};
use crate::support::{expect_json, expect_problem, poll_until, server};

#[tokio::test]
async fn any_process_extracts_and_all_see_the_result() {
    let stores = stores().await;
    let apps = [
        server::app_with_stores(stores.clone(), &[]).await,
        server::app_with_stores(stores.clone(), &[]).await,
    ];
    for n in 0..10 {
        let [one, other] = [&apps[n % 2], &apps[(n + 1) % 2]];
        let (id, text) = (format!("/api/documents/d{n}"), format!("text {n}"));
        let path = format!("{id}/content");
        expect_json(upload(one, OWNER, &path, &WAIT, text.clone()).await, 200).await;
        assert_eq!(expect_json(get(other, OWNER, &id).await, 200).await["text"], text.as_str());
        assert_eq!(get(other, OWNER, &path).await.text().await.expect("a body"), text);
        assert_eq!(send(other, OWNER, ("DELETE", &id), &[], "").await.status(), 204);
        expect_problem(get(one, OWNER, &path).await, 404, "NOT_FOUND").await;
        expect_problem(get(one, OWNER, &format!("{id}/text")).await, 404, "NOT_FOUND").await;
    }
}

/// Pieces of an upload whose process was killed, and pieces of a document that an older process has replaced.
#[tokio::test]
async fn pieces_of_interrupted_uploads_are_swept() {
    let stores = stores().await;
    let records = &stores.records;
    let put = async |collection: &str, id: &str, value: serde_json::Value| {
        let key = Collection::new("c1", collection).and_then(|collection| collection.key(id)).expect("a key");
        records.put_as(&key, &value, Precondition::Any).await.expect("put");
    };
    let pieces = Collection::new("c1", "documentContents").and_then(|all| all.within("d")).expect("a name");
    for id in ["g1-00000", "g1-00001", "g2-00000"] {
        let key = pieces.key(id).expect("a key");
        records.put_as(&key, &"eA==", Precondition::Any).await.expect("put");
    }
    let set = |generation: &str, pieces: usize| json!({"documentId": "d", "generation": generation, "pieces": pieces});
    let mut pending = set("g1", 2);
    pending["until"] = json!("2026-01-01T00:00:00Z");
    put("documentUploads", "g1", pending).await;
    put("documentOriginals", "d", json!({"generation": "g2", "bytes": 1, "sets": [set("g2", 1)]})).await;
    put("documents", "d", json!({"id": "d", "companyId": "c1", "text": "written by an older process"})).await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    poll_until(async || records.count(&pieces).await.expect("counted"), |count| *count == 0).await;
    assert_eq!(get(&app, OWNER, "/api/documents/d").await.status(), 200);
}

#[tokio::test]
async fn texts_of_an_older_extractor_are_extracted_again_on_request() {
    let stores = stores().await;
    let app = server::app_with_stores(stores.clone(), &[]).await;
    for id in ["new", "old"] {
        let path = format!("/api/documents/{id}/content");
        expect_json(upload(&app, OWNER, &path, &WAIT, "The text.").await, 200).await;
    }
    let company = "c1".into();
    let stored = get_document(&*stores.records, &company, "old").await.expect("read").expect("there");
    let mut document = stored.value;
    let content = document.content.as_mut().expect("an upload");
    let current = content.extractor.replace("agent-extract/0".to_owned());
    let key = Key::new(&company, collection::DOCUMENTS, "old").expect("a key");
    stores.records.put_as(&key, &document, Precondition::Any).await.expect("put");

    let outdated = ("POST", "/api/documents/reindex?texts=outdated");
    expect_problem(send(&app, OWNER, outdated, &[], "").await, 403, "FORBIDDEN").await;
    for query in ["texts=all", "texts=outdated&embeddings=all", "texts=outdated&embedder="] {
        let path = format!("/api/documents/reindex?{query}");
        expect_problem(send(&app, ADMIN, ("POST", &path), &[], "").await, 400, "INVALID_REQUEST").await;
    }
    let begun = expect_json(send(&app, ADMIN, outdated, &[], "").await, 202).await;
    assert_eq!(begun, json!({"documents": ["old"]}));
    let fetch = async || expect_json(get(&app, OWNER, "/api/documents/old").await, 200).await;
    let document = poll_until(fetch, |document| document["content"]["extractor"] == json!(current)).await;
    assert_eq!((&document["text"], &document["content"]["status"]), (&json!("The text."), &json!("ready")));
    let begun = expect_json(send(&app, ADMIN, outdated, &[], "").await, 202).await;
    assert_eq!(begun, json!({"documents": []}));
}
