//! Fixtures of the tests of budgets over records in memory.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use agent_core::backend::Backend;
use agent_core::clock::Clock as _;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::testing::ManualClock;
use agent_core::tool::Caller;
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::{
    Booking, MemoryUsage, MeteredBackend, NanoUsd, PriceTable, ReservationSweep, RunScope, TokenCounts,
    UsageEntry, UsageOperation, UsageRecorder, UsageStore,
};
use super::deadline::with_deadline;
use super::*;
use crate::memory::MemoryRecords;
use crate::records::{Collection, Inventory, ListQuery, Precondition, Records as _};
use crate::spawner::Spawner;
use crate::user_rates::{MinuteRateLimiter, SessionLimits};

mod calls;
mod company_defaults;
mod hostile;
mod locked;
mod runs;
mod stopped;
mod zones;

const COMPANY: &str = "acme";

/// Prices of 1,000 nano-dollars for a token of input, and of 10,000 for one of output.
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
        let rates =
            MinuteRateLimiter::new(records.clone(), SessionLimits::default(), clock.clone(), spawner.clone());
        let budgets = Budgets::new(records, usage.clone(), clock.clone(), spawner.clone(), options)
            .with_default_limits(defaults, rates);
        let prices = PriceTable::empty().merged(PRICES).expect("prices");
        UsageRecorder::new(usage, prices, clock, spawner, None, Some(budgets))
    }
}

/// Spawner of a process that can be killed.
#[derive(Clone, Default)]
struct KillableSpawner(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl KillableSpawner {
    /// Ends all tasks, and with them their timers.
    async fn kill(&self) {
        let tasks = std::mem::take(&mut *self.0.lock().expect("unpoisoned"));
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Spawner for KillableSpawner {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().expect("unpoisoned").push(tokio::spawn(task));
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
async fn reserve(process: &UsageRecorder, output: u64) -> Result<(ReservationGuard, u64), AgentError> {
    let reserved = budgets(process).reserve_call(&scope("run"), demand(process, output), || true).await?;
    Ok(reserved.expect("a limit"))
}

fn used(reservation: &ReservationGuard, input_tokens: u64, output_tokens: u64) -> UsageEntry {
    UsageEntry {
        id: reservation.id().to_owned(),
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
async fn settle(process: &UsageRecorder, reservation: ReservationGuard, input: u64, output: u64) {
    let entry = used(&reservation, input, output);
    process.book(vec![entry], Some(reservation), None);
    process.flush().await;
}

fn refusal(error: &AgentError) -> &BudgetExceededError {
    BudgetExceededError::find(error).expect("a spent budget")
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
