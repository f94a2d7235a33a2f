//! Commits and reads of a run, by kind of request.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::SystemClock;
use agent_jobs::job::MemoryJobStore;
use agent_platform::conversation::MemoryConversations;
use agent_platform::roles::RecordRoleStore;
use agent_platform::seal::Sealer;
use agent_platform::token::{Caps, Grant, NewToken, Tokens, WidgetGrant};
use agent_platform::usage::MemoryUsage;
use agent_store::postgres::{PostgresOptions, PostgresRecords};
use agentd::run;
use agentd::stores::Stores;
use anyhow::{Context, Result};
use benches::application::{ChatCredential, agent_id, chat, company_id, session};
use benches::load::Connection;
use benches::subjects::Bench;
use tokio::time::sleep;

use crate::server::{CONNECTIONS, open};

/// Number of runs of each kind.
const RUNS: usize = 200;
/// Time in which commits after the end of a run are done.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// Commits, transactions and reads of one kind of request, each per run.
pub(crate) struct RunCost {
    kind: &'static str,
    commits: f64,
    transactions: f64,
    reads: f64,
}

/// Counts the commits and reads of runs, one after another, of an application in this process.
pub(crate) async fn measure(url: &str, bench: &Bench) -> Result<Vec<RunCost>> {
    let records = Arc::new(open(url, CONNECTIONS, PostgresOptions::default().cache_bytes).await?);
    let config = bench.application_config(url)?;
    let secret = config.data_secret.as_ref().context("a secret")?;
    let roles = Arc::new(RecordRoleStore::new(records.clone(), Sealer::new(secret, None)));
    let jobs = Arc::new(MemoryJobStore::default());
    let conversations = Arc::new(MemoryConversations::default());
    let usage = Arc::new(MemoryUsage::default());
    let stores = Stores { roles, records: records.clone(), jobs, conversations, usage };
    stores.import("the benchmark", &bench.workspace().to_string()).await?;
    let listener = run::listen(config.server.listen).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        let shutdown = run::shutdown_on_signal();
        run::serve_app(&config, listener, stores, None, shutdown).await
    });
    let (token, widget) = (session(company_id())?, widget_token(&records).await?);
    let (session, widget) = (ChatCredential::Session(&token), ChatCredential::Widget(&widget));
    let mut connection = Connection::open(address).await?;
    let mut costs = Vec::new();
    for (kind, credential, has_run_id) in [
        ("a session, without `runId`", session, false),
        ("a session, with `runId`", session, true),
        ("a widget token, without `runId`", widget, false),
        ("a widget token, with `runId`", widget, true),
    ] {
        let run = async |connection: &mut Connection| {
            let run_id = agent_core::new_id();
            connection.exchange(&[chat(credential, has_run_id.then_some(&run_id))]).await
        };
        // Fills the cache.
        run(&mut connection).await.context(kind)?;
        sleep(SETTLE_TIME).await;
        let before = records.activity();
        for _ in 0..RUNS {
            run(&mut connection).await.context(kind)?;
        }
        sleep(SETTLE_TIME).await;
        let after = records.activity();
        let per_run = |before: u64, after: u64| (after - before) as f64 / RUNS as f64;
        costs.push(RunCost {
            kind,
            commits: per_run(before.commits, after.commits),
            transactions: per_run(before.transactions, after.transactions),
            reads: per_run(before.reads, after.reads),
        });
    }
    serving.abort();
    Ok(costs)
}

/// Creates a widget token whose caps are higher than the load.
async fn widget_token(records: &Arc<PostgresRecords>) -> Result<String> {
    let unlimited = NonZeroU32::new(1_000_000).context("a cap")?;
    let caps = Caps { runs_per_minute: unlimited, runs_per_day: Some(unlimited) };
    let grant = Grant::Widget(WidgetGrant { caps, ..WidgetGrant::default() });
    let tokens = Tokens::new(records.clone(), Arc::new(SystemClock));
    let minted = tokens.mint(NewToken::new(company_id(), agent_id(), grant)).await?;
    Ok(minted.text.expose().to_owned())
}

/// Formats the costs as a Markdown table.
pub(crate) fn markdown(costs: &[RunCost]) -> String {
    let mut table =
        "| a run of | commits | transactions | reads that run a statement |\n|---|--:|--:|--:|\n".to_owned();
    for RunCost { kind, commits, transactions, reads } in costs {
        // Writing to a `String` cannot fail.
        let _ = writeln!(table, "| {kind} | {commits:.2} | {transactions:.2} | {reads:.2} |");
    }
    table
}
