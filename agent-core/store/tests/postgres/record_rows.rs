use agent_platform::conversation::Conversations;
use agent_platform::records::{Collection, Key, Precondition, Records, StoreError, Write};
use agent_store::postgres::{
    MigrationStatus, PostgresErrorKind, PostgresOpenError, PostgresRecords, migrate, migration_status,
};
use serde_json::value::RawValue;

use super::grants::documented_grants;
use super::{Cluster, conversation, database, fault, impatient, other, usage};

/// Script of each database.
const DATABASES: [(&str, &str); 7] = [
    ("version_1", include_str!("../golden/postgres-app-v1.sql")),
    ("version_2", include_str!("../golden/postgres-app-v2.sql")),
    ("version_3", include_str!("../golden/postgres-app-v3.sql")),
    ("version_4", include_str!("../golden/postgres-app-v4.sql")),
    ("version_5", include_str!("../golden/postgres-app-v5.sql")),
    ("version_6", include_str!("../golden/postgres-app-v6.sql")),
    ("version_7", NEWEST),
];
const NEWEST: &str = include_str!("../golden/postgres-app-v7.sql");
const SELECT_ROWS: &str = "
    SELECT row_to_json(row)::text FROM (
        SELECT company, collection, id, version, value FROM app.records ORDER BY company, collection, id
    ) AS row";

/// The records of the golden databases, with their versions, in the order of the keys.
fn records() -> Vec<(Key, u64, &'static str)> {
    let key = |collection: Result<Collection, StoreError>, id: &str| {
        collection.and_then(|collection| collection.key(id)).expect("a key")
    };
    let memories = Collection::new("acme", "memories").and_then(|memories| memories.within("agent/7"));
    vec![
        (key(Collection::of_platform("tokens"), "t"), 3, "{\"kind\": \"widget\"}"),
        (key(Collection::new("acme", "documents"), "a/b"), 41, "{\"text\": \"\\u0000 ü 1.0\", \"n\": 1e3}"),
        (key(memories, "x"), 7, "null"),
    ]
}

async fn open(url: &str) -> PostgresRecords {
    PostgresRecords::open(url, impatient()).await.expect("open")
}

async fn refused(url: &str) -> PostgresOpenError {
    PostgresRecords::open(url, impatient()).await.expect_err("refused")
}

fn put(key: &Key, text: &str) -> Write {
    let value = RawValue::from_string(text.to_owned()).expect("JSON").into();
    Write::Put { key: key.clone(), value, precondition: Precondition::Any }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn databases_of_every_version_are_read_and_migrations_reported() {
    let cluster = Cluster::start();
    for (name, script) in DATABASES {
        a_database_is_read_and_written(&cluster, name, script).await;
    }
    conversation::runs_of_the_version_before_are_read(&open(&cluster.url("version_2")).await).await;
    threads_are_counted(&cluster, "version_3").await;
    rows_are_written_in_the_format_of_the_newest_version(&cluster).await;
    conversations_are_written_in_the_format_of_the_newest_version(&cluster).await;
    a_newer_compatible_version_is_used_and_another_refused(&cluster).await;
    pending_migrations_are_reported_without_changes(&cluster).await;
    few_rights_are_enough(&cluster).await;
}

async fn a_database_is_read_and_written(cluster: &Cluster, name: &str, script: &str) {
    let url = database(cluster, name).await;
    other(cluster, name).await.batch_execute(script).await.expect("a database");
    let store = open(&url).await;
    let keys: Vec<Key> = records().into_iter().map(|(key, ..)| key).collect();
    let read_records = store.get_many(&keys).await.expect("read");
    assert_eq!(read_records.len(), keys.len());
    for ((key, version, text), record) in records().into_iter().zip(read_records) {
        let record = record.expect("it is there");
        assert_eq!((record.id.as_str(), record.version, record.value.get()), (key.id(), version, text));
    }
    let written = store.commit(vec![put(&keys[0], "1")]).await.expect("put");
    assert!(written[0] > Some(41), "{written:?}");
}

/// Checks the number of threads in a database of a version that had none, and after deletions.
async fn threads_are_counted(cluster: &Cluster, name: &str) {
    let store = open(&cluster.url(name)).await;
    for (deleted, count) in [(None, Some(2)), (Some("t2"), Some(1)), (Some("t/1"), None)] {
        if let Some(id) = deleted {
            Conversations::delete(&store, &conversation::owner().thread(id))
                .await
                .expect("deleted")
                .expect("it was there");
        }
        let sql = "SELECT threads FROM app.thread_counts WHERE company = 'acme' AND owner = 'ada \"ü\"'";
        let rows = other(cluster, name).await.query(sql, &[]).await.expect("rows");
        assert_eq!(rows.first().map(|row| row.get::<_, i64>(0)), count, "{deleted:?}");
    }
}

/// A change of the format of a row needs a migration and a new golden database.
async fn rows_are_written_in_the_format_of_the_newest_version(cluster: &Cluster) {
    let rows = async |name: &str| -> Vec<String> {
        let rows = other(cluster, name).await.query(SELECT_ROWS, &[]).await.expect("rows");
        rows.iter().map(|row| row.get::<_, String>(0)).collect()
    };
    database(cluster, "expected").await;
    other(cluster, "expected").await.batch_execute(NEWEST).await.expect("a database");
    let url = database(cluster, "written").await;
    let store = open(&url).await;
    let client = other(cluster, "written").await;
    for (key, version, text) in records() {
        let sql = format!("SELECT setval('app.record_version', {version}, false)");
        client.batch_execute(&sql).await.expect("set");
        store.commit(vec![put(&key, text)]).await.expect("put");
    }
    assert_eq!(rows("written").await, rows("expected").await);
}

async fn conversations_are_written_in_the_format_of_the_newest_version(cluster: &Cluster) {
    let written = open(&cluster.url("written")).await;
    conversation::fill(&written).await.expect("stored");
    usage::fill(&written).await;
    let tables = [
        ("threads", "n"),
        ("nodes", "thread, seq"),
        ("runs", "n"),
        ("processes", "id"),
        ("run_events", "run, first"),
        ("thread_counts", "company, owner"),
        ("feedback", "thread, seq"),
        ("turn_contexts", "thread, seq, turn"),
        ("usage_calls", "n"),
        ("usage_days", "day, model"),
    ];
    for (table, order) in tables {
        let sql =
            format!("SELECT row_to_json(row)::text FROM (SELECT * FROM app.{table} ORDER BY {order}) AS row");
        let mut rows = Vec::new();
        for name in ["written", "expected"] {
            let written_rows = other(cluster, name).await.query(&sql, &[]).await.expect("rows");
            rows.push(written_rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>());
        }
        assert_eq!(rows[0], rows[1], "{table}");
    }
    let read = conversation::contents(&open(&cluster.url("expected")).await).await;
    assert_eq!(
        read,
        conversation::contents(&written).await,
        "data of an older version reads like current data"
    );
    let read = conversation::contexts(&open(&cluster.url("expected")).await).await;
    assert_eq!(read, conversation::contexts(&written).await);
    let read = usage::contents(&open(&cluster.url("expected")).await).await;
    assert_eq!(read, usage::contents(&written).await);
}

async fn a_newer_compatible_version_is_used_and_another_refused(cluster: &Cluster) {
    let url = database(cluster, "newer").await;
    drop(open(&url).await);
    let client = other(cluster, "newer").await;
    let sql = "ALTER TABLE app.records ADD COLUMN added text; UPDATE app.schema_version SET version = 8";
    client.batch_execute(sql).await.expect("expanded");
    let store = open(&url).await;
    let key = Key::new("acme", "things", "a").expect("a key");
    store.commit(vec![put(&key, "1")]).await.expect("a program of the release before writes");
    assert!(store.get(&key).await.expect("read").is_some());
    client.batch_execute("UPDATE app.schema_version SET compatible_from = 8").await.expect("contracted");
    let newer = refused(&url).await;
    let expected =
        "the schema \"app\" has version 8, and this program knows versions up to 7: update this program";
    assert_eq!(newer.to_string(), expected);

    let url = database(cluster, "others").await;
    let sql = "CREATE SCHEMA app; CREATE TABLE app.records (id int)";
    other(cluster, "others").await.batch_execute(sql).await.expect("made");
    let others = refused(&url).await;
    assert!(matches!(others, PostgresOpenError::OtherProgram { schema: "app" }), "{others:?}");
}

async fn pending_migrations_are_reported_without_changes(cluster: &Cluster) {
    let url = database(cluster, "empty").await;
    let status = |app, jobs| {
        vec![
            MigrationStatus { schema: "app", found: app, newest: 7 },
            MigrationStatus { schema: "app_jobs", found: jobs, newest: 4 },
        ]
    };
    for _ in 0..2 {
        assert_eq!(migration_status(&url, &impatient()).await.expect("read"), status(0, 0));
    }
    migrate(&url, &impatient()).await.expect("migrated");
    assert_eq!(migration_status(&url, &impatient()).await.expect("read"), status(7, 4));
}

async fn few_rights_are_enough(cluster: &Cluster) {
    let url = database(cluster, "rights").await;
    let owner = other(cluster, "rights").await;
    owner.batch_execute("CREATE ROLE writer LOGIN").await.expect("made");
    let weak = url.replace("postgres@", "writer@");
    let denied = refused(&weak).await;
    assert!(matches!(&denied, PostgresOpenError::Denied(_)), "{denied:?}");
    migrate(&url, &impatient()).await.expect("migrated");
    owner.batch_execute(&documented_grants("app", "writer")).await.expect("granted");
    let store = open(&weak).await;
    let key = Key::new("acme", "things", "a").expect("a key");
    store.commit(vec![put(&key, "1")]).await.expect("put");
    assert!(Records::delete(&store, &key, Precondition::Any).await.expect("deleted"));
    conversation::fill(&store).await.expect("stored");
    usage::fill(&store).await;
    owner.batch_execute("REVOKE SELECT ON app.records FROM writer").await.expect("revoked");
    let uncached = Key::new("acme", "things", "b").expect("a key");
    assert_eq!(fault(store.get(&uncached).await).kind(), PostgresErrorKind::Denied);
}
