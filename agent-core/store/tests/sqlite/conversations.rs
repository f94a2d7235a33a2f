//! Conversations in a SQLite file: the rows after a deletion, and the effect of a damaged row.

use std::sync::Arc;

use agent_core::message::Message;
use agent_platform::conversation::{
    Conversations, DeleteFilter, EndRunRequest, LogEnd, MAX_REAPED_RUNS, NewNode, NodeQuery, RunKey,
    RunSignal, ThreadKey, ThreadOwner,
};
use agent_store::sqlite::{SqliteOptions, SqliteStore};

use super::conversation::{append, at, begin, chunk, end, owner};
use super::{TempStore, damaged_runs, impatient, other};

/// Text that fills several pages, with a word that is found again.
fn secret(n: usize) -> String {
    format!("secret-word-{n} {}", "x".repeat([10, 300, 3_000, 20_000][n % 4]))
}

async fn talk(store: &SqliteStore, key: &ThreadKey, n: usize) {
    let run = format!("run {n}");
    let question = NewNode::user(None, Message::user(secret(2 * n)));
    let answer = NewNode::user(Some(question.id.clone()), Message::assistant(secret(2 * n + 1)));
    store.begin_run(begin(key.clone(), &run, vec![question])).await.expect("begun");
    append(store, &run, chunk(0, &secret(2 * n + 1))).await.expect("appended");
    store.end_run(end(&run, vec![answer])).await.expect("ended");
}

/// Returns the numbers of the secrets that the file and its log contain after a checkpoint.
fn secrets_in_file(temp_store: &TempStore) -> Vec<usize> {
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy = other(&temp_store.file())
        .query_row(checkpoint, (), |row| row.get::<_, i64>(0))
        .expect("a checkpoint");
    assert_eq!(busy, 0, "the log is in the file");
    let mut bytes = std::fs::read(temp_store.file()).expect("a file");
    bytes.extend(std::fs::read(temp_store.file().with_file_name("app.db-wal")).unwrap_or_default());
    let text = String::from_utf8_lossy(&bytes);
    let found = text.match_indices("secret-word-").map(|(at, word)| {
        let digits = text[at + word.len()..].chars().take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().expect("a number")
    });
    let found: std::collections::BTreeSet<usize> = found.collect();
    found.into_iter().collect()
}

#[tokio::test]
async fn a_thread_is_read_with_the_contents_of_its_path() {
    let place = TempStore::new();
    let store = place.store(SqliteOptions::default());
    let key = owner().thread("t");
    talk(&store, &key, 0).await;
    let read = Conversations::path(&store, &key).await.expect("read").expect("a thread");
    assert_eq!(read.contents.len(), 2);
    assert_eq!(read.contents, store.contents(&key, &[0, 1]).await.expect("read"));
}

#[tokio::test]
async fn a_damaged_run_hides_no_due_run_of_another_company() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    let owners = ["c1", "c2"].map(|company| ThreadOwner::new(company, "ada"));
    for owner in &owners {
        store.begin_run(begin(owner.thread("t"), "r", Vec::new())).await.expect("begun");
    }
    let sql = "UPDATE runs SET state = 'waiting', due_ms = 0;
               UPDATE runs SET body = '{' WHERE company = 'c1'";
    other(&temp_store.file()).execute_batch(sql).expect("damaged");
    let due = store.due_runs(at(0), None).await.expect("read").runs;
    assert_eq!(due.into_iter().map(|(owner, _)| owner).collect::<Vec<_>>(), owners[1..]);
}

#[tokio::test]
async fn a_damaged_run_hides_no_page_of_due_runs() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    for number in 0..MAX_REAPED_RUNS + 2 {
        let id = number.to_string();
        store.begin_run(begin(owner().thread(id.as_str()), &id, Vec::new())).await.expect("begun");
    }
    let sql = "UPDATE runs SET state = 'waiting', due_ms = 0; UPDATE runs SET body = '{' WHERE id = '7'";
    other(&temp_store.file()).execute_batch(sql).expect("damaged");
    let first = store.due_runs(at(0), None).await.expect("read");
    assert_eq!(first.runs.len(), MAX_REAPED_RUNS - 1);
    let second = store.due_runs(at(0), first.next_cursor.as_deref()).await.expect("read");
    assert_eq!((second.runs.len(), second.next_cursor), (2, None));
}

#[tokio::test]
async fn many_damaged_runs_hide_no_lost_run_and_no_expired_log() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    let damage = async || other(&temp_store.file()).execute_batch(damaged_runs::DAMAGE).expect("damaged");
    damaged_runs::hide_no_other(&store, damage).await;
}

#[tokio::test]
async fn a_signal_of_a_newer_version_costs_no_writes() {
    let temp_store = TempStore::new();
    let store = temp_store.store(impatient());
    store.begin_run(begin(owner().thread("t"), "r", Vec::new())).await.expect("begun");
    let run = RunKey { owner: owner(), id: "r".into() };
    store.signal(&run, RunSignal::Watch, at(1_000)).await.expect("signalled").expect("a run");
    let writer = other(&temp_store.file());
    writer.execute("UPDATE signals SET kind = 'newer'", ()).expect("renamed");
    writer.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    // A call that writes would wait for the lock, and fail.
    assert_eq!(store.take_signals("process", at(2)).await.expect("taken"), []);
}

#[tokio::test]
async fn a_run_that_cannot_be_read_keeps_no_log_of_another() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    for run in ["damaged", "sound"] {
        let question = NewNode::user(None, Message::user("Hello"));
        store.begin_run(begin(owner().thread(run), run, vec![question])).await.expect("begun");
        append(&store, run, chunk(0, "Hello you")).await.expect("appended");
        let log = LogEnd { until: Some(at(10)), ..LogEnd::default() };
        store.end_run(EndRunRequest { log, ..end(run, Vec::new()) }).await.expect("ended");
    }
    let damaged = other(&temp_store.file()).execute("UPDATE runs SET body = '{' WHERE id = 'damaged'", ());
    assert_eq!(damaged.expect("damaged"), 1);
    let chunks = async || {
        let page = store.events(&owner(), &"sound".into(), 0).await.expect("read");
        page.expect("a run").chunks.len()
    };
    assert_eq!(chunks().await, 1);
    store.trim_logs(at(20)).await.expect_err("a run cannot be read");
    assert_eq!(chunks().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deleted_conversations_are_erased_from_the_file() {
    let temp_store = TempStore::new();
    let store = Arc::new(temp_store.store(SqliteOptions::default()));
    for n in 0..40 {
        talk(&store, &owner().thread(format!("t{n}")), n).await;
    }
    assert_eq!(secrets_in_file(&temp_store).len(), 80, "the test finds what is there");
    for n in (0..40).step_by(2) {
        store.delete(&owner().thread(format!("t{n}"))).await.expect("deleted").expect("the thread existed");
    }
    let left: Vec<usize> = (0..80).filter(|n| n % 4 >= 2).collect();
    assert_eq!(secrets_in_file(&temp_store), left, "only the threads that are there");
    let key = owner().thread("t1");
    let page = store.nodes(&key, &NodeQuery::default()).await.expect("read").expect("a thread");
    store.erase_node(&key, &page.nodes[0].id).await.expect("erased");
    let left: Vec<usize> = left.into_iter().filter(|n| *n != 2).collect();
    assert_eq!(secrets_in_file(&temp_store), left, "the title goes with the message");
    store.erase_node(&key, &page.nodes[1].id).await.expect("erased");
    let left: Vec<usize> = left.into_iter().filter(|n| *n != 3).collect();
    assert_eq!(secrets_in_file(&temp_store), left, "the log goes with the message");
    store.delete_many(&owner(), &DeleteFilter::default()).await.expect("deleted");
    assert_eq!(secrets_in_file(&temp_store), [0; 0], "nothing is left");
}
