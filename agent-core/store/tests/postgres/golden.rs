//! Databases of every schema version, as the programs of their time wrote them.

use agent_jobs::job::{ClaimRequest, CompanyQuota, Job, JobFilter, JobOrder, JobScope, JobStore, Step};
use agent_platform::records::StoreError;
use jiff::Timestamp;

use super::{Cluster, database, other, store};

/// Script of each database.
const DATABASES: [(&str, &str); 5] = [
    ("version_1", include_str!("../golden/postgres-v1.sql")),
    ("version_2_text", include_str!("../golden/postgres-v2-text.sql")),
    ("version_2", include_str!("../golden/postgres-v2.sql")),
    ("version_3", include_str!("../golden/postgres-v3.sql")),
    ("version_4", NEWEST),
];
const NEWEST: &str = include_str!("../golden/postgres-v4.sql");
const SELECT_ROWS: &str = "
    SELECT row_to_json(row)::text FROM (
        SELECT id, company, user_id, tool, assignment, agent, idempotency, state, wake_ms, ended_ms, dead, body, progress
        FROM scheduler.jobs ORDER BY id
    ) AS row";

/// The jobs of the databases.
fn jobs() -> Vec<Job> {
    serde_json::from_str(include_str!("../golden/jobs.json")).expect("jobs")
}

fn claim_at(now: Timestamp) -> ClaimRequest {
    let quota = CompanyQuota::new(usize::MAX);
    ClaimRequest { now, due_until: now, lease_until: Timestamp::MAX, limit: 10, quota }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn databases_of_every_version_are_read_and_migrated_explicitly() {
    let cluster = Cluster::start();
    for (name, script) in DATABASES {
        a_database_is_read(&cluster, name, script).await;
    }
    rows_are_written_in_the_format_of_the_newest_version(&cluster).await;
    a_running_process_notices_a_newer_version(&cluster).await;
    one_damaged_row_hinders_no_other(&cluster).await;
}

async fn a_database_is_read(cluster: &Cluster, name: &str, script: &str) {
    let url = database(cluster, name).await;
    other(cluster, name).await.batch_execute(script).await.expect("a database");
    let store = store(&url).await;
    let listed = store.list(&JobFilter::default(), JobOrder::OldestFirst, None, 10).await.expect("a list");
    assert_eq!((listed.jobs, listed.unreadable), (jobs(), vec![]), "{name}");
    let agent = JobFilter { agent: Some("the \"other\"".into()), ..JobFilter::default() };
    let listed = store.list(&agent, JobOrder::OldestFirst, None, 10).await.expect("a list");
    assert_eq!(listed.jobs, jobs()[1..2], "{name}");
    let now: Timestamp = "2026-02-01T00:00:00Z".parse().expect("a time");
    let claimed = store.claim_due(claim_at(now)).await.expect("claim");
    assert_eq!(claimed.len(), 3, "{name}: all but the cancelled one");
}

/// A change of the format of a row needs a migration, a new database here, and a new number above.
async fn rows_are_written_in_the_format_of_the_newest_version(cluster: &Cluster) {
    let rows = async |name: &str| -> Vec<String> {
        let rows = other(cluster, name).await.query(SELECT_ROWS, &[]).await.expect("rows");
        rows.iter().map(|row| row.get(0)).collect()
    };
    database(cluster, "expected").await;
    other(cluster, "expected").await.batch_execute(NEWEST).await.expect("a database");
    let url = database(cluster, "written").await;
    store(&url).await.insert(jobs()).await.expect("insert");
    assert_eq!(rows("written").await, rows("expected").await);
}

async fn a_running_process_notices_a_newer_version(cluster: &Cluster) {
    let url = database(cluster, "running").await;
    other(cluster, "running").await.batch_execute(NEWEST).await.expect("a database");
    let store = store(&url).await;
    let now: Timestamp = "2026-01-01T01:30:00Z".parse().expect("a time");
    let claimed = store.claim_due(claim_at(now)).await.expect("claim");
    let held = claimed.first().expect("a due job");
    // A compatible newer version, and then an incompatible one.
    let sql = "ALTER TABLE scheduler.schema_version ADD COLUMN compatible_from int4;
               UPDATE scheduler.schema_version SET version = 5, compatible_from = 4";
    other(cluster, "running").await.batch_execute(sql).await.expect("migrated");
    store.claim_due(claim_at(now)).await.expect("an older process continues to claim jobs");
    let paused = store.apply_step(&JobScope::default(), &held.id, Step::Pause, now).await.expect("a step");
    assert!(paused.is_applied(), "{paused:?}");
    let sql = "UPDATE scheduler.schema_version SET compatible_from = 5";
    other(cluster, "running").await.batch_execute(sql).await.expect("migrated");
    let describe_result = |result: Result<(), StoreError>| match result {
        Err(StoreError::Unavailable(source)) => source.to_string(),
        other => panic!("it is refused, and not {other:?}"),
    };
    let expected =
        "the database was migrated to version 5 and this program knows versions up to 4: it must be updated";
    assert_eq!(describe_result(store.claim_due(claim_at(now)).await.map(drop)), expected);
    let cancel = store.apply_step(&JobScope::default(), &held.id, Step::Cancel, now).await;
    assert_eq!(describe_result(cancel.map(drop)), expected);
    // It completes the job that it has started.
    let release = Step::Release { fence: held.fence };
    let ended = store.apply_steps(vec![(held.id.clone(), release)], now).await.expect("steps");
    assert!(ended[0].is_applied(), "{ended:?}");
}

async fn one_damaged_row_hinders_no_other(cluster: &Cluster) {
    for damage in ["body = '{\"secret\": 1}'", "body = 'no JSON'", "progress = NULL"] {
        let name = format!("damaged_{}", damage.len());
        let url = database(cluster, &name).await;
        let store = store(&url).await;
        let new: Vec<Job> = (0..3).map(|n| super::job("acme", n)).collect();
        store.insert(new.clone()).await.expect("insert");
        let claimed = store.claim_due(claim_at(super::at(10))).await.expect("claim");
        let sql = format!("UPDATE scheduler.jobs SET {damage} WHERE id = '{}'", new[1].id);
        other(cluster, &name).await.batch_execute(&sql).await.expect("damaged");
        crate::damaged::is_set_aside(&store, &new, &claimed, super::at(11)).await;
    }
}
