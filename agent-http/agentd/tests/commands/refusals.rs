//! Databases that cannot be used: each command says why, and names no password.

use super::cluster::Cluster;
use super::{connect, run};

async fn refusal(url: &str) -> String {
    run(&["migrate"], &[("DATABASE_URL", url)]).await.failure()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_that_cannot_be_used_are_refused_with_the_reason() {
    let mut cluster = Cluster::start_with_certificate();
    cluster.require_password("locked");
    let admin = connect(&cluster, "postgres").await;
    for sql in [
        "CREATE ROLE locked LOGIN PASSWORD 'right'",
        "CREATE ROLE nobody LOGIN",
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'",
        "CREATE DATABASE others",
        "CREATE DATABASE damaged",
    ] {
        admin.batch_execute(sql).await.expect("created");
    }
    let others = connect(&cluster, "others").await;
    others.batch_execute("CREATE SCHEMA app; CREATE TABLE app.records (id int)").await.expect("created");
    let damaged = connect(&cluster, "damaged").await;
    damaged
        .batch_execute("CREATE SCHEMA app; CREATE TABLE app.schema_version (version int)")
        .await
        .expect("created");

    let tcp = |user: &str, database: &str| {
        cluster.tcp_url("localhost", database).replace("postgres@", &format!("{user}@"))
    };
    for (url, reasons) in [
        (tcp("locked:pass-canary", "postgres"), &["denied permission", "password authentication failed"][..]),
        (tcp("locked", "postgres"), &["password"]),
        (tcp("unknown:pass-canary", "postgres"), &["denied permission", "role \"unknown\" does not exist"]),
        (cluster.url("missing"), &["database \"missing\" does not exist"]),
        (tcp("nobody", "postgres"), &["denied permission"]),
        (cluster.url("latin"), &["LATIN1"]),
        (cluster.url("others"), &["the schema \"app\" contains tables of another program"]),
        (cluster.url("damaged"), &["the schema \"app\" contains tables of another program"]),
        ("postgres://u:pass-canary@127.0.0.1:9/d".to_owned(), &["cannot be reached"]),
    ] {
        let error = refusal(&url).await;
        for reason in reasons {
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
    // The right password is accepted.
    admin.batch_execute("GRANT CREATE ON DATABASE postgres TO locked").await.expect("granted");
    run(&["migrate"], &[("DATABASE_URL", &tcp("locked:right", "postgres"))]).await.success();
}
