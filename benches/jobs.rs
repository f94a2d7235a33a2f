//! `cargo bench -p benches --bench jobs`: what the store of jobs costs beside the bare database, and whether it
//! notices how many jobs it keeps.
//!
//! Each figure is the median of five repeats, in each of which the reference and all subjects run by turns; a
//! ratio is one of medians. The reference does by rusqlite what a store cannot leave out: the same rows in the
//! same tables and indices, read and written in the same transactions at `synchronous=FULL`, and no thought about
//! what they mean. All of them write to the folder for temporary files (`TMPDIR`), which must be on a disk for the
//! figures to mean anything, with two gigabytes to spare. `--check` ends with status 1 where a limit is missed.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent_core::job::{Claim, Inserted, Job, JobKind, JobPayload, JobStore, NewJob, Outcome, Quota, Step};
use agent_core::schedule::Schedule;
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Context, Result, ensure};
use benches::table::median;
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::TempDir;

const REPEATS: usize = 5;
/// How many jobs are claimed, and how many are completed, in one call.
const BATCH: usize = 100;
/// How many batches each subject takes in a repeat.
const BATCHES: usize = 20;
/// How many jobs wait for a later time in the store with a backlog.
const BACKLOG: usize = 1_000_000;
/// How many of them are stored in one call.
const INSERTED: usize = 1000;
const COMPANIES: usize = 100;

fn main() -> Result<ExitCode> {
    let check = std::env::args().any(|argument| argument == "--check");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // As a task, for what is awaited outside of all tasks is polled by a thread that wakes in another way.
    let figures = runtime.block_on(runtime.spawn(measure()))??;
    println!("| what | reference | figure | ratio | limit | |\n|---|--:|--:|--:|--:|---|");
    let missed = figures.print();
    Ok(if check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Jobs in a second, each claimed and completed.
struct Figures {
    raw: f64,
    store: f64,
    with_backlog: f64,
    /// Jobs stored in a second, beside a store with none and at the end of the backlog.
    first_inserts: f64,
    last_inserts: f64,
}

async fn measure() -> Result<Figures> {
    let now = Timestamp::now();
    let (raw, store, large) = (Raw::new(now).await?, Place::new()?, Place::new()?);
    let inserts = large.fill(now).await?;
    for place in [&store, &large] {
        place.insert((0..REPEATS * BATCHES * BATCH).map(|n| job(n, now)).collect()).await?;
    }
    let mut figures = [(); 3].map(|()| Vec::with_capacity(REPEATS));
    for _ in 0..REPEATS {
        let mut taken = [Duration::ZERO; 3];
        for _ in 0..BATCHES {
            taken[0] += raw.batch(now)?;
            taken[1] += store.batch(now).await?;
            taken[2] += large.batch(now).await?;
        }
        for (figures, taken) in figures.iter_mut().zip(taken) {
            figures.push((BATCHES * BATCH) as f64 / taken.as_secs_f64());
        }
    }
    let [raw, store, with_backlog] = figures.map(median);
    Ok(Figures { raw, store, with_backlog, first_inserts: inserts.0, last_inserts: inserts.1 })
}

impl Figures {
    fn print(&self) -> bool {
        let rows = [
            (
                format!(
                    "jobs claimed and completed in a second, in batches of {BATCH}: beside bare rusqlite"
                ),
                (self.raw, self.store, 0.7),
            ),
            (
                format!("the same with {BACKLOG} jobs that wait: beside a store without"),
                (self.store, self.with_backlog, 0.8),
            ),
            (
                format!(
                    "jobs stored in a second, {INSERTED} at once: the last of {BACKLOG} beside the first"
                ),
                (self.first_inserts, self.last_inserts, 0.8),
            ),
        ];
        let mut missed = false;
        for (what, (reference, figure, least)) in rows {
            let ratio = figure / reference;
            let verdict = if ratio >= least { "met" } else { "**missed**" };
            missed |= ratio < least;
            println!("| {what} | {reference:.0} | {figure:.0} | {ratio:.2} × | ≥ {least} × | {verdict} |");
        }
        missed
    }
}

/// A job as applications make them, due a minute before `due`, more or less.
fn job(n: usize, due: Timestamp) -> Job {
    let company = n % COMPANIES;
    let arguments =
        serde_json::json!({"title": format!("Call customer {n} back"), "priority": "high", "list": n});
    let payload = JobPayload {
        kind: JobKind::Tool,
        user_id: format!("user-{}", n % 1000),
        company_id: format!("company-{company}"),
        agent_id: "assistant".to_owned(),
        tool_id: Some("addTodo".to_owned()),
        assignment_id: None,
        arguments: arguments.as_object().cloned(),
        message: None,
        todo_list_id: None,
        timezone: Some("Europe/Berlin".to_owned()),
    };
    let ms = 60_000 - i64::try_from(n % 30_000).unwrap_or_default();
    let due = due - SignedDuration::from_millis(ms);
    Job::new(NewJob::new(payload, Schedule::At(due)), due)
}

/// A store in a folder of its own.
struct Place {
    store: SqliteStore,
    _folder: TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = SqliteStore::open(folder.path().join("scheduler.db"), SqliteOptions::default())?;
        Ok(Self { store, _folder: folder })
    }

    async fn insert(&self, jobs: Vec<Job>) -> Result<()> {
        let inserted = self.store.insert(jobs).await?;
        ensure!(inserted.iter().all(|inserted| *inserted == Inserted::New), "a job is not new");
        Ok(())
    }

    /// Stores the backlog, due in the next days, and gives the rates of its first and its last tenth.
    async fn fill(&self, now: Timestamp) -> Result<(f64, f64)> {
        let mut taken = Vec::with_capacity(BACKLOG / INSERTED);
        for begin in (0..BACKLOG).step_by(INSERTED) {
            let at = now + SignedDuration::from_secs(3600 + i64::try_from(begin % 259_200)?);
            let jobs = (begin..begin + INSERTED).map(|n| job(n, at)).collect();
            let started = Instant::now();
            self.insert(jobs).await?;
            taken.push(started.elapsed().as_secs_f64());
        }
        let tenth = taken.len() / 10;
        let rate = |taken: &[f64]| INSERTED as f64 / median(taken.to_vec());
        Ok((rate(&taken[..tenth]), rate(&taken[taken.len() - tenth..])))
    }

    async fn batch(&self, now: Timestamp) -> Result<Duration> {
        let lease = now + SignedDuration::from_secs(30);
        let begin = Instant::now();
        let claim = Claim { now, until: now, lease, limit: BATCH, quota: Quota::new(BATCH) };
        let claimed = self.store.claim(claim).await?;
        let steps = claimed.into_iter().map(|job| {
            let (outcome, took) = (Outcome::Succeeded, Duration::from_millis(12));
            (job.id, Step::End { fence: job.fence, outcome, took, status: Some(200), jitter: 0 })
        });
        let ended = self.store.steps(steps.collect(), now).await?;
        let taken = begin.elapsed();
        let done = ended.iter().filter(|ended| matches!(ended, Some(Ok(_)))).count();
        ensure!(done == BATCH, "{done} of {BATCH} jobs were claimed and completed");
        Ok(taken)
    }
}

/// The database alone.
struct Raw {
    connection: Connection,
    _folder: TempDir,
}

impl Raw {
    async fn new(now: Timestamp) -> Result<Self> {
        let Place { store, _folder } = Place::new()?;
        let inserted = store.insert((0..REPEATS * BATCHES * BATCH).map(|n| job(n, now)).collect()).await?;
        ensure!(inserted.len() == REPEATS * BATCHES * BATCH, "the reference has its jobs");
        let connection = Connection::open(store.path())?;
        connection.pragma_update(None, "synchronous", "full")?;
        Ok(Self { connection, _folder })
    }

    fn batch(&self, now: Timestamp) -> Result<Duration> {
        let now = now.as_millisecond();
        let begin = Instant::now();
        let claimed = self.claim(now)?;
        let completed = self.complete(now, &claimed)?;
        let taken = begin.elapsed();
        ensure!(completed == BATCH, "{completed} of {BATCH} jobs were claimed and completed");
        Ok(taken)
    }

    fn claim(&self, now: i64) -> Result<Vec<String>> {
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let due: Vec<(i64, String, String)> = transaction
            .prepare_cached("SELECT rowid, id, body FROM jobs WHERE wake_ms <= ?1 ORDER BY wake_ms LIMIT ?2")?
            .query_map(params![now, BATCH], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let mut update = transaction.prepare_cached(
            "UPDATE jobs SET state = 'running', wake_ms = ?2, ended_ms = NULL, dead = 0, body = ?3
             WHERE rowid = ?1",
        )?;
        for (rowid, _, body) in &due {
            update.execute(params![rowid, now + 30_000, body])?;
        }
        drop(update);
        transaction.commit()?;
        Ok(due.into_iter().map(|(_, id, _)| id).collect())
    }

    fn complete(&self, now: i64, ids: &[String]) -> Result<usize> {
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let mut find = transaction.prepare_cached("SELECT rowid, body FROM jobs WHERE id = ?1")?;
        let mut update = transaction.prepare_cached(
            "UPDATE jobs SET state = 'completed', wake_ms = NULL, ended_ms = ?2, dead = 0, body = ?3
             WHERE rowid = ?1",
        )?;
        let mut completed = 0;
        for id in ids {
            let (rowid, body): (i64, String) =
                find.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).context("a job is missing")?;
            completed += update.execute(params![rowid, now, body])?;
        }
        drop((find, update));
        transaction.commit()?;
        Ok(completed)
    }
}
