//! Upkeep of the runs of all owners: each run is written by a separate transaction.

use std::collections::VecDeque;

use agent_platform::conversation::{ConversationError, RunClock, RunKey};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use tokio::time::Instant;

use super::owner_write::OwnerWrite;
use super::runs;
use crate::postgres::error::PostgresErrorKind;
use crate::postgres::{PostgresError, PostgresRecords};

/// Write of a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunWrite {
    /// Interrupts the run if the lease of its process has expired.
    Interrupt(RunClock),
    /// Deletes the log of the run if it has expired.
    TrimLog(Timestamp),
}

/// Results of the writes of several runs.
#[derive(Default)]
pub(super) struct RunWriteResults {
    /// Number of the runs that were written.
    written: usize,
    first_error: Option<ConversationError>,
}

impl RunWriteResults {
    /// Adds the result of a write. Its error is returned if the store is unavailable to all.
    fn record(&mut self, written: Result<bool, ConversationError>) -> Result<(), ConversationError> {
        match written {
            Ok(is_written) => self.written += usize::from(is_written),
            Err(error) => {
                let is_unavailable = matches!(error, ConversationError::Store(StoreError::Unavailable(_)));
                if is_unavailable && !is_locked(&error) {
                    return Err(error);
                }
                self.first_error.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// Returns the number of the runs that were written, or the first error.
    pub(super) fn into_count(self) -> Result<usize, ConversationError> {
        self.first_error.map_or(Ok(self.written), Err)
    }
}

impl PostgresRecords {
    /// Writes each run. A run that cannot be written does not hinder the others: runs that another transaction has locked are
    /// written last, within the lock timeout.
    ///
    /// # Errors
    /// The store is unavailable; the rest is not written.
    pub(super) async fn write_runs(
        &self,
        runs: Vec<RunKey>,
        write: RunWrite,
    ) -> Result<RunWriteResults, ConversationError> {
        let mut results = RunWriteResults::default();
        let mut locked: VecDeque<RunKey> = VecDeque::new();
        for run in runs {
            // Several runs of a company would wait for what is likely to be one transaction.
            if locked.iter().any(|other| other.owner.company == run.owner.company) {
                locked.push_back(run);
                continue;
            }
            match self.try_write_run(&run, write).await {
                Err(error) if is_locked(&error) => locked.push_back(run),
                written => results.record(written)?,
            }
        }
        let deadline = Instant::now() + self.lock_timeout;
        while Instant::now() < deadline
            && let Some(run) = locked.pop_front()
        {
            match OwnerWrite::new(self, &run.owner).await {
                Ok(attempts) => results.record(write_run(attempts, &run, write).await)?,
                Err(error) => results.record(Err(error))?,
            }
        }
        Ok(results)
    }

    /// Writes a run if no other transaction has locked it.
    async fn try_write_run(&self, run: &RunKey, write: RunWrite) -> Result<bool, ConversationError> {
        write_run(OwnerWrite::new_for_one_attempt(self, &run.owner).await?, run, write).await
    }
}

/// Writes a run as one transaction, which is repeated after conflicts. Returns false if there is nothing to write.
async fn write_run(
    mut attempts: OwnerWrite<'_>,
    run: &RunKey,
    write: RunWrite,
) -> Result<bool, ConversationError> {
    let RunKey { owner, id } = run;
    loop {
        let tables = attempts.begin().await?;
        let result = match write {
            RunWrite::Interrupt(clock) => runs::interrupt(&tables, owner, id, clock).await,
            RunWrite::TrimLog(now) => runs::trim(&tables, owner, id, now).await,
        };
        if let Some(written) = attempts.finish(tables, result).await {
            return written;
        }
    }
}

/// Returns true if a write has failed since another transaction holds a lock that it needs.
fn is_locked(error: &ConversationError) -> bool {
    let ConversationError::Store(StoreError::Unavailable(source)) = error else { return false };
    source.downcast_ref::<PostgresError>().is_some_and(|error| error.kind() == PostgresErrorKind::Locked)
}
