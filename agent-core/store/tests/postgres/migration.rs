//! A migration of tables that other transactions use.

use agent_store::postgres::{migrate, migration_status};

use super::{Cluster, database, impatient, other, wait_until};

/// Tables of the version before the newest one, whose migration changes the table of runs.
const PREVIOUS: &str = include_str!("../golden/postgres-app-v6.sql");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_waits_for_a_table_blocks_no_other() {
    let cluster = Cluster::start();
    let url = database(&cluster, "used").await;
    let reader = other(&cluster, "used").await;
    reader.batch_execute(PREVIOUS).await.expect("a database");
    let holder = other(&cluster, "used").await;
    // As a backup does.
    holder.batch_execute("BEGIN; LOCK TABLE app.runs IN ACCESS SHARE MODE").await.expect("locked");
    let target = url.clone();
    let migration = tokio::spawn(async move { migrate(&target, &impatient()).await });
    let waits = "SELECT FROM pg_locks WHERE relation = 'app.runs'::regclass AND NOT granted";
    let is_waiting = async || !reader.query(waits, &[]).await.expect("read").is_empty();
    wait_until("the migration waits for the table", is_waiting).await;
    // A statement that arrives later would wait behind the migration, which would wait for the holder.
    reader.batch_execute("SET lock_timeout = '60s'").await.expect("set");
    reader.query("SELECT FROM app.runs", &[]).await.expect("the table can be read");
    assert!(!migration.is_finished(), "the table is still in use");
    holder.batch_execute("COMMIT").await.expect("released");
    migration.await.expect("it ends").expect("migrated");
    let status = migration_status(&url, &impatient()).await.expect("read");
    assert!(status.iter().all(|status| status.found == status.newest), "{status:?}");
}
