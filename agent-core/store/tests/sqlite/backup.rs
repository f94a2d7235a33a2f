use std::fs;

use agent_platform::records::{Precondition, Records};
use agent_store::sqlite::{BackupError, SqliteOptions, SqliteStore};
use futures_util::future::{Either, select};

use super::{TempStore, json, key, put};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_of_one_moment_while_others_write() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    let text = format!("\"{}\"", "x".repeat(20_000));
    for n in 0..100 {
        store.put(&key(&format!("large-{n}")), json(&text), Precondition::Any).await.expect("put");
    }
    let to = temp_store.file().with_file_name("backup.db");
    let writes = Box::pin(async {
        for n in 0.. {
            let n = format!("{n}");
            let pair = vec![put("left", &n, Precondition::Any), put("right", &n, Precondition::Any)];
            store.commit(pair).await.expect("commit");
        }
    });
    match select(Box::pin(store.backup(&to)), writes).await {
        Either::Left((outcome, _)) => outcome.expect("a backup"),
        Either::Right(_) => unreachable!("the writes do not end"),
    }
    let copy = SqliteStore::open(&to, SqliteOptions::default()).expect("the copy opens");
    assert_eq!(copy.check_integrity().await.expect("a check"), Vec::<String>::new());
    let copied_records = copy.get_many(&[key("left"), key("right"), key("large-99")]).await.expect("read");
    let values: Vec<_> =
        copied_records.iter().map(|record| record.as_ref().map(|record| record.value.get())).collect();
    assert_eq!(values[0], values[1]);
    assert_eq!(values[2], Some(text.as_str()));
    let version = copy.put(&key("new"), json("1"), Precondition::Absent).await.expect("put");
    assert!(version > 100, "versions go on in the copy: {version}");
}

#[tokio::test]
async fn a_failed_backup_overwrites_and_leaves_no_file() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    let to = temp_store.file().with_file_name("backup.db");
    fs::write(&to, "dear").expect("a file");
    let refused = store.backup(&to).await;
    assert!(matches!(&refused, Err(BackupError::Exists(path)) if *path == to), "{refused:?}");
    assert_eq!(fs::read(&to).expect("read"), b"dear");
    let refused = store.backup(temp_store.file()).await;
    assert!(matches!(refused, Err(BackupError::Exists(_))), "{refused:?}");
    let refused = store.backup(to.join("backup.db")).await;
    assert!(matches!(&refused, Err(BackupError::NoFolder(folder)) if *folder == to), "{refused:?}");

    drop(store);
    let names = fs::read_dir(to.with_file_name("")).expect("a folder");
    let mut names: Vec<_> = names.map(|file| file.expect("a file").file_name()).collect();
    names.sort();
    assert_eq!(names, ["app.db", "backup.db"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_backup_can_be_read_only_by_its_owner() {
    use std::os::unix::fs::PermissionsExt;

    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    let to = temp_store.file().with_file_name("backup.db");
    store.backup(&to).await.expect("a backup");
    assert_eq!(fs::metadata(&to).expect("metadata").permissions().mode() & 0o777, 0o600);
}
