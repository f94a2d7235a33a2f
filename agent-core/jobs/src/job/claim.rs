//! Policy of a claim: which due jobs a worker gets.
//!
//! A [`ClaimPlanner`] makes every decision of one claim: which rows of a store are due, which companies have used up
//! their quota, which occurrences run or are skipped, which expired leases are reclaimed, and when the claim is
//! complete. It does no I/O. A store offers it the rows of the [range](ClaimPlanner::range) in order of their wake
//! times and writes what it returns, so that all stores claim alike:
//!
//! 1. [`admit`](ClaimPlanner::admit) decides by the company alone, before the store reads the whole row.
//! 2. [`decide`](ClaimPlanner::decide) applies [`Step::Claim`] to each admitted job.
//! 3. [`next_round`](ClaimPlanner::next_round) indicates whether the store must read more rows.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_core::ids::CompanyId;
use jiff::Timestamp;

use super::{ClaimRequest, CompanyQuota, Job, MAX_JOBS_PER_CLAIM, Phase, Step};

/// Time for which a job that cannot be read is postponed. Postponing keeps the row, which a later version may be able
/// to read, without blocking other jobs.
pub(crate) const UNREADABLE_POSTPONE: Duration = Duration::from_secs(60 * 60);

/// Wake times of the rows that a claim considers. A row's wake time is [`Job::next_run_at`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRange {
    /// Latest wake time of jobs that wait for an attempt.
    pub due_until: Timestamp,
    /// Latest wake time of running jobs: their leases have expired.
    pub leases_until: Timestamp,
}

impl ClaimRange {
    /// Returns true if the job's wake time is within the range.
    pub fn contains(&self, job: &Job) -> bool {
        let until = if let Phase::Running { .. } = job.phase { self.leases_until } else { self.due_until };
        job.next_run_at().is_some_and(|wake| wake <= until)
    }
}

/// Admitted row of a store.
#[derive(Debug)]
pub struct Candidate<'r> {
    /// Wake time of the row.
    pub wake: Timestamp,
    /// Company for which the row was admitted.
    pub company: &'r str,
    /// Job in the row, or `None` if it cannot be parsed.
    pub job: Option<Job>,
}

/// Decision on an admitted row.
#[derive(Debug, PartialEq)]
pub enum ClaimDecision<'p> {
    /// The job is claimed: the store writes it, and the claim returns it.
    Claim(&'p Job),
    /// No occurrence is left to deliver now: missed ones are skipped, or the lease of the last attempt has expired.
    /// The store writes the job.
    Skip(&'p Job),
    /// The job cannot be read: the store sets the row's wake time.
    Postpone(Timestamp),
    /// The row does not belong to the range; nothing is written.
    Leave,
}

/// Decisions of one claim. See the [module documentation](self).
#[derive(Debug)]
pub struct ClaimPlanner {
    now: Timestamp,
    due_until: Timestamp,
    lease_until: Timestamp,
    limit: usize,
    quota: CompanyQuota,
    /// Claimed jobs with the wake times that their rows had.
    claimed: Vec<(Timestamp, Job)>,
    /// The job of the last [`ClaimDecision::Skip`].
    skipped: Option<Job>,
    /// Number of admitted rows without a decision.
    pending: usize,
    /// Number of decisions.
    decided: usize,
    /// Companies with a row that was turned away in this round.
    turned_away: BTreeSet<CompanyId>,
    /// True if a company regained a slot in this round after one of its rows was turned away.
    is_retry_needed: bool,
}

impl ClaimPlanner {
    /// Begins a claim.
    pub fn new(request: ClaimRequest) -> Self {
        let ClaimRequest { now, due_until, lease_until, limit, quota } = request;
        Self {
            now,
            due_until,
            lease_until,
            limit: limit.min(MAX_JOBS_PER_CLAIM),
            quota,
            claimed: Vec::new(),
            skipped: None,
            pending: 0,
            decided: 0,
            turned_away: BTreeSet::new(),
            is_retry_needed: false,
        }
    }

    /// Returns the range of the rows to offer.
    pub fn range(&self) -> ClaimRange {
        // A lease is never reclaimed ahead of its end.
        ClaimRange { due_until: self.due_until, leases_until: self.now }
    }

    /// Returns the number of rows that can still be admitted, with those without a decision counted as claimed.
    pub fn remaining_rows(&self) -> usize {
        let free = self.limit.saturating_sub(self.claimed.len());
        free.min(MAX_JOBS_PER_CLAIM.saturating_sub(self.decided)).saturating_sub(self.pending)
    }

    /// Iterates over the companies whose rows are not admitted, so that a query can exclude them.
    pub fn exhausted_companies(&self) -> impl Iterator<Item = &str> {
        self.quota.exhausted()
    }

    /// Admits the next row of the range, if the company has a free slot and the claim is not complete. The store must
    /// ask for a decision on each admitted row before the round ends.
    pub fn admit(&mut self, company: &str) -> bool {
        if self.remaining_rows() == 0 {
            return false;
        }
        if self.quota.take(company) {
            self.pending += 1;
            return true;
        }
        if !self.turned_away.contains(company) {
            self.turned_away.insert(company.into());
        }
        false
    }

    /// Decides on an admitted row.
    pub fn decide(&mut self, candidate: Candidate<'_>) -> ClaimDecision<'_> {
        let Candidate { wake, company, job } = candidate;
        self.pending = self.pending.saturating_sub(1);
        self.decided += 1;
        let claim = Step::Claim { until: self.due_until, lease: self.lease_until };
        let result = job.map(|job| job.step(claim, self.now));
        if let Some(Ok(result)) = result {
            if result.job.is_delivering() {
                self.claimed.push((wake, result.job));
                return ClaimDecision::Claim(&self.claimed[self.claimed.len() - 1].1);
            }
            self.release_slot(company);
            return ClaimDecision::Skip(self.skipped.insert(result.job));
        }
        self.release_slot(company);
        match result {
            None => ClaimDecision::Postpone(self.postponed_until()),
            Some(_) => ClaimDecision::Leave,
        }
    }

    fn release_slot(&mut self, company: &str) {
        self.quota.release(company);
        self.is_retry_needed |= self.turned_away.contains(company);
    }

    fn postponed_until(&self) -> Timestamp {
        self.now.saturating_add(UNREADABLE_POSTPONE).unwrap_or(Timestamp::MAX)
    }

    /// Ends a round of rows. `is_range_exhausted` is true if the round has offered all rows of the range. Returns true
    /// if the store must offer the rows of the range again, those that it has written left out.
    pub fn next_round(&mut self, is_range_exhausted: bool) -> bool {
        self.turned_away.clear();
        let is_retry_needed = std::mem::take(&mut self.is_retry_needed);
        self.remaining_rows() > 0 && (is_retry_needed || !is_range_exhausted)
    }

    /// Returns the claimed jobs, the earliest first.
    pub fn finish(self) -> Vec<Job> {
        let mut claimed = self.claimed;
        // A later round may have claimed an earlier job that was turned away or locked before.
        claimed.sort_by_key(|(wake, _)| *wake);
        claimed.into_iter().map(|(_, job)| job).collect()
    }
}

#[cfg(test)]
mod tests;
