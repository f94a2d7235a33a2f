//! Stores that refuse commits, such as commits of meters whose records another transaction has locked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_core::store_error::StoreError;
use async_trait::async_trait;

use super::*;
use crate::records::{Records, RecordsWrapper, Write};

/// Records in which the company's record cannot be written for some time.
#[derive(Default)]
struct LockedRecords {
    records: MemoryRecords,
    is_locked: AtomicBool,
    /// True while the connection is lost with each commit, which the database makes nevertheless.
    loses_answers: AtomicBool,
    /// True while the connection is lost with each commit, which the database makes before the next one.
    delays_commits: AtomicBool,
    /// Writes of the delayed commit.
    delayed: Mutex<Vec<Write>>,
    /// Number of writes of the largest commit.
    largest: AtomicUsize,
}

impl LockedRecords {
    /// Makes the delayed commit, as a database does whose disk answers again.
    async fn make_delayed_commit(&self) {
        let writes = std::mem::take(&mut *self.delayed.lock().expect("unpoisoned"));
        if !writes.is_empty() {
            self.records.commit(writes).await.expect("committed");
        }
    }
}

#[async_trait]
impl RecordsWrapper for LockedRecords {
    fn inner(&self) -> &dyn Records {
        &self.records
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let is_of_company = |write: &Write| write.key().collection().path().contains(COMPANY);
        if self.is_locked.load(Ordering::Relaxed) && writes.iter().any(is_of_company) {
            return Err(StoreError::unavailable("locked"));
        }
        if self.delays_commits.load(Ordering::Relaxed) {
            *self.delayed.lock().expect("unpoisoned") = writes;
            return Err(StoreError::unavailable("the connection is lost"));
        }
        self.make_delayed_commit().await;
        self.largest.fetch_max(writes.len(), Ordering::Relaxed);
        let committed = self.records.commit(writes).await;
        match self.loses_answers.load(Ordering::Relaxed) {
            true => Err(StoreError::unavailable("the connection is lost")),
            false => committed,
        }
    }
}

/// Returns the recorder of a process over such records.
fn process_over(
    records: &Arc<LockedRecords>,
    usage: &Arc<MemoryUsage>,
    clock: &ManualClock,
) -> UsageRecorder {
    let spawner: Arc<dyn Spawner> = Arc::new(|task| drop(tokio::spawn(task)));
    let options = BudgetOptions { lease: Duration::from_secs(60), max_wait: Duration::from_millis(500) };
    let (records, store, clock) = (records.clone(), usage.clone(), Arc::new(clock.clone()));
    let budgets = Budgets::new(records, usage.clone(), clock.clone(), spawner.clone(), options);
    let prices = PriceTable::empty().merged(PRICES).expect("prices");
    UsageRecorder::new(store, prices, clock, spawner, None, Some(budgets))
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
    let process = process_over(&records, &usage, &clock);
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (reservation, _) = reserve(&process, 300).await.expect("admitted");

    records.is_locked.store(true, Ordering::Relaxed);
    let entry = used(&reservation, 20, 30);
    let of_other = UsageEntry {
        id: "other".to_owned(),
        scope: RunScope { company_id: "small".into(), ..scope("run") },
        ..entry.clone()
    };
    process.book(vec![entry], Some(reservation), None);
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
    let rates =
        MinuteRateLimiter::new(records.clone(), SessionLimits::default(), clock.clone(), spawner.clone());
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

#[tokio::test]
async fn runs_per_minute_are_counted_by_the_process_while_no_commit_counts_them() {
    let (records, clock) = (Arc::new(LockedRecords::default()), Arc::new(ManualClock::new()));
    let spawner: Arc<dyn Spawner> = Arc::new(|task| drop(tokio::spawn(task)));
    let rates =
        MinuteRateLimiter::new(records.clone(), SessionLimits::default(), clock.clone(), spawner.clone());
    let usage = Arc::new(MemoryUsage::default());
    let budgets = Budgets::new(records.clone(), usage, clock, spawner, BudgetOptions::default())
        .with_default_limits(default_limits(6, 16, 0), rates);
    records.is_locked.store(true, Ordering::Relaxed);
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(budgets.admit_run(&scope("run")).await.expect("the process counts by itself"));
    }
    let error = budgets.admit_run(&scope("run")).await.err().expect("six in a minute");
    assert_eq!(refusal(&error).unit, BudgetUnit::Runs);
}

/// The database has made the reservation, and the call does not begin: it must not be booked at the end of the lease.
#[tokio::test]
async fn a_reservation_is_released_whose_commit_has_an_unknown_outcome() {
    let (records, usage) = (Arc::new(LockedRecords::default()), Arc::new(MemoryUsage::default()));
    let clock = ManualClock::new();
    let process = process_over(&records, &usage, &clock);
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    records.loses_answers.store(true, Ordering::Relaxed);
    let error = reserve(&process, 300).await.expect_err("it is not known to be reserved");
    assert_eq!(error.kind(), AgentErrorKind::StoreUnavailable);
    assert_eq!(amounts(&process).await, (0, 321), "the database has it");
    records.loses_answers.store(false, Ordering::Relaxed);
    assert!(ends(&clock, budgets(&process).flush()).await, "it is released");
    assert_eq!(amounts(&process).await, (0, 0));
}

/// The database makes the reservation only after the process has checked for it.
#[tokio::test]
async fn a_reservation_is_released_whose_commit_ends_late() {
    let (records, usage) = (Arc::new(LockedRecords::default()), Arc::new(MemoryUsage::default()));
    let clock = ManualClock::new();
    let process = process_over(&records, &usage, &clock);
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    records.delays_commits.store(true, Ordering::Relaxed);
    let error = reserve(&process, 300).await.expect_err("it is not known to be reserved");
    assert_eq!(error.kind(), AgentErrorKind::StoreUnavailable);
    assert_eq!(amounts(&process).await, (0, 0), "the database does not have it yet");
    records.delays_commits.store(false, Ordering::Relaxed);
    assert!(ends(&clock, budgets(&process).flush()).await, "it is released");
    records.make_delayed_commit().await;
    assert_eq!(amounts(&process).await, (0, 0));
}

/// The store locks all of the platform's records for a larger commit.
#[tokio::test]
async fn requests_with_many_meters_are_committed_in_parts() {
    let (records, usage) = (Arc::new(LockedRecords::default()), Arc::new(MemoryUsage::default()));
    let process = process_over(&records, &usage, &ManualClock::new());
    put_company(&process, json!({"unit": "tokens", "amount": 1_000_000, "window": "day"})).await;
    let users: Vec<RunScope> =
        (0..200).map(|number| RunScope { user_id: format!("u{number}").into(), ..scope("run") }).collect();
    for user in &users {
        let limits = json!([{"unit": "tokens", "amount": 1_000, "window": "day"}]);
        put(&process, BudgetKind::User, &user.user_id, limits).await;
    }
    let calls = users.iter().map(|user| budgets(&process).reserve_call(user, demand(&process, 100), || true));
    let reserved = futures_util::future::join_all(calls).await;
    assert!(reserved.iter().all(|reserved| matches!(reserved, Ok(Some((_, 100))))));
    assert_eq!(amounts(&process).await, (0, 200 * 121));
    drop(reserved);
    budgets(&process).flush().await;
    assert_eq!(amounts(&process).await, (0, 0));
    let largest = records.largest.load(Ordering::Relaxed);
    assert!((129..=256).contains(&largest), "{largest}");
}
