//! The contracts of the stores with other options than the defaults, which `rights` checks, and of the types that are stored
//! in records.

use std::sync::Arc;

use agent_platform::records::Inventory;
use agent_platform::roles::RecordRoleStore;
use agent_platform::seal::Sealer;
use agent_platform::spawner::Spawner;
use agent_store::postgres::{PostgresOptions, PostgresRecords};
use futures_util::future::BoxFuture;

use super::template::DatabaseTemplate;
use super::{Cluster, impatient};

/// Factory of empty stores, each in a separate database.
struct StoreFactory {
    template: DatabaseTemplate,
    options: PostgresOptions,
}

impl StoreFactory {
    async fn new(options: PostgresOptions) -> Self {
        Self { template: DatabaseTemplate::create(Cluster::start(), &[]).await, options }
    }

    async fn make(&self) -> Arc<PostgresRecords> {
        self.make_with(&self.options).await
    }

    async fn make_with(&self, options: &PostgresOptions) -> Arc<PostgresRecords> {
        let url = self.template.copy().await;
        Arc::new(PostgresRecords::open(&url, options.clone()).await.expect("open"))
    }
}

fn spawner() -> Arc<dyn Spawner> {
    Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)))
}

fn uncached() -> PostgresOptions {
    PostgresOptions { cache_bytes: 0, ..impatient() }
}

fn single_connection() -> PostgresOptions {
    PostgresOptions { connections: 1, ..impatient() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conversations_hold_their_contract_with_one_connection() {
    let maker = StoreFactory::new(single_connection()).await;
    agent_platform::conformance::conversations(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn usage_holds_its_contract_with_one_connection() {
    let maker = StoreFactory::new(single_connection()).await;
    agent_platform::conformance::usage(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quotas_hold_their_contract() {
    let maker = StoreFactory::new(impatient()).await;
    let make = async |processes: usize| {
        let url = maker.template.copy().await;
        let mut stores: Vec<Arc<dyn Inventory>> = Vec::new();
        for _ in 0..processes {
            stores.push(Arc::new(PostgresRecords::open(&url, maker.options.clone()).await.expect("open")));
        }
        stores
    };
    agent_platform::conformance::quotas(make, spawner()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn summaries_hold_their_contract() {
    let maker = StoreFactory::new(impatient()).await;
    let make = async || {
        let store = maker.make().await;
        (store.clone() as _, store as _)
    };
    agent_platform::conformance::summaries(make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn retrieval_holds_its_contract() {
    let maker = StoreFactory::new(impatient()).await;
    agent_platform::conformance::retrieval(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_hold_their_contract_without_a_cache() {
    let maker = StoreFactory::new(uncached()).await;
    agent_platform::conformance::records(async || maker.make().await as _).await;
    agent_platform::conformance::inventory(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_hold_their_contract_with_the_least_of_everything() {
    let maker = StoreFactory::new(PostgresOptions { cache_bytes: 1, connections: 0, ..impatient() }).await;
    agent_platform::conformance::records(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn roles_hold_their_contract() {
    let maker = StoreFactory::new(impatient()).await;
    for options in [impatient(), uncached()] {
        let make = async || {
            Arc::new(RecordRoleStore::new(maker.make_with(&options).await, Sealer::ephemeral())) as _
        };
        agent_platform::conformance::role_store(make).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn providers_and_approval_floors_hold_their_contracts() {
    let maker = StoreFactory::new(impatient()).await;
    for options in [impatient(), uncached()] {
        agent_platform::conformance::providers(async || maker.make_with(&options).await as _).await;
        agent_platform::conformance::approval_floors(async || maker.make_with(&options).await as _).await;
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
    let spawner = spawner();
    let maker = StoreFactory::new(impatient()).await;
    agent_platform::conformance::coding(async || maker.make().await as _, spawner.clone()).await;
    let rounds = count(REFRESH_ROUNDS, 2);
    agent_platform::conformance::coding_refreshes(async || maker.make().await as _, spawner.clone(), rounds)
        .await;
    agent_platform::conformance::coding_polls(async || maker.make().await as _, spawner, count(POLLS, 100))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploaded_documents_hold_their_contract() {
    let maker = StoreFactory::new(impatient()).await;
    agent_platform::conformance::documents(async || maker.make().await as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_of_users_hold_their_contract() {
    let maker = StoreFactory::new(impatient()).await;
    agent_platform::conformance::files(async || maker.make().await as _).await;
}
