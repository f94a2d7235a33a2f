use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;
use crate::memory::MemoryRecords;
use crate::records::{
    Record, Records, RecordsExt, RecordsWrapper, StoreError, UPDATE_ATTEMPTS, UpdateAttempts, Write,
};

/// Record store double whose commits let other writers read first, and are counted.
#[derive(Default)]
struct YieldingRecords {
    inner: MemoryRecords,
    commits: AtomicUsize,
}

#[async_trait]
impl RecordsWrapper for YieldingRecords {
    fn inner(&self) -> &dyn Records {
        &self.inner
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let mut is_first_poll = true;
        std::future::poll_fn(|context| {
            if std::mem::take(&mut is_first_poll) {
                context.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            std::task::Poll::Ready(())
        })
        .await;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.inner.commit(writes).await
    }
}

fn key(id: &str) -> Key {
    Key::new("c", "things", id).expect("a key")
}

#[test]
fn each_writer_of_a_record_meets_one_conflict_at_most() {
    const WRITERS: usize = 100;
    let records = YieldingRecords::default();
    let key = key("one");
    let increments = (0..WRITERS).map(|_| {
        records.update(&key, |found: Option<Record<usize>>| {
            Ok::<_, StoreError>(found.map_or(0, |found| found.value) + 1)
        })
    });
    let mut all = join_all(increments);
    let results = (0..10 * WRITERS).find_map(|_| (&mut all).now_or_never()).expect("all are written");
    let mut counts: Vec<usize> = results.into_iter().map(|result| result.expect("it is written").0).collect();
    assert_eq!(counts.last(), Some(&WRITERS), "in the order of the conflicts");
    counts.sort_unstable();
    assert!(counts.into_iter().eq(1..=WRITERS));
    assert_eq!(records.commits.load(Ordering::Relaxed), WRITERS + (WRITERS - 1));
}

#[test]
fn an_error_other_than_a_conflict_is_not_retried() {
    let (records, key) = (MemoryRecords::default(), key("one"));
    let mut attempts = UpdateAttempts::new(&records, &key);
    let conflict = || StoreError::Conflict { expected: None, found: Some(1) };
    for _ in 1..UPDATE_ATTEMPTS {
        attempts.retry(conflict()).now_or_never().expect("no writer waits").expect("another attempt");
    }
    let last = attempts.retry(conflict()).now_or_never().expect("no writer waits");
    assert!(matches!(last, Err(StoreError::Conflict { .. })), "{last:?}");
    let failed = UpdateAttempts::new(&records, &key).retry(StoreError::unavailable("away")).now_or_never();
    assert!(matches!(failed, Some(Err(StoreError::Unavailable { .. }))), "{failed:?}");
}

#[test]
fn permits_of_a_record_are_ordered_and_independent_of_others() {
    let queues = WriterQueues::default();
    let wait = |id: &'static str| {
        let queues = queues.clone();
        async move { queues.acquire(&key(id)).await }.boxed()
    };
    let first = wait("one").now_or_never().expect("no writer is before it");
    let (mut second, mut third) = (wait("one"), wait("one"));
    assert!((&mut second).now_or_never().is_none());
    assert!((&mut third).now_or_never().is_none());
    let other = wait("two").now_or_never().expect("another record");
    drop(first);
    assert!((&mut third).now_or_never().is_none(), "the second is before it");
    let permit = (&mut second).now_or_never().expect("a permit");
    drop(permit);
    let permit = third.now_or_never().expect("a permit");
    assert_eq!(queues.lock().len(), 2);
    drop((permit, other));
    assert!(queues.lock().is_empty(), "no entry is left");
}

#[test]
fn a_cancelled_writer_does_not_block_others() {
    let queues = WriterQueues::default();
    let wait = || {
        let queues = queues.clone();
        async move { queues.acquire(&key("one")).await }.boxed()
    };
    let first = wait().now_or_never().expect("no writer is before it");
    let (mut before, mut granted, mut last) = (wait(), wait(), wait());
    for waiting in [&mut before, &mut granted, &mut last] {
        assert!(waiting.now_or_never().is_none());
    }
    // Cancelled while it waits, and after it was given the permit.
    drop(before);
    drop(first);
    drop(granted);
    drop(last.now_or_never().expect("a permit"));
    assert!(queues.lock().is_empty());
}
