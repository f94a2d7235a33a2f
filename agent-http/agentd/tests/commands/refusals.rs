//! Databases that cannot be used: each command says why, and names no password.

use super::cluster::Cluster;
use super::{TestDatabases, connect, run, sqlite_url};

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
    ] {
        admin.batch_execute(sql).await.expect("created");
    }
    // Tables of other programs, some of which number their versions, too.
    let others = [
        ("others", "CREATE TABLE app.records (id int)"),
        ("damaged", "CREATE TABLE app.schema_version (version int)"),
        (
            "named",
            "CREATE TABLE app.schema_version (installed_rank int, version varchar(50));
             INSERT INTO app.schema_version VALUES (1, '1.0')",
        ),
        ("long", "CREATE TABLE app.schema_version (version int8); INSERT INTO app.schema_version VALUES (1)"),
        (
            "numbered",
            "CREATE TABLE app.schema_version (version int); INSERT INTO app.schema_version VALUES (7);
             CREATE TABLE app.records (id int)",
        ),
    ];
    for (database, tables) in others {
        admin.batch_execute(&format!("CREATE DATABASE {database}")).await.expect("created");
        let client = connect(&cluster, database).await;
        client.batch_execute(&format!("CREATE SCHEMA app; {tables}")).await.expect("created");
    }

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
        ("postgres://u:pass-canary@127.0.0.1:9/d".to_owned(), &["cannot be reached"]),
    ] {
        let error = refusal(&url).await;
        for reason in reasons {
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
    let schemas = "SELECT FROM pg_namespace WHERE nspname LIKE 'app%'";
    for (database, _) in others {
        for arguments in [&["migrate"][..], &["migrate", "--check"], &["export"]] {
            let error = run(arguments, &[("DATABASE_URL", &cluster.url(database))]).await.failure();
            let reason = "the schema \"app\" contains tables of another program";
            assert!(error.contains(reason), "{database}: {error}");
        }
        let found = connect(&cluster, database).await.query(schemas, &[]).await.expect("read");
        assert_eq!(found.len(), 1, "{database}: nothing was created");
    }
    // The right password is accepted.
    admin.batch_execute("GRANT CREATE ON DATABASE postgres TO locked").await.expect("granted");
    run(&["migrate"], &[("DATABASE_URL", &tcp("locked:right", "postgres"))]).await.success();
}

#[tokio::test]
async fn a_file_in_place_of_a_folder_is_named() {
    let databases = TestDatabases::sqlite();
    let taken = databases.path("taken");
    std::fs::write(&taken, "notes").expect("written");
    let within = taken.join("app.db");
    let (taken, path) = (taken.display().to_string(), within.display().to_string());
    let below = sqlite_url(&within);
    let error = refusal(&below).await;
    assert_eq!(error, format!("agentd: {taken} is not a directory\n"));
    let error = run(&["export"], &[("DATABASE_URL", &below)]).await.failure();
    assert!(error.starts_with(&format!("agentd: {path} cannot be read: ")), "{error}");

    let database = databases.database("good").await;
    let env = [("DATABASE_URL", &*database)];
    run(&["migrate"], &env).await.success();
    let error = run(&["backup", &path], &env).await.failure();
    assert_eq!(error, format!("agentd: no backup was written: there is no directory {taken}\n"));
    let error = run(&["copy", &database, &below], &env).await.failure();
    assert_eq!(error, format!("agentd: nothing was copied: there is no directory {taken}\n"));
    assert_eq!(std::fs::read_to_string(&taken).expect("read"), "notes");
}
