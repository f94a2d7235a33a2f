//! `cargo bench -p benches --bench store`: cost of the store beside the bare database, and the gain from commits that
//! share transactions.
//!
//! Each figure is the median of five repeats, in each of which the reference and all subjects run in turns; a ratio
//! is one of medians. The store runs as in a service, under tokio with several threads. Writes go to the directory
//! for temporary files (`TMPDIR`), which must be on a disk for meaningful figures. `--check` exits with status 1 if a
//! limit is exceeded.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use agent_core::message::SharedJson;
use agent_platform::records::{Key, Precondition, Records};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Context, Result, ensure};
use benches::application::StoreKind;
use benches::comparison::{Bound, Comparison, any_missed, markdown};
use benches::measure::{Measurement, Scale};
use benches::subjects::{Bench, Programs};
use benches::table::median;
use rusqlite::Connection;
use serde_json::value::to_raw_value;
use tempfile::TempDir;

const REPEATS: usize = 5;
/// Number of concurrent writer tasks.
const TASKS: usize = 8;
/// Sequential commits of each writer per repeat.
const COMMITS: usize = 100;
/// Number of reads of a role per repeat.
const READS: usize = 1000;
/// Number of documents of a role, and the size of each as text.
const DOCUMENTS: usize = 20;
const DOCUMENT_BYTES: usize = 2048;

fn main() -> Result<ExitCode> {
    let check = std::env::args().any(|argument| argument == "--check");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Spawned, because a future passed to `block_on` is polled on the calling thread, which is woken differently.
    let stored = runtime.block_on(runtime.spawn(async {
        let writes = writes().await?;
        anyhow::Ok((writes, reads().await?))
    }));
    let (writes, reads) = stored??;
    // Not spawned: the work is done in the subjects' processes.
    let turns = runtime.block_on(turns())?;
    let rows = [vec![writes], reads, vec![turns]].concat();
    print!("{}", markdown("what", &rows));
    Ok(if check && any_missed(&rows) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Compares the commits per second of several tasks with those of one.
async fn writes() -> Result<Comparison> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(open(&folder, SqliteOptions::default())?);
    let (mut single, mut merged) = (Vec::new(), Vec::new());
    let (mut commits, mut transactions) = (0, 0);
    for _ in 0..REPEATS {
        single.push(per_second(&store, 1).await?);
        let before = store.counters();
        merged.push(per_second(&store, TASKS).await?);
        commits += store.counters().commits - before.commits;
        transactions += store.counters().transactions - before.transactions;
    }
    let commits_per_transaction = commits as f64 / transactions as f64;
    let description = format!(
        "commits at `synchronous=FULL`: {TASKS} tasks beside one; {commits_per_transaction:.1} commits share a \
         transaction"
    );
    Ok(Comparison::new(description, "/s", Bound::AtLeast(3.0), &single, &merged))
}

async fn per_second(store: &Arc<SqliteStore>, tasks: usize) -> Result<f64> {
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let key = Key::new("company", "plans", task.to_string())?;
                for n in 0..COMMITS {
                    store.put(&key, document(n)?, Precondition::Any).await?;
                }
                anyhow::Ok(COMMITS)
            })
        })
        .collect();
    let mut commits = 0;
    for task in tasks {
        commits += task.await??;
    }
    Ok(commits as f64 / begin.elapsed().as_secs_f64())
}

/// Compares reading a role and its documents with the same reads by rusqlite.
async fn reads() -> Result<Vec<Comparison>> {
    let folder = tempfile::tempdir()?;
    let store = open(&folder, SqliteOptions { cache_bytes: 0, ..SqliteOptions::default() })?;
    let cached = open(&folder, SqliteOptions::default())?;
    let role = Key::new("company", "roles", "agent-1")?;
    let documents: Vec<Key> = (0..DOCUMENTS)
        .map(|_| Key::new("company", "documents", agent_core::new_id()))
        .collect::<Result<_, _>>()?;
    for (n, key) in documents.iter().chain([&role]).enumerate() {
        store.put(key, document(n)?, Precondition::Any).await?;
    }
    let raw = Raw { connection: Connection::open(store.path())? };

    let mut figures = [(); 3].map(|()| Vec::with_capacity(REPEATS));
    // Number of reads from the cache that ran a statement.
    let mut statements = 0;
    for _ in 0..REPEATS {
        let mut runs = [(); 3].map(|()| Vec::with_capacity(READS));
        for _ in 0..READS {
            let begin = Instant::now();
            let read = raw.read(&role, &documents)?;
            runs[0].push(begin.elapsed().as_secs_f64() * 1e6);
            drop(black_box(read));
            runs[1].push(timed(&store, &role, &documents).await?);
            // The first read absorbs the cache's periodic revalidation, which is not measured.
            timed(&cached, &role, &documents).await?;
            let before = cached.counters().reads;
            runs[2].push(timed(&cached, &role, &documents).await?);
            statements += cached.counters().reads - before;
        }
        for (figure, runs) in figures.iter_mut().zip(runs) {
            figure.push(median(runs));
        }
    }
    let [raw, store, cached] = figures;
    let uncached = format!(
        "a role with {DOCUMENTS} documents of 2 KB, uncached, pages warm, beside bare rusqlite on one connection"
    );
    let from_cache =
        format!("the same, cached; {statements} of {} reads ran a statement", 2 * REPEATS * READS);
    Ok(vec![
        Comparison::new(uncached, "µs", Bound::AtMost(1.5), &raw, &store),
        Comparison::new(from_cache, "µs", Bound::Unbounded, &raw, &cached),
    ])
}

/// Returns the microseconds taken to read a role and its documents.
async fn timed(store: &SqliteStore, role: &Key, documents: &[Key]) -> Result<f64> {
    let begin = Instant::now();
    let role = store.get(role).await?;
    let documents = store.get_many(documents).await?;
    let elapsed = begin.elapsed().as_secs_f64() * 1e6;
    ensure!(role.is_some() && documents.iter().all(Option::is_some), "a record is missing");
    Ok(elapsed)
}

/// Compares the time from a request to the first token over loopback with the store in SQLite and in memory.
async fn turns() -> Result<Comparison> {
    let programs = Programs {
        upstream: env!("CARGO_BIN_EXE_upstream").into(),
        bare_proxy: env!("CARGO_BIN_EXE_bare_proxy").into(),
        agentd: None,
    };
    let bench = Bench::start(programs)?;
    let program = Path::new(env!("CARGO_BIN_EXE_app_over"));
    let memory = bench.start_over(StoreKind::Memory, program)?;
    let sqlite = bench.start_over(StoreKind::Sqlite, program)?;
    let mut figures = [(); 2].map(|()| Vec::with_capacity(REPEATS));
    for _ in 0..REPEATS {
        for (figure, running) in figures.iter_mut().zip([&memory, &sqlite]) {
            figure.extend(Measurement::FirstToken.run(running, &Scale::FULL).await?);
        }
    }
    let description = "the first token of a turn with two documents and a memory, SQLite beside memory";
    let [memory, sqlite] = figures;
    Ok(Comparison::new(description, "ms", Bound::AtMost(1.1), &memory, &sqlite))
}

/// The reference: reads the same rows with rusqlite alone.
struct Raw {
    connection: Connection,
}

impl Raw {
    fn read(&self, role: &Key, documents: &[Key]) -> Result<Vec<(String, i64, i64, String)>> {
        let row = |key: &Key| {
            let mut statement = self.connection.prepare_cached(
                "SELECT id, version, updated_ms, value FROM records
                 WHERE company = ?1 AND collection = ?2 AND id = ?3",
            )?;
            let key = (key.company(), key.collection().path(), key.id());
            statement.query_row(key, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        };
        let rows: rusqlite::Result<_> = std::iter::once(role).chain(documents).map(row).collect();
        rows.context("the reference reads")
    }
}

fn open(folder: &TempDir, options: SqliteOptions) -> Result<SqliteStore> {
    Ok(SqliteStore::open(folder.path().join("app.db"), options)?)
}

/// Returns a document as it is stored, with about as many quotes and newlines as people write.
fn document(seed: usize) -> Result<SharedJson> {
    let line = format!("- {seed}: answer \"politely\", name the **exact** day, and never promise more.\n");
    let mut text = line.repeat(DOCUMENT_BYTES / line.len() + 1);
    text.truncate(DOCUMENT_BYTES);
    Ok(to_raw_value(&text)?.into())
}
