//! Budgets over records in memory: admission, settlement, and what is left by lost processes.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use agent_core::backend::{Backend, BackendCapabilities, PreparedRequest, Turn};
use agent_core::budget::TokenBudget;
use agent_core::clock::Clock as _;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{AssistantRole, Event, EventStream, RunIds, SourceEvent};
use agent_core::payload::Payload;
use agent_core::role::WorkflowConnector;
use agent_core::select::{BackendChoice, BackendKind};
use agent_core::testing::{ManualClock, backend_turn, prepare_turn, start_turn};
use agent_core::tool::Caller;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::{
    Booking, ExpiredReservations, MemoryUsage, MeteredBackend, NanoUsd, PriceTable, RunScope, TokenCounts,
    UsageEntry, UsageOperation, UsageRecorder, UsageStore,
};
use super::deadline::with_deadline;
use super::*;
use crate::memory::MemoryRecords;
use crate::records::{Collection, Inventory, ListQuery, Precondition, Records as _};
use crate::spawner::Spawner;
use crate::user_rates::{SessionLimits, UserRates};

mod hostile;
mod locked;
mod stopped;
mod zones;

const COMPANY: &str = "acme";
/// Prices with which a token of input costs 1,000 nano-dollars, and one of output 10,000.
const PRICES: &str =
    r#"{"asOf":"2026-01-01","models":[{"provider":"p","model":"m","prices":{"input":"1","output":"10"}}]}"#;

/// Processes that share records and a ledger.
struct Installation {
    records: Arc<MemoryRecords>,
    usage: Arc<MemoryUsage>,
    clock: ManualClock,
}

impl Installation {
    fn new() -> Self {
        Self { records: Arc::default(), usage: Arc::default(), clock: ManualClock::new() }
    }

    /// Returns the recorder of another process.
    fn process(&self) -> UsageRecorder {
        self.process_with(DefaultLimits::default())
    }

    /// Returns the recorder of another process with default limits.
    fn process_with(&self, defaults: DefaultLimits) -> UsageRecorder {
        let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
        self.process_over(spawner, Duration::from_secs(60), defaults)
    }

    /// Returns the recorder of another process whose tasks a spawner runs, and whose reservations are lost after `lease`.
    fn process_over(
        &self,
        spawner: Arc<dyn Spawner>,
        lease: Duration,
        defaults: DefaultLimits,
    ) -> UsageRecorder {
        let clock = Arc::new(self.clock.clone());
        let options = BudgetOptions { lease, max_wait: Duration::from_millis(500) };
        let (records, usage) = (self.records.clone(), self.usage.clone());
        let rates = UserRates::new(records.clone(), SessionLimits::default(), clock.clone(), spawner.clone());
        let budgets = Budgets::new(records, usage.clone(), clock.clone(), spawner.clone(), options)
            .with_default_limits(defaults, rates);
        let prices = PriceTable::empty().merged(PRICES).expect("prices");
        UsageRecorder::new(usage, prices, clock, spawner, None, Some(budgets))
    }
}

fn scope(run: &str) -> RunScope {
    RunScope {
        company_id: COMPANY.into(),
        run_id: run.into(),
        agent_id: "guide".into(),
        user_id: "ada".into(),
        caller: Caller::Session,
        token_id: None,
        visitor: None,
    }
}

fn budgets(process: &UsageRecorder) -> &Budgets {
    process.budgets().expect("budgets")
}

async fn put(process: &UsageRecorder, kind: BudgetKind, subject: &str, limits: Value) {
    let body = json!({ "limits": limits });
    let budget = Budget::read(kind, body.as_object().expect("an object")).expect("a budget");
    let company = COMPANY.into();
    let put = budgets(process).put(&company, (kind, subject), &budget, Precondition::Any);
    put.await.expect("written");
}

async fn put_company(process: &UsageRecorder, limit: Value) {
    put(process, BudgetKind::Company, COMPANY, json!([limit])).await;
}

/// Returns the used and the reserved amount of the company's first limit.
async fn amounts(process: &UsageRecorder) -> (i64, i64) {
    let company = COMPANY.into();
    let found = budgets(process).get(&company, BudgetKind::Company, COMPANY).await.expect("read");
    let budget = found.expect("a budget").value;
    let subject = (BudgetKind::Company, COMPANY);
    let status = budgets(process).status(&company, subject, &budget).await.expect("read");
    (status.limits[0].used, status.limits[0].reserved)
}

/// A call of 20 tokens of input, 21 with the margin.
fn demand(process: &UsageRecorder, output_tokens: u64) -> CallDemand {
    CallDemand {
        provider: "p".to_owned(),
        model: "m".to_owned(),
        prompt_tokens: 20,
        output_tokens,
        price: process.prices().price("p", "m").cloned(),
    }
}

/// Reserves for a call, which may shrink; returns the reservation and its number of output tokens.
async fn reserve(process: &UsageRecorder, output: u64) -> Result<(Hold, u64), AgentError> {
    let reserved = budgets(process).reserve_call(&scope("run"), demand(process, output), || true).await?;
    Ok(reserved.expect("a limit"))
}

fn used(hold: &Hold, input_tokens: u64, output_tokens: u64) -> UsageEntry {
    UsageEntry {
        id: hold.id().to_owned(),
        scope: scope("run"),
        round: 1,
        attempt: 1,
        operation: UsageOperation::Chat,
        provider: "p".to_owned(),
        model: "m".to_owned(),
        tokens: TokenCounts { input_tokens, output_tokens, ..TokenCounts::default() },
        tool_calls: 0,
        cost: None,
        price_as_of: None,
        estimated: false,
        outcome: "ok".to_owned(),
        ended_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

/// Books a call that has used these tokens, and settles its reservation.
async fn settle(process: &UsageRecorder, hold: Hold, input: u64, output: u64) {
    let entry = used(&hold, input, output);
    process.book(vec![entry], Some(hold), None);
    process.flush().await;
}

fn refusal(error: &AgentError) -> &BudgetExceededError {
    BudgetExceededError::find(error).expect("a spent budget")
}

#[tokio::test]
async fn a_call_reserves_the_most_that_it_can_use() {
    let installation = Installation::new();
    let process = installation.process();
    assert!(
        budgets(&process)
            .reserve_call(&scope("run"), demand(&process, 100), || true)
            .await
            .unwrap()
            .is_none()
    );
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (first, output) = reserve(&process, 500).await.expect("within the limit");
    assert_eq!((output, amounts(&process).await), (500, (0, 521)));
    let (second, output) = reserve(&process, 500).await.expect("with a shorter answer");
    assert_eq!((output, amounts(&process).await), (458, (0, 1_000)));
    settle(&process, first, 20, 30).await;
    assert_eq!(amounts(&process).await, (50, 479));
    drop(second);
    budgets(&process).flush().await;
    assert_eq!(amounts(&process).await, (50, 0));
}

#[tokio::test]
async fn a_budget_is_spent_to_its_last_part_and_not_beyond() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "cost", "amount": "0.01", "window": "month"})).await;
    // 21 tokens of input cost 21,000, and 256 of output 2,560,000 nano-dollars.
    let mut outputs = Vec::new();
    let error = loop {
        match reserve(&process, 400).await {
            Ok((hold, output)) => {
                outputs.push(output);
                settle(&process, hold, 21, output).await;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(outputs, [400, 400]);
    assert_eq!(amounts(&process).await, (8_042_000, 0));
    let refused = refusal(&error);
    assert_eq!((error.kind(), refused.is_rate), (AgentErrorKind::BudgetExceeded, false));
    assert_eq!((refused.amount, refused.used, refused.reserved), (10_000_000, 8_042_000, 0));
    assert_eq!(refused.resets_at, Some("2026-02-01T00:00:00Z".parse().expect("a time")));
    assert_eq!(
        error.message(),
        "the company's budget of cost for this month has too little left for the request"
    );
    assert_eq!(error.members()[0].1["used"], "0.008042000");
}

#[tokio::test]
async fn the_rest_of_a_budget_shortens_the_answer() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "cost", "amount": "0.003", "window": "month"})).await;
    let (hold, output) = reserve(&process, 4_000).await.expect("a shorter answer");
    assert_eq!(output, 297);
    settle(&process, hold, 21, output).await;
    let error = reserve(&process, 1).await.err().expect("nothing is left for the prompt");
    assert_eq!(error.kind(), AgentErrorKind::BudgetExceeded);
    let fixed = budgets(&process).reserve_call(&scope("run"), demand(&process, 400), || false).await;
    assert_eq!(fixed.err().expect("no room").kind(), AgentErrorKind::BudgetExceeded);
}

#[tokio::test]
async fn visitors_are_told_the_code_alone() {
    let installation = Installation::new();
    let process = installation.process();
    put(&process, BudgetKind::Token, "t", json!([{"unit": "tokens", "amount": 0, "window": "day"}])).await;
    let visitor = RunScope { user_id: "widget:t".into(), caller: Caller::Widget, ..scope("run") };
    let error = budgets(&process).reserve_call(&visitor, demand(&process, 9), || true).await;
    let error = error.err().expect("no tokens");
    assert_eq!((error.kind(), error.members().len()), (AgentErrorKind::BudgetExceeded, 0));
    assert!(!error.message().contains("token") && error.retry_after().is_some(), "{error}");
    let owner = budgets(&process).reserve_call(&scope("run"), demand(&process, 9), || true).await;
    assert!(owner.expect("the user's own calls").is_none());
}

#[tokio::test]
async fn the_budget_of_an_api_token_holds_beside_that_of_its_user() {
    let installation = Installation::new();
    let process = installation.process();
    let limit = |amount: u64| json!([{"unit": "tokens", "amount": amount, "window": "day"}]);
    put(&process, BudgetKind::Token, "t", limit(100)).await;
    put(&process, BudgetKind::User, "ada", limit(1_000)).await;
    let by_token = |id: &str| RunScope { token_id: Some(id.to_owned()), ..scope("run") };
    let reserve = async |scope: RunScope| {
        let reserved = budgets(&process).reserve_call(&scope, demand(&process, 60), || false).await;
        reserved.map(|reserved| reserved.expect("a budget").0)
    };
    let hold = reserve(by_token("t")).await.expect("81 of 100 tokens");
    settle(&process, hold, 20, 60).await;
    let error = reserve(by_token("t")).await.err().expect("20 tokens are left");
    assert_eq!((refusal(&error).kind, refusal(&error).used), (BudgetKind::Token, 80));
    for scope in [by_token("u"), scope("run")] {
        let hold = reserve(scope).await.expect("the budget of the user");
        settle(&process, hold, 20, 60).await;
    }
    budgets(&process).flush().await;
    let company = COMPANY.into();
    let of_user = (BudgetKind::User, "ada");
    let budget =
        budgets(&process).get(&company, of_user.0, of_user.1).await.expect("read").expect("a budget");
    let status = budgets(&process).status(&company, of_user, &budget.value).await.expect("read");
    assert_eq!(status.limits[0].used, 240, "the calls of tokens are its user's too");
}

#[tokio::test]
async fn a_call_waits_for_what_others_have_reserved() {
    let installation = Installation::new();
    let (process, other) = (installation.process(), installation.process());
    put_company(&process, json!({"unit": "tokens", "amount": 600, "window": "day"})).await;
    let (hold, _) = reserve(&other, 500).await.expect("the first");
    let waiting = tokio::spawn({
        let process = process.clone();
        async move { reserve(&process, 500).await.map(|(hold, output)| (hold.id().to_owned(), output)) }
    });
    installation.clock.wait_for_sleepers(1).await;
    settle(&other, hold, 20, 10).await;
    while !waiting.is_finished() {
        installation.clock.advance(Duration::from_millis(200));
        tokio::task::yield_now().await;
    }
    let (_, output) = waiting.await.expect("no panic").expect("admitted");
    assert_eq!(output, 500);
    budgets(&process).flush().await;
    let (hold, _) = reserve(&other, 500).await.expect("the first");
    let waiting = reserve(&process, 500);
    let mut waiting = std::pin::pin!(waiting);
    let error = loop {
        if let std::task::Poll::Ready(result) = futures_util::poll!(waiting.as_mut()) {
            break result.err().expect("nobody gives back in time");
        }
        installation.clock.advance(Duration::from_millis(200));
        tokio::task::yield_now().await;
    };
    assert_eq!(refusal(&error).reserved, 521);
    drop(hold);
}

#[tokio::test]
async fn concurrent_processes_never_exceed_a_limit_and_use_it_up() {
    let installation = Installation::new();
    let amount = 100_000;
    let processes: Vec<UsageRecorder> = (0..3).map(|_| installation.process()).collect();
    put_company(&processes[0], json!({"unit": "tokens", "amount": amount, "window": "day"})).await;
    let clients = (0..64).map(|client| {
        let process = processes[client % 3].clone();
        async move {
            let mut admitted = 0;
            loop {
                match reserve(&process, 400).await {
                    Ok((hold, output)) => {
                        admitted += 1;
                        process.book(
                            vec![used(&hold, 20, output.min(100 + 3 * client as u64))],
                            Some(hold),
                            None,
                        );
                        process.flush().await;
                    }
                    Err(_) => return admitted,
                }
            }
        }
    });
    let watched = async {
        loop {
            let (used, reserved) = amounts(&processes[0]).await;
            assert!(used + reserved <= amount, "{used} + {reserved}");
            installation.clock.advance(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    };
    let admitted: Vec<u64> = tokio::select! {
        admitted = futures_util::future::join_all(clients) => admitted,
        () = watched => unreachable!(),
    };
    let (used, reserved) = amounts(&processes[0]).await;
    assert_eq!(reserved, 0);
    assert!(used >= amount * 99 / 100 && used <= amount, "{used}");
    assert!(admitted.iter().all(|count| *count > 0), "{admitted:?}");
    let booked = installation.usage.run_usage(&COMPANY.into(), &"run".into()).await.expect("entries");
    let sum: u64 = booked.iter().map(|entry| entry.tokens.input_tokens + entry.tokens.output_tokens).sum();
    assert_eq!((sum, booked.len() as u64), (used as u64, admitted.iter().sum()));
}

#[tokio::test]
async fn a_lost_process_is_booked_with_what_it_had_reserved() {
    let installation = Installation::new();
    let (lost, process) = (installation.process(), installation.process());
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (unbooked, _) = reserve(&lost, 300).await.expect("admitted");
    let (booked, _) = reserve(&lost, 300).await.expect("admitted");
    let entry = UsageEntry { ended_at: process.now(), ..used(&booked, 20, 5) };
    installation.usage.book(vec![entry]).await.expect("booked");
    let run = budgets(&lost).admit_run(&scope("run")).await.expect("no limit on runs");
    assert!(run.hold.0.is_none());
    // The process ends without settling anything.
    for hold in [unbooked, booked] {
        std::mem::forget(hold);
    }
    let inventory: &dyn Inventory = &*installation.records;
    let mut expired = ExpiredReservations::default();
    assert!(expired.settle_page(inventory, budgets(&process), &process).await.expect("a page"));
    assert_eq!(amounts(&process).await, (0, 642), "the leases are not over");
    installation.clock.advance(Duration::from_secs(61));
    for _ in 0..2 {
        let mut expired = ExpiredReservations::default();
        while expired.settle_page(inventory, budgets(&process), &process).await.expect("a page") {}
        assert_eq!(amounts(&process).await, (321 + 25, 0));
    }
    let entries = installation.usage.run_usage(&COMPANY.into(), &"run".into()).await.expect("entries");
    assert_eq!(entries.len(), 2);
    let lost = entries.iter().find(|entry| entry.outcome == "lost").expect("the lost call");
    assert_eq!((lost.estimated, lost.cost), (true, Some(NanoUsd::new(21_000 + 3_000_000))));
}

#[tokio::test]
async fn a_meter_begins_with_what_the_ledger_has() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "month"})).await;
    let (hold, _) = reserve(&process, 300).await.expect("admitted");
    settle(&process, hold, 20, 280).await;
    let limits = json!([{"unit": "tokens", "amount": 700, "window": "day"}]);
    put(&process, BudgetKind::User, "ada", limits).await;
    let error = reserve(&process, 500).await.map(|(_, output)| output);
    assert_eq!(error.expect("a shorter answer"), 379, "300 of 700 are used by the ledger");
    installation.clock.advance(Duration::from_secs(24 * 60 * 60));
    budgets(&process).flush().await;
    assert_eq!(reserve(&process, 500).await.expect("the next day").1, 500);
}

#[tokio::test]
async fn runs_and_tool_calls_are_counted() {
    let installation = Installation::new();
    let process = installation.process();
    let limits = json!([
        {"unit": "runs", "amount": 3, "window": "minute"},
        {"unit": "concurrentRuns", "amount": 2},
        {"unit": "toolCalls", "amount": 1, "window": "day"},
    ]);
    put(&process, BudgetKind::Agent, "guide", limits).await;
    let budgets = budgets(&process);
    let first = budgets.admit_run(&scope("a")).await.expect("admitted").hold.0.expect("a hold");
    let _second = budgets.admit_run(&scope("b")).await.expect("admitted");
    let error = budgets.admit_run(&scope("c")).await.err().expect("two at once");
    assert_eq!(
        (error.kind(), refusal(&error).unit),
        (AgentErrorKind::RateLimited, BudgetUnit::ConcurrentRuns)
    );
    drop(first);
    budgets.flush().await;
    let third = budgets.admit_run(&scope("c")).await.expect("admitted");
    drop(third);
    budgets.flush().await;
    let error = budgets.admit_run(&scope("d")).await.err().expect("three in a minute");
    assert_eq!((error.kind(), refusal(&error).unit), (AgentErrorKind::RateLimited, BudgetUnit::Runs));
    installation.clock.advance(Duration::from_secs(60));
    budgets.admit_run(&scope("d")).await.expect("the next minute");
    budgets.admit_tool_call(&scope("d")).await.expect("the first");
    let error = budgets.admit_tool_call(&scope("d")).await.expect_err("the second");
    assert_eq!(error.kind(), AgentErrorKind::BudgetExceeded);
}

#[tokio::test]
async fn each_run_has_the_budget_of_its_agents_runs() {
    let installation = Installation::new();
    let process = installation.process();
    put(&process, BudgetKind::Run, "guide", json!([{"unit": "toolCalls", "amount": 2, "window": "run"}]))
        .await;
    for run in ["a", "b"] {
        for _ in 0..2 {
            budgets(&process).admit_tool_call(&scope(run)).await.expect("within the limit");
        }
        let error = budgets(&process).admit_tool_call(&scope(run)).await.expect_err("the third");
        assert_eq!(error.message(), "the run's budget of tool calls is spent");
    }
    for _ in 0..3 {
        budgets(&process)
            .admit_tool_call(&scope(""))
            .await
            .expect("not in a run, as the calls of MCP clients");
    }
    let of_another = RunScope { user_id: "bob".into(), ..scope("a") };
    budgets(&process).admit_tool_call(&of_another).await.expect("another user's run with the same id");
    let meters =
        Collection::of_platform("budgetMeters").and_then(|meters| meters.within(COMPANY)).expect("a name");
    let count = async || {
        installation.records.list(&meters, &ListQuery::default()).await.expect("a page").records.len()
    };
    assert_eq!(count().await, 3);
    let mut expired = ExpiredReservations::default();
    let later = process.now() + jiff::SignedDuration::from_hours(24 * 41);
    // The records' times are those of the system.
    let later = later.max(
        jiff::Timestamp::try_from(std::time::SystemTime::now()).expect("a time")
            + jiff::SignedDuration::from_hours(24 * 41),
    );
    while expired.delete_meters_page(&*installation.records, later).await.expect("a page") {}
    assert_eq!(count().await, 0);
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_where_the_cost_is_limited() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "cost", "amount": "5", "window": "month"})).await;
    let unpriced = CallDemand { model: "new".to_owned(), price: None, ..demand(&process, 10) };
    let error = budgets(&process).reserve_call(&scope("run"), unpriced, || true).await;
    let error = error.err().expect("no price");
    assert_eq!(error.kind(), AgentErrorKind::PriceUnknown);
    assert!(error.message().contains("\"new\""), "{error}");
}

#[tokio::test]
async fn a_lowered_limit_and_a_used_one_refuse() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 1_000, "window": "day"})).await;
    let (hold, _) = reserve(&process, 300).await.expect("admitted");
    put_company(&process, json!({"unit": "tokens", "amount": 10, "window": "day"})).await;
    let error = reserve(&process, 300).await.err().expect("beyond the new limit");
    assert_eq!((refusal(&error).amount, refusal(&error).reserved), (10, 321));
    settle(&process, hold, 20, 300).await;
    assert_eq!(amounts(&process).await, (320, 0));
    let error = reserve(&process, 1).await.err().expect("more is used than the new limit");
    assert_eq!((refusal(&error).amount, refusal(&error).used), (10, 320));
    // Absurd reports do not overflow.
    put_company(&process, json!({"unit": "tokens", "amount": 1_000_000_000_000_000i64, "window": "day"}))
        .await;
    let (hold, _) = reserve(&process, 300).await.expect("admitted");
    settle(&process, hold, u64::MAX, u64::MAX).await;
    assert_eq!(amounts(&process).await, (i64::MAX, 0));
    assert!(installation.clock.now() > std::time::UNIX_EPOCH);
}

/// The longest run may take half an hour, for which the places of a killed process must not be taken.
#[tokio::test]
async fn the_places_of_a_lost_process_are_free_soon_and_those_of_long_runs_are_kept() {
    let installation = Installation::new();
    let lease = Duration::from_secs(31 * 60);
    let tasks: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
    let killable: Arc<dyn Spawner> = {
        let tasks = tasks.clone();
        Arc::new(move |task: BoxFuture<'static, ()>| {
            tasks.lock().expect("unpoisoned").push(tokio::spawn(task));
        })
    };
    let lost = installation.process_over(killable, lease, DefaultLimits::default());
    let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
    let process = installation.process_over(spawner, lease, DefaultLimits::default());
    put_company(&process, json!({"unit": "concurrentRuns", "amount": 2})).await;
    let kept = budgets(&process).admit_run(&scope("a")).await.expect("admitted");
    std::mem::forget(budgets(&lost).admit_run(&scope("b")).await.expect("admitted"));
    let killed = std::mem::take(&mut *tasks.lock().expect("unpoisoned"));
    for task in killed {
        task.abort();
        // The task is dropped, and so is its timer.
        let _ = task.await;
    }
    let mut expired = ExpiredReservations::default();
    let mut settle = async || {
        let inventory: &dyn Inventory = &*installation.records;
        while expired.settle_page(inventory, budgets(&process), &process).await.expect("a page") {}
        amounts(&process).await
    };
    // The lease ends after a minute, and half a minute later its process has not renewed it.
    for reserved in [2, 2, 2, 2, 2, 2, 1] {
        assert_eq!(settle().await, (0, reserved));
        // The process has renewed the reservation of its run when it waits for the next time.
        installation.clock.wait_for_sleepers(1).await;
        installation.clock.advance(Duration::from_secs(20));
    }
    installation.clock.wait_for_sleepers(1).await;
    assert_eq!(settle().await, (0, 1));
    drop(kept);
    budgets(&process).flush().await;
    assert_eq!(settle().await, (0, 0));
    let reservations =
        Collection::of_platform("budgetReservations").and_then(|all| all.within(COMPANY)).expect("a name");
    assert_eq!(installation.records.count(&reservations).await.expect("the store works"), 0);
}

#[tokio::test]
async fn a_run_ends_when_its_time_is_over() {
    let installation = Installation::new();
    let process = installation.process();
    put(&process, BudgetKind::Run, "guide", json!([{"unit": "wallMs", "amount": 5_000, "window": "run"}]))
        .await;
    let admission = budgets(&process).admit_run(&scope("a")).await.expect("admitted");
    let (timer, error) = admission.deadline.expect("a deadline");
    let ids = RunIds { thread_id: "t".into(), run_id: "a".into() };
    let text = [
        Event::TextMessageStart { message_id: "m".into(), role: AssistantRole::Assistant },
        Event::TextMessageContent { message_id: "m".into(), delta: "Partly".to_owned() },
    ];
    let source = stream::iter(text.map(|event| Ok(SourceEvent::Event(event)))).chain(stream::pending());
    let mut events = with_deadline(EventStream::new(ids, source), timer, error);
    let mut seen = Vec::new();
    let end = loop {
        match futures_util::poll!(events.next()) {
            std::task::Poll::Ready(Some(Event::RunError { code, message, .. })) => break (code, message),
            std::task::Poll::Ready(event) => seen.push(event.expect("the run goes on")),
            std::task::Poll::Pending => installation.clock.advance(Duration::from_secs(1)),
        }
    };
    assert_eq!(end, ("BUDGET_EXCEEDED".to_owned(), "the run's budget of time is spent".to_owned()));
    let starts = seen.iter().filter(|event| matches!(event, Event::RunStarted { .. })).count();
    assert_eq!(starts, 1, "{seen:?}");
    assert!(
        seen.iter()
            .any(|event| matches!(event, Event::TextMessageContent { delta, .. } if delta == "Partly"))
    );
}

/// Service that does not begin to answer.
struct SilentBackend;

#[async_trait]
impl Backend for SilentBackend {
    type Settings = WorkflowConnector;

    fn capabilities(&self, _: &WorkflowConnector) -> Result<BackendCapabilities, AgentError> {
        Ok(BackendCapabilities::new(TokenBudget { max_prompt_tokens: 1_000 }))
    }

    fn prepare(&self, _: &WorkflowConnector, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        Ok(PreparedRequest { payload: Payload::text("{}"), turn })
    }

    async fn start(&self, _: &WorkflowConnector, _: PreparedRequest) -> Result<EventStream, AgentError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_run_that_does_not_begin_ends_when_its_time_is_over() {
    let installation = Installation::new();
    let process = installation.process();
    put(&process, BudgetKind::Run, "guide", json!([{"unit": "wallMs", "amount": 5_000, "window": "run"}]))
        .await;
    let booking = Booking::PerRun(|_| ("p", "m"));
    let backend = MeteredBackend::new(SilentBackend, BackendKind::Workflow, booking, process.clone());
    let mut turn = backend_turn(BackendChoice::Workflow(Box::default()));
    (turn.context.company_id, turn.context.agent_id) = (COMPANY.into(), "guide".into());
    let prepared = prepare_turn(&backend, Arc::new(turn)).expect("a request");
    let mut started = pin!(start_turn(&backend, prepared));
    let mut waited_seconds = 0;
    let error = loop {
        match futures_util::poll!(started.as_mut()) {
            Poll::Ready(started) => break started.err().expect("no time is left"),
            Poll::Pending => {
                assert!(waited_seconds < 5, "the run goes on");
                waited_seconds += 1;
                installation.clock.advance(Duration::from_secs(1));
            }
        }
    };
    assert_eq!(
        (error.kind(), error.message()),
        (AgentErrorKind::BudgetExceeded, "the run's budget of time is spent")
    );
    process.flush().await;
    let booked = process.store().run_usage(&COMPANY.into(), &"run-1".into()).await.expect("entries");
    let [entry] = &booked[..] else { panic!("one entry: {booked:?}") };
    assert_eq!((entry.outcome.as_str(), entry.estimated), ("BUDGET_EXCEEDED", true), "it may have been read");
}

#[tokio::test]
async fn the_requests_that_wait_are_bounded() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 600, "window": "day"})).await;
    let (hold, _) = reserve(&process, 500).await.expect("the first");
    let mut waiting: Vec<_> = (0..1_000).map(|_| Box::pin(reserve(&process, 500))).collect();
    for request in &mut waiting {
        assert!(futures_util::poll!(request).is_pending());
    }
    // The task has taken them, and waits for a settlement.
    installation.clock.wait_for_sleepers(1).await;
    let error = reserve(&process, 500).await.err().expect("one too many");
    assert_eq!(error.kind(), AgentErrorKind::StoreUnavailable);
    waiting.truncate(10);
    installation.clock.advance(Duration::from_millis(200));
    installation.clock.wait_for_sleepers(1).await;
    let mut next = std::pin::pin!(reserve(&process, 500));
    assert!(futures_util::poll!(next.as_mut()).is_pending(), "those that have left do not count");
    drop(hold);
}

fn default_limits(runs: u32, concurrent: u32, tool_calls: u32) -> DefaultLimits {
    DefaultLimits {
        company_runs_per_minute: NonZeroU32::new(runs),
        company_concurrent_runs: NonZeroU32::new(concurrent),
        run_tool_calls: NonZeroU32::new(tool_calls),
    }
}

/// Returns the limit that refuses a run.
async fn refused_run(process: &UsageRecorder) -> BudgetExceededError {
    let error = budgets(process).admit_run(&scope("run")).await.err().expect("a limit is reached");
    BudgetExceededError::find(&error).expect("a limit").clone()
}

#[tokio::test]
async fn concurrent_runs_have_a_default_limit_that_a_budget_replaces() {
    let installation = Installation::new();
    let process = installation.process_with(default_limits(0, 2, 0));
    let admit = async || budgets(&process).admit_run(&scope("run")).await.expect("below the limit");
    let (first, second) = (admit().await, admit().await);
    let refused = refused_run(&process).await;
    let seen = (refused.unit, refused.amount, refused.reserved, refused.is_rate);
    assert_eq!(seen, (BudgetUnit::ConcurrentRuns, 2, 2, true));
    assert_eq!(refused.policy_name().as_deref(), Some("company-concurrent"));
    let other = RunScope { company_id: "other".into(), ..scope("run") };
    budgets(&process).admit_run(&other).await.expect("another company");
    drop(first);
    let third = admit().await;
    refused_run(&process).await;
    put_company(&process, json!({"unit": "concurrentRuns", "amount": 1})).await;
    // The company's own limit begins without the runs that were admitted without it.
    let fourth = admit().await;
    let refused = refused_run(&process).await;
    assert_eq!((refused.amount, refused.reserved), (1, 1));
    assert!(budgets(&process).default_status(&COMPANY.into()).await.expect("read").is_empty());
    drop((second, third, fourth));
    budgets(&process).flush().await;
    admit().await;
}

#[tokio::test]
async fn the_default_limit_on_concurrent_runs_is_of_all_processes() {
    let installation = Installation::new();
    let processes = [(); 2].map(|()| installation.process_with(default_limits(0, 16, 0)));
    let admit_all = async |process: &UsageRecorder| {
        let mut runs = Vec::new();
        while let Ok(run) = budgets(process).admit_run(&scope("run")).await {
            runs.push(run);
        }
        runs
    };
    // A process admits an eighth of the limit without a commit.
    let admit = async || budgets(&processes[1]).admit_run(&scope("run")).await.expect("below the limit");
    let second = [admit().await, admit().await];
    let meters =
        Collection::of_platform("budgetMeters").and_then(|meters| meters.within(COMPANY)).expect("a name");
    assert_eq!(installation.records.count(&meters).await.expect("the store works"), 0);
    let mut first = admit_all(&processes[0]).await;
    assert_eq!(first.len(), 16);
    assert_eq!(admit_all(&processes[1]).await.len(), 0, "the first process has taken what the store gives");
    let refused = refused_run(&processes[1]).await;
    assert_eq!((refused.amount, refused.reserved), (16, 16));
    assert_eq!(refused.policy_name().as_deref(), Some("company-concurrent"));
    let reserved = async |process: &UsageRecorder| {
        let shown = budgets(process).default_status(&COMPANY.into()).await.expect("read");
        shown[0].1.reserved
    };
    assert_eq!(reserved(&processes[1]).await, 16);
    // A place that a process gives back is free for the others.
    drop(first.pop());
    budgets(&processes[0]).flush().await;
    let third = admit_all(&processes[1]).await;
    assert_eq!(third.len(), 1);
    refused_run(&processes[0]).await;
    drop((first, second, third));
    for process in &processes {
        budgets(process).flush().await;
        assert_eq!(reserved(process).await, 0);
    }
}

#[tokio::test]
async fn runs_of_a_company_per_minute_have_a_default_limit_over_all_processes() {
    let installation = Installation::new();
    let limits = default_limits(4, 0, 0);
    let processes = [installation.process_with(limits), installation.process_with(limits)];
    let mut admitted = 0;
    // Half of the limit is admitted at once, the rest by commits.
    while budgets(&processes[0]).admit_run(&scope("run")).await.is_ok() {
        admitted += 1;
    }
    assert_eq!(admitted, 4);
    let refused = refused_run(&processes[0]).await;
    assert_eq!((refused.unit, refused.amount, refused.used), (BudgetUnit::Runs, 4, 4));
    assert_eq!(refused.policy_name().as_deref(), Some("company-minute"));
    assert!(refused.retry_after().is_some_and(|wait| wait <= Duration::from_secs(15)), "{refused:?}");
    let shown = budgets(&processes[1]).default_status(&COMPANY.into()).await.expect("read");
    assert_eq!(
        shown.iter().map(|(kind, status)| (*kind, status.used)).collect::<Vec<_>>(),
        [(BudgetKind::Company, 4)]
    );
    // A limit for another period does not replace it.
    put_company(&processes[0], json!({"unit": "runs", "amount": 100, "window": "day"})).await;
    refused_run(&processes[0]).await;
    put_company(&processes[0], json!({"unit": "runs", "amount": 100, "window": "minute"})).await;
    budgets(&processes[0]).admit_run(&scope("run")).await.expect("the own limit");
}

/// Identifiers of runs are unique among those of a user or a visitor only.
#[tokio::test]
async fn runs_of_others_with_the_same_id_have_limits_of_their_own() {
    let installation = Installation::new();
    let by_default = installation.process_with(default_limits(0, 0, 2));
    let limited = installation.process();
    let widget = || RunScope { user_id: "widget:t".into(), caller: Caller::Widget, ..scope("1") };
    let runs = [
        scope("1"),
        RunScope { user_id: "bob".into(), ..scope("1") },
        widget(),
        RunScope { visitor: Some("00".to_owned()), ..widget() },
        RunScope { visitor: Some("ff".to_owned()), ..widget() },
    ];
    let spend = async |process: &UsageRecorder, run: &RunScope| {
        for _ in 0..2 {
            budgets(process).admit_tool_call(run).await.expect("below the limit");
        }
        budgets(process).admit_tool_call(run).await.expect_err("the limit is reached");
    };
    for run in &runs {
        spend(&by_default, run).await;
    }
    let limits = json!([{"unit": "toolCalls", "amount": 2, "window": "run"}]);
    put(&limited, BudgetKind::Run, "guide", limits).await;
    for run in &runs {
        spend(&limited, run).await;
    }
}

#[tokio::test]
async fn the_tool_calls_of_a_run_have_a_default_limit() {
    let installation = Installation::new();
    let process = installation.process_with(default_limits(0, 0, 2));
    let call = async |run: &str| budgets(&process).admit_tool_call(&scope(run)).await;
    for _ in 0..2 {
        call("run").await.expect("below the limit");
    }
    let error = call("run").await.expect_err("the limit is reached");
    assert_eq!(error.kind(), AgentErrorKind::BudgetExceeded);
    assert_eq!(error.message(), "the run's budget of tool calls is spent");
    let other = RunScope { company_id: "other".into(), ..scope("run") };
    budgets(&process).admit_tool_call(&other).await.expect("a run of another company");
    let other = RunScope { user_id: "bob".into(), ..scope("run") };
    budgets(&process).admit_tool_call(&other).await.expect("a run of another user");
    for _ in 0..3 {
        call("").await.expect("not in a run");
    }
    put(&process, BudgetKind::Run, "guide", json!([{"unit": "toolCalls", "amount": 1, "window": "run"}]))
        .await;
    call("run").await.expect("the agent's own limit, whose count begins");
    call("run").await.expect_err("the agent's own limit");
}
