//! The meters of the users that were active last, and the tasks that count their requests in the store.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use agent_core::ids::{CompanyId, UserId};
use futures_channel::oneshot;

use super::limits::UserRate;
use crate::company_table::{CompanyTable, CompanyTableLimits};
use crate::minute_rate::{AdmittedBatch, MinuteState, MinuteUse, RateLimitError};
use crate::records::Key;
use crate::run_registry::{NewRunId, RunIdClaim};

/// Minimum time between two commits of a company's requests that were admitted already.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_millis(250);

/// A meter within the company.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum MeterId {
    /// Requests of a user.
    User(UserId, UserRate),
    /// Runs of the company.
    CompanyRuns,
}

/// Answer to a request that waits to be counted in the store, with the claim of its run id; `None` if it has no run id or the id
/// is used.
pub(super) type CountedRequest = Result<Option<RunIdClaim>, RateLimitError>;

/// Request that waits to be admitted by a commit.
pub(super) struct WaitingRequest {
    /// Id of the run that the same commit claims, if the client has chosen it.
    pub(super) new_id: Option<NewRunId>,
    pub(super) answer: oneshot::Sender<CountedRequest>,
}

/// Meter of requests that are counted together, with the state that this process knows.
pub(super) struct Meter {
    /// Record of the count over all processes; `None` if the ids cannot be a key.
    pub(super) record: Option<Key>,
    pub(super) per_minute: NonZeroU32,
    /// State of the record when it was written or read last, with what this process has admitted since.
    pub(super) known: Option<MinuteState>,
    /// Admitted requests that no commit has included.
    pub(super) uncounted: AdmittedBatch,
    /// Requests that wait to be admitted by a commit.
    pub(super) waiting: Vec<WaitingRequest>,
    /// Number of requests that the commit in progress may admit.
    pub(super) settling: usize,
    /// Number of requests that the commits of other modules may admit.
    pub(super) joined: usize,
    /// Rate of the counted requests that were refunded.
    refunded: Option<MinuteState>,
    /// True after a commit: other processes may have counted requests of the same moment since.
    pub(super) is_outdated: bool,
}

/// Decision on a request by a meter's known state.
pub(super) enum LocalDecision {
    /// Less than half of the limit is used.
    BelowHalf,
    /// The store decides.
    AskStore,
}

impl Meter {
    pub(super) fn new(record: Option<Key>, per_minute: NonZeroU32) -> Self {
        Self {
            record,
            per_minute,
            known: None,
            uncounted: AdmittedBatch::default(),
            waiting: Vec::new(),
            settling: 0,
            joined: 0,
            refunded: None,
            is_outdated: false,
        }
    }

    /// Decides on another request in addition to the waiting ones.
    ///
    /// # Errors
    /// The limit is reached, or would be once the waiting requests are admitted.
    pub(super) fn decide(&self, now: Duration) -> Result<LocalDecision, RateLimitError> {
        let used = MinuteUse::new(self.known, self.per_minute, now);
        let reserved = self.waiting.len() + self.settling + self.joined;
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

    /// Refunds a counted request that has not started. No more than the limit are refunded per minute: further ones stay
    /// counted, so that a client whose requests are refused cannot repeat them without end.
    pub(super) fn refund(&mut self, now: Duration) {
        let Ok(refunded) = MinuteState::admit(self.refunded, self.per_minute, now) else { return };
        self.refunded = Some(refunded);
        let mut request = AdmittedBatch::default();
        request.refund(self.per_minute, now);
        self.known = Some(MinuteState::with_batch(self.known, request, self.per_minute, now));
        if self.record.is_some() {
            self.uncounted.refund(self.per_minute, now);
        }
    }

    /// Adds a request that waits to be admitted by a commit, and returns the receiver of the answer.
    pub(super) fn wait(&mut self, new_id: Option<NewRunId>) -> oneshot::Receiver<CountedRequest> {
        let (answer, waiting) = oneshot::channel();
        self.waiting.push(WaitingRequest { new_id, answer });
        waiting
    }

    /// Replaces the known state by that of the record.
    pub(super) fn learn(&mut self, state: Option<MinuteState>, now: Duration) {
        self.known = self.with_uncounted(state, now);
    }

    /// Returns the state of the record with the requests that no commit has included.
    pub(super) fn with_uncounted(&self, state: Option<MinuteState>, now: Duration) -> Option<MinuteState> {
        match self.uncounted.is_empty() {
            true => state,
            false => Some(MinuteState::with_batch(state, self.uncounted, self.per_minute, now)),
        }
    }
}

/// The meters of the users that were active last, and the tasks of companies that have requests to count. Requests that
/// an evicted meter has not yet counted in the store are lost.
pub(super) struct MeterTable {
    pub(super) meters: CompanyTable<MeterId, Meter>,
    /// Companies whose task runs.
    pub(super) flushers: HashMap<CompanyId, Flusher>,
}

impl MeterTable {
    pub(super) fn new(limits: CompanyTableLimits) -> Self {
        Self { meters: CompanyTable::new(limits), flushers: HashMap::new() }
    }

    /// Returns true if requests of the company wait to be admitted by a commit.
    pub(super) fn has_waiting(&mut self, company_id: &CompanyId) -> bool {
        self.meters.company_mut(company_id).any(|(_, meter)| !meter.waiting.is_empty())
    }

    /// Releases the company's waiting requests, which are then decided by the state that this process knows.
    pub(super) fn release_waiting(&mut self, company_id: &CompanyId) {
        for (_, meter) in self.meters.company_mut(company_id) {
            meter.waiting.clear();
            meter.settling = 0;
        }
    }

    /// Records that the company has a request to count. Returns true if the caller must start the task.
    pub(super) fn notify(&mut self, company_id: &CompanyId, is_waiting: bool, now: Instant) -> bool {
        match self.flushers.entry(company_id.clone()) {
            Entry::Vacant(absent) => {
                absent.insert(Flusher::new(now + FLUSH_INTERVAL));
                true
            }
            Entry::Occupied(mut running) => {
                if is_waiting {
                    running.get_mut().wake();
                }
                false
            }
        }
    }
}

/// State of the task that counts a company's requests in the store.
pub(super) struct Flusher {
    /// Ends the task's pause, which lasts until its next commit is due.
    pause: Option<oneshot::Sender<()>>,
    /// Time of the next commit of requests that were admitted already.
    pub(super) due: Instant,
    unavailable_until: Option<Instant>,
}

impl Flusher {
    fn new(due: Instant) -> Self {
        Self { pause: None, due, unavailable_until: None }
    }

    /// Returns true if the store has failed just now.
    pub(super) fn is_unavailable(&self, now: Instant) -> bool {
        self.unavailable_until.is_some_and(|until| now < until)
    }

    /// Records a failure of the store, which is called again at `until`. Returns true if it had not failed before.
    pub(super) fn set_unavailable(&mut self, until: Instant) -> bool {
        self.due = until;
        self.unavailable_until.replace(until).is_none()
    }

    pub(super) fn set_available(&mut self) {
        self.unavailable_until = None;
    }

    /// Begins a pause, which the returned receiver ends early.
    pub(super) fn begin_pause(&mut self) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        self.pause = Some(wake);
        woken
    }

    pub(super) fn end_pause(&mut self) {
        self.pause = None;
    }

    /// Ends the task's pause, if it pauses.
    fn wake(&mut self) {
        if let Some(wake) = self.pause.take() {
            // The task has just been dropped if this fails.
            let _ = wake.send(());
        }
    }
}
