//! Extraction of texts by one process.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::{UploadFixture, begin, company, expect_no_task, extractor, upload, user, work};
use crate::ingestion::Ingestion;
use crate::records::{Key, Precondition, RecordsExt as _};
use crate::testing::ScriptedExtractor;
use crate::workspace::{
    ContentStatus, Document, collection, delete_document, get_document, list_document_versions,
    read_document_text, read_page_starts, reindex_document, rename_upload, restore_document, save_document,
};

pub(super) async fn a_text_is_extracted(fixture: &UploadFixture) {
    let untitled = crate::workspace::NewUpload::new(
        "d".to_owned(),
        None,
        "text/plain".to_owned(),
        "First line\nPICTURE\0\u{c}second page é".into(),
    );
    let staged = fixture.stage(untitled).await;
    fixture.attach(&staged, Precondition::Any).await.expect("attached");
    let extractor = extractor();
    let process = fixture.process(&extractor);
    work(&process).await;
    let document = fixture.get("d").await.value;
    let content = document.content.clone().expect("an upload");
    assert_eq!(
        document.text, "First line\nPICTURE  second page é",
        "control characters are replaced by spaces"
    );
    assert_eq!(document.title, "First line", "a document without a title gets the title of the original");
    assert_eq!((content.status, content.pages, content.needs_ocr), (ContentStatus::Ready, Some(2), vec![1]));
    assert_eq!(content.text_bytes, Some(document.text.len() as u64));
    assert_eq!((content.extractor.as_deref(), content.error), (Some("scripted/1"), None));
    let pages = read_page_starts(&*fixture.records, &company(), &document).await.expect("read");
    assert_eq!(pages, [0, 20]);
    assert_eq!(document.revision, 0, "an extraction does not count as a change by a user");
    expect_no_task(&process).await;
    assert_eq!(extractor.calls(), 1);
}

/// A text whose characters have one to four bytes, so that pieces do not end at multiples of their size.
fn long_text() -> String {
    "aé€😀".repeat(80_000)
}

pub(super) async fn long_texts_are_read_in_ranges(fixture: &UploadFixture) {
    let text = long_text();
    fixture.put("d", text.clone()).await;
    work(&fixture.process(&extractor())).await;
    let document = fixture.get("d").await.value;
    assert_eq!((document.text.as_str(), document.text_bytes()), ("", text.len()));
    assert!(document.has_long_text() && document.is_ready());
    assert_eq!(fixture.text(&document).await, text);
    let piece = 256 * 1024;
    let starts = [0, 1, 2, piece - 5, piece - 1, piece, piece + 1, 2 * piece - 3, text.len() - 1, text.len()];
    for start in starts {
        for length in [0, 1, 3, 10, piece, piece + 7, usize::MAX] {
            let end = start.saturating_add(length);
            let part = read_document_text(&*fixture.records, &company(), &document, start..end).await;
            let part = part.expect("read");
            let (from, to) = (text.floor_char_boundary(start), text.floor_char_boundary(end));
            assert_eq!(part.start, from, "{start}..{end}");
            assert!(part.text == text[from..to], "{start}..{end} has {} bytes", part.text.len());
        }
    }
    // A short text follows the same rules.
    let short = Document { text: "aé€".to_owned(), ..Document::default() };
    for (range, expected) in [(0..2, (0, "a")), (2..9, (1, "é€")), (7..9, (6, ""))] {
        let part = read_document_text(&*fixture.records, &company(), &short, range.clone()).await;
        let part = part.expect("read");
        assert_eq!((part.start, part.text.as_str()), expected, "{range:?}");
    }
    // A text outside of the document's record is not kept as a version.
    fixture.put("d", "short").await;
    let versions = list_document_versions(&*fixture.records, &company(), "d").await.expect("listed");
    assert_eq!(versions, []);
}

pub(super) async fn a_document_that_cannot_be_read_fails(fixture: &UploadFixture) {
    fixture.put("d", "MALFORMED").await;
    let extractor = extractor();
    let process = fixture.process(&extractor);
    work(&process).await;
    let content = fixture.get("d").await.value.content.expect("an upload");
    assert_eq!(content.status, ContentStatus::Failed);
    assert_eq!(content.error.as_deref(), Some("the document cannot be read: it says so"));
    fixture.clock.advance(Duration::from_secs(3600));
    expect_no_task(&process).await;
    fixture.put("d", "better").await;
    work(&process).await;
    assert_eq!(fixture.get("d").await.value.text, "better");
}

pub(super) async fn an_unavailable_extractor_is_tried_again(fixture: &UploadFixture) {
    fixture.put("d", "UNAVAILABLE").await;
    let extractor = extractor();
    let process = fixture.process(&extractor);
    for attempt in 1..3 {
        work(&process).await;
        assert_eq!(fixture.status("d").await, ContentStatus::Pending, "attempt {attempt}");
        expect_no_task(&process).await;
        fixture.clock.advance(Duration::from_secs(60));
    }
    work(&process).await;
    let content = fixture.get("d").await.value.content.expect("an upload");
    assert_eq!(
        content.status,
        ContentStatus::Failed,
        "an extraction fails after a bounded number of attempts"
    );
    assert_eq!(content.error.as_deref(), Some("the extractor is unavailable: it says so"));
    fixture.clock.advance(Duration::from_secs(3600));
    expect_no_task(&process).await;
    assert_eq!(extractor.calls(), 3);
}

pub(super) async fn a_text_is_extracted_again(fixture: &UploadFixture) {
    let text = long_text();
    let (document, _) = fixture.put("d", text.clone()).await;
    let new = upload("d", text.clone());
    assert!(!new.is_extracted_in(&document, "scripted/1"), "a new document is not extracted yet");
    assert!(new.is_waiting_in(&document) && !upload("d", "other").is_waiting_in(&document));
    work(&fixture.process(&extractor())).await;
    let before = fixture.get("d").await;
    assert!(new.is_extracted_in(&before.value, "scripted/1") && !new.is_waiting_in(&before.value));
    assert!(
        !new.is_extracted_in(&before.value, "scripted/2"),
        "a document is extracted again by another extractor"
    );
    assert!(!upload("d", "other").is_extracted_in(&before.value, "scripted/1"));
    let counts = fixture.counts("acme").await;

    let (document, version) =
        reindex_document(&*fixture.records, before.clone(), Precondition::Any).await.expect("begun");
    assert_eq!(fixture.get("d").await.version, version);
    assert!(!document.is_ready());
    assert_eq!(fixture.text(&document).await, text, "the text stays until the new text is stored");
    let stale = reindex_document(&*fixture.records, before, Precondition::Any).await;
    assert!(stale.is_err(), "reindexing an outdated document conflicts");
    work(&fixture.process(&extractor())).await;
    let after = fixture.get("d").await.value;
    assert_eq!((fixture.text(&after).await, after.revision), (text, 0));
    assert_eq!(fixture.counts("acme").await, counts, "the pieces of the former text are deleted");
}

pub(super) async fn a_text_of_another_extractor_is_extracted_again(fixture: &UploadFixture) {
    fixture.put("d", "the text").await;
    fixture.put("broken", "MALFORMED").await;
    let before = fixture.process(&extractor());
    work(&before).await;
    work(&before).await;
    let is_begun = async |process: &Ingestion, id: &str| {
        process.extract_outdated(&company(), id).await.expect("the store works")
    };
    assert!(!is_begun(&before, "d").await, "a text of the same extractor is not outdated");
    let process = fixture.process(&Arc::new(ScriptedExtractor::new("scripted/2")));
    for id in ["broken", "none"] {
        assert!(!is_begun(&process, id).await, "{id} has no text");
    }
    assert!(is_begun(&process, "d").await);
    assert_eq!(fixture.get("d").await.value.text, "the text", "the text stays until the new text is stored");
    assert!(!is_begun(&process, "d").await, "an extraction that waits is not begun again");
    work(&process).await;
    let content = fixture.get("d").await.value.content.expect("an upload");
    assert_eq!((content.extractor.as_deref(), content.status), (Some("scripted/2"), ContentStatus::Ready));
    assert!(!is_begun(&process, "d").await, "a text of the current extractor is not outdated");
    // A failed attempt keeps the text of the former extractor.
    let mut failed = fixture.get("d").await.value;
    let content = failed.content.as_mut().expect("an upload");
    content.status = ContentStatus::Failed;
    content.extractor = Some("scripted/1".to_owned());
    let key = Key::new(company(), collection::DOCUMENTS, "d").expect("a key");
    fixture.records.put_as(&key, &failed, Precondition::Any).await.expect("put");
    assert!(is_begun(&process, "d").await, "a failed extraction of an outdated text is tried again");
    work(&process).await;
    let content = fixture.get("d").await.value.content.expect("an upload");
    assert_eq!((content.extractor.as_deref(), content.status), (Some("scripted/2"), ContentStatus::Ready));
    expect_no_task(&process).await;
}

/// A text whose new extraction runs or failed is kept as a version when another text replaces it.
pub(super) async fn a_text_is_a_version_whatever_the_state_of_its_extraction(fixture: &UploadFixture) {
    let process = fixture.process(&extractor());
    for (number, status) in
        [ContentStatus::Pending, ContentStatus::Extracting, ContentStatus::Failed].into_iter().enumerate()
    {
        let (id, text) = (format!("d{number}"), format!("text {number}"));
        fixture.put(&id, text.clone()).await;
        work(&process).await;
        let mut document = fixture.get(&id).await.value;
        document.content.as_mut().expect("an upload").status = status;
        let key = Key::new(company(), collection::DOCUMENTS, id.as_str()).expect("a key");
        fixture.records.put_as(&key, &document, Precondition::Any).await.expect("put");
        let written = Document { text: "written".to_owned(), content: None, ..document };
        save_document(&*fixture.records, &written, Precondition::Any, &user()).await.expect("saved");
        let versions = list_document_versions(&*fixture.records, &company(), &id).await.expect("listed");
        assert_eq!(
            versions.iter().map(|version| version.bytes).collect::<Vec<_>>(),
            [text.len()],
            "{status:?}"
        );
        restore_document(&*fixture.records, &company(), (id.as_str(), 0), &user(), |_| true)
            .await
            .expect("restored");
        assert_eq!(fixture.get(&id).await.value.text, text);
    }
}

pub(super) async fn companies_take_turns(fixture: &UploadFixture) {
    let (first, last) = ("a%/b".into(), "z".into());
    for id in ["1", "2", "3", "4"] {
        fixture.put_in(&first, id, "of the first").await;
    }
    fixture.put_in(&last, "1", "of the last").await;
    let process = fixture.process(&extractor());
    for _ in 0..2 {
        work(&process).await;
    }
    let stored_document = get_document(&*fixture.records, &last, "1").await.expect("read").expect("there");
    assert!(stored_document.value.is_ready(), "companies' documents are extracted in turns");
    for _ in 0..3 {
        work(&process).await;
    }
    for id in ["1", "2", "3", "4"] {
        let stored_document =
            get_document(&*fixture.records, &first, id).await.expect("read").expect("there");
        assert!(stored_document.value.is_ready());
    }
    expect_no_task(&process).await;
}

pub(super) async fn a_document_is_renamed_during_its_extraction(fixture: &UploadFixture) {
    fixture.put("d", "BLOCK one").await;
    let extractor = extractor();
    let process = fixture.process(&extractor);
    let remaining_steps = begin(&process, &extractor).await;
    assert_eq!(fixture.status("d").await, ContentStatus::Extracting);
    let stored_document = fixture.get("d").await;
    let user = user();
    let rename =
        rename_upload(&*fixture.records, &stored_document, (Some("Renamed"), Precondition::Any), &user);
    rename.await.expect("renamed");
    extractor.release();
    assert!(remaining_steps.await.expect("the store works"));
    let document = fixture.get("d").await.value;
    assert_eq!((document.title.as_str(), document.text.as_str()), ("Renamed", "BLOCK one"));
}

pub(super) async fn a_deleted_document_gets_no_text(fixture: &UploadFixture) {
    fixture.put("d", ["BLOCK ", &long_text()].concat()).await;
    let extractor = extractor();
    let process = fixture.process(&extractor);
    let remaining_steps = begin(&process, &extractor).await;
    delete_document(&*fixture.records, &company(), "d", Precondition::Any).await.expect("deleted");
    extractor.release();
    assert!(remaining_steps.await.expect("the store works"));
    assert_eq!(fixture.counts("acme").await, [], "an extraction restores nothing of a deleted document");
    expect_no_task(&process).await;
}

pub(super) async fn a_replaced_upload_gives_no_text(fixture: &UploadFixture) {
    fixture.put("d", ["BLOCK ", &long_text()].concat()).await;
    let extractor = extractor();
    let process = fixture.process(&extractor);
    let remaining_steps = begin(&process, &extractor).await;
    fixture.put("d", "new").await;
    extractor.release();
    assert!(remaining_steps.await.expect("the store works"));
    assert_eq!(
        (fixture.status("d").await, fixture.get("d").await.value.text),
        (ContentStatus::Pending, String::new())
    );
    work(&process).await;
    assert_eq!(fixture.get("d").await.value.text, "new");
    let expected = [("documentContents/d", 2), ("documentOriginals", 1), ("documents", 1)];
    // The original, and the positions of the pages.
    assert_eq!(fixture.counts("acme").await, expected.map(|(path, count)| (path.to_owned(), count)));
}
