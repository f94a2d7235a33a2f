//! Conformance suite of retrieval over a record store: equal documents give equal rankings, on every store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use agent_core::clock::{Clock, SystemClock};
use agent_core::ids::CompanyId;
use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::doc_index::DocIndex;
use agent_retrieval::document::{DocumentId, ExtractedText, TextFormat};
use agent_retrieval::embed::{EmbedError, EmbedRole, Embedder, EmbedderId, Embeddings};
use agent_retrieval::search::{Query, Ranking, SearchOptions, search_documents};
use async_trait::async_trait;
use futures_util::future::BoxFuture;

use super::records::SharedRecords;
use crate::records::{Key, Precondition, Records, RecordsExt as _};
use crate::retrieval::{
    DocumentRetriever, DocumentSearch, EmbedderSkip, EmbedderUse, RetrievalEmbedder, Retriever as _,
    RetrieverConfig, SearchResult, SkipReason,
};
use crate::workspace::{
    Document, IndexReplacement, IndexStatus, IndexedDocument, collection, delete_document,
    document_index_status, get_document, index_key, replace_document_index, save_document,
};

/// Words of the documents and the queries. Documents of equal words have equal scores; ids decide their order.
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
    rankings_match_the_documents(make().await).await;
    companies_are_isolated(make().await).await;
    vectors_without_meaning_have_no_effect(make().await).await;
    dropped_vectors_are_gone_for_every_process(make().await).await;
    long_indexes_are_stored_in_pieces(make().await).await;
}

/// System clock with longer sleeps, so that a search on a busy machine waits for its index.
struct SlowClock;

/// Ratio of the actual to the requested duration of a sleep.
const SLEEP_FACTOR: u32 = 60;

impl Clock for SlowClock {
    fn now(&self) -> SystemTime {
        SystemClock.now()
    }

    fn monotonic(&self) -> Instant {
        SystemClock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration * SLEEP_FACTOR)
    }
}

fn retriever(records: &SharedRecords) -> DocumentRetriever {
    retriever_with(records, None)
}

fn retriever_with(records: &SharedRecords, embedder: Option<RetrievalEmbedder>) -> DocumentRetriever {
    DocumentRetriever::new(RetrieverConfig {
        records: records.clone(),
        pool: Arc::new(|work: Box<dyn FnOnce() + Send>| drop(std::thread::spawn(work))),
        clock: Arc::new(SlowClock),
        cache_bytes: 64 << 20,
        embedder,
    })
}

async fn search(retriever: &DocumentRetriever, company: &str, ids: &[String], text: &str) -> SearchResult {
    let company_id = CompanyId::from(company);
    let query = Query { text, previous: None };
    let options = SearchOptions { min_relevance: 0.0, ..SearchOptions::default() };
    let search = DocumentSearch { company_id: &company_id, documents: ids, query, options };
    retriever.search(search).await.expect("the store answers")
}

async fn save(records: &dyn Records, company: &str, id: &str, text: &str) -> u64 {
    let document = Document {
        id: id.to_owned(),
        company_id: company.into(),
        title: format!("Title of {id}"),
        text: text.to_owned(),
        ..Document::default()
    };
    save_document(records, &document, Precondition::Any, &"ada".into()).await.expect("saved")
}

/// Returns a text that is determined by a number.
fn text_of(seed: u32) -> String {
    let words = (0..40).map(|n| WORDS[(seed.wrapping_mul(31).wrapping_add(n * n * 7 + n) % 12) as usize]);
    words.collect::<Vec<_>>().chunks(8).map(|words| words.join(" ") + ".").collect::<Vec<_>>().join("\n\n")
}

/// Returns the index of a document.
fn index_of(id: &str, text: &str) -> DocIndex {
    let document = ExtractedText {
        title: format!("Title of {id}"),
        text: text.to_owned(),
        format: TextFormat::Markdown,
        ..ExtractedText::default()
    };
    DocIndex::build(&document, &StructuralChunker::default()).expect("a short text")
}

/// Ranks documents by newly built indexes.
fn expected(texts: &BTreeMap<String, String>, ids: &[String], text: &str) -> Ranking {
    let index = |id: &String| Some((DocumentId::from(id.as_str()), index_of(id, texts.get(id)?)));
    let indexes: Vec<_> = ids.iter().filter_map(index).collect();
    let query = Query { text, previous: None };
    let options = SearchOptions { min_relevance: 0.0, ..SearchOptions::default() };
    search_documents(indexes.iter().map(|(id, index)| (id.clone(), index)), &query, &options)
}

/// Two retrievers over one store, as in two processes, give the expected ranking after each of many changes.
async fn rankings_match_the_documents(records: SharedRecords) {
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
                    "round {round}, {query}: the ranking matches the documents"
                );
                for hit in &found.ranking.hits {
                    let text = found.documents.get(&hit.document).map(|found| &*found.text);
                    assert_eq!(
                        text,
                        texts.get(hit.document.as_str()).map(String::as_str),
                        "a hit has its document's text"
                    );
                }
            }
        }
    }
    // A process that begins reads the stored indexes.
    let found = search(&retriever(&records), "c", &ids, "receipt").await;
    assert_eq!(found.ranking, expected(&texts, &ids, "receipt"), "stored indexes give the same ranking");
}

/// A company's documents appear neither in other companies' hits nor in their statistics.
async fn companies_are_isolated(records: SharedRecords) {
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

/// Returns the word of a number. It consists of letters only, since identifiers would be split.
fn made_up_word(number: u64) -> String {
    let letter = |digit: char| char::from(b'a' + digit.to_digit(16).unwrap_or_default() as u8);
    format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).chars().map(letter).collect()
}

/// Number of documents on topics, and of the topics.
const TOPICAL_DOCUMENTS: u64 = 80;
const TOPICS: u64 = 20;

/// Returns a text with words of a topic and with unique words.
fn topical_text(number: u64) -> String {
    let topic = number % TOPICS;
    let of_topic =
        (0..12_u64).filter(|n| !(n + number / TOPICS).is_multiple_of(3)).map(|n| 1 + topic * 100 + n);
    let own = (0..4).map(|n| 100_000 + number * 10 + n);
    let words: Vec<String> = of_topic.chain(own).map(made_up_word).collect();
    format!("This is the text that was by those who are here in the house and not {}.", words.join(" "))
}

/// An embedder whose vectors are sums of vectors of the words, or have no relation to them.
struct WordEmbedder {
    id: EmbedderId,
    has_meaning: bool,
}

impl WordEmbedder {
    const DIMENSIONS: usize = 96;

    fn vector(&self, text: &str) -> Vec<f32> {
        let parts: Vec<&str> = match self.has_meaning {
            true => text.split(|character: char| !character.is_alphanumeric()).collect(),
            false => vec![text],
        };
        let mut vector = vec![0.0; Self::DIMENSIONS];
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            // FNV-1a, then xorshift.
            let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            let mut state = part.bytes().fold(0xcbf2_9ce4_8422_2325, mix) | 1;
            for component in &mut vector {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *component += (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
            }
        }
        vector
    }
}

#[async_trait]
impl Embedder for WordEmbedder {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn max_batch(&self) -> usize {
        64
    }

    async fn embed(&self, texts: &[&str], _: EmbedRole) -> Result<Embeddings, EmbedError> {
        Embeddings::new(texts.len(), texts.iter().map(|text| self.vector(text)))
    }
}

/// Stores the vectors of a document.
async fn store_vectors(
    records: &dyn Records,
    (id, version): (&str, u64),
    text: &str,
    embedder: &WordEmbedder,
) {
    let index = index_of(id, text);
    let chunks: Vec<usize> = (0..index.chunk_count()).collect();
    let inputs: Option<Vec<String>> =
        chunks.iter().map(|&chunk| index.embedding_input(text, chunk)).collect();
    let inputs = inputs.expect("the chunks are ranges of the text");
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let embeddings = embedder.embed(&inputs, EmbedRole::Document).await.expect("vectors");
    let index = index
        .with_embeddings(&embedder.id, text, &chunks, &embeddings)
        .expect("there are as many vectors as chunks");
    let document = IndexedDocument { id: id.to_owned(), version, source_digest: None };
    let (status, encoded) = (IndexStatus::of(&index), index.encode());
    let key = index_key(&"c".into(), id).expect("a valid key");
    let replaced = records.versions(&[key]).await.expect("the store answers").pop().flatten();
    let stored = replace_document_index(records, &"c".into(), &document, (&status, &encoded), replaced).await;
    let stored = stored.expect("the store answers");
    assert!(
        matches!(stored, IndexReplacement::Stored(_)),
        "the document is still at its version: {stored:?}"
    );
}

/// Meaningless vectors do not change the ranking by words, and the result reports that they were skipped.
async fn vectors_without_meaning_have_no_effect(records: SharedRecords) {
    let (mut ids, mut texts, mut versions) = (Vec::new(), BTreeMap::new(), Vec::new());
    for number in 0..TOPICAL_DOCUMENTS {
        let (id, text) = (format!("d{number}"), topical_text(number));
        versions.push(save(&*records, "c", &id, &text).await);
        texts.insert(id.clone(), text);
        ids.push(id);
    }
    for (name, has_meaning) in [("words", true), ("noise", false)] {
        let embedder = Arc::new(WordEmbedder { id: EmbedderId::new(name), has_meaning });
        for (id, version) in ids.iter().zip(&versions) {
            store_vectors(&*records, (id, *version), &texts[id], &embedder).await;
        }
        let settings = RetrievalEmbedder { embedder: embedder.clone(), weight: 0.5, min_similarity: 0.5 };
        let skipped = (!has_meaning).then_some(EmbedderSkip::MeaninglessVectors);
        let used = Some(EmbedderUse { embedder: embedder.id.clone(), skipped });
        let first = retriever_with(&records, Some(settings.clone()));
        let second = retriever_with(&records, Some(settings));
        for number in [3, 7, 11] {
            let query = format!("{} {}", made_up_word(1 + number * 100), made_up_word(3 + number * 100));
            let by_words = expected(&texts, &ids, &query);
            assert!(!by_words.hits.is_empty(), "the query has hits by words");
            let found = search(&first, "c", &ids, &query).await;
            assert_eq!(found.embedder, used, "{name}: the use of the embedder is told");
            assert_eq!(
                found.ranking == by_words,
                !has_meaning,
                "{name}: vectors count if they mean something"
            );
            let again = search(&second, "c", &ids, &query).await;
            assert_eq!(again.embedder, used, "{name}: every process has the same verdict");
            assert_eq!(again.ranking, found.ranking, "{name}: every process has the same ranking");
        }
    }
}

/// The next search of every process does not use dropped vectors, and uses vectors that are stored afterwards.
async fn dropped_vectors_are_gone_for_every_process(records: SharedRecords) {
    let (mut ids, mut versions) = (Vec::new(), Vec::new());
    for number in 0..TOPICAL_DOCUMENTS {
        ids.push(format!("d{number}"));
        versions.push(save(&*records, "c", &format!("d{number}"), &topical_text(number)).await);
    }
    let store_all = async |has_meaning: bool| {
        let embedder = WordEmbedder { id: EmbedderId::new("words"), has_meaning };
        for ((number, id), version) in (0..).zip(&ids).zip(&versions) {
            store_vectors(&*records, (id, *version), &topical_text(number), &embedder).await;
        }
    };
    let embedder = Arc::new(WordEmbedder { id: EmbedderId::new("words"), has_meaning: true });
    let settings = RetrievalEmbedder { embedder, weight: 0.5, min_similarity: 0.5 };
    let processes = [(); 2].map(|()| retriever_with(&records, Some(settings.clone())));
    let query = format!("{} {}", made_up_word(301), made_up_word(303));
    let skips = async || {
        let mut skips = Vec::new();
        for process in &processes {
            let found = search(process, "c", &ids, &query).await;
            skips.push(found.embedder.and_then(|used| used.skipped));
        }
        skips
    };
    store_all(false).await;
    assert_eq!(skips().await, [Some(EmbedderSkip::MeaninglessVectors); 2], "meaningless vectors are skipped");
    for id in &ids {
        let dropped = processes[0].drop_vectors(&"c".into(), id).await.expect("the store answers");
        assert!(dropped, "the document has vectors");
    }
    let again = processes[0].drop_vectors(&"c".into(), &ids[0]).await.expect("the store answers");
    assert!(!again, "the document has no vectors");
    assert_eq!(skips().await, [Some(EmbedderSkip::NoVectors); 2], "no process uses dropped vectors");
    store_all(true).await;
    assert_eq!(skips().await, [None::<EmbedderSkip>; 2], "every process uses the new vectors");
}

/// The index of a long text of different words needs several records, stays while the text is the same, and is deleted with the
/// document.
async fn long_indexes_are_stored_in_pieces(records: SharedRecords) {
    let words: Vec<String> = (1..30_000).map(made_up_word).collect();
    let text = words.join(" ");
    save(&*records, "c", "long", &text).await;
    let ids = ["long".to_owned()];
    let word = &words[20_000];
    let hits = |found: &SearchResult| found.ranking.hits.len();
    assert_eq!(hits(&search(&retriever(&records), "c", &ids, word).await), 1);
    assert_eq!(
        hits(&search(&retriever(&records), "c", &ids, word).await),
        1,
        "the stored index gives the hit"
    );
    let company_id = CompanyId::from("c");
    let stored = get_document(&*records, &company_id, "long").await.expect("the store answers");
    let mut document = stored.expect("the document is stored").value;
    document.owner_id = Some("bob".into());
    let key = Key::new(&company_id, collection::DOCUMENTS, "long").expect("a valid key");
    let version = records.put_as(&key, &document, Precondition::Any).await.expect("the store answers");
    assert_eq!(
        hits(&search(&retriever(&records), "c", &ids, word).await),
        1,
        "a change of the owner keeps the index"
    );
    let status = document_index_status(&*records, &company_id, "long", version).await;
    assert!(status.expect("the store answers").is_some(), "the index has the version of the document");
    delete_document(&*records, &"c".into(), "long", Precondition::Any).await.expect("deleted");
    let kept = records.count(&crate::records::Collection::new("c", "documentIndexes").expect("a name")).await;
    assert_eq!(kept.expect("counted"), 0, "the index is deleted with the document");
    assert_eq!(hits(&search(&retriever(&records), "c", &ids, word).await), 0);
}
