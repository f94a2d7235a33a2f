//! Quality of rankings that combine words with the vectors of a local embedding model.

use std::path::Path;

use agent_embedded::{EmbeddingPriority, LocalEmbedder, catalog};
use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::company::{Change, CompanyIndex, Scope};
use agent_retrieval::doc_index::{DocIndex, Vectors};
use agent_retrieval::document::Extracted;
use agent_retrieval::embed::{EmbedRole, EmbedderId, Embeddings, Prefixes};
use agent_retrieval::search::{Dense, Query, SearchOptions, VectorQuery};
use anyhow::{Context, Result};
use futures_executor::block_on;

use crate::collections::{self, Collection};
use crate::quality::{WHOLE, mean, ndcg};
use crate::table::Table;

/// Loss of quality that a combination may cost.
const MAX_LOSS: f64 = 0.005;

/// Measures each collection with a model that `agentd model pull` has stored in a folder.
pub(crate) fn run(folder: &Path, models: &Path, name: &str, table: &mut Table) -> Result<()> {
    let known = catalog::find(name).context("there is no such model")?;
    let model = Model {
        embedder: LocalEmbedder::open(known, models, None)?,
        prefixes: Prefixes::of_model(known.name),
        id: EmbedderId::new(known.name),
    };
    for (collection, name) in [
        (collections::xquad(folder, "en")?, "xquad en"),
        (collections::xquad(folder, "de")?, "xquad de"),
        (collections::cisi(folder)?, "cisi"),
        (collections::npl(folder)?, "npl"),
    ] {
        measure(&model, known.name, &collection, name, table)?;
    }
    Ok(())
}

struct Model {
    embedder: LocalEmbedder,
    prefixes: Prefixes,
    id: EmbedderId,
}

impl Model {
    fn embed(&self, texts: &[String], role: EmbedRole) -> Result<Vec<Vec<f32>>> {
        let mut all = Vec::with_capacity(texts.len());
        for batch in texts.chunks(LocalEmbedder::MAX_BATCH) {
            let prefixed: Vec<_> = batch.iter().map(|text| self.prefixes.apply(text, role)).collect();
            let prefixed: Vec<&str> = prefixed.iter().map(AsRef::as_ref).collect();
            let vectors = block_on(self.embedder.embed(&prefixed, EmbeddingPriority::Document))?;
            all.extend(Embeddings::new(batch.len(), vectors)?.iter().map(<[f32]>::to_vec));
        }
        Ok(all)
    }
}

fn measure(
    model: &Model,
    model_name: &str,
    collection: &Collection,
    name: &str,
    table: &mut Table,
) -> Result<()> {
    let texts: Vec<String> = collection
        .documents
        .iter()
        .map(|document| format!("{}\n{}", document.title, document.text).trim().to_owned())
        .collect();
    let vectors = model.embed(&texts, EmbedRole::Document)?;
    let mut changes = Vec::new();
    for (document, vector) in collection.documents.iter().zip(vectors) {
        let extracted =
            Extracted { title: document.title.clone(), text: document.text.clone(), ..Extracted::default() };
        let index = DocIndex::build(&extracted, &StructuralChunker::new(WHOLE, 0))?;
        let all = vec![Some(&vector); index.chunk_count()];
        let quantized = Vectors::quantize(model.id.as_str(), vector.len(), &all)?;
        changes.push(Change::Put(document.id.as_str().into(), index.with_vectors(Some(quantized))?.into()));
    }
    let mut company = CompanyIndex::new();
    company.apply(changes);
    let questions: Vec<String> = collection.queries.iter().map(|query| query.text.clone()).collect();
    let questions = model.embed(&questions, EmbedRole::Query)?;
    let score = |weight: Option<f32>| -> Result<f64> {
        let mut scores = Vec::with_capacity(questions.len());
        for (query, vector) in collection.queries.iter().zip(&questions) {
            let hits = company.nearest(Scope::All, &VectorQuery::new(&model.id, vector))?;
            let dense = weight.map(|weight| Dense { hits: &hits, weight, min_similarity: 2.0 });
            let options = SearchOptions { limit: 10, dense, ..SearchOptions::default() };
            let found = company.search(Scope::All, &Query { text: &query.text, previous: None }, &options);
            let found: Vec<String> = found.hits.iter().map(|hit| hit.document.to_string()).collect();
            scores.push(ndcg(&found, &query.relevant));
        }
        Ok(mean(scores.into_iter()))
    };
    let lexical = score(None)?;
    table.figure(&format!("nDCG@10, {name}, by words"), format!("{lexical:.4}"));
    table.figure(&format!("the same by vectors of {model_name} alone"), format!("{:.4}", score(Some(1.0))?));
    table.at_least("the same by both, the vectors with 0.2", score(Some(0.2))?, lexical - MAX_LOSS);
    table.at_least("the same by both, the vectors with 0.5", score(Some(0.5))?, lexical - MAX_LOSS);
    Ok(())
}
