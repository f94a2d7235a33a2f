//! Measures the resident memory of vectors, as the kernel counts it, with the allocator of `agentd`.
//!
//! `cargo run --release -p bench-retrieval --bin resident_vectors` prints a table. Vectors are kept as an index of a company
//! keeps them: those of a document are one shared value. None is freed before the end, and a first part is not counted, so
//! the growth of the process is the memory of the vectors with what the allocator rounds up. Beside it stands the size of
//! their values, by which the platform limits its cache. Needs Linux 4.14 or later.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::hint::black_box;
use std::sync::Arc;

use agent_retrieval::doc_index::Vectors;
use anyhow::{Context, Result};

/// The product's allocator, on which the measured memory depends.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const DIMENSIONS: usize = 384;
/// Vectors that are made before the measurement, so that the memory of temporary values is there already.
const UNCOUNTED_VECTORS: usize = 10_000;
const COUNTED_VECTORS: usize = 100_000;
/// Chunks of a document in the first row of the table, as in the other measurements.
const DOCUMENT_CHUNKS: usize = 20;
/// Number of chunks of the longest document in the second row.
const MAX_DOCUMENT_CHUNKS: usize = 100;

/// The memory of a vector in bytes.
struct VectorMemory {
    resident: f64,
    by_size: f64,
}

fn main() -> Result<()> {
    let equal = measure(|_| DOCUMENT_CHUNKS)?;
    // 37 and 100 have no common divisor: each length occurs equally often.
    let unequal = measure(|document| 1 + document * 37 % MAX_DOCUMENT_CHUNKS)?;
    println!("| memory a vector of {DIMENSIONS}, {COUNTED_VECTORS} vectors, bytes | resident | by size |");
    println!("|---|--:|--:|");
    for (documents, memory) in [
        (format!("documents of {DOCUMENT_CHUNKS} chunks"), equal),
        (format!("documents of 1 to {MAX_DOCUMENT_CHUNKS} chunks"), unequal),
    ] {
        println!("| {documents} | {:.1} | {:.2} |", memory.resident, memory.by_size);
    }
    Ok(())
}

/// Measures vectors of documents, whose numbers of chunks `chunks_of` returns.
fn measure(chunks_of: impl Fn(usize) -> usize) -> Result<VectorMemory> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut documents: Vec<Arc<Vectors>> = Vec::new();
    let mut add_documents = |documents: &mut Vec<Arc<Vectors>>, min_vectors: usize| -> Result<usize> {
        let mut added = 0;
        while added < min_vectors {
            let chunks = chunks_of(documents.len());
            documents.push(numbers.vectors(chunks)?);
            added += chunks;
        }
        Ok(added)
    };
    add_documents(&mut documents, UNCOUNTED_VECTORS)?;
    let uncounted_documents = documents.len();
    let before = anonymous_bytes()?;
    let counted = add_documents(&mut documents, COUNTED_VECTORS)?;
    let growth = anonymous_bytes()?.saturating_sub(before);
    let size: usize = documents[uncounted_documents..].iter().map(|vectors| vectors.memory_bytes()).sum();
    // The vectors must live until both figures are taken. The second row must not reuse their memory, so it is never freed.
    std::mem::forget(black_box(documents));
    Ok(VectorMemory { resident: growth as f64 / counted as f64, by_size: size as f64 / counted as f64 })
}

/// Returns the resident memory of this process that no file backs. The sums over the mappings are exact, unlike the counters in
/// `/proc/self/status`.
fn anonymous_bytes() -> Result<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).context("no Anonymous")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// A generator of components (xorshift).
struct Numbers(u64);

impl Numbers {
    /// Returns the vectors of a document.
    fn vectors(&mut self, chunks: usize) -> Result<Arc<Vectors>> {
        let vectors: Vec<Option<Vec<f32>>> =
            (0..chunks).map(|_| Some((0..DIMENSIONS).map(|_| self.component()).collect())).collect();
        Ok(Arc::new(Vectors::quantize("bench", DIMENSIONS, &vectors)?))
    }

    fn component(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}
