//! Copies a whole installation from one database to another, SQLite or PostgreSQL, including versions and times.
//!
//! The source is read in one snapshot, so that it may be in use. The target must be empty. It is written in one
//! transaction, or a file that appears when it is complete: a copy that is interrupted leaves nothing behind. Before the
//! end, the target is read again and compared with the source by the number of rows and their hash.

use std::fmt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

pub use crate::copy_rows::CopyError;
use crate::copy_rows::{CopyRows, CopySink, CopyTarget, JobTableRow, RecordRow};
use crate::postgres::copy::{PostgresCopySource, PostgresCopyTarget};
use crate::sqlite::copy::{SqliteCopySource, SqliteCopyTarget};

/// Database that is the source or the target of a copy.
#[derive(Clone)]
pub enum CopyDatabase {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// URL of a PostgreSQL database.
    Postgres(String),
}

/// Hides the URL, which may contain a password.
impl fmt::Debug for CopyDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => f.debug_tuple("Sqlite").field(path).finish(),
            Self::Postgres(_) => f.debug_tuple("Postgres").field(&"***").finish(),
        }
    }
}

/// Numbers of rows that a copy has written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopySummary {
    /// Records.
    pub records: u64,
    /// Jobs of an application without a scheduler.
    pub jobs: u64,
}

/// Copies everything from one database into another, empty one. Must be called within a tokio runtime; blocks its
/// thread while it uses a SQLite file.
///
/// # Errors
/// See [`CopyError`]. Nothing is written then.
pub async fn copy(from: &CopyDatabase, to: &CopyDatabase) -> Result<CopySummary, CopyError> {
    match from {
        CopyDatabase::Sqlite(path) => copy_from(SqliteCopySource::open(path)?, to).await,
        CopyDatabase::Postgres(url) => copy_from(PostgresCopySource::open(url).await?, to).await,
    }
}

async fn copy_from(source: impl CopyRows, to: &CopyDatabase) -> Result<CopySummary, CopyError> {
    match to {
        CopyDatabase::Sqlite(path) => copy_into(source, SqliteCopyTarget::create(path)?).await,
        CopyDatabase::Postgres(url) => copy_into(source, PostgresCopyTarget::open(url).await?).await,
    }
}

async fn copy_into(mut source: impl CopyRows, mut target: impl CopyTarget) -> Result<CopySummary, CopyError> {
    let written = transfer(&mut source, &mut target).await?;
    target.set_last_version(source.last_version().await?).await?;
    let (summary, hash) = written.finish();
    if transfer(target.rows(), &mut NoSink).await?.finish() != (summary, hash) {
        return Err(CopyError::Mismatch);
    }
    target.finish().await?;
    Ok(summary)
}

/// Reads all rows into `sink`.
async fn transfer(rows: &mut impl CopyRows, sink: &mut impl CopySink) -> Result<RowDigest, CopyError> {
    let mut digest = RowDigest::default();
    let mut last = None;
    loop {
        let page = rows.records(last.as_ref()).await?;
        sink.insert_records(&page).await?;
        page.iter().for_each(|row| digest.add_record(row));
        let Some(row) = page.into_iter().next_back() else { break };
        last = Some(row);
    }
    let mut last = None;
    loop {
        let page = rows.jobs(last.as_ref()).await?;
        sink.insert_jobs(&page).await?;
        page.iter().for_each(|row| digest.add_job(row));
        let Some(row) = page.into_iter().next_back() else { return Ok(digest) };
        last = Some(row);
    }
}

/// Discards rows, to read them only.
struct NoSink;

impl CopySink for NoSink {
    async fn insert_records(&mut self, _: &[RecordRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_jobs(&mut self, _: &[JobTableRow]) -> Result<(), CopyError> {
        Ok(())
    }
}

/// Numbers and hash of rows.
#[derive(Default)]
struct RowDigest {
    summary: CopySummary,
    hash: Sha256,
}

impl RowDigest {
    fn add_record(&mut self, row: &RecordRow) {
        self.summary.records += 1;
        for text in [&row.company, &row.collection, &row.id, &row.value] {
            self.add_text(Some(text));
        }
        self.add_number(Some(row.version));
        self.add_number(Some(row.updated_ms));
    }

    fn add_job(&mut self, row: &JobTableRow) {
        self.summary.jobs += 1;
        for text in [&row.id, &row.company, &row.user_id, &row.state, &row.body] {
            self.add_text(Some(text));
        }
        for text in [&row.tool, &row.assignment, &row.idempotency, &row.progress, &row.agent] {
            self.add_text(text.as_deref());
        }
        self.add_number(row.wake_ms);
        self.add_number(row.ended_ms);
        self.add_number(Some(row.dead.into()));
    }

    /// Adds a text with its length, so that the boundaries of texts count.
    fn add_text(&mut self, text: Option<&str>) {
        self.add_number(text.map(|text| i64::try_from(text.len()).unwrap_or(i64::MAX)));
        self.hash.update(text.unwrap_or_default());
    }

    fn add_number(&mut self, number: Option<i64>) {
        self.hash.update([u8::from(number.is_some())]);
        self.hash.update(number.unwrap_or_default().to_be_bytes());
    }

    fn finish(self) -> (CopySummary, [u8; 32]) {
        (self.summary, self.hash.finalize().into())
    }
}
