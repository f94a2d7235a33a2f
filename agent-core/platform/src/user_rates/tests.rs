use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_core::testing::ManualClock;
use agent_core::tool::Caller;
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::table::FLUSH_INTERVAL;
use super::*;
use crate::memory::MemoryRecords;
use crate::records::{ListQuery, MAX_PAGE_RECORDS, Page, Precondition, Record, RecordsExt, Write};
use crate::run_registry::RunRegistry;

const SECOND: Duration = Duration::from_secs(1);

/// A store that counts commits, and fails or stalls on request.
#[derive(Default)]
struct FaultyRecords {
    inner: MemoryRecords,
    commits: AtomicUsize,
    /// Number of writes of the largest commit.
    largest: AtomicUsize,
    reads: AtomicUsize,
    is_failing: AtomicBool,
    is_stalled: AtomicBool,
}

impl FaultyRecords {
    fn commits(&self) -> usize {
        self.commits.load(Ordering::Relaxed)
    }

    fn largest_commit(&self) -> usize {
        self.largest.load(Ordering::Relaxed)
    }

    async fn check(&self) -> Result<(), StoreError> {
        while self.is_stalled.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        match self.is_failing.load(Ordering::Relaxed) {
            true => Err(StoreError::unavailable("away")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Records for FaultyRecords {
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.check().await?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.get_many(keys).await
    }

    async fn list(&self, collection: &Collection, list: &ListQuery) -> Result<Page, StoreError> {
        self.inner.list(collection, list).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        self.check().await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.largest.fetch_max(writes.len(), Ordering::Relaxed);
        self.inner.commit(writes).await
    }
}

/// Processes over one store, with one clock.
struct RatesFixture {
    store: Arc<FaultyRecords>,
    clock: ManualClock,
    processes: Vec<MinuteRateLimiter>,
}

impl RatesFixture {
    /// Creates processes with a limit of `per_minute` runs and changes.
    fn new(processes: usize, per_minute: u32) -> Self {
        Self::bounded(processes, per_minute, METER_LIMITS)
    }

    fn bounded(processes: usize, per_minute: u32, meters: CompanyTableLimits) -> Self {
        let (store, clock) = (Arc::new(FaultyRecords::default()), ManualClock::new());
        let per_minute = NonZeroU32::new(per_minute).expect("a limit");
        let limits = SessionLimits { runs_per_minute: per_minute, changes_per_minute: per_minute };
        let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
        let process = |_| {
            MinuteRateLimiter::bounded(
                store.clone(),
                limits,
                Arc::new(clock.clone()),
                spawner.clone(),
                meters,
            )
        };
        let processes = (0..processes).map(process).collect();
        Self { store, clock, processes }
    }

    async fn run(&self, process: usize, user: &str) -> Result<(), RateLimitError> {
        self.processes[process].count(&principal("c", user), UserRate::Runs).await
    }

    /// Counts a run of the user `ada` whose id the client has chosen.
    async fn run_with_id(&self, process: usize, run_id: &str) -> Result<CountedRun, RunCountError> {
        self.processes[process].count_run_with_id(&principal("c", "ada"), &run_id.into()).await
    }

    /// Claims an id of a run of the user `ada` by a separate commit. Returns true if it was not used.
    async fn claim(&self, run_id: &str) -> bool {
        let registry = RunRegistry::new(self.store.clone(), Arc::new(self.clock.clone()));
        registry.claim(&principal("c", "ada"), &run_id.into()).await.expect("the store works").is_some()
    }

    /// Sends up to `count` runs of the user `ada` to a process; returns the number of admitted ones.
    async fn burst(&self, process: usize, count: usize) -> usize {
        let mut admitted = 0;
        while admitted < count && self.run(process, "ada").await.is_ok() {
            admitted += 1;
        }
        admitted
    }

    /// Advances the time until all tasks have ended: three intervals, if none has started yet.
    async fn settle(&self) {
        let is_idle = |rates: &MinuteRateLimiter| rates.metering.lock().flushers.is_empty();
        while !self.processes.iter().all(is_idle) {
            tokio::task::yield_now().await;
            self.clock.advance_to_next();
        }
    }

    fn set_failing(&self, is_failing: bool) {
        self.store.is_failing.store(is_failing, Ordering::Relaxed);
    }

    async fn records(&self, company: &str) -> usize {
        let collection = record_key(&company.into(), &MeterId::CompanyRuns).expect("a key");
        let count = self.store.inner.count(collection.collection()).await.expect("the store works");
        usize::try_from(count).expect("few")
    }
}

fn principal(company: &str, user: &str) -> Principal {
    Principal::new(user, company, Caller::Session)
}

#[tokio::test]
async fn the_limit_is_exact_above_half_of_it() {
    let test = RatesFixture::new(2, 20);
    for process in [0, 1] {
        assert_eq!(test.burst(process, 6).await, 6);
    }
    assert_eq!(test.store.commits(), 0, "admitted at once");
    test.settle().await;
    assert_eq!(test.store.commits(), 2);
    let mut admitted = 12;
    while test.run(admitted % 2, "ada").await.is_ok() {
        admitted += 1;
    }
    assert_eq!((admitted, test.store.commits()), (20, 2 + 8));
    // One more run every three seconds; three intervals have passed.
    for process in [0, 1] {
        let refused = test.run(process, "ada").await.expect_err("the limit is reached");
        assert_eq!(refused.retry_after, Duration::from_millis(2250));
    }
    for process in [0, 1, 1, 0] {
        test.clock.advance(3 * SECOND);
        assert_eq!(test.burst(process, 2).await, 1, "one of both");
        assert_eq!(test.burst(1 - process, 2).await, 0);
    }
}

#[tokio::test]
async fn unaware_processes_exceed_the_limit_by_half_each() {
    for (per_minute, processes) in [(20, 2), (20, 3), (1, 3), (7, 4)] {
        let test = RatesFixture::new(processes, per_minute);
        let limit = per_minute as usize;
        let mut admitted = 0;
        for process in 0..processes {
            admitted += test.burst(process, 2 * limit).await;
        }
        assert_eq!(admitted, limit + (processes - 1) * limit.div_ceil(2), "{processes} × {per_minute}");
        test.settle().await;
        for process in 0..processes {
            assert_eq!(test.burst(process, 1).await, 0);
        }
    }
}

#[tokio::test]
async fn later_requests_wait_for_an_excess() {
    let test = RatesFixture::new(2, 20);
    assert_eq!(test.burst(0, 40).await + test.burst(1, 40).await, 30);
    for process in [0, 1] {
        let refused = test.run(process, "ada").await.expect_err("it is full");
        assert_eq!(refused.retry_after, Duration::from_secs(if process == 0 { 3 } else { 33 }));
    }
    test.clock.advance(3 * SECOND);
    assert_eq!(test.burst(0, 1).await, 0, "the process learns of the excess");
    test.clock.advance(29 * SECOND);
    assert_eq!(test.burst(0, 1).await + test.burst(1, 1).await, 0);
    test.clock.advance(SECOND);
    assert_eq!(test.burst(0, 2).await + test.burst(1, 2).await, 1);
}

#[tokio::test]
async fn refused_requests_do_not_use_the_store() {
    let test = RatesFixture::new(2, 20);
    for process in [0, 1] {
        test.burst(process, 40).await;
        test.settle().await;
    }
    let used = |store: &FaultyRecords| (store.commits(), store.reads.load(Ordering::Relaxed));
    let before = used(&test.store);
    for number in 0..1000 {
        test.run(number % 2, "ada").await.expect_err("the limit is reached");
    }
    test.settle().await;
    assert_eq!(used(&test.store), before);
    // The first process knows of its own requests only, so it asks when the minute has moved on by one of them.
    test.clock.advance(3 * SECOND);
    let (commits, reads) = used(&test.store);
    for _ in 0..1000 {
        test.run(0, "ada").await.expect_err("the other process was first");
    }
    assert_eq!(used(&test.store), (commits, reads + 1));
}

#[tokio::test]
async fn requests_of_a_company_are_counted_by_one_commit() {
    let test = RatesFixture::new(1, 20);
    let rates = &test.processes[0];
    for user in ["ada", "bob", "eve"] {
        for _ in 0..3 {
            rates.count(&principal("c", user), UserRate::Runs).await.expect("below half");
            rates.count(&principal("c", user), UserRate::Changes).await.expect("below half");
        }
    }
    rates.count(&principal("d", "ada"), UserRate::Runs).await.expect("below half");
    test.clock.advance(FLUSH_INTERVAL - Duration::from_millis(1));
    tokio::task::yield_now().await;
    assert_eq!(test.store.commits(), 0);
    test.settle().await;
    assert_eq!(test.store.commits(), 2);
    assert_eq!((test.records("c").await, test.records("d").await), (6, 1));
}

#[tokio::test]
async fn users_and_rates_are_counted_separately() {
    let test = RatesFixture::new(1, 20);
    assert_eq!(test.burst(0, 40).await, 20);
    let rates = &test.processes[0];
    for (company, user, rate) in
        [("c", "bob", UserRate::Runs), ("d", "ada", UserRate::Runs), ("c", "ada", UserRate::Changes)]
    {
        let user = principal(company, user);
        let mut admitted = 0;
        while rates.count(&user, rate).await.is_ok() {
            admitted += 1;
        }
        assert_eq!(admitted, 20);
    }
}

#[tokio::test]
async fn requests_that_wait_share_commits() {
    let test = RatesFixture::new(1, 1000);
    assert_eq!(test.burst(0, 500).await, 500);
    let admitted = join_all((0..600).map(|_| test.run(0, "ada"))).await;
    assert_eq!(admitted.into_iter().filter(Result::is_ok).count(), 500);
    assert_eq!(test.store.commits(), 1);
}

#[tokio::test]
async fn a_process_counts_by_itself_while_the_store_fails() {
    let test = RatesFixture::new(2, 20);
    test.set_failing(true);
    assert_eq!(test.burst(0, 40).await, 20);
    test.clock.advance(60 * SECOND);
    assert_eq!(test.burst(0, 40).await, 20, "a new minute");
    test.set_failing(false);
    test.settle().await;
    assert_eq!(test.burst(1, 1).await, 1, "the process does not know the other's runs");
    test.settle().await;
    assert_eq!(test.burst(1, 1).await, 0, "the runs that the other process admitted are counted");
}

#[tokio::test]
async fn a_request_does_not_wait_longer_than_its_limit_for_a_store_that_stalls() {
    let test = RatesFixture::new(1, 20);
    assert_eq!(test.burst(0, 15).await, 15);
    test.settle().await;
    test.store.is_stalled.store(true, Ordering::Relaxed);
    let stalled = async {
        let waiting = test.run(0, "ada");
        let advance = async {
            test.clock.wait_for_sleepers(1).await;
            test.clock.advance(MAX_WAIT);
        };
        futures_util::future::join(waiting, advance).await.0
    };
    stalled.await.expect("this process has room");
}

#[tokio::test]
async fn a_task_that_is_dropped_releases_those_that_wait_and_is_started_again() {
    let test = RatesFixture::new(1, 20);
    let is_lost = Arc::new(AtomicBool::new(true));
    let spawner = {
        let is_lost = is_lost.clone();
        move |task: BoxFuture<'static, ()>| match is_lost.load(Ordering::Relaxed) {
            true => drop(task),
            false => drop(tokio::spawn(task)),
        }
    };
    let limits = *test.processes[0].limits();
    let rates =
        MinuteRateLimiter::new(test.store.clone(), limits, Arc::new(test.clock.clone()), Arc::new(spawner));
    let user = principal("c", "ada");
    for _ in 0..15 {
        rates.count(&user, UserRate::Runs).await.expect("counted by this process");
    }
    is_lost.store(false, Ordering::Relaxed);
    rates.count(&user, UserRate::Runs).await.expect("counted in the store");
    assert_eq!((test.store.commits(), test.records("c").await), (1, 1));
    assert_eq!(test.burst(0, 10).await, 10, "another process");
    assert_eq!(test.burst(0, 1).await, 0, "which has learned of the others");
}

#[tokio::test]
async fn a_cancelled_request_leaves_its_place() {
    let test = RatesFixture::new(1, 20);
    assert_eq!(test.burst(0, 19).await, 19);
    test.settle().await;
    assert!(test.run(0, "ada").now_or_never().is_none(), "it waits");
    test.run(0, "ada").await.expect_err("the place is taken until the next commit");
    test.settle().await;
    assert_eq!(test.burst(0, 2).await, 1);
}

#[tokio::test]
async fn a_malformed_record_begins_again() {
    let test = RatesFixture::new(1, 20);
    let key = record_key(&"c".into(), &MeterId::User("ada".into(), UserRate::Runs)).expect("a key");
    test.store.inner.put_as(&key, &"?", Precondition::Any).await.expect("it is put");
    assert_eq!(test.burst(0, 40).await, 20);
}

#[tokio::test]
async fn ids_that_cannot_be_keys_are_counted_by_the_process() {
    let test = RatesFixture::new(1, 20);
    for user in ["a\0", &"u".repeat(300)] {
        let user = principal("c", user);
        let rates = &test.processes[0];
        for _ in 0..20 {
            rates.count(&user, UserRate::Runs).await.expect("within the limit");
        }
        rates.count(&user, UserRate::Runs).await.expect_err("the limit is reached");
    }
    test.settle().await;
    assert_eq!(test.store.commits(), 0);
}

#[tokio::test]
async fn a_company_has_a_share_of_the_meters() {
    let test = RatesFixture::bounded(1, 20, CompanyTableLimits { total: 6, per_company: 4 });
    let rates = &test.processes[0];
    let sizes = || {
        let mut table = rates.metering.lock();
        let mut size = |company: &str| table.meters.company_mut(&company.into()).count();
        let sizes = ["small", "third", "large"].map(&mut size);
        assert_eq!(table.meters.len(), sizes.iter().sum::<usize>());
        sizes
    };
    let count = async |company: &str, user: String| {
        rates.count(&principal(company, &user), UserRate::Runs).await.expect("within the limit");
    };
    count("small", "ada".to_owned()).await;
    for number in 0..10 {
        count("large", number.to_string()).await;
    }
    assert_eq!(sizes(), [1, 0, 4]);
    for number in 0..3 {
        count("third", number.to_string()).await;
    }
    assert_eq!(sizes(), [1, 3, 2], "the company with the most has made room");
    let is_kept = |user: &str| {
        let table = rates.metering.lock();
        table.meters.get(&"large".into(), &MeterId::User(user.into(), UserRate::Runs)).is_some()
    };
    assert!(is_kept("9") && is_kept("8") && !is_kept("7"), "the latest ones");
    test.settle().await;
    assert_eq!(sizes(), [1, 3, 2]);
}

#[tokio::test]
async fn expired_records_are_deleted() {
    let test = RatesFixture::new(1, 20);
    let rates = &test.processes[0];
    let pages = MAX_PAGE_RECORDS + 1;
    for number in 0..pages {
        rates.count(&principal("c/1", &number.to_string()), UserRate::Runs).await.expect("counted");
    }
    rates.count(&principal("d", "ada"), UserRate::Runs).await.expect("counted");
    let other = Collection::of_platform("userRatesOther").and_then(|other| other.key("1")).expect("a key");
    test.store.inner.put_as(&other, &"kept", Precondition::Any).await.expect("it is put");
    test.settle().await;
    test.clock.advance(60 * SECOND);
    rates.count(&principal("c/1", "7"), UserRate::Runs).await.expect("counted");
    test.settle().await;
    assert_eq!((test.records("c/1").await, test.records("d").await), (pages, 1));

    let mut sweep = RateRecordSweep::default();
    let mut visited = 0;
    while sweep.delete_page(&test.store.inner, test.clock.now()).await.expect("the store works") {
        visited += 1;
    }
    assert_eq!((visited, test.records("c/1").await, test.records("d").await), (3, pages, 1), "too early");
    test.clock.advance(10 * SECOND);
    while sweep.delete_page(&test.store.inner, test.clock.now()).await.expect("the store works") {}
    assert_eq!((test.records("c/1").await, test.records("d").await), (1, 0), "one user is active");
    assert!(test.store.inner.get(&other).await.expect("the store works").is_some());
    assert!(
        sweep.delete_page(&test.store.inner, test.clock.now()).await.expect("the next sweep begins again")
    );
}

#[tokio::test]
async fn runs_are_counted_per_user_and_per_company() {
    let test = RatesFixture::new(2, 20);
    let (company, per_minute) = ("c".into(), NonZeroU32::new(4).expect("a limit"));
    for process in [0, 1] {
        let counted = test.processes[process].count_company_run(&company, per_minute).await;
        counted.expect("below half").keep();
        test.run(process, "runs").await.expect("a user of that name has limits of its own");
    }
    assert_eq!(test.store.commits(), 0, "admitted at once");
    test.settle().await;
    let mut admitted = 2;
    while let Ok(counted) = test.processes[admitted % 2].count_company_run(&company, per_minute).await {
        counted.keep();
        admitted += 1;
    }
    assert_eq!(admitted, 4, "of both processes");
    let state = test.processes[0].company_state(&company, per_minute).await.expect("the store works");
    assert_eq!((state.limit, state.used), (4, 4));
    let other = test.processes[0].count_company_run(&"d".into(), per_minute).await;
    other.expect("another company").keep();
}

#[tokio::test]
async fn runs_of_a_company_that_do_not_begin_are_taken_back_as_often_as_the_limit_says() {
    let test = RatesFixture::new(2, 20);
    let (company, per_minute) = ("c".into(), NonZeroU32::new(4).expect("a limit"));
    let count = async |process: usize| test.processes[process].count_company_run(&company, per_minute).await;
    let used = async |process: usize| {
        let state = test.processes[process].company_state(&company, per_minute).await;
        state.expect("the store works").used
    };
    // Requests that a process has counted and not written.
    for _ in 0..2 {
        drop(count(0).await.expect("below half"));
        assert_eq!(used(0).await, 0);
    }
    test.settle().await;
    assert_eq!((test.records("c").await, used(1).await), (0, 0));
    // Requests that the store has counted, below and above half of the limit.
    let runs: Vec<CountedCompanyRun> =
        [count(0).await, count(0).await, count(0).await].into_iter().map(|run| run.expect("a run")).collect();
    test.settle().await;
    assert_eq!((used(0).await, used(1).await), (3, 3));
    for (index, run) in runs.into_iter().enumerate() {
        if index == 0 { run.keep() } else { drop(run) }
    }
    test.settle().await;
    assert_eq!((used(0).await, used(1).await), (1, 1), "both processes");
    // The process has refunded four requests, and the other process none.
    drop(count(0).await.expect("below the limit"));
    assert_eq!(used(0).await, 2, "the run stays counted");
    test.settle().await;
    drop(count(1).await.expect("below the limit"));
    test.settle().await;
    assert_eq!((used(0).await, used(1).await), (2, 2));
    test.clock.advance(15 * SECOND);
    drop(count(0).await.expect("below the limit"));
    assert_eq!(used(0).await, 1, "one each fifteen seconds");
}

#[tokio::test]
async fn the_commit_that_counts_a_run_claims_its_id() {
    let test = RatesFixture::new(1, 20);
    for number in 0..10 {
        let counted = test.run_with_id(0, &number.to_string()).await.expect("below half");
        assert!(matches!(counted, CountedRun::Unclaimed), "{number}");
    }
    assert_eq!(test.store.commits(), 0);
    let counted = test.run_with_id(0, "a").await.expect("below the limit");
    assert!(matches!(counted, CountedRun::Claimed(_)));
    assert_eq!(test.store.commits(), 1, "with those that the process has admitted before");
    assert!(!test.claim("a").await);
    assert!(test.claim("0").await, "the id of a run that the process has admitted");

    // The others of a commit do not suffer from a used id.
    let before = test.store.commits();
    let counted = join_all(["b", "b", "a", "c"].map(|run_id| test.run_with_id(0, run_id))).await;
    let is_claimed: Vec<bool> =
        counted.into_iter().map(|counted| matches!(counted, Ok(CountedRun::Claimed(_)))).collect();
    assert_eq!(is_claimed, [true, false, false, true]);
    assert_eq!(test.store.commits() - before, 2, "a second attempt without the used id");
    // The run whose id the client has used is counted, too.
    assert_eq!(test.burst(0, 10).await, 20 - 15);
    let refused = test.run_with_id(0, "d").await;
    assert!(matches!(refused, Err(RunCountError::Limit(_))));
    assert!(test.claim("d").await, "the id of a refused run is free");
}

#[tokio::test]
async fn many_ids_are_claimed_by_small_commits() {
    let test = RatesFixture::new(1, 1_000);
    assert_eq!(test.burst(0, 500).await, 500);
    let ids: Vec<String> = (0..120).map(|number| number.to_string()).collect();
    let counted = join_all(ids.iter().map(|run_id| test.run_with_id(0, run_id))).await;
    assert!(counted.iter().all(|counted| matches!(counted, Ok(CountedRun::Claimed(_)))));
    assert_eq!(test.store.commits(), 3);
    assert!(test.store.largest_commit() <= 256, "PostgreSQL locks as many records one by one");
}

#[tokio::test]
async fn a_run_with_an_id_is_not_admitted_while_the_store_fails() {
    let test = RatesFixture::new(1, 20);
    assert_eq!(test.burst(0, 10).await, 10);
    test.settle().await;
    test.set_failing(true);
    let failed = test.run_with_id(0, "a").await;
    assert!(matches!(failed, Err(RunCountError::Store(StoreError::Unavailable(_)))));
    test.set_failing(false);
    assert!(test.claim("a").await);
}

#[tokio::test]
async fn the_run_id_of_a_cancelled_request_is_released() {
    let test = RatesFixture::new(1, 20);
    assert_eq!(test.burst(0, 10).await, 10);
    test.settle().await;
    let settling = || {
        let mut table = test.processes[0].metering.lock();
        let id = MeterId::User("ada".into(), UserRate::Runs);
        table.meters.get_mut(&"c".into(), &id).map_or(0, |meter| meter.settling)
    };
    for (run_id, used, is_answered) in [("a", 11, false), ("b", 12, true)] {
        test.store.is_stalled.store(true, Ordering::Relaxed);
        let mut waiting = Box::pin(test.run_with_id(0, run_id));
        while settling() == 0 {
            assert!((&mut waiting).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        // Cancelled during the commit, or before it reads the answer.
        let waiting = is_answered.then_some(waiting);
        test.store.is_stalled.store(false, Ordering::Relaxed);
        while settling() > 0 {
            tokio::task::yield_now().await;
        }
        drop(waiting);
        let state = test.processes[0].state(&principal("c", "ada"), UserRate::Runs).await;
        assert_eq!(state.expect("the store works").used, used, "it is counted");
        let is_released = async {
            while !test.claim(run_id).await {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SECOND * 60, is_released).await.expect("it is released");
    }
}

#[tokio::test]
async fn runs_that_a_joined_commit_leaves_out_are_counted_later() {
    let test = RatesFixture::new(2, 20);
    let (company, per_minute) = ("c".into(), NonZeroU32::new(8).expect("a limit"));
    let begin = || match test.processes[0].begin_company_run(&company, per_minute) {
        Ok(AdmittedCompanyRun::Uncounted(run)) => Some(run),
        Ok(AdmittedCompanyRun::Counted(run)) => {
            run.keep();
            None
        }
        Err(error) => panic!("below the limit: {error}"),
    };
    for _ in 0..4 {
        assert!(begin().is_none(), "below half");
    }
    let run = begin().expect("the store decides");
    {
        let mut count = RunCount::load(&run).await.expect("the store works");
        count.admit().expect("below the limit");
        assert!(count.write().expect("JSON").is_some());
        // The commit fails.
    }
    let mut count = RunCount::load(&run).await.expect("the store works");
    count.admit().expect("below the limit");
    let write = count.write().expect("JSON").expect("a write");
    test.store.inner.commit(vec![write]).await.expect("committed");
    count.publish(std::iter::once(&run));
    let used = async |process: usize| {
        let state = test.processes[process].company_state(&company, per_minute).await;
        state.expect("the store works").used
    };
    assert_eq!((used(0).await, used(1).await), (5, 5));
    let places: Vec<UncountedRun> = (0..3).map(|_| begin().expect("the store decides")).collect();
    let refused = test.processes[0].begin_company_run(&company, per_minute);
    assert!(refused.is_err(), "the places of runs that wait are taken");
    drop((run, places));
    // The company's task counts runs that the process admits by itself.
    test.clock.advance(60 * SECOND);
    for _ in 0..2 {
        assert!(begin().is_none(), "below half");
    }
    test.settle().await;
    assert_eq!((used(0).await, used(1).await), (2, 2));
}
