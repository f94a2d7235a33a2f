//! `cargo bench -p benches --bench budgets`: time that a budget adds to the begin of a model's call, and calls of one company
//! at once beside calls one after another.
//!
//! The store is SQLite, in `TMPDIR`, which must be on a disk for meaningful figures of commits. The model answers at once, so
//! that the figures are those of admission, ledger and settlement alone. Both subjects in turns within each of seven repeats;
//! figures are medians.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::sync::Arc;
use std::time::Instant;

use agent_core::backend::ModelSource;
use agent_core::clock::SystemClock;
use agent_core::error::AgentError;
use agent_core::message::{FinishReason, Usage};
use agent_core::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::tool::ExecutionContext;
use agent_platform::records::Precondition;
use agent_platform::spawner::Spawner;
use agent_platform::usage::{
    Budget, BudgetKind, BudgetOptions, Budgets, MeteredModels, PriceTable, UsageRecorder,
};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use anyhow::{Context, Result};
use benches::should_measure;
use benches::table::median;
use futures_util::future::try_join_all;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tempfile::TempDir;

const REPEATS: usize = 7;
/// Number of calls of a repeat.
const CALLS: usize = 512;
/// Number of calls at once.
const CLIENTS: usize = 64;
const COMPANY: &str = "acme";

fn main() -> Result<()> {
    if !should_measure(std::env::args().any(|argument| argument == "--bench")) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Spawned, because a future passed to `block_on` is polled on the calling thread, which is woken differently.
    runtime.block_on(runtime.spawn(measure()))?
}

/// A model that answers at once.
struct InstantModel;

#[async_trait::async_trait]
impl Model for InstantModel {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            provider: "openai".to_owned(),
            model: "gpt-5".to_owned(),
            context_window: 128_000,
            max_output_tokens: 16_384,
            supports_media: false,
            supports_tools: true,
        }
    }

    fn prepare(&self, _: &ModelRequest) -> Result<Payload, AgentError> {
        Ok(Payload::text("{}"))
    }

    async fn start(&self, _: Payload) -> Result<ModelStream, AgentError> {
        let usage = Usage { input_tokens: Some(100), output_tokens: Some(20), ..Usage::default() };
        let events = [ModelEvent::Usage(usage), ModelEvent::Finish(FinishReason::Stop)];
        Ok(stream::iter(events.map(Ok)).boxed())
    }
}

/// A source of one model.
struct InstantModels;

impl ModelSource<()> for InstantModels {
    fn model(&self, (): &()) -> Result<Arc<dyn Model>, AgentError> {
        Ok(Arc::new(InstantModel))
    }
}

/// A process with a separate store.
struct Subject {
    recorder: UsageRecorder,
    models: MeteredModels<InstantModels>,
    _folder: TempDir,
}

impl Subject {
    async fn open(has_budget: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(SqliteStore::open(folder.path().join("app.db"), SqliteOptions::default())?);
        let (clock, spawner) = (Arc::new(SystemClock), Arc::new(|task| drop(tokio::spawn(task))));
        let spawner: Arc<dyn Spawner> = spawner;
        let options = BudgetOptions::default();
        let budgets = Budgets::new(store.clone(), store.clone(), clock.clone(), spawner.clone(), options);
        if has_budget {
            let body = json!({"limits": [{"unit": "cost", "amount": "1000000", "window": "month"}]});
            let budget = Budget::read(BudgetKind::Company, body.as_object().context("an object")?)?;
            let subject = (BudgetKind::Company, COMPANY);
            budgets.put(&COMPANY.into(), subject, &budget, Precondition::Any).await?;
        }
        let prices = PriceTable::built_in();
        let recorder = UsageRecorder::new(store, prices, clock, spawner, None, Some(budgets));
        let models = MeteredModels::new(InstantModels, recorder.clone());
        Ok(Self { recorder, models, _folder: folder })
    }

    /// Makes a call, and returns the microseconds until it has started.
    async fn call(&self) -> Result<f64> {
        let context = ExecutionContext {
            company_id: COMPANY.into(),
            user_id: "ada".into(),
            agent_id: "guide".into(),
            run_id: agent_core::new_id().into(),
            ..ExecutionContext::default()
        };
        let model = self.models.model_for_run(&(), &context)?;
        let begin = Instant::now();
        let answer = model.start(Payload::text("{}")).await?;
        let took = begin.elapsed().as_secs_f64() * 1e6;
        answer.collect::<Vec<_>>().await;
        Ok(took)
    }

    /// Makes all calls with a number of clients, and returns the calls per second until all are settled.
    async fn rate(&self, clients: usize) -> Result<f64> {
        let begin = Instant::now();
        let work = (0..clients).map(|_| async {
            for _ in 0..CALLS / clients {
                self.call().await?;
            }
            anyhow::Ok(())
        });
        try_join_all(work).await?;
        self.recorder.flush().await;
        Ok(CALLS as f64 / begin.elapsed().as_secs_f64())
    }
}

async fn measure() -> Result<()> {
    let (free, limited) = (Subject::open(false).await?, Subject::open(true).await?);
    let mut begins = [Vec::new(), Vec::new()];
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..REPEATS {
        for (subject, begins) in [&free, &limited].into_iter().zip(&mut begins) {
            let mut times = Vec::with_capacity(CALLS);
            for _ in 0..CALLS {
                times.push(subject.call().await?);
            }
            subject.recorder.flush().await;
            begins.push(median(times));
        }
        for (clients, rates) in [1, CLIENTS].into_iter().zip(&mut rates) {
            rates.push(limited.rate(clients).await?);
        }
    }
    println!("| what | subject | figure | beside the first |\n|---|---|--:|--:|");
    let [free, limited] = begins.map(median);
    println!("| begin of a call, µs | without a budget | {free:.1} | 1.00 |");
    println!("| | with a budget | {limited:.1} | {:.2} |", limited / free);
    let [one, many] = rates.map(median);
    println!("| calls of a company with a budget, per second | one after another | {one:.0} | 1.00 |");
    println!("| | {CLIENTS} at once | {many:.0} | {:.2} |", many / one);
    Ok(())
}
