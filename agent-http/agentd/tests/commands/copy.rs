//! `agentd copy` that is killed half-way, and the one after it: the target has everything or nothing.

use std::path::Path;
use std::time::Duration;

use tokio::process::Child;
use tokio_postgres::Client;

use super::cluster::Cluster;
use super::{connect, run, sqlite_url, start};

/// Time limit for waits, after which a test counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A database with rows in all tables.
const RECORDS: &str = include_str!("../../../../agent-core/store/tests/golden/postgres-app-v7.sql");
const JOBS: &str = include_str!("../../../../agent-core/store/tests/golden/postgres-v4.sql");
/// Tables in the order in which they are copied.
const TABLES: [&str; 10] = [
    "app.records",
    "app_jobs.jobs",
    "app.threads",
    "app.nodes",
    "app.runs",
    "app.run_events",
    "app.feedback",
    "app.turn_contexts",
    "app.usage_calls",
    "app.usage_days",
];

/// A server with the database `source`, which has rows in all tables.
pub(super) async fn start_source() -> (Cluster, String) {
    let cluster = Cluster::start();
    let admin = connect(&cluster, "postgres").await;
    admin.batch_execute("CREATE DATABASE source").await.expect("created");
    let client = connect(&cluster, "source").await;
    client.batch_execute(RECORDS).await.expect("created");
    client.batch_execute(&JOBS.replace("scheduler", "app_jobs")).await.expect("created");
    for (table, (rows, _)) in TABLES.iter().zip(contents(&client).await) {
        assert!(rows > 0, "{table} is empty");
    }
    let url = cluster.url("source");
    (cluster, url)
}

/// Returns the number of rows of each table, and a digest of them without the places in the ledger, which are new in a copy.
pub(super) async fn contents(client: &Client) -> Vec<(i64, Option<String>)> {
    let mut contents = Vec::new();
    for table in TABLES {
        let left_out = if table == "app.usage_calls" { "n" } else { "" };
        let sql = format!(
            "SELECT count(*), md5(string_agg(row, ',' ORDER BY row))
             FROM (SELECT (to_jsonb(found) - '{left_out}')::text COLLATE \"C\" AS row FROM {table} AS found) AS rows"
        );
        let row = client.query_one(&sql, &[]).await.expect("read");
        contents.push((row.get(0), row.get(1)));
    }
    contents
}

/// Waits until a statement in a database waits for a lock. Panics if the copy has ended before.
async fn wait_for_lock(client: &Client, copying: &mut Child) {
    let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity
                              WHERE datname = current_database() AND wait_event_type = 'Lock')";
    let waiting = async {
        while !client.query_one(sql, &[]).await.expect("read").get::<_, bool>(0) {
            assert!(copying.try_wait().expect("a child").is_none(), "it has ended");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await.expect("it waits for the lock");
}

/// Makes a copy into the database wait for the lock 7, which this function takes, when it inserts into a table, or when it
/// commits.
async fn block(client: &Client, table: &str, at_commit: bool) {
    let trigger = match at_commit {
        false => format!("TRIGGER blocked BEFORE INSERT ON {table} FOR EACH STATEMENT"),
        true => format!(
            "CONSTRAINT TRIGGER blocked AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
        ),
    };
    let sql = format!(
        "CREATE FUNCTION public.wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM pg_advisory_xact_lock(7);
             RETURN NEW;
         END $$;
         CREATE {trigger} EXECUTE FUNCTION public.wait_for_test();
         SELECT pg_advisory_lock(7)"
    );
    client.batch_execute(&sql).await.expect("blocked");
}

/// Ends [`block`] once the transaction of the killed copy has ended.
async fn unblock(client: &Client, table: &str) {
    let sql = format!("SELECT pg_advisory_unlock(7); DROP TRIGGER blocked ON {table}");
    client.batch_execute(&sql).await.expect("unblocked");
}

/// Copies a database and returns the error, or an empty text.
async fn copy(from: &str, to: &str) -> String {
    let output = run(&["copy", "env:FROM", "env:TO"], &[("FROM", from), ("TO", to)]).await;
    assert!(!output.is_success || output.stdout.contains("the target has been read again and is the same"));
    if output.is_success { String::new() } else { output.failure() }
}

fn start_copy(from: &str, to: &str) -> Child {
    start(&["copy", "env:FROM", "env:TO"], &[("FROM", from), ("TO", to)])
}

/// Kills a copy when it is about to insert into a table of the target, or to commit, and returns the contents of the target
/// once the server has noticed.
async fn kill_at(
    (cluster, from): &(Cluster, String),
    name: &str,
    table: &str,
    at_commit: bool,
) -> (Client, Vec<(i64, Option<String>)>) {
    let admin = connect(cluster, "postgres").await;
    admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("created");
    let (client, to) = (connect(cluster, name).await, cluster.url(name));
    run(&["migrate"], &[("DATABASE_URL", &to)]).await.success();
    block(&client, table, at_commit).await;
    let mut copying = start_copy(from, &to);
    wait_for_lock(&client, &mut copying).await;
    copying.kill().await.expect("killed");
    // The server still waits for the test's lock in the name of a client that is gone, and holds the tables.
    if table == TABLES[0] && !at_commit {
        let error = copy(from, &to).await;
        assert!(error.contains("nothing was copied") && error.contains("locked"), "{error}");
    }
    unblock(&client, table).await;
    let target_contents = contents(&client).await;
    (client, target_contents)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_copy_into_postgres_has_written_all_or_nothing() {
    let source = start_source().await;
    let expected = contents(&connect(&source.0, "source").await).await;
    for (number, table) in TABLES.iter().enumerate() {
        let name = format!("killed_{number}");
        let (client, target_contents) = kill_at(&source, &name, table, false).await;
        assert!(target_contents.iter().all(|(rows, _)| *rows == 0), "{table}: {target_contents:?}");
        let to = source.0.url(&name);
        assert_eq!(copy(&source.1, &to).await, "", "{table}: the next copy succeeds");
        assert_eq!(contents(&client).await, expected, "{table}");
    }
    // A commit that the server has received is made although the client is gone.
    let (_, target_contents) = kill_at(&source, "killed_late", TABLES[0], true).await;
    assert_eq!(target_contents, expected);
    let error = copy(&source.1, &source.0.url("killed_late")).await;
    assert!(error.contains("nothing was copied: the target is not empty"), "{error}");
    let error = copy(&source.0.url("postgres"), &source.0.url("killed_late")).await;
    assert!(error.contains("FROM is a database without tables of this program"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_copy_into_a_file_leaves_none() {
    let source = start_source().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("copy.db");
    for table in [TABLES[0], TABLES[3], TABLES[9]] {
        let holder = connect(&source.0, "source").await;
        let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        holder.batch_execute(&lock).await.expect("locked");
        let watcher = connect(&source.0, "source").await;
        let mut copying = start_copy(&source.1, &sqlite_url(&path));
        wait_for_lock(&watcher, &mut copying).await;
        copying.kill().await.expect("killed");
        assert!(!path.exists(), "{table}");
        assert_eq!(entries(folder.path()).len(), 1, "{table}: the unfinished copy");
        holder.batch_execute("ROLLBACK").await.expect("released");
    }
    assert_eq!(copy(&source.1, &sqlite_url(&path)).await, "", "the next copy succeeds");
    assert_eq!(entries(folder.path()), ["copy.db"], "it has removed what the killed ones left");
    let admin = connect(&source.0, "postgres").await;
    admin.batch_execute("CREATE DATABASE back").await.expect("created");
    assert_eq!(copy(&sqlite_url(&path), &source.0.url("back")).await, "", "the file is whole");
    let expected = contents(&connect(&source.0, "source").await).await;
    assert_eq!(contents(&connect(&source.0, "back").await).await, expected);
    let missing = sqlite_url(&folder.path().join("missing.db"));
    let refused = copy(&missing, &sqlite_url(&folder.path().join("other.db"))).await;
    assert!(refused.contains("missing.db is not a file"), "{refused}");
}

/// Returns the names of the entries of a folder.
fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("listed");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}
