//! Storage of originals.

use std::time::Duration;

use serde_json::json;
use serde_json::value::to_raw_value;

use super::bench::{UploadBench, company, extractor, upload, user, work};
use crate::records::{Key, Precondition, StoreError};
use crate::workspace::{
    ContentStatus, Document, UploadUsage, WorkspaceError, append_document, collection, delete_document,
    read_original, rename_upload, restore_document, save_document, sweep_pending_pieces,
    sweep_stored_contents,
};

/// Bytes of every value, in an order that differs between pieces.
fn original(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

async fn stored(bench: &UploadBench, document: &Document) -> Vec<u8> {
    let content = document.content.as_ref().expect("an upload");
    read_original(&*bench.records, &company(), &document.id, content).await.expect("read").to_vec()
}

pub(super) async fn an_original_comes_back_as_it_was(bench: &UploadBench) {
    for (n, bytes) in [1, 512 * 1024, 512 * 1024 + 1, 3_000_000].into_iter().enumerate() {
        let (id, original) = (format!("d{n}"), original(bytes));
        let staged = bench.stage(upload(&id, original.clone())).await;
        assert_eq!(bench.find(&id).await, None, "a staged upload is not visible");
        let (document, version) = bench.attach(&staged, Precondition::Absent).await.expect("attached");
        let stored_document = bench.get(&id).await;
        assert_eq!(
            (stored_document.version, &stored_document.value),
            (version, &document),
            "what is returned is stored"
        );
        assert_eq!(document.owner_id, Some(user()), "a new document belongs to the user");
        let content = document.content.as_ref().expect("an upload");
        assert_eq!((content.status, content.bytes), (ContentStatus::Pending, bytes as u64));
        assert_eq!(stored(bench, &document).await, original, "{bytes} bytes come back");
    }
    let usage = UploadUsage::load(&*bench.records, &company()).await.expect("read");
    assert_eq!(
        usage.bytes,
        1 + 512 * 1024 + 512 * 1024 + 1 + 3_000_000,
        "the usage is that of all originals"
    );
}

pub(super) async fn an_upload_replaces_the_one_before(bench: &UploadBench) {
    let records = &*bench.records;
    let written = Document {
        id: "d".to_owned(),
        company_id: company(),
        title: "Old".to_owned(),
        text: "written".to_owned(),
        ..Document::default()
    };
    save_document(records, &written, Precondition::Absent, &user()).await.expect("saved");
    let (first, _) = bench.put("d", original(2_000_000)).await;
    assert_eq!((first.revision, first.title.as_str(), first.text.as_str()), (1, "Title", ""));
    let (second, _) = bench.put("d", original(600_000)).await;
    assert_eq!(stored(bench, &second).await, original(600_000));
    let content = first.content.as_ref().expect("an upload");
    let gone = read_original(records, &company(), "d", content).await.expect_err("it was replaced");
    assert!(matches!(gone, StoreError::Conflict { .. }), "{gone}");
    let expected = [
        ("documentContents/d", 2),
        ("documentOriginals", 1),
        // The text that was written; the uploads had no text yet.
        ("documentVersions/d", 1),
        ("documents", 1),
        ("documentIngestions/acme", 1),
    ];
    assert_eq!(bench.counts("acme").await, expected.map(|(path, count)| (path.to_owned(), count)));
    let usage = UploadUsage::load(records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 600_000);
}

pub(super) async fn an_upload_that_is_refused_leaves_nothing(bench: &UploadBench) {
    let staged = bench.stage(upload("d", original(1_000_000))).await;
    let usage = UploadUsage::load(&*bench.records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 1_000_000, "what is staged counts");
    let refused = bench.attach(&staged, Precondition::Version(7)).await.expect_err("there is no version 7");
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    staged.discard(&*bench.records).await;
    assert_eq!(bench.counts("acme").await, []);
    let late = bench.attach(&staged, Precondition::Any).await.expect_err("its pieces are deleted");
    assert!(matches!(late, StoreError::Conflict { .. }), "{late}");
    assert_eq!(bench.counts("acme").await, []);
}

pub(super) async fn a_deleted_document_leaves_nothing(bench: &UploadBench) {
    let long = "word ".repeat(200_000);
    for (id, is_extracted) in [("new", false), ("read", true)] {
        bench.put(id, long.clone()).await;
        if is_extracted {
            work(&bench.process(&extractor())).await;
            assert!(bench.get(id).await.value.has_long_text());
        }
        assert!(delete_document(&*bench.records, &company(), id, Precondition::Any).await.expect("deleted"));
        assert_eq!(bench.counts("acme").await, [], "{id}");
    }
}

pub(super) async fn text_that_is_written_replaces_an_upload(bench: &UploadBench) {
    let records = &*bench.records;
    bench.put("d", "one two three").await;
    let append = append_document(records, &company(), "d", ("more", None), (&user(), |_| true)).await;
    assert!(matches!(append, Err(WorkspaceError::Uploaded { .. })), "{append:?}");
    work(&bench.process(&extractor())).await;
    let append = append_document(records, &company(), "d", ("more", None), (&user(), |_| true)).await;
    assert!(matches!(append, Err(WorkspaceError::Uploaded { .. })), "{append:?}");

    let uploaded = bench.get("d").await.value;
    // The second one was read before the extraction.
    for text in [uploaded.text.clone(), String::new()] {
        let renamed = Document { title: "New".to_owned(), text, ..uploaded.clone() };
        save_document(records, &renamed, Precondition::Any, &user()).await.expect("saved");
        let kept = bench.get("d").await.value;
        assert_eq!(
            (kept.text, kept.content, &*kept.title),
            (uploaded.text.clone(), uploaded.content.clone(), "New")
        );
    }
    let kept = bench.get("d").await.value;
    assert_eq!(stored(bench, &kept).await, b"one two three");

    let written = Document { text: "four".to_owned(), ..kept };
    save_document(records, &written, Precondition::Any, &user()).await.expect("saved");
    let written = bench.get("d").await.value;
    assert_eq!((written.text.as_str(), written.content), ("four", None));
    bench.put("d", "five").await;
    // The revision of the extracted text.
    restore_document(records, &company(), ("d", 1), &user(), |_| true).await.expect("restored");
    let restored = bench.get("d").await.value;
    assert_eq!((restored.text.as_str(), restored.content), ("one two three", None));
    let paths: Vec<String> = bench.counts("acme").await.into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["documentVersions/d", "documents"], "nothing of the uploads is left");
}

pub(super) async fn an_upload_can_be_renamed(bench: &UploadBench) {
    let (document, version) = bench.put("d", "one").await;
    let stored_document = bench.get("d").await;
    let user = "bob".into();
    let rename =
        |precondition| rename_upload(&*bench.records, &stored_document, (Some("New"), precondition), &user);
    let refused = rename(Precondition::Version(version + 1)).await.expect_err("another version");
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    let (renamed, _) = rename(Precondition::Version(version)).await.expect("renamed");
    assert_eq!(bench.get("d").await.value, renamed);
    assert_eq!((renamed.title.as_str(), renamed.content), ("New", document.content));
    assert_eq!((renamed.revision, renamed.updated_by), (document.revision + 1, Some("bob".into())));
    let stale = rename_upload(&*bench.records, &stored_document, (None, Precondition::Any), &user).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "it has changed since it was read");
    let stored_document = bench.get("d").await;
    let same =
        rename_upload(&*bench.records, &stored_document, (Some("New"), Precondition::Any), &user).await;
    assert_eq!(same.expect("unchanged").1, stored_document.version);
}

pub(super) async fn interrupted_uploads_are_swept(bench: &UploadBench) {
    let sweep = async || {
        let next = sweep_pending_pieces(&*bench.records, &company(), None, bench.now()).await.expect("swept");
        assert_eq!(next, None);
    };
    bench.put("kept", original(10)).await;
    let staged = bench.stage(upload("d", original(1_000_000))).await;
    sweep().await;
    let usage = UploadUsage::load(&*bench.records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 1_000_010, "an upload that is being written stays");
    bench.clock.advance(Duration::from_secs(16 * 60));
    sweep().await;
    let late = bench.attach(&staged, Precondition::Any).await.expect_err("its pieces are deleted");
    assert!(matches!(late, StoreError::Conflict { .. }), "{late}");
    let expected = [
        ("documentContents/kept", 1),
        ("documentOriginals", 1),
        ("documents", 1),
        ("documentIngestions/acme", 1),
    ];
    assert_eq!(bench.counts("acme").await, expected.map(|(path, count)| (path.to_owned(), count)));
}

pub(super) async fn uploads_replaced_by_old_processes_are_swept(bench: &UploadBench) {
    let sweep = async || {
        sweep_stored_contents(&*bench.records, &company(), None).await.expect("swept");
    };
    let (kept, _) = bench.put("kept", original(10)).await;
    bench.put("d", original(1_000_000)).await;
    sweep().await;
    assert_eq!(stored(bench, &bench.get("d").await.value).await, original(1_000_000));
    // A process of an older version does not know the field.
    let value = json!({"id": "d", "companyId": "acme", "title": "Old", "text": "old"});
    let key = Key::new("acme", collection::DOCUMENTS, "d").expect("a key");
    let value = to_raw_value(&value).expect("JSON").into();
    bench.records.put(&key, value, Precondition::Any).await.expect("put");
    sweep().await;
    assert_eq!(stored(bench, &kept).await, original(10));
    let counts = bench.counts("acme").await;
    assert!(counts.iter().all(|(path, _)| path != "documentContents/d"), "{counts:?}");
}

pub(super) async fn companies_are_apart(bench: &UploadBench) {
    let (ours, _) = bench.put("d", "ours").await;
    let (theirs, _) = bench.put_in(&"other".into(), "d", "theirs").await;
    assert_eq!(stored(bench, &ours).await, b"ours");
    let content = theirs.content.as_ref().expect("an upload");
    let foreign = read_original(&*bench.records, &company(), "d", content).await;
    assert!(matches!(foreign, Err(StoreError::Conflict { .. })), "another company's upload is absent");
    let usage = UploadUsage::load(&*bench.records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 4);
    delete_document(&*bench.records, &company(), "d", Precondition::Any).await.expect("deleted");
    let kept = read_original(&*bench.records, &"other".into(), "d", content).await.expect("read");
    assert_eq!(kept, b"theirs".as_slice());
}
