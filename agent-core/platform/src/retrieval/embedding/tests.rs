//! Tests of vectors in searches, with an embedder of three meanings.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::clock::{Clock, SystemClock};
use agent_core::testing::ManualClock;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings};
use agent_retrieval::search::{Query, SearchOptions};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use futures_util::future::{Either, select};

use super::slice::CALL_TIMEOUT;
use super::*;
use crate::memory::MemoryRecords;
use crate::records::{
    Collection, Key, ListQuery, Page, Precondition, Record, Records, RecordsExt as _, Write,
};
use crate::retrieval::{
    DEFAULT_CACHE_BYTES, DocumentSearch, EmbedderSkip, EmbedderUse, RetrievalEmbedder, Retriever as _,
    RetrieverConfig, SearchResult,
};
use crate::workspace::{Document, document_index_status, get_document, save_document};

const SECOND: Duration = Duration::from_secs(1);

/// Words of the same meaning.
const MEANINGS: [&[&str]; 3] = [&["car", "automobile"], &["invoice", "bill"], &["holiday", "vacation"]];

/// Behaviour of the embedder.
#[derive(Debug, Clone, PartialEq)]
enum Behaviour {
    Answers,
    /// Vectors of the words, or of each text's own if they have no meaning.
    AnswersWords {
        with_meaning: bool,
    },
    Fails(EmbedError),
    Hangs,
    /// Fails for texts with a word.
    FailsFor(&'static str, EmbedError),
    /// Hangs for texts with a word.
    HangsFor(&'static str),
}

/// An embedder whose vectors are the meanings of the words.
struct MeaningEmbedder {
    id: EmbedderId,
    max_batch: usize,
    behaviour: Mutex<Behaviour>,
    /// Documents' inputs so far.
    inputs: Mutex<Vec<String>>,
    queries: AtomicUsize,
}

impl MeaningEmbedder {
    fn new(id: &str) -> Arc<Self> {
        Arc::new(Self {
            id: EmbedderId::new(id),
            max_batch: 2,
            behaviour: Mutex::new(Behaviour::Answers),
            inputs: Mutex::default(),
            queries: AtomicUsize::new(0),
        })
    }

    fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().expect("no panic") = behaviour;
    }

    fn inputs(&self) -> Vec<String> {
        std::mem::take(&mut self.inputs.lock().expect("no panic"))
    }

    /// Returns the number of documents' inputs so far.
    fn input_count(&self) -> usize {
        self.inputs.lock().expect("no panic").len()
    }
}

#[async_trait]
impl Embedder for MeaningEmbedder {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn max_batch(&self) -> usize {
        self.max_batch
    }

    async fn embed(&self, texts: &[&str], role: EmbedRole) -> Result<Embeddings, EmbedError> {
        assert!(texts.len() <= self.max_batch, "no more texts than allowed");
        match role {
            EmbedRole::Query => drop(self.queries.fetch_add(1, Ordering::SeqCst)),
            EmbedRole::Document => {
                self.inputs.lock().expect("no panic").extend(texts.iter().map(|text| (*text).to_owned()));
            }
        }
        let behaviour = self.behaviour.lock().expect("no panic").clone();
        match behaviour {
            Behaviour::Answers => {}
            Behaviour::AnswersWords { with_meaning } => {
                let vectors = texts.iter().map(|text| vector_of_words(text, with_meaning));
                return Embeddings::new(texts.len(), vectors);
            }
            Behaviour::Fails(error) => return Err(error),
            Behaviour::Hangs => std::future::pending().await,
            Behaviour::FailsFor(word, error) => {
                if texts.iter().any(|text| text.contains(word)) {
                    return Err(error);
                }
            }
            Behaviour::HangsFor(word) => {
                if texts.iter().any(|text| text.contains(word)) {
                    std::future::pending().await
                }
            }
        }
        let vector = |text: &&str| {
            let has = |words: &[&str]| words.iter().any(|word| text.to_lowercase().contains(word));
            let mut vector = MEANINGS.map(|words| if has(words) { 1.0 } else { 0.0 }).to_vec();
            vector.push(0.2);
            vector
        };
        Embeddings::new(texts.len(), texts.iter().map(vector))
    }
}

/// Returns the sum of the vectors of a text's words, or a vector of the text's own.
fn vector_of_words(text: &str, with_meaning: bool) -> Vec<f32> {
    let parts: Vec<&str> = if with_meaning { text.split_whitespace().collect() } else { vec![text] };
    let mut vector = vec![0.0; 64];
    for part in parts {
        let mut hasher = std::hash::DefaultHasher::new();
        for component in &mut vector {
            std::hash::Hash::hash(part, &mut hasher);
            *component += (std::hash::Hasher::finish(&hasher) >> 40) as f32 / (1 << 24) as f32 - 0.5;
        }
    }
    vector
}

/// Returns a text on one of twenty topics, with words of the topic and words of its own in each revision.
fn topical_text(number: usize, revision: usize) -> String {
    let word = |n: usize| -> String {
        let letters = (0..6).map(|place| char::from(b'a' + (n * 7919 / 13_usize.pow(place) % 13) as u8));
        letters.collect()
    };
    let of_topic =
        (0..9_usize).filter(|n| !(n + number / 20).is_multiple_of(3)).map(|n| number % 20 * 50 + n);
    let own = (0..3).map(|n| 2_000 + number * 10 + revision * 3 + n);
    let words: Vec<String> = of_topic.chain(own).map(word).collect();
    format!("This is the text that was by those who are here in the house and not {}.", words.join(" "))
}

/// Returns a text with a section about each of the topics, which has chunks of its own.
fn text_with_sections(topics: &[&str]) -> String {
    let section = |topic: &&str| format!("# {topic}\n\n{}\n\n", format!("About {topic}. ").repeat(50));
    topics.iter().map(section).collect()
}

fn retriever(records: &Arc<MemoryRecords>, embedder: &Arc<MeaningEmbedder>) -> DocumentRetriever {
    DocumentRetriever::new(RetrieverConfig {
        records: records.clone(),
        pool: Arc::new(|work: Box<dyn FnOnce() + Send>| work()),
        clock: Arc::new(SystemClock),
        cache_bytes: DEFAULT_CACHE_BYTES,
        embedder: Some(RetrievalEmbedder { embedder: embedder.clone(), weight: 0.5, min_similarity: 0.7 }),
    })
}

/// Records in memory whose next writes of an index fail.
struct FailingIndexRecords {
    records: Arc<MemoryRecords>,
    /// Number of writes of an index that fail from now on.
    failures: AtomicUsize,
}

#[async_trait]
impl Records for FailingIndexRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.records.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let is_index =
            |write: &Write| write.key().collection().path() == workspace::collection::DOCUMENT_INDEXES;
        let next = |failures: usize| failures.checked_sub(1);
        if writes.iter().any(is_index)
            && self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
        {
            return Err(StoreError::unavailable("the disk is full"));
        }
        self.records.commit(writes).await
    }
}

/// Returns a retriever over records whose next writes of an index fail.
fn retriever_with_failures(
    records: &Arc<MemoryRecords>,
    embedder: &Arc<MeaningEmbedder>,
    (failures, clock): (usize, Arc<dyn Clock>),
) -> DocumentRetriever {
    let records_of_retriever =
        Arc::new(FailingIndexRecords { records: records.clone(), failures: AtomicUsize::new(failures) });
    let config =
        RetrieverConfig { records: records_of_retriever, clock, ..retriever(records, embedder).config };
    DocumentRetriever::new(config)
}

/// Returns a retriever with a separate clock.
fn retriever_with_clock(
    records: &Arc<MemoryRecords>,
    embedder: &Arc<MeaningEmbedder>,
    clock: &ManualClock,
) -> DocumentRetriever {
    let config = RetrieverConfig { clock: Arc::new(clock.clone()), ..retriever(records, embedder).config };
    DocumentRetriever::new(config)
}

async fn save(records: &MemoryRecords, id: &str, text: &str) {
    save_of("c", records, id, text).await;
}

/// Saves a document of a company.
async fn save_of(company_id: &str, records: &MemoryRecords, id: &str, text: &str) {
    let company_id = company_id.into();
    let document = Document { id: id.into(), company_id, text: text.into(), ..Document::default() };
    save_document(records, &document, Precondition::Any, &"ada".into()).await.expect("saved");
}

async fn search(retriever: &DocumentRetriever, ids: &[&str], text: &str) -> SearchResult {
    search_of("c", retriever, ids, text).await
}

/// Searches documents of a company.
async fn search_of(
    company_id: &str,
    retriever: &DocumentRetriever,
    ids: &[&str],
    text: &str,
) -> SearchResult {
    let ids: Vec<String> = ids.iter().copied().map(str::to_owned).collect();
    let company_id = CompanyId::from(company_id);
    let query = Query { text, previous: None };
    let search =
        DocumentSearch { company_id: &company_id, documents: &ids, query, options: SearchOptions::default() };
    retriever.search(search).await.expect("the store answers")
}

fn found(result: &SearchResult) -> Vec<&str> {
    let relevant = result.ranking.hits.iter().filter(|hit| hit.is_relevant);
    relevant.map(|hit| hit.document.as_str()).collect()
}

fn skipped(result: &SearchResult) -> Option<EmbedderSkip> {
    result.embedder.as_ref().expect("an embedder is configured").skipped
}

/// Returns the numbers of embedded chunks and of all chunks of a document.
async fn embedded(records: &MemoryRecords, id: &str) -> (usize, usize) {
    embedded_of("c", records, id).await
}

/// Returns the numbers of embedded chunks and of all chunks of a company's document.
async fn embedded_of(company_id: &str, records: &MemoryRecords, id: &str) -> (usize, usize) {
    let status = index_status(company_id, records, id).await;
    status.map_or((0, 0), |status| (status.embedded, status.chunks))
}

async fn index_status(company_id: &str, records: &MemoryRecords, id: &str) -> Option<IndexStatus> {
    let company_id = CompanyId::from(company_id);
    let document = get_document(records, &company_id, id).await.expect("read").expect("it exists");
    document_index_status(records, &company_id, id, document.version).await.expect("read")
}

/// Waits until an attempt to embed a document has failed a number of times in a row.
async fn wait_for_failures(
    company_id: &str,
    records: &MemoryRecords,
    (id, failures): (&str, u32),
) -> EmbeddingFailure {
    loop {
        let failure = index_status(company_id, records, id).await.and_then(|status| status.embedding_failure);
        match failure.filter(|failure| failure.failures == failures) {
            Some(failure) => return failure,
            None => tokio::task::yield_now().await,
        }
    }
}

/// Waits until the only chunk of a company's document is embedded.
async fn wait_until_embedded(company_id: &str, records: &MemoryRecords, id: &str) {
    while embedded_of(company_id, records, id).await != (1, 1) {
        tokio::task::yield_now().await;
    }
}

/// Runs the background work until `done` is.
async fn while_running(retriever: &DocumentRetriever, done: impl Future<Output = ()>) {
    let (work, done) = (std::pin::pin!(retriever.run()), std::pin::pin!(done));
    let ended = tokio::time::timeout(Duration::from_secs(20), select(work, done)).await;
    assert!(matches!(ended, Ok(Either::Right(_))), "it is done in time");
}

/// Runs the background work until a document has all vectors.
async fn run_until_embedded(retriever: &DocumentRetriever, records: &MemoryRecords, id: &str) {
    let done = async {
        loop {
            let (embedded, chunks) = embedded(records, id).await;
            if chunks > 0 && embedded == chunks {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    while_running(retriever, done).await;
}

#[tokio::test]
async fn a_document_is_found_by_its_meaning_once_it_is_embedded() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    save(&records, "desk", "The desk is open from nine to five.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever(&records, &embedder);
    let before = search(&retriever, &["fleet", "desk"], "Who cleans my car?").await;
    assert_eq!((found(&before), skipped(&before)), (vec![], Some(EmbedderSkip::NoVectors)));
    assert_eq!(embedder.queries.load(Ordering::SeqCst), 0, "there is nothing to compare a vector with");
    // The search has announced the documents.
    run_until_embedded(&retriever, &records, "fleet").await;
    let after = search(&retriever, &["fleet", "desk"], "Who cleans my car?").await;
    assert_eq!((found(&after), skipped(&after)), (vec!["fleet"], None));
    let hit = &after.ranking.hits[0];
    assert!(hit.dense > Some(0.9) && hit.lexical == 0.0, "{hit:?}");
    assert_eq!(after.embedder, Some(EmbedderUse { embedder: EmbedderId::new("e:1"), skipped: None }));
    // The message before has an effect on a question that leaves out its subject.
    let ids = ["fleet".to_owned()];
    let company_id = CompanyId::from("c");
    let similarity = async |previous: Option<&str>| {
        let query = Query { text: "And who does it?", previous };
        let options = SearchOptions::default();
        let search = DocumentSearch { company_id: &company_id, documents: &ids, query, options };
        retriever.search(search).await.expect("the store answers").ranking.hits[0].dense
    };
    assert!(similarity(Some("Tell me of the car.")).await > similarity(None).await);
}

#[tokio::test]
async fn another_process_sees_the_vectors_with_its_next_search() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let (one, other) = (MeaningEmbedder::new("e:1"), MeaningEmbedder::new("e:1"));
    let (first, second) = (retriever(&records, &one), retriever(&records, &other));
    assert_eq!(skipped(&search(&second, &["fleet"], "car").await), Some(EmbedderSkip::NoVectors));
    first.announce(&"c".into(), "fleet");
    run_until_embedded(&first, &records, "fleet").await;
    assert_eq!(found(&search(&second, &["fleet"], "car").await), ["fleet"]);
    // It finds the work done.
    run_until_embedded(&second, &records, "fleet").await;
    assert_eq!(other.inputs(), [""; 0]);
}

#[tokio::test]
async fn a_change_embeds_only_the_chunks_that_it_changes() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "d", &text_with_sections(&["car", "bill", "holiday"])).await;
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever(&records, &embedder);
    retriever.announce(&"c".into(), "d");
    run_until_embedded(&retriever, &records, "d").await;
    let all = embedder.inputs().len();
    save(&records, "d", &text_with_sections(&["car", "desk", "holiday"])).await;
    retriever.announce(&"c".into(), "d");
    run_until_embedded(&retriever, &records, "d").await;
    let changed = embedder.inputs();
    assert!(!changed.is_empty() && changed.len() < all, "{} of {all}", changed.len());
    assert!(changed.iter().all(|input| input.contains("desk")), "{changed:?}");
    assert_eq!(found(&search(&retriever, &["d"], "automobile").await), ["d"]);
}

#[tokio::test]
async fn an_index_that_could_not_be_stored_is_stored_later_and_embedded() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever_with_failures(&records, &embedder, (1, Arc::new(SystemClock)));
    let result = search(&retriever, &["fleet"], "automobile").await;
    assert_eq!((found(&result), skipped(&result)), (vec!["fleet"], Some(EmbedderSkip::NoVectors)));
    assert_eq!(embedded(&records, "fleet").await, (0, 0), "the index was not stored");
    run_until_embedded(&retriever, &records, "fleet").await;
    assert_eq!(found(&search(&retriever, &["fleet"], "car").await), ["fleet"]);
}

#[tokio::test]
async fn the_pause_before_an_index_is_stored_again_grows() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let clock = ManualClock::new();
    // The first write is that of the indexing, and each attempt at a slice makes one more.
    let retriever = retriever_with_failures(&records, &embedder, (4, Arc::new(clock.clone())));
    retriever.announce(&"c".into(), "fleet");
    let done = async {
        for seconds in [1, 2, 4] {
            clock.wait_for_sleepers(1).await;
            assert_eq!(embedded(&records, "fleet").await, (0, 0), "the index is not stored yet");
            assert_eq!(clock.advance_to_next(), Some(Duration::from_secs(seconds)));
        }
        while embedded(&records, "fleet").await != (1, 1) {
            tokio::task::yield_now().await;
        }
    };
    while_running(&retriever, done).await;
}

#[tokio::test]
async fn an_index_with_vectors_that_could_not_be_stored_is_stored_later() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "d", &text_with_sections(&["bill", "car"])).await;
    let embedder = MeaningEmbedder::new("e:1");
    let first = retriever(&records, &embedder);
    first.announce(&"c".into(), "d");
    run_until_embedded(&first, &records, "d").await;
    embedder.inputs();
    // All chunks of the next version have vectors already.
    save(&records, "d", &text_with_sections(&["bill"])).await;
    let second = retriever_with_failures(&records, &embedder, (1, Arc::new(SystemClock)));
    search(&second, &["d"], "bill").await;
    assert_eq!(embedded(&records, "d").await, (0, 0), "the index was not stored");
    run_until_embedded(&second, &records, "d").await;
    assert_eq!(embedder.inputs(), [""; 0], "the vectors were taken over");
}

#[tokio::test]
async fn a_stored_index_that_cannot_be_decoded_is_replaced() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let first = retriever(&records, &embedder);
    first.announce(&"c".into(), "fleet");
    run_until_embedded(&first, &records, "fleet").await;
    let key = workspace::index_key(&"c".into(), "fleet").expect("a key");
    let stored = records.get_as::<serde_json::Value>(&key).await.expect("read").expect("it is stored");
    let damaged = serde_json::json!({"version": stored.value["version"], "furtherPieces": 0,
        "status": stored.value["status"], "data": ""});
    records.put_as(&key, &damaged, Precondition::Version(stored.version)).await.expect("written");
    let second = retriever(&records, &embedder);
    let work = async {
        while found(&search(&second, &["fleet"], "car").await).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    while_running(&second, work).await;
}

#[tokio::test]
async fn an_index_of_the_format_before_is_built_again_with_its_vectors() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let first = retriever(&records, &embedder);
    first.announce(&"c".into(), "fleet");
    run_until_embedded(&first, &records, "fleet").await;
    embedder.inputs();
    let key = workspace::index_key(&"c".into(), "fleet").expect("a key");
    let stored = records.get_as::<serde_json::Value>(&key).await.expect("read").expect("it is stored");
    let mut old = stored.value.clone();
    let mut bytes = STANDARD_NO_PAD.decode(old["data"].as_str().expect("a text")).expect("base64");
    bytes[4] = 3;
    old["data"] = STANDARD_NO_PAD.encode(bytes).into();
    records.put_as(&key, &old, Precondition::Version(stored.version)).await.expect("written");
    let second = retriever(&records, &embedder);
    assert_eq!(found(&search(&second, &["fleet"], "car").await), ["fleet"]);
    assert_eq!(embedder.inputs(), [""; 0], "the vectors are taken over");
    let new = records.get_as::<serde_json::Value>(&key).await.expect("read").expect("it is stored");
    assert_eq!(new.value["data"], stored.value["data"]);
    // Vectors of the format before can be dropped, too.
    records.put_as(&key, &old, Precondition::Any).await.expect("written");
    let third = retriever(&records, &embedder);
    assert!(third.drop_vectors(&"c".into(), "fleet").await.expect("dropped"), "it had some");
    assert_eq!(embedded(&records, "fleet").await, (0, 1));
}

/// Records in memory in which another process embeds a document before the first write of an index.
struct RacingRecords {
    records: Arc<MemoryRecords>,
    other: Mutex<Option<(DocumentRetriever, Arc<MeaningEmbedder>)>>,
}

#[async_trait]
impl Records for RacingRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.records.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let other = self.other.lock().expect("no panic").take();
        if let Some((retriever, embedder)) = other {
            let slice = retriever.embed_slice(&*embedder, &"c".into(), "fleet").await;
            assert!(matches!(slice, Ok(Progress::Done)), "the other process has embedded it");
        }
        self.records.commit(writes).await
    }
}

#[tokio::test]
async fn an_index_that_another_process_has_stored_meanwhile_stays() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let other = Mutex::new(Some((retriever(&records, &embedder), embedder.clone())));
    let racing = RacingRecords { records: records.clone(), other };
    let config = RetrieverConfig { records: Arc::new(racing), ..retriever(&records, &embedder).config };
    let first = DocumentRetriever::new(config);
    search(&first, &["fleet"], "automobile").await;
    assert_eq!(embedded(&records, "fleet").await, (1, 1), "the vectors of the other process stay");
    assert_eq!(found(&search(&first, &["fleet"], "car").await), ["fleet"]);
}

#[tokio::test]
async fn a_large_index_is_decoded_in_the_pool_when_its_vectors_are_dropped() {
    let records = Arc::new(MemoryRecords::default());
    let paragraphs: Vec<String> = (0..1_500).map(|number| topical_text(number, 0)).collect();
    save(&records, "d", &paragraphs.join("\n\n")).await;
    let embedder = MeaningEmbedder::new("e:1");
    let working = retriever(&records, &embedder);
    working.announce(&"c".into(), "d");
    run_until_embedded(&working, &records, "d").await;
    // Work that this pool gets is not done.
    let pool = |work: Box<dyn FnOnce() + Send>| drop(work);
    let config = RetrieverConfig { pool: Arc::new(pool), ..retriever(&records, &embedder).config };
    let idle = DocumentRetriever::new(config);
    let dropped = idle.drop_vectors(&"c".into(), "d").await;
    assert!(matches!(dropped, Err(StoreError::Unavailable(_))), "{dropped:?}");
    assert!(working.drop_vectors(&"c".into(), "d").await.expect("dropped"), "it had some");
}

#[tokio::test]
async fn a_search_goes_without_an_embedder_that_fails() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let working = MeaningEmbedder::new("e:1");
    let retriever_of_others = retriever(&records, &working);
    retriever_of_others.announce(&"c".into(), "fleet");
    run_until_embedded(&retriever_of_others, &records, "fleet").await;
    let failures = [
        (EmbedError::unavailable("it is down"), EmbedderSkip::Unavailable),
        (EmbedError::Rejected("the key is wrong".into()), EmbedderSkip::Rejected),
        (EmbedError::InvalidAnswer("no vectors".into()), EmbedderSkip::InvalidAnswer),
    ];
    for (error, skip) in failures {
        let embedder = MeaningEmbedder::new("e:1");
        embedder.behave(Behaviour::Fails(error));
        let retriever = retriever(&records, &embedder);
        let result = search(&retriever, &["fleet"], "When is the automobile washed?").await;
        assert_eq!((found(&result), skipped(&result)), (vec!["fleet"], Some(skip)));
        // It is not asked again for a while.
        embedder.behave(Behaviour::Answers);
        let result = search(&retriever, &["fleet"], "automobile").await;
        assert_eq!((found(&result), skipped(&result)), (vec!["fleet"], Some(EmbedderSkip::Paused)));
        assert_eq!(embedder.queries.load(Ordering::SeqCst), 1);
    }
    let (embedder, clock) = (MeaningEmbedder::new("e:1"), ManualClock::new());
    let retriever = retriever_with_clock(&records, &embedder, &clock);
    search(&retriever, &["fleet"], "automobile").await;
    embedder.behave(Behaviour::Hangs);
    let timeout = async {
        clock.wait_for_sleepers(1).await;
        clock.advance_to_next()
    };
    let (result, waited) = join(search(&retriever, &["fleet"], "automobile"), timeout).await;
    assert_eq!((found(&result), skipped(&result)), (vec!["fleet"], Some(EmbedderSkip::Timeout)));
    assert_eq!(waited, Some(Duration::from_millis(800)));
}

/// Saves the documents `d0` to `d79` and embeds them.
async fn save_topical(
    records: &MemoryRecords,
    retriever: &DocumentRetriever,
    revision: usize,
) -> Vec<String> {
    let ids: Vec<String> = (0..80).map(|number| format!("d{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        save(records, id, &topical_text(number, revision)).await;
        retriever.announce(&"c".into(), id);
    }
    run_until_all_embedded(retriever, records, &ids).await;
    ids
}

/// Runs the background work until documents of one chunk have their vectors.
async fn run_until_all_embedded(retriever: &DocumentRetriever, records: &MemoryRecords, ids: &[String]) {
    let done = async {
        for id in ids {
            while embedded(records, id).await != (1, 1) {
                tokio::task::yield_now().await;
            }
        }
    };
    while_running(retriever, done).await;
}

#[tokio::test]
async fn vectors_without_meaning_are_left_out_until_they_are_replaced() {
    let records = Arc::new(MemoryRecords::default());
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever(&records, &embedder);
    embedder.behave(Behaviour::AnswersWords { with_meaning: false });
    let ids = save_topical(&records, &retriever, 0).await;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let query = topical_text(5, 0);
    let result = search(&retriever, &ids, &query).await;
    assert_eq!(skipped(&result), Some(EmbedderSkip::MeaninglessVectors));
    assert_eq!(found(&result).first(), Some(&"d5"));
    assert!(result.ranking.hits.iter().all(|hit| hit.dense.is_none()), "by words alone");
    assert_eq!(embedder.queries.load(Ordering::SeqCst), 0, "the model is not asked for nothing");
    // A few documents are too few for a verdict.
    let few = search(&retriever, &ids[..10], &query).await;
    assert_eq!((skipped(&few), found(&few).first()), (None, Some(&"d5")));
    assert!(few.ranking.hits.iter().any(|hit| hit.dense.is_some()));
    // The verdict is that of the vectors that the documents have now.
    embedder.behave(Behaviour::AnswersWords { with_meaning: true });
    save_topical(&records, &retriever, 1).await;
    let result = search(&retriever, &ids, &query).await;
    assert_eq!(skipped(&result), None);
    assert!(result.ranking.hits.iter().any(|hit| hit.dense.is_some()));
}

#[tokio::test]
async fn dropped_vectors_are_gone_in_every_process_and_made_anew_after_a_restart() {
    let records = Arc::new(MemoryRecords::default());
    let embedder = MeaningEmbedder::new("e:1");
    embedder.behave(Behaviour::AnswersWords { with_meaning: false });
    let (first, second) = (retriever(&records, &embedder), retriever(&records, &embedder));
    let ids = save_topical(&records, &first, 0).await;
    let named: Vec<&str> = ids.iter().map(String::as_str).collect();
    let query = topical_text(5, 0);
    for process in [&first, &second] {
        assert_eq!(skipped(&search(process, &named, &query).await), Some(EmbedderSkip::MeaninglessVectors));
    }
    embedder.behave(Behaviour::AnswersWords { with_meaning: true });
    embedder.inputs();
    for id in &ids {
        assert!(first.drop_vectors(&"c".into(), id).await.expect("dropped"), "it had some");
    }
    assert!(!first.drop_vectors(&"c".into(), "d0").await.expect("read"), "it has none now");
    for process in [&first, &second] {
        assert_eq!(skipped(&search(process, &named, &query).await), Some(EmbedderSkip::NoVectors));
    }
    // The process that dropped them has embedded nothing when it ends. The search of the next one announces the documents.
    let third = retriever(&records, &embedder);
    search(&third, &named, &query).await;
    run_until_all_embedded(&third, &records, &ids).await;
    assert_eq!(embedder.inputs().len(), ids.len(), "each chunk is embedded once");
    for process in [&first, &second, &third] {
        let result = search(process, &named, &query).await;
        assert_eq!(skipped(&result), None);
        assert!(result.ranking.hits.iter().any(|hit| hit.dense.is_some()));
    }
}

/// Of two documents, only one loses its vectors, and the other keeps them in memory and in the store.
#[tokio::test]
async fn documents_whose_vectors_stay_are_not_embedded_anew() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    save(&records, "desk", "A bill is paid at the desk.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever(&records, &embedder);
    for id in ["fleet", "desk"] {
        retriever.announce(&"c".into(), id);
        run_until_embedded(&retriever, &records, id).await;
    }
    search(&retriever, &["fleet", "desk"], "car").await;
    embedder.inputs();
    assert!(retriever.drop_vectors(&"c".into(), "desk").await.expect("dropped"));
    let result = search(&retriever, &["fleet", "desk"], "car").await;
    assert_eq!((found(&result), skipped(&result)), (vec!["fleet"], None));
    assert_eq!(embedded(&records, "desk").await, (0, 1));
    run_until_embedded(&retriever, &records, "desk").await;
    assert_eq!(embedder.inputs(), ["A bill is paid at the desk."]);
}

#[tokio::test]
async fn dropped_vectors_are_not_taken_over_by_the_next_version_of_a_document() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "d", &text_with_sections(&["car", "bill", "holiday"])).await;
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever(&records, &embedder);
    retriever.announce(&"c".into(), "d");
    run_until_embedded(&retriever, &records, "d").await;
    embedder.inputs();
    save(&records, "d", &text_with_sections(&["car", "desk", "holiday"])).await;
    assert!(retriever.drop_vectors(&"c".into(), "d").await.expect("dropped"));
    retriever.announce(&"c".into(), "d");
    run_until_embedded(&retriever, &records, "d").await;
    let inputs = embedder.inputs();
    assert_eq!(inputs.len(), embedded(&records, "d").await.1, "all chunks: {inputs:?}");
}

/// Gives a document another owner, so that its record has another version and its text is the same.
async fn change_owner(records: &MemoryRecords, id: &str, owner_id: &str) {
    let company_id = CompanyId::from("c");
    let mut document = get_document(records, &company_id, id).await.expect("read").expect("it exists").value;
    document.owner_id = Some(owner_id.into());
    let key = Key::new(&company_id, workspace::collection::DOCUMENTS, id).expect("a key");
    records.put_as(&key, &document, Precondition::Any).await.expect("written");
}

/// Records in memory in which another process drops the vectors of a document before the first write.
struct DroppingRecords {
    records: Arc<MemoryRecords>,
    other: Mutex<Option<DocumentRetriever>>,
}

#[async_trait]
impl Records for DroppingRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.records.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let other = self.other.lock().expect("no panic").take();
        if let Some(other) = other {
            assert!(other.drop_vectors(&"c".into(), "fleet").await.expect("dropped"), "it had some");
        }
        self.records.commit(writes).await
    }
}

#[tokio::test]
async fn a_document_with_the_same_text_keeps_its_vectors_unless_they_are_dropped() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let first = retriever(&records, &embedder);
    first.announce(&"c".into(), "fleet");
    run_until_embedded(&first, &records, "fleet").await;
    embedder.inputs();
    change_owner(&records, "fleet", "bob").await;
    let second = retriever(&records, &embedder);
    assert_eq!(found(&search(&second, &["fleet"], "car").await), ["fleet"]);
    assert_eq!((embedded(&records, "fleet").await, embedder.inputs()), ((1, 1), Vec::<String>::new()));
    // The vectors are dropped while the index gets the version of the document.
    change_owner(&records, "fleet", "eve").await;
    let dropping = DroppingRecords { records: records.clone(), other: Mutex::new(Some(second)) };
    let config = RetrieverConfig { records: Arc::new(dropping), ..retriever(&records, &embedder).config };
    let third = DocumentRetriever::new(config);
    search(&third, &["fleet"], "car").await;
    assert_eq!(embedded(&records, "fleet").await, (0, 1), "the index has the document's version");
    assert_eq!(skipped(&search(&third, &["fleet"], "car").await), Some(EmbedderSkip::NoVectors));
}

#[tokio::test]
async fn vectors_of_a_slice_that_began_before_a_drop_are_not_stored() {
    let records = Arc::new(MemoryRecords::default());
    let text = "Each automobile is washed on Mondays.";
    save(&records, "fleet", text).await;
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever(&records, &embedder);
    retriever.announce(&"c".into(), "fleet");
    run_until_embedded(&retriever, &records, "fleet").await;
    let version =
        get_document(&*records, &"c".into(), "fleet").await.expect("read").expect("it exists").version;
    let before =
        retriever.stored_index(&"c".into(), "fleet", version).await.expect("read").expect("an index");
    let before = IndexedText { stored: before, text: text.to_owned() };
    assert!(retriever.drop_vectors(&"c".into(), "fleet").await.expect("dropped"));
    let embeddings = embedder.embed(&[text], EmbedRole::Document).await.expect("a vector");
    let stored =
        retriever.store_slice(&"c".into(), &embedder.id, "fleet", before, (vec![0], embeddings)).await;
    assert_eq!(stored.expect("the store answers"), IndexReplacement::Changed);
    assert_eq!(embedded(&records, "fleet").await, (0, 1));
}

#[tokio::test]
async fn vectors_are_checked_once_for_a_state_of_the_documents() {
    let records = Arc::new(MemoryRecords::default());
    let embedder = MeaningEmbedder::new("e:1");
    embedder.behave(Behaviour::AnswersWords { with_meaning: false });
    let works = Arc::new(AtomicUsize::new(0));
    let counted = works.clone();
    let pool = move |work: Box<dyn FnOnce() + Send>| {
        counted.fetch_add(1, Ordering::SeqCst);
        work();
    };
    let config = RetrieverConfig { pool: Arc::new(pool), ..retriever(&records, &embedder).config };
    let retriever = DocumentRetriever::new(config);
    let ids = save_topical(&records, &retriever, 0).await;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    // Brings the index up to the vectors that were stored last.
    search(&retriever, &ids, "text").await;
    let before = works.load(Ordering::SeqCst);
    for _ in 0..3 {
        let results = (0..4).map(|_| search(&retriever, &ids, "text"));
        for result in futures_util::future::join_all(results).await {
            assert_eq!(skipped(&result), Some(EmbedderSkip::MeaninglessVectors));
        }
    }
    assert_eq!(works.load(Ordering::SeqCst), before, "nothing has changed");
    save(&records, "d0", &topical_text(0, 1)).await;
    search(&retriever, &ids, "text").await;
    assert_eq!(works.load(Ordering::SeqCst), before + 2, "an index is built, and its vectors are checked");
}

#[tokio::test]
async fn vectors_of_another_model_are_replaced_and_never_compared() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let first = retriever(&records, &MeaningEmbedder::new("e:1"));
    first.announce(&"c".into(), "fleet");
    run_until_embedded(&first, &records, "fleet").await;
    let embedder = MeaningEmbedder::new("e:2");
    let second = retriever(&records, &embedder);
    let before = search(&second, &["fleet"], "car").await;
    assert_eq!((found(&before), skipped(&before)), (vec![], Some(EmbedderSkip::NoVectors)));
    let work = async {
        while found(&search(&second, &["fleet"], "car").await).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    while_running(&second, work).await;
    assert_eq!(embedder.inputs(), ["Each automobile is washed on Mondays."]);
}

#[tokio::test]
async fn a_rejected_document_waits_for_a_change_or_a_command() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    save(&records, "other", "Bills are paid.").await;
    let embedder = MeaningEmbedder::new("e:1");
    embedder.behave(Behaviour::Fails(EmbedError::Rejected("too long".into())));
    let retriever = retriever(&records, &embedder);
    search(&retriever, &["fleet"], "car").await;
    let rejected = async {
        while embedder.inputs.lock().expect("no panic").is_empty() {
            tokio::task::yield_now().await;
        }
        embedder.behave(Behaviour::Answers);
        // Announces the rejected document, were it not marked, and another one behind it.
        search(&retriever, &["fleet"], "car").await;
        search(&retriever, &["other"], "car").await;
        while embedded(&records, "other").await.0 == 0 {
            tokio::task::yield_now().await;
        }
    };
    while_running(&retriever, rejected).await;
    assert_eq!(embedder.inputs().len(), 2, "the rejected document was not sent again");
    assert_eq!(embedded(&records, "fleet").await, (0, 1));
    let failure = wait_for_failures("c", &records, ("fleet", 1)).await;
    assert_eq!((failure.reason, failure.retry_at), (EmbeddingFailureReason::Rejected, None));
    retriever.embed_again(&"c".into(), "fleet");
    run_until_embedded(&retriever, &records, "fleet").await;
}

#[tokio::test]
async fn chunks_beside_and_behind_those_that_fail_are_embedded() {
    let errors = [
        EmbedError::Rejected("too long".into()),
        EmbedError::InvalidAnswer("no vectors".into()),
        EmbedError::unavailable("it crashed"),
    ];
    for error in errors {
        let records = Arc::new(MemoryRecords::default());
        save(&records, "d", &text_with_sections(&["silent", "car", "bill", "holiday"])).await;
        let embedder = MeaningEmbedder::new("e:1");
        embedder.behave(Behaviour::FailsFor("silent", error.clone()));
        // Nothing advances the time, so that no pause ends.
        let retriever = retriever_with_clock(&records, &embedder, &ManualClock::new());
        retriever.announce(&"c".into(), "d");
        let done = async {
            wait_for_failures("c", &records, ("d", 1)).await;
        };
        while_running(&retriever, done).await;
        embedder.inputs();
        embedder.behave(Behaviour::Answers);
        retriever.embed_again(&"c".into(), "d");
        run_until_embedded(&retriever, &records, "d").await;
        let failed = embedder.inputs();
        let has = |word: &str| failed.iter().any(|input| input.contains(word));
        assert!(has("silent") && !has("bill") && !has("holiday"), "{error}: {failed:?}");
        // A batch is halved unless the embedder is unavailable.
        assert_eq!(has("car"), matches!(error, EmbedError::Unavailable { .. }), "{failed:?}");
    }
}

/// An embedder whose calls take five seconds, so that a slice ends with each chunk that is tried.
struct SlowEmbedder {
    embedder: Arc<MeaningEmbedder>,
    clock: ManualClock,
}

#[async_trait]
impl Embedder for SlowEmbedder {
    fn id(&self) -> &EmbedderId {
        self.embedder.id()
    }

    fn max_batch(&self) -> usize {
        self.embedder.max_batch()
    }

    async fn embed(&self, texts: &[&str], role: EmbedRole) -> Result<Embeddings, EmbedError> {
        self.clock.advance(SECOND * 5);
        self.embedder.embed(texts, role).await
    }
}

#[tokio::test]
async fn an_attempt_goes_on_behind_failed_chunks_in_the_next_slice() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "d", &text_with_sections(&["silent", "car"])).await;
    let (embedder, clock) = (MeaningEmbedder::new("e:1"), ManualClock::new());
    embedder.behave(Behaviour::FailsFor("silent", EmbedError::Rejected("too long".into())));
    let retriever = retriever_with_clock(&records, &embedder, &clock);
    let slow = SlowEmbedder { embedder, clock };
    let slice = async || retriever.embed_slice(&slow, &"c".into(), "d").await;
    let mut continued = 0;
    let failed = loop {
        match slice().await {
            Ok(Progress::Continued) => continued += 1,
            Ok(Progress::Unfinished) => {}
            Ok(_) => panic!("a chunk has failed"),
            Err(failed) => break failed,
        }
    };
    assert!(continued > 0, "the failed chunk comes first");
    assert!(matches!(failed.error.cause(), FailureCause::Permanent));
    let (embedded, chunks) = embedded(&records, "d").await;
    assert!(0 < embedded && embedded < chunks, "{embedded} of {chunks}");
}

/// Records in memory that count the records that are read, by the names of their collections.
struct CountedRecords {
    records: Arc<MemoryRecords>,
    reads: Mutex<HashMap<String, usize>>,
}

impl CountedRecords {
    /// Returns the number of records of documents and of indexes that were read since the last call.
    fn take_reads(&self) -> [usize; 2] {
        let reads = std::mem::take(&mut *self.reads.lock().expect("no panic"));
        [workspace::collection::DOCUMENTS, workspace::collection::DOCUMENT_INDEXES]
            .map(|name| reads.get(name).copied().unwrap_or(0))
    }
}

#[async_trait]
impl Records for CountedRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        for key in keys {
            let name = key.collection().path().to_owned();
            *self.reads.lock().expect("no panic").entry(name).or_default() += 1;
        }
        self.records.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.records.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        self.records.commit(writes).await
    }

    async fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, StoreError> {
        self.records.versions(keys).await
    }
}

#[tokio::test]
async fn a_document_is_read_once_for_all_slices_until_its_index_changes() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "d", &text_with_sections(&["car", "bill", "holiday", "desk", "fleet", "town"])).await;
    let counted = Arc::new(CountedRecords { records: records.clone(), reads: Mutex::default() });
    let (embedder, clock) = (MeaningEmbedder::new("e:1"), ManualClock::new());
    let (records_of_retriever, clock_of_retriever) = (counted.clone(), Arc::new(clock.clone()));
    let retriever = DocumentRetriever::new(RetrieverConfig {
        records: records_of_retriever,
        clock: clock_of_retriever,
        ..retriever(&records, &embedder).config
    });
    let slow = SlowEmbedder { embedder: embedder.clone(), clock };
    let slice = async || retriever.embed_slice(&slow, &"c".into(), "d").await.expect("no failure");
    assert!(matches!(slice().await, Progress::Unfinished));
    counted.take_reads();
    assert!(matches!(slice().await, Progress::Unfinished));
    assert_eq!(counted.take_reads(), [0, 1], "the record that is replaced");
    let embedded_before = embedder.inputs().len();
    assert!(retriever.drop_vectors(&"c".into(), "d").await.expect("dropped"));
    while !matches!(slice().await, Progress::Done) {}
    let (embedded, chunks) = embedded(&records, "d").await;
    assert_eq!((embedded, embedder.inputs().len()), (chunks, chunks), "after {embedded_before} chunks");
}

#[tokio::test]
async fn an_embedder_that_fails_for_every_text_ends_the_attempt() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "d", &text_with_sections(&["car"; 60])).await;
    for (error, max_calls) in
        [(EmbedError::Rejected("no".into()), 32), (EmbedError::unavailable("it is down"), 2)]
    {
        let embedder = MeaningEmbedder::new("e:1");
        embedder.behave(Behaviour::Fails(error));
        let retriever = retriever_with_clock(&records, &embedder, &ManualClock::new());
        let failed = retriever.embed_slice(&*embedder, &"c".into(), "d").await;
        assert!(failed.is_err());
        assert!(embedder.inputs().len() <= 2 * max_calls, "no more calls than that");
    }
}

#[tokio::test]
async fn an_invalid_answer_is_requested_again_after_pauses_that_grow() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    embedder.behave(Behaviour::Fails(EmbedError::InvalidAnswer("a vector is missing".into())));
    let clock = ManualClock::new();
    let retriever = retriever_with_clock(&records, &embedder, &clock);
    retriever.announce(&"c".into(), "fleet");
    let done = async {
        for (number, seconds) in [(1, 1), (2, 2), (3, 4)] {
            let failure = wait_for_failures("c", &records, ("fleet", number)).await;
            let now = Timestamp::try_from(clock.now()).expect("a time");
            let expected = EmbeddingFailure {
                reason: EmbeddingFailureReason::InvalidAnswer,
                failures: number,
                retry_at: Some(now + SECOND * seconds),
            };
            assert_eq!(failure, expected);
            // A search finds the document by its words, and leaves the pause as it is.
            let result = search(&retriever, &["fleet"], "automobile").await;
            assert_eq!((found(&result), skipped(&result)), (vec!["fleet"], Some(EmbedderSkip::NoVectors)));
            clock.wait_for_sleepers(2).await;
            assert_eq!(embedder.input_count(), number as usize);
            if number == 3 {
                embedder.behave(Behaviour::Answers);
            }
            assert_eq!(clock.advance_to_next(), Some(SECOND * seconds));
        }
        wait_until_embedded("c", &records, "fleet").await;
    };
    while_running(&retriever, done).await;
    let status = index_status("c", &records, "fleet").await.expect("it is indexed");
    assert_eq!(status.embedding_failure, None, "it is over");
    assert_eq!(found(&search(&retriever, &["fleet"], "car").await), ["fleet"]);
}

#[tokio::test]
async fn a_process_that_begins_tries_a_failed_document_at_once() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let failures = [
        (EmbedError::InvalidAnswer("no vectors".into()), EmbeddingFailureReason::InvalidAnswer),
        (EmbedError::Rejected("no model".into()), EmbeddingFailureReason::Rejected),
    ];
    for (error, reason) in failures {
        let embedder = MeaningEmbedder::new("e:1");
        embedder.behave(Behaviour::Fails(error));
        let failing = retriever_with_clock(&records, &embedder, &ManualClock::new());
        failing.announce(&"c".into(), "fleet");
        let done = async {
            while wait_for_failures("c", &records, ("fleet", 1)).await.reason != reason {
                tokio::task::yield_now().await;
            }
        };
        while_running(&failing, done).await;
    }
    let embedder = MeaningEmbedder::new("e:1");
    let next = retriever_with_clock(&records, &embedder, &ManualClock::new());
    search(&next, &["fleet"], "car").await;
    run_until_embedded(&next, &records, "fleet").await;
}

#[tokio::test]
async fn a_document_that_fails_stops_neither_its_company_nor_others() {
    let errors = [EmbedError::unavailable("overloaded"), EmbedError::InvalidAnswer("no vectors".into())];
    for error in errors {
        let records = Arc::new(MemoryRecords::default());
        let documents = [("c", "good", "A car."), ("d", "good", "A bill."), ("d", "other", "A holiday.")];
        save(&records, "poison", "A silent car.").await;
        for (company, id, text) in documents {
            save_of(company, &records, id, text).await;
        }
        let embedder = MeaningEmbedder::new("e:1");
        embedder.behave(Behaviour::FailsFor("silent", error));
        // Nothing advances the time, so that no pause ends.
        let retriever = retriever_with_clock(&records, &embedder, &ManualClock::new());
        retriever.announce(&"c".into(), "poison");
        let done = async {
            wait_for_failures("c", &records, ("poison", 1)).await;
            for (company, id, _) in documents {
                retriever.announce(&company.into(), id);
                wait_until_embedded(company, &records, id).await;
            }
        };
        while_running(&retriever, done).await;
        assert_eq!(embedded(&records, "poison").await, (0, 1));
    }
}

#[tokio::test]
async fn a_document_with_which_the_embedder_hangs_stops_no_other_company() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "poison", "A silent car.").await;
    save_of("d", &records, "good", "A car.").await;
    let embedder = MeaningEmbedder::new("e:1");
    embedder.behave(Behaviour::HangsFor("silent"));
    let clock = ManualClock::new();
    let retriever = retriever_with_clock(&records, &embedder, &clock);
    retriever.announce(&"c".into(), "poison");
    let called = async |count: usize| {
        while embedder.input_count() < count {
            tokio::task::yield_now().await;
        }
    };
    let done = async {
        called(1).await;
        clock.advance(CALL_TIMEOUT);
        let failure = wait_for_failures("c", &records, ("poison", 1)).await;
        assert_eq!(failure.reason, EmbeddingFailureReason::Unavailable);
        clock.advance(SECOND);
        called(2).await;
        // The second call hangs while the other company's document is embedded.
        retriever.announce(&"d".into(), "good");
        wait_until_embedded("d", &records, "good").await;
    };
    while_running(&retriever, done).await;
    assert_eq!(embedder.inputs(), ["A silent car.", "A silent car.", "A car."]);
}

#[tokio::test]
async fn a_server_that_is_down_is_called_about_once_in_a_minute() {
    let records = Arc::new(MemoryRecords::default());
    let companies = ["c", "d", "e", "f"];
    let embedder = MeaningEmbedder::new("e:1");
    embedder.behave(Behaviour::Fails(EmbedError::unavailable("it is down")));
    let clock = ManualClock::new();
    let retriever = retriever_with_clock(&records, &embedder, &clock);
    for company in companies {
        for id in ["1", "2", "3"] {
            save_of(company, &records, id, "A car.").await;
            retriever.announce(&company.into(), id);
        }
    }
    let began = clock.monotonic();
    let done = async {
        // Calls in the first and in the second half of an hour.
        let mut calls = [0, 0];
        loop {
            clock.wait_for_sleepers(2).await;
            let minutes = (clock.monotonic() - began).as_secs() / 60;
            let Some(calls) = calls.get_mut(minutes as usize / 30) else { break };
            *calls += embedder.inputs().len();
            clock.advance_to_next();
        }
        assert!((25..=45).contains(&calls[0]) && (25..=35).contains(&calls[1]), "{calls:?}");
        // All are embedded once it is up again.
        embedder.behave(Behaviour::Answers);
        for company in companies {
            for id in ["1", "2", "3"] {
                while embedded_of(company, &records, id).await != (1, 1) {
                    clock.advance_to_next();
                    tokio::task::yield_now().await;
                }
            }
        }
    };
    while_running(&retriever, done).await;
}

#[tokio::test]
async fn a_question_that_the_embedder_rejects_pauses_no_other_company() {
    let records = Arc::new(MemoryRecords::default());
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever_with_clock(&records, &embedder, &ManualClock::new());
    for company in ["c", "d"] {
        save_of(company, &records, "fleet", "Each automobile is washed on Mondays.").await;
        retriever.announce(&company.into(), "fleet");
    }
    let done = async {
        for company in ["c", "d"] {
            wait_until_embedded(company, &records, "fleet").await;
        }
    };
    while_running(&retriever, done).await;
    embedder.behave(Behaviour::FailsFor("long", EmbedError::Rejected("the text is too long".into())));
    let asked =
        async |company: &str, text: &str| skipped(&search_of(company, &retriever, &["fleet"], text).await);
    assert_eq!(asked("c", "A long question about the car.").await, Some(EmbedderSkip::Rejected));
    assert_eq!(asked("c", "car").await, Some(EmbedderSkip::Paused));
    assert_eq!(asked("d", "car").await, None);
}

#[tokio::test]
async fn one_process_at_a_time_embeds_the_documents_of_a_company() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let retriever = retriever(&records, &embedder);
    let now = Timestamp::now();
    let claim = |owner: &'static str, now: Timestamp| {
        let records = records.clone();
        async move {
            let company_id = CompanyId::from("c");
            workspace::claim_embedding(&*records, &company_id, owner, now, LEASE)
                .await
                .expect("the store answers")
                .is_some()
        }
    };
    assert!(claim("other", now).await);
    let slice = retriever.embed_slice(&*embedder, &"c".into(), "fleet").await.expect("no failure");
    assert!(matches!(slice, Progress::Leased), "another process has the lease");
    assert_eq!(embedder.inputs(), [""; 0]);
    assert!(!claim("third", now).await);
    // The other process has the lease again, and dies.
    assert!(claim("other", now - LEASE * 2).await);
    let slice = retriever.embed_slice(&*embedder, &"c".into(), "fleet").await.expect("no failure");
    assert!(matches!(slice, Progress::Done));
    assert_eq!(embedded(&records, "fleet").await, (1, 1));
}

#[tokio::test]
async fn vectors_beyond_the_memory_of_a_company_are_left_out() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", &"Each automobile is washed on Mondays. ".repeat(2_000)).await;
    let embedder = MeaningEmbedder::new("e:1");
    let big = retriever(&records, &embedder);
    big.announce(&"c".into(), "fleet");
    run_until_embedded(&big, &records, "fleet").await;
    let entry = big.cache.entry(&"c".into());
    let with_vectors = entry.read(|state| state.index.memory_bytes());
    // Room for the words of the document and half of its vectors.
    let vectors =
        entry.read(|state| state.index.vectors(&"fleet".into()).map(|vectors| vectors.memory_bytes()));
    let share = with_vectors - vectors.expect("it has vectors") / 2;
    let config = RetrieverConfig { cache_bytes: 2 * share, ..retriever(&records, &embedder).config };
    let small = DocumentRetriever::new(config);
    let result = search(&small, &["fleet"], "automobile").await;
    assert_eq!(skipped(&result), Some(EmbedderSkip::NoVectors));
    assert!(!found(&result).is_empty(), "it is found by its words");
}
