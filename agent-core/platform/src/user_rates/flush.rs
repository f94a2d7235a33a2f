//! Task of a company that counts its users' requests in the store.
//!
//! It runs while there is something to count. Requests that were admitted already are committed at intervals; those that
//! wait for the store are committed at once, and those that arrive meanwhile by the next commit. An interval after a
//! commit the record is read again, to include requests that other processes have admitted at the same time.
//!
//! A commit that admits runs whose ids their clients have chosen claims these ids, too.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use futures_util::future::select;

use super::metering::Metering;
use super::table::{FLUSH_INTERVAL, Meter, MeterId, WaitingRequest};
use crate::error_text::with_sources;
use crate::minute_rate::{AdmittedBatch, MinuteState, RateLimitError};
use crate::records::{Key, Precondition, Record, StoreError, UPDATE_ATTEMPTS, Write, to_json};
use crate::run_registry::NewRunId;

/// Maximum numbers of meters and of run ids in a commit, which has one write of a meter and three of an id. PostgreSQL locks 256
/// records one by one; for more, it would lock all that the platform has, and the requests of other companies would wait.
const MAX_METERS_PER_COMMIT: usize = 100;
const MAX_RUN_IDS_PER_COMMIT: usize = 50;
/// Time for which a process counts by itself after the store has failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The task. If it is dropped before its end, the next request starts another one.
pub(super) struct FlushTask {
    metering: Arc<Metering>,
    company_id: CompanyId,
    is_done: bool,
}

impl FlushTask {
    /// Starts the task of a company. The caller does not hold the lock of the meters.
    pub(super) fn start(metering: &Arc<Metering>, company_id: &CompanyId) {
        // Created here, since a runtime that shuts down drops the task before its first poll.
        let task = Self { metering: metering.clone(), company_id: company_id.clone(), is_done: false };
        metering.spawner.spawn(Box::pin(task.run()));
    }

    async fn run(mut self) {
        loop {
            self.metering.pause(&self.company_id).await;
            let Some(mut unsettled) = self.metering.take_unsettled(&self.company_id) else { break };
            while !unsettled.is_empty() {
                let later = unsettled.split_off(unsettled.len().min(MAX_METERS_PER_COMMIT));
                let requests = std::mem::replace(&mut unsettled, later);
                match self.metering.settle(&requests).await {
                    Ok(settled) => self.metering.publish(&self.company_id, requests, settled),
                    Err(error) => {
                        let all = requests.into_iter().chain(unsettled).collect();
                        self.metering.return_requests(&self.company_id, all, &error);
                        break;
                    }
                }
            }
        }
        self.is_done = true;
    }
}

impl Drop for FlushTask {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut table = self.metering.lock();
        table.flushers.remove(&self.company_id);
        table.release_waiting(&self.company_id);
    }
}

/// Requests of a meter that a commit counts.
pub(super) struct UnsettledRequests {
    id: MeterId,
    record: Key,
    per_minute: NonZeroU32,
    admitted: AdmittedBatch,
    waiting: Vec<WaitingRequest>,
}

/// Result of counting a meter's requests.
pub(super) struct SettledRequests {
    state: Option<MinuteState>,
    /// Number of waiting requests that are admitted.
    admitted: usize,
    /// Error of the others.
    refusal: Option<RateLimitError>,
    /// Versions of the run ids that are claimed, by the positions of their requests.
    claimed: HashMap<usize, Option<u64>>,
}

impl UnsettledRequests {
    /// Takes the requests of a meter, as many as there is room for with run ids.
    fn take(id: &MeterId, meter: &mut Meter, room_for_ids: &mut usize) -> Option<Self> {
        let record = meter.record.clone()?;
        let waiting = take_waiting(&mut meter.waiting, room_for_ids);
        meter.settling = waiting.len();
        Some(Self {
            id: id.clone(),
            record,
            per_minute: meter.per_minute,
            admitted: std::mem::take(&mut meter.uncounted),
            waiting,
        })
    }

    /// Returns true if there is nothing to count, so that the record is only read.
    fn is_empty(&self) -> bool {
        self.admitted.is_empty() && self.waiting.is_empty()
    }

    /// Counts the requests over the state of the record.
    fn settle(&self, stored_state: Option<MinuteState>, now: Duration) -> SettledRequests {
        let mut state = match self.admitted.is_empty() {
            true => stored_state,
            false => Some(MinuteState::with_batch(stored_state, self.admitted, self.per_minute, now)),
        };
        let (mut admitted, mut refusal) = (0, None);
        while admitted < self.waiting.len() {
            match MinuteState::admit(state, self.per_minute, now) {
                Ok(next) => state = Some(next),
                Err(error) => {
                    refusal = Some(error);
                    break;
                }
            }
            admitted += 1;
        }
        SettledRequests { state, admitted, refusal, claimed: HashMap::new() }
    }

    /// Returns the run ids of the first `count` waiting requests, with the positions of these.
    fn new_ids(&self, count: usize) -> impl Iterator<Item = (usize, &NewRunId)> {
        let waiting = self.waiting.iter().take(count).enumerate();
        waiting.filter_map(|(position, request)| Some((position, request.new_id.as_ref()?)))
    }
}

/// Takes requests from the front, as many as there is room for with run ids.
fn take_waiting(waiting: &mut Vec<WaitingRequest>, room_for_ids: &mut usize) -> Vec<WaitingRequest> {
    let has_room = |request: &&WaitingRequest| {
        let needed = usize::from(request.new_id.is_some());
        let has_room = *room_for_ids >= needed;
        *room_for_ids = room_for_ids.saturating_sub(needed);
        has_room
    };
    let count = waiting.iter().take_while(has_room).count();
    let later = waiting.split_off(count);
    std::mem::replace(waiting, later)
}

/// Adds the claims of the run ids of admitted requests to the writes of a commit, except those of `used` ids and of an id that
/// occurs before. Returns for each the positions of the meter, of the request and of the write that puts the id.
fn add_claims(
    requests: &[UnsettledRequests],
    settled: &[SettledRequests],
    used: &HashSet<&Key>,
    writes: &mut Vec<Write>,
) -> Result<Vec<[usize; 3]>, StoreError> {
    let (mut seen, mut claims) = (HashSet::new(), Vec::new());
    for (meter, (requests, settled)) in requests.iter().zip(settled).enumerate() {
        for (position, new_id) in requests.new_ids(settled.admitted) {
            if !used.contains(new_id.key()) && seen.insert(new_id.key()) {
                writes.extend(new_id.writes()?);
                claims.push([meter, position, writes.len() - 1]);
            }
        }
    }
    Ok(claims)
}

impl Metering {
    /// Waits until requests of a company are due to be counted.
    async fn pause(&self, company_id: &CompanyId) {
        let (woken, duration) = {
            let mut table = self.lock();
            if table.has_waiting(company_id) {
                return;
            }
            let Some(flusher) = table.flushers.get_mut(company_id) else { return };
            (flusher.begin_pause(), flusher.due.saturating_duration_since(self.clock.monotonic()))
        };
        select(woken, self.clock.sleep(duration)).await;
    }

    /// Takes the requests of a company that are due now, waiting ones first; none if the next commit is not
    /// due. Returns `None` and ends the task if there is nothing to count.
    fn take_unsettled(&self, company_id: &CompanyId) -> Option<Vec<UnsettledRequests>> {
        let mut table = self.lock();
        let now = self.clock.monotonic();
        let flusher = table.flushers.get_mut(company_id)?;
        flusher.end_pause();
        let is_due = flusher.due <= now;
        if is_due {
            flusher.due = now + FLUSH_INTERVAL;
        }
        let (mut unsettled, mut is_pending) = (Vec::new(), false);
        let mut room_for_ids = MAX_RUN_IDS_PER_COMMIT;
        for (id, meter) in table.meters.company_mut(company_id) {
            meter.waiting.retain(|request| !request.answer.is_canceled());
            let is_uncounted = !meter.uncounted.is_empty() || meter.is_outdated;
            let first = meter.waiting.first();
            // Requests without room go with the next commit, which is made at once.
            let has_room = first.is_some_and(|first| first.new_id.is_none() || room_for_ids > 0);
            if has_room || (is_due && is_uncounted) {
                unsettled.extend(UnsettledRequests::take(id, meter, &mut room_for_ids));
            }
            is_pending |= is_uncounted;
        }
        if unsettled.is_empty() && !is_pending {
            table.flushers.remove(company_id);
            return None;
        }
        unsettled.sort_by_key(|requests| requests.waiting.is_empty());
        Some(unsettled)
    }

    /// Counts requests by one commit, unless none of them changes a record.
    async fn settle(&self, requests: &[UnsettledRequests]) -> Result<Vec<SettledRequests>, StoreError> {
        let keys: Vec<Key> = requests.iter().map(|requests| requests.record.clone()).collect();
        let new_ids: Vec<&NewRunId> =
            requests.iter().flat_map(|requests| requests.new_ids(usize::MAX)).map(|(_, id)| id).collect();
        let mut used = HashSet::new();
        let mut attempt = 1;
        loop {
            let stored_records = self.records.get_many(&keys).await?;
            let now = self.now();
            let (mut settled, mut writes) = (Vec::with_capacity(keys.len()), Vec::new());
            for ((requests, key), record) in requests.iter().zip(&keys).zip(stored_records) {
                let precondition =
                    Precondition::unchanged_since(record.as_ref().map(|record| record.version));
                let result = requests.settle(record.and_then(|record| parse(record, key)), now);
                if let Some(state) =
                    result.state.filter(|_| result.admitted > 0 || !requests.admitted.is_empty())
                {
                    writes.push(Write::Put { key: key.clone(), value: to_json(&state)?, precondition });
                }
                settled.push(result);
            }
            if writes.is_empty() {
                return Ok(settled);
            }
            let claims = add_claims(requests, &settled, &used, &mut writes)?;
            let error = match self.records.commit(writes).await {
                Ok(versions) => {
                    for [meter, position, write] in claims {
                        let version = versions.get(write).copied().flatten();
                        settled[meter].claimed.insert(position, version);
                    }
                    return Ok(settled);
                }
                Err(error) => error,
            };
            // Another process has counted meanwhile, or an id is used.
            if !matches!(error, StoreError::Conflict { .. }) || attempt >= UPDATE_ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
            // A conflict with an expected version is one with another count.
            if matches!(error, StoreError::Conflict { expected: None, .. }) && !new_ids.is_empty() {
                used = NewRunId::find_used(&*self.records, &new_ids).await?;
            }
        }
    }

    /// Sends the decisions to the requests that waited, and stores the states of the records in memory.
    fn publish(
        &self,
        company_id: &CompanyId,
        requests: Vec<UnsettledRequests>,
        settled: Vec<SettledRequests>,
    ) {
        let now = self.now();
        let mut unclaimed = Vec::new();
        let mut table = self.lock();
        if let Some(flusher) = table.flushers.get_mut(company_id) {
            flusher.set_available();
        }
        for (requests, mut settled) in requests.into_iter().zip(settled) {
            let is_outdated = !requests.is_empty();
            let UnsettledRequests { id, waiting, .. } = requests;
            if let Some(meter) = table.meters.get_mut(company_id, &id) {
                meter.settling = 0;
                meter.is_outdated = is_outdated;
                meter.learn(settled.state, now);
            }
            for (position, WaitingRequest { new_id, answer }) in waiting.into_iter().enumerate() {
                let claim = settled.claimed.remove(&position).zip(new_id);
                let claim = claim.map(|(version, new_id)| new_id.claimed(self.records.clone(), &[version]));
                let refusal = settled.refusal.filter(|_| position >= settled.admitted);
                // Fails if the caller was cancelled; its request is counted.
                if let Err(Ok(Some(claim))) = answer.send(refusal.map_or(Ok(claim), Err)) {
                    unclaimed.push(claim);
                }
            }
        }
        drop(table);
        for claim in unclaimed {
            self.spawner.spawn(Box::pin(claim.release()));
        }
    }

    /// Returns the requests that could not be counted to their meters. Those that wait are decided by this process's counts.
    fn return_requests(&self, company_id: &CompanyId, requests: Vec<UnsettledRequests>, error: &StoreError) {
        let mut table = self.lock();
        for UnsettledRequests { id, per_minute, admitted, .. } in requests {
            if let Some(meter) = table.meters.get_mut(company_id, &id) {
                meter.uncounted = admitted.followed_by(meter.uncounted, per_minute);
            }
        }
        table.release_waiting(company_id);
        let Some(flusher) = table.flushers.get_mut(company_id) else { return };
        if flusher.set_unavailable(self.clock.monotonic() + RETRY_INTERVAL) {
            let cause = with_sources(error);
            tracing::warn!(error = cause, company_id = %company_id, "failed to count requests in the store; this process counts its own requests only");
        }
    }
}

/// Returns the state in a record; `None` if it is malformed, so that a commit replaces it.
pub(super) fn parse(found: Record, key: &Key) -> Option<MinuteState> {
    match found.parse(key.collection()) {
        Ok(record) => Some(record.value),
        Err(error) => {
            tracing::warn!(%error, "a stored count of a user's requests is malformed; counting starts again at zero");
            None
        }
    }
}
