use std::sync::Arc;

use agent_jobs::conformance;
use agent_jobs::job::JobStore;
use agent_store::postgres::{PostgresJobs, PostgresOptions};

use super::{Cluster, database, impatient, other};

/// Returns an empty store, replacing the previous one.
async fn make(cluster: &Cluster, options: &PostgresOptions) -> Arc<dyn JobStore> {
    let sql = "DROP SCHEMA IF EXISTS scheduler CASCADE";
    other(cluster, "contract").await.batch_execute(sql).await.expect("dropped");
    Arc::new(PostgresJobs::open(&cluster.url("contract"), options.clone()).await.expect("open"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_hold_their_contract_and_are_as_the_model_says() {
    let cluster = Cluster::start();
    database(&cluster, "contract").await;
    let least = PostgresOptions { connections: 0, ..impatient() };
    for options in [impatient(), least] {
        conformance::jobs(async || make(&cluster, &options).await).await;
    }
    for seed in 200..204 {
        conformance::jobs_against_reference(async || make(&cluster, &impatient()).await, seed, 500).await;
    }
}
