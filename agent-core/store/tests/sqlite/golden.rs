//! Databases of every schema version, as the programs of their time wrote them.

use agent_jobs::job::{ClaimRequest, CompanyQuota, Job, JobFilter, JobOrder, JobScope, JobStore, Step};
use agent_platform::conversation::Conversations;
use agent_platform::records::{Records, StoreError};
use agent_store::sqlite::SqliteOptions;
use jiff::Timestamp;
use rusqlite::types::Value;

use super::{TempStore, conversation, key, other, uncached, usage};

/// Script of each database, and the number of jobs in it.
const DATABASES: [(&str, &str, usize); 14] = [
    ("version 1", include_str!("../golden/sqlite-v1.sql"), 0),
    ("version 2", include_str!("../golden/sqlite-v2.sql"), 4),
    ("version 3 with times as text", include_str!("../golden/sqlite-v3-text.sql"), 4),
    ("version 3", include_str!("../golden/sqlite-v3.sql"), 4),
    ("version 4", include_str!("../golden/sqlite-v4.sql"), 4),
    ("version 5", include_str!("../golden/sqlite-v5.sql"), 4),
    ("version 6", VERSION_6, 4),
    ("version 7", VERSION_7, 4),
    ("version 8", include_str!("../golden/sqlite-v8.sql"), 4),
    ("version 9", include_str!("../golden/sqlite-v9.sql"), 4),
    ("version 10", include_str!("../golden/sqlite-v10.sql"), 4),
    ("version 11", include_str!("../golden/sqlite-v11.sql"), 4),
    ("version 12", include_str!("../golden/sqlite-v12.sql"), 4),
    ("version 13", NEWEST, 4),
];
const VERSION_6: &str = include_str!("../golden/sqlite-v6.sql");
const VERSION_7: &str = include_str!("../golden/sqlite-v7.sql");
const NEWEST: &str = include_str!("../golden/sqlite-v13.sql");

/// The jobs of the databases.
fn jobs() -> Vec<Job> {
    serde_json::from_str(include_str!("../golden/jobs.json")).expect("jobs")
}

fn restored(script: &str) -> TempStore {
    let temp_store = TempStore::new();
    other(&temp_store.file()).execute_batch(script).expect("a database");
    temp_store
}

fn claim_at(now: Timestamp) -> ClaimRequest {
    let quota = CompanyQuota::new(usize::MAX);
    ClaimRequest { now, due_until: now, lease_until: Timestamp::MAX, limit: 10, quota }
}

#[tokio::test]
async fn the_databases_of_every_version_are_read() {
    for (version, script, count) in DATABASES {
        let temp_store = restored(script);
        let store = temp_store.store(uncached());
        let record = Records::get(&store, &key("a")).await.expect("read").expect("a record");
        assert_eq!((record.version, record.value.get()), (7, r#"{"kept":"Grüße"}"#), "{version}");
        let filter = JobFilter::default();
        let listed = JobStore::list(&store, &filter, JobOrder::OldestFirst, None, 10).await.expect("a list");
        assert_eq!(listed.jobs, jobs()[..count], "{version}");
        assert!(listed.unreadable.is_empty(), "{version}");
        let agent = JobFilter { agent: Some("the \"other\"".into()), ..filter };
        let listed = JobStore::list(&store, &agent, JobOrder::OldestFirst, None, 10).await.expect("a list");
        assert_eq!(listed.jobs, jobs()[..count].get(1..2).unwrap_or_default(), "{version}");
        let now: Timestamp = "2026-02-01T00:00:00Z".parse().expect("a time");
        let claimed = store.claim_due(claim_at(now)).await.expect("claim").len();
        assert_eq!(claimed, count.saturating_sub(1), "{version}: all but the cancelled one");
        let row = other(&temp_store.file()).query_row("PRAGMA user_version", (), |row| row.get::<_, i64>(0));
        assert_eq!(row.expect("read"), 13, "{version}");
    }
}

/// Returns the rows of jobs.
fn rows(temp_store: &TempStore) -> Vec<Vec<Value>> {
    let columns = "id, company, user_id, tool, assignment, agent, idempotency, state, wake_ms, ended_ms, dead, \
                   body, progress";
    select(temp_store, &format!("SELECT {columns} FROM jobs ORDER BY id"))
}

fn select(temp_store: &TempStore, sql: &str) -> Vec<Vec<Value>> {
    let connection = other(&temp_store.file());
    let mut statement = connection.prepare(sql).expect("SQL");
    let width = statement.column_count();
    let rows = statement.query_map((), |row| (0..width).map(|column| row.get(column)).collect());
    rows.expect("rows").collect::<Result<_, _>>().expect("a row")
}

/// A change of the format of a row needs a migration, a new database here, and a new number above.
#[tokio::test]
async fn rows_are_written_in_the_format_of_the_newest_version() {
    let expected = rows(&restored(NEWEST));
    let temp_store = TempStore::new();
    temp_store.store(SqliteOptions::default()).insert(jobs()).await.expect("insert");
    assert_eq!(rows(&temp_store), expected);
}

#[tokio::test]
async fn conversations_are_written_in_the_format_of_the_newest_version() {
    let (expected, written) = (restored(NEWEST), TempStore::new());
    let store = written.store(uncached());
    conversation::fill(&store).await.expect("stored");
    let tables = [
        ("threads", "n"),
        ("nodes", "thread, seq"),
        ("runs", "n"),
        ("processes", "id"),
        ("run_events", "run, first"),
        ("thread_counts", "company, owner"),
        ("feedback", "thread, seq"),
        ("turn_contexts", "thread, seq, turn"),
    ];
    for (table, order) in tables {
        let sql = format!("SELECT * FROM {table} ORDER BY {order}");
        assert_eq!(select(&written, &sql), select(&expected, &sql), "{table}");
    }
    let read = conversation::contents(&expected.store(uncached())).await;
    assert_eq!(
        read,
        conversation::contents(&store).await,
        "data of an older version reads like current data"
    );
    assert_eq!((read.0.len(), read.1.len(), read.2.len(), read.3.len()), (2, 7, 3, 3));
    let read = conversation::contexts(&expected.store(uncached())).await;
    assert_eq!(read, conversation::contexts(&store).await);
}

#[tokio::test]
async fn usage_is_written_in_the_format_of_the_newest_version() {
    let (expected, written) = (restored(NEWEST), TempStore::new());
    let store = written.store(uncached());
    usage::fill(&store).await;
    for (table, order) in [("usage_calls", "n"), ("usage_days", "day, operation DESC, model")] {
        let sql = format!("SELECT * FROM {table} ORDER BY {order}");
        assert_eq!(select(&written, &sql), select(&expected, &sql), "{table}");
    }
    let read = usage::contents(&expected.store(uncached())).await;
    assert_eq!(read, usage::contents(&store).await);
    assert_eq!((read.0.len(), read.1.len()), (3, 3));
}

#[tokio::test]
async fn runs_without_logs_are_migrated() {
    let temp_store = restored(VERSION_6);
    conversation::runs_of_the_version_before_are_read(&temp_store.store(uncached())).await;
}

#[tokio::test]
async fn threads_of_the_version_before_are_counted() {
    let temp_store = restored(VERSION_7);
    let store = temp_store.store(uncached());
    let counts = || select(&temp_store, "SELECT company, owner, threads FROM thread_counts");
    let count = |threads: i64| {
        let owner = conversation::owner();
        vec![vec![owner.company.to_string().into(), owner.owner.to_string().into(), threads.into()]]
    };
    assert_eq!(counts(), count(2));
    Conversations::delete(&store, &conversation::owner().thread("t2"))
        .await
        .expect("deleted")
        .expect("it was there");
    assert_eq!(counts(), count(1));
    Conversations::delete(&store, &conversation::owner().thread("t/1"))
        .await
        .expect("deleted")
        .expect("it was there");
    assert_eq!(counts(), Vec::<Vec<Value>>::new());
}

#[tokio::test]
async fn a_running_process_notices_a_newer_version() {
    let temp_store = restored(NEWEST);
    let store = temp_store.store(uncached());
    let now: Timestamp = "2026-01-01T01:30:00Z".parse().expect("a time");
    let claimed = store.claim_due(claim_at(now)).await.expect("claim");
    let held = claimed.first().expect("a due job");
    other(&temp_store.file()).pragma_update(None, "user_version", 14).expect("migrated");
    let describe_result = |result: Result<(), StoreError>| match result {
        Err(StoreError::Unavailable(source)) => source.to_string(),
        other => panic!("it is refused, and not {other:?}"),
    };
    let expected = "the database was migrated to version 14 and this program knows versions up to 13: it must be updated";
    assert_eq!(describe_result(store.claim_due(claim_at(now)).await.map(drop)), expected);
    let cancel = store.apply_step(&JobScope::default(), &held.id, Step::Cancel, now).await;
    assert_eq!(describe_result(cancel.map(drop)), expected);
    // It completes the job that it has started.
    let ended = store.apply_steps(vec![super::jobs::succeeded(held)], now).await.expect("steps");
    assert!(ended[0].is_applied(), "{ended:?}");
}
