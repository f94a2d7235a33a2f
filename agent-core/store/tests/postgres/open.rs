use std::error::Error;

use agent_jobs::job::{JobScope, JobStore};
use agent_store::postgres::{PostgresErrorKind, PostgresJobs, PostgresOpenError};
use futures_util::future::join_all;

use super::grants::documented_grants;
use super::{Cluster, at, database, impatient, is_there, job, other, store, wait_until};

async fn refused(url: &str) -> PostgresOpenError {
    PostgresJobs::open(url, impatient()).await.expect_err("refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unusable_databases_are_refused_and_usable_ones_migrated_once() {
    let cluster = Cluster::start();
    an_unreachable_address_is_reported(&cluster).await;
    many_may_open_an_empty_database_at_the_same_time(&cluster).await;
    foreign_and_newer_schemas_are_refused_unchanged(&cluster).await;
    unsuitable_databases_are_refused(&cluster).await;
    few_rights_are_enough(&cluster).await;
}

async fn an_unreachable_address_is_reported(cluster: &Cluster) {
    assert!(matches!(refused("mysql://u@h/d").await, PostgresOpenError::Address(_)));
    let nowhere = refused("postgres://u:canary@%2Fno%2Fsuch%2Ffolder/d").await;
    assert!(matches!(&nowhere, PostgresOpenError::Unreachable(_)), "{nowhere:?}");
    assert!(!format!("{nowhere:?} {nowhere}").contains("canary"), "{nowhere:?}");
    let missing = refused(&cluster.url("missing")).await;
    assert!(matches!(&missing, PostgresOpenError::Failed(_)), "{missing:?}");
    let reason = missing.source().and_then(Error::source).expect("a reason").to_string();
    assert_eq!(reason, "database \"missing\" does not exist (SQLSTATE 3D000)");
    // This server has no certificate. The store must not fall back to an unencrypted connection.
    let encrypted = refused(&format!("{}?sslmode=require", cluster.url("postgres"))).await;
    assert!(
        matches!(&encrypted, PostgresOpenError::Failed(_) | PostgresOpenError::Unreachable(_)),
        "{encrypted:?}"
    );
}

async fn many_may_open_an_empty_database_at_the_same_time(cluster: &Cluster) {
    for n in 0..3 {
        let url = database(cluster, &format!("fresh_{n}")).await;
        let stores = join_all((0..6).map(|_| store(&url))).await;
        let made = job("acme", 5);
        stores[0].insert(vec![made.clone()]).await.expect("insert");
        for store in &stores {
            assert!(is_there(store, &made).await, "all see the same table");
        }
    }
    let client = other(cluster, "fresh_0").await;
    let rows = client.query("SELECT version FROM scheduler.schema_version", &[]).await.expect("read");
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [4]);
}

async fn foreign_and_newer_schemas_are_refused_unchanged(cluster: &Cluster) {
    let url = database(cluster, "newer").await;
    drop(store(&url).await);
    let client = other(cluster, "newer").await;
    client
        .batch_execute("UPDATE scheduler.schema_version SET version = 99, compatible_from = 99")
        .await
        .expect("set");
    let newer = refused(&url).await;
    assert!(matches!(newer, PostgresOpenError::Newer { found: 99, known: 4, .. }), "{newer:?}");
    let expected = "the schema \"scheduler\" has version 99, and this program knows versions up to 4: update this program";
    assert_eq!(newer.to_string(), expected);

    let url = database(cluster, "others").await;
    let client = other(cluster, "others").await;
    client
        .batch_execute("CREATE SCHEMA scheduler; CREATE TABLE scheduler.jobs (id int)")
        .await
        .expect("made");
    let others = refused(&url).await;
    assert!(matches!(others, PostgresOpenError::OtherProgram { schema: "scheduler" }), "{others:?}");
    client.batch_execute("INSERT INTO scheduler.jobs VALUES (1)").await.expect("the table is unchanged");
}

async fn unsuitable_databases_are_refused(cluster: &Cluster) {
    let client = other(cluster, "postgres").await;
    let sql = "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'";
    client.batch_execute(sql).await.expect("made");
    let latin = refused(&cluster.url("latin")).await;
    assert!(matches!(&latin, PostgresOpenError::Encoding { found } if found == "LATIN1"), "{latin:?}");
    let url = database(cluster, "frozen").await;
    let sql = "ALTER DATABASE frozen SET default_transaction_read_only = on";
    client.batch_execute(sql).await.expect("set");
    let frozen = refused(&url).await;
    assert!(matches!(frozen, PostgresOpenError::ReadOnly), "{frozen:?}");
}

async fn few_rights_are_enough(cluster: &Cluster) {
    database(cluster, "shared").await;
    let owner = other(cluster, "shared").await;
    owner.batch_execute("CREATE ROLE weak LOGIN").await.expect("made");
    let weak = cluster.url("shared").replace("postgres@", "weak@");
    let denied = refused(&weak).await;
    assert!(matches!(&denied, PostgresOpenError::Denied(_)), "{denied:?}");
    // A user without the right to create a schema can use one that exists.
    owner.batch_execute("CREATE SCHEMA scheduler AUTHORIZATION weak").await.expect("made");
    let made = job("acme", 5);
    store(&weak).await.insert(vec![made.clone()]).await.expect("insert");
    // A user without the right to change tables can use existing ones.
    owner.batch_execute("CREATE ROLE weaker LOGIN").await.expect("made");
    owner.batch_execute(&documented_grants("scheduler", "weaker")).await.expect("granted");
    let weaker = cluster.url("shared").replace("postgres@", "weaker@");
    let opened = store(&weaker).await;
    assert!(is_there(&opened, &made).await);
    opened.insert(vec![job("acme", 6)]).await.expect("insert");
    opened.purge(at(0), 10).await.expect("purge");
    owner.batch_execute("REVOKE SELECT ON scheduler.jobs FROM weaker").await.expect("revoked");
    let denied = opened.get(&JobScope::default(), &made.id).await;
    assert_eq!(super::fault(denied).kind(), PostgresErrorKind::Denied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tls_connections_verify_the_server() {
    let cluster = Cluster::start_with_certificate();
    let client = other(&cluster, "postgres").await;
    let trusted = format!("sslrootcert={}", cluster.certificate().display());
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = format!("{}?{trusted}&sslmode={mode}", cluster.tcp_url("localhost", "postgres"));
        let opened = store(&url).await;
        opened.insert(vec![job("acme", 5)]).await.expect("insert");
        let asked =
            "SELECT count(*) FILTER (WHERE ssl), count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                     WHERE application_name = 'agentd'";
        let row = client.query_one(asked, &[]).await.expect("read");
        let (encrypted, all): (i64, i64) = (row.get(0), row.get(1));
        assert!(encrypted == all && all >= 2, "{mode}: {encrypted} of {all} connections are encrypted");
        drop(opened);
        let left = "SELECT FROM pg_stat_activity WHERE application_name = 'agentd'";
        let is_closed = async || client.query(left, &[]).await.expect("read").is_empty();
        wait_until("the connections are closed", is_closed).await;
    }
    let localhost = cluster.tcp_url("localhost", "postgres");
    let unknown = refused(&format!("{localhost}?sslmode=require")).await;
    assert!(why(&unknown).contains("UnknownIssuer"), "{unknown:?}");
    let another =
        refused(&format!("{}?{trusted}&sslmode=require", cluster.tcp_url("127.0.0.1", "postgres"))).await;
    assert!(why(&another).contains("not valid for name"), "{another:?}");
    store(&localhost)
        .await
        .insert(vec![job("acme", 6)])
        .await
        .expect("a connection to localhost may be unencrypted");
}

/// Formats an error with all its sources.
fn why(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        message = format!("{message} / {error}");
        source = error.source();
    }
    message
}
