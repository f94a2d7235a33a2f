//! Meters whose records another transaction has locked.

use std::sync::atomic::{AtomicBool, Ordering};

use agent_core::store_error::StoreError;
use async_trait::async_trait;

use super::*;
use crate::records::{Key, Page, Record, Records, Write};

/// Records of which the company's cannot be written for some time.
#[derive(Default)]
struct LockedRecords {
    records: MemoryRecords,
    is_locked: AtomicBool,
}

#[async_trait]
impl Records for LockedRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.records.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.records.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let is_of_company = |write: &Write| write.key().collection().path().contains(COMPANY);
        if self.is_locked.load(Ordering::Relaxed) && writes.iter().any(is_of_company) {
            return Err(StoreError::unavailable("locked"));
        }
        self.records.commit(writes).await
    }
}

/// Polls a future while the time advances. Returns false if it is still pending after ten seconds.
async fn ends(clock: &ManualClock, future: impl Future<Output = ()>) -> bool {
    let mut future = std::pin::pin!(future);
    for _ in 0..1_000 {
        if futures_util::poll!(future.as_mut()).is_ready() {
            return true;
        }
        clock.advance(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_settlement_that_cannot_be_stored_keeps_no_entry_from_the_ledger() {
    let (records, usage) = (Arc::new(LockedRecords::default()), Arc::new(MemoryUsage::default()));
    let clock = ManualClock::new();
    let spawner: Arc<dyn Spawner> = Arc::new(|task| drop(tokio::spawn(task)));
    let options = BudgetOptions { lease: Duration::from_secs(60), max_wait: Duration::from_millis(500) };
    let budgets =
        Budgets::new(records.clone(), usage.clone(), Arc::new(clock.clone()), spawner.clone(), options);
    let prices = PriceTable::empty().merged(PRICES).expect("prices");
    let (store, shared_clock) = (usage.clone(), Arc::new(clock.clone()));
    let process = UsageRecorder::new(store, prices, shared_clock, spawner, None, Some(budgets));
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (hold, _) = reserve(&process, 300).await.expect("admitted");

    records.is_locked.store(true, Ordering::Relaxed);
    let entry = used(&hold, 20, 30);
    let of_other = UsageEntry {
        id: "other".to_owned(),
        scope: RunScope { company_id: "small".into(), ..scope("run") },
        ..entry.clone()
    };
    process.book(vec![entry], Some(hold), None);
    assert!(ends(&clock, process.flush_unlocked()).await, "it is in the ledger");
    process.book(vec![of_other], None, None);
    assert!(ends(&clock, process.flush_unlocked()).await, "another company's is, too");
    for company in [COMPANY, "small"] {
        let booked = usage.run_usage(&company.into(), &"run".into()).await.expect("entries");
        assert_eq!(booked.len(), 1, "{company}");
    }
    assert_eq!(amounts(&process).await, (0, 321), "the meter is locked");

    records.is_locked.store(false, Ordering::Relaxed);
    assert!(ends(&clock, process.flush()).await, "it is settled");
    assert_eq!(amounts(&process).await, (50, 0));
}

#[tokio::test]
async fn a_default_limit_refuses_no_run_because_its_count_cannot_be_stored() {
    let (records, clock) = (Arc::new(LockedRecords::default()), Arc::new(ManualClock::new()));
    let spawner: Arc<dyn Spawner> = Arc::new(|task| drop(tokio::spawn(task)));
    let rates = UserRates::new(records.clone(), SessionLimits::default(), clock.clone(), spawner.clone());
    let usage = Arc::new(MemoryUsage::default());
    let budgets = Budgets::new(records.clone(), usage, clock, spawner, BudgetOptions::default())
        .with_default_limits(default_limits(0, 2, 0), rates);
    records.is_locked.store(true, Ordering::Relaxed);
    let admit = async || budgets.admit_run(&scope("run")).await;
    let runs = [admit().await, admit().await];
    assert!(runs.iter().all(Result::is_ok), "the process counts by itself");
    let error = admit().await.err().expect("two at once");
    assert_eq!(refusal(&error).unit, BudgetUnit::ConcurrentRuns);
    drop(runs);

    // The limit of a budget is not exceeded meanwhile.
    records.is_locked.store(false, Ordering::Relaxed);
    let body = json!({"limits": [{"unit": "runs", "amount": 9, "window": "day"}]});
    let budget = Budget::read(BudgetKind::Company, body.as_object().expect("an object")).expect("a budget");
    let subject = (BudgetKind::Company, COMPANY);
    budgets.put(&COMPANY.into(), subject, &budget, Precondition::Any).await.expect("written");
    records.is_locked.store(true, Ordering::Relaxed);
    let error = admit().await.err().expect("it cannot be counted");
    assert_eq!(error.kind(), AgentErrorKind::StoreUnavailable);
}
