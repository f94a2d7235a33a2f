//! Stored indices: search by meaning, vectors of unchanged chunks, failed writes, and older formats.

use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::*;
use crate::retrieval::EmbedderUse;

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

#[tokio::test]
async fn an_index_that_another_process_has_stored_meanwhile_stays() {
    let records = Arc::new(MemoryRecords::default());
    save(&records, "fleet", "Each automobile is washed on Mondays.").await;
    let embedder = MeaningEmbedder::new("e:1");
    let (other, other_embedder) = (retriever(&records, &embedder), embedder.clone());
    let racing = RacingRecords::new(&records, async move {
        let slice = other.embed_slice(&*other_embedder, &"c".into(), "fleet").await;
        assert!(matches!(slice, Ok(Progress::Done)), "the other process has embedded it");
    });
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
