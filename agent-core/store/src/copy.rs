//! Copies a whole installation from one database to another, SQLite or PostgreSQL, including versions and times.
//!
//! The source is read in one snapshot, so that it may be in use. The target must be empty. It is written in one
//! transaction, or a file that appears when it is complete: a copy that is interrupted leaves nothing behind. Before the
//! end, the target is read again and compared with the source by the number of rows and their hash.

use std::fmt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::conversation_row::{ContextRow, FeedbackRow, LogRow, NodeRow, RunRow, ThreadRow};
pub use crate::copy_rows::CopyError;
use crate::copy_rows::{CopyRows, CopySink, CopyTarget, JobTableRow, RecordRow};
use crate::postgres::copy::{PostgresCopySource, PostgresCopyTarget};
use crate::sqlite::copy::{SqliteCopySource, SqliteCopyTarget};
use crate::usage_row::{CallRow, DayRow};

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
    /// Threads, with their messages and runs.
    pub threads: u64,
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
    if transfer(target.rows(), &mut DiscardingSink).await?.finish() != (summary, hash) {
        return Err(CopyError::Mismatch);
    }
    target.finish().await?;
    Ok(summary)
}

/// Reads all rows of a table into a sink, page by page.
macro_rules! transfer_table {
    ($rows:ident.$read:ident, $sink:ident.$insert:ident, $digest:ident.$add:ident) => {
        let mut last = None;
        loop {
            let page = $rows.$read(last.as_ref()).await?;
            $sink.$insert(&page).await?;
            page.iter().for_each(|row| $digest.$add(row));
            match page.into_iter().next_back() {
                Some(row) => last = Some(row),
                None => break,
            }
        }
    };
}

/// Reads all rows into `sink`.
async fn transfer(rows: &mut impl CopyRows, sink: &mut impl CopySink) -> Result<RowDigest, CopyError> {
    let mut digest = RowDigest::default();
    transfer_table!(rows.records, sink.insert_records, digest.add_record);
    transfer_table!(rows.jobs, sink.insert_jobs, digest.add_job);
    transfer_table!(rows.threads, sink.insert_threads, digest.add_thread);
    transfer_table!(rows.nodes, sink.insert_nodes, digest.add_node);
    transfer_table!(rows.runs, sink.insert_runs, digest.add_run);
    transfer_table!(rows.logs, sink.insert_logs, digest.add_log);
    transfer_table!(rows.feedback, sink.insert_feedback, digest.add_feedback);
    transfer_table!(rows.contexts, sink.insert_contexts, digest.add_context);
    transfer_table!(rows.usage_calls, sink.insert_usage_calls, digest.add_usage_call);
    transfer_table!(rows.usage_days, sink.insert_usage_days, digest.add_usage_day);
    Ok(digest)
}

/// Sink that discards rows, to read them only.
struct DiscardingSink;

impl CopySink for DiscardingSink {
    async fn insert_records(&mut self, _: &[RecordRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_jobs(&mut self, _: &[JobTableRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_threads(&mut self, _: &[ThreadRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_nodes(&mut self, _: &[NodeRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_runs(&mut self, _: &[RunRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_logs(&mut self, _: &[LogRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_feedback(&mut self, _: &[FeedbackRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_contexts(&mut self, _: &[ContextRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_usage_calls(&mut self, _: &[CallRow]) -> Result<(), CopyError> {
        Ok(())
    }

    async fn insert_usage_days(&mut self, _: &[DayRow]) -> Result<(), CopyError> {
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

    fn add_thread(&mut self, row: &ThreadRow) {
        self.summary.threads += 1;
        let ThreadRow { n, company, owner, id, agent, archived, status, origin, active_ms, body } = row;
        [company, owner, id, agent, status, origin, body]
            .into_iter()
            .for_each(|text| self.add_text(Some(text)));
        [*n, i64::from(*archived), *active_ms].into_iter().for_each(|number| self.add_number(Some(number)));
    }

    fn add_node(&mut self, row: &NodeRow) {
        let NodeRow { thread, seq, parent, id, client_id, turn, run, role, status, origin, at_ms, sha, body } =
            row;
        [id, turn, role, status, origin, sha, body].into_iter().for_each(|text| self.add_text(Some(text)));
        [client_id, run].into_iter().for_each(|text| self.add_text(text.as_deref()));
        [Some(*thread), Some(*seq), *parent, Some(*at_ms)]
            .into_iter()
            .for_each(|number| self.add_number(number));
    }

    fn add_run(&mut self, row: &RunRow) {
        let RunRow {
            n,
            company,
            owner,
            id,
            thread,
            agent,
            state,
            kind,
            process,
            body,
            seq,
            log_until_ms,
            due_ms,
        } = row;
        let texts = [company, owner, id, agent, state, kind, process, body];
        texts.into_iter().for_each(|text| self.add_text(Some(text)));
        [Some(*n), Some(*thread), Some(*seq), *log_until_ms, *due_ms]
            .into_iter()
            .for_each(|number| self.add_number(number));
    }

    fn add_log(&mut self, row: &LogRow) {
        let LogRow { run, first, last, body } = row;
        let length = i64::try_from(body.len()).unwrap_or(i64::MAX);
        [*run, *first, *last, length].into_iter().for_each(|number| self.add_number(Some(number)));
        self.hash.update(body);
    }

    fn add_feedback(&mut self, row: &FeedbackRow) {
        let FeedbackRow { thread, seq, company, agent, at_ms, id, shared, body } = row;
        [company, agent, id, body].into_iter().for_each(|text| self.add_text(Some(text)));
        [*thread, *seq, *at_ms, i64::from(*shared)]
            .into_iter()
            .for_each(|number| self.add_number(Some(number)));
    }

    fn add_context(&mut self, row: &ContextRow) {
        let ContextRow { thread, seq, turn, body } = row;
        [turn, body].into_iter().for_each(|text| self.add_text(Some(text)));
        [*thread, *seq].into_iter().for_each(|number| self.add_number(Some(number)));
    }

    /// Adds a row of the ledger without its place, which is a new one in the target.
    fn add_usage_call(&mut self, row: &CallRow) {
        let CallRow { n: _, company, id, run, ended_ms, body } = row;
        [company, id, run, body].into_iter().for_each(|text| self.add_text(Some(text)));
        self.add_number(Some(*ended_ms));
    }

    fn add_usage_day(&mut self, row: &DayRow) {
        row.key.iter().for_each(|text| self.add_text(Some(text)));
        row.sums.iter().for_each(|number| self.add_number(Some(*number)));
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
