//! Upkeep of the runs of all owners: each run is written by a separate transaction.

use std::collections::VecDeque;

use agent_platform::conversation::{ConversationError, RunClock, RunKey};
use agent_platform::records::StoreError;
use jiff::Timestamp;
use tokio::time::Instant;

use super::owner_write::OwnerWrite;
use super::runs;
use crate::conversation_row::{FIRST_POSITION, PlacedRun, RunPosition};
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

/// Writes of the runs of all owners that a statement selects page by page.
///
/// Those that cannot be written do not hinder the others, however many they are. Runs that another transaction has locked are
/// written last, within the lock timeout.
pub(super) struct RunSweep<'s> {
    store: &'s PostgresRecords,
    write: RunWrite,
    /// Maximum number of runs of a page. The sweep ends with the page in which this number is written, unless others could not be.
    page_runs: usize,
    /// Position of the last run that was found.
    after: RunPosition,
    is_over: bool,
    locked: VecDeque<RunKey>,
    results: RunWriteResults,
}

impl<'s> RunSweep<'s> {
    pub(super) fn new(store: &'s PostgresRecords, write: RunWrite, page_runs: usize) -> Self {
        let (after, is_over) = (FIRST_POSITION, false);
        Self {
            store,
            write,
            page_runs,
            after,
            is_over,
            locked: VecDeque::new(),
            results: RunWriteResults::default(),
        }
    }

    /// Returns the position after which the next page begins; `None` if the sweep needs no more.
    pub(super) fn next_page(&self) -> Option<RunPosition> {
        let is_all_written = self.locked.is_empty() && self.results.first_error.is_none();
        let is_enough = is_all_written && self.results.written >= self.page_runs;
        (!self.is_over && !is_enough).then_some(self.after)
    }

    /// Returns true if there were any runs.
    pub(super) fn has_found_runs(&self) -> bool {
        self.after != FIRST_POSITION
    }

    /// Writes the runs of a page that no other transaction has locked.
    ///
    /// # Errors
    /// The store is unavailable; the rest is not written.
    pub(super) async fn write_page(&mut self, page: Vec<PlacedRun>) -> Result<(), ConversationError> {
        self.is_over = page.len() < self.page_runs;
        for (position, run) in page {
            self.after = position;
            // Several runs of a company would wait for what is likely to be one transaction.
            if self.locked.iter().any(|other| other.owner.company == run.owner.company) {
                self.locked.push_back(run);
                continue;
            }
            match self.try_write_run(&run).await {
                Err(error) if is_locked(&error) => self.locked.push_back(run),
                written => self.results.record(written)?,
            }
        }
        Ok(())
    }

    /// Writes a run if no other transaction has locked it.
    async fn try_write_run(&self, run: &RunKey) -> Result<bool, ConversationError> {
        write_run(OwnerWrite::new_for_one_attempt(self.store, &run.owner).await?, run, self.write).await
    }

    /// Writes the runs that other transactions had locked. Returns the results of all.
    ///
    /// # Errors
    /// The store is unavailable; the rest is not written.
    pub(super) async fn finish(mut self) -> Result<RunWriteResults, ConversationError> {
        let deadline = Instant::now() + self.store.lock_timeout;
        while Instant::now() < deadline
            && let Some(run) = self.locked.pop_front()
        {
            match OwnerWrite::new(self.store, &run.owner).await {
                Ok(attempts) => self.results.record(write_run(attempts, &run, self.write).await)?,
                Err(error) => self.results.record(Err(error))?,
            }
        }
        Ok(self.results)
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
