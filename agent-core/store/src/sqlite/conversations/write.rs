//! Write operation on conversations.

use agent_platform::conversation::ConversationError;

use super::rows::{ConversationTables, TableError};
use crate::conversation_row::RowError;
use crate::sqlite::fault::WriteError;
use crate::sqlite::write_op::{WriteBatch, WriteOp};

/// A write operation on conversations that stores about `bytes` bytes. It reads, decides, and then writes, so that a
/// rejected one has written nothing.
pub(super) struct ConversationWrite<F> {
    pub(super) bytes: usize,
    pub(super) work: F,
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
