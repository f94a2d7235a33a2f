//! Tests of the writes to the ledger: order, failures, and the bound of the queue.

use super::*;

/// A store that fails a given number of times.
struct FailingStore {
    store: MemoryUsage,
    failures: AtomicUsize,
    calls: AtomicUsize,
    refused: &'static str,
    /// Companies whose ledgers another transaction has locked.
    locked: Mutex<HashSet<CompanyId>>,
}

#[async_trait]
impl UsageStore for FailingStore {
    async fn book(&self, entries: Vec<UsageEntry>) -> Result<usize, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let failures =
            self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if failures.is_ok() {
            return Err(StoreError::unavailable("the disk is full"));
        }
        if entries.iter().any(|entry| entry.model == self.refused) {
            return Err(StoreError::NotConfigured("TEST"));
        }
        self.store.book(entries).await
    }

    async fn book_unlocked(&self, entries: Vec<UsageEntry>) -> Result<HashSet<CompanyId>, StoreError> {
        let locked = self.locked.lock().expect("no panic").clone();
        let is_locked = |entry: &UsageEntry| locked.contains(&entry.scope.company_id);
        let (left_out, entries): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_locked);
        self.book(entries).await?;
        Ok(left_out.into_iter().map(|entry| entry.scope.company_id).collect())
    }

    async fn usage(&self, company: &CompanyId, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        self.store.usage(company, query).await
    }

    async fn run_entries(
        &self,
        company: &CompanyId,
        run: &RunId,
        owner: Option<&RunOwner>,
    ) -> Result<RunEntries, StoreError> {
        self.store.run_entries(company, run, owner).await
    }

    async fn run_scopes(&self, company: &CompanyId, run: &RunId) -> Result<Vec<RunScope>, StoreError> {
        self.store.run_scopes(company, run).await
    }

    async fn usage_entries(
        &self,
        company: &CompanyId,
        ids: &[String],
    ) -> Result<Vec<UsageEntry>, StoreError> {
        self.store.usage_entries(company, ids).await
    }

    async fn trim_usage(&self, before: Timestamp) -> Result<usize, StoreError> {
        self.store.trim_usage(before).await
    }
}

fn failing(failures: usize, refused: &'static str) -> Arc<FailingStore> {
    let (failures, calls) = (AtomicUsize::new(failures), AtomicUsize::new(0));
    let (store, locked) = (MemoryUsage::default(), Mutex::default());
    Arc::new(FailingStore { store, failures, calls, refused, locked })
}

fn book_calls(usage: &UsageRecorder, models: &[&str]) {
    for model in models {
        drop(MeteredCall::new(usage.clone(), RunScope::from(&context()), ("p", model), 10));
    }
}

#[tokio::test]
async fn entries_wait_for_the_store() {
    let store = failing(3, "none");
    let clock = ManualClock::new();
    let prices = PriceTable::empty();
    let usage = UsageRecorder::new(store.clone(), prices, Arc::new(clock.clone()), spawner(), None, None);
    book_calls(&usage, &["a", "b"]);
    let flushed = usage.flush();
    let mut flushed = std::pin::pin!(flushed);
    while futures_util::poll!(flushed.as_mut()).is_pending() {
        tokio::task::yield_now().await;
        clock.advance(std::time::Duration::from_secs(1));
    }
    let found = store.run_usage(&"acme".into(), &"run".into()).await.expect("entries");
    let models: Vec<_> = found.iter().map(|entry| entry.model.as_str()).collect();
    assert_eq!((models, store.calls.load(Ordering::Relaxed)), (vec!["a", "b"], 4), "in one batch");
    usage.flush().await;
}

#[tokio::test]
async fn entries_one_after_another_share_a_commit() {
    let store = failing(0, "none");
    let clock = ManualClock::new();
    let prices = PriceTable::empty();
    let usage = UsageRecorder::new(store.clone(), prices, Arc::new(clock.clone()), spawner(), None, None);
    for model in ["a", "b", "c"] {
        book_calls(&usage, &[model]);
        // The writer has its turn.
        tokio::task::yield_now().await;
    }
    assert_eq!((usage.queued(), store.calls.load(Ordering::Relaxed)), (3, 0), "they are gathered");
    while usage.queued() > 0 {
        clock.advance(std::time::Duration::from_millis(20));
        tokio::task::yield_now().await;
    }
    assert_eq!(store.calls.load(Ordering::Relaxed), 1);
    book_calls(&usage, &["d"; 200]);
    while usage.queued() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.calls.load(Ordering::Relaxed), 2, "a full batch does not wait");
}

#[tokio::test]
async fn a_refused_entry_does_not_block_others() {
    let store = failing(0, "poison");
    let usage = recorder(store.clone());
    book_calls(&usage, &["a", "poison", "b", "c"]);
    let models: Vec<_> = entries(&usage).await.into_iter().map(|entry| entry.model).collect();
    assert_eq!(models, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_writer_that_is_dropped_is_replaced() {
    let store = Arc::new(MemoryUsage::default());
    let spawned = Arc::new(AtomicUsize::new(0));
    let spawner: Arc<dyn Spawner> = Arc::new({
        let spawned = spawned.clone();
        move |task| {
            // The first task is dropped, as by a runtime that ends.
            if spawned.fetch_add(1, Ordering::Relaxed) > 0 {
                drop(tokio::spawn(task));
            }
        }
    });
    let usage = UsageRecorder::new(store, PriceTable::empty(), Arc::new(SystemClock), spawner, None, None);
    book_calls(&usage, &["a", "b"]);
    assert_eq!(entries(&usage).await.len(), 2);
    for _ in 0..100 {
        book_calls(&usage, &["c"]);
        tokio::task::yield_now().await;
    }
    assert_eq!(entries(&usage).await.len(), 102, "each entry once");
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let store = failing(usize::MAX, "none");
    let (clock, prices) = (Arc::new(ManualClock::new()), PriceTable::empty());
    let usage = UsageRecorder::new(store.clone(), prices, clock, spawner(), None, None);
    book_calls(&usage, &vec!["a"; MAX_QUEUED_ENTRIES + 10]);
    assert_eq!(usage.queued(), MAX_QUEUED_ENTRIES);
}

#[tokio::test]
async fn entries_of_the_company_with_the_most_make_room_for_those_of_others() {
    let store = failing(1, "none");
    let (clock, prices) = (ManualClock::new(), PriceTable::empty());
    let usage = UsageRecorder::new(store.clone(), prices, Arc::new(clock.clone()), spawner(), None, None);
    let book = |company: &str, count: usize| {
        let scope = RunScope { company_id: company.into(), ..RunScope::from(&context()) };
        for _ in 0..count {
            drop(MeteredCall::new(usage.clone(), scope.clone(), ("p", "a"), 10));
        }
    };
    book("acme", MAX_QUEUED_ENTRIES);
    // The writer takes a batch, and the store refuses it.
    while store.calls.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    book("small", 20);
    book("acme", 10);
    assert_eq!(usage.queued(), MAX_QUEUED_ENTRIES);
    let flushed = usage.flush();
    let mut flushed = std::pin::pin!(flushed);
    while futures_util::poll!(flushed.as_mut()).is_pending() {
        tokio::task::yield_now().await;
        clock.advance(std::time::Duration::from_secs(1));
    }
    let stored = store.run_usage(&"small".into(), &"run".into()).await.expect("entries");
    assert_eq!((stored.len(), usage.queued()), (20, 0));
}

/// A store in which the ledger of `acme` is locked, a recorder, and its clock.
fn with_locked_ledger() -> (Arc<FailingStore>, UsageRecorder, ManualClock) {
    let (store, clock) = (failing(0, "none"), ManualClock::new());
    store.locked.lock().expect("no panic").insert("acme".into());
    let prices = PriceTable::empty();
    let usage = UsageRecorder::new(store.clone(), prices, Arc::new(clock.clone()), spawner(), None, None);
    (store, usage, clock)
}

fn book_call(usage: &UsageRecorder, company: &str, model: &str) {
    let scope = RunScope { company_id: company.into(), ..RunScope::from(&context()) };
    drop(MeteredCall::new(usage.clone(), scope, ("p", model), 10));
}

#[tokio::test]
async fn entries_of_a_locked_ledger_are_stored_apart_from_those_of_others() {
    // More than a batch.
    const ENTRIES: usize = 250;
    let (store, usage, clock) = with_locked_ledger();
    let models = async |company: &str| {
        let found = store.run_usage(&company.into(), &"run".into()).await.expect("entries");
        found.into_iter().map(|entry| entry.model).collect::<Vec<_>>()
    };
    let expected: Vec<String> = (0..ENTRIES).map(|n| n.to_string()).collect();
    for (n, model) in expected.iter().enumerate() {
        book_call(&usage, "acme", model);
        book_call(&usage, "small", model);
        if n.is_multiple_of(50) {
            usage.flush_unlocked().await;
        }
    }
    usage.flush_unlocked().await;
    assert_eq!(models("small").await, expected);
    assert_eq!((models("acme").await.len(), usage.queued()), (0, ENTRIES));
    let flushed = usage.flush();
    let mut flushed = std::pin::pin!(flushed);
    for _ in 0..3 {
        assert!(futures_util::poll!(flushed.as_mut()).is_pending(), "the ledger is locked");
        clock.wait_for_sleepers(1).await;
        clock.advance(std::time::Duration::from_secs(1));
    }
    store.locked.lock().expect("no panic").clear();
    while futures_util::poll!(flushed.as_mut()).is_pending() {
        tokio::task::yield_now().await;
        clock.advance(std::time::Duration::from_secs(1));
    }
    assert_eq!(models("acme").await, expected, "each once, in their order");
    assert_eq!(usage.queued(), 0);
    book_call(&usage, "acme", "later");
    usage.flush_unlocked().await;
    assert_eq!(models("acme").await.len(), ENTRIES + 1, "its ledger is one of many again");
}

#[tokio::test]
async fn entries_of_a_locked_ledger_make_room_for_those_of_others() {
    let (store, usage, _clock) = with_locked_ledger();
    for n in 0..MAX_QUEUED_ENTRIES + 10 {
        book_call(&usage, "acme", "a");
        if n == 0 {
            usage.flush_unlocked().await;
        }
    }
    assert_eq!(usage.queued(), MAX_QUEUED_ENTRIES);
    for _ in 0..20 {
        book_call(&usage, "small", "a");
    }
    assert_eq!(usage.queued(), MAX_QUEUED_ENTRIES);
    usage.flush_unlocked().await;
    assert_eq!(usage.queued(), MAX_QUEUED_ENTRIES - 20);
    let stored = store.run_usage(&"small".into(), &"run".into()).await.expect("entries");
    assert_eq!(stored.len(), 20);
}
