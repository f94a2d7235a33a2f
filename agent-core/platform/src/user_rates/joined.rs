//! Counts of companies' runs in the commits of other modules.
//!
//! A run at half of the company's limit or above waits for a commit. If another module's commit, such as a budget's, admits the
//! run anyway, it counts the run too, so that the run waits for one commit instead of two.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_core::ids::CompanyId;

use super::company_runs::CountedCompanyRun;
use super::flush::{FlushTask, parse};
use super::metering::Metering;
use super::table::{Meter, MeterId};
use crate::minute_rate::{AdmittedBatch, MinuteState, RateLimitError};
use crate::records::{Key, Precondition, StoreError, Write, to_json};

/// Run of a company that the limit per minute does not refuse.
pub(crate) enum AdmittedCompanyRun {
    /// This process has admitted and counted it.
    Counted(CountedCompanyRun),
    /// A commit of another module is to admit and count it.
    Uncounted(UncountedRun),
}

/// Run of a company that a commit of another module is to admit and count. Until it is counted or dropped, the process keeps its
/// place within the limit.
pub(crate) struct UncountedRun {
    metering: Arc<Metering>,
    company_id: CompanyId,
    record: Key,
    per_minute: NonZeroU32,
    /// True while the meter has room for the run in addition to the counted ones.
    has_place: AtomicBool,
}

impl UncountedRun {
    /// Creates a run of a company, with its place in the company's meter; `None` if the meter has no record.
    pub(super) fn new(metering: &Arc<Metering>, company_id: &CompanyId, meter: &mut Meter) -> Option<Self> {
        let (record, per_minute) = (meter.record.clone()?, meter.per_minute);
        meter.joined += 1;
        let (metering, company_id) = (metering.clone(), company_id.clone());
        Some(Self { metering, company_id, record, per_minute, has_place: AtomicBool::new(true) })
    }

    /// Returns the limit.
    pub(crate) fn per_minute(&self) -> NonZeroU32 {
        self.per_minute
    }

    /// Returns the run as one that a commit has counted.
    pub(crate) fn counted(&self) -> CountedCompanyRun {
        CountedCompanyRun::new(&self.metering, &self.company_id)
    }
}

impl Drop for UncountedRun {
    fn drop(&mut self) {
        if !*self.has_place.get_mut() {
            return;
        }
        if let Some(meter) = self.metering.lock().meters.get_mut(&self.company_id, &MeterId::CompanyRuns) {
            meter.joined = meter.joined.saturating_sub(1);
        }
    }
}

/// Count of a company's runs as a commit changes it. If the commit is not made, a later commit counts the runs that this process
/// admitted before.
pub(crate) struct RunCount {
    metering: Arc<Metering>,
    company_id: CompanyId,
    record: Key,
    per_minute: NonZeroU32,
    /// Condition that the record is as it was read.
    precondition: Precondition,
    state: Option<MinuteState>,
    /// Runs that this process has admitted by itself, and that no commit has included.
    admitted: AdmittedBatch,
    is_changed: bool,
}

impl RunCount {
    /// Reads the count for a commit that is to admit this run and others of the company.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn load(run: &UncountedRun) -> Result<Self, StoreError> {
        let UncountedRun { metering, company_id, record, per_minute, .. } = run;
        let found = metering.records.get(record).await?;
        let precondition = Precondition::unchanged_since(found.as_ref().map(|found| found.version));
        let stored = found.and_then(|found| parse(found, record));
        let admitted = match metering.lock().meters.get_mut(company_id, &MeterId::CompanyRuns) {
            Some(meter) => std::mem::take(&mut meter.uncounted),
            None => AdmittedBatch::default(),
        };
        let state = match admitted.is_empty() {
            true => stored,
            false => Some(MinuteState::with_batch(stored, admitted, *per_minute, metering.now())),
        };
        Ok(Self {
            metering: metering.clone(),
            company_id: company_id.clone(),
            record: record.clone(),
            per_minute: *per_minute,
            precondition,
            state,
            admitted,
            is_changed: !admitted.is_empty(),
        })
    }

    /// Admits another run.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn admit(&mut self) -> Result<(), RateLimitError> {
        self.state = Some(MinuteState::admit(self.state, self.per_minute, self.metering.now())?);
        self.is_changed = true;
        Ok(())
    }

    /// Returns the write of the commit, if there is something to count.
    ///
    /// # Errors
    /// None in practice: the state is JSON.
    pub(crate) fn write(&self) -> Result<Option<Write>, StoreError> {
        let Some(state) = self.state.filter(|_| self.is_changed) else { return Ok(None) };
        let (key, value, precondition) = (self.record.clone(), to_json(&state)?, self.precondition);
        Ok(Some(Write::Put { key, value, precondition }))
    }

    /// Records that the commit was made, which has decided about `runs`. Their permits are released at once, since admitted
    /// runs would count twice.
    pub(crate) fn publish<'r>(mut self, runs: impl Iterator<Item = &'r UncountedRun>) {
        self.admitted = AdmittedBatch::default();
        let now = self.metering.now();
        self.change_meter(|meter, count| {
            meter.learn(count.state, now);
            let places = runs.filter(|run| run.has_place.swap(false, Ordering::Relaxed)).count();
            meter.joined = meter.joined.saturating_sub(places);
            // Other processes may have counted runs of the same moment since.
            meter.is_outdated |= count.is_changed;
        });
    }

    /// Changes the meter, and lets the company's task count what it has, or read its record again.
    fn change_meter(&self, change: impl FnOnce(&mut Meter, &Self)) {
        let must_start = {
            let mut table = self.metering.lock();
            if let Some(meter) = table.meters.get_mut(&self.company_id, &MeterId::CompanyRuns) {
                change(meter, self);
            }
            table.notify(&self.company_id, false, self.metering.clock.monotonic())
        };
        if must_start {
            FlushTask::start(&self.metering, &self.company_id);
        }
    }
}

impl Drop for RunCount {
    fn drop(&mut self) {
        if !self.admitted.is_empty() {
            self.change_meter(|meter, count| {
                meter.uncounted = count.admitted.followed_by(meter.uncounted, count.per_minute);
            });
        }
    }
}
