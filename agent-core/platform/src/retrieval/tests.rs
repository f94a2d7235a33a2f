//! Tests of the search over a store in memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::clock::SystemClock;
use agent_core::ids::CompanyId;
use agent_retrieval::chunk::{Chunk, Chunker, StructuralChunker};
use agent_retrieval::document::{DocumentId, ExtractedText};
use agent_retrieval::search::{Query, SearchOptions};

use super::*;
use crate::memory::MemoryRecords;
use crate::records::{Key, Precondition, Records, RecordsExt as _, RecordsWrapper};
use crate::workspace::{
    ContentStatus, Document, DocumentContent, collection, document_index_status, save_document,
};

type Work = Box<dyn FnOnce() + Send>;

fn retriever_with(
    records: &Arc<MemoryRecords>,
    pool: Arc<dyn BlockingPool>,
    cache_bytes: usize,
) -> DocumentRetriever {
    let records = records.clone();
    DocumentRetriever::new(RetrieverConfig {
        records,
        pool,
        clock: Arc::new(SystemClock),
        cache_bytes,
        embedder: None,
    })
}

async fn save(records: &MemoryRecords, id: &str, text: &str) {
    let document =
        Document { id: id.into(), company_id: "c".into(), text: text.into(), ..Document::default() };
    save_document(records, &document, Precondition::Any, &"ada".into()).await.expect("saved");
}

async fn search(retriever: &DocumentRetriever, ids: &[&str], text: &str) -> SearchResult {
    let ids: Vec<String> = ids.iter().copied().map(str::to_owned).collect();
    let company_id = CompanyId::from("c");
    let query = Query { text, previous: None };
    let search =
        DocumentSearch { company_id: &company_id, documents: &ids, query, options: SearchOptions::default() };
    retriever.search(search).await.expect("the store answers")
}

/// Returns the documents with hits, the best first.
fn found(result: &SearchResult) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for hit in &result.ranking.hits {
        if !found.contains(&hit.document.as_str()) {
            found.push(hit.document.as_str());
        }
    }
    found
}

#[tokio::test]
async fn retrieval_over_memory_conforms() {
    crate::conformance::retrieval(async || Arc::new(MemoryRecords::default()) as _).await;
}

#[tokio::test]
async fn a_search_goes_without_documents_that_are_not_indexed_in_time() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "slow", "The printer is broken.").await;
    // A pool that keeps its work.
    let kept: Arc<Mutex<Vec<Work>>> = Arc::default();
    let pool = {
        let kept = kept.clone();
        Arc::new(move |work: Work| kept.lock().expect("no panic").push(work))
    };
    let retriever = retriever_with(&records, pool, DEFAULT_CACHE_BYTES);
    let result = search(&retriever, &["slow", "none"], "printer").await;
    assert_eq!(found(&result), [""; 0]);
    let skipped: Vec<_> = result.skipped.iter().map(|skipped| (&*skipped.id, skipped.reason)).collect();
    assert_eq!(skipped, [("slow", SkipReason::Indexing), ("none", SkipReason::NotFound)]);
    // The work continues, although its search is gone.
    kept.lock().expect("no panic").drain(..).for_each(|work| work());
    assert_eq!(found(&search(&retriever, &["slow"], "printer").await), ["slow"]);
}

#[tokio::test]
async fn documents_do_not_wait_for_a_long_document() {
    let records = Arc::new(MemoryRecords::default());
    let long = "The printer is broken. ".repeat(30_000);
    for (id, text) in [("a", "The printer is broken."), ("b", &long), ("c", "The printer is broken.")] {
        save(&records, id, text).await;
    }
    // A pool that does the first piece of work at once and keeps the others.
    let kept: Arc<Mutex<Vec<Work>>> = Arc::default();
    let (pool, is_first) = (kept.clone(), AtomicBool::new(true));
    let pool = Arc::new(move |work: Work| match is_first.swap(false, Ordering::SeqCst) {
        true => work(),
        false => pool.lock().expect("no panic").push(work),
    });
    let retriever = retriever_with(&records, pool, DEFAULT_CACHE_BYTES);
    let result = search(&retriever, &["a", "b", "c"], "printer").await;
    assert_eq!(found(&result), ["a", "c"]);
    let skipped: Vec<_> = result.skipped.iter().map(|skipped| (&*skipped.id, skipped.reason)).collect();
    assert_eq!(skipped, [("b", SkipReason::Indexing)]);
    kept.lock().expect("no panic").drain(..).for_each(|work| work());
    assert_eq!(found(&search(&retriever, &["b"], "printer").await), ["b"]);
}

#[tokio::test]
async fn searches_of_the_same_documents_share_the_analysis() {
    let records = Arc::new(MemoryRecords::default());
    for n in 0..10 {
        save(&records, &format!("d{n}"), "The printer is broken.").await;
    }
    let works = Arc::new(AtomicUsize::new(0));
    let pool = {
        let works = works.clone();
        Arc::new(move |work: Work| {
            works.fetch_add(1, Ordering::SeqCst);
            drop(std::thread::spawn(work));
        })
    };
    let retriever = retriever_with(&records, pool, DEFAULT_CACHE_BYTES);
    let ids: Vec<String> = (0..10).map(|n| format!("d{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let searches = (0..8).map(|_| search(&retriever, &ids, "printer"));
    for result in futures_util::future::join_all(searches).await {
        assert_eq!(result.ranking.hits.len(), 10);
    }
    assert_eq!(works.load(Ordering::SeqCst), 1, "one batch, for all");
}

/// A chunker that counts the documents that are analyzed.
#[derive(Default)]
struct CountingChunker(AtomicUsize);

impl Chunker for CountingChunker {
    fn id(&self) -> String {
        StructuralChunker::default().id()
    }

    fn chunk(&self, document: &ExtractedText) -> Vec<Chunk> {
        self.0.fetch_add(1, Ordering::SeqCst);
        StructuralChunker::default().chunk(document)
    }
}

#[tokio::test]
async fn a_document_is_analyzed_again_only_if_its_text_or_title_has_changed() {
    let records = Arc::new(MemoryRecords::default());
    let chunker = Arc::new(CountingChunker::default());
    let new_process = || {
        retriever_with(&records, Arc::new(|work: Work| work()), DEFAULT_CACHE_BYTES)
            .with_chunker(chunker.clone())
    };
    let company_id = CompanyId::from("c");
    let key = Key::new(&company_id, collection::DOCUMENTS, "d").expect("a key");
    let document = |status, owner_id: &str, title: &str, text: &str| Document {
        id: "d".into(),
        company_id: company_id.clone(),
        owner_id: Some(owner_id.into()),
        title: title.to_owned(),
        text: text.to_owned(),
        content: Some(DocumentContent { status, ..DocumentContent::default() }),
        ..Document::default()
    };
    let mut process = new_process();
    let (printer, scanner) = ("The printer is broken.", "The scanner is broken.");
    let changes = [
        (1, document(ContentStatus::Ready, "ada", "A", printer)),
        (1, document(ContentStatus::Pending, "ada", "A", printer)),
        (1, document(ContentStatus::Extracting, "ada", "A", printer)),
        (1, document(ContentStatus::Failed, "ada", "A", printer)),
        (1, document(ContentStatus::Ready, "bob", "A", printer)),
        (2, document(ContentStatus::Ready, "bob", "B", printer)),
        (3, document(ContentStatus::Ready, "bob", "B", scanner)),
        (3, document(ContentStatus::Pending, "bob", "B", scanner)),
    ];
    for (number, (analyses, document)) in changes.into_iter().enumerate() {
        let version = records.put_as(&key, &document, Precondition::Any).await.expect("stored");
        // Some changes are seen by a process without an index in memory.
        if number % 3 == 0 {
            process = new_process();
        }
        let word = if document.text == printer { "printer" } else { "scanner" };
        let result = search(&process, &["d"], word).await;
        assert_eq!(found(&result), ["d"], "{number}");
        assert_eq!(chunker.0.load(Ordering::SeqCst), analyses, "{number}");
        let status = document_index_status(&*records, &company_id, "d", version).await.expect("read");
        assert!(status.is_some(), "the index has the document's version: {number}");
    }
}

#[tokio::test]
async fn a_chunker_of_the_application_splits_texts_that_another_one_has_indexed() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "d", "The printer is broken. The scanner works. The modem is old.").await;
    let hits = async |chunker: Option<StructuralChunker>| {
        let process = retriever_with(&records, Arc::new(|work: Work| work()), DEFAULT_CACHE_BYTES);
        let process = match chunker {
            Some(chunker) => process.with_chunker(Arc::new(chunker)),
            None => process,
        };
        let result = search(&process, &["d"], "printer scanner modem").await;
        let text = &result.documents[&DocumentId::from("d")].text;
        let texts = result.ranking.hits.iter().map(|hit| text[hit.range.clone()].trim().to_owned());
        let mut texts: Vec<String> = texts.collect();
        texts.sort_unstable();
        texts
    };
    let whole = ["The printer is broken. The scanner works. The modem is old."];
    let sentences = ["The modem is old.", "The printer is broken.", "The scanner works."];
    assert_eq!(hits(None).await, whole);
    for _ in 0..2 {
        assert_eq!(hits(Some(StructuralChunker::new(25, 0))).await, sentences);
    }
    assert_eq!(hits(None).await, whole, "neither one uses the other's index");
}

#[tokio::test]
async fn a_company_takes_only_its_share_of_the_memory() {
    let records = Arc::new(MemoryRecords::default());
    let text = |n: usize| (0..4_000).map(|word| format!("word{n}x{word} ")).collect::<String>();
    for n in 0..8 {
        save(&records, &format!("d{n}"), &text(n)).await;
    }
    let retriever = retriever_with(&records, Arc::new(|work: Work| work()), 1 << 20);
    let first = search(&retriever, &["d0"], "word0x7").await;
    assert_eq!(found(&first), ["d0"]);
    let all: Vec<String> = (0..8).map(|n| format!("d{n}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let result = search(&retriever, &all, "word0x7").await;
    assert!(!result.skipped.is_empty(), "not all of them fit");
    assert!(result.skipped.iter().all(|skipped| skipped.reason == SkipReason::TooLarge));
    // A search over others makes room.
    for n in 0..8 {
        let id = format!("d{n}");
        assert_eq!(found(&search(&retriever, &[&id], &format!("word{n}x9")).await), [&*id], "{n}");
    }
}

#[tokio::test]
async fn evicted_indexes_are_loaded_again() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "d", "The printer is broken.").await;
    // Less than one entry needs.
    let retriever = retriever_with(&records, Arc::new(|work: Work| work()), 8 * 1024);
    for company in ["x", "c", "y", "c"] {
        let ids = ["d".to_owned()];
        let company_id = CompanyId::from(company);
        let query = Query { text: "printer", previous: None };
        let options = SearchOptions::default();
        let search = DocumentSearch { company_id: &company_id, documents: &ids, query, options };
        let result = retriever.search(search).await.expect("the store answers");
        assert_eq!(result.ranking.hits.len(), usize::from(company == "c"), "{company}");
    }
}

/// A server and the standby that replaces it without the latest writes.
#[derive(Default)]
struct FailoverRecords {
    primary: MemoryRecords,
    standby: MemoryRecords,
    is_failed_over: AtomicBool,
}

impl RecordsWrapper for FailoverRecords {
    fn inner(&self) -> &dyn Records {
        if self.is_failed_over.load(Ordering::SeqCst) { &self.standby } else { &self.primary }
    }
}

#[tokio::test]
async fn a_search_finds_the_texts_that_a_failover_has_left() {
    let records = Arc::new(FailoverRecords::default());
    for server in [&records.primary, &records.standby] {
        save(server, "d", "The printer is broken.").await;
        save(server, "e", "Lunch begins at noon.").await;
    }
    for _ in 0..20 {
        save(&records.primary, "d", "The scanner is broken.").await;
    }
    let retriever = DocumentRetriever::new(RetrieverConfig {
        records: records.clone(),
        pool: Arc::new(|work: Work| work()),
        clock: Arc::new(SystemClock),
        cache_bytes: DEFAULT_CACHE_BYTES,
        embedder: None,
    });
    assert_eq!(found(&search(&retriever, &["d", "e"], "scanner").await), ["d"]);
    records.is_failed_over.store(true, Ordering::SeqCst);
    let result = search(&retriever, &["d", "e"], "scanner").await;
    assert_eq!(found(&result), [""; 0], "the text was lost");
    for round in 0..2 {
        let result = search(&retriever, &["d"], "printer").await;
        assert_eq!(found(&result), ["d"], "{round}");
        let texts: Vec<&str> = result.documents.values().map(|found| &*found.text).collect();
        assert_eq!(texts, ["The printer is broken."], "{round}");
    }
    // A write after the failover has a lower version than the lost one.
    save(&records.standby, "d", "The modem is broken.").await;
    assert_eq!(found(&search(&retriever, &["d", "e"], "modem").await), ["d"]);
}
