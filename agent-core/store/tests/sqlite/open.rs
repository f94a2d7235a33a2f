use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use agent_platform::records::{Precondition, Records};
use agent_store::sqlite::{SqliteOpenError, SqliteOptions, SqliteStore};

use super::{TempStore, impatient, json, key, other};

fn refused(path: &Path) -> SqliteOpenError {
    SqliteStore::open(path, impatient()).expect_err("refused")
}

#[test]
fn a_missing_folder_is_named() {
    let temp_store = TempStore::new();
    let path = temp_store.file().join("app.db");
    let error = refused(&path);
    assert!(matches!(&error, SqliteOpenError::NoFolder(folder) if *folder == temp_store.file()), "{error:?}");
    assert_eq!(error.to_string(), format!("there is no directory {}", temp_store.file().display()));
    // A file in its place is none either.
    fs::write(temp_store.file(), "").expect("a file");
    assert!(matches!(refused(&path), SqliteOpenError::NoFolder(folder) if folder == temp_store.file()));
}

#[test]
fn a_folder_is_not_read_as_a_file() {
    let temp_store = TempStore::new();
    fs::create_dir(temp_store.file()).expect("a folder");
    assert!(matches!(refused(&temp_store.file()), SqliteOpenError::NotAFile(_)));
}

#[test]
fn a_file_that_is_not_a_database_is_refused_unchanged() {
    let temp_store = TempStore::new();
    for content in [&b"hello"[..], &[b'x'; 100], &[0xa5; 10_000]] {
        fs::write(temp_store.file(), content).expect("a file");
        let error = refused(&temp_store.file());
        assert!(matches!(error, SqliteOpenError::NotADatabase(_)), "{} bytes: {error:?}", content.len());
        assert_eq!(fs::read(temp_store.file()).expect("read"), content);
    }
}

#[test]
fn another_programs_database_is_refused_and_not_changed() {
    for sql in [
        "CREATE TABLE songs (id INTEGER)",
        "PRAGMA user_version = 1",
        "PRAGMA application_id = 77",
        "CREATE TABLE songs (id INTEGER); PRAGMA application_id = 77; PRAGMA user_version = 1",
    ] {
        let temp_store = TempStore::new();
        other(&temp_store.file()).execute_batch(sql).expect("a database");
        let before = fs::read(temp_store.file()).expect("read");
        let error = refused(&temp_store.file());
        assert!(matches!(error, SqliteOpenError::OtherProgram(_)), "{sql}: {error:?}");
        assert_eq!(fs::read(temp_store.file()).expect("read"), before, "{sql}");
    }
}

#[test]
fn a_newer_schema_is_refused_and_both_versions_are_named() {
    let temp_store = TempStore::new();
    drop(temp_store.store(SqliteOptions::default()));
    other(&temp_store.file()).pragma_update(None, "user_version", 99).expect("set");
    let error = refused(&temp_store.file());
    assert!(matches!(error, SqliteOpenError::Newer { found: 99, known: 13, .. }), "{error:?}");
    let expected = format!(
        "{} has schema version 99, and this program knows versions up to 13: update this program",
        temp_store.file().display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_database_without_its_tables_is_named() {
    for sql in [
        "DROP TABLE jobs",
        "DROP TABLE records",
        "ALTER TABLE counter RENAME COLUMN last_version TO number",
        "DROP TABLE jobs; PRAGMA user_version = 2",
    ] {
        let temp_store = TempStore::new();
        drop(temp_store.store(SqliteOptions::default()));
        other(&temp_store.file()).execute_batch(sql).expect("changed");
        let error = refused(&temp_store.file());
        assert!(matches!(error, SqliteOpenError::Incomplete { .. }), "{sql}: {error:?}");
    }
}

#[test]
fn a_corrupt_database_is_named() {
    let temp_store = TempStore::new();
    drop(temp_store.store(SqliteOptions::default()));
    let mut content = fs::read(temp_store.file()).expect("read");
    content[100..4096].fill(0xa5);
    fs::write(temp_store.file(), content).expect("written");
    let error = refused(&temp_store.file());
    assert!(matches!(error, SqliteOpenError::Damaged(_)), "{error:?}");
    assert!(error.to_string().ends_with(" is corrupt: restore it from a backup"), "{error}");
}

#[tokio::test]
async fn a_store_that_could_not_be_written_is_found_writable_again() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions { max_file_bytes: Some(300_000), ..impatient() });
    store.check_writable().await.expect("nothing has failed");
    let large = format!("\"{}\"", "x".repeat(300_000));
    store.put(&key("large"), json(&large), Precondition::Any).await.expect_err("no room");
    store.check_writable().await.expect("there is room for a little");
    let lock = other(&temp_store.file());
    lock.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    store.put(&key("a"), json("1"), Precondition::Any).await.expect_err("locked");
    store.check_writable().await.expect_err("still locked");
    lock.execute_batch("ROLLBACK").expect("released");
    store.check_writable().await.expect("writable again");
}

#[tokio::test]
async fn an_empty_database_is_migrated() {
    let temp_store = TempStore::new();
    fs::write(temp_store.file(), "").expect("an empty file");
    let store = temp_store.store(SqliteOptions::default());
    store.put(&key("a"), json("1"), Precondition::Absent).await.expect("put");
}

#[test]
fn a_lock_that_outlasts_the_wait_is_named() {
    let temp_store = TempStore::new();
    let lock = other(&temp_store.file());
    lock.execute_batch("BEGIN EXCLUSIVE").expect("a lock");
    assert!(matches!(refused(&temp_store.file()), SqliteOpenError::Locked(_)));
    lock.execute_batch("ROLLBACK").expect("released");
    drop(temp_store.store(impatient()));
}

/// Kernel file systems are not writable even for root, so the test is independent of its user.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_path_is_reported() {
    assert!(matches!(refused(Path::new("/sys/app.db")), SqliteOpenError::ReadOnly(_)));
    assert!(matches!(refused(Path::new("/proc/sys/kernel/osrelease")), SqliteOpenError::ReadOnly(_)));
}

#[test]
fn a_full_disk_is_reported_when_the_tables_are_created() {
    let temp_store = TempStore::new();
    let options = SqliteOptions { max_file_bytes: Some(4096), ..SqliteOptions::default() };
    let error = SqliteStore::open(temp_store.file(), options).expect_err("refused");
    assert!(matches!(error, SqliteOpenError::Full(_)), "{error:?}");
    drop(temp_store.store(SqliteOptions::default()));
}

#[cfg(unix)]
#[tokio::test]
async fn only_their_owner_reads_the_files() {
    use std::os::unix::fs::PermissionsExt;

    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    store.put(&key("a"), json("1"), Precondition::Any).await.expect("put");
    let folder = temp_store.file().with_file_name("");
    let files: Vec<_> = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file")).collect();
    assert_eq!(files.len(), 3, "the file, its log and the log's index: {files:?}");
    for file in files {
        let mode = file.metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
}

#[tokio::test]
async fn a_closed_store_leaves_everything_in_one_file() {
    let temp_store = TempStore::new();
    let store = temp_store.store(SqliteOptions::default());
    store.put(&key("a"), json("1"), Precondition::Any).await.expect("put");
    drop(store);
    let files = fs::read_dir(temp_store.file().with_file_name("")).expect("a folder").count();
    assert_eq!(files, 1);
    let store = temp_store.store(SqliteOptions::default());
    assert!(store.get(&key("a")).await.expect("read").is_some());
}

#[test]
fn many_may_open_a_new_file_at_the_same_time() {
    for _ in 0..5 {
        let temp_store = TempStore::new();
        let begin = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    begin.wait();
                    drop(temp_store.store(SqliteOptions::default()));
                });
            }
        });
    }
}
