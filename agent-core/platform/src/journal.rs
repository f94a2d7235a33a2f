//! Journal of the work that an occurrence of a job does, so that a repeated attempt does not repeat effects.
//!
//! A [`RunJournal`] exists while this process runs an occurrence. Every write of it is made under the occurrence's
//! claim: after another process has taken over the occurrence, it fails.
//!
//! - [`JournaledTools`] records each tool call before it is made, and its outcome afterwards. A call whose outcome is
//!   recorded is answered from the record. A call that was started and has no outcome is repeated if that is harmless, and
//!   otherwise reported as [`ToolError::OutcomeUnknown`](agent_core::tool::ToolError::OutcomeUnknown).
//! - [`JournaledRecords`] is the store of a built-in tool during such a call: the tool's commit and the record of the
//!   call are one transaction.
//! - [`JournaledModels`] records each answer of a model that calls tools, and repeats it in the next attempt, so that a
//!   turn continues after its last recorded step.
//!
//! Entries exist as long as the occurrence is not done, and no longer than its own record or its user.

mod entry;
mod models;
mod records;
mod tools;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::occurrence::{self, ClaimAttempt, OccurrenceClaim, OccurrenceState, OccurrenceWork, ProcessLease};
use crate::records::{
    Collection, Key, ListQuery, Precondition, Record, Records, RecordsExt, StoreError, Write, to_json,
};
use agent_core::clock::Clock;
use agent_core::ids::{AgentId, CompanyId, JobId, RunId, UserId};
use agent_core::tool::ExecutionContext;
use agent_jobs::job::{JobKind, JobPayload, occurrence_key};

pub use models::JournaledModels;
pub use records::JournaledRecords;
pub use tools::JournaledTools;

use entry::JournalEntry;

/// Collection of the entries. The id of an entry is the occurrence's key, `/`, and the entry's own name.
pub const JOURNAL_COLLECTION: &str = "pulseJournal";
/// Maximum number of entries of an occurrence; a run with more is not continued.
const MAX_ENTRIES: usize = 2_000;
/// Number of entries on a page of [`delete_obsolete_entries`]; they may be large.
const ENTRIES_PER_PAGE: usize = 50;

/// The journals of the occurrences that this process runs.
pub struct Journals {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    process: ProcessLease,
    active: Mutex<ActiveRuns>,
}

impl std::fmt::Debug for Journals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journals").finish_non_exhaustive()
    }
}

/// Journals by company and run; `None` while the occurrence is being claimed.
type ActiveRuns = HashMap<(CompanyId, RunId), Option<Arc<RunJournal>>>;

impl Journals {
    /// Creates the journals of a process over the store of its records.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        Self { records, clock, process: ProcessLease::default(), active: Mutex::default() }
    }

    /// Claims an occurrence of a job for this process, for `lease` at most.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn claim(
        self: &Arc<Self>,
        (job_id, occurrence): (&JobId, u64),
        payload: &JobPayload,
        lease: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        let company_id = &payload.company_id;
        let run_id = RunId::from(occurrence_key(job_id, occurrence));
        let Some(reservation) = self.reserve((company_id.clone(), run_id.clone())) else {
            return Ok(ClaimOutcome::Busy(Duration::from_secs(1)));
        };
        let (records, which) = (&*self.records, (job_id, occurrence));
        let attempt = occurrence::claim(records, &self.process, company_id, which, self.now(), lease).await?;
        let (claim, work, is_repeated) = match attempt {
            ClaimAttempt::Busy(remaining) => return Ok(ClaimOutcome::Busy(remaining)),
            ClaimAttempt::Done => return Ok(ClaimOutcome::Done),
            ClaimAttempt::Claimed { claim, work, is_repeated } => (claim, work, is_repeated),
        };
        let journal = Arc::new(RunJournal {
            records: self.records.clone(),
            clock: self.clock.clone(),
            entries: Collection::new(company_id, JOURNAL_COLLECTION)?,
            run_id,
            user_id: payload.user_id.clone(),
            agent_id: payload.agent_id.clone(),
            kind: payload.kind,
            is_repeated,
            claim: Mutex::new(HeldClaim { claim, is_complete: false }),
            names: Mutex::default(),
            open_calls: Mutex::default(),
            unnumbered_calls: Mutex::default(),
            rounds: AtomicUsize::new(0),
        });
        Ok(ClaimOutcome::Claimed(reservation.activate(journal), work))
    }

    /// Returns the identity of this process.
    pub fn process_id(&self) -> &str {
        self.process.id()
    }

    /// Extends the lease of this process, if it expires soon. To be called about once a second while an occurrence
    /// runs.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn extend_lease(&self) -> Result<(), StoreError> {
        self.process.extend(&*self.records, self.now()).await
    }

    /// Returns the journal of the run in which a call is made; `None` outside of jobs. The identifier of a run may be
    /// a client's choice, so that user and agent must be those of the job.
    fn find(&self, context: &ExecutionContext) -> Option<Arc<RunJournal>> {
        let key = (context.company_id.clone(), context.run_id.clone());
        let journal = lock(&self.active).get(&key).cloned().flatten()?;
        (journal.user_id == context.user_id && journal.agent_id == context.agent_id).then_some(journal)
    }

    fn reserve(self: &Arc<Self>, run: (CompanyId, RunId)) -> Option<Reservation> {
        let mut active = lock(&self.active);
        if active.contains_key(&run) {
            return None;
        }
        active.insert(run.clone(), None);
        Some(Reservation { journals: self.clone(), run, attempt: OnceLock::new() })
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }
}

/// Locks a mutex. No code panics while holding one of this module, so the data behind a poisoned one is intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Entries of a run in the table of active ones; removed on drop.
struct Reservation {
    journals: Arc<Journals>,
    run: (CompanyId, RunId),
    /// Id of the attempt's run, if it is not that of the first attempt.
    attempt: OnceLock<RunId>,
}

impl Reservation {
    fn activate(self, journal: Arc<RunJournal>) -> ActiveRun {
        lock(&self.journals.active).insert(self.run.clone(), Some(journal.clone()));
        ActiveRun { journal, reservation: self }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut active = lock(&self.journals.active);
        active.remove(&self.run);
        if let Some(attempt) = self.attempt.take() {
            active.remove(&(self.run.0.clone(), attempt));
        }
    }
}

/// Outcome of a claim.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// Claimed by the caller until the value is dropped.
    Claimed(ActiveRun, OccurrenceWork),
    /// Another call, here or in another process, runs the occurrence; retry after this time.
    Busy(Duration),
    /// The occurrence is done.
    Done,
}

/// An occurrence that this process runs, and its journal.
pub struct ActiveRun {
    journal: Arc<RunJournal>,
    reservation: Reservation,
}

impl std::fmt::Debug for ActiveRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveRun").finish_non_exhaustive()
    }
}

impl ActiveRun {
    /// Names the run of this attempt, by whose id its calls are found. By default it is the occurrence's key, which is
    /// that of the first attempt. Is called at most once.
    pub fn set_run_id(&self, id: RunId) {
        let Reservation { journals, run: (company, first), attempt } = &self.reservation;
        if id != *first && attempt.set(id.clone()).is_ok() {
            lock(&journals.active).insert((company.clone(), id), Some(self.journal.clone()));
        }
    }
}

impl std::ops::Deref for ActiveRun {
    type Target = RunJournal;

    fn deref(&self) -> &RunJournal {
        &self.journal
    }
}

/// Journal of one attempt at an occurrence.
pub struct RunJournal {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    entries: Collection,
    run_id: RunId,
    user_id: UserId,
    agent_id: AgentId,
    kind: JobKind,
    /// True if an earlier attempt may have left entries.
    is_repeated: bool,
    claim: Mutex<HeldClaim>,
    /// Names of the entries that this attempt has read or written.
    names: Mutex<BTreeSet<String>>,
    /// The calls being made, by their idempotency keys.
    open_calls: Mutex<HashMap<String, Arc<OpenCall>>>,
    /// Number of calls without a position in the run's rounds, by name and arguments.
    unnumbered_calls: Mutex<HashMap<String, usize>>,
    /// Number of model calls of this attempt.
    rounds: AtomicUsize,
}

impl std::fmt::Debug for RunJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunJournal")
            .field("run_id", &self.run_id)
            .field("is_repeated", &self.is_repeated)
            .finish_non_exhaustive()
    }
}

/// Entry as it is stored: with its user, after whose deletion it is deleted.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StoredEntry<'e> {
    #[serde(flatten)]
    entry: &'e JournalEntry,
    user_id: &'e UserId,
}

/// User of a stored entry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryUser {
    user_id: Option<UserId>,
}

/// The claim with the current version of its record.
struct HeldClaim {
    claim: OccurrenceClaim,
    is_complete: bool,
}

/// A tool call that is being made.
struct OpenCall {
    journal: Arc<RunJournal>,
    /// Name of the call's entry.
    name: String,
}

impl OpenCall {
    /// Returns the writes that record the call as made. The call of a tool job is all of its occurrence, which is done
    /// with it; a turn continues.
    fn marks(&self) -> Result<Vec<Write>, StoreError> {
        let journal = &self.journal;
        match journal.kind {
            JobKind::Tool => {
                let done = OccurrenceState::Done { at: journal.now() };
                Ok(vec![lock(&journal.claim).claim.state_write(&done)?])
            }
            JobKind::Agent => journal.entry_writes(&self.name, &JournalEntry::Committed),
        }
    }

    fn record_versions(&self, versions: &[Option<u64>]) {
        if self.journal.kind == JobKind::Tool {
            self.journal.set_version(versions.first().copied().flatten(), true);
        }
    }
}

impl RunJournal {
    /// Returns true if the occurrence is recorded as done.
    pub fn is_complete(&self) -> bool {
        lock(&self.claim).is_complete
    }

    /// Replaces the state of the occurrence.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the claim was lost; errors of the store.
    pub async fn record_state(&self, state: &OccurrenceState) -> Result<(), StoreError> {
        let write = lock(&self.claim).claim.state_write(state)?;
        let versions = self.records.commit(vec![write]).await?;
        self.set_version(versions.first().copied().flatten(), false);
        Ok(())
    }

    /// Records the occurrence as done, with `writes` in the same transaction, and deletes its entries. Does nothing if
    /// a tool's own commit has recorded it.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the claim was lost; errors of the store.
    pub async fn complete(&self, mut writes: Vec<Write>) -> Result<(), StoreError> {
        if self.is_complete() && writes.is_empty() {
            return Ok(());
        }
        writes.insert(0, lock(&self.claim).claim.state_write(&OccurrenceState::Done { at: self.now() })?);
        for name in lock(&self.names).iter() {
            writes.push(Write::Delete { key: self.key(name)?, precondition: Precondition::Any });
        }
        let versions = self.records.commit(writes).await?;
        self.set_version(versions.first().copied().flatten(), true);
        Ok(())
    }

    fn set_version(&self, version: Option<u64>, is_complete: bool) {
        let mut state = lock(&self.claim);
        if let Some(version) = version {
            state.claim.version = version;
        }
        state.is_complete = is_complete;
    }

    /// Reads an entry of an earlier attempt.
    async fn read(&self, name: &str) -> Result<Option<JournalEntry>, StoreError> {
        if !self.is_repeated {
            return Ok(None);
        }
        let found = self.records.get_as::<JournalEntry>(&self.key(name)?).await?;
        if found.is_some() {
            lock(&self.names).insert(name.to_owned());
        }
        Ok(found.map(|record| record.value))
    }

    /// Writes an entry under the claim.
    async fn write(&self, name: &str, entry: &JournalEntry) -> Result<(), StoreError> {
        let writes = self.entry_writes(name, entry)?;
        self.records.commit(writes).await.map(drop)
    }

    /// Returns the writes that store an entry and check the claim.
    fn entry_writes(&self, name: &str, entry: &JournalEntry) -> Result<Vec<Write>, StoreError> {
        {
            let mut names = lock(&self.names);
            if names.len() >= MAX_ENTRIES && !names.contains(name) {
                return Err(StoreError::Invalid(format!("the run has more than {MAX_ENTRIES} steps")));
            }
            names.insert(name.to_owned());
        }
        let value = to_json(&StoredEntry { entry, user_id: &self.user_id })?;
        let put = Write::Put { key: self.key(name)?, value, precondition: Precondition::Any };
        Ok(vec![put, lock(&self.claim).claim.check_write()])
    }

    async fn remove(&self, name: &str) -> Result<(), StoreError> {
        let delete = Write::Delete { key: self.key(name)?, precondition: Precondition::Any };
        let check = lock(&self.claim).claim.check_write();
        self.records.commit(vec![delete, check]).await.map(drop)
    }

    /// Returns true if another process has taken over the occurrence.
    async fn is_lost(&self) -> Result<bool, StoreError> {
        let OccurrenceClaim { key, version } = lock(&self.claim).claim.clone();
        Ok(self.records.get(&key).await?.is_none_or(|found| found.version != version))
    }

    fn open_call(&self, key: &str) -> Option<Arc<OpenCall>> {
        lock(&self.open_calls).get(key).cloned()
    }

    /// Returns the number of the next model call, from 1.
    fn next_round(&self) -> usize {
        self.rounds.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn key(&self, name: &str) -> Result<Key, StoreError> {
        self.entries.key([&self.run_id, "/", name].concat())
    }

    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.clock.now()).unwrap_or_default()
    }
}

/// Deletes the entries on one page of a company's journal whose occurrences are done or no longer recorded, and
/// returns the cursor of the next page.
///
/// # Errors
/// Errors of the store.
pub async fn delete_obsolete_entries(
    records: &dyn Records,
    company_id: &CompanyId,
    cursor: Option<String>,
) -> Result<Option<String>, StoreError> {
    let entries = Collection::new(company_id, JOURNAL_COLLECTION)?;
    let states = Collection::new(company_id, occurrence::OCCURRENCE_COLLECTION)?;
    let list = ListQuery { limit: Some(ENTRIES_PER_PAGE), cursor, ..ListQuery::default() };
    let page = records.list(&entries, &list).await?;
    let ids = page.records.into_iter().map(|record| record.id);
    let ids: Vec<(Key, String)> =
        ids.filter_map(|id| Some((states.key(id.rsplit_once('/')?.0).ok()?, id))).collect();
    let keys: Vec<Key> = ids.iter().map(|(state, _)| state.clone()).collect();
    let found = records.get_many(&keys).await?;
    let mut deletes = Vec::new();
    for (state, (_, id)) in found.into_iter().zip(ids) {
        let state = state.map(|state| state.parse::<OccurrenceState>(&states));
        // The entries of a record in an unknown format are kept with it.
        if matches!(&state, None | Some(Ok(Record { value: OccurrenceState::Done { .. }, .. }))) {
            deletes.push(Write::Delete { key: entries.key(id)?, precondition: Precondition::Any });
        }
    }
    if !deletes.is_empty() {
        records.commit(deletes).await?;
    }
    Ok(page.next_cursor)
}

/// Deletes what the runs of a user's jobs have stored until a time to be repeated or continued: the entries of journals, and the
/// requests of follow-ups. Entries of versions that did not store the user are kept until their occurrence's record is deleted.
///
/// # Errors
/// Errors of the store.
pub async fn delete_user_entries(
    records: &dyn Records,
    (company_id, user_id): (&CompanyId, &UserId),
    until: SystemTime,
) -> Result<(), StoreError> {
    let entries = Collection::new(company_id, JOURNAL_COLLECTION)?;
    let is_entry = |entry: &Record| {
        let parsed = entry.clone().parse::<EntryUser>(&entries);
        parsed.is_ok_and(|entry| entry.value.user_id.as_ref() == Some(user_id))
    };
    delete_written_until(records, &entries, until, is_entry).await?;
    let states = Collection::new(company_id, occurrence::OCCURRENCE_COLLECTION)?;
    let is_follow_up = |state: &Record| match state.clone().parse(&states) {
        Ok(Record { value: OccurrenceState::FollowUp { request, .. }, .. }) => {
            request.payload.user_id == *user_id
        }
        _ => false,
    };
    delete_written_until(records, &states, until, is_follow_up).await
}

/// Deletes the records of a collection that were last written until a time, and for which `is_wanted` returns true.
async fn delete_written_until(
    records: &dyn Records,
    collection: &Collection,
    until: SystemTime,
    is_wanted: impl Fn(&Record) -> bool + Send,
) -> Result<(), StoreError> {
    let mut list = ListQuery { limit: Some(ENTRIES_PER_PAGE), ..ListQuery::default() };
    loop {
        let page = records.list(collection, &list).await?;
        let mut deletes = Vec::new();
        for record in page.records.into_iter().filter(|record| record.updated <= until && is_wanted(record)) {
            let precondition = Precondition::Version(record.version);
            deletes.push(Write::Delete { key: collection.key(record.id)?, precondition });
        }
        if !deletes.is_empty() {
            match records.commit(deletes).await {
                // Another process has changed one of the records; the next call deletes the others.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
