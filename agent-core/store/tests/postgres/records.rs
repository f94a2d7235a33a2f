use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_platform::conformance::BudgetStores;
use agent_platform::roles::RecordRoleStore;
use agent_platform::seal::Sealer;
use agent_platform::spawner::Spawner;
use agent_store::postgres::{PostgresOptions, PostgresRecords};
use futures_util::future::BoxFuture;

use super::{Cluster, database, impatient};

/// Factory of empty stores, each in a database of its own.
struct StoreFactory {
    cluster: Cluster,
    made: AtomicUsize,
    options: PostgresOptions,
}

impl StoreFactory {
    fn new(options: PostgresOptions) -> Self {
        Self { cluster: Cluster::start(), made: AtomicUsize::new(0), options }
    }

    async fn make(&self) -> Arc<PostgresRecords> {
        let name = format!("store_{}", self.made.fetch_add(1, Ordering::Relaxed));
        let url = database(&self.cluster, &name).await;
        Arc::new(PostgresRecords::open(&url, self.options.clone()).await.expect("open"))
    }
}

fn uncached() -> PostgresOptions {
    PostgresOptions { cache_bytes: 0, ..impatient() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_hold_their_contract_with_a_cache() {
    let maker = StoreFactory::new(impatient());
    agent_platform::conformance::records(async || maker.make().await as _).await;
    agent_platform::conformance::inventory(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conversations_hold_their_contract() {
    for options in [impatient(), PostgresOptions { connections: 1, ..impatient() }] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::conversations(async || maker.make().await as _).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn usage_holds_its_contract() {
    for options in [impatient(), PostgresOptions { connections: 1, ..impatient() }] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::usage(async || maker.make().await as _).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn budgets_hold_their_contract() {
    let maker = StoreFactory::new(impatient());
    let make = async |processes: usize| {
        let name = format!("store_{}", maker.made.fetch_add(1, Ordering::Relaxed));
        let url = database(&maker.cluster, &name).await;
        let mut stores: Vec<BudgetStores> = Vec::new();
        for _ in 0..processes {
            let store = Arc::new(PostgresRecords::open(&url, maker.options.clone()).await.expect("open"));
            stores.push((store.clone(), store));
        }
        stores
    };
    agent_platform::conformance::budgets(make, Arc::new(|task| drop(tokio::spawn(task)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn summaries_hold_their_contract() {
    let maker = StoreFactory::new(impatient());
    let make = async || {
        let store = maker.make().await;
        (store.clone() as _, store as _)
    };
    agent_platform::conformance::summaries(make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn retrieval_holds_its_contract() {
    let maker = StoreFactory::new(impatient());
    agent_platform::conformance::retrieval(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_hold_their_contract_without_a_cache() {
    let maker = StoreFactory::new(uncached());
    agent_platform::conformance::records(async || maker.make().await as _).await;
    agent_platform::conformance::inventory(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_hold_their_contract_with_the_least_of_everything() {
    let maker = StoreFactory::new(PostgresOptions { cache_bytes: 1, connections: 0, ..impatient() });
    agent_platform::conformance::records(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn roles_hold_their_contract() {
    for options in [impatient(), uncached()] {
        let maker = StoreFactory::new(options);
        let make = async || Arc::new(RecordRoleStore::new(maker.make().await, Sealer::ephemeral())) as _;
        agent_platform::conformance::role_store(make).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn providers_hold_their_contract() {
    for options in [impatient(), uncached()] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::providers(async || maker.make().await as _).await;
    }
}

/// Environment variables with the number of refreshes, and of polls, of a subscription's issuer by three processes.
const REFRESH_ROUNDS: &str = "CODING_REFRESH_ROUNDS";
const POLLS: &str = "CODING_POLLS";

fn count(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |count| count.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sign_ins_to_subscriptions_hold_their_contract() {
    let spawner: Arc<dyn Spawner> = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
    let maker = StoreFactory::new(impatient());
    agent_platform::conformance::coding(async || maker.make().await as _, spawner.clone()).await;
    let rounds = count(REFRESH_ROUNDS, 2);
    agent_platform::conformance::coding_refreshes(async || maker.make().await as _, spawner.clone(), rounds)
        .await;
    agent_platform::conformance::coding_polls(async || maker.make().await as _, spawner, count(POLLS, 100))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploaded_documents_hold_their_contract() {
    let maker = StoreFactory::new(impatient());
    agent_platform::conformance::documents(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_of_users_hold_their_contract() {
    let maker = StoreFactory::new(impatient());
    agent_platform::conformance::files(async || maker.make().await as _).await;
}
