//! Cost of the job store beside bare SQLite, and its dependence on the number of jobs.
//!
//! The reference uses rusqlite for the work that a store cannot avoid: it reads and writes the same rows in the same
//! tables and indices, in the same transactions at `synchronous=FULL`, without interpreting them. It writes the same
//! columns as the store, so that its rows grow in the same way.

use std::time::{Duration, Instant};

use agent_jobs::job::{InsertOutcome, Job, JobStore};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Result, ensure};
use benches::batch::{self, BATCH, job};
use benches::comparison::{Bound, Comparison};
use benches::table::median;
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, TransactionBehavior, params};
use tempfile::TempDir;

/// Number of batches of each subject per repeat.
const BATCHES: usize = 60;
/// Number of batches before the first repeat, until each database's write-ahead log has reached its final size: a
/// growing file is slower to flush than one whose pages are overwritten.
const WARM_UP: usize = 40;
/// Number of jobs in the store with a backlog, all due later.
pub(crate) const BACKLOG: usize = 1_000_000;
/// Number of backlog jobs that are stored in one call.
const JOBS_PER_INSERT: usize = 1000;

/// The figures and the databases left behind: one with the delivered jobs only, one with the backlog too.
pub(crate) struct Measured {
    pub(crate) lines: Vec<Comparison>,
    pub(crate) small: TempDir,
    pub(crate) large: TempDir,
}

pub(crate) async fn measure(repeats: usize) -> Result<Measured> {
    let now = Timestamp::now();
    let due = || (0..(WARM_UP + repeats * BATCHES) * BATCH).map(|n| job(n, now)).collect();
    let (raw, small, large) = (RawDatabase::new(due(), now).await?, TempStore::new()?, TempStore::new()?);
    let (first_inserts, last_inserts) = large.fill(now).await?;
    for temp_store in [&small, &large] {
        temp_store.insert(due()).await?;
    }
    for _ in 0..WARM_UP {
        raw.batch(now)?;
        batch::claim_and_complete(&small.store, now).await?;
        batch::claim_and_complete(&large.store, now).await?;
    }
    let mut figures = [(); 3].map(|()| Vec::with_capacity(repeats));
    for _ in 0..repeats {
        let mut elapsed = [Duration::ZERO; 3];
        for _ in 0..BATCHES {
            elapsed[0] += raw.batch(now)?;
            elapsed[1] += batch::claim_and_complete(&small.store, now).await?;
            elapsed[2] += batch::claim_and_complete(&large.store, now).await?;
        }
        for (figures, elapsed) in figures.iter_mut().zip(elapsed) {
            figures.push((BATCHES * BATCH) as f64 / elapsed.as_secs_f64());
        }
    }
    let [reference, store, with_backlog] = figures;
    let line = |description: String, least, reference: &[f64], figure: &[f64]| {
        Comparison::new(description, "/s", Bound::AtLeast(least), reference, figure)
    };
    let lines = vec![
        line(
            format!("jobs claimed and completed in batches of {BATCH}: the store beside bare rusqlite"),
            0.7,
            &reference,
            &store,
        ),
        line(
            format!("the same with {BACKLOG} jobs that wait, beside a store without"),
            0.8,
            &store,
            &with_backlog,
        ),
        line(
            format!("jobs stored, {JOBS_PER_INSERT} at once: the last of {BACKLOG} beside the first"),
            0.8,
            &first_inserts,
            &last_inserts,
        ),
    ];
    Ok(Measured { lines, small: small.close(), large: large.close() })
}

/// A store in its own directory.
struct TempStore {
    store: SqliteStore,
    folder: TempDir,
}

impl TempStore {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = SqliteStore::open(folder.path().join("scheduler.db"), SqliteOptions::default())?;
        Ok(Self { store, folder })
    }

    fn close(self) -> TempDir {
        self.folder
    }

    async fn insert(&self, jobs: Vec<Job>) -> Result<()> {
        let inserted = self.store.insert(jobs).await?;
        ensure!(inserted.iter().all(|inserted| *inserted == InsertOutcome::New), "a job is not new");
        Ok(())
    }

    /// Stores the backlog, due in the next days, and returns the insert rates of its first and its last tenth.
    async fn fill(&self, now: Timestamp) -> Result<(Vec<f64>, Vec<f64>)> {
        let mut rates = Vec::with_capacity(BACKLOG / JOBS_PER_INSERT);
        for begin in (0..BACKLOG).step_by(JOBS_PER_INSERT) {
            let at = now + SignedDuration::from_secs(86_400 + i64::try_from(begin % 259_200)?);
            let jobs = (begin..begin + JOBS_PER_INSERT).map(|n| job(n, at)).collect();
            let started = Instant::now();
            self.insert(jobs).await?;
            rates.push(JOBS_PER_INSERT as f64 / started.elapsed().as_secs_f64());
        }
        let tenth = rates.len() / 10;
        // Single calls vary with the disk; a fifth of a tenth corresponds to a repeat.
        let medians = |rates: &[f64]| rates.chunks(tenth / 5).map(|chunk| median(chunk.to_vec())).collect();
        Ok((medians(&rates[..tenth]), medians(&rates[rates.len() - tenth..])))
    }
}

/// The reference: bare rusqlite.
struct RawDatabase {
    connection: Connection,
    progress: Progress,
    _folder: TempDir,
}

/// Columns of a claimed job.
struct ClaimedRow {
    rowid: i64,
    id: String,
    body: String,
}

/// Contents of the `progress` column that the store wrote for a claimed and a completed job.
struct Progress {
    claimed: String,
    completed: String,
}

impl Progress {
    async fn of(job: Job, now: Timestamp) -> Result<Self> {
        let temp_store = TempStore::new()?;
        temp_store.insert(vec![job]).await?;
        let path = temp_store.store.path();
        let read = || Connection::open(path)?.query_row("SELECT progress FROM jobs", [], |row| row.get(0));
        let claimed = batch::claim(&temp_store.store, now, 1).await?;
        let claimed_as = read()?;
        batch::complete(&temp_store.store, claimed, now).await?;
        Ok(Self { claimed: claimed_as, completed: read()? })
    }
}

impl RawDatabase {
    async fn new(due: Vec<Job>, now: Timestamp) -> Result<Self> {
        let progress = Progress::of(job(0, now), now).await?;
        let temp_store = TempStore::new()?;
        temp_store.insert(due).await?;
        let connection = Connection::open(temp_store.store.path())?;
        connection.pragma_update(None, "synchronous", "full")?;
        Ok(Self { connection, progress, _folder: temp_store.close() })
    }

    fn batch(&self, now: Timestamp) -> Result<Duration> {
        let now = now.as_millisecond();
        let begin = Instant::now();
        let claimed = self.claim(now)?;
        let completed = self.complete(now, &claimed)?;
        let elapsed = begin.elapsed();
        ensure!(completed == BATCH, "{completed} of {BATCH} jobs were claimed and completed");
        Ok(elapsed)
    }

    fn claim(&self, now: i64) -> Result<Vec<ClaimedRow>> {
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let due = transaction
            .prepare_cached(
                "SELECT rowid, id, body, progress FROM jobs WHERE wake_ms <= ?1 ORDER BY wake_ms LIMIT ?2",
            )?
            .query_map(params![now, BATCH], |row| {
                let _progress: String = row.get(3)?;
                Ok(ClaimedRow { rowid: row.get(0)?, id: row.get(1)?, body: row.get(2)? })
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let mut update = transaction.prepare_cached(
            "UPDATE jobs SET state = 'running', wake_ms = ?2, dead = 0, progress = ?3
             WHERE rowid = ?1 AND ended_ms IS NULL",
        )?;
        for row in &due {
            update.execute(params![row.rowid, now + 30_000, self.progress.claimed])?;
        }
        drop(update);
        transaction.commit()?;
        Ok(due)
    }

    /// Completes claimed jobs, unless their rows were changed since, as the store does.
    fn complete(&self, now: i64, claimed: &[ClaimedRow]) -> Result<usize> {
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let mut update = transaction.prepare_cached(
            "UPDATE jobs SET state = 'completed', wake_ms = NULL, ended_ms = ?2, dead = 0, progress = ?3
             WHERE rowid = ?1 AND id = ?4 AND body = ?5 AND progress = ?6",
        )?;
        let mut completed = 0;
        for row in claimed {
            let Progress { claimed, completed: changed } = &self.progress;
            completed += update.execute(params![row.rowid, now, changed, row.id, row.body, claimed])?;
        }
        drop(update);
        transaction.commit()?;
        Ok(completed)
    }
}
