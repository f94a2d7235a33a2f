//! `cargo bench -p benches --bench store_tricks`: gain of the SQLite store's optimizations: polling queues before a
//! thread or a task sleeps, and the read cache.
//!
//! One store per variant, each in its own file, in turns within each of seven repeats; figures are medians. Files are
//! in `TMPDIR`, which must be on a disk for meaningful figures of commits.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::sync::Arc;
use std::time::Instant;

use agent_core::message::SharedJson;
use agent_platform::records::{Key, Precondition, Records};
use agent_store::sqlite::{SpinOptions, SqliteOptions, SqliteStore};
use anyhow::{Result, ensure};
use benches::should_measure;
use benches::table::median;
use serde_json::value::to_raw_value;
use tempfile::TempDir;

const REPEATS: usize = 7;
/// Number of reads of a role with its documents per repeat.
const READS: usize = 1000;
/// Number of documents of a role, and the size of each as text.
const DOCUMENTS: usize = 20;
const DOCUMENT_BYTES: usize = 2048;
/// Number of concurrent writer tasks, and of sequential commits of each per repeat.
const TASKS: usize = 8;
const COMMITS: usize = 100;

const ALL: SpinOptions = SpinOptions { readers: true, tasks: true, writer: true };

fn main() -> Result<()> {
    if !should_measure(std::env::args().any(|argument| argument == "--bench")) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Spawned, because a future passed to `block_on` is polled on the calling thread, which is woken differently.
    runtime.block_on(runtime.spawn(async {
        println!("| what | variant | figure | beside the first |\n|---|---|--:|--:|");
        reads().await?;
        commits().await
    }))?
}

/// A store with one role and its documents.
struct Variant {
    name: &'static str,
    store: Arc<SqliteStore>,
    _folder: TempDir,
}

impl Variant {
    fn open(name: &'static str, spin: SpinOptions, cache_bytes: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let options = SqliteOptions { spin, cache_bytes, ..SqliteOptions::default() };
        let store = Arc::new(SqliteStore::open(folder.path().join("app.db"), options)?);
        Ok(Self { name, store, _folder: folder })
    }
}

async fn reads() -> Result<()> {
    let variants = [
        Variant::open("uncached, all polling", ALL, 0)?,
        Variant::open("uncached, reader threads block at once", SpinOptions { readers: false, ..ALL }, 0)?,
        Variant::open("uncached, tasks sleep at once", SpinOptions { tasks: false, ..ALL }, 0)?,
        Variant::open("uncached, no polling", SpinOptions { readers: false, tasks: false, ..ALL }, 0)?,
        Variant::open("cached", ALL, SqliteOptions::default().cache_bytes)?,
    ];
    let role = Key::new("company", "roles", "agent-1")?;
    let documents: Vec<Key> = (0..DOCUMENTS)
        .map(|_| Key::new("company", "documents", agent_core::new_id()))
        .collect::<Result<_, _>>()?;
    for variant in &variants {
        for (seed, key) in documents.iter().chain([&role]).enumerate() {
            variant.store.put(key, document(seed)?, Precondition::Any).await?;
        }
    }
    let mut figures = vec![Vec::with_capacity(REPEATS); variants.len()];
    for _ in 0..REPEATS {
        let mut times = vec![Vec::with_capacity(READS); variants.len()];
        for _ in 0..READS {
            for (times, variant) in times.iter_mut().zip(&variants) {
                let begin = Instant::now();
                let found = variant.store.get(&role).await?;
                let read = variant.store.get_many(&documents).await?;
                times.push(begin.elapsed().as_secs_f64() * 1e6);
                ensure!(found.is_some() && read.iter().all(Option::is_some), "a record is missing");
            }
        }
        for (figures, times) in figures.iter_mut().zip(times) {
            figures.push(median(times));
        }
    }
    print_rows("a role with 20 documents of 2 KB, µs", &variants, figures);
    Ok(())
}

async fn commits() -> Result<()> {
    let cache = SqliteOptions::default().cache_bytes;
    let variants = [
        Variant::open("the writer polls", ALL, cache)?,
        Variant::open("the writer begins at once", SpinOptions { writer: false, ..ALL }, cache)?,
    ];
    let mut figures = vec![Vec::with_capacity(REPEATS); variants.len()];
    for _ in 0..REPEATS {
        for (figures, variant) in figures.iter_mut().zip(&variants) {
            figures.push(micros_per_commit(&variant.store).await?);
        }
    }
    print_rows("a commit of 8 concurrent tasks at `synchronous=FULL`, µs", &variants, figures);
    Ok(())
}

async fn micros_per_commit(store: &Arc<SqliteStore>) -> Result<f64> {
    let begin = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let key = Key::new("company", "plans", task.to_string())?;
                for seed in 0..COMMITS {
                    store.put(&key, document(seed)?, Precondition::Any).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / (TASKS * COMMITS) as f64)
}

fn print_rows(description: &str, variants: &[Variant], figures: Vec<Vec<f64>>) {
    let figures: Vec<f64> = figures.into_iter().map(median).collect();
    for (variant, figure) in variants.iter().zip(&figures) {
        let change = (figure / figures[0] - 1.0) * 100.0;
        println!("| {description} | {} | {figure:.2} | {change:+.1} % |", variant.name);
    }
}

fn document(seed: usize) -> Result<SharedJson> {
    let mut text = format!("- {seed}: answer \"politely\", and never promise more.\n").repeat(DOCUMENT_BYTES);
    text.truncate(DOCUMENT_BYTES);
    Ok(to_raw_value(&text)?.into())
}
