//! Quality of rankings on the collections.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::company::{CompanyIndex, DocumentChange, SearchScope};
use agent_retrieval::doc_index::DocIndex;
use agent_retrieval::document::ExtractedText;
use agent_retrieval::search::{Query, SearchOptions};
use anyhow::Result;

use crate::collections::{self, Collection, Document};
use crate::table::Table;

/// Hits that are read to find ten documents.
const HITS: usize = 60;
/// Characters of a chunk that has a whole document.
pub(crate) const WHOLE: usize = 1_000_000;

pub(crate) fn run(folder: &Path, table: &mut Table) -> Result<()> {
    ranking(&collections::cisi(folder)?, "cisi", 0.425, table)?;
    ranking(&collections::npl(folder)?, "npl", 0.440, table)?;
    let english = collections::xquad(folder, "en")?;
    ranking(&english, "xquad en", 0.965, table)?;
    ranking(&collections::xquad(folder, "de")?, "xquad de", 0.940, table)?;
    follow_ups(&english, table)?;
    gate(&english, table)
}

/// Builds the index of documents.
fn index<'d>(
    documents: impl IntoIterator<Item = &'d Document>,
    chunker: StructuralChunker,
) -> Result<CompanyIndex> {
    let mut company = CompanyIndex::new();
    let mut changes = Vec::new();
    for document in documents {
        let extracted = ExtractedText {
            title: document.title.clone(),
            text: document.text.clone(),
            ..ExtractedText::default()
        };
        let index = DocIndex::build(&extracted, &chunker)?;
        changes.push(DocumentChange::Put(document.id.as_str().into(), index.into()));
    }
    company.apply(changes);
    Ok(company)
}

/// Returns the best ten documents: each at the place of its best chunk.
fn best_documents(company: &CompanyIndex, query: &Query<'_>, uses_feedback: bool) -> Vec<String> {
    let options = SearchOptions { limit: HITS, uses_feedback, ..SearchOptions::default() };
    let mut found = Vec::new();
    for hit in company.search(SearchScope::All, query, &options).hits {
        let id = hit.document.to_string();
        if !found.contains(&id) {
            found.push(id);
        }
    }
    found.truncate(10);
    found
}

/// Returns nDCG@10 with binary gains.
pub(crate) fn ndcg(found: &[String], relevant: &BTreeSet<String>) -> f64 {
    let discount = |rank: usize| 1.0 / ((rank + 2) as f64).log2();
    let gained: f64 = found
        .iter()
        .take(10)
        .enumerate()
        .filter(|(_, id)| relevant.contains(*id))
        .map(|(rank, _)| discount(rank))
        .sum();
    let ideal: f64 = (0..relevant.len().min(10)).map(discount).sum();
    if ideal > 0.0 { gained / ideal } else { 0.0 }
}

pub(crate) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// Measures documents as they are judged, whole, and beside it as they are stored, at the place of their best chunk.
fn ranking(collection: &Collection, name: &str, min_ndcg: f64, table: &mut Table) -> Result<()> {
    let score = |company: &CompanyIndex, feedback: bool| {
        mean(collection.queries.iter().map(|query| {
            let found = best_documents(company, &Query { text: &query.text, previous: None }, feedback);
            ndcg(&found, &query.relevant)
        }))
    };
    let whole = index(&collection.documents, StructuralChunker::new(WHOLE, 0))?;
    let chunked = index(&collection.documents, StructuralChunker::default())?;
    table.figure(&format!("nDCG@10, {name}, without feedback"), format!("{:.4}", score(&whole, false)));
    table.at_least(&format!("nDCG@10, {name}"), score(&whole, true), min_ndcg);
    let by_chunk = format!("{:.4} / {:.4}", score(&chunked, false), score(&chunked, true));
    table.figure("the same by the best chunk, without / with feedback", by_chunk);
    Ok(())
}

/// Questions that leave out their subject: the rarer half of their content words removed. The question before is one on the same
/// passage, or one on another article after a change of topic.
fn follow_ups(collection: &Collection, table: &mut Table) -> Result<()> {
    let company = index(&collection.documents, StructuralChunker::default())?;
    let mut frequencies: BTreeMap<String, usize> = BTreeMap::new();
    for document in &collection.documents {
        let words: BTreeSet<String> = words(&document.text).collect();
        for word in words {
            *frequencies.entry(word).or_default() += 1;
        }
    }
    let queries = &collection.queries;
    let count = queries.len();
    let elliptic: Vec<String> =
        queries.iter().map(|query| without_rarer_half(&query.text, &frequencies)).collect();
    // The neighbour with the same passage, and the question half of the collection away.
    let same = |number: usize| {
        let next = (number + 1) % count;
        if queries[next].relevant == queries[number].relevant { next } else { number.saturating_sub(1) }
    };
    let other = |number: usize| (number + count / 2) % count;
    let score = |texts: &[String], previous: &dyn Fn(usize) -> Option<usize>| {
        mean((0..count).map(|number| {
            let previous = previous(number).map(|previous| queries[previous].text.as_str());
            let found = best_documents(&company, &Query { text: &texts[number], previous }, true);
            ndcg(&found, &queries[number].relevant)
        }))
    };
    let whole: Vec<String> = queries.iter().map(|query| query.text.clone()).collect();
    let half = elliptic;
    table.figure(
        "whole questions, with the question before",
        format!("{:.4}", score(&whole, &|n| Some(same(n)))),
    );
    table.figure(
        "whole questions, after a change of topic",
        format!("{:.4}", score(&whole, &|n| Some(other(n)))),
    );
    table.figure("elliptic questions, alone", format!("{:.4}", score(&half, &|_| None)));
    table.at_least("elliptic questions, with the question before", score(&half, &|n| Some(same(n))), 0.92);
    table.at_least("elliptic questions, after a change of topic", score(&half, &|n| Some(other(n))), 0.74);
    Ok(())
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

/// Returns the words of a text without the rarer half of those that are not function words.
fn without_rarer_half(text: &str, frequencies: &BTreeMap<String, usize>) -> String {
    let function_words = stop_words::get("en");
    let distinct: BTreeSet<String> =
        words(text).filter(|word| !function_words.contains(&word.as_str())).collect();
    let mut distinct: Vec<(usize, String)> =
        distinct.into_iter().map(|word| (frequencies.get(&word).copied().unwrap_or(0), word)).collect();
    distinct.sort();
    let rare: BTreeSet<String> =
        distinct[..distinct.len() / 2].iter().map(|(_, word)| word.clone()).collect();
    words(text).filter(|word| !rare.contains(word)).collect::<Vec<_>>().join(" ")
}

/// The relevance gate on halves of the collection: questions on the indexed half should pass, the others should not.
fn gate(collection: &Collection, table: &mut Table) -> Result<()> {
    let (mut own, mut foreign) = (Vec::new(), Vec::new());
    for half in [0, 1] {
        let middle = collection.documents.len() / 2;
        let documents =
            if half == 0 { &collection.documents[..middle] } else { &collection.documents[middle..] };
        let company = index(documents, StructuralChunker::default())?;
        for query in &collection.queries {
            let options = SearchOptions { limit: 1, ..SearchOptions::default() };
            let ranking =
                company.search(SearchScope::All, &Query { text: &query.text, previous: None }, &options);
            let is_own = query.relevant.iter().any(|id| company.contains(id));
            if is_own { own.push(ranking.relevance) } else { foreign.push(ranking.relevance) }
        }
    }
    let below = |values: &[f32], limit: f32| {
        values.iter().filter(|&&value| value < limit).count() as f64 / values.len() as f64 * 100.0
    };
    table.at_most("answerable questions lost by the gate at 0.08, %", below(&own, 0.08), 0.5);
    table.at_least("foreign questions rejected by the gate at 0.08, %", below(&foreign, 0.08), 10.0);
    let at = |limit: f32| format!("{:.2} / {:.2}", below(&own, limit), below(&foreign, limit));
    for limit in [0.12, 0.16, 0.20, 0.25, 0.3] {
        table.figure(&format!("the same at {limit}, lost / rejected, %"), at(limit));
    }
    Ok(())
}
