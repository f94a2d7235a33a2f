//! Documents of each media type with damage.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_extract::fixtures::{docx_parts, mutate, mutate_archive, pptx_parts, xlsx_parts};

use super::*;

/// Mutations of each media type if the variable `EXTRACT_MUTATIONS` is not set.
const MUTATIONS: u64 = 24;
/// Extractions at once.
const WORKERS: usize = 2;

/// Returns a mutated document. Those of Office are mutated as a whole and within a valid archive in turns.
fn mutated(media_type: MediaType, seed: u64) -> Vec<u8> {
    let parts = match media_type {
        MediaType::Docx => docx_parts(),
        MediaType::Xlsx => xlsx_parts(),
        MediaType::Pptx => pptx_parts(),
        _ => return mutate(&fixtures::document(media_type), seed),
    };
    if seed.is_multiple_of(2) {
        mutate_archive(&parts, seed)
    } else {
        mutate(&fixtures::document(media_type), seed)
    }
}

/// Extracts mutations with the seeds of a counter, and counts the kinds of results.
async fn work(
    extractor: Arc<ProcessExtractor>,
    media_type: MediaType,
    seeds: Arc<AtomicU64>,
    count: u64,
) -> BTreeMap<&'static str, u64> {
    let mut results = BTreeMap::new();
    loop {
        let seed = seeds.fetch_add(1, Ordering::Relaxed);
        if seed >= count {
            return results;
        }
        let kind = match extract(&extractor, media_type.as_str(), mutated(media_type, seed)).await {
            Ok(_) => "text",
            Err(ExtractError::Malformed(reason)) if reason == "its reader failed" => {
                "malformed: the reader failed"
            }
            Err(ExtractError::Malformed(_)) => "malformed",
            Err(ExtractError::LimitExceeded(_)) => "limit exceeded",
            Err(ExtractError::Encrypted) => "encrypted",
            Err(ExtractError::Unsupported(_)) => "unsupported",
            Err(error) => panic!("{media_type}, seed {seed}: {error}"),
        };
        *results.entry(kind).or_default() += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_documents_have_typed_results() {
    let count =
        std::env::var("EXTRACT_MUTATIONS").map_or(MUTATIONS, |count| count.parse().expect("a number"));
    let extractor = extractor(ExtractionConfig { processes: WORKERS, ..ExtractionConfig::default() });
    for media_type in MediaType::ALL {
        let seeds = Arc::new(AtomicU64::new(0));
        let start = || tokio::spawn(work(extractor.clone(), media_type, seeds.clone(), count));
        let workers: Vec<_> = (0..WORKERS).map(|_| start()).collect();
        let mut results = BTreeMap::<_, u64>::new();
        for worker in workers {
            for (kind, number) in worker.await.unwrap() {
                *results.entry(kind).or_default() += number;
            }
        }
        assert_eq!(results.values().sum::<u64>(), count);
        report(&format!("{media_type}: {results:?}"));
    }
    assert!(extract(&extractor, "text/plain", "alive").await.is_ok());
}
