//! Vectors that are dropped: of another model, without meaning, or of a slice that began before the drop.

use super::*;

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
async fn dropped_vectors_are_made_again_after_a_restart() {
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
async fn documents_that_keep_their_vectors_are_not_embedded_again() {
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

/// Changes the owner of a document, so that its record has another version and the same text.
async fn change_owner(records: &MemoryRecords, id: &str, owner_id: &str) {
    let company_id = CompanyId::from("c");
    let mut document = get_document(records, &company_id, id).await.expect("read").expect("it exists").value;
    document.owner_id = Some(owner_id.into());
    let key = Key::new(&company_id, workspace::collection::DOCUMENTS, id).expect("a key");
    records.put_as(&key, &document, Precondition::Any).await.expect("written");
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
    let dropping = RacingRecords::new(&records, async move {
        assert!(second.drop_vectors(&"c".into(), "fleet").await.expect("dropped"), "it had some");
    });
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
