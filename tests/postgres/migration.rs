//! A migration that is killed half-way, and the one after it.

use std::time::Duration;

use agent_jobs::job::{JobFilter, JobStore};
use agent_store::postgres::{PostgresJobs, PostgresOptions, migration_status};

use crate::support::TEST_TIMEOUT;
use crate::support::cluster::Cluster;
use crate::support::command::CommandProcess;

/// Tables of jobs of version 1, with four jobs.
const JOBS_VERSION_1: &str = include_str!("../../agent-core/store/tests/golden/postgres-v1.sql");
/// Number of migration steps at which a process is killed: the creation of tables, and those of the jobs' tables after
/// version 1.
const KILLS: i32 = 3;

/// Makes the `n`th statement that changes the definition of a table take longer than the test. It waits for no lock, since
/// a migration that does begins again. The numbers of a sequence are not rolled back, so it is the `n`th of all migrations.
const BLOCK_STEPS: &str = "
    CREATE SEQUENCE public.steps;
    CREATE FUNCTION public.wait_for_test() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('public.steps') = {n} THEN PERFORM pg_sleep(600); END IF;
    END $$;
    CREATE EVENT TRIGGER wait_for_test ON ddl_command_end
        WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE') EXECUTE FUNCTION public.wait_for_test()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_is_killed_is_made_again() {
    let cluster = Cluster::start();
    let mut kills = 0;
    for n in 1.. {
        let name = format!("killed_{n}");
        if !a_migration_is_killed_at(&cluster, &name, n).await {
            break;
        }
        kills += 1;
    }
    assert!(kills >= KILLS, "{kills} steps");
}

/// Kills a migration at its `n`th change of a table and runs it again. Returns false if there are fewer.
async fn a_migration_is_killed_at(cluster: &Cluster, name: &str, n: i32) -> bool {
    let admin = connect(cluster, "postgres").await;
    admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("made");
    let (client, url) = (connect(cluster, name).await, cluster.url(name));
    client.batch_execute(&JOBS_VERSION_1.replace("scheduler", "app_jobs")).await.expect("version 1");
    client.batch_execute(&BLOCK_STEPS.replace("{n}", &n.to_string())).await.expect("made");
    let mut killed = CommandProcess::migrate(&url);
    if !is_held(&client, &mut killed).await {
        return false;
    }
    killed.kill().await;
    let status = migration_status(&url, &PostgresOptions::default()).await.expect("the status is read");
    assert!(status.iter().any(|status| status.found < status.newest), "{status:?}");
    // The server still works in the name of a client that is gone. It notices, and rolls back.
    assert!(CommandProcess::migrate(&url).finish_within(TEST_TIMEOUT).await, "{name} is migrated");
    let status = migration_status(&url, &PostgresOptions::default()).await.expect("a status");
    assert!(status.iter().all(|status| status.found == status.newest), "{status:?}");
    let jobs = PostgresJobs::open_for_application(&url, PostgresOptions::default()).await.expect("open");
    assert_eq!(jobs.count(&JobFilter::default()).await.expect("read"), 4, "no job is lost");
    true
}

/// Waits until the migration is at the slow statement. Returns false if it is done before.
async fn is_held(client: &tokio_postgres::Client, migration: &mut CommandProcess) -> bool {
    let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity
                              WHERE datname = current_database() AND wait_event = 'PgSleep')";
    let waiting = async {
        loop {
            if client.query_one(sql, &[]).await.expect("read").get(0) {
                return true;
            }
            if migration.has_ended() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("it is held or ends")
}

async fn connect(cluster: &Cluster, database: &str) -> tokio_postgres::Client {
    let url = cluster.url(database);
    let (client, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(async move { drop(connection.await) });
    client
}
