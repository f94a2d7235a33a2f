//! Storage of originals.

use std::time::Duration;

use serde_json::json;
use serde_json::value::to_raw_value;

use super::fixture::{UploadFixture, company, extractor, upload, user, work};
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

async fn stored(fixture: &UploadFixture, document: &Document) -> Vec<u8> {
    let content = document.content.as_ref().expect("an upload");
    read_original(&*fixture.records, &company(), &document.id, content).await.expect("read").to_vec()
}

pub(super) async fn an_original_comes_back_as_it_was(fixture: &UploadFixture) {
    for (n, bytes) in [1, 512 * 1024, 512 * 1024 + 1, 3_000_000].into_iter().enumerate() {
        let (id, original) = (format!("d{n}"), original(bytes));
        let staged = fixture.stage(upload(&id, original.clone())).await;
        assert_eq!(fixture.find(&id).await, None, "a staged upload is not visible");
        let (document, version) = fixture.attach(&staged, Precondition::Absent).await.expect("attached");
        let stored_document = fixture.get(&id).await;
        assert_eq!(
            (stored_document.version, &stored_document.value),
            (version, &document),
            "the returned document is the stored one"
        );
        assert_eq!(document.owner_id, Some(user()), "a new document belongs to the user");
        let content = document.content.as_ref().expect("an upload");
        assert_eq!((content.status, content.bytes), (ContentStatus::Pending, bytes as u64));
        assert_eq!(stored(fixture, &document).await, original, "{bytes} bytes come back");
    }
    let usage = UploadUsage::load(&*fixture.records, &company()).await.expect("read");
    assert_eq!(
        usage.bytes,
        1 + 512 * 1024 + 512 * 1024 + 1 + 3_000_000,
        "the usage is that of all originals"
    );
}

pub(super) async fn an_upload_replaces_the_one_before(fixture: &UploadFixture) {
    let records = &*fixture.records;
    let written = Document {
        id: "d".to_owned(),
        company_id: company(),
        title: "Old".to_owned(),
        text: "written".to_owned(),
        ..Document::default()
    };
    save_document(records, &written, Precondition::Absent, &user()).await.expect("saved");
    let (first, _) = fixture.put("d", original(2_000_000)).await;
    assert_eq!((first.revision, first.title.as_str(), first.text.as_str()), (1, "Title", ""));
    let (second, _) = fixture.put("d", original(600_000)).await;
    assert_eq!(stored(fixture, &second).await, original(600_000));
    let content = first.content.as_ref().expect("an upload");
    let gone = read_original(records, &company(), "d", content)
        .await
        .expect_err("a replaced original cannot be read");
    assert!(matches!(gone, StoreError::Conflict { .. }), "{gone}");
    let expected = [
        ("documentContents/d", 2),
        ("documentOriginals", 1),
        // The text that was written; the uploads had no text yet.
        ("documentVersions/d", 1),
        ("documents", 1),
        ("documentIngestions/acme", 1),
    ];
    assert_eq!(fixture.counts("acme").await, expected.map(|(path, count)| (path.to_owned(), count)));
    let usage = UploadUsage::load(records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 600_000);
}

pub(super) async fn an_upload_that_is_refused_leaves_nothing(fixture: &UploadFixture) {
    let staged = fixture.stage(upload("d", original(1_000_000))).await;
    let usage = UploadUsage::load(&*fixture.records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 1_000_000, "a staged upload counts towards the quota");
    let refused = fixture.attach(&staged, Precondition::Version(7)).await.expect_err("there is no version 7");
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    staged.discard(&*fixture.records).await;
    assert_eq!(fixture.counts("acme").await, []);
    let late =
        fixture.attach(&staged, Precondition::Any).await.expect_err("a discarded upload cannot be attached");
    assert!(matches!(late, StoreError::Conflict { .. }), "{late}");
    assert_eq!(fixture.counts("acme").await, []);
}

pub(super) async fn a_deleted_document_leaves_nothing(fixture: &UploadFixture) {
    let long = "word ".repeat(200_000);
    for (id, is_extracted) in [("new", false), ("read", true)] {
        fixture.put(id, long.clone()).await;
        if is_extracted {
            work(&fixture.process(&extractor())).await;
            assert!(fixture.get(id).await.value.has_long_text());
        }
        assert!(
            delete_document(&*fixture.records, &company(), id, Precondition::Any).await.expect("deleted")
        );
        assert_eq!(fixture.counts("acme").await, [], "{id}");
    }
}

pub(super) async fn text_that_is_written_replaces_an_upload(fixture: &UploadFixture) {
    let records = &*fixture.records;
    fixture.put("d", "one two three").await;
    let append = append_document(records, &company(), "d", ("more", None), (&user(), |_| true)).await;
    assert!(matches!(append, Err(WorkspaceError::Uploaded { .. })), "{append:?}");
    work(&fixture.process(&extractor())).await;
    let append = append_document(records, &company(), "d", ("more", None), (&user(), |_| true)).await;
    assert!(matches!(append, Err(WorkspaceError::Uploaded { .. })), "{append:?}");

    let uploaded = fixture.get("d").await.value;
    // The document with the empty text was read before the extraction.
    for text in [uploaded.text.clone(), String::new()] {
        let renamed = Document { title: "New".to_owned(), text, ..uploaded.clone() };
        save_document(records, &renamed, Precondition::Any, &user()).await.expect("saved");
        let kept = fixture.get("d").await.value;
        assert_eq!(
            (kept.text, kept.content, &*kept.title),
            (uploaded.text.clone(), uploaded.content.clone(), "New")
        );
    }
    let kept = fixture.get("d").await.value;
    assert_eq!(stored(fixture, &kept).await, b"one two three");

    let written = Document { text: "four".to_owned(), ..kept };
    save_document(records, &written, Precondition::Any, &user()).await.expect("saved");
    let written = fixture.get("d").await.value;
    assert_eq!((written.text.as_str(), written.content), ("four", None));
    fixture.put("d", "five").await;
    // The revision of the extracted text.
    restore_document(records, &company(), ("d", 1), &user(), |_| true).await.expect("restored");
    let restored = fixture.get("d").await.value;
    assert_eq!((restored.text.as_str(), restored.content), ("one two three", None));
    let paths: Vec<String> = fixture.counts("acme").await.into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["documentVersions/d", "documents"], "replaced uploads leave no records");
}

pub(super) async fn an_upload_can_be_renamed(fixture: &UploadFixture) {
    let (document, version) = fixture.put("d", "one").await;
    let stored_document = fixture.get("d").await;
    let user = "bob".into();
    let rename =
        |precondition| rename_upload(&*fixture.records, &stored_document, (Some("New"), precondition), &user);
    let refused = rename(Precondition::Version(version + 1)).await.expect_err("another version");
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    let (renamed, _) = rename(Precondition::Version(version)).await.expect("renamed");
    assert_eq!(fixture.get("d").await.value, renamed);
    assert_eq!((renamed.title.as_str(), renamed.content), ("New", document.content));
    assert_eq!((renamed.revision, renamed.updated_by), (document.revision + 1, Some("bob".into())));
    let stale = rename_upload(&*fixture.records, &stored_document, (None, Precondition::Any), &user).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "renaming an outdated document conflicts");
    let stored_document = fixture.get("d").await;
    let same =
        rename_upload(&*fixture.records, &stored_document, (Some("New"), Precondition::Any), &user).await;
    assert_eq!(same.expect("unchanged").1, stored_document.version);
}

pub(super) async fn interrupted_uploads_are_swept(fixture: &UploadFixture) {
    let sweep = async || {
        let next =
            sweep_pending_pieces(&*fixture.records, &company(), None, fixture.now()).await.expect("swept");
        assert_eq!(next, None);
    };
    fixture.put("kept", original(10)).await;
    let staged = fixture.stage(upload("d", original(1_000_000))).await;
    sweep().await;
    let usage = UploadUsage::load(&*fixture.records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 1_000_010, "a sweep keeps an upload that is being written");
    fixture.clock.advance(Duration::from_secs(16 * 60));
    sweep().await;
    let late = fixture
        .attach(&staged, Precondition::Any)
        .await
        .expect_err("an upload that was swept cannot be attached");
    assert!(matches!(late, StoreError::Conflict { .. }), "{late}");
    let expected = [
        ("documentContents/kept", 1),
        ("documentOriginals", 1),
        ("documents", 1),
        ("documentIngestions/acme", 1),
    ];
    assert_eq!(fixture.counts("acme").await, expected.map(|(path, count)| (path.to_owned(), count)));
}

pub(super) async fn uploads_replaced_by_old_processes_are_swept(fixture: &UploadFixture) {
    let sweep = async || {
        sweep_stored_contents(&*fixture.records, &company(), None).await.expect("swept");
    };
    let (kept, _) = fixture.put("kept", original(10)).await;
    fixture.put("d", original(1_000_000)).await;
    sweep().await;
    assert_eq!(stored(fixture, &fixture.get("d").await.value).await, original(1_000_000));
    // A process of an older version does not know the field.
    let value = json!({"id": "d", "companyId": "acme", "title": "Old", "text": "old"});
    let key = Key::new("acme", collection::DOCUMENTS, "d").expect("a key");
    let value = to_raw_value(&value).expect("JSON").into();
    fixture.records.put(&key, value, Precondition::Any).await.expect("put");
    sweep().await;
    assert_eq!(stored(fixture, &kept).await, original(10));
    let counts = fixture.counts("acme").await;
    assert!(counts.iter().all(|(path, _)| path != "documentContents/d"), "{counts:?}");
}

pub(super) async fn companies_are_isolated(fixture: &UploadFixture) {
    let (ours, _) = fixture.put("d", "ours").await;
    let (theirs, _) = fixture.put_in(&"other".into(), "d", "theirs").await;
    assert_eq!(stored(fixture, &ours).await, b"ours");
    let content = theirs.content.as_ref().expect("an upload");
    let foreign = read_original(&*fixture.records, &company(), "d", content).await;
    assert!(matches!(foreign, Err(StoreError::Conflict { .. })), "another company's upload is absent");
    let usage = UploadUsage::load(&*fixture.records, &company()).await.expect("read");
    assert_eq!(usage.bytes, 4);
    delete_document(&*fixture.records, &company(), "d", Precondition::Any).await.expect("deleted");
    let kept = read_original(&*fixture.records, &"other".into(), "d", content).await.expect("read");
    assert_eq!(kept, b"theirs".as_slice());
}
