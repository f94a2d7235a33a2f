//! What this process has claimed: what waits for its time, and what is under way.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::job::{Job, JobFilter, Phase, Quota};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Which claim on which job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ClaimKey {
    pub(super) id: String,
    pub(super) fence: u64,
}

impl ClaimKey {
    pub(super) fn of(job: &Job) -> Self {
        Self { id: job.id.clone(), fence: job.fence }
    }
}

/// A delivery that shall begin.
pub(super) struct Start {
    pub(super) job: Job,
    /// Cancelled when the claim is lost.
    pub(super) lost: CancellationToken,
}

/// How many jobs may be claimed.
pub(super) struct Room {
    /// Of those that are due, by company too.
    pub(super) due: usize,
    pub(super) due_quota: Quota,
    /// Of those that are due soon.
    pub(super) ahead: usize,
    pub(super) ahead_quota: Quota,
}

pub(super) struct Held {
    inner: Mutex<Inner>,
    concurrency: usize,
    per_company: usize,
    max_ahead: usize,
    /// Something may begin.
    startable: Notify,
    /// A slot is free.
    freed: Notify,
    /// Nothing is under way any more.
    idle: Notify,
}

struct Inner {
    /// By due time and id.
    waiting: BTreeMap<(Timestamp, String), Job>,
    due_of: HashMap<String, Timestamp>,
    delivering: HashMap<ClaimKey, Delivering>,
    /// Of what is being delivered.
    quota: Quota,
}

struct Delivering {
    company: String,
    lease: Timestamp,
    lost: CancellationToken,
}

impl Inner {
    fn remove_waiting(&mut self, id: &str) -> Option<Job> {
        let due = self.due_of.remove(id)?;
        self.waiting.remove(&(due, id.to_owned()))
    }

    fn due(&self, now: Timestamp) -> impl Iterator<Item = &Job> {
        self.waiting.range(..=(now, char::MAX.to_string())).map(|(_, job)| job)
    }
}

impl Held {
    pub(super) fn new(concurrency: usize, per_company: usize, max_ahead: usize) -> Self {
        let inner = Inner {
            waiting: BTreeMap::new(),
            due_of: HashMap::new(),
            delivering: HashMap::new(),
            quota: Quota::new(per_company),
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
        // Nothing below panics between two changes that belong together.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn delivering(&self) -> usize {
        self.lock().delivering.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// What may be claimed: as many as there are slots for now, and some more that are due later, of which
    /// one company has a quarter at most, and none that has no slot left anyhow.
    pub(super) fn room(&self, now: Timestamp) -> Room {
        let inner = self.lock();
        let mut due_quota = inner.quota.clone();
        // What waits for its company's slots alone takes none from the others.
        let backlog = inner.due(now).filter(|job| due_quota.take(&job.payload.company_id)).count();
        let per_company_ahead = (self.max_ahead / 4).max(1);
        let mut ahead_quota = Quota::new(per_company_ahead);
        for job in inner.waiting.values() {
            ahead_quota.take(&job.payload.company_id);
        }
        for company in due_quota.exhausted() {
            while ahead_quota.take(company) {}
        }
        let due = self.concurrency.saturating_sub(inner.delivering.len() + backlog);
        let ahead = if due > 0 { self.max_ahead.saturating_sub(inner.waiting.len()) } else { 0 };
        Room { due, due_quota, ahead, ahead_quota }
    }

    /// Takes claimed jobs in.
    pub(super) fn add(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for job in jobs {
            // An older claim on it is void.
            inner.remove_waiting(&job.id);
            inner.due_of.insert(job.id.clone(), job.due);
            inner.waiting.insert((job.due, job.id.clone()), job);
        }
        drop(inner);
        self.startable.notify_one();
    }

    /// Takes out what is due and has a slot, the earliest first.
    pub(super) fn start_due(&self, now: Timestamp) -> Vec<Start> {
        let mut inner = self.lock();
        let mut free = self.concurrency.saturating_sub(inner.delivering.len());
        if free == 0 {
            return Vec::new();
        }
        let mut quota = std::mem::replace(&mut inner.quota, Quota::new(self.per_company));
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
            let lost = CancellationToken::new();
            let company = job.payload.company_id.clone();
            let delivering = Delivering { company, lease: lease_of(&job), lost: lost.clone() };
            inner.delivering.insert(ClaimKey::of(&job), delivering);
            Start { job, lost }
        };
        jobs.into_iter().map(begin).collect()
    }

    /// When the next that waits is due, of those that are due after `now`.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let inner = self.lock();
        let after = (now, char::MAX.to_string());
        let (due, _) = inner.waiting.range(after..).find(|((due, _), _)| *due > now)?.0;
        Some(*due)
    }

    /// Takes out what has been due since before `since` and found no slot.
    pub(super) fn take_stranded(&self, since: Timestamp) -> Vec<Job> {
        let mut inner = self.lock();
        let ids: Vec<String> = inner.due(since).map(|job| job.id.clone()).collect();
        ids.iter().filter_map(|id| inner.remove_waiting(id)).collect()
    }

    /// Takes out a job that has not begun.
    pub(super) fn take_back(&self, id: &str) -> Option<Job> {
        self.lock().remove_waiting(id)
    }

    /// Takes out all jobs that are meant and have not begun.
    pub(super) fn take_back_all(&self, filter: &JobFilter) -> Vec<Job> {
        let mut inner = self.lock();
        // It counts as claimed here, whatever state is asked for.
        let meant = JobFilter { state: None, ..filter.clone() };
        let ids: Vec<String> =
            inner.waiting.values().filter(|job| meant.matches(job)).map(|job| job.id.clone()).collect();
        ids.iter().filter_map(|id| inner.remove_waiting(id)).collect()
    }

    /// Takes out everything that has not begun.
    pub(super) fn take_all(&self) -> Vec<Job> {
        let mut inner = self.lock();
        inner.due_of.clear();
        std::mem::take(&mut inner.waiting).into_values().collect()
    }

    /// Gives up the slots of deliveries that are over.
    pub(super) fn end<'k>(&self, keys: impl IntoIterator<Item = &'k ClaimKey>) {
        let mut inner = self.lock();
        for key in keys {
            if let Some(delivering) = inner.delivering.remove(key) {
                inner.quota.give_back(&delivering.company);
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

    /// The claims whose leases run out before that.
    pub(super) fn expiring(&self, before: Timestamp) -> Vec<ClaimKey> {
        let inner = self.lock();
        let waiting = inner.waiting.values().filter(|job| lease_of(job) < before).map(ClaimKey::of);
        let delivering = inner.delivering.iter().filter(|(_, held)| held.lease < before);
        waiting.chain(delivering.map(|(key, _)| key.clone())).collect()
    }

    /// Notes that a lease was extended.
    pub(super) fn extended(&self, key: &ClaimKey, lease: Timestamp) {
        let mut inner = self.lock();
        if let Some(held) = inner.delivering.get_mut(key) {
            held.lease = lease;
        }
        let place = inner.due_of.get(&key.id).map(|due| (*due, key.id.clone()));
        if let Some(job) = place.and_then(|place| inner.waiting.get_mut(&place))
            && job.fence == key.fence
        {
            job.phase = Phase::Running { lease };
        }
    }

    /// Gives up a claim that somebody else may have, or that is void.
    pub(super) fn lose(&self, key: &ClaimKey) {
        let mut inner = self.lock();
        if let Some(held) = inner.delivering.get(key) {
            held.lost.cancel();
        }
        let waits = inner.due_of.get(&key.id).and_then(|due| inner.waiting.get(&(*due, key.id.clone())));
        if waits.is_some_and(|job| job.fence == key.fence) {
            inner.remove_waiting(&key.id);
        }
    }

    /// Waits until something may begin.
    pub(super) async fn until_startable(&self) {
        self.startable.notified().await;
    }

    /// Waits until a slot is free.
    pub(super) async fn until_freed(&self) {
        self.freed.notified().await;
    }

    /// Waits until nothing is under way.
    pub(super) async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            let mut idle = std::pin::pin!(idle);
            // Listens before it looks.
            idle.as_mut().enable();
            if self.delivering() == 0 {
                return;
            }
            idle.await;
        }
    }
}

fn lease_of(job: &Job) -> Timestamp {
    match job.phase {
        Phase::Running { lease } => lease,
        // A claimed job is running; any other would be looked after at once.
        _ => Timestamp::MIN,
    }
}
