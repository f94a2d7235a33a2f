//! Speed and memory of the index, beside SQLite FTS5 on the same text.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::company::{CompanyIndex, DocumentChange, SearchScope};
use agent_retrieval::doc_index::{DocIndex, Vectors};
use agent_retrieval::document::ExtractedText;
use agent_retrieval::search::{Query, SearchOptions, search_documents};
use anyhow::Result;
use rusqlite::{Connection, params};

use crate::collections::{self, Collection};
use crate::table::Table;
use crate::vectors::{DIMENSIONS, Random};

/// Characters of a synthetic paragraph, which is one chunk.
const PARAGRAPH_CHARACTERS: usize = 850;
/// Chunks of a synthetic document.
const DOCUMENT_CHUNKS: usize = 20;
/// Queries of each measurement of the index.
const QUERIES: usize = 400;
/// Queries of FTS5, which is slower.
const FTS5_QUERIES: usize = 60;

pub(crate) fn run(folder: &Path, max_documents: usize, table: &mut Table) -> Result<()> {
    let english = collections::xquad(folder, "en")?;
    let sentences = sentences(&[&english, &collections::cisi(folder)?, &collections::npl(folder)?]);
    let questions: Vec<&str> = english.queries.iter().map(|query| query.text.as_str()).collect();
    for (chunks, limit) in [(10_000, 0.5), (100_000, 2.0)] {
        if chunks <= max_documents {
            measure(&sentences, &questions, chunks, limit, table)?;
        }
    }
    Ok(())
}

/// Returns the sentences of collections.
fn sentences(collections: &[&Collection]) -> Vec<String> {
    let documents = collections.iter().flat_map(|collection| &collection.documents);
    let sentences = documents.flat_map(|document| document.text.split(". "));
    sentences
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|text| text.len() > 20)
        .collect()
}

/// Returns documents of paragraphs that mix sentences, each with a separate name, so that the vocabulary grows.
fn documents(sentences: &[String], chunks: usize) -> Vec<Vec<String>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut paragraph = |number: usize| {
        let mut text = format!("Item K{:x}", number * 7919);
        loop {
            let sentence = &sentences[random(sentences.len())];
            if text.len() + sentence.len() > PARAGRAPH_CHARACTERS {
                break text;
            }
            text.push_str(". ");
            text.push_str(sentence);
        }
    };
    let paragraphs: Vec<String> = (0..chunks).map(&mut paragraph).collect();
    paragraphs.chunks(DOCUMENT_CHUNKS).map(<[String]>::to_vec).collect()
}

fn measure(
    sentences: &[String],
    questions: &[&str],
    chunks: usize,
    limit: f64,
    table: &mut Table,
) -> Result<()> {
    let documents = documents(sentences, chunks);
    let started = Instant::now();
    let mut indexes = Vec::new();
    for (number, paragraphs) in documents.iter().enumerate() {
        let extracted = ExtractedText {
            title: format!("Document {number}"),
            text: paragraphs.join("\n\n"),
            ..ExtractedText::default()
        };
        indexes.push(DocIndex::build(&extracted, &StructuralChunker::default())?);
    }
    let built = started.elapsed();
    let encoded: Vec<Vec<u8>> = indexes.iter().map(DocIndex::encode).collect();
    let stored: usize = encoded.iter().map(Vec::len).sum();
    drop(indexes);

    let started = Instant::now();
    let decoded: Result<Vec<DocIndex>, _> = encoded.iter().map(|bytes| DocIndex::decode(bytes)).collect();
    let decoded = decoded?;
    let decoding = started.elapsed();
    let some: Vec<(String, DocIndex)> = decoded
        .iter()
        .step_by(50)
        .enumerate()
        .map(|(number, index)| (number.to_string(), index.clone()))
        .collect();
    let started = Instant::now();
    let mut company = CompanyIndex::new();
    company.apply((0..).zip(decoded).map(|(number, index): (usize, DocIndex)| {
        DocumentChange::Put(number.to_string().into(), index.into())
    }));
    let merging = started.elapsed();
    let found_chunks = company.chunk_count();

    let name = format!("{} chunks", company.chunk_count());
    if chunks == 10_000 {
        table.at_least("ingestion, one core, chunks/s", found_chunks as f64 / built.as_secs_f64(), 4000.0);
    } else {
        table.figure(
            &format!("ingestion, {name}, chunks/s"),
            format!("{:.0}", found_chunks as f64 / built.as_secs_f64()),
        );
    }
    table.at_most(
        &format!("memory a chunk, {name}, bytes"),
        company.memory_bytes() as f64 / found_chunks as f64,
        1200.0,
    );
    table.at_most(
        &format!("the same with a vector of {DIMENSIONS} in eight bits, bytes"),
        memory_with_vectors(&encoded)? as f64 / found_chunks as f64,
        1600.0,
    );
    table.figure(&format!("stored bytes a chunk, {name}"), format!("{}", stored / found_chunks));
    table.figure(
        &format!("cold start, {name}: decode, merge"),
        format!("{:.0} ms, {:.0} ms", millis(decoding), millis(merging)),
    );

    let options = SearchOptions { limit: 10, ..SearchOptions::default() };
    let ours = quantiles(questions, QUERIES, |text| {
        black_box(company.search(SearchScope::All, &Query { text, previous: None }, &options));
    });
    let plain_options = SearchOptions { uses_feedback: false, ..options.clone() };
    let plain = quantiles(questions, QUERIES, |text| {
        black_box(company.search(SearchScope::All, &Query { text, previous: None }, &plain_options));
    });
    let unmerged = quantiles(questions, QUERIES, |text| {
        let documents = some.iter().map(|(id, index)| (id.as_str().into(), index));
        black_box(search_documents(documents, &Query { text, previous: None }, &options));
    });
    let database = fts5(&documents)?;
    let fts5 = fts5_times(&database, questions, false)?;
    let fts5_content = fts5_times(&database, questions, true)?;
    table.at_most(&format!("query, {name}, p50, ms"), millis(ours.0), limit);
    table.figure("the same, p95, ms", format!("{:.3}", millis(ours.1)));
    table.figure(
        "the same without feedback, p50 / p95, ms",
        format!("{:.3} / {:.3}", millis(plain.0), millis(plain.1)),
    );
    table.figure(
        "the same over 2 % of the documents, unmerged, p50, ms",
        format!("{:.3}", millis(unmerged.0)),
    );
    table.figure(
        &format!("SQLite FTS5, {name}, p50 / p95, ms"),
        format!("{:.1} / {:.1}", millis(fts5.0), millis(fts5.1)),
    );
    let content = format!("{:.1} / {:.1}", millis(fts5_content.0), millis(fts5_content.1));
    table.figure("the same without function words, p50 / p95, ms", content);
    table.at_least(
        &format!("speed beside FTS5, {name}, p50"),
        fts5.0.as_secs_f64() / ours.0.as_secs_f64(),
        50.0,
    );
    Ok(())
}

/// Returns the memory of an index of the documents in which each chunk has a vector.
fn memory_with_vectors(encoded: &[Vec<u8>]) -> Result<usize> {
    let mut random = Random::default();
    let mut company = CompanyIndex::new();
    for (number, bytes) in encoded.iter().enumerate() {
        let index = DocIndex::decode(bytes)?;
        let vectors: Vec<Vec<f32>> = (0..index.chunk_count()).map(|_| random.vector(&[], 1.0)).collect();
        let vectors: Vec<Option<&Vec<f32>>> = vectors.iter().map(Some).collect();
        let index = index.with_vectors(Some(Vectors::quantize("bench", DIMENSIONS, &vectors)?))?;
        company.apply([DocumentChange::Put(number.to_string().into(), index.into())]);
    }
    Ok(company.memory_bytes())
}

/// Returns the p50 and p95 of the time of queries.
fn quantiles(questions: &[&str], count: usize, mut query: impl FnMut(&str)) -> (Duration, Duration) {
    let step = (questions.len() / count).max(1);
    let mut times: Vec<Duration> = questions
        .iter()
        .step_by(step)
        .take(count)
        .map(|question| {
            let started = Instant::now();
            query(question);
            started.elapsed()
        })
        .collect();
    times.sort();
    (times[times.len() / 2], times[times.len() * 95 / 100])
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Returns a database in memory with the same paragraphs in FTS5, with the Porter stemmer.
fn fts5(documents: &[Vec<String>]) -> Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    connection
        .execute_batch("CREATE VIRTUAL TABLE chunks USING fts5(text, tokenize = 'porter unicode61')")?;
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO chunks (text) VALUES (?1)")?;
        for paragraph in documents.iter().flatten() {
            insert.execute(params![paragraph])?;
        }
    }
    transaction.commit()?;
    connection.execute_batch("INSERT INTO chunks (chunks) VALUES ('optimize')")?;
    Ok(connection)
}

/// Measures FTS5 with the words of the questions, or with those that are not function words.
fn fts5_times(
    connection: &Connection,
    questions: &[&str],
    content_words: bool,
) -> Result<(Duration, Duration)> {
    let mut select = connection
        .prepare("SELECT rowid, bm25(chunks) FROM chunks WHERE chunks MATCH ?1 ORDER BY rank LIMIT 10")?;
    let function_words = stop_words::get("en");
    let mut failure = None;
    let times = quantiles(questions, FTS5_QUERIES, |question| {
        let words =
            question.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
        let words =
            words.filter(|word| !content_words || !function_words.contains(&word.to_lowercase().as_str()));
        let expression = words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" OR ");
        let found: rusqlite::Result<Vec<i64>> =
            select.query_map(params![expression], |row| row.get(0)).and_then(Iterator::collect);
        match found {
            Ok(rows) => drop(black_box(rows)),
            Err(error) => failure = Some(error),
        }
    });
    failure.map_or(Ok(times), |error| Err(error.into()))
}
