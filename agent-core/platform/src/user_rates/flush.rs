//! Task of a company that counts its users' requests in the store.
//!
//! It runs while there is something to count. Requests that were admitted already are committed at intervals; those that
//! wait for the store are committed at once, and those that arrive meanwhile by the next commit. An interval after a
//! commit the record is read again, for what other processes have admitted in the same moment.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use futures_channel::oneshot;
use futures_util::future::select;

use super::metering::Metering;
use super::table::{CountedRequest, FLUSH_INTERVAL, Meter, MeterId};
use crate::minute_rate::{AdmittedBatch, MinuteState, RateLimitError};
use crate::records::{Key, Precondition, Record, StoreError, UPDATE_ATTEMPTS, Write, to_json};

/// Maximum number of meters in a commit.
const MAX_METERS_PER_COMMIT: usize = 200;
/// Time for which a process counts by itself after the store has failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The task. If it is dropped before its end, the next request starts another one.
pub(super) struct FlushTask {
    metering: Arc<Metering>,
    company_id: CompanyId,
    is_done: bool,
}

impl FlushTask {
    pub(super) fn new(metering: Arc<Metering>, company_id: CompanyId) -> Self {
        Self { metering, company_id, is_done: false }
    }

    pub(super) async fn run(mut self) {
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
                        self.metering.give_back(&self.company_id, all, &error);
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
    waiting: Vec<oneshot::Sender<CountedRequest>>,
}

/// Result of counting a meter's requests.
pub(super) struct SettledRequests {
    state: Option<MinuteState>,
    /// Number of waiting requests that are admitted.
    admitted: usize,
    /// Error of the others.
    refusal: Option<RateLimitError>,
}

impl UnsettledRequests {
    fn take(id: &MeterId, meter: &mut Meter) -> Option<Self> {
        let record = meter.record.clone()?;
        let waiting = std::mem::take(&mut meter.waiting);
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
        SettledRequests { state, admitted, refusal }
    }
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

    /// Takes the requests of a company that are due now, those that wait first; none if the next commit is not
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
        for (id, meter) in table.meters.company_mut(company_id) {
            meter.waiting.retain(|request| !request.is_canceled());
            let is_uncounted = !meter.uncounted.is_empty() || meter.is_outdated;
            if !meter.waiting.is_empty() || (is_due && is_uncounted) {
                unsettled.extend(UnsettledRequests::take(id, meter));
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
            match self.records.commit(writes).await {
                Ok(_) => return Ok(settled),
                // Another process has counted meanwhile.
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
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
        let mut table = self.lock();
        if let Some(flusher) = table.flushers.get_mut(company_id) {
            flusher.set_available();
        }
        for (requests, settled) in requests.into_iter().zip(settled) {
            let is_outdated = !requests.is_empty();
            let UnsettledRequests { id, waiting, .. } = requests;
            if let Some(meter) = table.meters.get_mut(company_id, &id) {
                meter.settling = 0;
                meter.is_outdated = is_outdated;
                meter.learn(settled.state, now);
            }
            for (number, request) in waiting.into_iter().enumerate() {
                let refusal = settled.refusal.filter(|_| number >= settled.admitted);
                // Fails if the caller was cancelled; its request is counted.
                let _ = request.send(refusal.map_or(Ok(()), Err));
            }
        }
    }

    /// Returns the requests that could not be counted to their meters. Those that wait are decided by this process's counts.
    fn give_back(&self, company_id: &CompanyId, requests: Vec<UnsettledRequests>, error: &StoreError) {
        let mut table = self.lock();
        for UnsettledRequests { id, per_minute, admitted, .. } in requests {
            if let Some(meter) = table.meters.get_mut(company_id, &id) {
                meter.uncounted = admitted.followed_by(meter.uncounted, per_minute);
            }
        }
        table.release_waiting(company_id);
        let Some(flusher) = table.flushers.get_mut(company_id) else { return };
        if flusher.set_unavailable(self.clock.monotonic() + RETRY_INTERVAL) {
            tracing::warn!(%error, company_id = %company_id, "failed to count requests in the store; this process counts alone");
        }
    }
}

/// Returns the state in a record; `None` if it is malformed, so that a commit replaces it.
pub(super) fn parse(found: Record, key: &Key) -> Option<MinuteState> {
    match found.parse(key.collection()) {
        Ok(record) => Some(record.value),
        Err(error) => {
            tracing::warn!(%error, "the count of a user's requests is malformed, and begins again");
            None
        }
    }
}
