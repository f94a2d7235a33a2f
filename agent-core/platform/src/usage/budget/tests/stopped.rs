//! Processes that are stopped, or cannot reach the store, for longer than the leases of their runs.

use std::future::poll_fn;
use std::task::Waker;

use agent_core::ids::CompanyId;
use futures_util::FutureExt;

use super::*;

/// Spawner of a process that can be stopped, as by SIGSTOP.
#[derive(Clone, Default)]
struct StoppableSpawner(Arc<Mutex<ProcessState>>);

#[derive(Default)]
struct ProcessState {
    is_stopped: bool,
    wakers: Vec<Waker>,
}

impl StoppableSpawner {
    fn stop(&self) {
        self.0.lock().expect("unpoisoned").is_stopped = true;
    }

    fn resume(&self) {
        let mut state = self.0.lock().expect("unpoisoned");
        state.is_stopped = false;
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Spawner for StoppableSpawner {
    fn spawn(&self, mut task: BoxFuture<'static, ()>) {
        let state = self.0.clone();
        tokio::spawn(poll_fn(move |cx| {
            {
                let mut state = state.lock().expect("unpoisoned");
                if state.is_stopped {
                    state.wakers.push(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            task.poll_unpin(cx)
        }));
    }
}

/// A process with a run that can be stopped, and another process. The limit is one run.
struct StoppableRun {
    installation: Installation,
    spawner: StoppableSpawner,
    process: UsageRecorder,
    other: UsageRecorder,
    run: RunAdmission,
    sweep: ReservationSweep,
}

impl StoppableRun {
    async fn start() -> Self {
        let (installation, spawner) = (Installation::new(), StoppableSpawner::default());
        let lease = Duration::from_secs(31 * 60);
        let process = installation.process_over(Arc::new(spawner.clone()), lease, DefaultLimits::default());
        let other = installation.process();
        put_company(&process, json!({"unit": "concurrentRuns", "amount": 1})).await;
        let run = budgets(&process).admit_run(&scope("a")).await.expect("admitted");
        installation.clock.wait_for_sleepers(1).await;
        let sweep = ReservationSweep::default();
        Self { installation, spawner, process, other, run, sweep }
    }

    /// Makes a pass of the other process, and returns the number of runs that are counted then.
    async fn pass(&mut self) -> i64 {
        let inventory: &dyn Inventory = &*self.installation.records;
        let (budgets, other) = (budgets(&self.other), &self.other);
        while self.sweep.settle_page(inventory, budgets, other).await.expect("a page") {}
        amounts(&self.other).await.1
    }

    /// Resumes the process, and waits until this many runs are counted and it waits for its next renewal.
    async fn resume(&self, runs: i64) {
        self.spawner.resume();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(amounts(&self.other).await, (0, runs));
    }
}

#[tokio::test]
async fn a_live_run_reserves_again_after_being_settled_as_lost() {
    let mut test = StoppableRun::start().await;
    test.spawner.stop();
    test.installation.clock.advance(Duration::from_secs(61));
    assert_eq!(test.pass().await, 1, "its process may be about to renew it");
    test.installation.clock.advance(Duration::from_secs(29));
    assert_eq!(test.pass().await, 1);
    test.installation.clock.advance(Duration::from_secs(1));
    assert_eq!(test.pass().await, 0);
    let later = budgets(&test.other).admit_run(&scope("b")).await.expect("the place is free");
    test.resume(2).await;
    drop(later);
    budgets(&test.other).flush().await;
    assert_eq!(amounts(&test.other).await, (0, 1));
    refused_run(&test.other).await;
    drop(test.run);
    budgets(&test.process).flush().await;
    assert_eq!(amounts(&test.other).await, (0, 0));
    budgets(&test.other).admit_run(&scope("c")).await.expect("the place is free");
}

/// After a time without the store, the leases of all runs have ended.
#[tokio::test]
async fn no_run_is_lost_by_an_outage_of_the_store() {
    let mut test = StoppableRun::start().await;
    test.spawner.stop();
    test.installation.clock.advance(Duration::from_secs(120));
    assert_eq!(test.pass().await, 1, "the first pass after that time");
    test.resume(1).await;
    for _ in 0..4 {
        test.installation.clock.advance(Duration::from_secs(15));
        test.resume(1).await;
        assert_eq!(test.pass().await, 1);
    }
    refused_run(&test.other).await;
    drop(test.run);
    budgets(&test.process).flush().await;
    budgets(&test.other).admit_run(&scope("b")).await.expect("the place is free");
}

/// As by a process that was stopped between its pass and its commit.
#[tokio::test]
async fn a_reservation_that_was_renewed_since_it_was_read_is_not_settled() {
    let test = StoppableRun::start().await;
    let reservation = test.run.reservation.0.as_ref().expect("a reservation");
    let reservations =
        Collection::of_platform("budgetReservations").and_then(|all| all.within(COMPANY)).expect("a name");
    let key = reservations.key(reservation.id()).expect("a key");
    let version =
        async || test.installation.records.get(&key).await.expect("read").expect("a record").version;
    let settle = async |version: u64| {
        let (company_id, id) = (CompanyId::from(COMPANY), reservation.id().to_owned());
        let settlement = Settlement { company_id, id, version: Some(version), used: UsedAmounts::Nothing };
        budgets(&test.other).settle(vec![settlement]).await.expect("the store works");
        amounts(&test.other).await
    };
    let read = version().await;
    test.installation.clock.advance(Duration::from_secs(20));
    test.installation.clock.wait_for_sleepers(1).await;
    let renewed = version().await;
    assert_ne!(renewed, read);
    assert_eq!(settle(read).await, (0, 1));
    assert_eq!(settle(renewed).await, (0, 0));
}
