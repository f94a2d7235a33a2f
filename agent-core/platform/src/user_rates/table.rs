//! The meters of the users that were active last, with a share for each company.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use agent_core::ids::{CompanyId, UserId};
use futures_channel::oneshot;

use super::{FLUSH_INTERVAL, UserRate};
use crate::minute_rate::{AdmittedBatch, MinuteState, MinuteUse, RateLimitError};
use crate::records::Key;

/// Maximum numbers of meters: of a process, and of one company in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeterLimits {
    pub(super) process: usize,
    pub(super) company: usize,
}

/// A user's meter within the company.
pub(super) type MeterId = (UserId, UserRate);

/// Answer to a request that waits to be counted in the store.
pub(super) type CountedRequest = Result<(), RateLimitError>;

/// Requests of a user, as far as this process knows.
pub(super) struct Meter {
    /// Record of the count over all processes; `None` if the ids cannot be a key.
    pub(super) record: Option<Key>,
    pub(super) per_minute: NonZeroU32,
    /// State of the record when it was written or read last, with what this process has admitted since.
    pub(super) known: Option<MinuteState>,
    /// Admitted requests that no commit has included.
    pub(super) uncounted: AdmittedBatch,
    /// Requests that wait to be admitted by a commit.
    pub(super) waiting: Vec<oneshot::Sender<CountedRequest>>,
    /// Number of requests that the commit in progress may admit.
    pub(super) settling: usize,
    /// True after a commit: other processes may have counted requests of the same moment since.
    pub(super) is_outdated: bool,
    last_use: u64,
}

/// Decision about a request by what a meter knows.
pub(super) enum LocalDecision {
    /// Less than half of the limit is used.
    BelowHalf,
    /// The store decides.
    AskStore,
}

impl Meter {
    fn new(record: Option<Key>, per_minute: NonZeroU32) -> Self {
        Self {
            record,
            per_minute,
            known: None,
            uncounted: AdmittedBatch::default(),
            waiting: Vec::new(),
            settling: 0,
            is_outdated: false,
            last_use: 0,
        }
    }

    /// Decides about another request beside those that wait.
    ///
    /// # Errors
    /// The limit is reached, or is so if those that wait are admitted.
    pub(super) fn decide(&self, now: Duration) -> Result<LocalDecision, RateLimitError> {
        let (used, reserved) =
            (MinuteUse::new(self.known, self.per_minute, now), self.waiting.len() + self.settling);
        used.check(reserved)?;
        Ok(if used.is_below_half(reserved) { LocalDecision::BelowHalf } else { LocalDecision::AskStore })
    }

    /// Admits a request, which is counted in the store later.
    pub(super) fn admit(&mut self, now: Duration) {
        let mut request = AdmittedBatch::default();
        request.push(self.per_minute, now);
        self.known = Some(MinuteState::with_batch(self.known, request, self.per_minute, now));
        if self.record.is_some() {
            self.uncounted = self.uncounted.followed_by(request, self.per_minute);
        }
    }

    /// Replaces what is known by the state of the record.
    pub(super) fn learn(&mut self, state: Option<MinuteState>, now: Duration) {
        self.known = if self.uncounted.is_empty() {
            state
        } else {
            Some(MinuteState::with_batch(state, self.uncounted, self.per_minute, now))
        };
    }
}

/// The meters of a company, and the state of their task.
#[derive(Default)]
pub(super) struct CompanyMeters {
    pub(super) meters: HashMap<MeterId, Meter>,
    /// Meters by their last use, the oldest first.
    order: BTreeMap<u64, MeterId>,
    pub(super) flusher: Flusher,
}

impl CompanyMeters {
    pub(super) fn is_waited_for(&self) -> bool {
        self.meters.values().any(|meter| !meter.waiting.is_empty())
    }

    /// Lets the requests that wait be decided by what this process knows.
    pub(super) fn release_waiting(&mut self) {
        for meter in self.meters.values_mut() {
            meter.waiting.clear();
            meter.settling = 0;
        }
    }

    fn remove_oldest(&mut self) -> bool {
        self.order.pop_first().is_some_and(|(_, id)| self.meters.remove(&id).is_some())
    }
}

/// Meters by company. At its bound, the least recently used one of the same company, or of the company that has the
/// most, is removed; what it has not counted in the store is forgotten.
pub(super) struct MeterTable {
    pub(super) companies: HashMap<CompanyId, CompanyMeters>,
    limits: MeterLimits,
    count: usize,
    last_use: u64,
}

impl MeterTable {
    pub(super) fn new(limits: MeterLimits) -> Self {
        Self { companies: HashMap::new(), limits, count: 0, last_use: 0 }
    }

    /// Returns a meter, which is created if it does not exist, and the state of its company's task.
    pub(super) fn use_meter(
        &mut self,
        company_id: &CompanyId,
        id: MeterId,
        record: impl FnOnce() -> Option<Key>,
        per_minute: NonZeroU32,
    ) -> (&mut Meter, &mut Flusher) {
        let is_present = self.companies.get(company_id).is_some_and(|own| own.meters.contains_key(&id));
        if !is_present {
            self.make_room(company_id);
            self.count += 1;
        }
        self.last_use += 1;
        let CompanyMeters { meters, order, flusher } = self.companies.entry(company_id.clone()).or_default();
        let meter = meters.entry(id.clone()).or_insert_with(|| Meter::new(record(), per_minute));
        order.remove(&meter.last_use);
        meter.last_use = self.last_use;
        order.insert(self.last_use, id);
        (meter, flusher)
    }

    /// Removes a company that has no meters, unless its task runs.
    pub(super) fn remove_if_empty(&mut self, company_id: &CompanyId) {
        let is_empty = |own: &CompanyMeters| own.meters.is_empty() && own.flusher.is_idle();
        if self.companies.get(company_id).is_some_and(is_empty) {
            self.companies.remove(company_id);
        }
    }

    fn make_room(&mut self, company_id: &CompanyId) {
        let own = self.companies.get(company_id).map_or(0, |own| own.meters.len());
        let full = if own >= self.limits.company {
            Some(company_id.clone())
        } else if self.count >= self.limits.process {
            let largest = self.companies.iter().max_by_key(|(_, company)| company.meters.len());
            largest.map(|(largest, _)| largest.clone())
        } else {
            None
        };
        let Some(full) = full else { return };
        if self.companies.get_mut(&full).is_some_and(CompanyMeters::remove_oldest) {
            self.count -= 1;
        }
        self.remove_if_empty(&full);
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, Vec<usize>) {
        let mut sizes: Vec<usize> = self.companies.values().map(|company| company.meters.len()).collect();
        sizes.sort_unstable();
        (self.count, sizes)
    }
}

/// State of the task that counts a company's requests in the store.
#[derive(Default)]
pub(super) struct Flusher {
    task: TaskState,
    /// Time of the next commit of what was admitted already.
    pub(super) due: Option<Instant>,
    unavailable_until: Option<Instant>,
}

#[derive(Default)]
enum TaskState {
    /// No task runs.
    #[default]
    Idle,
    /// The task looks for requests before its next pause.
    Busy,
    /// The task pauses until its next commit is due, or until it is woken.
    Pausing(oneshot::Sender<()>),
}

impl Flusher {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.task, TaskState::Idle)
    }

    /// Returns true if the store has failed just now.
    pub(super) fn is_unavailable(&self, now: Instant) -> bool {
        self.unavailable_until.is_some_and(|until| now < until)
    }

    /// Notes that the store has failed, and is tried again at `until`. Returns true if it had not failed before.
    pub(super) fn set_unavailable(&mut self, until: Instant) -> bool {
        self.due = Some(until);
        self.unavailable_until.replace(until).is_none()
    }

    pub(super) fn set_available(&mut self) {
        self.unavailable_until = None;
    }

    /// Notes that there is a request to count. Returns true if the caller must start the task.
    pub(super) fn notify(&mut self, is_waiting: bool, now: Instant) -> bool {
        match std::mem::replace(&mut self.task, TaskState::Busy) {
            TaskState::Idle => {
                self.due = Some(now + FLUSH_INTERVAL);
                return true;
            }
            TaskState::Pausing(wake) if is_waiting => {
                // The task has just been dropped if this fails.
                let _ = wake.send(());
            }
            unchanged => self.task = unchanged,
        }
        false
    }

    pub(super) fn set_idle(&mut self) {
        self.task = TaskState::Idle;
    }

    pub(super) fn set_busy(&mut self) {
        self.task = TaskState::Busy;
    }

    /// Begins a pause, which the returned receiver ends early.
    pub(super) fn pause(&mut self) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        self.task = TaskState::Pausing(wake);
        woken
    }
}
