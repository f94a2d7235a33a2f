//! `cargo bench -p benches --bench jobs_postgres`: cost of jobs in PostgreSQL beside the bare client.
//!
//! Starts its own server in the directory for temporary files (`TMPDIR`), which must be on a disk for meaningful
//! figures. The figure is the median of five repeats, in each of which both subjects run in turns. The reference uses
//! `tokio-postgres` for the work that a store cannot avoid. It locks, reads and writes the same rows by the same
//! statements in the same transactions, and does not interpret them. It writes the same columns as the store, so that
//! its rows grow in the same way. `--check` exits with status 1 if the limit is missed.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent_jobs::job::JobStore;
use agent_store::postgres::{PostgresJobs, PostgresOptions};
use anyhow::{Result, ensure};
use benches::batch::{self, BATCH, job};
use benches::comparison::{Bound, Comparison, any_missed, markdown};
use jiff::Timestamp;
use tokio_postgres::{Client, NoTls};

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/support/cluster.rs"]
mod cluster;

const REPEATS: usize = 5;
/// Number of batches of each subject per repeat.
const BATCHES: usize = 20;
const MIN_THROUGHPUT_RATIO: f64 = 0.7;
const DATABASES: [&str; 3] = ["raw", "store", "one"];

const DUE: &str = "
    SELECT id, body, progress FROM scheduler.jobs WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $1)
    ORDER BY wake_ms, id LIMIT $2 FOR UPDATE SKIP LOCKED";
const OF_IDS: &str =
    "SELECT id, body, progress FROM scheduler.jobs WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
const UPDATE: &str = "
    UPDATE scheduler.jobs AS job SET state = $2, wake_ms = $3, ended_ms = $4, dead = false, progress = new.progress
    FROM unnest($1::text[], $5::text[]) AS new (id, progress) WHERE job.id = new.id";

fn main() -> Result<ExitCode> {
    let check = std::env::args().any(|argument| argument == "--check");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let cluster = cluster::Cluster::start_synced();
    let urls = DATABASES.map(|database| cluster.url(database));
    let admin = cluster.url("postgres");
    // Spawned, because a future passed to `block_on` is polled on the calling thread, which is woken differently.
    let (raw, store) = runtime.block_on(runtime.spawn(measure(admin, urls)))??;
    let description =
        format!("jobs claimed and completed, in batches of {BATCH}: beside bare tokio-postgres");
    let rows = [Comparison::new(description, "/s", Bound::AtLeast(MIN_THROUGHPUT_RATIO), &raw, &store)];
    print!("{}", markdown("what", &rows));
    Ok(if check && any_missed(&rows) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the jobs claimed and completed per second in each repeat, of the reference and of the store.
async fn measure(admin: String, urls: [String; 3]) -> Result<(Vec<f64>, Vec<f64>)> {
    for database in DATABASES {
        connect(&admin).await?.batch_execute(&format!("CREATE DATABASE {database}")).await?;
    }
    let now = Timestamp::now();
    let [raw, store, one] = &urls;
    let progress = Progress::of(one, now).await?;
    // The store creates the reference's table and rows too.
    drop(filled(raw, now).await?);
    let (mut raw, store) = (connect(raw).await?, filled(store, now).await?);
    let mut figures = [const { Vec::new() }; 2];
    for _ in 0..REPEATS {
        let mut elapsed = [Duration::ZERO; 2];
        for _ in 0..BATCHES {
            elapsed[0] += raw_batch(&mut raw, &progress, now).await?;
            elapsed[1] += batch::claim_and_complete(&store, now).await?;
        }
        for (figures, elapsed) in figures.iter_mut().zip(elapsed) {
            figures.push((BATCHES * BATCH) as f64 / elapsed.as_secs_f64());
        }
    }
    let [raw, store] = figures;
    Ok((raw, store))
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn filled(url: &str, now: Timestamp) -> Result<PostgresJobs> {
    let store = PostgresJobs::open(url, PostgresOptions::default()).await?;
    store.insert((0..REPEATS * BATCHES * BATCH).map(|n| job(n, now)).collect()).await?;
    connect(url).await?.batch_execute("VACUUM ANALYZE scheduler.jobs").await?;
    Ok(store)
}

/// Contents of the `progress` column that the store wrote for a claimed and a completed job.
struct Progress {
    claimed: String,
    completed: String,
}

impl Progress {
    /// Reads the contents for the first job in a separate database.
    async fn of(url: &str, now: Timestamp) -> Result<Self> {
        let (store, client) =
            (PostgresJobs::open(url, PostgresOptions::default()).await?, connect(url).await?);
        store.insert(vec![job(0, now)]).await?;
        let read = async || client.query_one("SELECT progress FROM scheduler.jobs", &[]).await;
        let claimed = batch::claim(&store, now, 1).await?;
        let claimed_as = read().await?.get(0);
        batch::complete(&store, claimed, now).await?;
        Ok(Self { claimed: claimed_as, completed: read().await?.get(0) })
    }
}

async fn raw_batch(client: &mut Client, progress: &Progress, now: Timestamp) -> Result<Duration> {
    let now = now.as_millisecond();
    let due = client.prepare(DUE).await?;
    let of_ids = client.prepare(OF_IDS).await?;
    let update = client.prepare(UPDATE).await?;
    let begin = Instant::now();

    let transaction = client.transaction().await?;
    let rows = transaction.query(&due, &[&now, &(BATCH as i64)]).await?;
    let ids: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let claimed = vec![&progress.claimed; ids.len()];
    let lease = Some(now + 30_000);
    transaction.execute(&update, &[&ids, &"running", &lease, &None::<i64>, &claimed]).await?;
    transaction.commit().await?;

    let transaction = client.transaction().await?;
    let rows = transaction.query(&of_ids, &[&ids]).await?;
    let ids: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let completed = vec![&progress.completed; ids.len()];
    let done =
        transaction.execute(&update, &[&ids, &"completed", &None::<i64>, &Some(now), &completed]).await?;
    transaction.commit().await?;

    let elapsed = begin.elapsed();
    ensure!(done == BATCH as u64, "{done} of {BATCH} jobs were claimed and completed");
    Ok(elapsed)
}
