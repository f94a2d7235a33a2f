//! Reads of conversations, and write operations on them.

use agent_core::ids::CompanyId;
use agent_platform::conversation::{ConversationError, NewNode, RunKey};

use super::rows::{ConversationTables, TableError};
use super::runs::RunBatch;
use crate::conversation_row::RowError;
use crate::sqlite::SqliteStore;
use crate::sqlite::error::WriteError;
use crate::sqlite::write_op::{WriteBatch, WriteOp};

/// Returns the name under which operations of the process, for all companies, are queued round-robin with those of companies.
pub(super) fn platform() -> CompanyId {
    CompanyId::from("")
}

/// Returns the approximate size of new nodes.
pub(super) fn node_bytes(nodes: &[NewNode]) -> usize {
    let bytes =
        |node: &NewNode| node.message.as_message().map_or(0, |message| message.content.to_text().len());
    nodes.iter().map(bytes).sum()
}

impl SqliteStore {
    /// Runs a write operation of a company that stores about `bytes` bytes.
    pub(super) async fn write_tables<T: Send + 'static>(
        &self,
        company: CompanyId,
        bytes: usize,
        work: impl Fn(&ConversationTables<'_>) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        self.writers.commit(&company, ConversationWrite { bytes, work }).await?
    }

    /// Writes runs of all owners, at most `max_runs` by one commit. Returns the number of those that were written, or the first
    /// error.
    pub(super) async fn write_runs<F>(
        &self,
        runs: Vec<RunKey>,
        max_runs: usize,
        write: F,
    ) -> Result<usize, ConversationError>
    where
        F: Fn(&ConversationTables<'_>, &[RunKey]) -> Result<RunBatch, TableError> + Clone + Send + 'static,
    {
        let (mut processed, mut written, mut error) = (0, 0, None);
        while processed < runs.len() {
            let write = write.clone();
            let next: Vec<RunKey> = runs[processed..].iter().take(max_runs).cloned().collect();
            let batch = self.write_tables(platform(), 0, move |tables| write(tables, &next)).await?;
            processed += batch.done;
            written += batch.written;
            error = error.or(batch.error);
        }
        error.map_or(Ok(written), Err)
    }

    /// Runs a read of a company.
    pub(super) async fn read_tables<T: Send + 'static>(
        &self,
        company: CompanyId,
        work: impl FnOnce(&ConversationTables<'_>) -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, ConversationError> {
        let read = self.readers.read(&company, move |rows| match work(&ConversationTables(rows.0)) {
            Ok(found) => Ok(Ok(found)),
            Err(RowError::Rejected(error)) => Ok(Err(error)),
            Err(RowError::Failed(error)) => Err(error),
        });
        read.await?
    }
}

/// A write operation on conversations that stores about `bytes` bytes. It reads, decides, and then writes. If it is rejected
/// nevertheless after it has written something, as by a damaged row, the writer rolls that back.
struct ConversationWrite<F> {
    bytes: usize,
    work: F,
}

impl<T: Send, F> WriteOp for ConversationWrite<F>
where
    F: Fn(&ConversationTables<'_>) -> Result<T, TableError> + Send + 'static,
{
    type Output = Result<T, ConversationError>;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn apply(&self, batch: &mut WriteBatch<'_>) -> Result<Self::Output, WriteError> {
        match (self.work)(&ConversationTables(batch.connection)) {
            Ok(done) => {
                batch.changes.has_changes = true;
                Ok(Ok(done))
            }
            Err(RowError::Rejected(error)) => Ok(Err(error)),
            Err(RowError::Failed(error)) => Err(error),
        }
    }
}
