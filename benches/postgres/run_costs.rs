//! Transactions and reads of a run with all that the application stores of it, by kind of request.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::SystemClock;
use agent_jobs::job::MemoryJobStore;
use agent_platform::roles::RecordRoleStore;
use agent_platform::seal::Sealer;
use agent_platform::token::{Grant, NewToken, RunCaps, Tokens, WidgetGrant};
use agent_store::postgres::{PostgresOptions, PostgresRecords};
use agentd::run;
use agentd::stores::Stores;
use anyhow::{Context, Result};
use benches::application::{ChatCredential, agent_id, chat_with, company_id, session};
use benches::load::Connection;
use benches::subjects::Bench;
use serde_json::json;
use tokio::time::sleep;

use crate::server::{CONNECTIONS, connect, open};

/// Number of runs of each kind.
const RUNS: usize = 200;
/// Time in which commits after the end of a run are done.
const SETTLE_TIME: Duration = Duration::from_millis(1500);
/// Each transaction that writes takes the next number, and none that only reads.
const SELECT_NEXT_TRANSACTION: &str = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8";

/// Transactions and reads of one kind of request, each per run.
pub(crate) struct RunCost {
    kind: &'static str,
    /// Transactions that write: of threads, runs, usage and records, by this process and in the background.
    written: f64,
    /// Commits of records, and their transactions.
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
    let (conversations, usage) = (records.clone(), records.clone());
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
    let client = connect(url).await?;
    let next_transaction =
        async || anyhow::Ok(client.query_one(SELECT_NEXT_TRANSACTION, &[]).await?.get::<_, i64>(0));
    let mut costs = Vec::new();
    // A visitor without a key has no threads, so that the runs of a widget token are not kept.
    for (kind, credential, has_run_id, is_kept) in [
        ("a session, kept in a new thread, without `runId`", session, false, true),
        ("the same, with `runId`", session, true, true),
        ("a session, not kept, without `runId`", session, false, false),
        ("the same, with `runId`", session, true, false),
        ("a widget token, not kept, without `runId`", widget, false, false),
        ("the same, with `runId`", widget, true, false),
    ] {
        let run = async |connection: &mut Connection| {
            let mut body = json!({"store": is_kept});
            if has_run_id {
                body["runId"] = agent_core::new_id().into();
            }
            connection.exchange(&[chat_with(credential, body)]).await
        };
        // Fills the cache.
        run(&mut connection).await.context(kind)?;
        sleep(SETTLE_TIME).await;
        let (before, first) = (records.counters(), next_transaction().await?);
        for _ in 0..RUNS {
            run(&mut connection).await.context(kind)?;
        }
        sleep(SETTLE_TIME).await;
        let (after, last) = (records.counters(), next_transaction().await?);
        let per_run = |before: u64, after: u64| (after - before) as f64 / RUNS as f64;
        costs.push(RunCost {
            kind,
            written: (last - first) as f64 / RUNS as f64,
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
    let caps = RunCaps { runs_per_minute: unlimited, runs_per_day: Some(unlimited) };
    let grant = Grant::Widget(WidgetGrant { caps, ..WidgetGrant::default() });
    let tokens = Tokens::new(records.clone(), Arc::new(SystemClock));
    let minted = tokens.mint(NewToken::new(company_id(), agent_id(), grant)).await?;
    Ok(minted.text.expose().to_owned())
}

/// Formats the costs as a Markdown table.
pub(crate) fn markdown(costs: &[RunCost]) -> String {
    let mut table = "| a run of | transactions that write | commits of records | transactions of these | reads that run a statement |\n\
                     |---|--:|--:|--:|--:|\n"
        .to_owned();
    for RunCost { kind, written, commits, transactions, reads } in costs {
        // Writing to a `String` cannot fail.
        let _ = writeln!(table, "| {kind} | {written:.2} | {commits:.2} | {transactions:.2} | {reads:.2} |");
    }
    table
}
