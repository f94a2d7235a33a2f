//! Tests of vectors in searches, with an embedder of three meanings.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::clock::{Clock, SystemClock};
use agent_core::testing::ManualClock;
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings};
use agent_retrieval::search::{Query, SearchOptions};
use async_trait::async_trait;
use base64::Engine as _;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, select};

use super::slice::CALL_TIMEOUT;
use super::*;
use crate::memory::MemoryRecords;
use crate::records::{Key, Precondition, Record, Records, RecordsExt as _, RecordsWrapper, Write};
use crate::retrieval::{
    DEFAULT_CACHE_BYTES, DocumentSearch, EmbedderSkip, RetrievalEmbedder, Retriever as _, RetrieverConfig,
    SearchResult,
};
use crate::workspace::{Document, document_index_status, get_document, save_document};

mod dropped_vectors;
mod failures;
mod slices;
mod stored_indices;

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
impl RecordsWrapper for FailingIndexRecords {
    fn inner(&self) -> &dyn Records {
        &*self.records
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

/// Records in memory in which another process acts before the first write.
struct RacingRecords {
    records: Arc<MemoryRecords>,
    other: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl RacingRecords {
    fn new(records: &Arc<MemoryRecords>, other: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { records: records.clone(), other: Mutex::new(Some(other.boxed())) }
    }
}

#[async_trait]
impl RecordsWrapper for RacingRecords {
    fn inner(&self) -> &dyn Records {
        &*self.records
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let other = self.other.lock().expect("no panic").take();
        if let Some(other) = other {
            other.await;
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
    let ended = tokio::time::timeout(Duration::from_secs(60), select(work, done)).await;
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
