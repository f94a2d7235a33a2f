use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_core::tool::ExecutionContext;
use agent_platform::memory::MemoryRecords;
use agent_platform::records::{Collection, ListQuery, Page, RecordsWrapper, Write};
use async_trait::async_trait;

use super::*;

fn context(company: &str, agent: &str) -> ExecutionContext {
    ExecutionContext {
        user_id: "ada".into(),
        company_id: company.into(),
        agent_id: agent.into(),
        ..ExecutionContext::default()
    }
}

const SMALL: Limits = Limits {
    max_calls_per_segment: 3,
    max_segments_per_agent: 4,
    max_pending_entries: 100,
    max_pending_per_company: 100,
    max_cached_agents: 2,
};

fn log(limits: Limits) -> AuditLog {
    AuditLog::bounded(Arc::new(MemoryRecords::default()), limits)
}

async fn tools(log: &AuditLog, company: &str, agent: &str) -> Vec<String> {
    let page = log.list_calls(&company.into(), &agent.into(), Some(200), None).await.expect("a page");
    assert_eq!(page.next_cursor, None);
    page.calls.into_iter().map(|call| call.tool).collect()
}

/// Records calls named by the numbers in `range`, and flushes after every `flush_interval` of them.
async fn record_calls(log: &AuditLog, range: std::ops::Range<usize>, flush_interval: usize) {
    for i in range {
        log.start_entry(&context("c", "a"), "t1", &i.to_string()).record_outcome(AuditOutcome::Ok);
        if i % flush_interval == 0 {
            log.flush().await;
        }
    }
    log.flush().await;
}

fn descending(from: usize, to: usize) -> Vec<String> {
    (to..=from).rev().map(|i| i.to_string()).collect()
}

#[tokio::test]
async fn calls_are_kept_by_agent_newest_first() {
    let log = log(SMALL);
    log.start_entry(&context("c", "a"), "t1", "first").record_outcome(AuditOutcome::Ok);
    log.start_entry(&context("c", "b"), "t1", "other").record_outcome(AuditOutcome::Refused);
    drop(log.start_entry(&context("c", "a"), "t1", "second"));
    log.start_entry(&context("d", "a"), "t1", &"ü".repeat(100)).record_outcome(AuditOutcome::Failed);
    log.flush().await;
    assert_eq!(tools(&log, "c", "a").await, ["second", "first"]);
    assert_eq!(tools(&log, "c", "b").await, ["other"]);
    assert_eq!(tools(&log, "d", "a").await, ["ü".repeat(64)]);
    assert!(tools(&log, "d", "b").await.is_empty());
    let page = log.list_calls(&"c".into(), &"a".into(), Some(1), None).await.expect("a page");
    let call = &page.calls[0];
    assert_eq!((call.user_id.as_str(), call.credential_id.as_str()), ("ada", "t1"));
    assert_eq!((call.outcome, call.run_id.as_deref()), (AuditOutcome::Cancelled, None));
    assert!(call.at.ends_with('Z') && call.at.len() == "2026-07-28T12:00:00.000Z".len(), "{}", call.at);
}

#[tokio::test]
async fn pages_give_each_call_once_while_others_are_recorded() {
    for flush_interval in [1, 2, 3, 7] {
        for limit in [1, 2, 3, 4, 50] {
            let log = log(Limits { max_segments_per_agent: 100, ..SMALL });
            record_calls(&log, 0..10, flush_interval).await;
            let (mut listed, mut cursor, mut next_call) = (Vec::new(), None, 10);
            loop {
                let page = log
                    .list_calls(&"c".into(), &"a".into(), Some(limit), cursor.as_deref())
                    .await
                    .expect("a page");
                assert!(page.calls.len() <= limit);
                listed.extend(page.calls.into_iter().map(|call| call.tool));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
                record_calls(&log, next_call..next_call + 1, 1).await;
                next_call += 1;
            }
            assert_eq!(listed, descending(9, 0), "{flush_interval} {limit}");
        }
    }
    let log = log(SMALL);
    record_calls(&log, 0..1, 1).await;
    for cursor in ["", "x", "1", "1.x", "x.y.z", "1.x.y"] {
        let error =
            log.list_calls(&"c".into(), &"a".into(), None, Some(cursor)).await.expect_err("no cursor");
        assert!(matches!(error, AuditError::InvalidCursor), "{cursor}");
    }
}

#[tokio::test]
async fn old_calls_make_room_for_new_ones() {
    let records = Arc::new(MemoryRecords::default());
    let log = AuditLog::bounded(records.clone(), SMALL);
    record_calls(&log, 0..14, 2).await;
    assert_eq!(
        tools(&log, "c", "a").await,
        descending(13, 3),
        "four segments of three, the last one not full"
    );
    // Another process starts a new segment rather than appending to this one.
    let second_log = AuditLog::bounded(records, SMALL);
    record_calls(&second_log, 14..16, 2).await;
    assert_eq!(tools(&second_log, "c", "a").await, descending(15, 6));
}

#[tokio::test]
async fn the_oldest_entries_are_dropped_if_the_queue_is_full() {
    let log = log(Limits { max_pending_entries: 3, ..SMALL });
    for i in 0..10 {
        log.start_entry(&context("c", "a"), "t1", &i.to_string()).record_outcome(AuditOutcome::Ok);
    }
    log.flush().await;
    assert_eq!(tools(&log, "c", "a").await, descending(9, 7));
}

#[tokio::test(start_paused = true)]
async fn entries_are_written_without_a_flush() {
    let log = log(SMALL);
    log.start_entry(&context("c", "a"), "t1", "x").record_outcome(AuditOutcome::Ok);
    while tools(&log, "c", "a").await.is_empty() {
        time::sleep(Duration::from_millis(50)).await;
    }
}

/// A store that can be made unavailable.
#[derive(Default)]
struct UnavailableRecords {
    inner: MemoryRecords,
    is_unavailable: AtomicBool,
    /// True if it commits writes although it reports an error.
    commits_anyway: bool,
    failed_requests: AtomicUsize,
}

impl UnavailableRecords {
    fn check(&self) -> Result<(), StoreError> {
        if !self.is_unavailable.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.failed_requests.fetch_add(1, Ordering::Relaxed);
        Err(StoreError::unavailable("it is being moved"))
    }

    /// Waits until `count` requests have failed.
    async fn wait_for_failures(&self, count: usize) {
        while self.failed_requests.load(Ordering::Relaxed) < count {
            time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[async_trait]
impl RecordsWrapper for UnavailableRecords {
    fn inner(&self) -> &dyn Records {
        &self.inner
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        if !self.commits_anyway {
            self.check()?;
        }
        self.inner.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        if self.commits_anyway {
            let result = self.inner.commit(writes).await;
            self.check().and(result)
        } else {
            self.check()?;
            self.inner.commit(writes).await
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_wait_until_the_store_answers_again() {
    // Number of calls before the outage, and whether the store commits writes that it does not acknowledge: on a new
    // segment, on one with room, and on a full one.
    for (call_count, commits_anyway) in [(0, false), (2, false), (3, false), (0, true), (2, true), (3, true)]
    {
        let records = Arc::new(UnavailableRecords { commits_anyway, ..UnavailableRecords::default() });
        let log = AuditLog::bounded(records.clone(), Limits { max_segments_per_agent: 100, ..SMALL });
        record_calls(&log, 0..call_count, 1).await;
        records.is_unavailable.store(true, Ordering::Relaxed);
        for round in 0..4 {
            for agent in ["a", "b"] {
                log.start_entry(&context("c", agent), "t1", &(call_count + round).to_string())
                    .record_outcome(AuditOutcome::Ok);
            }
            records.wait_for_failures(2 * (round + 1)).await;
        }
        records.is_unavailable.store(false, Ordering::Relaxed);
        while tools(&log, "c", "a").await.len() < call_count + 4 || tools(&log, "c", "b").await.len() < 4 {
            time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(
            tools(&log, "c", "a").await,
            descending(call_count + 3, 0),
            "{call_count} {commits_anyway}: each once, in order"
        );
        assert_eq!(
            tools(&log, "c", "b").await,
            descending(call_count + 3, call_count),
            "{call_count} {commits_anyway}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_calls_are_dropped_while_the_store_is_unavailable() {
    let records = Arc::new(UnavailableRecords::default());
    let log = AuditLog::bounded(records.clone(), Limits { max_pending_entries: 5, ..SMALL });
    records.is_unavailable.store(true, Ordering::Relaxed);
    for i in 0..20 {
        log.start_entry(&context("c", "a"), "t1", &i.to_string()).record_outcome(AuditOutcome::Ok);
        if i % 4 == 0 {
            let failures = records.failed_requests.load(Ordering::Relaxed);
            records.wait_for_failures(failures + 1).await;
        }
    }
    let (queued, dropped) = {
        let mut pending = log.0.lock();
        (pending.len(), pending.take_dropped())
    };
    assert_eq!(queued, 5);
    assert!(dropped > 0, "entries were dropped since the last warning");
    records.is_unavailable.store(false, Ordering::Relaxed);
    log.flush().await;
    assert_eq!(tools(&log, "c", "a").await, descending(19, 15));
}

#[tokio::test(start_paused = true)]
async fn a_flush_ends_while_the_store_is_unavailable() {
    let records = Arc::new(UnavailableRecords::default());
    let log = AuditLog::bounded(records.clone(), SMALL);
    records.is_unavailable.store(true, Ordering::Relaxed);
    record_calls(&log, 0..2, 2).await;
    assert!(records.failed_requests.load(Ordering::Relaxed) > 2, "the writer has retried");
    records.is_unavailable.store(false, Ordering::Relaxed);
    log.flush().await;
    assert_eq!(tools(&log, "c", "a").await, descending(1, 0));
}

#[tokio::test]
async fn invalid_entries_do_not_block_others() {
    let log = log(SMALL);
    log.start_entry(&context("", "a"), "t1", "nowhere").record_outcome(AuditOutcome::Ok);
    log.start_entry(&context("c", "a"), "t1", "here").record_outcome(AuditOutcome::Ok);
    log.flush().await;
    assert_eq!(tools(&log, "c", "a").await, ["here"]);
    assert!(log.0.lock().len() == 0);
}

#[tokio::test]
async fn a_company_that_fills_the_queue_drops_its_own_entries() {
    let limits = Limits { max_pending_entries: 6, max_pending_per_company: 4, ..SMALL };
    let mut pending = PendingEntries::new(limits);
    let call = |tool: &str| CallRecord {
        at: String::new(),
        user_id: "ada".into(),
        credential_id: "t1".into(),
        run_id: None,
        tool: tool.to_owned(),
        duration_ms: 0,
        outcome: AuditOutcome::Ok,
        decision: None,
    };
    let mut push = |company: &str, tool: &str| pending.push_newest((company.into(), "a".into()), call(tool));
    push("quiet", "q1");
    for n in 1..=9 {
        push("loud", &format!("l{n}"));
    }
    push("quiet", "q2");
    push("other", "o1");
    let tools: Vec<_> = pending.take(10).into_iter().map(|(_, call)| call.tool).collect();
    assert_eq!(tools, ["q1", "l7", "l8", "l9", "q2", "o1"]);
    assert_eq!(pending.take_dropped(), 6);
}
