//! Extraction of texts by one process.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{UploadBench, begin, company, expect_no_task, extractor, upload, user, work};
use crate::ingestion::Ingestion;
use crate::records::{Key, Precondition, RecordsExt as _};
use crate::testing::ScriptedExtractor;
use crate::workspace::{
    ContentStatus, Document, collection, delete_document, get_document, list_document_versions,
    read_document_text, read_page_starts, reindex_document, rename_upload, restore_document, save_document,
};

pub(super) async fn a_text_is_extracted(bench: &UploadBench) {
    let untitled = crate::workspace::NewUpload::new(
        "d".to_owned(),
        None,
        "text/plain".to_owned(),
        "First line\nPICTURE\0\u{c}second page é".into(),
    );
    let staged = bench.stage(untitled).await;
    bench.attach(&staged, Precondition::Any).await.expect("attached");
    let extractor = extractor();
    let process = bench.process(&extractor);
    work(&process).await;
    let document = bench.get("d").await.value;
    let content = document.content.clone().expect("an upload");
    assert_eq!(document.text, "First line\nPICTURE  second page é", "control characters are spaces");
    assert_eq!(document.title, "First line", "a document without a title gets that of the original");
    assert_eq!((content.status, content.pages, content.needs_ocr), (ContentStatus::Ready, Some(2), vec![1]));
    assert_eq!(content.text_bytes, Some(document.text.len() as u64));
    assert_eq!((content.extractor.as_deref(), content.error), (Some("scripted/1"), None));
    let pages = read_page_starts(&*bench.records, &company(), &document).await.expect("read");
    assert_eq!(pages, [0, 20]);
    assert_eq!(document.revision, 0, "an extraction is no change by a user");
    expect_no_task(&process).await;
    assert_eq!(extractor.calls(), 1);
}

/// A text whose characters have one to four bytes, so that pieces do not end at multiples of their size.
fn long_text() -> String {
    "aé€😀".repeat(80_000)
}

pub(super) async fn long_texts_are_read_in_ranges(bench: &UploadBench) {
    let text = long_text();
    bench.put("d", text.clone()).await;
    work(&bench.process(&extractor())).await;
    let document = bench.get("d").await.value;
    assert_eq!((document.text.as_str(), document.text_bytes()), ("", text.len()));
    assert!(document.has_long_text() && document.is_ready());
    assert_eq!(bench.text(&document).await, text);
    let piece = 256 * 1024;
    let starts = [0, 1, 2, piece - 5, piece - 1, piece, piece + 1, 2 * piece - 3, text.len() - 1, text.len()];
    for start in starts {
        for length in [0, 1, 3, 10, piece, piece + 7, usize::MAX] {
            let end = start.saturating_add(length);
            let part = read_document_text(&*bench.records, &company(), &document, start..end).await;
            let part = part.expect("read");
            let (from, to) = (text.floor_char_boundary(start), text.floor_char_boundary(end));
            assert_eq!(part.start, from, "{start}..{end}");
            assert!(part.text == text[from..to], "{start}..{end} has {} bytes", part.text.len());
        }
    }
    // A short text follows the same rules.
    let short = Document { text: "aé€".to_owned(), ..Document::default() };
    for (range, expected) in [(0..2, (0, "a")), (2..9, (1, "é€")), (7..9, (6, ""))] {
        let part = read_document_text(&*bench.records, &company(), &short, range.clone()).await;
        let part = part.expect("read");
        assert_eq!((part.start, part.text.as_str()), expected, "{range:?}");
    }
    // A text that its record does not have is not kept as a version.
    bench.put("d", "short").await;
    let versions = list_document_versions(&*bench.records, &company(), "d").await.expect("listed");
    assert_eq!(versions, []);
}

pub(super) async fn a_document_that_cannot_be_read_fails(bench: &UploadBench) {
    bench.put("d", "MALFORMED").await;
    let extractor = extractor();
    let process = bench.process(&extractor);
    work(&process).await;
    let content = bench.get("d").await.value.content.expect("an upload");
    assert_eq!(content.status, ContentStatus::Failed);
    assert_eq!(content.error.as_deref(), Some("the document cannot be read: it says so"));
    bench.clock.advance(Duration::from_secs(3600));
    expect_no_task(&process).await;
    bench.put("d", "better").await;
    work(&process).await;
    assert_eq!(bench.get("d").await.value.text, "better");
}

pub(super) async fn an_unavailable_extractor_is_tried_again(bench: &UploadBench) {
    bench.put("d", "UNAVAILABLE").await;
    let extractor = extractor();
    let process = bench.process(&extractor);
    for attempt in 1..3 {
        work(&process).await;
        assert_eq!(bench.status("d").await, ContentStatus::Pending, "attempt {attempt}");
        expect_no_task(&process).await;
        bench.clock.advance(Duration::from_secs(60));
    }
    work(&process).await;
    let content = bench.get("d").await.value.content.expect("an upload");
    assert_eq!(content.status, ContentStatus::Failed, "the attempts are bounded");
    assert_eq!(content.error.as_deref(), Some("the extractor is unavailable: it says so"));
    bench.clock.advance(Duration::from_secs(3600));
    expect_no_task(&process).await;
    assert_eq!(extractor.calls(), 3);
}

pub(super) async fn a_text_is_extracted_again(bench: &UploadBench) {
    let text = long_text();
    let (document, _) = bench.put("d", text.clone()).await;
    let new = upload("d", text.clone());
    assert!(!new.is_extracted_in(&document, "scripted/1"), "it is not extracted yet");
    assert!(new.is_waiting_in(&document) && !upload("d", "other").is_waiting_in(&document));
    work(&bench.process(&extractor())).await;
    let before = bench.get("d").await;
    assert!(new.is_extracted_in(&before.value, "scripted/1") && !new.is_waiting_in(&before.value));
    assert!(!new.is_extracted_in(&before.value, "scripted/2"), "another extractor may do better");
    assert!(!upload("d", "other").is_extracted_in(&before.value, "scripted/1"));
    let counts = bench.counts("acme").await;

    let (document, version) =
        reindex_document(&*bench.records, before.clone(), Precondition::Any).await.expect("begun");
    assert_eq!(bench.get("d").await.version, version);
    assert!(!document.is_ready());
    assert_eq!(bench.text(&document).await, text, "the text stays until the new one is there");
    let stale = reindex_document(&*bench.records, before, Precondition::Any).await;
    assert!(stale.is_err(), "the document has changed");
    work(&bench.process(&extractor())).await;
    let after = bench.get("d").await.value;
    assert_eq!((bench.text(&after).await, after.revision), (text, 0));
    assert_eq!(bench.counts("acme").await, counts, "the pieces of the former text are deleted");
}

pub(super) async fn a_text_of_another_extractor_is_extracted_again(bench: &UploadBench) {
    bench.put("d", "the text").await;
    bench.put("broken", "MALFORMED").await;
    let before = bench.process(&extractor());
    work(&before).await;
    work(&before).await;
    let is_begun = async |process: &Ingestion, id: &str| {
        process.extract_outdated(&company(), id).await.expect("the store works")
    };
    assert!(!is_begun(&before, "d").await, "the text is of this extractor");
    let process = bench.process(&Arc::new(ScriptedExtractor::new("scripted/2")));
    for id in ["broken", "none"] {
        assert!(!is_begun(&process, id).await, "{id} has no text");
    }
    assert!(is_begun(&process, "d").await);
    assert_eq!(bench.get("d").await.value.text, "the text", "the text stays until the new one is there");
    assert!(!is_begun(&process, "d").await, "it waits already");
    work(&process).await;
    let content = bench.get("d").await.value.content.expect("an upload");
    assert_eq!((content.extractor.as_deref(), content.status), (Some("scripted/2"), ContentStatus::Ready));
    assert!(!is_begun(&process, "d").await, "it is extracted");
    // An attempt that failed leaves the text of the former extractor.
    let mut failed = bench.get("d").await.value;
    let content = failed.content.as_mut().expect("an upload");
    content.status = ContentStatus::Failed;
    content.extractor = Some("scripted/1".to_owned());
    let key = Key::new(company(), collection::DOCUMENTS, "d").expect("a key");
    bench.records.put_as(&key, &failed, Precondition::Any).await.expect("put");
    assert!(is_begun(&process, "d").await, "it is tried again");
    work(&process).await;
    let content = bench.get("d").await.value.content.expect("an upload");
    assert_eq!((content.extractor.as_deref(), content.status), (Some("scripted/2"), ContentStatus::Ready));
    expect_no_task(&process).await;
}

/// A text that is being extracted again, or could not be, is kept as a version when another one replaces it.
pub(super) async fn a_text_is_a_version_whatever_the_state_of_its_extraction(bench: &UploadBench) {
    let process = bench.process(&extractor());
    for (number, status) in
        [ContentStatus::Pending, ContentStatus::Extracting, ContentStatus::Failed].into_iter().enumerate()
    {
        let (id, text) = (format!("d{number}"), format!("text {number}"));
        bench.put(&id, text.clone()).await;
        work(&process).await;
        let mut document = bench.get(&id).await.value;
        document.content.as_mut().expect("an upload").status = status;
        let key = Key::new(company(), collection::DOCUMENTS, id.as_str()).expect("a key");
        bench.records.put_as(&key, &document, Precondition::Any).await.expect("put");
        let written = Document { text: "written".to_owned(), content: None, ..document };
        save_document(&*bench.records, &written, Precondition::Any, &user()).await.expect("saved");
        let versions = list_document_versions(&*bench.records, &company(), &id).await.expect("listed");
        assert_eq!(
            versions.iter().map(|version| version.bytes).collect::<Vec<_>>(),
            [text.len()],
            "{status:?}"
        );
        restore_document(&*bench.records, &company(), (id.as_str(), 0), &user(), |_| true)
            .await
            .expect("restored");
        assert_eq!(bench.get(&id).await.value.text, text);
    }
}

pub(super) async fn companies_take_turns(bench: &UploadBench) {
    let (first, last) = ("a%/b".into(), "z".into());
    for id in ["1", "2", "3", "4"] {
        bench.put_in(&first, id, "of the first").await;
    }
    bench.put_in(&last, "1", "of the last").await;
    let process = bench.process(&extractor());
    for _ in 0..2 {
        work(&process).await;
    }
    let stored_document = get_document(&*bench.records, &last, "1").await.expect("read").expect("there");
    assert!(stored_document.value.is_ready(), "one of each company is done");
    for _ in 0..3 {
        work(&process).await;
    }
    for id in ["1", "2", "3", "4"] {
        let stored_document = get_document(&*bench.records, &first, id).await.expect("read").expect("there");
        assert!(stored_document.value.is_ready());
    }
    expect_no_task(&process).await;
}

pub(super) async fn a_document_is_renamed_during_its_extraction(bench: &UploadBench) {
    bench.put("d", "BLOCK one").await;
    let extractor = extractor();
    let process = bench.process(&extractor);
    let remaining_steps = begin(&process, &extractor).await;
    assert_eq!(bench.status("d").await, ContentStatus::Extracting);
    let stored_document = bench.get("d").await;
    let user = user();
    let rename =
        rename_upload(&*bench.records, &stored_document, (Some("Renamed"), Precondition::Any), &user);
    rename.await.expect("renamed");
    extractor.release();
    assert!(remaining_steps.await.expect("the store works"));
    let document = bench.get("d").await.value;
    assert_eq!((document.title.as_str(), document.text.as_str()), ("Renamed", "BLOCK one"));
}

pub(super) async fn a_deleted_document_gets_no_text(bench: &UploadBench) {
    bench.put("d", ["BLOCK ", &long_text()].concat()).await;
    let extractor = extractor();
    let process = bench.process(&extractor);
    let remaining_steps = begin(&process, &extractor).await;
    delete_document(&*bench.records, &company(), "d", Precondition::Any).await.expect("deleted");
    extractor.release();
    assert!(remaining_steps.await.expect("the store works"));
    assert_eq!(bench.counts("acme").await, [], "nothing comes back");
    expect_no_task(&process).await;
}

pub(super) async fn a_replaced_upload_gives_no_text(bench: &UploadBench) {
    bench.put("d", ["BLOCK ", &long_text()].concat()).await;
    let extractor = extractor();
    let process = bench.process(&extractor);
    let remaining_steps = begin(&process, &extractor).await;
    bench.put("d", "new").await;
    extractor.release();
    assert!(remaining_steps.await.expect("the store works"));
    assert_eq!(
        (bench.status("d").await, bench.get("d").await.value.text),
        (ContentStatus::Pending, String::new())
    );
    work(&process).await;
    assert_eq!(bench.get("d").await.value.text, "new");
    let expected = [("documentContents/d", 2), ("documentOriginals", 1), ("documents", 1)];
    // The original, and the positions of the pages.
    assert_eq!(bench.counts("acme").await, expected.map(|(path, count)| (path.to_owned(), count)));
}
