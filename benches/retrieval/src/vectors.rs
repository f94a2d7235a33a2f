//! Speed, memory and recall of the search by vectors, beside the same search with single-precision components.

use std::hint::black_box;
use std::time::{Duration, Instant};

use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::company::{CompanyIndex, DocumentChange, SearchScope};
use agent_retrieval::doc_index::{DocIndex, DotProducts, Vectors};
use agent_retrieval::document::ExtractedText;
use agent_retrieval::embed::EmbedderId;
use agent_retrieval::search::VectorQuery;
use anyhow::Result;

use crate::speed::millis;
use crate::table::Table;

pub(crate) const DIMENSIONS: usize = 384;
/// Vectors around each of the centres, as texts on one topic have similar vectors.
const TOPIC_CHUNKS: usize = 50;
/// Chunks of a synthetic document.
const DOCUMENT_CHUNKS: usize = 20;
const QUERIES: usize = 60;
/// Hits by which the recall is counted.
const HITS: usize = 10;

pub(crate) fn run(max_vectors: usize, table: &mut Table) -> Result<()> {
    for chunks in [10_000, 100_000] {
        if chunks <= max_vectors {
            measure(chunks, table)?;
        }
    }
    Ok(())
}

fn measure(chunks: usize, table: &mut Table) -> Result<()> {
    let mut random = Random::default();
    let centres: Vec<Vec<f32>> = (0..chunks / TOPIC_CHUNKS).map(|_| random.vector(&[], 1.0)).collect();
    let vectors: Vec<Vec<f32>> =
        (0..chunks).map(|number| random.vector(&centres[number % centres.len()], 1.0)).collect();
    let queries: Vec<Vec<f32>> =
        (0..QUERIES).map(|number| random.vector(&centres[number % centres.len()], 1.0)).collect();

    let id = EmbedderId::new("bench");
    let (without, _) = company(&id, &vectors, false)?;
    let (company, names) = company(&id, &vectors, true)?;
    let bytes = (company.memory_bytes() - without.memory_bytes()) as f64 / chunks as f64;
    let name = format!("{chunks} vectors of {DIMENSIONS}");
    table.at_most(&format!("memory a vector, {name}, bytes"), bytes, 400.0);

    let mut found = 0;
    let mut times: [Vec<Duration>; 3] = Default::default();
    for vector in &queries {
        let (exact, time) = timed(|| exact(&vectors, vector));
        times[0].push(time);
        for (slot, method) in [(1, DotProducts::Plain), (2, DotProducts::Wide)] {
            let query = VectorQuery { method, ..VectorQuery::new(&id, vector) };
            let (hits, time) = timed(|| company.nearest(SearchScope::All, &query));
            times[slot].push(time);
            if method == DotProducts::Wide {
                let hits = hits?;
                let best: Vec<usize> = hits
                    .iter()
                    .take(HITS)
                    .map(|hit| names[hit.document.as_str()] + hit.chunk as usize)
                    .collect();
                found += exact.iter().filter(|chunk| best.contains(chunk)).count();
            }
        }
    }
    let [exact, plain, wide] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    let recall = found as f64 / (QUERIES * HITS) as f64;
    table.figure(&format!("{name}: single precision, p50, ms"), format!("{:.2}", millis(exact)));
    table.figure("the same in eight bits, plain, p50, ms", format!("{:.2}", millis(plain)));
    table.figure("the same with the widest instructions, p50, ms", format!("{:.2}", millis(wide)));
    table.figure("plain over widest", format!("{:.2}", plain.as_secs_f64() / wide.as_secs_f64()));
    table.at_least("recall of the best 10 of single precision", recall, 0.95);
    Ok(())
}

/// Returns an index of documents with the vectors, and the number of the first vector of each document.
fn company(
    id: &EmbedderId,
    vectors: &[Vec<f32>],
    embed: bool,
) -> Result<(CompanyIndex, std::collections::HashMap<String, usize>)> {
    let mut names = std::collections::HashMap::new();
    let mut changes = Vec::new();
    for (number, vectors) in vectors.chunks(DOCUMENT_CHUNKS).enumerate() {
        let paragraphs: Vec<String> =
            (0..vectors.len()).map(|chunk| format!("Part {chunk} of it.")).collect();
        let extracted = ExtractedText { text: paragraphs.join("\n\n"), ..ExtractedText::default() };
        let index = DocIndex::build(&extracted, &StructuralChunker::new(16, 0))?;
        anyhow::ensure!(index.chunk_count() == vectors.len(), "a paragraph is not a chunk");
        let vectors: Vec<Option<&Vec<f32>>> = vectors.iter().map(Some).collect();
        let vectors = embed.then(|| Vectors::quantize(id.as_str(), DIMENSIONS, &vectors)).transpose()?;
        names.insert(number.to_string(), number * DOCUMENT_CHUNKS);
        changes.push(DocumentChange::Put(number.to_string().into(), index.with_vectors(vectors)?.into()));
    }
    let mut company = CompanyIndex::new();
    company.apply(changes);
    Ok((company, names))
}

pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = black_box(work());
    (result, started.elapsed())
}

/// Returns the best vectors by their products with the query in single precision.
fn exact(vectors: &[Vec<f32>], query: &[f32]) -> Vec<usize> {
    let product = |vector: &[f32]| vector.iter().zip(query).map(|(left, right)| left * right).sum::<f32>();
    let mut scored: Vec<(f32, usize)> = vectors.iter().map(|vector| product(vector)).zip(0..).collect();
    scored.select_nth_unstable_by(HITS, |left, right| right.0.total_cmp(&left.0));
    scored.truncate(HITS);
    scored.into_iter().map(|(_, number)| number).collect()
}

/// A generator of random numbers (xorshift).
pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self::new(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    /// Creates a generator from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a normalized vector near a centre.
    pub(crate) fn vector(&mut self, centre: &[f32], spread: f32) -> Vec<f32> {
        let mut component = |at: usize| {
            // The sum of several uniform numbers is nearly normal.
            let noise: f32 = (0..4).map(|_| self.uniform()).sum();
            centre.get(at).unwrap_or(&0.0) * (DIMENSIONS as f32).sqrt() + noise * spread
        };
        let vector: Vec<f32> = (0..DIMENSIONS).map(&mut component).collect();
        let length = vector.iter().map(|component| component * component).sum::<f32>().sqrt();
        vector.into_iter().map(|component| component / length).collect()
    }

    fn uniform(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}
