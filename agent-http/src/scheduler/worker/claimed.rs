//! The jobs that this process has claimed: waiting for their due time, or being delivered.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::ids::{CompanyId, JobId};
use agent_jobs::job::{CompanyQuota, Job, JobFilter, Phase};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Identifies a claim: the job's id and the fencing token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ClaimKey {
    pub(super) id: JobId,
    pub(super) fence: u64,
}

impl ClaimKey {
    pub(super) fn of(job: &Job) -> Self {
        Self { id: job.id.clone(), fence: job.fence }
    }
}

/// The deliveries to start at one time, and the time of the next ones.
pub(super) struct DueDeliveries {
    pub(super) starts: Vec<DeliveryStart>,
    /// Earliest due time of the jobs that were not due yet; `None` if there is none.
    pub(super) next_due: Option<Timestamp>,
}

/// A delivery to start.
pub(super) struct DeliveryStart {
    pub(super) job: Job,
    /// Cancelled when the claim is lost.
    pub(super) claim_lost: CancellationToken,
}

/// Remaining capacity for claims.
pub(super) struct ClaimCapacity {
    /// Capacity for jobs that are due, in total and per company.
    pub(super) due: usize,
    pub(super) due_quota: CompanyQuota,
    /// Capacity for jobs claimed ahead of their due time.
    pub(super) ahead: usize,
    pub(super) ahead_quota: CompanyQuota,
}

pub(super) struct ClaimedJobs {
    inner: Mutex<Inner>,
    concurrency: usize,
    per_company: usize,
    max_ahead: usize,
    /// Notified when a delivery may be able to start.
    startable: Notify,
    /// Notified when a delivery slot becomes free.
    freed: Notify,
    /// Notified when the last delivery has ended.
    idle: Notify,
}

struct Inner {
    /// Claimed jobs that have not started, by due time and id.
    waiting: BTreeMap<(Timestamp, JobId), Job>,
    due_of: HashMap<JobId, Timestamp>,
    delivering: HashMap<ClaimKey, InFlightDelivery>,
    /// Delivery slots taken, per company.
    quota: CompanyQuota,
}

struct InFlightDelivery {
    company: CompanyId,
    lease: Timestamp,
    claim_lost: CancellationToken,
}

impl Inner {
    fn remove_waiting(&mut self, id: &str) -> Option<Job> {
        let due = self.due_of.remove(id)?;
        self.waiting.remove(&(due, id.into()))
    }

    fn due(&self, now: Timestamp) -> impl Iterator<Item = &Job> {
        self.waiting.range(..=(now, JobId::from(char::MAX.to_string()))).map(|(_, job)| job)
    }

    /// Returns the earliest due time after `now`.
    fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let after = (now, JobId::from(char::MAX.to_string()));
        self.waiting.range(after..).map(|((due, _), _)| *due).find(|due| *due > now)
    }
}

impl ClaimedJobs {
    pub(super) fn new(concurrency: usize, per_company: usize, max_ahead: usize) -> Self {
        let inner = Inner {
            waiting: BTreeMap::new(),
            due_of: HashMap::new(),
            delivering: HashMap::new(),
            quota: CompanyQuota::new(per_company),
        };
        Self {
            inner: Mutex::new(inner),
            concurrency,
            per_company,
            max_ahead,
            startable: Notify::new(),
            freed: Notify::new(),
            idle: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Safe to ignore poisoning: nothing below panics between two related changes.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn in_flight_count(&self) -> usize {
        self.lock().delivering.len()
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns the capacity for claims: due jobs up to the number of free delivery slots, and some jobs ahead of
    /// their due time. One company gets at most a quarter of the latter, and none if it has no delivery slot left.
    pub(super) fn capacity(&self, now: Timestamp) -> ClaimCapacity {
        let inner = self.lock();
        let mut due_quota = inner.quota.clone();
        // Jobs that wait only for their company's limit take no slot from other companies.
        let backlog = inner.due(now).filter(|job| due_quota.take(&job.payload.company_id)).count();
        let per_company_ahead = (self.max_ahead / 4).max(1);
        let mut ahead_quota = CompanyQuota::new(per_company_ahead);
        for job in inner.waiting.values() {
            ahead_quota.take(&job.payload.company_id);
        }
        for company in due_quota.exhausted() {
            while ahead_quota.take(company) {}
        }
        let due = self.concurrency.saturating_sub(inner.delivering.len() + backlog);
        let ahead = if due > 0 { self.max_ahead.saturating_sub(inner.waiting.len()) } else { 0 };
        ClaimCapacity { due, due_quota, ahead, ahead_quota }
    }

    /// Adds claimed jobs.
    pub(super) fn add(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for job in jobs {
            // A new claim replaces an older one, which is stale.
            inner.remove_waiting(&job.id);
            inner.due_of.insert(job.id.clone(), job.due);
            inner.waiting.insert((job.due, job.id.clone()), job);
        }
        drop(inner);
        self.startable.notify_one();
    }

    /// Removes the waiting jobs that are due and have a delivery slot, earliest first, and marks them as in flight.
    pub(super) fn start_due(&self, now: Timestamp) -> DueDeliveries {
        let mut inner = self.lock();
        let next_due = inner.next_due(now);
        let mut free = self.concurrency.saturating_sub(inner.delivering.len());
        if free == 0 {
            return DueDeliveries { starts: Vec::new(), next_due };
        }
        let mut quota = std::mem::replace(&mut inner.quota, CompanyQuota::new(self.per_company));
        let mut ids = Vec::new();
        for job in inner.due(now) {
            if free == 0 {
                break;
            }
            if quota.take(&job.payload.company_id) {
                free -= 1;
                ids.push(job.id.clone());
            }
        }
        inner.quota = quota;
        let jobs = ids.iter().filter_map(|id| inner.remove_waiting(id)).collect::<Vec<_>>();
        let begin = |job: Job| {
            let claim_lost = CancellationToken::new();
            let company = job.payload.company_id.clone();
            let delivering =
                InFlightDelivery { company, lease: lease_of(&job), claim_lost: claim_lost.clone() };
            inner.delivering.insert(ClaimKey::of(&job), delivering);
            DeliveryStart { job, claim_lost }
        };
        DueDeliveries { starts: jobs.into_iter().map(begin).collect(), next_due }
    }

    /// Removes and returns the waiting jobs that were due by `since` and have found no slot.
    pub(super) fn take_overdue(&self, since: Timestamp) -> Vec<Job> {
        let mut inner = self.lock();
        let ids: Vec<JobId> = inner.due(since).map(|job| job.id.clone()).collect();
        ids.iter().filter_map(|id| inner.remove_waiting(id)).collect()
    }

    /// Removes and returns a job whose delivery has not started.
    pub(super) fn release(&self, id: &str) -> Option<Job> {
        self.lock().remove_waiting(id)
    }

    /// Removes and returns the jobs that match the filter and whose deliveries have not started.
    pub(super) fn release_matching(&self, filter: &JobFilter) -> Vec<Job> {
        let mut inner = self.lock();
        let ids: Vec<JobId> =
            inner.waiting.values().filter(|job| filter.matches(job)).map(|job| job.id.clone()).collect();
        ids.iter().filter_map(|id| inner.remove_waiting(id)).collect()
    }

    /// Removes and returns all jobs whose deliveries have not started.
    pub(super) fn release_all(&self) -> Vec<Job> {
        let mut inner = self.lock();
        inner.due_of.clear();
        std::mem::take(&mut inner.waiting).into_values().collect()
    }

    /// Frees the slots of finished deliveries.
    pub(super) fn finish_deliveries<'k>(&self, keys: impl IntoIterator<Item = &'k ClaimKey>) {
        let mut inner = self.lock();
        for key in keys {
            if let Some(delivering) = inner.delivering.remove(key) {
                inner.quota.release(&delivering.company);
            }
        }
        let is_idle = inner.delivering.is_empty();
        drop(inner);
        self.startable.notify_one();
        self.freed.notify_one();
        if is_idle {
            self.idle.notify_waiters();
        }
    }

    /// Returns the claims whose leases expire before `before`.
    pub(super) fn expiring_before(&self, before: Timestamp) -> Vec<ClaimKey> {
        let inner = self.lock();
        let waiting = inner.waiting.values().filter(|job| lease_of(job) < before).map(ClaimKey::of);
        let delivering = inner.delivering.iter().filter(|(_, delivery)| delivery.lease < before);
        waiting.chain(delivering.map(|(key, _)| key.clone())).collect()
    }

    /// Records that a lease was extended.
    pub(super) fn record_extension(&self, key: &ClaimKey, lease: Timestamp) {
        let mut inner = self.lock();
        if let Some(delivery) = inner.delivering.get_mut(key) {
            delivery.lease = lease;
        }
        let waiting_key = inner.due_of.get(&key.id).map(|due| (*due, key.id.clone()));
        if let Some(job) = waiting_key.and_then(|waiting_key| inner.waiting.get_mut(&waiting_key))
            && job.fence == key.fence
        {
            job.phase = Phase::Running { lease };
        }
    }

    /// Drops a claim that is stale or may be held by another worker, and aborts its delivery.
    pub(super) fn expire_lease(&self, key: &ClaimKey) {
        let mut inner = self.lock();
        if let Some(delivery) = inner.delivering.get(key) {
            delivery.claim_lost.cancel();
        }
        let waits = inner.due_of.get(&key.id).and_then(|due| inner.waiting.get(&(*due, key.id.clone())));
        if waits.is_some_and(|job| job.fence == key.fence) {
            inner.remove_waiting(&key.id);
        }
    }

    /// Waits until a delivery may be able to start.
    pub(super) async fn wait_startable(&self) {
        self.startable.notified().await;
    }

    /// Waits until a delivery slot is free.
    pub(super) async fn wait_slot_freed(&self) {
        self.freed.notified().await;
    }

    /// Waits until no delivery is in flight.
    pub(super) async fn wait_idle(&self) {
        loop {
            let idle = self.idle.notified();
            let mut idle = std::pin::pin!(idle);
            // Registers for the notification before the check, so that none is missed.
            idle.as_mut().enable();
            if self.in_flight_count() == 0 {
                return;
            }
            idle.await;
        }
    }
}

fn lease_of(job: &Job) -> Timestamp {
    match job.phase {
        Phase::Running { lease } => lease,
        // A claimed job is always running. Any other phase counts as an expired lease, which is resolved at once.
        _ => Timestamp::MIN,
    }
}
