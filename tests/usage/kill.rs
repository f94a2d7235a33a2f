//! Repeated `kill -9` of an application while its calls are booked under budgets: calls, days and meters have the same sums to
//! the nano-dollar, which are at least what the vendor has counted, and more by one reservation for each call that a kill cut off.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_platform::records::{Collection, ListQuery, Precondition, RecordsExt as _};
use agent_platform::usage::{BudgetKind, BudgetStatus, UsageDimension, UsageEntry, UsageFilter, UsageQuery};
use agentd::stores::Stores;
use jiff::civil::Date;
use serde_json::{Value, json};

use super::{CATALOG, budgets, put_budget};
use crate::support::cluster::Cluster;
use crate::support::process::AppProcess;
use crate::support::random::Random;
use crate::support::server::{app_config, session_token};
use crate::support::vendor::{Step, Vendor, delta, finish, stream_head};
use crate::support::{client, env_number, poll_until, report, workspace};

/// Environment variables that override the number of rounds and the seed of the times of the kills.
const ROUNDS_ENV: &str = "USAGE_KILL_ROUNDS";
const SEED_ENV: &str = "USAGE_KILL_SEED";
const DEFAULT_ROUNDS: usize = 10;
/// Clients, each of which has one call in progress.
const CLIENTS: usize = 3;
/// Pause of the vendor within an answer, and of a client between two reads of the ledger.
const PAUSE: Duration = Duration::from_millis(1);
/// Limit on the calls of a round, and on the time in microseconds after the last one until the kill.
const MAX_CALLS: u64 = 12;
const MAX_DELAY_MICROS: u64 = 6_000;
/// Price in nano-dollars and tokens of an answer, as the vendor counts them.
const ANSWER_NANOS: i64 = 92_000;
const ANSWER_TOKENS: i64 = 18;
const DATA_SECRET: (&str, &str) = ("DATA_SECRET", "data-secret-canary");
/// Budgets that are never spent, of each kind that applies to the runs.
const BUDGETS: [(BudgetKind, &str, &str); 3] = [
    (BudgetKind::Company, "c1", r#"[{"unit":"cost","amount":"1000000","window":"month"}]"#),
    (BudgetKind::User, "u1", r#"[{"unit":"cost","amount":"1000000","window":"month"}]"#),
    (BudgetKind::Agent, "a1", r#"[{"unit":"tokens","amount":1000000000,"window":"month"}]"#),
];

/// An application that is killed, with its database and its vendor.
struct KilledApp {
    url: String,
    catalog: tempfile::NamedTempFile,
    vendor: Vendor,
}

/// Runs of a client.
#[derive(Default)]
struct ClientRuns {
    /// Runs whose call the client has seen in the ledger.
    booked: Vec<String>,
    /// The run that the kill has ended.
    last: String,
}

impl KilledApp {
    async fn create(url: String) -> Self {
        let vendor = Vendor::start().await;
        let piece = |text: &str| [delta(json!({"content": text})), Step::Pause(PAUSE)];
        let pieces = ["Hel", "lo ", "the", "re."].into_iter().flat_map(piece);
        vendor.on_all([stream_head()].into_iter().chain(pieces).chain(finish("stop")).collect());
        let catalog = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(catalog.path(), CATALOG).expect("written");
        let app = Self { url, catalog, vendor };
        let stores = app.open().await;
        let workspace = workspace(&app.vendor.base_url(), "m").to_string();
        stores.import("the test", &workspace).await.expect("the workspace is imported");
        for (kind, subject, limits) in BUDGETS {
            put_budget(&stores, (kind, subject), serde_json::from_str(limits).expect("JSON")).await;
        }
        app
    }

    async fn open(&self) -> Stores {
        Stores::open(&app_config(&[("DATABASE_URL", self.url.as_str()), DATA_SECRET]))
            .await
            .expect("the store opens")
    }

    async fn start(&self) -> AppProcess {
        let catalog = self.catalog.path().to_str().expect("UTF-8");
        let settings = [
            DATA_SECRET,
            ("OUTBOUND_ALLOW", "127.0.0.0/8"),
            ("MODEL_CATALOG", catalog),
            ("RUNS_PER_MINUTE", "1000000"),
            ("RUNS_PER_MINUTE_COMPANY", "0"),
            ("CONCURRENT_RUNS_COMPANY", "0"),
        ];
        AppProcess::start(&self.url, 0, &settings).await
    }

    /// Kills a process while clients run. Returns their runs.
    async fn kill_round(&self, round: usize, random: &mut Random) -> Vec<ClientRuns> {
        let process = self.start().await;
        let address = process.address;
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| tokio::spawn(run_until_killed(address, round, client))).collect();
        let calls = self.vendor.received().len() + 1 + random.below(MAX_CALLS) as usize;
        self.vendor.wait_for_requests("m", calls).await;
        // At any place of a call: before its answer, within it, or while it is booked.
        tokio::time::sleep(Duration::from_micros(random.below(MAX_DELAY_MICROS))).await;
        process.kill().await;
        let mut runs = Vec::new();
        for client in clients {
            runs.push(client.await.expect("a client does not panic"));
        }
        runs
    }

    /// Returns the number of calls of each run that the vendor has received.
    fn received(&self) -> HashMap<String, i64> {
        let mut calls = HashMap::new();
        for body in self.vendor.received_bodies("m") {
            let text = body.to_string();
            let (_, run) = text.split_once("run=").expect("a run");
            *calls.entry(run.split(';').next().expect("a run").to_owned()).or_default() += 1;
        }
        calls
    }

    /// Lets the leases of all reservations end, and waits until two processes have settled them. Returns their number.
    async fn settle(&self, stores: &Stores) -> usize {
        let collection = Collection::of_platform("budgetReservations").and_then(|all| all.within("c1"));
        let (collection, mut list) = (collection.expect("a name"), ListQuery::default());
        let mut left = 0;
        loop {
            let page = stores.records.list(&collection, &list).await.expect("read");
            left += page.records.len();
            for record in page.records {
                let mut reservation: Value = serde_json::from_str(record.value.get()).expect("JSON");
                assert!(reservation["expiresMs"].is_i64(), "{reservation}");
                reservation["expiresMs"] = 0.into();
                let key = collection.key(record.id).expect("a key");
                stores.records.put_as(&key, &reservation, Precondition::Any).await.expect("written");
            }
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                break;
            }
        }
        let processes = [self.start().await, self.start().await];
        let reserved = async || {
            let states = states(stores).await;
            states.iter().map(|state| state.limits[0].reserved).collect::<Vec<_>>()
        };
        poll_until(reserved, |reserved| reserved.iter().all(|amount| *amount == 0)).await;
        for process in processes {
            process.kill().await;
        }
        left
    }
}

/// Returns the states of the budgets, in the order of [`BUDGETS`].
async fn states(stores: &Stores) -> Vec<BudgetStatus> {
    let (budgets, company) = (budgets(stores), CompanyId::from("c1"));
    let mut states = Vec::new();
    for (kind, subject, _) in BUDGETS {
        let budget = budgets.get(&company, kind, subject).await.expect("read").expect("a budget").value;
        states.push(budgets.status(&company, (kind, subject), &budget).await.expect("read"));
    }
    states
}

/// Runs one turn after another, each after the one before is in the ledger, until the process is gone.
async fn run_until_killed(address: SocketAddr, round: usize, number: usize) -> ClientRuns {
    let (client, token) = (client(), session_token("u1", "c1"));
    let mut runs = ClientRuns::default();
    for turn in 0.. {
        let id = format!("r{round}-{number}-{turn}");
        runs.last.clone_from(&id);
        let body =
            json!({"agentId": "a1", "message": format!("Hello, run={id};"), "runId": id, "store": false});
        let request = client.post(format!("http://{address}/api/agent/chat")).bearer_auth(&token).json(&body);
        let Ok(response) = request.send().await else { break };
        let status = response.status();
        let Ok(text) = response.text().await else { break };
        assert!(status == 200 && text.contains("RUN_FINISHED"), "{id}: {status} {text}");
        let path = format!("http://{address}/api/usage/runs/{id}");
        loop {
            let Ok(response) = client.get(&path).bearer_auth(&token).send().await else { return runs };
            if response.status() == 200 {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        runs.booked.push(id);
    }
    runs
}

/// Returns cost in nano-dollars, tokens and number of calls of entries.
fn sums(entries: &[UsageEntry]) -> (i64, i64, i64) {
    entries.iter().fold((0, 0, 0), |(cost, tokens, calls), entry| {
        let used = entry.tokens.input_tokens + entry.tokens.output_tokens;
        let cost = cost + entry.cost.expect("a price").get();
        (cost, tokens + i64::try_from(used).expect("few tokens"), calls + 1)
    })
}

/// Returns the sums of the days, as [`sums`] does.
async fn sums_of_days(stores: &Stores) -> (i64, i64, i64) {
    let filter = UsageFilter { from: Date::ZERO, to: Date::MAX, agent: None, user: None };
    let query = UsageQuery { filter, group_by: vec![UsageDimension::Day], after: None, limit: 100 };
    let page = stores.usage.usage(&"c1".into(), &query).await.expect("usage is read");
    page.rows.iter().fold((0, 0, 0), |(cost, tokens, calls), row| {
        let used = row.sums.tokens.input_tokens + row.sums.tokens.output_tokens;
        let number = |number: u64| i64::try_from(number).expect("few");
        (cost + row.sums.cost.get(), tokens + number(used), calls + number(row.sums.calls))
    })
}

async fn kills_keep_the_sums(url: String, store: &str) {
    let app = KilledApp::create(url).await;
    let rounds = env_number(ROUNDS_ENV, DEFAULT_ROUNDS);
    let mut random = Random::new(SEED_ENV);
    let (mut booked, mut cut_off) = (HashSet::new(), HashSet::new());
    for round in 0..rounds {
        for runs in app.kill_round(round, &mut random).await {
            booked.extend(runs.booked);
            cut_off.insert(runs.last);
        }
    }
    let stores = app.open().await;
    let left = app.settle(&stores).await;
    assert!(left <= rounds * CLIENTS, "{left} reservations are left by {rounds} kills");

    let received = app.received();
    let (mut all, mut lost) = (Vec::new(), 0);
    for run in booked.iter().chain(&cut_off) {
        let entries = stores.usage.run_usage(&"c1".into(), &run.as_str().into()).await.expect("read");
        let calls = received.get(run).copied().unwrap_or_default();
        let (cost, tokens, number) = sums(&entries);
        assert!(cost >= calls * ANSWER_NANOS && tokens >= calls * ANSWER_TOKENS, "{run}: {entries:?}");
        assert!(number <= 1 && calls <= number, "{run}: {calls} calls, {entries:?}");
        let is_lost = entries.iter().any(|entry| entry.outcome == "lost");
        if booked.contains(run) {
            assert_eq!((cost, tokens, is_lost), (ANSWER_NANOS, ANSWER_TOKENS, false), "{run}");
        }
        lost += usize::from(is_lost);
        all.extend(entries);
    }
    let (cost, tokens, calls) = sums(&all);
    assert_eq!(sums_of_days(&stores).await, (cost, tokens, calls), "the days have the calls");
    let used: Vec<i64> = states(&stores).await.iter().map(|state| state.limits[0].used).collect();
    assert_eq!(used, [cost, cost, tokens], "the meters have the calls");
    assert!(lost <= rounds * CLIENTS, "{lost} calls are lost by {rounds} kills");
    report(&format!("{store}: {rounds} kills, {calls} calls, {lost} of them lost, {left} reservations left"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_keep_the_sums_of_calls_days_and_meters_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    kills_keep_the_sums(format!("sqlite://{}", folder.path().join("app.db").display()), "SQLite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_keep_the_sums_of_calls_days_and_meters_on_postgres() {
    let cluster = Cluster::start();
    kills_keep_the_sums(cluster.url("postgres"), "PostgreSQL").await;
}
