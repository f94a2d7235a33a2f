//! Tiny random models against the vectors of an independent implementation (`tests/fixtures/make.py`), and faulty files.

use std::path::PathBuf;

use futures_executor::block_on;
use futures_util::future::{Either, join_all, select};
use futures_util::{FutureExt, poll};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::*;
use crate::catalog::{ModelFile, Pooling};

const BERT: EmbeddingSpec = EmbeddingSpec { dimensions: 16, max_tokens: 32, pooling: Pooling::Mean };
const MODERN_BERT: EmbeddingSpec = EmbeddingSpec { dimensions: 16, max_tokens: 48, pooling: Pooling::First };
const MODELS: [(&str, EmbeddingSpec); 2] = [("tiny-bert", BERT), ("tiny-modernbert", MODERN_BERT)];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name)
}

fn files(name: &str) -> EmbeddingFiles {
    let read = |file: &str| std::fs::read(folder(name).join(file)).expect("a file of the fixtures");
    EmbeddingFiles {
        config: read("config.json"),
        tokenizer: read("tokenizer.json"),
        weights: read("model.safetensors"),
    }
}

fn embedder(name: &str, spec: EmbeddingSpec) -> LocalEmbedder {
    LocalEmbedder::from_files(spec, files(name)).expect("a thread")
}

fn embed(embedder: &LocalEmbedder, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbeddingModelError> {
    block_on(embedder.embed(texts, EmbeddingPriority::Document))
}

#[derive(Deserialize)]
struct Expected {
    text: String,
    vector: Vec<f32>,
}

fn expected(name: &str) -> Vec<Expected> {
    let json = std::fs::read(folder(name).join("expected.json")).expect("a file of the fixtures");
    serde_json::from_slice(&json).expect("a list of vectors")
}

#[test]
fn vectors_equal_an_independent_implementation() {
    for (name, spec) in MODELS {
        let embedder = embedder(name, spec);
        let expected = expected(name);
        let texts: Vec<&str> = expected.iter().map(|expected| expected.text.as_str()).collect();
        let vectors = embed(&embedder, &texts).expect("vectors");
        assert_eq!(vectors.len(), texts.len());
        for (embedded, Expected { text, vector }) in vectors.iter().zip(&expected) {
            let distance =
                embedded.iter().zip(vector).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max);
            assert!(distance < 2e-4 && embedded.len() == vector.len(), "{name}, {text:?}: {distance}");
        }
        // The fixture distinguishes texts that differ only in their order, and long texts from their beginnings.
        assert_ne!(expected[0].vector, expected[1].vector);
        assert_ne!(expected[5].vector, expected[6].vector);
    }
}

#[test]
fn long_texts_are_cut_and_empty_ones_have_a_vector() {
    for (name, spec) in MODELS {
        let embedder = embedder(name, spec);
        let long = "lighthouse ".repeat(spec.max_tokens);
        let longer = "lighthouse ".repeat(1_000_000);
        let one_word = "é".repeat(5_000_000);
        let vectors = embed(&embedder, &[&long, &longer, &one_word, "", " \u{0} "]).expect("vectors");
        assert_eq!(vectors[0], vectors[1]);
        assert!(vectors.iter().flatten().all(|component| component.is_finite()));
        assert_eq!(embed(&embedder, &[]).expect("no vectors").len(), 0);
        let many = vec!["a"; LocalEmbedder::MAX_BATCH + 1];
        assert!(matches!(embed(&embedder, &many), Err(EmbeddingModelError::BatchTooLarge(33))));
    }
}

/// Returns the message of a model that cannot be used, twice, as each call fails alike.
fn unusable(spec: EmbeddingSpec, files: EmbeddingFiles) -> String {
    let embedder = LocalEmbedder::from_files(spec, files).expect("a thread");
    let first = block_on(embedder.warm()).expect_err("an unusable model").to_string();
    assert_eq!(embed(&embedder, &["a"]).expect_err("an unusable model").to_string(), first);
    first
}

#[test]
fn unusable_files_are_errors() {
    for (name, spec) in MODELS {
        let config = |from: &str, to: &str| {
            let files = files(name);
            let config = String::from_utf8(files.config).expect("text").replace(from, to);
            EmbeddingFiles { config: config.into_bytes(), ..files }
        };
        let other = EmbeddingSpec { dimensions: 384, ..spec };
        let cases = [
            (unusable(other, files(name)), "16 dimensions; 384 were expected"),
            (
                unusable(spec, config("\"num_hidden_layers\": ", "\"num_hidden_layers\": 1")),
                "model.safetensors",
            ),
            (
                unusable(spec, config("\"intermediate_size\": 24", "\"intermediate_size\": 25")),
                "were expected",
            ),
            (
                unusable(spec, config("\"vocab_size\": 75", "\"vocab_size\": 74")),
                "more tokens than the model",
            ),
            (unusable(spec, config("bert\"", "t5\"")), "is not supported"),
            (unusable(spec, EmbeddingFiles { config: b"<html>".into(), ..files(name) }), "config.json"),
            (unusable(spec, EmbeddingFiles { tokenizer: b"{}".into(), ..files(name) }), "tokenizer.json"),
            (unusable(spec, EmbeddingFiles { weights: Vec::new(), ..files(name) }), "model.safetensors"),
        ];
        for (error, expected) in cases {
            assert!(error.contains(expected), "{name}: {error}");
        }
        let weights = files(name).weights;
        for length in [1, 8, 100, weights.len() / 2, weights.len() - 1] {
            let error = unusable(spec, EmbeddingFiles { weights: weights[..length].to_vec(), ..files(name) });
            assert!(error.contains("model.safetensors"), "{name}, {length} bytes: {error}");
        }
    }
}

#[test]
fn questions_go_before_documents() {
    let embedder = embedder("tiny-bert", BERT);
    let texts = ["lighthouse lamp harbour storm"; LocalEmbedder::MAX_BATCH];
    block_on(async {
        let mut documents = Box::pin(embedder.embed(&texts, EmbeddingPriority::Document));
        assert!(poll!(documents.as_mut()).is_pending());
        let query = Box::pin(embedder.embed(&["lamp"], EmbeddingPriority::Query));
        match select(documents, query).await {
            Either::Left(_) => panic!("the documents were finished before the question"),
            Either::Right((query, documents)) => {
                let query = query.expect("a vector");
                let documents = documents.await.expect("vectors");
                assert_eq!((query.len(), documents.len()), (1, texts.len()));
                assert!(documents.iter().all(|vector| *vector == documents[0] && *vector != query[0]));
            }
        }
    });
}

#[test]
fn waiting_calls_are_bounded_and_dropped_ones_leave_room() {
    let embedder = embedder("tiny-bert", BERT);
    let texts = ["lighthouse lamp harbour storm"; LocalEmbedder::MAX_BATCH];
    block_on(async {
        let mut calls: Vec<_> =
            (0..40).map(|_| embedder.embed(&texts, EmbeddingPriority::Document).boxed_local()).collect();
        let started: Vec<bool> = calls.iter_mut().map(|call| call.now_or_never().is_none()).collect();
        assert!(started[..16].iter().all(|waits| *waits), "{started:?}");
        assert!(started.contains(&false), "no call was refused");
        drop(calls);
        let calls = (0..8).map(|_| embedder.embed(&["lamp"], EmbeddingPriority::Document));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
    });
}

/// Returns a catalogue entry for the files of a fixture.
fn known(name: &'static str, sha256_of: impl Fn(&[u8]) -> String) -> &'static KnownModel {
    let file = |file: &'static str| {
        let content = std::fs::read(folder(name).join(file)).expect("a file of the fixtures");
        ModelFile { name: file, bytes: content.len() as u64, sha256: sha256_of(&content).leak() }
    };
    let files = ["config.json", "tokenizer.json", "model.safetensors"].map(file);
    Box::leak(Box::new(KnownModel {
        name,
        description: "",
        files: Box::leak(Box::new(files)),
        license: "CC0-1.0",
        hub_folder: "",
        python_package: None,
        embedding: Some(BERT),
    }))
}

#[test]
fn files_are_read_from_a_folder_if_their_sums_are_right() {
    let sum = |content: &[u8]| hex::encode(Sha256::digest(content));
    let all = folder("");
    let embedder = LocalEmbedder::open(known("tiny-bert", sum), &all, None).expect("files");
    assert_eq!((embed(&embedder, &["lamp"]).expect("a vector")[0].len(), embedder.dimensions()), (16, 16));
    // A file that was changed after the download has the right length, and another sum.
    let embedder = LocalEmbedder::open(known("tiny-bert", |_| "0".repeat(64)), &all, None).expect("files");
    let error = embed(&embedder, &["lamp"]).expect_err("a wrong sum").to_string();
    assert!(error.contains("config.json has the SHA-256"), "{error}");

    let model_folder = tempfile::tempdir().unwrap();
    let model = known("tiny-bert", sum);
    let missing = LocalEmbedder::open(model, model_folder.path(), None).expect_err("no files").to_string();
    assert!(missing.contains("config.json is missing: run `agentd model pull tiny-bert`"), "{missing}");
    std::fs::create_dir(model_folder.path().join("tiny-bert")).unwrap();
    std::fs::write(model_folder.path().join("tiny-bert/config.json"), "{}").unwrap();
    let short = LocalEmbedder::open(model, model_folder.path(), None).expect_err("a short file").to_string();
    assert!(short.contains("config.json has 2 bytes"), "{short}");
    let chat = LocalEmbedder::open(crate::catalog::default_model(), model_folder.path(), None).err();
    assert!(matches!(chat, Some(EmbeddingModelError::NotAnEmbedder(_))));
}
