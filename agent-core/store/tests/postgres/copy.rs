use std::path::Path;

use agent_core::message::Message;
use agent_jobs::job::{JobFilter, JobOrder, JobStore};
use agent_platform::conversation::{Conversations, CreateThreadRequest, NewThread, import_nodes};
use agent_platform::records::{Collection, Inventory, Key, ListQuery, Precondition, Records};
use agent_store::copy::{CopyDatabase, CopyError, CopySummary, copy};
use agent_store::postgres::{PostgresJobs, PostgresRecords, migrate};
use agent_store::sqlite::{SqliteOptions, SqliteStore};
use serde_json::value::RawValue;

use super::grants::documented_grants;
use super::{Cluster, at, conversation, database, impatient, job, other, usage};

/// More records than a page of a copy has.
const RECORDS: usize = 450;
/// Makes an empty database one whose records have been deleted.
const USED_VERSIONS: &str = "SELECT setval('app.record_version', 1000000)";

fn key(n: usize) -> Key {
    let company = ["acme", "ünïcode", "z"][n % 3];
    Collection::new(company, "things").and_then(|things| things.key(format!("id/{n:04}"))).expect("a key")
}

async fn fill(store: &SqliteStore) {
    for n in 0..RECORDS {
        let value = RawValue::from_string(format!("{{ \"n\" : {n}, \"nul\": \"\\u0000\" }}")).expect("JSON");
        store.put(&key(n), value.into(), Precondition::Absent).await.expect("put");
    }
    Records::delete(store, &key(0), Precondition::Any).await.expect("deleted");
    store.insert((0..250).map(|n| job("acme", n)).collect()).await.expect("inserted");
    conversation::fill(store).await.expect("stored");
    usage::fill(store).await;
    // More chunks than a page of a copy has, and more bytes.
    for n in 0..300 {
        let words = if n < 250 { "w ".to_owned() } else { format!("{} ", "x".repeat(200_000)) };
        conversation::append(store, "run 3", conversation::chunk(2 + n, &words)).await.expect("appended");
    }
    let messages = (0..450).map(|n| Message::user(format!("{n} \u{0}"))).collect();
    let large = CreateThreadRequest {
        key: conversation::owner().thread("large"),
        agent_id: "gardener".into(),
        new: NewThread::default(),
        retention: None,
        nodes: import_nodes(None, messages),
        now: at(0),
    };
    store.create(large).await.expect("created");
}

/// Returns all records with their versions and times, and the jobs.
async fn contents(records: &dyn Inventory, jobs: &dyn JobStore) -> String {
    let mut text = String::new();
    for company in records.companies(None).await.expect("companies") {
        for collection in records.collections(&company, None).await.expect("collections") {
            let mut list = ListQuery::default();
            loop {
                let page = records.list(&collection, &list).await.expect("a page");
                page.records.iter().for_each(|record| text += &format!("{company} {record:?}\n"));
                let Some(next) = page.next_cursor else { break };
                list.cursor = Some(next);
            }
        }
    }
    let mut after = None;
    loop {
        let page = jobs.list(&JobFilter::default(), JobOrder::OldestFirst, after.as_ref(), 100).await;
        let page = page.expect("jobs");
        let Some(last) = page.jobs.last() else { return text };
        text += &format!("{:?}\n", page.jobs);
        after = Some(last.id.clone());
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).expect("open")
}

/// The role of the processes cannot set the numbers of new rows: a copy by it is refused before it has written anything.
async fn few_rights_are_too_few(cluster: &Cluster, from: &CopyDatabase) {
    let owner = other(cluster, "copied").await;
    owner.batch_execute("CREATE ROLE writer LOGIN").await.expect("created");
    owner.batch_execute(&documented_grants("app", "writer")).await.expect("granted");
    let url = cluster.url("copied").replace("postgres@", "writer@");
    let denied = copy(from, &CopyDatabase::Postgres(url)).await.expect_err("denied");
    assert!(matches!(denied, CopyError::Open(_)), "{denied:?}");
    assert_eq!(denied.to_string(), "the database server denied permission");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_installation_is_copied_both_ways() {
    let (cluster, folder) = (Cluster::start(), tempfile::tempdir().expect("a folder"));
    let (first, back) = (folder.path().join("first.db"), folder.path().join("back.db"));
    let store = open(&first);
    fill(&store).await;
    let expected = contents(&store, &store).await;
    let url = database(&cluster, "copied").await;
    let (from, to) = (CopyDatabase::Sqlite(first.clone()), CopyDatabase::Postgres(url.clone()));
    migrate(&url, &impatient()).await.expect("migrated");
    let client = other(&cluster, "copied").await;
    client.batch_execute(USED_VERSIONS).await.expect("used");
    few_rights_are_too_few(&cluster, &from).await;
    let summary = copy(&from, &to).await.expect("copied while the store is open");
    assert_eq!(summary, CopySummary { records: RECORDS as u64 - 1, jobs: 250, threads: 3 });

    let records = PostgresRecords::open(&url, impatient()).await.expect("open");
    let jobs = PostgresJobs::open_for_application(&url, impatient()).await.expect("open");
    assert!(
        contents(&records, &jobs).await == expected,
        "the contents are the same, with versions and times"
    );
    let talks = conversation::contents(&store).await;
    assert_eq!((talks.0.len(), talks.1.len(), talks.2.len()), (3, 7 + 200, 3));
    assert_eq!(talks.3.len(), 3 + 300, "chunks of logs");
    assert_eq!(conversation::contents(&records).await, talks, "conversations are the same");
    assert_eq!(conversation::contexts(&records).await, conversation::contexts(&store).await);
    assert_eq!(usage::contents(&records).await, usage::contents(&store).await, "usage is the same");
    let again = copy(&from, &to).await.expect_err("it is not empty");
    assert!(matches!(again, CopyError::NotEmpty), "{again:?}");

    let newest = Records::get(&store, &key(RECORDS - 1)).await.expect("read").expect("there").version;
    let version = records.put(&key(0), RawValue::NULL.to_owned().into(), Precondition::Absent).await;
    let version = version.expect("put");
    assert!(version > newest && version > 1_000_000, "versions go on where they were: {version}");
    Records::delete(&records, &key(0), Precondition::Any).await.expect("deleted");

    // New threads and runs get new numbers.
    let new = conversation::begin(conversation::owner().thread("new"), "run 4", Vec::new());
    records.begin_run(new).await.expect("begun");
    Conversations::delete(&records, &conversation::owner().thread("new"))
        .await
        .expect("deleted")
        .expect("the thread existed");
    assert_eq!(conversation::contents(&records).await, talks, "the others stay");

    let to_file = CopyDatabase::Sqlite(back.clone());
    copy(&to, &to_file).await.expect("copied back");
    let returned = open(&back);
    assert_eq!(usage::contents(&returned).await, usage::contents(&store).await, "usage is the same");
    assert!(contents(&returned, &returned).await == expected, "the contents are the same");
    assert_eq!(conversation::contents(&returned).await, talks, "conversations are the same");
    let exists = copy(&to, &to_file).await.expect_err("the file exists");
    assert!(matches!(exists, CopyError::NotEmpty), "{exists:?}");
    drop(returned);
    let left =
        std::fs::read_dir(folder.path()).expect("listed").map(|entry| entry.expect("an entry").file_name());
    let hidden: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(hidden.is_empty(), "no temporary file is left: {hidden:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_aborted_copy_leaves_no_file() {
    let (mut cluster, folder) = (Cluster::start(), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("first.db");
    fill(&open(&path)).await;
    let url = database(&cluster, "copied").await;
    let (from, to) = (CopyDatabase::Sqlite(path.clone()), CopyDatabase::Postgres(url.clone()));
    // The tables exist, so that the crash hits the copy itself.
    drop(PostgresRecords::open(&url, impatient()).await.expect("open"));
    drop(PostgresJobs::open_for_application(&url, impatient()).await.expect("open"));
    let blocker = super::other(&cluster, "copied").await;
    blocker.batch_execute("BEGIN; LOCK TABLE app_jobs.jobs IN ROW SHARE MODE").await.expect("locked");
    let mut copying = Box::pin(copy(&from, &to));
    let waiting = async {
        let watcher = super::other(&cluster, "copied").await;
        let sql = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        while watcher.query_one(sql, &[]).await.expect("asked").get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = &mut copying => panic!("it waits for the lock: {done:?}"),
        () = waiting => {}
    }
    cluster.crash();
    copying.await.expect_err("the server is gone");
    cluster.restart();
    let summary = copy(&from, &to).await.expect("the target is still empty");
    assert_eq!(summary.records, RECORDS as u64 - 1);
}
