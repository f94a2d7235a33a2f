//! Failures of the embedding in the background, and the pauses before the next attempts. Pure.
//!
//! A failure belongs to the document. Only where two documents of a company fail in a row, the company pauses, and where two
//! companies do, all pause: then it is the server or the store that fails.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use agent_core::ids::CompanyId;

use crate::retrieval::queue::{MAX_DOCUMENTS, MAX_DOCUMENTS_PER_COMPANY};

/// Minimum pause after a failure. Each further failure in a row doubles it.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause of a document, of a company and of all companies.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Longest pause of a document for which the embedder gives invalid answers.
const MAX_INVALID_ANSWER_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Lane of the embedding. Each makes one attempt at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::retrieval) enum Lane {
    /// Documents that have not failed, of the other companies.
    Main,
    /// Documents that have failed, and all documents of a company with several failures in a row.
    Retries,
}

/// Cause of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::retrieval) enum FailureCause {
    /// The embedder or the store cannot be used; the delay is the one that the embedder requested.
    Unavailable(Option<Duration>),
    /// The embedder returned no vectors for the document's chunks.
    InvalidAnswer,
    /// A repetition fails too.
    Permanent,
}

/// Description of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::retrieval) struct FailedAttempt {
    /// Number of failed attempts in a row.
    pub(in crate::retrieval) failures: u32,
    /// Pause before the next attempt; `None` if the document is not tried again until it changes.
    pub(in crate::retrieval) pause: Option<Duration>,
}

/// The failures in a row, and when the next attempts are due.
#[derive(Default)]
pub(super) struct EmbeddingFailures {
    companies: HashMap<CompanyId, CompanyFailures>,
    /// Documents in the order of their next attempts.
    due: BTreeMap<DueKey, (CompanyId, String)>,
    next_number: u64,
    document_count: usize,
    /// Failures of different companies.
    common: FailureStreak<CompanyId>,
}

/// Time of the next attempt, and a number that distinguishes equal times.
type DueKey = (Instant, u64);

#[derive(Default)]
struct CompanyFailures {
    /// Failures of different documents.
    streak: FailureStreak<String>,
    documents: HashMap<String, FailedDocument>,
}

struct FailedDocument {
    /// Version of the document's record.
    version: u64,
    failures: u32,
    next: NextAttempt,
}

enum NextAttempt {
    At(DueKey),
    /// The document is queued, or is being tried.
    Queued,
    Never,
}

/// Failures of members of a group since the group's last success, and the pause of the group.
#[derive(Default)]
struct FailureStreak<M> {
    /// The member that failed first.
    first: Option<M>,
    /// Number of failures since another member failed, too; 0 while only one has failed.
    in_a_row: u32,
    paused_until: Option<Instant>,
}

impl EmbeddingFailures {
    /// Records a failed attempt. A document beyond the limits is not remembered: a search announces it again.
    pub(super) fn record(
        &mut self,
        company_id: &CompanyId,
        (id, version): (&str, u64),
        cause: FailureCause,
        now: Instant,
    ) -> FailedAttempt {
        let before = self.remove_document(company_id, id);
        let failures = before.filter(|before| before.version == version).map_or(0, |before| before.failures);
        let failures = failures.saturating_add(1);
        let pause = document_pause(cause, failures);
        let company = self.companies.entry(company_id.clone()).or_default();
        if pause.is_some() {
            company.streak.record(id.to_owned(), None, now);
            let retry_after = match cause {
                FailureCause::Unavailable(retry_after) => retry_after,
                FailureCause::InvalidAnswer | FailureCause::Permanent => None,
            };
            self.common.record(company_id.clone(), retry_after, now);
        }
        if company.documents.len() < MAX_DOCUMENTS_PER_COMPANY && self.document_count < MAX_DOCUMENTS {
            let next = match pause {
                Some(pause) => {
                    let key = (now + pause, self.next_number);
                    self.next_number += 1;
                    self.due.insert(key, (company_id.clone(), id.to_owned()));
                    NextAttempt::At(key)
                }
                None => NextAttempt::Never,
            };
            company.documents.insert(id.to_owned(), FailedDocument { version, failures, next });
            self.document_count += 1;
        }
        FailedAttempt { failures, pause }
    }

    /// Records that chunks of a document were embedded.
    pub(super) fn record_success(&mut self, company_id: &CompanyId, id: &str) {
        self.common = FailureStreak::default();
        if let Some(company) = self.companies.get_mut(company_id) {
            company.streak = FailureStreak::default();
        }
        self.forget(company_id, id);
    }

    /// Removes the failures of a document that was changed or is retried at once.
    pub(super) fn forget(&mut self, company_id: &CompanyId, id: &str) {
        self.remove_document(company_id, id);
        if self.companies.get(company_id).is_some_and(CompanyFailures::is_empty) {
            self.companies.remove(company_id);
        }
    }

    /// Forgets the failures of a document that was taken, and for which the embedder was not called. The failure of a document
    /// that is never tried again is kept.
    pub(super) fn abandon(&mut self, company_id: &CompanyId, id: &str) {
        let document = self.companies.get(company_id).and_then(|company| company.documents.get(id));
        if document.is_some_and(|document| matches!(document.next, NextAttempt::Queued)) {
            self.forget(company_id, id);
        }
    }

    /// Defers the documents of a company until a time, without recording a failure.
    pub(super) fn pause(&mut self, company_id: &CompanyId, until: Instant) {
        self.companies.entry(company_id.clone()).or_default().streak.paused_until = Some(until);
    }

    /// Returns true if a document has failed.
    pub(super) fn has_failed(&self, company_id: &CompanyId, id: &str) -> bool {
        self.companies.get(company_id).is_some_and(|company| company.documents.contains_key(id))
    }

    /// Returns true if a document waits for the time of its next attempt.
    pub(super) fn is_waiting(&self, company_id: &CompanyId, id: &str) -> bool {
        let document = self.companies.get(company_id).and_then(|company| company.documents.get(id));
        document.is_some_and(|document| matches!(document.next, NextAttempt::At(_)))
    }

    /// Returns true if a document has failed at a version.
    pub(super) fn has_failed_at(&self, company_id: &CompanyId, id: &str, version: u64) -> bool {
        let document = self.companies.get(company_id).and_then(|company| company.documents.get(id));
        document.is_some_and(|document| document.version == version)
    }

    /// Removes and returns the documents whose next attempt is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(CompanyId, String)> {
        let later = self.due.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.due, later);
        for (company_id, id) in due.values() {
            let company = self.companies.get_mut(company_id);
            if let Some(document) = company.and_then(|company| company.documents.get_mut(id)) {
                document.next = NextAttempt::Queued;
            }
        }
        due.into_values().collect()
    }

    /// Returns the end of the pause of all companies, if there is one.
    pub(super) fn common_pause(&self, now: Instant) -> Option<Instant> {
        self.common.pause(now)
    }

    /// Returns true if no document of a company may be tried now.
    pub(super) fn is_paused(&self, company_id: &CompanyId, now: Instant) -> bool {
        self.companies.get(company_id).is_some_and(|company| company.streak.pause(now).is_some())
    }

    /// Returns true if documents of a company that have not failed may be tried in a lane now.
    pub(super) fn may_try(&self, company_id: &CompanyId, lane: Lane, now: Instant) -> bool {
        let has_failed = self.companies.get(company_id).is_some_and(|company| company.streak.in_a_row > 0);
        has_failed == (lane == Lane::Retries) && !self.is_paused(company_id, now)
    }

    /// Returns the next time at which a pause ends or a document is due.
    pub(super) fn next_time(&self, now: Instant) -> Option<Instant> {
        if let Some(until) = self.common_pause(now) {
            return Some(until);
        }
        let pauses = self.companies.values().filter_map(|company| company.streak.pause(now));
        let next_due = self.due.keys().next().map(|(time, _)| *time);
        pauses.chain(next_due).filter(|time| now < *time).min()
    }

    fn remove_document(&mut self, company_id: &CompanyId, id: &str) -> Option<FailedDocument> {
        let removed = self.companies.get_mut(company_id)?.documents.remove(id)?;
        if let NextAttempt::At(key) = removed.next {
            self.due.remove(&key);
        }
        self.document_count -= 1;
        Some(removed)
    }
}

impl CompanyFailures {
    fn is_empty(&self) -> bool {
        let FailureStreak { first, paused_until, .. } = &self.streak;
        first.is_none() && paused_until.is_none() && self.documents.is_empty()
    }
}

impl<M: PartialEq> FailureStreak<M> {
    /// Records the failure of a member. A delay that the server asks for is meant for the whole group.
    fn record(&mut self, member: M, retry_after: Option<Duration>, now: Instant) {
        let is_first = self.first.as_ref().is_none_or(|first| *first == member);
        if self.in_a_row > 0 || !is_first || retry_after.is_some() {
            self.in_a_row = self.in_a_row.saturating_add(1);
            let pause = backoff(self.in_a_row, MAX_PAUSE).max(retry_after.unwrap_or_default());
            self.paused_until = Some(now + pause.min(MAX_PAUSE));
        }
        self.first.get_or_insert(member);
    }

    /// Returns the end of the pause, if there is one.
    fn pause(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| now < *until)
    }
}

/// Returns the pause of a document after a number of failures in a row; `None` if a repetition fails too.
fn document_pause(cause: FailureCause, failures: u32) -> Option<Duration> {
    match cause {
        FailureCause::Unavailable(_) => Some(backoff(failures, MAX_PAUSE)),
        FailureCause::InvalidAnswer => Some(backoff(failures, MAX_INVALID_ANSWER_PAUSE)),
        FailureCause::Permanent => None,
    }
}

/// Returns the pause after a number of failures in a row: it doubles from [`MIN_PAUSE`] up to a limit.
fn backoff(failures: u32, max_pause: Duration) -> Duration {
    MIN_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(max_pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNAVAILABLE: FailureCause = FailureCause::Unavailable(None);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_of_a_document_double_up_to_a_limit() {
        let cases = [
            (UNAVAILABLE, vec![1, 2, 4, 8, 16, 32, 60, 60]),
            (
                FailureCause::InvalidAnswer,
                vec![1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 3_600, 3_600],
            ),
        ];
        for (cause, pauses) in cases {
            let (mut failures, now) = (EmbeddingFailures::default(), Instant::now());
            for (number, pause) in (1..).zip(pauses) {
                let attempt = failures.record(&"a".into(), ("1", 7), cause, now);
                assert_eq!(attempt, FailedAttempt { failures: number, pause: Some(seconds(pause)) });
            }
            assert_eq!((failures.due.len(), failures.document_count), (1, 1), "only the last attempt counts");
        }
        assert_eq!(backoff(u32::MAX, MAX_PAUSE), MAX_PAUSE);
    }

    #[test]
    fn a_failed_document_is_due_after_its_pause_and_restarts_at_another_version() {
        let (mut failures, now, company) =
            (EmbeddingFailures::default(), Instant::now(), CompanyId::from("a"));
        failures.record(&company, ("1", 7), UNAVAILABLE, now);
        failures.record(&company, ("1", 7), UNAVAILABLE, now);
        assert!(failures.has_failed_at(&company, "1", 7) && !failures.has_failed_at(&company, "1", 8));
        assert!(failures.take_due(now + seconds(1)).is_empty());
        assert_eq!(failures.take_due(now + seconds(2)), [(company.clone(), "1".to_owned())]);
        assert!(failures.take_due(now + seconds(9)).is_empty(), "it is being tried");
        failures.abandon(&company, "1");
        assert!(!failures.has_failed(&company, "1"), "it can be announced again");
        failures.record(&company, ("1", 7), UNAVAILABLE, now);
        failures.abandon(&company, "1");
        assert!(failures.has_failed(&company, "1"), "it waits for its time");
        let changed = failures.record(&company, ("1", 8), UNAVAILABLE, now);
        assert_eq!(changed, FailedAttempt { failures: 1, pause: Some(seconds(1)) });
        failures.record_success(&company, "1");
        assert!(!failures.has_failed(&company, "1"));
        assert!(failures.companies.is_empty() && failures.due.is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_rejected_document_is_not_due_and_pauses_no_other() {
        let (mut failures, now, company) =
            (EmbeddingFailures::default(), Instant::now(), CompanyId::from("a"));
        let attempt = failures.record(&company, ("1", 7), FailureCause::Permanent, now);
        assert_eq!(attempt, FailedAttempt { failures: 1, pause: None });
        assert!(failures.has_failed_at(&company, "1", 7));
        assert!(failures.may_try(&company, Lane::Main, now));
        assert_eq!(failures.next_time(now), None);
        failures.abandon(&company, "1");
        assert!(failures.has_failed_at(&company, "1", 7), "it stays rejected");
    }

    #[test]
    fn failures_of_two_documents_pause_their_company() {
        let (mut failures, now) = (EmbeddingFailures::default(), Instant::now());
        let (failing, other) = (CompanyId::from("a"), CompanyId::from("b"));
        for document in ["1", "1"] {
            failures.record(&failing, (document, 1), UNAVAILABLE, now);
        }
        assert!(failures.may_try(&failing, Lane::Main, now), "only one document has failed");
        for document in ["2", "1", "3"] {
            failures.record(&failing, (document, 1), UNAVAILABLE, now);
        }
        assert_eq!(failures.common_pause(now), None);
        assert!(failures.may_try(&other, Lane::Main, now));
        assert!(!failures.may_try(&failing, Lane::Retries, now + seconds(3)));
        assert!(failures.may_try(&failing, Lane::Retries, now + seconds(4)));
        assert!(!failures.may_try(&failing, Lane::Main, now + seconds(4)), "others do not wait for it");
        failures.record_success(&failing, "4");
        assert!(failures.may_try(&failing, Lane::Main, now));
        assert_eq!(failures.next_time(now), Some(now + seconds(1)), "documents keep their pauses");
    }

    #[test]
    fn failures_of_two_companies_pause_all_until_one_succeeds() {
        let (mut failures, now) = (EmbeddingFailures::default(), Instant::now());
        let mut pauses = Vec::new();
        for company in ["a", "b", "c", "a", "d", "e", "f", "g", "h"] {
            failures.record(&company.into(), ("1", 1), UNAVAILABLE, now);
            pauses.push(failures.common_pause(now).map_or(0, |until| (until - now).as_secs()));
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(failures.next_time(now), Some(now + seconds(60)));
        failures.abandon(&"a".into(), "1");
        failures.forget(&"b".into(), "1");
        assert!(failures.common_pause(now).is_some(), "the embedder has not answered");
        failures.record_success(&"b".into(), "2");
        assert_eq!(failures.common_pause(now), None);
    }

    #[test]
    fn a_delay_that_the_server_asks_for_pauses_all() {
        let (mut failures, now) = (EmbeddingFailures::default(), Instant::now());
        let pause = |failures: &EmbeddingFailures| failures.common_pause(now).map(|until| until - now);
        for (asked, expected) in [(30, 30), (0, 2), (600, 60)] {
            failures.record(&"a".into(), ("1", 1), FailureCause::Unavailable(Some(seconds(asked))), now);
            assert_eq!(pause(&failures), Some(seconds(expected)));
        }
    }

    #[test]
    fn documents_of_a_company_are_remembered_up_to_a_limit() {
        let (mut failures, now, company) =
            (EmbeddingFailures::default(), Instant::now(), CompanyId::from("a"));
        for n in 0..MAX_DOCUMENTS_PER_COMPANY + 10 {
            failures.record(&company, (n.to_string().as_str(), 1), FailureCause::Permanent, now);
        }
        assert_eq!(failures.document_count, MAX_DOCUMENTS_PER_COMPANY);
        assert!(failures.has_failed(&company, "0"));
        let beyond = MAX_DOCUMENTS_PER_COMPANY.to_string();
        assert!(!failures.has_failed(&company, &beyond));
    }

    #[test]
    fn a_pause_without_a_failure_changes_no_lane() {
        let (mut failures, now, company) =
            (EmbeddingFailures::default(), Instant::now(), CompanyId::from("a"));
        failures.pause(&company, now + seconds(2));
        assert!(!failures.may_try(&company, Lane::Main, now));
        assert_eq!(failures.next_time(now), Some(now + seconds(2)));
        assert!(failures.may_try(&company, Lane::Main, now + seconds(2)));
    }
}
