//! Quality of rankings that combine words with the vectors of a local embedding model, or of one whose vectors mean nothing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_embedded::{EmbeddingPriority, LocalEmbedder, catalog};
use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::company::{CompanyIndex, DocumentChange, SearchScope};
use agent_retrieval::doc_index::{DocIndex, Vectors};
use agent_retrieval::document::ExtractedText;
use agent_retrieval::embed::{EmbedRole, EmbedderId, Embeddings, Prefixes};
use agent_retrieval::search::{DenseRanking, Query, SearchOptions, VectorCheck, VectorQuality, VectorQuery};
use anyhow::{Context, Result, ensure};
use futures_executor::block_on;

use crate::collections::{Collection, CollectionName, Document};
use crate::quality::{WHOLE, mean, ndcg};
use crate::speed::millis;
use crate::table::{Table, report_progress};
use crate::vectors::{DIMENSIONS, Random, timed};

/// Loss of quality that a combination may cost.
const MAX_LOSS: f64 = 0.005;
/// Weights of the vectors: for a weak model, and for a good one, which is that of the application.
const WEIGHTS: [f32; 2] = [0.2, 0.5];
/// Time between two reports of the texts that are embedded.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// The part of the collections that is measured.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) names: &'a [CollectionName],
    /// Number of passages of each collection; all, if absent.
    pub(crate) passages: Option<NonZeroUsize>,
}

/// Returns the vectors of texts.
trait Embed {
    fn id(&self) -> &EmbedderId;
    fn embed(&self, texts: &[String], role: EmbedRole) -> Result<Vec<Vec<f32>>>;
}

/// An embedder that is broken: its vectors do not depend on the meaning of a text.
enum Meaningless {
    /// Each text has a separate vector, which is similar to no other one.
    Random,
    /// All texts have the same vector.
    Constant,
}

impl Embed for (EmbedderId, Meaningless) {
    fn id(&self) -> &EmbedderId {
        &self.0
    }

    fn embed(&self, texts: &[String], role: EmbedRole) -> Result<Vec<Vec<f32>>> {
        let seed = |text: &String| match self.1 {
            Meaningless::Random => {
                let mut hasher = DefaultHasher::new();
                (text, role == EmbedRole::Query).hash(&mut hasher);
                hasher.finish()
            }
            Meaningless::Constant => 1,
        };
        Ok(texts.iter().map(|text| Random::new(seed(text)).vector(&[], 1.0)).collect())
    }
}

/// Measures each collection with embedders whose vectors mean nothing.
pub(crate) fn run_meaningless(folder: &Path, table: &mut Table) -> Result<()> {
    let all = Part { names: &CollectionName::ALL, passages: None };
    for (collection, name) in read_collections(folder, all)? {
        for (kind, kind_name) in [(Meaningless::Random, "random"), (Meaningless::Constant, "equal")] {
            let scores = Scores::measure(&(EmbedderId::new("meaningless"), kind), &collection)?;
            scores.show_check(&format!("{name}, {kind_name} vectors of {DIMENSIONS}"), table);
            let alone = format!("nDCG@10, {name}, {kind_name} vectors of {DIMENSIONS} alone");
            table.figure(&alone, format!("{:.4}", scores.vectors));
            for (weight, score) in WEIGHTS.into_iter().zip(scores.fused) {
                let row = format!("nDCG@10, {name}, {kind_name} vectors of {DIMENSIONS} with {weight}");
                table.at_least(&row, score, scores.lexical - MAX_LOSS);
            }
        }
    }
    Ok(())
}

/// Reads the collections of a part, each with its name in the table.
fn read_collections(folder: &Path, part: Part<'_>) -> Result<Vec<(Collection, String)>> {
    let read = |name: &CollectionName| -> Result<(Collection, String)> {
        let (mut collection, title) = (name.read(folder)?, name.title());
        let Some(passages) = part.passages else { return Ok((collection, title.to_owned())) };
        collection.keep_first(passages.get());
        let is_judged = !collection.queries.is_empty();
        ensure!(is_judged, "{title} has no query with a relevant passage among the first {passages}");
        Ok((collection, format!("{title}, first {passages}")))
    };
    part.names.iter().map(read).collect()
}

/// Measures a part of the collections with a model that `agentd model pull` has stored in a folder.
pub(crate) fn run(
    folder: &Path,
    part: Part<'_>,
    (models, name): (&Path, &str),
    table: &mut Table,
) -> Result<()> {
    let known = catalog::find(name).context("there is no such model")?;
    let model = Model {
        embedder: LocalEmbedder::open(known, models, None)?,
        prefixes: Prefixes::of_model(known.name),
        id: EmbedderId::new(known.name),
    };
    for (collection, name) in read_collections(folder, part)? {
        report_progress(&name);
        let scores = Scores::measure(&model, &collection)?;
        table.figure(&format!("nDCG@10, {name}, by words"), format!("{:.4}", scores.lexical));
        scores.show_check(&format!("{name}, vectors of {}", known.name), table);
        let alone = format!("the same by vectors of {} alone", known.name);
        table.figure(&alone, format!("{:.4}", scores.vectors));
        for (weight, score) in WEIGHTS.into_iter().zip(scores.fused) {
            let row = format!("the same by both, the vectors with {weight}");
            table.at_least(&row, score, scores.lexical - MAX_LOSS);
        }
    }
    Ok(())
}

struct Model {
    embedder: LocalEmbedder,
    prefixes: Prefixes,
    id: EmbedderId,
}

impl Embed for Model {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn embed(&self, texts: &[String], role: EmbedRole) -> Result<Vec<Vec<f32>>> {
        let mut all = Vec::with_capacity(texts.len());
        let text_kind = match role {
            EmbedRole::Query => "questions",
            EmbedRole::Document => "passages",
        };
        let started = Instant::now();
        let mut reported = started;
        for batch in texts.chunks(LocalEmbedder::MAX_BATCH) {
            let prefixed: Vec<_> = batch.iter().map(|text| self.prefixes.apply(text, role)).collect();
            let prefixed: Vec<&str> = prefixed.iter().map(AsRef::as_ref).collect();
            let vectors = block_on(self.embedder.embed(&prefixed, EmbeddingPriority::Document))?;
            all.extend(Embeddings::new(batch.len(), vectors)?.iter().map(<[f32]>::to_vec));
            if reported.elapsed() >= PROGRESS_INTERVAL || all.len() == texts.len() {
                let seconds = started.elapsed().as_secs_f64();
                report_progress(&format!(
                    "{} of {} {text_kind} embedded, {seconds:.0} s",
                    all.len(),
                    texts.len()
                ));
                reported = Instant::now();
            }
        }
        Ok(all)
    }
}

/// nDCG@10 of a collection: by words, by vectors alone, and by both with each of the weights, unless the check of the vectors
/// indicates that they have no meaning.
struct Scores {
    lexical: f64,
    vectors: f64,
    fused: [f64; WEIGHTS.len()],
    check: VectorCheck,
    check_time: Duration,
}

impl Scores {
    fn measure(embedder: &dyn Embed, collection: &Collection) -> Result<Self> {
        let company = index(embedder, collection)?;
        let (check, check_time) = timed(|| company.check_vectors(SearchScope::All, embedder.id()));
        let questions: Vec<String> = collection.queries.iter().map(|query| query.text.clone()).collect();
        let questions = embedder.embed(&questions, EmbedRole::Query)?;
        let score = |weight: Option<f32>| -> Result<f64> {
            let mut scores = Vec::with_capacity(questions.len());
            for (query, vector) in collection.queries.iter().zip(&questions) {
                let hits = company.nearest(SearchScope::All, &VectorQuery::new(embedder.id(), vector))?;
                let dense = weight.map(|weight| DenseRanking { hits: &hits, weight, min_similarity: 2.0 });
                let options = SearchOptions { limit: 10, dense, ..SearchOptions::default() };
                let query_text = Query { text: &query.text, previous: None };
                let found = company.search(SearchScope::All, &query_text, &options);
                let found: Vec<String> = found.hits.iter().map(|hit| hit.document.to_string()).collect();
                scores.push(ndcg(&found, &query.relevant));
            }
            Ok(mean(scores.into_iter()))
        };
        let [weak, good] = WEIGHTS;
        let lexical = score(None)?;
        // A search goes without vectors that have no meaning.
        let fused = match check.quality {
            VectorQuality::Uninformative => [lexical; WEIGHTS.len()],
            _ => [score(Some(weak))?, score(Some(good))?],
        };
        Ok(Self { lexical, vectors: score(Some(1.0))?, fused, check, check_time })
    }

    /// Shows the verdict on the vectors, and the time of the check.
    fn show_check(&self, description: &str, table: &mut Table) {
        let VectorCheck { quality, pairs, standard_score } = self.check;
        let verdict = format!("{quality:?}, {pairs} pairs, {standard_score:.1}");
        table.figure(&format!("check of the vectors: {description}"), verdict);
        table.figure("the same, ms", format!("{:.1}", millis(self.check_time)));
    }
}

/// Returns an index of the documents, each as one chunk with its vector.
fn index(embedder: &dyn Embed, collection: &Collection) -> Result<CompanyIndex> {
    let text = |document: &Document| format!("{}\n{}", document.title, document.text).trim().to_owned();
    let texts: Vec<String> = collection.documents.iter().map(text).collect();
    let vectors = embedder.embed(&texts, EmbedRole::Document)?;
    let mut changes = Vec::new();
    for (document, vector) in collection.documents.iter().zip(vectors) {
        let extracted = ExtractedText {
            title: document.title.clone(),
            text: document.text.clone(),
            ..ExtractedText::default()
        };
        let index = DocIndex::build(&extracted, &StructuralChunker::new(WHOLE, 0))?;
        let all = vec![Some(&vector); index.chunk_count()];
        let quantized = Vectors::quantize(embedder.id().as_str(), vector.len(), &all)?;
        changes.push(DocumentChange::Put(
            document.id.as_str().into(),
            index.with_vectors(Some(quantized))?.into(),
        ));
    }
    let mut company = CompanyIndex::new();
    company.apply(changes);
    Ok(company)
}
