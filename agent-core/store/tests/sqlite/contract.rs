use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_jobs::conformance;
use agent_platform::roles::RecordRoleStore;
use agent_platform::seal::Sealer;
use agent_platform::spawner::Spawner;
use agent_store::sqlite::{SqliteOptions, SqliteStore};

use futures_util::future::BoxFuture;

use super::{TempStore, uncached};

/// Factory of empty stores.
struct StoreFactory {
    place: TempStore,
    made: AtomicUsize,
    options: SqliteOptions,
}

impl StoreFactory {
    fn new(options: SqliteOptions) -> Self {
        Self { place: TempStore::new(), made: AtomicUsize::new(0), options }
    }

    fn make(&self) -> Arc<SqliteStore> {
        let name = self.made.fetch_add(1, Ordering::Relaxed).to_string();
        let path = self.place.file().with_file_name(name);
        Arc::new(SqliteStore::open(path, self.options.clone()).expect("open"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_hold_their_contract_with_a_cache() {
    let maker = StoreFactory::new(SqliteOptions::default());
    agent_platform::conformance::records(async || maker.make() as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conversations_hold_their_contract() {
    let least = SqliteOptions { cache_bytes: 1, readers: 0, ..SqliteOptions::default() };
    for options in [SqliteOptions::default(), least] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::conversations(async || maker.make() as _).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn usage_holds_its_contract() {
    let least = SqliteOptions { cache_bytes: 1, readers: 0, ..SqliteOptions::default() };
    for options in [SqliteOptions::default(), least] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::usage(async || maker.make() as _).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn budgets_hold_their_contract() {
    let maker = StoreFactory::new(SqliteOptions::default());
    let make = async |processes: usize| {
        let store = maker.make();
        let handles = |_| (store.clone() as _, store.clone() as _);
        (0..processes).map(handles).collect()
    };
    agent_platform::conformance::budgets(make, Arc::new(|task| drop(tokio::spawn(task)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quotas_hold_their_contract() {
    let maker = StoreFactory::new(SqliteOptions::default());
    let make = async |processes: usize| {
        let store = maker.make();
        (0..processes).map(|_| store.clone() as _).collect()
    };
    agent_platform::conformance::quotas(make, spawner()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn summaries_hold_their_contract() {
    let maker = StoreFactory::new(SqliteOptions::default());
    let make = async || {
        let store = maker.make();
        (store.clone() as _, store as _)
    };
    agent_platform::conformance::summaries(make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn retrieval_holds_its_contract() {
    let maker = StoreFactory::new(SqliteOptions::default());
    agent_platform::conformance::retrieval(async || maker.make() as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_hold_their_contract_without_a_cache() {
    let maker = StoreFactory::new(uncached());
    agent_platform::conformance::records(async || maker.make() as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_hold_their_contract_with_the_least_of_everything() {
    let maker = StoreFactory::new(SqliteOptions { cache_bytes: 1, readers: 0, ..SqliteOptions::default() });
    agent_platform::conformance::records(async || maker.make() as _).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_inventory_holds_its_contract() {
    for options in [SqliteOptions::default(), uncached()] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::inventory(async || maker.make() as _).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn roles_hold_their_contract() {
    for options in [SqliteOptions::default(), uncached()] {
        let maker = StoreFactory::new(options);
        let make = async || Arc::new(RecordRoleStore::new(maker.make(), Sealer::ephemeral())) as _;
        agent_platform::conformance::role_store(make).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn providers_and_approval_floors_hold_their_contracts() {
    for options in [SqliteOptions::default(), uncached()] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::providers(async || maker.make() as _).await;
        agent_platform::conformance::approval_floors(async || maker.make() as _).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_hold_their_contract() {
    let least = SqliteOptions { readers: 0, ..uncached() };
    for options in [SqliteOptions::default(), least] {
        let maker = StoreFactory::new(options);
        conformance::jobs(async || maker.make() as _).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_are_as_the_model_says() {
    let maker = StoreFactory::new(SqliteOptions::default());
    for seed in 100..104 {
        conformance::jobs_against_reference(async || maker.make() as _, seed, 500).await;
    }
}

/// Rounds of refreshes in three processes; 1,000 of them take minutes.
const REFRESH_ROUNDS: &str = "CODING_REFRESH_ROUNDS";

/// Polls of an issuer by three processes.
const POLLS: &str = "CODING_POLLS";

fn count(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |count| count.parse().expect("a number"))
}

fn spawner() -> Arc<dyn Spawner> {
    Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sign_ins_to_subscriptions_hold_their_contract() {
    for options in [SqliteOptions::default(), uncached()] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::coding(async || maker.make() as _, spawner()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_refresh_tokens_once() {
    let maker = StoreFactory::new(SqliteOptions::default());
    let rounds = count(REFRESH_ROUNDS, 5);
    agent_platform::conformance::coding_refreshes(async || maker.make() as _, spawner(), rounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_poll_an_issuer_once() {
    let maker = StoreFactory::new(SqliteOptions::default());
    agent_platform::conformance::coding_polls(async || maker.make() as _, spawner(), count(POLLS, 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploaded_documents_hold_their_contract() {
    for options in [SqliteOptions::default(), uncached()] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::documents(async || maker.make() as _).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_of_users_hold_their_contract() {
    for options in [SqliteOptions::default(), uncached()] {
        let maker = StoreFactory::new(options);
        agent_platform::conformance::files(async || maker.make() as _).await;
    }
}
