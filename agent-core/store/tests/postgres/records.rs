use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
async fn sign_ins_to_subscriptions_hold_their_contract() {
    let spawner: Arc<dyn Spawner> = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
    let maker = StoreFactory::new(impatient());
    agent_platform::conformance::coding(async || maker.make().await as _, spawner.clone()).await;
    agent_platform::conformance::coding_refreshes(async || maker.make().await as _, spawner, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploaded_documents_hold_their_contract() {
    let maker = StoreFactory::new(impatient());
    agent_platform::conformance::documents(async || maker.make().await as _).await;
}
