//! Queue of the documents that lack vectors, in two lanes.
//!
//! In the main lane, companies alternate. The retry lane runs at the same time. It has the documents that failed before, and
//! all documents of a company after several failures in a row. An embedder that hangs with a company's documents therefore
//! delays other companies for two attempts at most.

mod failures;

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use agent_core::clock::Clock;
use agent_core::ids::CompanyId;
use agent_retrieval::embed::EmbedError;
use futures_util::future::select;

use self::failures::EmbeddingFailures;
pub(super) use self::failures::{FailedAttempt, FailureCause, Lane};
use super::queue::{DocumentQueue, MAX_DOCUMENTS, MAX_DOCUMENTS_PER_COMPANY, WakeSignal};
use crate::company_table::{CompanyTable, CompanyTableLimits};

/// Maximum numbers of attempts that are kept: those of the documents that wait.
const ATTEMPT_LIMITS: CompanyTableLimits =
    CompanyTableLimits { total: MAX_DOCUMENTS, per_company: MAX_DOCUMENTS_PER_COMPANY };

/// An attempt to embed a document that continues behind chunks that have failed.
#[derive(Debug, Default)]
pub(super) struct EmbeddingAttempt {
    /// Version of the document's record.
    pub(super) version: u64,
    /// First chunk that was not tried yet.
    pub(super) next_chunk: usize,
    /// Failure of the chunks before.
    pub(super) failure: Option<EmbedError>,
    /// Number of failed calls since the last one that succeeded.
    pub(super) failures_in_a_row: u32,
}

/// Documents to embed in the background, and those whose embedding has failed.
pub(super) struct EmbeddingQueue {
    /// Documents that have not failed.
    ready: DocumentQueue,
    /// Failed documents that are due again.
    retried: DocumentQueue,
    failures: Mutex<EmbeddingFailures>,
    /// Attempts that continue with the next slices of their documents.
    attempts: Mutex<CompanyTable<String, EmbeddingAttempt>>,
    signals: [WakeSignal; 2],
}

impl Default for EmbeddingQueue {
    fn default() -> Self {
        Self {
            ready: DocumentQueue::default(),
            retried: DocumentQueue::default(),
            failures: Mutex::default(),
            attempts: Mutex::new(CompanyTable::new(ATTEMPT_LIMITS)),
            signals: Default::default(),
        }
    }
}

impl EmbeddingQueue {
    /// Adds a document, unless it waits already or has failed at this version.
    pub(super) fn push(&self, company_id: &CompanyId, id: &str, version: u64) {
        let has_failed = self.lock().has_failed_at(company_id, id, version);
        if !has_failed {
            self.push_ready(company_id, id);
        }
    }

    /// Adds a document, also if it has failed.
    pub(super) fn push_again(&self, company_id: &CompanyId, id: &str) {
        self.forget(company_id, id);
        self.push_ready(company_id, id);
    }

    /// Forgets the failures of a document that was changed.
    pub(super) fn forget(&self, company_id: &CompanyId, id: &str) {
        self.lock().forget(company_id, id);
    }

    /// Forgets the failures of a document that was taken, and for which the embedder was not called, so that it can be added again.
    pub(super) fn abandon(&self, company_id: &CompanyId, id: &str) {
        self.lock().abandon(company_id, id);
    }

    /// Waits for a document of a lane and takes it.
    pub(super) async fn next(&self, lane: Lane, clock: &dyn Clock) -> (CompanyId, String) {
        loop {
            let now = clock.monotonic();
            let next_time = match self.take(lane, now) {
                Ok(next) => return next,
                Err(next_time) => next_time,
            };
            let notified = pin!(self.signals[lane as usize].notified());
            match next_time {
                Some(time) => drop(select(notified, clock.sleep(time.saturating_duration_since(now))).await),
                None => notified.await,
            }
        }
    }

    /// Records that chunks of a document were embedded. An unfinished document waits again.
    pub(super) fn record_success(&self, company_id: &CompanyId, id: &str, is_unfinished: bool) {
        self.lock().record_success(company_id, id);
        if is_unfinished {
            self.ready.push(company_id, id);
        }
        self.notify();
    }

    /// Queues a document for the next slice of an attempt that is still open: it has neither succeeded nor failed.
    pub(super) fn resume(&self, company_id: &CompanyId, id: &str) {
        self.push_ready(company_id, id);
    }

    /// Keeps an attempt for the next slice of its document. At a limit, the oldest one of the same company, or of the one with
    /// the most, is forgotten and begins again.
    pub(super) fn keep_attempt(&self, company_id: &CompanyId, id: &str, attempt: EmbeddingAttempt) {
        self.lock_attempts().insert(company_id, id.to_owned(), attempt);
    }

    /// Removes and returns the attempt at a document.
    pub(super) fn take_attempt(&self, company_id: &CompanyId, id: &str) -> Option<EmbeddingAttempt> {
        self.lock_attempts().remove(company_id, id)
    }

    /// Records a failed attempt at a version of a document, and schedules the next attempt.
    pub(super) fn record_failure(
        &self,
        company_id: &CompanyId,
        document: (&str, u64),
        cause: FailureCause,
        now: Instant,
    ) -> FailedAttempt {
        let attempt = self.lock().record(company_id, document, cause, now);
        self.notify();
        attempt
    }

    /// Defers a document, and all others of the company, until a time.
    pub(super) fn defer(&self, company_id: &CompanyId, id: &str, until: Instant) {
        let mut failures = self.lock();
        failures.pause(company_id, until);
        let queue = if failures.has_failed(company_id, id) { &self.retried } else { &self.ready };
        queue.push(company_id, id);
        drop(failures);
        self.notify();
    }

    /// Takes a document of a lane; if there is none, returns the time at which there may be one.
    fn take(&self, lane: Lane, now: Instant) -> Result<(CompanyId, String), Option<Instant>> {
        let mut failures = self.lock();
        if let Some(until) = failures.common_pause(now) {
            return Err(Some(until));
        }
        for (company_id, id) in failures.take_due(now) {
            self.retried.push(&company_id, &id);
            self.signals[Lane::Retries as usize].notify();
        }
        let failures = &*failures;
        // A document that was announced during its failed attempt waits for the next one.
        let take_ready = || loop {
            let next = self.ready.take_of(|company_id| failures.may_try(company_id, lane, now))?;
            if !failures.is_waiting(&next.0, &next.1) {
                return Some(next);
            }
        };
        let next = match lane {
            Lane::Main => take_ready(),
            Lane::Retries => {
                let due = self.retried.take_of(|company_id| !failures.is_paused(company_id, now));
                due.or_else(take_ready)
            }
        };
        next.ok_or_else(|| failures.next_time(now))
    }

    fn push_ready(&self, company_id: &CompanyId, id: &str) {
        self.ready.push(company_id, id);
        self.notify();
    }

    fn notify(&self) {
        self.signals.iter().for_each(WakeSignal::notify);
    }

    /// Locks the attempts. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock_attempts(&self) -> MutexGuard<'_, CompanyTable<String, EmbeddingAttempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the failures. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn lock(&self) -> MutexGuard<'_, EmbeddingFailures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn take(queue: &EmbeddingQueue, lane: Lane, now: Instant) -> Option<String> {
        queue.take(lane, now).ok().map(|(company_id, id)| format!("{company_id}{id}"))
    }

    #[test]
    fn a_failed_company_is_tried_beside_the_others() {
        let (queue, now) = (EmbeddingQueue::default(), Instant::now());
        for (company, id) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")] {
            queue.push(&company.into(), id, 1);
        }
        queue.push(&"a".into(), "3", 1);
        for id in ["1", "2"] {
            assert_eq!(take(&queue, Lane::Main, now), Some(format!("a{id}")));
            assert_eq!(take(&queue, Lane::Retries, now), None);
            queue.record_failure(&"a".into(), (id, 1), FailureCause::Unavailable(None), now);
            assert_eq!(take(&queue, Lane::Main, now), Some(format!("b{id}")));
            queue.record_success(&"b".into(), id, false);
        }
        assert_eq!(take(&queue, Lane::Main, now), None);
        assert_eq!(queue.take(Lane::Retries, now), Err(Some(now + SECOND)));
        let later = now + SECOND;
        assert_eq!(take(&queue, Lane::Main, later), None);
        assert_eq!(take(&queue, Lane::Retries, later), Some("a1".to_owned()));
        assert_eq!(take(&queue, Lane::Retries, later), Some("a2".to_owned()));
        assert_eq!(take(&queue, Lane::Retries, later), Some("a3".to_owned()));
    }

    #[test]
    fn a_failed_document_is_not_embedded_again_until_it_changes() {
        let (queue, now) = (EmbeddingQueue::default(), Instant::now());
        queue.record_failure(&"a".into(), ("1", 1), FailureCause::Permanent, now);
        queue.push(&"a".into(), "1", 1);
        assert_eq!(take(&queue, Lane::Main, now), None);
        queue.push(&"a".into(), "1", 2);
        assert_eq!(take(&queue, Lane::Main, now), Some("a1".to_owned()));
        queue.push_again(&"a".into(), "1");
        assert_eq!(take(&queue, Lane::Main, now), Some("a1".to_owned()));
        queue.push(&"a".into(), "1", 1);
        assert_eq!(take(&queue, Lane::Main, now), Some("a1".to_owned()), "its failures are forgotten");
    }

    #[test]
    fn a_document_that_is_announced_during_its_attempt_waits_if_that_fails() {
        let (queue, now) = (EmbeddingQueue::default(), Instant::now());
        queue.push(&"a".into(), "1", 1);
        assert_eq!(take(&queue, Lane::Main, now), Some("a1".to_owned()));
        queue.push(&"a".into(), "1", 1);
        queue.record_failure(&"a".into(), ("1", 1), FailureCause::Unavailable(None), now);
        assert_eq!(queue.take(Lane::Main, now), Err(Some(now + SECOND)));
        assert_eq!(take(&queue, Lane::Retries, now + SECOND), Some("a1".to_owned()));
        assert_eq!(take(&queue, Lane::Main, now + SECOND), None);
    }

    #[test]
    fn a_company_whose_lease_is_taken_waits_alone() {
        let (queue, now) = (EmbeddingQueue::default(), Instant::now());
        queue.push(&"a".into(), "1", 1);
        queue.push(&"b".into(), "1", 1);
        assert_eq!(take(&queue, Lane::Main, now), Some("a1".to_owned()));
        queue.defer(&"a".into(), "1", now + SECOND);
        assert_eq!(take(&queue, Lane::Main, now), Some("b1".to_owned()));
        assert_eq!(take(&queue, Lane::Main, now), None);
        assert_eq!(take(&queue, Lane::Main, now + SECOND), Some("a1".to_owned()));
    }

    #[test]
    fn unfinished_documents_wait_behind_the_other_companies() {
        let (queue, now) = (EmbeddingQueue::default(), Instant::now());
        queue.push(&"a".into(), "1", 1);
        queue.push(&"b".into(), "1", 1);
        assert_eq!(take(&queue, Lane::Main, now), Some("a1".to_owned()));
        queue.record_success(&"a".into(), "1", true);
        assert_eq!(take(&queue, Lane::Main, now), Some("b1".to_owned()));
        assert_eq!(take(&queue, Lane::Main, now), Some("a1".to_owned()));
    }

    #[test]
    fn attempts_of_one_company_evict_none_of_another() {
        let queue = EmbeddingQueue::default();
        let keep = |company: &str, id: &str, next_chunk: usize| {
            let attempt = EmbeddingAttempt { next_chunk, ..EmbeddingAttempt::default() };
            queue.keep_attempt(&company.into(), id, attempt);
        };
        keep("b", "1", 1);
        for n in 0..MAX_DOCUMENTS {
            keep("a", &n.to_string(), 2);
        }
        keep("c", "1", 3);
        let next_chunk = |company: &str, id: &str| Some(queue.take_attempt(&company.into(), id)?.next_chunk);
        assert_eq!([next_chunk("b", "1"), next_chunk("c", "1")], [Some(1), Some(3)]);
        let last = (MAX_DOCUMENTS - 1).to_string();
        assert_eq!([next_chunk("a", "0"), next_chunk("a", &last)], [None, Some(2)], "it has its share");
    }
}
