//! Conformance suite for stores of [`Budgets`].

use std::sync::Arc;
use std::time::Duration;

use agent_core::backend::{Backend as _, EmbeddedBackend, ModelSource as _};
use agent_core::clock::{Clock, SystemClock};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::EventStream;
use agent_core::ids::{CompanyId, RunId, UserId};
use agent_core::payload::Payload;
use agent_core::role::EmbeddedAi;
use agent_core::select::{BackendChoice, BackendKind};
use agent_core::store_error::StoreError;
use agent_core::testing::{ManualClock, ScriptedModel, backend_turn};
use agent_core::tool::{Caller, ExecutionContext};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::{Either, join_all, select};
use serde_json::json;

use crate::records::{Inventory, Precondition};
use crate::spawner::Spawner;
use crate::usage::{
    Booking, Budget, BudgetKind, BudgetOptions, Budgets, MeteredBackend, MeteredModels, PriceTable,
    ReservationSweep, StoredRuns, UsageFilter, UsageQuery, UsageRecorder, UsageStore,
};

/// A process's handles of the store under test.
pub type BudgetStores = (Arc<dyn Inventory>, Arc<dyn UsageStore>);

const COMPANY: &str = "acme";
/// The limit in tokens.
const AMOUNT: i64 = 60_000;
/// Number of tokens that each call uses: 10 of the prompt, and an answer of 1,000 bytes.
const CALL_TOKENS: i64 = 260;
const CLIENTS: usize = 64;
const PROCESSES: usize = 3;
/// The limit on the runs of a day.
const RUNS: i64 = 20;
/// The limit on concurrent runs.
const CONCURRENT_RUNS: usize = 5;

/// Runs the conformance suite of [`Budgets`] over stores from `make`, which must return handles of one empty store, one for each of
/// several processes, at every call. `spawner` runs background tasks.
///
/// # Panics
/// If the contract is violated, with a message that describes the violation.
pub async fn budgets(make: impl AsyncFn(usize) -> Vec<BudgetStores>, spawner: Arc<dyn Spawner>) {
    a_limit_is_used_up_and_never_exceeded(&make(PROCESSES).await, &spawner).await;
    reservations_of_a_lost_process_are_settled(&make(PROCESSES).await, &spawner).await;
    concurrent_runs_are_counted_over_all_processes(&make(PROCESSES).await, &spawner).await;
    runs_count_once_they_are_stored(&make(PROCESSES).await, &spawner).await;
    a_run_that_is_stored_late_counts(&make(PROCESSES).await, &spawner).await;
}

/// Returns the recorder of a process whose reservations are lost after `lease`.
fn recorder(stores: &BudgetStores, spawner: &Arc<dyn Spawner>, lease: Duration) -> UsageRecorder {
    recorder_at(stores, spawner, (Arc::new(SystemClock), lease))
}

fn recorder_at(
    (records, usage): &BudgetStores,
    spawner: &Arc<dyn Spawner>,
    (clock, lease): (Arc<dyn Clock>, Duration),
) -> UsageRecorder {
    let options = BudgetOptions { lease, ..BudgetOptions::default() };
    let budgets = Budgets::new(records.clone(), usage.clone(), clock.clone(), spawner.clone(), options);
    UsageRecorder::new(usage.clone(), PriceTable::built_in(), clock, spawner.clone(), None, Some(budgets))
}

fn budgets_of(process: &UsageRecorder) -> &Budgets {
    process.budgets().expect("the recorder has budgets")
}

fn company() -> CompanyId {
    COMPANY.into()
}

fn budget() -> Budget {
    let limits = json!([{"unit": "tokens", "amount": AMOUNT, "window": "month"}]);
    let body = json!({"limits": limits, "timezone": "Asia/Kolkata"});
    Budget::read(BudgetKind::Company, body.as_object().expect("an object")).expect("a budget")
}

async fn set_budget(process: &UsageRecorder) {
    let (company, budget) = (company(), budget());
    let subject = (BudgetKind::Company, COMPANY);
    budgets_of(process)
        .put(&company, subject, &budget, Precondition::Any)
        .await
        .expect("a budget is written");
}

/// Returns the used and the reserved amount.
async fn amounts(process: &UsageRecorder) -> (i64, i64) {
    let (company, budget) = (company(), budget());
    let subject = (BudgetKind::Company, COMPANY);
    let status = budgets_of(process).status(&company, subject, &budget).await.expect("a budget is read");
    (status.limits[0].used, status.limits[0].reserved)
}

/// Begins a call, and reads the whole answer unless the call is to be abandoned.
async fn call(process: &UsageRecorder, is_abandoned: bool) -> Result<(), AgentError> {
    let context = ExecutionContext {
        user_id: "ada".into(),
        company_id: company(),
        agent_id: "guide".into(),
        run_id: "run".into(),
        caller: Caller::Session,
        ..ExecutionContext::default()
    };
    let models = Arc::new(ScriptedModel::repeating("x".repeat(1_000)));
    let models = MeteredModels::new(models, process.clone());
    let model = models.model_for_run(&EmbeddedAi::default(), &context)?;
    let mut payload = Payload::builder(64);
    payload.raw(r#"{"prompt":"forty bytes","max_tokens":"#).output_limit(1_024).raw("}");
    payload.prompt_tokens(Some(10));
    let mut answer = model.start(payload.finish()).await?;
    if is_abandoned {
        // Simulates the sudden end of the process.
        std::mem::forget(answer);
        return Ok(());
    }
    while let Some(event) = answer.next().await {
        event?;
    }
    Ok(())
}

async fn a_limit_is_used_up_and_never_exceeded(stores: &[BudgetStores], spawner: &Arc<dyn Spawner>) {
    let lease = Duration::from_secs(600);
    let processes: Vec<UsageRecorder> =
        stores.iter().map(|stores| recorder(stores, spawner, lease)).collect();
    set_budget(&processes[0]).await;
    let clients = (0..CLIENTS).map(|client| {
        let process = &processes[client % processes.len()];
        async move {
            loop {
                match call(process, false).await {
                    Ok(()) => process.flush().await,
                    Err(error) if error.kind() == AgentErrorKind::BudgetExceeded => return,
                    Err(error) => panic!("a call failed for another reason: {error:?}"),
                }
            }
        }
    });
    let watching = async {
        loop {
            let (used, reserved) = amounts(&processes[0]).await;
            assert!(used + reserved <= AMOUNT, "{used} used and {reserved} reserved exceed {AMOUNT}");
            SystemClock.sleep(Duration::from_millis(1)).await;
        }
    };
    let (clients, watching) = (std::pin::pin!(join_all(clients)), std::pin::pin!(watching));
    match select(clients, watching).await {
        Either::Left(_) => {}
        Either::Right(((), _)) => unreachable!("the watch has no end"),
    }
    for process in &processes {
        process.flush().await;
        budgets_of(process).flush().await;
    }
    let (used, reserved) = amounts(&processes[1]).await;
    assert_eq!(reserved, 0, "no reservation is left after the calls");
    assert!((AMOUNT * 99 / 100..=AMOUNT).contains(&used), "{used} of {AMOUNT} are used");
    let calls = used / CALL_TOKENS;
    assert_eq!(ledger_tokens(&stores[2]).await, (calls, used), "the ledger and the meter agree");
}

/// Returns the number of calls and the tokens that the sums of the ledger have; checks that the entries agree.
async fn ledger_tokens((_, usage): &BudgetStores) -> (i64, i64) {
    let days =
        UsageFilter { from: jiff::civil::Date::ZERO, to: jiff::civil::Date::MAX, agent: None, user: None };
    let query = UsageQuery { filter: days, group_by: Vec::new(), after: None, limit: 1 };
    let page = usage.usage(&company(), &query).await.expect("usage is read");
    let sums = page.rows.first().expect("a row").sums;
    let entries = usage.run_usage(&company(), &"run".into()).await.expect("usage is read");
    let tokens = |input: u64, output: u64| i64::try_from(input + output).expect("few tokens");
    let of_entries: i64 =
        entries.iter().map(|entry| tokens(entry.tokens.input_tokens, entry.tokens.output_tokens)).sum();
    let of_days = tokens(sums.tokens.input_tokens, sums.tokens.output_tokens);
    assert_eq!(of_entries, of_days, "the entries and the daily sums agree");
    (i64::try_from(sums.calls).expect("few calls"), of_days)
}

async fn reservations_of_a_lost_process_are_settled(stores: &[BudgetStores], spawner: &Arc<dyn Spawner>) {
    let lost = recorder(&stores[0], spawner, Duration::ZERO);
    let processes =
        [recorder(&stores[1], spawner, Duration::ZERO), recorder(&stores[2], spawner, Duration::ZERO)];
    set_budget(&lost).await;
    for _ in 0..10 {
        call(&lost, true).await.expect("a call within the limit is admitted");
    }
    let reserved = 10 * (11 + 1_024);
    assert_eq!(amounts(&processes[0]).await, (0, reserved));
    SystemClock.sleep(Duration::from_millis(2)).await;
    // Two processes find the reservations at the same time.
    let passes = processes.iter().zip(&stores[1..]).map(|(process, (inventory, _))| async move {
        let mut sweep = ReservationSweep::default();
        while sweep.settle_page(&**inventory, budgets_of(process), process).await.expect("a page") {}
    });
    join_all(passes).await;
    assert_eq!(amounts(&lost).await, (reserved, 0), "each reservation is settled once");
    assert_eq!(ledger_tokens(&stores[1]).await, (10, reserved));
}

/// Begins a run, which lasts until the stream is dropped.
async fn start_run(backend: &MeteredBackend<EmbeddedBackend>) -> Result<EventStream, AgentError> {
    let settings = EmbeddedAi::default();
    let mut turn = backend_turn(BackendChoice::Embedded(settings.clone()));
    turn.context.company_id = company();
    let prepared = backend.prepare(&settings, Arc::new(turn))?;
    backend.start(&settings, prepared).await
}

async fn concurrent_runs_are_counted_over_all_processes(stores: &[BudgetStores], spawner: &Arc<dyn Spawner>) {
    let lease = Duration::from_secs(600);
    let processes: Vec<UsageRecorder> =
        stores.iter().map(|stores| recorder(stores, spawner, lease)).collect();
    let body = json!({"limits": [{"unit": "concurrentRuns", "amount": CONCURRENT_RUNS}]});
    let budget = Budget::read(BudgetKind::Company, body.as_object().expect("an object")).expect("a budget");
    let (company, subject) = (company(), (BudgetKind::Company, COMPANY));
    let put = budgets_of(&processes[0]).put(&company, subject, &budget, Precondition::Any).await;
    put.expect("a budget is written");
    let backend = |process: &UsageRecorder| {
        let models: EmbeddedBackend = EmbeddedBackend::new(Arc::new(ScriptedModel::repeating("x")));
        MeteredBackend::new(models, BackendKind::Embedded, Booking::PerCall, process.clone())
    };
    let backends: Vec<_> = processes.iter().map(backend).collect();
    for _ in 0..2 {
        let runs = (0..CLIENTS).map(|client| start_run(&backends[client % backends.len()]));
        let (begun, refused): (Vec<_>, Vec<_>) = join_all(runs).await.into_iter().partition(Result::is_ok);
        assert_eq!(begun.len(), CONCURRENT_RUNS, "the limit on concurrent runs counts over all processes");
        for error in refused.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), AgentErrorKind::RateLimited, "{error:?}");
        }
        // Other runs can take their permits, in any process.
        drop(begun);
        for process in &processes {
            budgets_of(process).flush().await;
        }
    }
}

fn runs_budget() -> Budget {
    let body = json!({"limits": [{"unit": "runs", "amount": RUNS, "window": "day"}]});
    Budget::read(BudgetKind::Company, body.as_object().expect("an object")).expect("a budget")
}

/// Limits the runs of a day to [`RUNS`].
async fn limit_runs(process: &UsageRecorder) {
    let subject = (BudgetKind::Company, COMPANY);
    let put = budgets_of(process).put(&company(), subject, &runs_budget(), Precondition::Any).await;
    put.expect("a budget is written");
}

/// Returns the used and the reserved runs of the day.
async fn counted_runs(process: &UsageRecorder) -> (i64, i64) {
    let subject = (BudgetKind::Company, COMPANY);
    let found = budgets_of(process).status(&company(), subject, &runs_budget()).await;
    let limit = found.expect("a budget is read").limits[0];
    (limit.used, limit.reserved)
}

fn context(run: &str) -> ExecutionContext {
    ExecutionContext {
        user_id: "ada".into(),
        company_id: company(),
        agent_id: "guide".into(),
        run_id: run.into(),
        ..ExecutionContext::default()
    }
}

/// Of the runs that are admitted, every second one is not stored.
async fn runs_count_once_they_are_stored(stores: &[BudgetStores], spawner: &Arc<dyn Spawner>) {
    let lease = Duration::from_secs(600);
    let processes: Vec<UsageRecorder> =
        stores.iter().map(|stores| recorder(stores, spawner, lease)).collect();
    limit_runs(&processes[0]).await;
    let clients = (0..CLIENTS).map(|client| {
        let process = &processes[client % processes.len()];
        async move {
            let mut stored = 0_i64;
            for attempt in 0_u32.. {
                match process.admit_run(&context(&format!("{client}-{attempt}"))).await {
                    Ok(run) if attempt % 2 == 0 => drop(run),
                    Ok(run) => {
                        run.outcome().record_stored();
                        stored += 1;
                    }
                    Err(error) if error.kind() == AgentErrorKind::BudgetExceeded => break,
                    Err(error) => panic!("a run is refused for another reason: {error:?}"),
                }
            }
            stored
        }
    });
    let watching = async {
        loop {
            let (used, reserved) = counted_runs(&processes[0]).await;
            assert!(used + reserved <= RUNS, "{used} used and {reserved} reserved exceed {RUNS}");
            SystemClock.sleep(Duration::from_millis(1)).await;
        }
    };
    let (clients, watching) = (std::pin::pin!(join_all(clients)), std::pin::pin!(watching));
    let stored: i64 = match select(clients, watching).await {
        Either::Left((stored, _)) => stored.into_iter().sum(),
        Either::Right(((), _)) => unreachable!("the watch has no end"),
    };
    for process in &processes {
        budgets_of(process).flush().await;
    }
    let counted = counted_runs(&processes[0]).await;
    assert_eq!(
        (stored, counted),
        (RUNS, (RUNS, 0)),
        "only stored runs count, so as many begin as the limit permits"
    );
}

/// A store without runs.
struct NoRuns;

#[async_trait]
impl StoredRuns for NoRuns {
    async fn has_run(&self, _: &CompanyId, _: &UserId, _: &RunId) -> Result<bool, StoreError> {
        Ok(false)
    }
}

/// A run that stays unstored for longer than its reservation lasts without a renewal.
async fn a_run_that_is_stored_late_counts(stores: &[BudgetStores], spawner: &Arc<dyn Spawner>) {
    let clock = ManualClock::at(SystemClock.now());
    let lease = Duration::from_secs(600);
    let process = |stores| recorder_at(stores, spawner, (Arc::new(clock.clone()), lease));
    let (starting, other) = (process(&stores[0]), process(&stores[1]));
    limit_runs(&starting).await;
    let run = starting.admit_run(&context("late")).await.expect("a run is admitted");
    let mut sweep = ReservationSweep::new(Some(Arc::new(NoRuns)));
    for _ in 0..8 {
        while sweep.settle_page(&*stores[1].0, budgets_of(&other), &other).await.expect("a page") {}
        assert_eq!(
            counted_runs(&other).await,
            (0, 1),
            "the reservation of a run that is not stored yet is kept"
        );
        // Its process has renewed the reservation once it sleeps again.
        clock.wait_for_sleepers(1).await;
        clock.advance(Duration::from_secs(20));
    }
    clock.wait_for_sleepers(1).await;
    run.outcome().record_stored();
    drop(run);
    budgets_of(&starting).flush().await;
    assert_eq!(counted_runs(&other).await, (1, 0), "the run is stored");
}
