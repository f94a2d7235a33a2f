//! Slices of the work: an attempt over several slices, one process for a company, and limits on memory.

use std::collections::HashMap;

use super::*;

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
async fn an_attempt_continues_after_failed_chunks_in_the_next_slice() {
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
impl RecordsWrapper for CountedRecords {
    fn inner(&self) -> &dyn Records {
        &*self.records
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        for key in keys {
            let name = key.collection().path().to_owned();
            *self.reads.lock().expect("no panic").entry(name).or_default() += 1;
        }
        self.records.get_many(keys).await
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
