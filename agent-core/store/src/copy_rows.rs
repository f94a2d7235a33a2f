//! Rows and operations that a copy of a database needs of each kind of database.

use crate::conversation_row::{ContextRow, FeedbackRow, LogRow, NodeRow, RunRow, ThreadRow};
use crate::usage_row::{CallRow, DayRow};

/// Maximum number of rows that are read at once.
pub(crate) const ROWS_PER_PAGE: usize = 200;

/// Error of a copy. Nothing has been written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The target contains data.
    #[error("the target is not empty")]
    NotEmpty,
    /// One of the databases cannot be opened.
    #[error(transparent)]
    Open(Box<dyn std::error::Error + Send + Sync>),
    /// A statement failed.
    #[error("the copy failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The target does not contain the rows that were written.
    #[error("the target differs from the source after the copy")]
    Mismatch,
}

impl CopyError {
    pub(crate) fn open(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Open(source.into())
    }

    pub(crate) fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(source.into())
    }
}

/// A row of the table of records.
#[derive(Debug, Clone)]
pub(crate) struct RecordRow {
    pub(crate) company: String,
    pub(crate) collection: String,
    pub(crate) id: String,
    pub(crate) version: i64,
    pub(crate) updated_ms: i64,
    pub(crate) value: String,
}

/// A row of the table of jobs.
#[derive(Debug, Clone)]
pub(crate) struct JobTableRow {
    pub(crate) id: String,
    pub(crate) company: String,
    pub(crate) user_id: String,
    pub(crate) tool: Option<String>,
    pub(crate) assignment: Option<String>,
    pub(crate) idempotency: Option<String>,
    pub(crate) state: String,
    pub(crate) wake_ms: Option<i64>,
    pub(crate) ended_ms: Option<i64>,
    pub(crate) dead: bool,
    pub(crate) body: String,
    pub(crate) progress: Option<String>,
    pub(crate) agent: Option<String>,
}

/// Rows of the tables of a database, in the order of their keys.
pub(crate) trait CopyRows {
    /// Returns the records after a row, at most [`ROWS_PER_PAGE`].
    async fn records(&mut self, after: Option<&RecordRow>) -> Result<Vec<RecordRow>, CopyError>;

    /// Returns the jobs after a row, at most [`ROWS_PER_PAGE`].
    async fn jobs(&mut self, after: Option<&JobTableRow>) -> Result<Vec<JobTableRow>, CopyError>;

    /// Returns the threads after a row, at most [`ROWS_PER_PAGE`].
    async fn threads(&mut self, after: Option<&ThreadRow>) -> Result<Vec<ThreadRow>, CopyError>;

    /// Returns the nodes after a row, at most [`ROWS_PER_PAGE`].
    async fn nodes(&mut self, after: Option<&NodeRow>) -> Result<Vec<NodeRow>, CopyError>;

    /// Returns the runs after a row, at most [`ROWS_PER_PAGE`].
    async fn runs(&mut self, after: Option<&RunRow>) -> Result<Vec<RunRow>, CopyError>;

    /// Returns the chunks of logs after a row, at most [`ROWS_PER_PAGE`], and few if they are large.
    async fn logs(&mut self, after: Option<&LogRow>) -> Result<Vec<LogRow>, CopyError>;

    /// Returns the feedback after a row, at most [`ROWS_PER_PAGE`].
    async fn feedback(&mut self, after: Option<&FeedbackRow>) -> Result<Vec<FeedbackRow>, CopyError>;

    /// Returns the contexts after a row, at most [`ROWS_PER_PAGE`].
    async fn contexts(&mut self, after: Option<&ContextRow>) -> Result<Vec<ContextRow>, CopyError>;

    /// Returns the ledger's rows after a row, at most [`ROWS_PER_PAGE`].
    async fn usage_calls(&mut self, after: Option<&CallRow>) -> Result<Vec<CallRow>, CopyError>;

    /// Returns the days' sums after a row, at most [`ROWS_PER_PAGE`].
    async fn usage_days(&mut self, after: Option<&DayRow>) -> Result<Vec<DayRow>, CopyError>;

    /// Returns the last record version that was assigned.
    async fn last_version(&mut self) -> Result<i64, CopyError>;
}

/// Receiver of rows.
pub(crate) trait CopySink {
    async fn insert_records(&mut self, rows: &[RecordRow]) -> Result<(), CopyError>;

    async fn insert_jobs(&mut self, rows: &[JobTableRow]) -> Result<(), CopyError>;

    async fn insert_threads(&mut self, rows: &[ThreadRow]) -> Result<(), CopyError>;

    async fn insert_nodes(&mut self, rows: &[NodeRow]) -> Result<(), CopyError>;

    async fn insert_runs(&mut self, rows: &[RunRow]) -> Result<(), CopyError>;

    async fn insert_logs(&mut self, rows: &[LogRow]) -> Result<(), CopyError>;

    async fn insert_feedback(&mut self, rows: &[FeedbackRow]) -> Result<(), CopyError>;

    async fn insert_contexts(&mut self, rows: &[ContextRow]) -> Result<(), CopyError>;

    async fn insert_usage_calls(&mut self, rows: &[CallRow]) -> Result<(), CopyError>;

    async fn insert_usage_days(&mut self, rows: &[DayRow]) -> Result<(), CopyError>;
}

/// An empty database in a transaction.
pub(crate) trait CopyTarget: CopySink {
    /// Returns access to the rows that were inserted.
    fn rows(&mut self) -> &mut impl CopyRows;

    async fn set_last_version(&mut self, version: i64) -> Result<(), CopyError>;

    /// Commits the transaction.
    async fn finish(self) -> Result<(), CopyError>;
}
