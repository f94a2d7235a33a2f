//! `cargo bench -p benches --bench store`: what the store costs beside the bare database, and what commits gain
//! by sharing transactions.
//!
//! Each figure is the median of five repeats, in each of which the reference and all subjects run by turns; a
//! ratio is one of medians. The store runs as a service runs it, under tokio with several threads. Writes go to
//! the folder for temporary files (`TMPDIR`), which must be on a disk for their figures to mean anything.
//! `--check` ends with status 1 where a limit is missed.
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
use benches::measure::{Measurement, Scale};
use benches::subjects::{Bench, Programs};
use benches::table::median;
use rusqlite::Connection;
use serde_json::value::to_raw_value;
use tempfile::TempDir;

const REPEATS: usize = 5;
/// How many tasks write side by side.
const TASKS: usize = 8;
/// How many commits each writer does in a repeat, one after another.
const COMMITS: usize = 100;
/// How many times a role is read in a repeat.
const READS: usize = 1000;
/// How many documents a role has, and how many bytes each has as text.
const DOCUMENTS: usize = 20;
const DOCUMENT_BYTES: usize = 2048;

fn main() -> Result<ExitCode> {
    let check = std::env::args().any(|argument| argument == "--check");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // As a task, for what is awaited outside of all tasks is polled by a thread that wakes in another way.
    let stored = runtime.block_on(runtime.spawn(async {
        let writes = writes().await?;
        anyhow::Ok((writes, reads().await?))
    }));
    let (writes, reads) = stored??;
    // Its processes have the work; here is only who asks.
    let turns = runtime.block_on(turns())?;
    println!("| what | reference | figure | ratio | limit | |\n|---|--:|--:|--:|--:|---|");
    let missed = writes.print() | reads.print() | turns.print();
    Ok(if check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Commits in a second, of one task and of several.
struct Writes {
    one: f64,
    many: f64,
    commits_per_transaction: f64,
}

async fn writes() -> Result<Writes> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(open(&folder, SqliteOptions::default())?);
    let (mut one, mut many) = (Vec::new(), Vec::new());
    let (mut commits, mut transactions) = (0, 0);
    for _ in 0..REPEATS {
        one.push(per_second(&store, 1).await?);
        let before = store.activity();
        many.push(per_second(&store, TASKS).await?);
        commits += store.activity().commits - before.commits;
        transactions += store.activity().transactions - before.transactions;
    }
    let commits_per_transaction = commits as f64 / transactions as f64;
    Ok(Writes { one: median(one), many: median(many), commits_per_transaction })
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

impl Writes {
    fn print(&self) -> bool {
        let ratio = self.many / self.one;
        let met = ratio >= 3.0;
        println!(
            "| commits in a second at `synchronous=FULL`: {TASKS} tasks beside one; {:.1} commits share a \
             transaction | {:.0} | {:.0} | {ratio:.2} × | ≥ 3 × | {} |",
            self.commits_per_transaction,
            self.one,
            self.many,
            verdict(met),
        );
        !met
    }
}

/// Microseconds that reading a role with its documents takes.
struct Reads {
    raw: f64,
    store: f64,
    cached: f64,
    /// Of all reads from the cache, how many ran statements.
    statements: u64,
}

async fn reads() -> Result<Reads> {
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
    let mut statements = 0;
    for _ in 0..REPEATS {
        let mut runs = [(); 3].map(|()| Vec::with_capacity(READS));
        for _ in 0..READS {
            let begin = Instant::now();
            let read = raw.read(&role, &documents)?;
            runs[0].push(begin.elapsed().as_secs_f64() * 1e6);
            drop(black_box(read));
            runs[1].push(timed(&store, &role, &documents).await?);
            // What is kept is looked after now and then, which is not what is measured.
            timed(&cached, &role, &documents).await?;
            let before = cached.activity().reads;
            runs[2].push(timed(&cached, &role, &documents).await?);
            statements += cached.activity().reads - before;
        }
        for (figure, runs) in figures.iter_mut().zip(runs) {
            figure.push(median(runs));
        }
    }
    let [raw, store, cached] = figures.map(median);
    Ok(Reads { raw, store, cached, statements })
}

/// One read of a role and one of its documents, in microseconds.
async fn timed(store: &SqliteStore, role: &Key, documents: &[Key]) -> Result<f64> {
    let begin = Instant::now();
    let role = store.get(role).await?;
    let documents = store.get_many(documents).await?;
    let taken = begin.elapsed().as_secs_f64() * 1e6;
    ensure!(role.is_some() && documents.iter().all(Option::is_some), "a record is missing");
    Ok(taken)
}

impl Reads {
    fn print(&self) -> bool {
        let ratio = self.store / self.raw;
        let met = ratio <= 1.5;
        println!(
            "| a role with {DOCUMENTS} documents of 2 KB, uncached, pages warm, beside bare rusqlite on one \
             connection | {:.1} µs | {:.1} µs | {ratio:.2} × | ≤ 1.5 × | {} |",
            self.raw,
            self.store,
            verdict(met),
        );
        println!(
            "| the same, cached; {} of {} reads ran a statement | {:.1} µs | {:.2} µs | {:.3} × | – | – |",
            self.statements,
            2 * REPEATS * READS,
            self.raw,
            self.cached,
            self.cached / self.raw,
        );
        !met
    }
}

/// Milliseconds from a request to the first token over loopback, with the store in memory and in SQLite.
struct Turns {
    memory: f64,
    sqlite: f64,
}

async fn turns() -> Result<Turns> {
    let programs = Programs {
        upstream: env!("CARGO_BIN_EXE_upstream").into(),
        bare_proxy: env!("CARGO_BIN_EXE_bare_proxy").into(),
        agentd: None,
    };
    let bench = Bench::start(programs)?;
    let program = Path::new(env!("CARGO_BIN_EXE_app_over"));
    let (memory, sqlite) = (bench.start_over("memory", program)?, bench.start_over("sqlite", program)?);
    let mut figures = [(); 2].map(|()| Vec::with_capacity(REPEATS));
    for _ in 0..REPEATS {
        for (figure, running) in figures.iter_mut().zip([&memory, &sqlite]) {
            figure.push(Measurement::FirstToken.run(running, &Scale::FULL).await?);
        }
    }
    let [memory, sqlite] = figures.map(median);
    Ok(Turns { memory, sqlite })
}

impl Turns {
    fn print(&self) -> bool {
        let ratio = self.sqlite / self.memory;
        let met = ratio <= 1.1;
        println!(
            "| the first token of a turn with two documents and a memory, SQLite beside memory | {:.3} ms | {:.3} ms \
             | {ratio:.2} × | ≤ 1.1 × | {} |",
            self.memory,
            self.sqlite,
            verdict(met),
        );
        !met
    }
}

/// The reference: the same rows as one reads them with rusqlite alone.
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

/// A document as it is stored, with about as many quotes and new lines as people write.
fn document(seed: usize) -> Result<SharedJson> {
    let line = format!("- {seed}: answer \"politely\", name the **exact** day, and never promise more.\n");
    let mut text = line.repeat(DOCUMENT_BYTES / line.len() + 1);
    text.truncate(DOCUMENT_BYTES);
    Ok(to_raw_value(&text)?.into())
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**missed**" }
}
