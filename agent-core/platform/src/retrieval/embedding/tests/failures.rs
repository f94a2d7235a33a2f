//! Embedders and documents that fail: pauses, further attempts, and what other documents and companies notice.

use super::*;

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
async fn chunks_around_failed_chunks_are_embedded() {
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
            // A search finds the document by its words, and does not change the pause.
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
