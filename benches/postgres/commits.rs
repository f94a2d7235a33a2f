//! Commits per second of many concurrent callers, beside one statement per transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::clock::SystemClock;
use agent_core::request::Principal;
use agent_core::tool::Caller;
use agent_platform::records::{Collection, Key, Records, Write};
use agent_platform::run_registry::RunRegistry;
use agent_store::postgres::PostgresRecords;
use anyhow::{Result, ensure};
use benches::comparison::{Bound, Comparison};
use tokio_postgres::{Client, Statement};

use crate::server::{BarePool, CONNECTIONS, connect, open, per_second};

const CALLERS: usize = 256;
const SLICE: Duration = Duration::from_millis(1000);
/// Number of companies of the callers, where they do not all belong to one.
const COMPANIES: usize = 128;
/// Number of processes that share the database in some rows, and the connections of each.
const PROCESSES: usize = 10;
const PROCESS_CONNECTIONS: usize = 4;
/// Minimum ratio of merged commits to single ones of the same row, which wait for each other.
const MIN_GAIN: f64 = 20.0;

const INSERT: &str = "
    INSERT INTO app.records (company, collection, id, version, value, updated_ms)
    VALUES ($1, $2, $3, nextval('app.record_version'), '{}', (extract(epoch FROM clock_timestamp()) * 1000)::int8)";
const UPDATE: &str = "UPDATE counter SET n = n + 1 WHERE id = $1";

/// Number of the next run id, over all slices.
static NEXT_RUN: AtomicU64 = AtomicU64::new(0);

pub(crate) async fn measure(url: String, repeats: usize) -> Result<Vec<Comparison>> {
    let store = Arc::new(open(&url, CONNECTIONS, 0).await?);
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Arc::new(open(&url, PROCESS_CONNECTIONS, 0).await?));
    }
    let bare = Arc::new(Reference::open(&url).await?);
    let (mut insert, mut update) = (Vec::new(), Vec::new());
    let mut claims = [const { Vec::new() }; 4];
    let mut increments = [const { Vec::new() }; 2];
    let mut counts = [const { Vec::new() }; 4];
    let (mut merged, mut merged_counts) = (Merged::default(), Merged::default());
    for _ in 0..repeats {
        insert.push(bare.clone().inserts_per_second().await?);
        update.push(bare.clone().updates_per_second().await?);
        let one = [store.clone()];
        for (figures, (stores, companies)) in claims.iter_mut().zip([
            (&one[..], 1),
            (&one[..], COMPANIES),
            (&processes[..], 1),
            (&processes[..], COMPANIES),
        ]) {
            let before = merged.begin(stores);
            figures.push(claims_per_second(stores, companies).await?);
            if companies == 1 && stores.len() == 1 {
                merged.end(stores, before);
            }
        }
        for (figures, stores) in increments.iter_mut().zip([&one[..], &processes[..]]) {
            figures.push(increments_per_second(stores).await?);
        }
        for (figures, (stores, companies)) in counts.iter_mut().zip([
            (&one[..], 1),
            (&one[..], COMPANIES),
            (&processes[..], 1),
            (&processes[..], COMPANIES),
        ]) {
            let before = merged_counts.begin(stores);
            figures.push(counts_per_second(stores, companies).await?);
            if companies == COMPANIES && stores.len() == 1 {
                merged_counts.end(stores, before);
            }
        }
    }
    let row = |description: String, bound, reference: &Vec<f64>, figures: &Vec<f64>| {
        Comparison::new(description, "/s", bound, reference, figures)
    };
    let [hot, spread, hot_of_many, spread_of_many] = &claims;
    let [counts_of_one, counts_of_all, counts_of_one_by_many, counts_of_all_by_many] = &counts;
    let by_many = format!("by {PROCESSES} stores of {PROCESS_CONNECTIONS} connections");
    Ok(vec![
        row(
            format!(
                "increments of one record, {CALLERS} callers, beside `UPDATE … SET n = n + 1` per transaction"
            ),
            Bound::AtLeast(MIN_GAIN),
            &update,
            &increments[0],
        ),
        row(format!("the same {by_many}"), Bound::Unbounded, &update, &increments[1]),
        row(
            format!(
                "runs admitted with a `runId`, {CALLERS} callers of one company, beside `INSERT` per transaction; {:.0} \
                 share a transaction",
                merged.ratio()
            ),
            Bound::Unbounded,
            &insert,
            hot,
        ),
        row(format!("the same {by_many}"), Bound::Unbounded, &insert, hot_of_many),
        row(format!("the same, callers of {COMPANIES} companies"), Bound::Unbounded, &insert, spread),
        row(
            format!("the same, callers of {COMPANIES} companies, {by_many}"),
            Bound::Unbounded,
            &insert,
            spread_of_many,
        ),
        row(
            format!(
                "counts of {COMPANIES} companies in their meters, {CALLERS} callers, beside as many meters of one company; \
                 {:.0} share a transaction",
                merged_counts.ratio()
            ),
            Bound::Unbounded,
            counts_of_one,
            counts_of_all,
        ),
        row(format!("the same {by_many}"), Bound::Unbounded, counts_of_one_by_many, counts_of_all_by_many),
    ])
}

/// Commits and transactions of some slices.
#[derive(Default)]
struct Merged {
    commits: u64,
    transactions: u64,
}

impl Merged {
    fn begin(&self, stores: &[Arc<PostgresRecords>]) -> (u64, u64) {
        let counters = stores.iter().map(|store| store.counters());
        counters.fold((0, 0), |sum, next| (sum.0 + next.commits, sum.1 + next.transactions))
    }

    fn end(&mut self, stores: &[Arc<PostgresRecords>], before: (u64, u64)) {
        let (commits, transactions) = self.begin(stores);
        self.commits += commits - before.0;
        self.transactions += transactions - before.1;
    }

    fn ratio(&self) -> f64 {
        self.commits as f64 / self.transactions as f64
    }
}

/// Claims fresh run ids by callers that are spread over stores and companies.
async fn claims_per_second(stores: &[Arc<PostgresRecords>], companies: usize) -> Result<f64> {
    let registry = |store: &Arc<PostgresRecords>| RunRegistry::new(store.clone(), Arc::new(SystemClock));
    let registries: Arc<[RunRegistry]> = stores.iter().map(registry).collect();
    per_second(CALLERS, SLICE, move |caller, _| {
        let registries = registries.clone();
        async move {
            let company = format!("company-{}", caller % companies);
            let principal = Principal::new(format!("user-{caller}"), company, Caller::Session);
            let run_id = format!("run-{}", NEXT_RUN.fetch_add(1, Ordering::Relaxed));
            let claimed = registries[caller % registries.len()].claim(&principal, &run_id.into()).await?;
            ensure!(claimed.is_some(), "the run id was used already");
            Ok(())
        }
    })
    .await
}

async fn increments_per_second(stores: &[Arc<PostgresRecords>]) -> Result<f64> {
    let key = Key::new("company", "counters", "hot")?;
    let stores: Arc<[_]> = stores.into();
    per_second(CALLERS, SLICE, move |caller, _| {
        let (store, key) = (stores[caller % stores.len()].clone(), key.clone());
        async move {
            store.commit(vec![Write::Increment { key, limit: u64::MAX }]).await?;
            Ok(())
        }
    })
    .await
}

/// Counts in [`COMPANIES`] meters, as those of rates and budgets are: one of each company, or all of one company.
async fn counts_per_second(stores: &[Arc<PostgresRecords>], companies: usize) -> Result<f64> {
    let meters = Collection::of_platform("meters")?;
    let key = |number: usize| -> Result<Key> {
        let of_company = meters.clone().within(&format!("company-{}", number % companies))?;
        Ok(of_company.key(format!("user-{number}/runs"))?)
    };
    let keys: Arc<[Key]> = (0..COMPANIES).map(key).collect::<Result<_>>()?;
    let stores: Arc<[_]> = stores.into();
    per_second(CALLERS, SLICE, move |caller, _| {
        let (store, key) = (stores[caller % stores.len()].clone(), keys[caller % COMPANIES].clone());
        async move {
            store.commit(vec![Write::Increment { key, limit: u64::MAX }]).await?;
            Ok(())
        }
    })
    .await
}

/// One statement per transaction by the bare client.
struct Reference(BarePool<BareClient>);

struct BareClient {
    client: Client,
    insert: Statement,
    update: Statement,
}

impl Reference {
    async fn open(url: &str) -> Result<Self> {
        connect(url)
            .await?
            .batch_execute(
                "CREATE TABLE counter (id text PRIMARY KEY, n int8 NOT NULL) WITH (fillfactor = 50);
                 INSERT INTO counter VALUES ('hot', 0)",
            )
            .await?;
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let client = connect(url).await?;
            let (insert, update) = (client.prepare(INSERT).await?, client.prepare(UPDATE).await?);
            clients.push(BareClient { client, insert, update });
        }
        Ok(Self(BarePool::new(clients)))
    }

    async fn inserts_per_second(self: Arc<Self>) -> Result<f64> {
        per_second(CALLERS, SLICE, move |caller, _| {
            let pool = self.clone();
            async move {
                let id = format!("run-{}", NEXT_RUN.fetch_add(1, Ordering::Relaxed));
                let collection = format!("plain/user-{caller}");
                pool.0
                    .with(async |bare: &BareClient| {
                        Ok(bare.client.execute(&bare.insert, &[&"company-0", &collection, &id]).await?)
                    })
                    .await?;
                Ok(())
            }
        })
        .await
    }

    async fn updates_per_second(self: Arc<Self>) -> Result<f64> {
        per_second(CALLERS, SLICE, move |_, _| {
            let pool = self.clone();
            async move {
                pool.0
                    .with(async |bare: &BareClient| Ok(bare.client.execute(&bare.update, &[&"hot"]).await?))
                    .await?;
                Ok(())
            }
        })
        .await
    }
}
