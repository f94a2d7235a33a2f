//! Runs of companies that are counted before it is known that they begin.

use std::sync::Arc;

use agent_core::ids::CompanyId;

use super::flush::FlushTask;
use super::metering::Metering;
use super::table::MeterId;

/// A run of a company that is counted per minute. Dropping it takes the run back, unless it [counts](Self::keep).
#[must_use]
pub(crate) struct CountedCompanyRun {
    metering: Arc<Metering>,
    company_id: CompanyId,
    is_kept: bool,
}

impl CountedCompanyRun {
    pub(super) fn new(metering: &Arc<Metering>, company_id: &CompanyId) -> Self {
        Self { metering: metering.clone(), company_id: company_id.clone(), is_kept: false }
    }

    /// Leaves the run counted.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for CountedCompanyRun {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let (now, instant) = (self.metering.now(), self.metering.clock.monotonic());
        let must_start = {
            let mut table = self.metering.lock();
            let meter = table.meters.get_mut(&self.company_id, &MeterId::CompanyRuns);
            let is_uncounted = meter.is_some_and(|meter| {
                meter.refund(now);
                !meter.uncounted.is_empty()
            });
            is_uncounted && table.notify(&self.company_id, false, instant)
        };
        if must_start {
            FlushTask::start(&self.metering, &self.company_id);
        }
    }
}
