//! Reads of conversations, and write operations on them.

use agent_core::ids::CompanyId;
use agent_platform::conversation::{ConversationError, NewNode, RunKey};

use super::rows::{ConversationTables, TableError};
use super::runs::RunBatch;
use crate::conversation_row::{FIRST_POSITION, PlacedRun, RowError, RunPosition};
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

    /// Writes runs of all owners that `select` returns in pages of at most `page_runs`, each by commits of at most `batch_runs`,
    /// until `page_runs` are written. Returns the number of those that were written, or the first error, after which all others
    /// were written.
    pub(super) async fn write_runs<S, W>(
        &self,
        (page_runs, batch_runs): (usize, usize),
        select: S,
        write: W,
    ) -> Result<usize, ConversationError>
    where
        S: Fn(&ConversationTables<'_>, RunPosition) -> Result<Vec<PlacedRun>, TableError>
            + Clone
            + Send
            + 'static,
        W: Fn(&ConversationTables<'_>, &[RunKey]) -> Result<RunBatch, TableError> + Clone + Send + 'static,
    {
        let (mut after, mut written, mut error) = (FIRST_POSITION, 0, None);
        while error.is_some() || written < page_runs {
            let select = select.clone();
            let page = self.read_tables(platform(), move |tables| select(tables, after)).await?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            let is_last = page.len() < page_runs;
            let runs: Vec<RunKey> = page.into_iter().map(|(_, run)| run).collect();
            let mut processed = 0;
            while processed < runs.len() {
                let write = write.clone();
                let next: Vec<RunKey> = runs[processed..].iter().take(batch_runs).cloned().collect();
                let batch = self.write_tables(platform(), 0, move |tables| write(tables, &next)).await?;
                processed += batch.done;
                written += batch.written;
                error = error.or(batch.error);
            }
            if is_last {
                break;
            }
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
