//! `cargo bench -p benches --bench jobs_postgres`: what jobs in PostgreSQL cost beside the bare client.
//!
//! Starts a server of its own, in the folder for temporary files (`TMPDIR`), which must be on a disk for the figures
//! to mean anything. The figure is the median of five repeats, in each of which both run by turns. The reference does by
//! `tokio-postgres` what a store cannot leave out: it locks, reads and writes the same rows of the same table with
//! the same indices, by the same statements in the same transactions, and thinks nothing about what they mean.
//! `--check` ends with status 1 where the limit is missed.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent_core::job::{Claim, Job, JobKind, JobPayload, JobStore, NewJob, Outcome, Quota, Step};
use agent_core::schedule::Schedule;
use agent_store::postgres::{PostgresJobs, PostgresOptions};
use anyhow::{Result, ensure};
use benches::table::median;
use jiff::{SignedDuration, Timestamp};
use tokio_postgres::{Client, NoTls};

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/support/cluster.rs"]
mod cluster;

const REPEATS: usize = 5;
/// How many jobs are claimed, and how many are completed, in one call.
const BATCH: usize = 100;
/// How many batches each takes in a repeat.
const BATCHES: usize = 20;
const COMPANIES: usize = 100;
const LEAST: f64 = 0.7;

const DUE: &str = "
    SELECT id, body FROM scheduler.jobs WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $1)
    ORDER BY wake_ms, id LIMIT $2 FOR UPDATE SKIP LOCKED";
const OF_IDS: &str = "SELECT id, body FROM scheduler.jobs WHERE id = ANY ($1) ORDER BY id FOR UPDATE";
const UPDATE: &str = "
    UPDATE scheduler.jobs AS job SET state = $2, wake_ms = $3, ended_ms = $4, dead = false, body = new.body
    FROM unnest($1::text[], $5::text[]) AS new (id, body) WHERE job.id = new.id";

fn main() -> Result<ExitCode> {
    let check = std::env::args().any(|argument| argument == "--check");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let cluster = cluster::Cluster::start();
    let urls = ["raw", "store"].map(|database| cluster.url(database));
    let admin = cluster.url("postgres");
    // As a task, for what is awaited outside of all tasks is polled by a thread that wakes in another way.
    let (raw, store) = runtime.block_on(runtime.spawn(measure(admin, urls)))??;
    let ratio = store / raw;
    let verdict = if ratio >= LEAST { "met" } else { "**missed**" };
    println!("| what | reference | figure | ratio | limit | |\n|---|--:|--:|--:|--:|---|");
    println!(
        "| jobs claimed and completed in a second, in batches of {BATCH}: beside bare tokio-postgres | \
         {raw:.0} | {store:.0} | {ratio:.2} × | ≥ {LEAST} × | {verdict} |"
    );
    Ok(if check && ratio < LEAST { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Jobs in a second, each claimed and completed.
async fn measure(admin: String, urls: [String; 2]) -> Result<(f64, f64)> {
    connect(&admin).await?.batch_execute("CREATE DATABASE raw").await?;
    connect(&admin).await?.batch_execute("CREATE DATABASE store").await?;
    let now = Timestamp::now();
    // The reference has its table from the store too.
    drop(filled(&urls[0], now).await?);
    let (mut raw, store) = (connect(&urls[0]).await?, filled(&urls[1], now).await?);
    let mut figures = [const { Vec::new() }; 2];
    for _ in 0..REPEATS {
        let mut taken = [Duration::ZERO; 2];
        for _ in 0..BATCHES {
            taken[0] += raw_batch(&mut raw, now).await?;
            taken[1] += batch(&store, now).await?;
        }
        for (figures, taken) in figures.iter_mut().zip(taken) {
            figures.push((BATCHES * BATCH) as f64 / taken.as_secs_f64());
        }
    }
    let [raw, store] = figures.map(median);
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

/// A job as applications make them, due within the minute before `now`.
fn job(n: usize, now: Timestamp) -> Job {
    let arguments =
        serde_json::json!({"title": format!("Call customer {n} back"), "priority": "high", "list": n});
    let payload = JobPayload {
        kind: JobKind::Tool,
        user_id: format!("user-{}", n % 1000),
        company_id: format!("company-{}", n % COMPANIES),
        agent_id: "assistant".to_owned(),
        tool_id: Some("addTodo".to_owned()),
        assignment_id: None,
        arguments: arguments.as_object().cloned(),
        message: None,
        todo_list_id: None,
        timezone: Some("Europe/Berlin".to_owned()),
    };
    let due = now - SignedDuration::from_millis(60_000 - i64::try_from(n % 30_000).unwrap_or_default());
    Job::new(NewJob::new(payload, Schedule::At(due)), due)
}

async fn batch(store: &PostgresJobs, now: Timestamp) -> Result<Duration> {
    let lease = now + SignedDuration::from_secs(30);
    let begin = Instant::now();
    let claim = Claim { now, until: now, lease, limit: BATCH, quota: Quota::new(BATCH) };
    let claimed = store.claim(claim).await?;
    let steps = claimed.into_iter().map(|job| {
        let (outcome, took) = (Outcome::Succeeded, Duration::from_millis(12));
        (job.id, Step::End { fence: job.fence, outcome, took, status: Some(200), jitter: 0 })
    });
    let ended = store.steps(steps.collect(), now).await?;
    let taken = begin.elapsed();
    let done = ended.iter().filter(|ended| matches!(ended, Some(Ok(_)))).count();
    ensure!(done == BATCH, "{done} of {BATCH} jobs were claimed and completed");
    Ok(taken)
}

async fn raw_batch(client: &mut Client, now: Timestamp) -> Result<Duration> {
    let now = now.as_millisecond();
    let due = client.prepare(DUE).await?;
    let of_ids = client.prepare(OF_IDS).await?;
    let update = client.prepare(UPDATE).await?;
    let begin = Instant::now();

    let transaction = client.transaction().await?;
    let rows = transaction.query(&due, &[&now, &(BATCH as i64)]).await?;
    let ids: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let bodies: Vec<&str> = rows.iter().map(|row| row.get(1)).collect();
    let lease = Some(now + 30_000);
    transaction.execute(&update, &[&ids, &"running", &lease, &None::<i64>, &bodies]).await?;
    transaction.commit().await?;

    let transaction = client.transaction().await?;
    let rows = transaction.query(&of_ids, &[&ids]).await?;
    let ids: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let bodies: Vec<&str> = rows.iter().map(|row| row.get(1)).collect();
    let done = transaction.execute(&update, &[&ids, &"completed", &None::<i64>, &Some(now), &bodies]).await?;
    transaction.commit().await?;

    let taken = begin.elapsed();
    ensure!(done == BATCH as u64, "{done} of {BATCH} jobs were claimed and completed");
    Ok(taken)
}
