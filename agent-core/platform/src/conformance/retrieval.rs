//! Conformance suite of retrieval over a record store: equal documents give equal rankings, on every store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use agent_core::clock::{Clock, SystemClock};
use agent_core::ids::CompanyId;
use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::doc_index::DocIndex;
use agent_retrieval::document::{DocumentId, Extracted, TextFormat};
use agent_retrieval::search::{Query, Ranking, SearchOptions, search_documents};
use futures_util::future::BoxFuture;

use super::records::SharedRecords;
use crate::records::{Precondition, Records};
use crate::retrieval::{
    DocumentRetriever, DocumentSearch, Retriever as _, RetrieverConfig, SearchResult, SkipReason,
};
use crate::workspace::{Document, delete_document, save_document};

/// Words of the documents and the queries. Documents of equal words tie, which the order of ids decides.
const WORDS: [&str; 12] = [
    "invoice", "receipt", "holiday", "travel", "train", "booking", "server", "backup", "printer", "ordering",
    "salary", "meeting",
];
/// Number of documents, and of rounds of changes.
const DOCUMENTS: u32 = 24;
const ROUNDS: u32 = 8;

/// Runs the conformance suite of retrieval against stores from `make`, which must return an empty one at every call. The
/// reference is a search over freshly made indexes of the same documents.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn retrieval(make: impl AsyncFn() -> SharedRecords) {
    rankings_are_those_of_the_documents(make().await).await;
    companies_are_apart(make().await).await;
    long_indexes_are_stored_in_pieces(make().await).await;
}

/// The system clock with longer sleeps. A search on a busy machine waits for its index and does not go without it.
struct PatientClock;

/// Factor by which a sleep is longer than the requested one.
const PATIENCE_FACTOR: u32 = 60;

impl Clock for PatientClock {
    fn now(&self) -> SystemTime {
        SystemClock.now()
    }

    fn monotonic(&self) -> Instant {
        SystemClock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration * PATIENCE_FACTOR)
    }
}

fn retriever(records: &SharedRecords) -> DocumentRetriever {
    DocumentRetriever::new(RetrieverConfig {
        records: records.clone(),
        pool: Arc::new(|work: Box<dyn FnOnce() + Send>| drop(std::thread::spawn(work))),
        clock: Arc::new(PatientClock),
        cache_bytes: 64 << 20,
        embedder: None,
    })
}

async fn search(retriever: &DocumentRetriever, company: &str, ids: &[String], text: &str) -> SearchResult {
    let company_id = CompanyId::from(company);
    let query = Query { text, previous: None };
    let options = SearchOptions { min_relevance: 0.0, ..SearchOptions::default() };
    let search = DocumentSearch { company_id: &company_id, documents: ids, query, options };
    retriever.search(search).await.expect("the store answers")
}

async fn save(records: &dyn Records, company: &str, id: &str, text: &str) {
    let document = Document {
        id: id.to_owned(),
        company_id: company.into(),
        title: format!("Title of {id}"),
        text: text.to_owned(),
        ..Document::default()
    };
    save_document(records, &document, Precondition::Any, &"ada".into()).await.expect("saved");
}

/// Returns a text that is determined by a number.
fn text_of(seed: u32) -> String {
    let words = (0..40).map(|n| WORDS[(seed.wrapping_mul(31).wrapping_add(n * n * 7 + n) % 12) as usize]);
    words.collect::<Vec<_>>().chunks(8).map(|words| words.join(" ") + ".").collect::<Vec<_>>().join("\n\n")
}

/// Ranks documents by indexes that are made now.
fn expected(texts: &BTreeMap<String, String>, ids: &[String], text: &str) -> Ranking {
    let index = |id: &String| {
        let document = Extracted {
            title: format!("Title of {id}"),
            text: texts.get(id)?.clone(),
            format: TextFormat::Markdown,
            ..Extracted::default()
        };
        let index = DocIndex::build(&document, &StructuralChunker::default()).expect("a short text");
        Some((DocumentId::from(id.as_str()), index))
    };
    let indexes: Vec<_> = ids.iter().filter_map(index).collect();
    let query = Query { text, previous: None };
    let options = SearchOptions { min_relevance: 0.0, ..SearchOptions::default() };
    search_documents(indexes.iter().map(|(id, index)| (id.clone(), index)), &query, &options)
}

/// Two retrievers over one store, as in two processes, give the expected ranking after each of many changes.
async fn rankings_are_those_of_the_documents(records: SharedRecords) {
    let (first, second) = (retriever(&records), retriever(&records));
    let ids: Vec<String> = (0..DOCUMENTS).map(|n| format!("d{n}")).collect();
    let mut texts = BTreeMap::new();
    for round in 0..ROUNDS {
        for n in 0..DOCUMENTS {
            let (id, seed) = (&ids[n as usize], n * 1_000 + round);
            match (n + round * 5) % 7 {
                0 => {
                    delete_document(&*records, &"c".into(), id, Precondition::Any).await.expect("deleted");
                    texts.remove(id);
                }
                1 | 2 => {
                    save(&*records, "c", id, &text_of(seed)).await;
                    texts.insert(id.clone(), text_of(seed));
                }
                _ => {}
            }
        }
        let scope: Vec<String> = ids.iter().skip(round as usize % 3).cloned().collect();
        for query in ["receipt for a train", "backup of the server", "ordering holiday salary"] {
            let expected = expected(&texts, &scope, query);
            for retriever in [&first, &second] {
                let found = search(retriever, "c", &scope, query).await;
                assert_eq!(
                    found.ranking, expected,
                    "round {round}, {query}: the ranking is that of the documents"
                );
                for hit in &found.ranking.hits {
                    let text = found.documents.get(&hit.document).map(|found| &*found.text);
                    assert_eq!(
                        text,
                        texts.get(hit.document.as_str()).map(String::as_str),
                        "its text is there"
                    );
                }
            }
        }
    }
    // A process that begins reads the stored indexes.
    let found = search(&retriever(&records), "c", &ids, "receipt").await;
    assert_eq!(found.ranking, expected(&texts, &ids, "receipt"), "stored indexes give the same ranking");
}

/// A company's documents are found neither by others nor in their statistics.
async fn companies_are_apart(records: SharedRecords) {
    save(&*records, "c", "d1", "The printer is on the second floor.").await;
    let retriever = retriever(&records);
    let ids = ["d1".to_owned(), "d2".to_owned()];
    let alone = search(&retriever, "c", &ids[..1], "printer floor").await.ranking;
    for n in 0..20 {
        save(&*records, "other", &format!("d{n}"), "The printer of another company, on a floor.").await;
    }
    let found = search(&retriever, "c", &ids, "printer floor").await;
    assert_eq!(found.ranking, alone, "the documents of another company change nothing");
    assert_eq!(found.skipped.iter().map(|skipped| &*skipped.id).collect::<Vec<_>>(), ["d2"]);
    assert_eq!(found.skipped[0].reason, SkipReason::NotFound, "another company's document does not exist");
    let none = search(&retriever, "nobody", &ids, "printer").await;
    assert!(
        none.ranking.hits.is_empty() && none.scope.is_empty(),
        "a company without documents finds nothing"
    );
}

/// The index of a long text of different words needs several records, and is gone with the document.
async fn long_indexes_are_stored_in_pieces(records: SharedRecords) {
    // Words of letters alone: identifiers would be taken apart.
    let letter = |digit: char| char::from(b'a' + digit.to_digit(16).unwrap_or_default() as u8);
    let word =
        |n: u64| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).chars().map(letter).collect();
    let words: Vec<String> = (1..30_000).map(word).collect();
    let text = words.join(" ");
    save(&*records, "c", "long", &text).await;
    let ids = ["long".to_owned()];
    let word = &words[20_000];
    let hits = |found: &SearchResult| found.ranking.hits.len();
    assert_eq!(hits(&search(&retriever(&records), "c", &ids, word).await), 1);
    assert_eq!(hits(&search(&retriever(&records), "c", &ids, word).await), 1, "by the stored index");
    delete_document(&*records, &"c".into(), "long", Precondition::Any).await.expect("deleted");
    let kept = records.count(&crate::records::Collection::new("c", "documentIndexes").expect("a name")).await;
    assert_eq!(kept.expect("counted"), 0, "the index is gone with the document");
    assert_eq!(hits(&search(&retriever(&records), "c", &ids, word).await), 0);
}
